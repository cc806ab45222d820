//! What the program tells of its work as it goes on: a line on standard error for each event, if `PLINTH_LOG` asks for it, or
//! a server's setting `log`.
//!
//! A server tells what an operator would want to know unless it is told otherwise; other commands tell nothing.
//! `PLINTH_LOG=text` is for people, `PLINTH_LOG=json` for programs that gather logs, `off` for nobody; `,error`, `,warn`, `,info` (the default),
//! `,debug` or `,trace` behind it say how much. An event is whole in its line, so no spans are kept for it. With the feature
//! `otel` both go to a collector as well, if one is named.

use crate::failure::Failure;
use crate::log_wish::{ALLOWED, Form, makes_sense, read};
#[cfg(feature = "otel")]
use crate::otel::Export;
use plinth_bench::Value;
use plinth_env::Env;
use std::fmt::{Debug, Write as _};
use std::io::Write as _;
#[cfg(feature = "otel")]
use std::sync::Arc;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// The environment variable that asks for it.
const VARIABLE: &str = "PLINTH_LOG";

struct Log {
    env: Env,
    /// How events are printed, and how many.
    printed: Option<(Form, Level)>,
    #[cfg(feature = "otel")]
    export: Option<Arc<Export>>,
}

/// What has been begun, and is to be ended: events that wait for their collector are sent then.
#[derive(Default)]
pub struct Listening {
    #[cfg(feature = "otel")]
    export: Option<Arc<Export>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        #[cfg(feature = "otel")]
        if let Some(export) = self.export.take() {
            export.finish();
        }
    }
}

/// Begins to print and to send events, if the environment asks for that.
pub fn begin_as_asked() -> Result<Listening, Failure> {
    let wish = std::env::var_os(VARIABLE).unwrap_or_default();
    let refuse = || Failure::usage(format!("{VARIABLE} is {wish:?}; {ALLOWED}"));
    begin(wish.to_str().filter(|wish| makes_sense(wish)).ok_or_else(refuse)?)
}

/// Begins to print events as a wish that makes sense says, and to send them, if that is asked for.
pub fn begin(wish: &str) -> Result<Listening, Failure> {
    let env = Env::real();
    let printed = read(wish).filter(|(form, _)| *form != Form::Off);
    #[cfg(feature = "otel")]
    let (listening, log) = {
        let export = Export::from_environment(&env)?;
        (Listening { export: export.clone() }, Log { env, printed, export })
    };
    #[cfg(not(feature = "otel"))]
    let (listening, log) = (Listening::default(), Log { env, printed });
    if log.printed.is_some() || log.exports() {
        // Only this function sets it, once.
        let _ = tracing::subscriber::set_global_default(log);
    }
    Ok(listening)
}

impl Log {
    fn prints(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.printed.is_some_and(|(_, level)| *metadata.level() <= level)
    }

    #[cfg(feature = "otel")]
    fn exports(&self) -> bool {
        self.export.is_some()
    }

    #[cfg(not(feature = "otel"))]
    #[expect(clippy::unused_self, reason = "with the feature it is asked")]
    fn exports(&self) -> bool {
        false
    }

    /// Where spans and events go besides, if they are wanted there.
    #[cfg(feature = "otel")]
    fn exporting(&self, metadata: &Metadata<'_>) -> Option<&Export> {
        self.export.as_deref().filter(|_| Export::wants(metadata))
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        #[cfg(feature = "otel")]
        if self.exporting(metadata).is_some() {
            return true;
        }
        self.prints(metadata)
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        #[cfg(feature = "otel")]
        if let Some(export) = &self.export {
            let mut fields = Fields::default();
            span.record(&mut fields);
            return export.begin(span, fields);
        }
        let _ = span;
        span::Id::from_u64(1)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        #[cfg(feature = "otel")]
        if let Some(export) = &self.export {
            export.record(span, values);
        }
        let _ = (span, values);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn clone_span(&self, span: &span::Id) -> span::Id {
        #[cfg(feature = "otel")]
        if let Some(export) = &self.export {
            export.share(span);
        }
        span.clone()
    }

    fn try_close(&self, span: span::Id) -> bool {
        #[cfg(feature = "otel")]
        if let Some(export) = &self.export {
            return export.close(&span);
        }
        let _ = span;
        false
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        if let Some((form, _)) = self.printed.filter(|_| self.prints(metadata)) {
            let line = match form {
                Form::Json => fields.json(metadata, self.env.wall_clock()),
                Form::Text => fields.text(metadata, self.env.wall_clock()),
                Form::Off => return,
            };
            // There is nobody left to tell that it can't be told.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        #[cfg(feature = "otel")]
        if let Some(export) = self.exporting(metadata) {
            export.event(metadata, fields);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

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

    fn json(&self, metadata: &Metadata<'_>, at: Duration) -> String {
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

    fn text(&self, metadata: &Metadata<'_>, at: Duration) -> String {
        let mut line = format!("{} {:5} {}", timestamp(at), metadata.level().as_str(), self.message);
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
fn timestamp(at: Duration) -> String {
    let (days, seconds) = (at.as_secs() / 86_400, at.as_secs() % 86_400);
    // Years that begin in March have their leap day at the end; 400 of them have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + later;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let millis = at.subsec_millis();
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
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
