//! Points as comma-separated values: `series,time,value`, a line each, as exports write them.
//!
//! A field with a comma or a quotation mark in it stands between quotation marks, of which those
//! within are doubled (RFC 4180), but a line is a row whatever is in it. Digits alone are an
//! integer and any other number is a float, so both come back as what they were. What belongs to a
//! series of events is a text. A first line that says `series,time,value` is a heading.

use super::Sample;
use super::intake::{Intake, Shown};
use super::line_parser::LineParser;
use super::lines::{Lines, TOO_LONG};
use super::names::Row;
use super::number::{self, Recent};
use crate::cell::Cell;
use crate::event;
use crate::time::{FORMS, by_size, parse_moment, unit_of_our_days};
use crate::value::Value;
use std::borrow::Cow;

/// The heading of an export.
pub(crate) const HEADING: &str = "series,time,value\n";

#[derive(Debug)]
pub(super) struct Parser {
    lines: Lines,
    recent: Recent,
    /// What `now` means, in nanoseconds since 1970.
    now: i64,
}

impl Parser {
    pub(super) fn new(now: i64) -> Self {
        Self { lines: Lines::default(), recent: Recent::default(), now }
    }
}

impl LineParser for Parser {
    fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    fn line(&mut self, intake: &mut Intake, line: &[u8]) {
        let is_heading = self.lines.number == 1 && line == HEADING.trim_end().as_bytes();
        if line.is_empty() || is_heading {
            return;
        }
        if let Err(why) = self.row(intake, line) {
            self.refuse(intake, &why, line);
        }
    }

    fn too_long(&mut self, intake: &mut Intake) {
        self.refuse(intake, TOO_LONG, b"");
    }

    /// The last line needs no end.
    fn end(&mut self, intake: &mut Intake, rest: &[u8]) {
        self.line(intake, rest);
    }
}

impl Parser {
    #[cold]
    fn refuse(&self, intake: &mut Intake, why: &str, line: &[u8]) {
        let number = self.lines.number;
        intake.reply(format_args!("{why} (line {number}) - {}\n", Shown(line)));
    }

    fn row(&mut self, intake: &mut Intake, line: &[u8]) -> Result<(), Cow<'static, str>> {
        const FEW: &str = "three fields are expected: series, time and value";
        let (name, rest) = field(line)?;
        let (time, rest) = field(rest.ok_or(FEW)?)?;
        let (value, rest) = field(rest.ok_or(FEW)?)?;
        if rest.is_some() {
            return Err("three fields are expected, there are more: series, time and value".into());
        }
        let now = self.now;
        let time = self.recent.parse(&time, |text| self::time(text, now));
        let time = time.map_err(|wrong| match wrong {
            number::Wrong::Unit => Cow::Borrowed(wrong.text()),
            _ => Cow::Owned(format!("no time from 1677 to 2262: write {FORMS}")),
        })?;
        let row = named(intake, &name)?;
        if row.has_events {
            take_event(intake, row, time, &value)?;
        } else {
            let value = self::value(&value).map_err(number::Wrong::text)?;
            intake.samples.push(Sample { target: row.first, time, value });
        }
        Ok(())
    }
}

/// A time, in any of the ways in which people write one. Digits alone are a moment of our days in
/// the unit that their size says, or nanoseconds if they are many: of all others nobody knows the
/// unit, and of a file that has them some would come to lie in one century and some in another.
fn time(text: &[u8], now: i64) -> Result<i64, number::Wrong> {
    let unsigned = text.strip_prefix(b"+").or(text.strip_prefix(b"-")).unwrap_or(text);
    if unsigned.iter().all(u8::is_ascii_digit) {
        let number = number::time(text)?;
        if by_size(number.into()) == 1 {
            return Ok(number);
        }
        let unit = unit_of_our_days(number.into()).ok_or(number::Wrong::Unit)?;
        return number.checked_mul(unit).ok_or(number::Wrong::Time);
    }
    if unsigned.starts_with(b"-") || unsigned.starts_with(b"+") {
        return Err(number::Wrong::Time);
    }
    number::time(text).or_else(|wrong| {
        let text = std::str::from_utf8(text).unwrap_or_default();
        parse_moment(text, Some(now)).ok_or(wrong)
    })
}

/// The series that a name means.
fn named(intake: &mut Intake, name: &[u8]) -> Result<Row, Cow<'static, str>> {
    if let Some(row) = intake.names.find(name, b"") {
        return Ok(row);
    }
    if name.contains(&b'|') {
        return Err("the name of a series has no |".into());
    }
    let (metric, tags) = name.split_at(blank(name));
    Ok(intake.names.insert(name, b"", metric, tags).map_err(|error| match error {
        crate::Error::Name { why, .. } => format!("no name of a series: {why}"),
        other => other.to_string(),
    })?)
}

fn take_event(
    intake: &mut Intake,
    row: Row,
    time: i64,
    text: &[u8],
) -> Result<(), Cow<'static, str>> {
    let points = event::points(time, text).map_err(|error| error.to_string())?;
    let sample =
        |point: crate::Point| Sample { target: row.first, time: point.time, value: point.value };
    intake.samples.extend(points.into_iter().map(sample));
    Ok(())
}

/// Takes a row of a table, whose fields are not text. Nothing is taken of one that is refused.
pub(super) fn take_row(
    intake: &mut Intake,
    name: &[u8],
    time: i64,
    cell: &Cell,
) -> Result<(), Cow<'static, str>> {
    let row = named(intake, name)?;
    match cell {
        Cell::Text(text) if row.has_events => take_event(intake, row, time, text),
        Cell::Value(value) if !row.has_events => {
            intake.samples.push(Sample { target: row.first, time, value: *value });
            Ok(())
        }
        Cell::Text(_) => {
            Err("a text is expected in series of events alone, whose names begin with !".into())
        }
        Cell::Value(_) => {
            Err("a series whose name begins with ! has events, which are texts".into())
        }
    }
}

/// Digits alone are an integer.
fn value(text: &[u8]) -> Result<Value, number::Wrong> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
        return number::integer(text).map(Value::Integer);
    }
    number::value(text)
}

/// Where the first blank stands that is not escaped.
fn blank(name: &[u8]) -> usize {
    let mut escaped = false;
    let found = name.iter().position(|byte| {
        let found = *byte == b' ' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        found
    });
    found.unwrap_or(name.len())
}

/// A field and, if there is a comma behind it, the rest of its line.
type Field<'a> = (Cow<'a, [u8]>, Option<&'a [u8]>);

fn field(line: &[u8]) -> Result<Field<'_>, &'static str> {
    let Some(quoted) = line.strip_prefix(b"\"") else {
        return Ok(match memchr::memchr(b',', line) {
            Some(comma) => (line[..comma].into(), Some(&line[comma + 1..])),
            None => (line.into(), None),
        });
    };
    let (mut text, mut rest) = (Vec::new(), quoted);
    loop {
        let end = memchr::memchr(b'"', rest)
            .ok_or("a quotation mark is expected at the end of a field")?;
        text.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest {
            [b'"', more @ ..] => {
                text.push(b'"');
                rest = more;
            }
            [] => return Ok((text.into(), None)),
            [b',', more @ ..] => return Ok((text.into(), Some(more))),
            _ => return Err("a comma is expected behind the quotation mark of a field"),
        }
    }
}
