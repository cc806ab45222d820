//! What a program's log would have of what is done on this thread, and on no other.

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, with_default};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A second log, in which nobody writes. While there is only one, `tracing` asks no more than the
/// thread that comes first by an event whether anybody wants it, and another test's thread has no
/// log: the event would be lost to the one that has.
static SECOND: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(Log { level: Level::ERROR, lines: Arc::default() }));

/// Does `what`; gives the events of this level and above as well, one a line, as names and values.
pub fn heard<T>(level: Level, what: impl FnOnce() -> T) -> (T, Vec<String>) {
    LazyLock::force(&SECOND);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let done = with_default(Log { level, lines: lines.clone() }, what);
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    (done, lines)
}

struct Log {
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Log {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
