//! JSON lines of VictoriaMetrics' `/api/v1/import`: a series and some of its samples a line.
//!
//! ```text
//!   {"metric": {"__name__": "up", "job": "a"}, "values": [1, 0.5], "timestamps": [1767225600000, 1767225615000]}
//! ```
//!
//! A line is taken whole or not at all. Numbers that JSON has none of are texts: `"NaN"`,
//! `"Infinity"`, `"-Infinity"`; `null` is a NaN.

use super::Sample;
use super::intake::{Intake, SAMPLES, Shown};
use super::names::{Row, escape};
use crate::value::Value;
use memchr::memchr;
use serde_core::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// What a key of names begins with here: no other protocol's can.
const OURS: [u8; 1] = [0xfc];
/// Longest line, and most samples of one: they are in memory together.
const MAX_LINE: usize = 4 << 20;
const MAX_SAMPLES: usize = 1 << 18;

/// Lines of an import, and how far they have been taken.
#[derive(Debug)]
pub struct ImportLines<'a> {
    text: Cow<'a, [u8]>,
    at: usize,
    line: u64,
}

impl<'a> ImportLines<'a> {
    /// Those of a body.
    pub fn of(text: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { text: text.into(), at: 0, line: 0 }
    }
}

/// Takes in lines, until there is something to save: whether that was the rest of them. What is
/// wrong with one is told among the replies, and the others are taken.
pub(super) fn take(intake: &mut Intake, lines: &mut ImportLines<'_>) -> bool {
    while lines.at < lines.text.len() {
        if intake.samples.len() >= SAMPLES || lines.line % 1000 == 999 {
            lines.line += u64::from(lines.line % 1000 == 999);
            return false;
        }
        let rest = &lines.text[lines.at..];
        let len = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest[..len].trim_ascii();
        lines.at += (len + 1).min(rest.len());
        lines.line += 1;
        if !line.is_empty()
            && let Err(why) = take_line(intake, line)
        {
            let number = lines.line;
            intake.reply(format_args!("{why} (line {number}) - {}\n", Shown(line)));
        }
    }
    true
}

/// Takes a line's samples.
fn take_line(intake: &mut Intake, line: &[u8]) -> Result<(), String> {
    if line.len() > MAX_LINE {
        return Err(format!("a line has more than {MAX_LINE} bytes"));
    }
    let line: Line = serde_json::from_slice(line).map_err(|why| why.to_string())?;
    if line.values.len() != line.timestamps.len() {
        let (values, times) = (line.values.len(), line.timestamps.len());
        return Err(format!("{values} values and {times} timestamps"));
    }
    if line.values.len() > MAX_SAMPLES {
        return Err(format!("more than {MAX_SAMPLES} samples in a line"));
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
    for (label, value) in labels {
        if label == "__name__" {
            metric.clear();
            escape(value.as_bytes(), &mut metric);
        } else if !value.is_empty() {
            tags.push(b' ');
            escape(label.as_bytes(), &mut tags);
            tags.push(b'=');
            escape(value.as_bytes(), &mut tags);
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
#[derive(Default)]
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
                        "values" => line.values = fields.next_value()?,
                        "timestamps" => line.timestamps = fields.next_value()?,
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

/// A value, which may be a text for what JSON has no number for.
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
