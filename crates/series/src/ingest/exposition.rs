//! Prometheus' text format, as exporters write it: `name{label="value"} 1.5 1767225600000`, a
//! sample a line, and comments that say what metrics are.
//!
//! Blanks are where anybody may put them; a label's value has `\\`, `\"` and `\n` for what can't
//! stand in it, and what a metric is about the first and the last of these. Times are milliseconds,
//! or seconds, as OpenMetrics has them, where they would be of January 1970 otherwise; a sample
//! without one is of the moment that the session was told. Of OpenMetrics' own parts exemplars,
//! behind `#`, are taken, and `# EOF` is passed over.

use super::Sample;
use super::influx::Clock;
use super::intake::{Intake, Shown};
use super::line_parser::LineParser;
use super::lines::{Lines, TOO_LONG};
use super::names::{Row, escape};
use crate::exemplar::Exemplar;
use crate::value::Value;

/// The type of a metric of which none was said.
const UNKNOWN: &str = "unknown";
/// What a key of names begins with here: no other protocol's can.
const OURS: [u8; 4] = [0xfd, 0xff, 0xff, 0xff];

#[derive(Debug)]
pub(super) struct Parser {
    lines: Lines,
    clock: Clock,
    comments: Comments,
}

impl Parser {
    pub(super) fn new(clock: Clock) -> Self {
        Self { lines: Lines::default(), clock, comments: Comments::default() }
    }
}

/// What was said last: of which metric, its type, and what it is about.
#[derive(Debug)]
pub(super) struct Comments(Vec<u8>, &'static str, Vec<u8>);

impl Default for Comments {
    fn default() -> Self {
        Self(Vec::new(), UNKNOWN, Vec::new())
    }
}

impl Comments {
    /// A comment: `# HELP name text`, `# TYPE name type`, or nothing of interest. What is known of
    /// the metric then: its name, its type, what it is about. In OpenMetrics' text quotes have a
    /// backslash before them.
    pub(super) fn take(
        &mut self,
        comment: &[u8],
        is_open_metrics: bool,
    ) -> Option<(&[u8], &'static str, &[u8])> {
        let (word, rest) = word(comment.trim_ascii_start());
        let (name, text) = self::word(rest.trim_ascii_start());
        match word {
            b"TYPE" | b"HELP" if self.0 != name => *self = Self(name.to_vec(), UNKNOWN, Vec::new()),
            b"TYPE" | b"HELP" => {}
            _ => return None,
        }
        match word {
            b"TYPE" => self.1 = kind(text.trim_ascii()),
            _ => self.2 = plain_help(text.trim_ascii(), is_open_metrics),
        }
        Some((&self.0, self.1, &self.2))
    }
}

impl LineParser for Parser {
    fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    fn line(&mut self, intake: &mut Intake, line: &[u8]) {
        let text = line.trim_ascii();
        if let Some(comment) = text.strip_prefix(b"#") {
            if let Some((metric, kind, help)) = self.comments.take(comment, false) {
                intake.describe(metric, kind, help, b"");
            }
        } else if !text.is_empty()
            && let Err(why) = take(intake, text, self.clock)
        {
            let number = self.lines.number;
            intake.reply(format_args!("{why} (line {number}) - {}\n", Shown(line)));
        }
    }

    fn too_long(&mut self, intake: &mut Intake) {
        let number = self.lines.number;
        intake.reply(format_args!("{TOO_LONG} (line {number})\n"));
    }

    /// The last line needs no end.
    fn end(&mut self, intake: &mut Intake, rest: &[u8]) {
        self.line(intake, rest);
    }
}

/// The type that a word means.
fn kind(word: &[u8]) -> &'static str {
    const KINDS: [&str; 7] =
        ["counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset"];
    KINDS.into_iter().find(|kind| kind.as_bytes() == word).unwrap_or(UNKNOWN)
}

fn word(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(text.len()))
}

/// Takes a sample.
fn take(intake: &mut Intake, line: &[u8], clock: Clock) -> Result<(), String> {
    let Parts { series, value, time, exemplar } = parts(line)?;
    let time = match time {
        b"" => clock.now,
        time => moment(time).ok_or("the time is no number of milliseconds, or of seconds")?,
    };
    let row = match intake.names.find(&intake.besides.extra.key(&OURS), series) {
        Some(row) => row,
        None => name_of(intake, series)?,
    };
    intake.samples.push(Sample { target: row.first, time, value: Value::Float(value) });
    if let Some((exemplar, at)) = exemplar.and_then(exemplar_of) {
        intake.take_exemplar(row.first, at.unwrap_or(time), &exemplar);
    }
    Ok(())
}

