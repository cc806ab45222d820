//! InfluxDB's line protocol: `measurement,tag=x field=1.5,other=7i time`, a line for the fields of
//! one moment.
//!
//! Each field is a series of its own, `measurement.field tag=x`; a field that is a text is an
//! event, `!measurement.field tag=x`. A line counts as a whole or not at all. What a series is
//! called is looked up as the line's head and the field's name, so only a series that is new is put
//! together.

use super::Sample;
use super::intake::{Intake, Shown};
use super::line_parser::LineParser;
use super::lines::{Lines, TOO_LONG};
use super::names::Row;
use super::number;
use crate::event;
use crate::value::Value;
use std::borrow::Cow;

/// How times are written, and what holds for lines that have none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Nanoseconds of the unit that times are counted in.
    pub unit: i64,
    /// What time it is, in nanoseconds since 1970.
    pub now: i64,
}

/// What the key of an event's name begins with: no line of letters can, nor any other protocol's.
const EVENT: [u8; 4] = [0xfb, 0xff, 0xff, 0xff];

#[derive(Debug)]
pub(super) struct Parser {
    lines: Lines,
    clock: Clock,
    samples: Vec<Sample>,
}

impl Parser {
    pub(super) fn new(clock: Clock) -> Self {
        Self { lines: Lines::default(), clock, samples: Vec::new() }
    }

    #[cold]
    fn refuse(&self, intake: &mut Intake, why: &str, line: &[u8]) {
        let number = self.lines.number;
        intake.reply(format_args!("{why} (line {number}) - {}\n", Shown(line)));
    }

    fn fields(&mut self, intake: &mut Intake, line: &[u8]) -> Result<(), Cow<'static, str>> {
        let (head, mut rest) = line.split_at(find(line, b" ", false).ok_or("a field is expected")?);
        let (fields, time) = {
            let fields = rest.trim_ascii_start();
            let end = find(fields, b" ", true).unwrap_or(fields.len());
            let time = fields[end..].trim_ascii();
            // With the blank before the first field.
            rest = &rest[rest.len() - fields.len() - 1..];
            (&rest[..=end], time)
        };
        let time = self.time(time)?;
        let mut fields = fields;
        while !fields.is_empty() {
            let equals =
                find(&fields[1..], b"=,", false).map(|at| at + 1).filter(|at| fields[*at] == b'=');
            let equals =
                equals.filter(|at| *at > 1).ok_or("a field is not of the form key=value")?;
            let (name, value) = (&fields[..equals], &fields[equals + 1..]);
            let end = find(value, b",", true).unwrap_or(value.len());
            let value = &value[..end];
            fields = &fields[equals + 1 + end..];
            if fields == b"," {
                return Err("a field is expected behind the comma".into());
            }
            if let [b'"', text @ .., b'"'] = value {
                let row = target(intake, head, name, true)?;
                let points =
                    event::points(time, &unquoted(text)).map_err(|error| error.to_string())?;
                let sample = |point: crate::Point| Sample {
                    target: row.first,
                    time: point.time,
                    value: point.value,
                };
                self.samples.extend(points.into_iter().map(sample));
            } else {
                let value = number(value)?;
                let row = target(intake, head, name, false)?;
                self.samples.push(Sample { target: row.first, time, value });
            }
        }
        Ok(())
    }

    fn time(&self, text: &[u8]) -> Result<i64, Cow<'static, str>> {
        if text.is_empty() {
            return Ok(self.clock.now);
        }
        let time = number::integer(text).map_err(|_| "the time is no integer")?;
        time.checked_mul(self.clock.unit)
            .ok_or("the time is not between 1677-09-21 and 2262-04-11".into())
    }
}

impl LineParser for Parser {
    fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    fn line(&mut self, intake: &mut Intake, line: &[u8]) {
        let text = line.trim_ascii();
        if text.is_empty() || text[0] == b'#' {
            return;
        }
        self.samples.clear();
        match self.fields(intake, text) {
            Ok(()) => intake.samples.extend_from_slice(&self.samples),
            Err(why) => self.refuse(intake, &why, line),
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

/// Where the first of some bytes stands that is neither escaped nor, perhaps, between quotation
/// marks.
fn find(text: &[u8], wanted: &[u8], quotes: bool) -> Option<usize> {
    let (mut escaped, mut quoted) = (false, false);
    text.iter().position(|byte| {
        let found = !escaped && !quoted && wanted.contains(byte);
        if quotes && *byte == b'"' && !escaped {
            quoted = !quoted;
        }
        escaped = *byte == b'\\' && !escaped;
        found
    })
}

fn number(text: &[u8]) -> Result<Value, Cow<'static, str>> {
    let integer =
        |digits| number::integer(digits).map(Value::Integer).map_err(|wrong| wrong.text().into());
    match text {
        [digits @ .., b'i' | b'u'] => integer(digits),
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => Ok(Value::Integer(1)),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => Ok(Value::Integer(0)),
        text => number::value(text).map_err(|wrong| wrong.text().into()),
    }
}

/// The series of a field, whose name begins with what divides it from what stands before.
fn target(
    intake: &mut Intake,
    head: &[u8],
    field: &[u8],
    is_event: bool,
) -> Result<Row, Cow<'static, str>> {
    // A text is of another series than a number of the same field.
    let of_event = is_event.then(|| [&EVENT[..], head].concat());
    let key = of_event.as_deref().unwrap_or(head);
    if let Some(row) = intake.names.find(key, field) {
        return Ok(row);
    }
    let end = find(head, b",", false).unwrap_or(head.len());
    let (measurement, mut tags) = head.split_at(end);
    if measurement.is_empty() {
        return Err("a measurement is expected".into());
    }
    let mark: &[u8] = if is_event { b"!" } else { b"" };
    let metric = [mark, &plain(measurement), b".", &plain(&field[1..])].concat();
    let mut named = Vec::new();
    while let [b',', tag @ ..] = tags {
        let end = find(tag, b",", false).unwrap_or(tag.len());
        named.push(b' ');
        named.extend_from_slice(&plain(&tag[..end]));
        tags = &tag[end..];
    }
    if metric.contains(&b'|') {
        return Err("a measurement and a field have no | in their names".into());
    }
    intake.names.insert(key, field, &metric, &named).map_err(|error| match error {
        crate::Error::Name { why, .. } => format!("no name of a series: {why}").into(),
        other => other.to_string().into(),
    })
}

/// A part of a name as series have it, where blanks alone are escaped.
fn plain(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.peek()) {
            (b'\\', Some(b',' | b'=' | b'"')) => {}
            (byte, _) => plain.push(*byte),
        }
    }
    plain
}

fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut escaped = false;
    let kept = text.iter().filter(|byte| {
        escaped = **byte == b'\\' && !escaped;
        !escaped
    });
    kept.copied().collect()
}
