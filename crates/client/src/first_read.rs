//! A transaction's first read, sent together with its request for a version.
//!
//! To read is to ask for a version, and then for values at it: two ways there and back, of which
//! the first is spent on a number. So where the database is behind a socket, whoever is asked for
//! the values is asked at once, for those at the newest version that it has and for that version.
//! If the version that was asked for meanwhile is no newer, that is the one that the transaction
//! begins with, and its values are there; otherwise the values are forgotten, and asked for again.
//!
//! ```text
//!   a version     ────▶ leader  ──▶ 70 ─┐ 70 <= 71: the transaction begins at 71, with its values
//!   newest values ────▶ anybody ──▶ 71 ─┘ 70 >  69: it begins at 70, and asks for them
//! ```
//!
//! ## Always
//! 1. A transaction sees all that was acknowledged before it began: its version is no older than
//!    one that was granted after that.
//! 2. What was granted goes with the version that the transaction has: locks and the metadata
//!    version are those of whoever gave it.

use crate::endpoint::{Begun, Newest, ReadVersionReply};
use plinth_env::reply::{Listener, Promise, Reply, promise};
use plinth_types::{Result, planted, probe};
use std::sync::{Arc, Mutex, PoisonError};

/// Most keys of a first read: a few, as most transactions begin, whose values always fit a reply.
pub const FEW_KEYS: usize = 10;

/// What a transaction begins with, of the version that it was granted and of the newest values,
/// both of which were asked for after it began. `told` hears whether the values are of use.
pub fn join(
    granted: Reply<ReadVersionReply>,
    newest: Reply<Newest>,
    told: impl FnOnce(bool) + Send + 'static,
) -> Reply<Begun> {
    let (mut begins, reply) = promise();
    // Who has given up is waited for by nobody, and values are kept for nobody.
    let listeners = (granted.listener(), newest.listener());
    begins.on_cancel(move || {
        listeners.0.into_iter().for_each(Listener::cancel);
        listeners.1.into_iter().for_each(Listener::cancel);
    });
    let state = State { granted: None, newest: None, waiting: Some((begins, Box::new(told))) };
    let state = Arc::new(Mutex::new(state));
    let other = state.clone();
    newest.on_complete(move |newest| State::step(&other, |state| state.newest = Some(newest)));
    granted.on_complete(move |granted| State::step(&state, |state| state.granted = Some(granted)));
    reply
}

type Told = Box<dyn FnOnce(bool) + Send>;

struct State {
    granted: Option<Result<ReadVersionReply>>,
    newest: Option<Result<Newest>>,
    waiting: Option<(Promise<Begun>, Told)>,
}

impl State {
    fn step(this: &Mutex<Self>, change: impl FnOnce(&mut Self)) {
        let (begun, (promise, told)) = {
            let mut state = this.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            // Whoever isn't let in need not wait for values.
            let is_refused = matches!(state.granted, Some(Err(_)));
            if state.granted.is_none() || (state.newest.is_none() && !is_refused) {
                return;
            }
            let Some(waiting) = state.waiting.take() else { return };
            let Some(granted) = state.granted.take() else { return };
            (begin(granted, state.newest.take()), waiting)
        };
        if let Ok((_, values)) = &begun {
            told(values.is_some());
        }
        promise.send(begun);
    }
}

fn begin(granted: Result<ReadVersionReply>, newest: Option<Result<Newest>>) -> Result<Begun> {
    let granted = granted?;
    match newest {
        Some(Ok((at, values)))
            if at.version >= granted.version
                || planted!("a first read may be older than what was granted") =>
        {
            Ok((at, Some(values)))
        }
        _ => {
            probe!("client: a first read came to nothing");
            Ok((granted, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_types::{Bytes, Error, Version};

    fn at(version: Version) -> ReadVersionReply {
        let metadata_version = Some(Bytes::from(version.to_string()));
        ReadVersionReply { version, metadata_version, range_locks: None }
    }

    fn newest(version: Version) -> Result<Newest> {
        Ok((at(version), vec![Some(Bytes::from_static(b"value")), None]))
    }

    /// What comes of these, whichever is there first, and what is told.
    fn joined(
        granted: Result<ReadVersionReply>,
        newest: Result<Newest>,
    ) -> (Result<Begun>, Option<bool>) {
        let [first, second] = [true, false].map(|version_first| {
            let ((grant, version), (read, values)) = (promise(), promise());
            let heard = Arc::new(Mutex::new(None));
            let hears = heard.clone();
            let mut begun = join(version, values, move |hit| *hears.lock().unwrap() = Some(hit));
            if version_first {
                grant.send(granted.clone());
                assert_eq!(begun.is_ready(), granted.is_err());
                read.send(newest.clone());
            } else {
                read.send(newest.clone());
                assert!(!begun.is_ready());
                grant.send(granted.clone());
            }
            let told = *heard.lock().unwrap();
            (begun.try_take().expect("both are there"), told)
        });
        assert_eq!(first, second);
        first
    }

    #[test]
    fn whoever_gives_up_takes_both_back() {
        let ((grant, version), (read, values)) = (promise(), promise());
        let begun = join(version, values, drop);
        drop(begun);
        assert!(grant.is_cancelled() && read.is_cancelled());
        // Also when one of them has come.
        let ((grant, version), (read, values)) = (promise(), promise());
        let begun = join(version, values, drop);
        read.send(newest(70));
        assert!(!grant.is_cancelled());
        drop(begun);
        assert!(grant.is_cancelled());
    }

    #[test]
    fn a_transaction_begins_at_the_newest_version_that_is_no_older_than_what_was_granted() {
        let values = newest(0).unwrap().1;
        for version in [70, 71] {
            let begun = (at(version), Some(values.clone()));
            assert_eq!(joined(Ok(at(70)), newest(version)), (Ok(begun), Some(true)));
        }
        assert_eq!(joined(Ok(at(70)), newest(69)), (Ok((at(70), None)), Some(false)));
        let failed = joined(Ok(at(70)), Err(Error::connection_failed()));
        assert_eq!(failed, (Ok((at(70), None)), Some(false)));
        let refused = joined(Err(Error::database_locked()), newest(71));
        assert_eq!(refused, (Err(Error::database_locked()), None));
    }
}
