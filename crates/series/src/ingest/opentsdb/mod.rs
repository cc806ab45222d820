//! OpenTSDB's lines: `put metric time value tag=x ...`, and beside it `sync`, `version`, `stats`,
//! `help`.
//!
//! A time below 2^32 is in seconds, one of 13 digits in milliseconds, as OpenTSDB has it; what is
//! larger is in nanoseconds, as Akumuli has it; ISO 8601 in its basic form, a date, RFC 3339 and
//! `now-1h` are taken too. The name of a series is looked up as metric and tags, which don't stand
//! together.

mod json;

pub use json::PutPoints;
pub(super) use json::take;

use super::Sample;
use super::intake::{Intake, Shown};
use super::line_parser::LineParser;
use super::lines::{Lines, TOO_LONG, find_near};
use super::number::{self, Recent};
use crate::time::parse_moment;

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
        match line.strip_prefix(b"put ") {
            Some(arguments) => {
                if let Err((what, why)) = put(intake, &mut self.recent, arguments) {
                    self.refuse(intake, what, why, line);
                }
            }
            None => self.other(intake, line),
        }
    }

    fn too_long(&mut self, intake: &mut Intake) {
        self.refuse(intake, "put: illegal argument", TOO_LONG, b"");
    }

    fn end(&mut self, intake: &mut Intake, rest: &[u8]) {
        if !rest.is_empty() {
            self.refuse(
                intake,
                "put: illegal argument",
                "the stream ends in the middle of a line",
                rest,
            );
        }
    }
}

impl Parser {
    #[cold]
    fn other(&mut self, intake: &mut Intake, line: &[u8]) {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let word = words.next().unwrap_or_default();
        match word {
            b"sync" => intake.wants_sync = true,
            b"version" => intake.say(format_args!("Plinth {}\n", env!("CARGO_PKG_VERSION"))),
            b"help" => intake.say(format_args!("available commands: put sync version help\n")),
            b"put" => {
                // Without an argument, or with blanks before it.
                let arguments = line.trim_ascii_start().strip_prefix(b"put").unwrap_or_default();
                if let Err((what, why)) = put(intake, &mut self.recent, arguments) {
                    self.refuse(intake, what, why, line);
                }
            }
            // Known to OpenTSDB, and of no use here.
            b"rollup" | b"histogram" | b"hist" | b"dropcaches" | b"stats" | b"" => {}
            word => {
                let what = format!("unknown command: {}.  Try `help'.", Shown(word));
                self.refuse(intake, &what, "", line);
            }
        }
    }

    #[cold]
    fn refuse(&self, intake: &mut Intake, what: &str, why: &str, line: &[u8]) {
        let divider = if why.is_empty() { "" } else { ": " };
        let number = self.lines.number;
        intake.reply(format_args!("{what}{divider}{why} (line {number}) - {}\n", Shown(line)));
    }
}

/// Which times are taken.
const TIMES: &str = "seconds, milliseconds or nanoseconds since 1970, RFC 3339, 2026-01-01, 20260101T120000 \
                     or now-1h are expected, from 1677-09-21 to 2262-04-11";

type Refused = (&'static str, &'static str);

/// The next word, and what is behind it.
#[inline]
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let begin = text.iter().position(|byte| *byte != b' ').unwrap_or(text.len());
    let text = &text[begin..];
    let end = find_near(b' ', text).unwrap_or(text.len());
    (&text[..end], &text[end..])
}

#[inline]
fn put(intake: &mut Intake, recent: &mut Recent, arguments: &[u8]) -> Result<(), Refused> {
    const FEW: Refused = (
        "put: illegal argument",
        "not enough arguments: metric, time and value are expected, and tags if there are any",
    );
    let (metric, rest) = word(arguments);
    let (when, rest) = word(rest);
    let (value, tags) = word(rest);
    if value.is_empty() {
        return Err(FEW);
    }
    put_words(intake, recent, (metric, when, value, tags))
}

/// Takes a point: its metric, its time, its value, and its tags, each behind a blank.
#[inline(always)]
fn put_words(
    intake: &mut Intake,
    recent: &mut Recent,
    (metric, when, value, tags): (&[u8], &[u8], &[u8], &[u8]),
) -> Result<(), Refused> {
    let time = match when.first() {
        // It is another one each time.
        Some(b'n') => told(when, intake.besides.now),
        _ => recent.parse(when, time),
    };
    let time = time.map_err(|_| ("put: invalid timestamp format", TIMES))?;
    let value = number::value(value).map_err(|_| ("put: bad floating point value", ""))?;
    let row = match intake.names.find(metric, tags) {
        Some(row) => row,
        None => new_name(intake, metric, tags)?,
    };
    intake.samples.push(Sample { target: row.first, time, value });
    Ok(())
}

#[cold]
fn new_name(intake: &mut Intake, metric: &[u8], tags: &[u8]) -> Result<super::names::Row, Refused> {
    const WRONG: Refused = (
        "put: invalid series name format",
        "a metric and tags key=value are expected, each key once, 4096 bytes and 128 tags at most",
    );
    if metric.contains(&b'|') || metric.starts_with(b"!") {
        return Err((
            "put: invalid series name format",
            "rows and events are no part of this protocol",
        ));
    }
    intake.names.insert(metric, tags, metric, tags).map_err(|_| WRONG)
}

#[inline]
fn time(text: &[u8]) -> Result<i64, number::Wrong> {
    const SECONDS: std::ops::Range<i64> = 0..1 << 32;
    const MILLISECONDS: std::ops::RangeInclusive<i64> = 1_000_000_000_000..=9_999_999_999_999;
    let Ok(time) = number::time(text) else { return told(text, None) };
    if text.contains(&b'T') {
        return Ok(time);
    }
    let scale = match time {
        time if SECONDS.contains(&time) => 1_000_000_000,
        time if MILLISECONDS.contains(&time) => 1_000_000,
        _ => 1,
    };
    time.checked_mul(scale).ok_or(number::Wrong::Time)
}

/// A time that is no number: seconds with a point, which OpenTSDB takes, a date, RFC 3339, or now,
/// if it is known when that is.
#[cold]
fn told(text: &[u8], now: Option<i64>) -> Result<i64, number::Wrong> {
    let text = std::str::from_utf8(text).map_err(|_| number::Wrong::Time)?;
    parse_moment(text, now).ok_or(number::Wrong::Time)
}
