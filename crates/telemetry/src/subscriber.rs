//! Who listens: a line on standard error for each event, if `PLINTH_LOG` asks for it, or a server's
//! setting `log`.
//!
//! A server tells what an operator would want to know unless it is told otherwise; other commands
//! tell nothing. `PLINTH_LOG=text` is for people, `PLINTH_LOG=json` for programs that gather logs,
//! `off` for nobody; `,error`, `,warn`, `,info` (the default), `,debug` or `,trace` behind it say
//! how much. An event is whole in its line, so no spans are kept for it. With the feature `otel`
//! both go to a collector as well, if one is named.

use crate::line::Fields;
#[cfg(feature = "otel")]
use crate::otel::Export;
use crate::wish::{ALLOWED, Form, makes_sense, read};
use plinth_env::Env;
use std::io::Write as _;
#[cfg(feature = "otel")]
use std::sync::Arc;
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
///
/// # Errors
/// What is wrong with the environment, for its user.
pub fn begin_as_asked() -> Result<Listening, String> {
    let wish = std::env::var_os(VARIABLE).unwrap_or_default();
    let refuse = || format!("{VARIABLE} is {wish:?}; {ALLOWED}");
    begin(wish.to_str().filter(|wish| makes_sense(wish)).ok_or_else(refuse)?)
}

/// Begins to print events as a wish that makes sense says, and to send them, if the environment
/// asks for that.
///
/// # Errors
/// What is wrong with the environment, for its user.
pub fn begin(wish: &str) -> Result<Listening, String> {
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
