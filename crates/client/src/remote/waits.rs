//! What a server says of requests that wait at it for a quota.
//!
//! Such a server is there and will answer, so nobody else is asked: the request would be paid for
//! again. It says so of each request at once, and that this goes on every second; or that it reads
//! nothing more of the connection meanwhile, so that all wait that it hasn't heard of. Whoever
//! hasn't heard that again for some seconds takes the server for silent, as any other.

use plinth_proto::frame::WAITS_AGAIN;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// For how long what was said counts.
const PATIENCE: Duration = Duration::from_secs(3);

const _: () = assert!(PATIENCE.as_millis() >= 3 * WAITS_AGAIN.as_millis(), "one may be late");

/// What a connection's server has said last.
#[derive(Default, Debug)]
pub(super) struct Says {
    /// When it said that something waits.
    waits: Option<Duration>,
    /// When it said that it reads nothing more.
    is_unread: Option<Duration>,
}

impl Says {
    /// It says so now.
    pub(super) fn hear(&mut self, now: Duration, is_unread: bool) {
        self.waits = Some(now);
        self.is_unread = is_unread.then_some(now);
    }

    /// Whether it needn't answer yet what it has been asked: `waits` if it said so of that.
    pub(super) fn excuses(&self, now: Duration, waits: bool) -> bool {
        let counts =
            |said: Option<Duration>| said.is_some_and(|said| now.saturating_sub(said) < PATIENCE);
        counts(self.is_unread) || waits && counts(self.waits)
    }
}

/// Whether a server has said of a request that it waits: for whoever asks others if need be.
#[derive(Clone, Default, Debug)]
pub(super) struct Waits(Arc<AtomicBool>);

impl Waits {
    /// It has.
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_counts_for_some_seconds_and_for_what_it_was_said_of() {
        let at = Duration::from_millis;
        let mut says = Says::default();
        assert!(!says.excuses(at(0), true));
        says.hear(at(1_000), false);
        assert!(says.excuses(at(3_999), true) && !says.excuses(at(3_999), false));
        assert!(!says.excuses(at(4_000), true));
        says.hear(at(5_000), true);
        assert!(says.excuses(at(7_999), false) && !says.excuses(at(8_000), false));
        says.hear(at(6_000), false);
        assert!(!says.excuses(at(6_000), false), "it reads on");
    }
}
