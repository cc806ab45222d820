//! Graphite's plain text: `path value time`, a point a line; the path may have tags behind it,
//! `path;host=a;region=eu`.
//!
//! A path is the metric, points and all, so `servers.a.load` is a series without tags. Times are
//! seconds since 1970, whole or not; `-1`, or none, is now. Graphite answers nothing, and whoever
//! sends to it reads nothing, so what is wrong with a line is counted, and the next one is taken.

use super::Sample;
use super::intake::Intake;
use super::line_parser::LineParser;
use super::lines::Lines;
use super::names::{Row, escape};
use super::number::{self, Recent, Wrong};

#[derive(Default, Debug)]
pub(super) struct Parser {
    lines: Lines,
    recent: Recent,
}

impl LineParser for Parser {
    fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    #[inline]
    fn line(&mut self, intake: &mut Intake, line: &[u8]) {
        if take(intake, &mut self.recent, line).is_none() && !line.trim_ascii().is_empty() {
            intake.refused += 1;
        }
    }

    fn too_long(&mut self, intake: &mut Intake) {
        intake.refused += 1;
    }

    /// A line that nobody ended is not known to be whole: its time may lack digits.
    fn end(&mut self, intake: &mut Intake, rest: &[u8]) {
        intake.refused += u64::from(!rest.is_empty());
    }
}

/// Takes a line, if it is a point.
fn take(intake: &mut Intake, recent: &mut Recent, line: &[u8]) -> Option<()> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (path, value, when) = (words.next()?, words.next()?, words.next());
    if words.next().is_some() {
        return None;
    }
    let time = match when {
        None | Some(b"-1") => intake.besides.now?,
        Some(when) => recent.parse(when, seconds).ok()?,
    };
    let value = number::value(value).ok()?;
    let row = match intake.names.find(path, b"") {
        Some(row) => row,
        None => name(intake, path)?,
    };
    intake.samples.push(Sample { target: row.first, time, value });
    Some(())
}

/// Nanoseconds of seconds since 1970.
fn seconds(text: &[u8]) -> Result<i64, Wrong> {
    let wrong = Wrong::Time;
    let (whole, part) = match text.iter().position(|byte| *byte == b'.') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    let is_number = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    if whole.is_empty() || !is_number(whole) || !is_number(part) {
        return Err(wrong);
    }
    let digits = |text: &[u8]| {
        text.iter().try_fold(0_i64, |number, digit| {
            number.checked_mul(10)?.checked_add(i64::from(digit - b'0'))
        })
    };
    let nanoseconds: Vec<u8> = part.iter().copied().chain([b'0'; 9]).take(9).collect();
    let time = digits(whole).and_then(|seconds| seconds.checked_mul(1_000_000_000));
    time.zip(digits(&nanoseconds)).and_then(|(time, part)| time.checked_add(part)).ok_or(wrong)
}

/// The series of a path, which is new.
#[cold]
fn name(intake: &mut Intake, path: &[u8]) -> Option<Row> {
    let mut parts = path.split(|byte| *byte == b';');
    let (mut metric, mut tags) = (Vec::new(), Vec::new());
    escape(parts.next()?, &mut metric);
    if metric.contains(&b'|') || metric.starts_with(b"!") {
        return None;
    }
    for tag in parts {
        tags.push(b' ');
        escape(tag, &mut tags);
    }
    intake.names.insert(path, b"", &metric, &tags).ok()
}