/// What stands in a line.
pub(super) struct Parts<'a> {
    pub(super) series: &'a [u8],
    pub(super) value: f64,
    /// Empty if there is none.
    pub(super) time: &'a [u8],
    /// What stands behind #.
    pub(super) exemplar: Option<&'a [u8]>,
}

pub(super) fn parts(line: &[u8]) -> Result<Parts<'_>, String> {
    let (series, rest) = line.split_at(name_end(line)?);
    let (value, rest) = word(rest.trim_ascii_start());
    let rest = rest.trim_ascii_start();
    let (time, rest) = if rest.first() == Some(&b'#') { (&b""[..], rest) } else { word(rest) };
    let exemplar = match rest.trim_ascii_start() {
        [] => None,
        [b'#', exemplar @ ..] => Some(exemplar),
        _ => return Err("a value and a time are expected, and nothing behind them".to_owned()),
    };
    let value = number(value).ok_or("the value is no number")?;
    Ok(Parts { series, value, time, exemplar })
}

/// The exemplar that stands behind the `#` of a sample, and its time, if it has one: labels, a
/// value, and perhaps seconds. `None` if it is something else, which costs its sample nothing.
pub(super) fn exemplar_of(text: &[u8]) -> Option<(Exemplar, Option<i64>)> {
    let text = text.trim_ascii_start();
    let (labels, rest) = match text.first() {
        Some(b'{') => text.split_at(name_end(text).ok()?),
        _ => return None,
    };
    let (value, rest) = word(rest.trim_ascii_start());
    let (time, rest) = word(rest.trim_ascii_start());
    if !rest.trim_ascii_start().is_empty() {
        return None;
    }
    let time = if time.is_empty() { None } else { Some(seconds(time)?) };
    let (metric, found) = labels_of(labels).ok()?;
    if !metric.is_empty() {
        return None;
    }
    let mut labels = Vec::with_capacity(found.len());
    for (name, value) in found {
        labels.push((String::from_utf8(name).ok()?, String::from_utf8(value).ok()?));
    }
    Some((Exemplar { labels, value: number(value)? }, time))
}

/// Where the name of a series ends, its labels included.
fn name_end(line: &[u8]) -> Result<usize, String> {
    let (mut is_quoted, mut is_in_braces, mut at) = (false, false, 0);
    while let Some(byte) = line.get(at) {
        match byte {
            b'\\' if is_quoted => at += 1,
            b'"' => is_quoted = !is_quoted,
            b'{' if !is_quoted => is_in_braces = true,
            b'}' if !is_quoted => return Ok(at + 1),
            // Blanks may stand before the braces.
            byte if byte.is_ascii_whitespace() && !is_in_braces => {
                let rest = line[at..].trim_ascii_start();
                if rest.first() != Some(&b'{') {
                    return Ok(at);
                }
                at = line.len() - rest.len() - 1;
            }
            _ => {}
        }
        at += 1;
    }
    if is_in_braces { Err("the labels have no end".to_owned()) } else { Ok(line.len()) }
}

/// A number as Go's are written.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    match text {
        b"NaN" => Some(f64::NAN),
        b"+Inf" | b"Inf" => Some(f64::INFINITY),
        b"-Inf" => Some(f64::NEG_INFINITY),
        text => fast_float2::parse(text.strip_prefix(b"+").unwrap_or(text)).ok(),
    }
}

/// A time in seconds, as OpenMetrics has them; what is finer than a millisecond is rounded.
pub(super) fn seconds(text: &[u8]) -> Option<i64> {
    let seconds = number(text).filter(|seconds| seconds.abs() < 9e9)?;
    Some((seconds * 1e3).round() as i64 * 1_000_000)
}

/// A time of either format: so few milliseconds, and what has a point, are seconds.
fn moment(text: &[u8]) -> Option<i64> {
    const FEW: std::ops::Range<i64> = -(1 << 31)..1 << 31;
    match super::number::integer(text) {
        Ok(number) if !FEW.contains(&number) => number.checked_mul(1_000_000),
        _ => seconds(text),
    }
}

