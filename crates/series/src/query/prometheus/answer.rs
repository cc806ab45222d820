//! Answers as Prometheus' clients read them: JSON, written as it goes, since a tree of it would
//! take ten times the room.

use plinth_promql::{Answered, Labels, Sample, format_value};
use serde_json::{Value as Json, json};
use std::fmt::Write;

const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// Data with what is to be said of it.
#[derive(Default)]
pub(super) struct Reply {
    /// JSON.
    pub(super) data: String,
    pub(super) warnings: Vec<String>,
    pub(super) infos: Vec<String>,
}

impl Reply {
    pub(super) fn of(data: &Json) -> Self {
        Self { data: data.to_string(), ..Self::default() }
    }

    /// The whole body.
    pub(super) fn told(self) -> String {
        let mut text = format!(r#"{{"data":{}"#, self.data);
        if !self.infos.is_empty() {
            let _ = write!(text, r#","infos":{}"#, json!(self.infos));
        }
        text.push_str(r#","status":"success""#);
        if !self.warnings.is_empty() {
            let _ = write!(text, r#","warnings":{}"#, json!(self.warnings));
        }
        text.push('}');
        text
    }
}

/// The value of an expression; that of one time has it beside it.
pub(super) fn data(value: &Answered, time: i64) -> String {
    let (kind, result) = match value {
        Answered::Scalar(number) => ("scalar", sample(time, *number)),
        Answered::String(text) => ("string", format!("[{},{}]", seconds(time), json!(text))),
        Answered::Vector(series) => {
            let one = |(labels, value): &(Labels, f64)| {
                format!(r#"{{"metric":{},"value":{}}}"#, metric(labels), sample(time, *value))
            };
            ("vector", list(series.iter().map(one)))
        }
        Answered::Matrix(series) => {
            let one = |(labels, points): &(Labels, Vec<Sample>)| {
                let points = list(points.iter().map(|(time, value)| sample(*time, *value)));
                format!(r#"{{"metric":{},"values":{points}}}"#, metric(labels))
            };
            ("matrix", list(series.iter().map(one)))
        }
    };
    format!(r#"{{"result":{result},"resultType":"{kind}"}}"#)
}

fn list(parts: impl Iterator<Item = String>) -> String {
    let mut text = String::from("[");
    for (place, part) in parts.enumerate() {
        if place > 0 {
            text.push(',');
        }
        text.push_str(&part);
    }
    text.push(']');
    text
}

/// Labels as an object.
pub(super) fn metric(labels: &Labels) -> Json {
    labels
        .iter()
        .map(|(name, value)| (name.to_string(), Json::from(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn sample(time: i64, value: f64) -> String {
    format!(r#"[{},"{}"]"#, seconds(time), format_value(value))
}

/// Seconds with milliseconds, as a number of JSON.
fn seconds(time: i64) -> Json {
    match time {
        time if time % SECOND == 0 => json!(time / SECOND),
        // Rounded once, by the division: nanoseconds since 1970 are more than a float holds.
        time if time % MILLISECOND == 0 => json!((time / MILLISECOND) as f64 / 1e3),
        time => json!(time as f64 / 1e9),
    }
}
