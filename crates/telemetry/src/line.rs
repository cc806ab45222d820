//! The line of an event: its fields, as text or as JSON, and when it was.
//!
//! Text is for people: time, level, message, then `name=value`. JSON is for programs that gather
//! logs: the same in one object, with the target besides.

use plinth_types::calendar::date_and_time;
use serde_json::Value;
use std::fmt::{Debug, Write as _};
use std::time::Duration;
use tracing::Metadata;
use tracing::field::{Field, Visit};

/// The fields of an event or a span, in order.
#[derive(Default)]
pub(crate) struct Fields {
    pub(crate) message: String,
    pub(crate) named: Vec<(&'static str, Value)>,
}

impl Fields {
    fn note(&mut self, field: &Field, value: Value) {
        self.named.push((field.name(), value));
    }

    pub(crate) fn json(&self, metadata: &Metadata<'_>, at: Duration) -> String {
        let mut line = Value::Object(Default::default());
        line["time"] = timestamp(at).into();
        line["level"] = metadata.level().as_str().into();
        line["target"] = metadata.target().into();
        line["message"] = self.message.as_str().into();
        for (name, value) in &self.named {
            line[*name] = value.clone();
        }
        format!("{line}\n")
    }

    pub(crate) fn text(&self, metadata: &Metadata<'_>, at: Duration) -> String {
        let mut line =
            format!("{} {:5} {}", timestamp(at), metadata.level().as_str(), self.message);
        for (name, value) in &self.named {
            // Writing to a string can't fail.
            let _ = write!(line, " {name}={value}");
        }
        line + "\n"
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.note(field, text.into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
        } else {
            self.note(field, value.into());
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.note(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.note(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // What is no number in JSON is null.
        self.note(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.note(field, value.into());
    }
}

/// A time since 1970 as `2026-11-22T01:20:33.512Z`.
pub(crate) fn timestamp(at: Duration) -> String {
    format!("{}.{:03}Z", date_and_time(at.as_secs() as i64), at.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64| timestamp(Duration::from_millis(seconds * 1000 + 7));
        assert_eq!(at(0), "1970-01-01T00:00:00.007Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.007Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00.007Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59.007Z");
    }
}