pub(super) fn milliseconds(text: &[u8]) -> Option<i64> {
    super::number::integer(text).ok()?.checked_mul(1_000_000)
}

/// The series of a name with labels, which is new.
#[cold]
fn name_of(intake: &mut Intake, name: &[u8]) -> Result<Row, String> {
    let (plain, labels) = labels_of(name)?;
    let labels = intake.besides.extra.with(labels);
    let (mut metric, mut tags) = (Vec::new(), Vec::new());
    escape(&plain, &mut metric);
    for (label, value) in labels.into_iter().filter(|(_, value)| !value.is_empty()) {
        tags.push(b' ');
        escape(&label, &mut tags);
        tags.push(b'=');
        escape(&value, &mut tags);
    }
    if metric.is_empty() || metric.contains(&b'|') || metric[0] == b'!' {
        return Err("that is no name of a metric".to_owned());
    }
    let added = intake.names.insert(&intake.besides.extra.key(&OURS), name, &metric, &tags);
    added.map_err(|error| match error {
        crate::Error::Name { why, .. } => why,
        other => other.to_string(),
    })
}

/// Names and values of labels.
pub(super) type Labels = Vec<(Vec<u8>, Vec<u8>)>;

/// The metric of a name, and its labels, those without a value too.
pub(super) fn labels_of(name: &[u8]) -> Result<(Vec<u8>, Labels), String> {
    let open = name.iter().position(|byte| *byte == b'{').unwrap_or(name.len());
    let (mut metric, mut labels) = (name[..open].trim_ascii().to_vec(), Vec::new());
    let inner = name[open..].strip_prefix(b"{").and_then(|inner| inner.strip_suffix(b"}"));
    let mut rest = inner.unwrap_or_default().trim_ascii_start();
    while !rest.is_empty() {
        let quoted = rest.first() == Some(&b'"');
        let (label, more) = match quoted {
            true => quoted_text(rest)?,
            false => {
                let end =
                    rest.iter().position(|byte| matches!(byte, b'=' | b',')).unwrap_or(rest.len());
                (rest[..end].trim_ascii().to_vec(), &rest[end..])
            }
        };
        let more = more.trim_ascii_start();
        rest = match more.strip_prefix(b"=") {
            Some(more) => {
                let (value, more) = quoted_text(more.trim_ascii_start())?;
                if label == b"__name__" {
                    metric = value;
                } else {
                    labels.push((label, value));
                }
                more
            }
            // A name that needs quotes stands among the labels.
            None if quoted && metric.is_empty() => {
                metric = label;
                more
            }
            None => return Err("a label is not of the form name=\"value\"".to_owned()),
        };
        rest = rest.trim_ascii_start();
        rest = match rest.strip_prefix(b",") {
            Some(rest) => rest.trim_ascii_start(),
            None if rest.is_empty() => rest,
            None => return Err("a comma is expected between labels".to_owned()),
        };
    }
    Ok((metric, labels))
}

/// What a metric is about, as it was before `\\` and `\n`, and of OpenMetrics `\"`, were put for
/// what can't stand there.
fn plain_help(mut text: &[u8], is_open_metrics: bool) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    while let [first, more @ ..] = text {
        let (byte, rest) = match (first, more) {
            (b'\\', [b'n', rest @ ..]) => (b'\n', rest),
            (b'\\', [b'\\', rest @ ..]) => (b'\\', rest),
            (b'\\', [b'"', rest @ ..]) if is_open_metrics => (b'"', rest),
            _ => (*first, more),
        };
        plain.push(byte);
        text = rest;
    }
    plain
}

/// What stands in quotes, and what is behind them.
fn quoted_text(text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let wrong = || "a value in quotes is expected".to_owned();
    let mut rest = text.strip_prefix(b"\"").ok_or_else(wrong)?;
    let mut plain = Vec::new();
    loop {
        match rest {
            [b'"', more @ ..] => return Ok((plain, more)),
            [b'\\', b'n', more @ ..] => {
                plain.push(b'\n');
                rest = more;
            }
            [b'\\', byte @ (b'\\' | b'"'), more @ ..] | [byte, more @ ..] => {
                plain.push(*byte);
                rest = more;
            }
            [] => return Err(wrong()),
        }
    }
}
