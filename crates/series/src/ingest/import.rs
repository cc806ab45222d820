//! JSON lines of VictoriaMetrics' `/api/v1/import`: a series and some of its samples a line.
//!
//! ```text
//!   {"metric": {"__name__": "up", "job": "a"}, "values": [1, 0.5], "timestamps": [1767225600000, 1767225615000]}
//! ```
//!
//! A line is taken whole or not at all. Numbers that JSON has none of are texts: `"NaN"`,
//! `"Infinity"`, `"-Infinity"`; `null` is a NaN.

use super::Sample;
use super::intake::{Intake, Shown, TURN};
use super::names::{Row, escape};
use crate::value::Value;
use memchr::memchr;
use serde_core::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// What a key of names begins with here: no other protocol's can.
const OURS: [u8; 4] = [0xfc, 0xff, 0xff, 0xff];
/// Longest line, and most samples of one: they are in memory together.
const MAX_LINE: usize = 4 << 20;
const MAX_SAMPLES: usize = 1 << 18;

/// Lines of an import, and how far they have been taken.
#[derive(Debug)]
pub struct ImportLines<'a> {
    text: Cow<'a, [u8]>,
    at: usize,
    line: u64,
    /// The next line, if it was read already.
    read: Option<ReadLine>,
}

/// A line that was read, and is to be taken.
#[derive(Debug)]
pub struct ReadLine(Result<Line, String>);

impl ReadLine {
    /// Reads a line.
    pub fn of(line: &[u8]) -> Self {
        if line.len() > MAX_LINE {
            return Self(Err(format!("a line has more than {MAX_LINE} bytes")));
        }
        Self(serde_json::from_slice(line).map_err(|why| why.to_string()))
    }
}

impl<'a> ImportLines<'a> {
    /// Those of a body.
    pub fn of(text: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { text: text.into(), at: 0, line: 0, read: None }
    }

    /// The next line without its end.
    fn next(&self) -> &[u8] {
        let rest = &self.text[self.at..];
        &rest[..memchr(b'\n', rest).unwrap_or(rest.len())]
    }

    /// The next line, if it takes longer to read than others should wait for it, and nobody has
    /// read it: best it is read elsewhere, and [`put`](Self::put) here.
    pub fn long(&self) -> Option<&[u8]> {
        let line = self.next();
        (line.len() > TURN && line.len() <= MAX_LINE && self.read.is_none()).then_some(line)
    }

    /// Takes the next line as it was read.
    pub fn put(&mut self, line: ReadLine) {
        self.read = Some(line);
    }
}

/// Takes in lines, until there is something to save, or as much of them was read as others can wait
/// for: whether that was the rest of them. What is wrong with one is told among the replies, and
/// the others are taken.
pub(super) fn take(intake: &mut Intake, lines: &mut ImportLines<'_>) -> bool {
    let mut work = 0;
    while lines.at < lines.text.len() {
        if intake.is_full() || work > TURN || work > 0 && lines.long().is_some() {
            return false;
        }
        let read = lines.read.take();
        let (begin, len) = (lines.at, lines.next().len());
        lines.at += (len + 1).min(lines.text.len() - begin);
        lines.line += 1;
        // A line without anything in it is some work, too.
        work += len + 64;
        let line = lines.text[begin..begin + len].trim_ascii();
        if !line.is_empty()
            && let Err(why) = take_line(intake, read.unwrap_or_else(|| ReadLine::of(line)))
        {
            let number = lines.line;
            intake.reply(format_args!("{why} (line {number}) - {}\n", Shown(line)));
        }
    }
    true
}

/// Takes a line's samples.
fn take_line(intake: &mut Intake, line: ReadLine) -> Result<(), String> {
    let line = line.0?;
    if line.values.len() != line.timestamps.len() {
        let (values, times) = (line.values.len(), line.timestamps.len());
        return Err(format!("{values} values and {times} timestamps"));
    }
    if line.values.is_empty() {
        return Ok(());
    }
    let beyond = |time: &i64| time.checked_mul(1_000_000).is_none();
    if let Some(time) = line.timestamps.iter().find(|time| beyond(time)) {
        return Err(format!("the time {time} ms is not between 1677 and 2262"));
    }
    let row = row(intake, &line.metric)?;
    let samples = line.values.iter().zip(&line.timestamps).map(|(value, time)| Sample {
        target: row.first,
        time: time * 1_000_000,
        value: Value::Float(value.0),
    });
    intake.samples.extend(samples);
    Ok(())
}

/// The series of labels.
fn row(intake: &mut Intake, labels: &[(String, String)]) -> Result<Row, String> {
    let (mut metric, mut tags) = (Vec::new(), Vec::new());
    let bytes =
        |(label, value): &(String, String)| (label.as_bytes().into(), value.as_bytes().into());
    for (label, value) in intake.besides.extra.with(labels.iter().map(bytes).collect()) {
        if label == b"__name__" {
            metric.clear();
            escape(&value, &mut metric);
        } else if !value.is_empty() {
            tags.push(b' ');
            escape(&label, &mut tags);
            tags.push(b'=');
            escape(&value, &mut tags);
        }
    }
    if metric.is_empty() || metric.contains(&b'|') || metric[0] == b'!' {
        return Err("it has no label __name__ that is a metric's".to_owned());
    }
    let key = [&OURS[..], &metric].concat();
    if let Some(row) = intake.names.find(&key, &tags) {
        return Ok(row);
    }
    let added = intake.names.insert(&key, &tags, &metric, &tags);
    added.map_err(|error| match error {
        crate::Error::Name { why, .. } => why,
        other => other.to_string(),
    })
}

/// What stands in a line.
#[derive(Default, Debug)]
struct Line {
    metric: Vec<(String, String)>,
    values: Vec<Number>,
    timestamps: Vec<i64>,
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with metric, values and timestamps")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Line, A::Error> {
                let mut line = Line::default();
                while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
                    match &*name {
                        "metric" => line.metric = fields.next_value::<Labels>()?.0,
                        "values" => line.values = fields.next_value::<Samples<_>>()?.0,
                        "timestamps" => line.timestamps = fields.next_value::<Samples<_>>()?.0,
                        _ => drop(fields.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(line)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// Labels in the order in which they were written.
struct Labels(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Labels, A::Error> {
                let mut all = Vec::new();
                while let Some(pair) = pairs.next_entry()? {
                    all.push(pair);
                }
                Ok(Labels(all))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// A list of what samples have, no longer than it may be.
struct Samples<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Samples<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounded<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
            type Value = Samples<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Samples<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    if all.len() == MAX_SAMPLES {
                        let why = format_args!("more than {MAX_SAMPLES} samples in a line");
                        return Err(A::Error::custom(why));
                    }
                    all.push(item);
                }
                Ok(Samples(all))
            }
        }
        deserializer.deserialize_seq(Bounded(PhantomData))
    }
}

/// A value, which may be a text for what JSON has no number for.
#[derive(Debug)]
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
                Ok(Number(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }

            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number(f64::NAN))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                text.parse().map(Number).map_err(|_| E::custom("a value is no number"))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
