//! What a transaction knows of the version that it reads at.
//!
//! ```text
//!   unset ──asked for──▶ requested ──answer──▶ known, failed
//!     └──────────set by the user─────────────────▶ known
//! ```
//! A version that is pinned is kept besides, with the database as it was then; so are the ranges
//! that are locked at it.

use super::after::After;
use crate::endpoint::{Begun, Endpoint, ReadVersionReply};
use bytes::Bytes;
use plinth_env::reply::{Listener, Promise, Reply, promise};
use plinth_types::{Error, RangeLocks, Result, Version};
use std::sync::Arc;
use std::time::Duration;

/// The version that the transaction reads at.
#[derive(Default)]
pub(super) struct ReadVersion {
    state: Stage,
    /// Who waits for it.
    waiting: Vec<Promise<Version>>,
    /// What takes the question back.
    question: Option<Question>,
    /// The metadata version that came with it.
    metadata: Option<Option<Bytes>>,
    /// How long it was held back, if the transaction has tags.
    held_back: Duration,
    /// The database as it was at that version, which this keeps; `None` unless it was asked for.
    pinned: Option<Arc<dyn Endpoint>>,
    /// The ranges that are locked at that version, and not read.
    range_locks: Option<RangeLocks>,
}

/// What was asked for, and can be taken back.
pub(super) enum Question {
    Version(Listener<ReadVersionReply>),
    /// With the first values.
    Begin(Listener<Begun>),
}

impl Question {
    fn cancel(self) {
        match self {
            Self::Version(listener) => listener.cancel(),
            Self::Begin(listener) => listener.cancel(),
        }
    }
}

#[derive(Default)]
enum Stage {
    #[default]
    Unset,
    Requested,
    Known(Version),
    Failed(Error),
}

impl ReadVersion {
    #[inline]
    pub(super) fn known(&self) -> Option<Version> {
        match self.state {
            Stage::Known(version) => Some(version),
            _ => None,
        }
    }

    /// Whether no version was asked for or set.
    pub(super) fn is_unset(&self) -> bool {
        matches!(self.state, Stage::Unset)
    }

    /// Reads at this version, without asking.
    pub(super) fn fix(&mut self, version: Version) {
        self.state = Stage::Known(version);
    }

    /// The version, as far as it is known; `None` if the caller is to ask for it, and nobody else
    /// will.
    pub(super) fn ask(&mut self) -> Option<Reply<Version>> {
        match &self.state {
            Stage::Known(version) => Some(Reply::ready(Ok(*version))),
            Stage::Failed(error) => Some(Reply::ready(Err(error.clone()))),
            Stage::Requested => Some(self.wait()),
            Stage::Unset => {
                self.state = Stage::Requested;
                None
            }
        }
    }

    /// The version, once it has come.
    pub(super) fn wait(&mut self) -> Reply<Version> {
        let (promise, reply) = promise();
        self.waiting.push(promise);
        reply
    }

    /// Notes what takes the question back, should nobody want an answer any more.
    pub(super) fn note_question(&mut self, question: Question) {
        self.question = Some(question);
    }

    /// Notes what came, and tells those who wait.
    pub(super) fn note(
        &mut self,
        answer: Result<ReadVersionReply>,
        after: &mut After,
    ) -> Result<Version> {
        // It has been answered: nothing is left of it to drop.
        self.question = None;
        let result = answer.map(|reply| {
            self.metadata = Some(reply.metadata_version);
            if reply.range_locks.is_some() {
                self.range_locks = reply.range_locks;
            }
            reply.version
        });
        self.state = match &result {
            Ok(version) => Stage::Known(*version),
            Err(error) => Stage::Failed(error.clone()),
        };
        for promise in std::mem::take(&mut self.waiting) {
            after.reply(promise, result.clone());
        }
        result
    }

    /// The metadata version, if one came with the version: the value, or that there is none.
    pub(super) fn metadata(&self) -> Option<Option<Bytes>> {
        self.metadata.clone()
    }

    /// Ends all waiting.
    pub(super) fn fail_waiting(&mut self, error: &Error, after: &mut After) {
        for promise in self.waiting.drain(..) {
            after.reply(promise, Err(error.clone()));
        }
        if let Some(question) = self.question.take() {
            after.call(move || question.cancel());
        }
    }

    /// Forgets the version, but for what is pinned of it.
    pub(super) fn forget(&mut self) {
        self.state = Stage::Unset;
        self.metadata = None;
        self.range_locks = None;
    }

    pub(super) fn hold_back(&mut self, by: Duration) {
        self.held_back = by;
    }

    pub(super) fn held_back(&self) -> Duration {
        self.held_back
    }

    /// Keeps the database as it is at the version. Gives what was kept of an earlier one, to be
    /// dropped without the lock.
    #[must_use = "letting a pinned snapshot go may take a while"]
    pub(super) fn keep(&mut self, pinned: Arc<dyn Endpoint>) -> Option<Arc<dyn Endpoint>> {
        self.pinned.replace(pinned)
    }

    /// What was kept, to be dropped without the lock.
    pub(super) fn let_go(&mut self) -> Option<Arc<dyn Endpoint>> {
        self.pinned.take()
    }

    /// Whether reads are of something else than the whole database.
    pub(super) fn is_apart(&self) -> bool {
        self.pinned.is_some() || self.range_locks.is_some()
    }

    /// What is kept of the version, and what isn't read.
    pub(super) fn apart(&self) -> (Option<Arc<dyn Endpoint>>, Option<RangeLocks>) {
        (self.pinned.clone(), self.range_locks.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(version: Version) -> ReadVersionReply {
        ReadVersionReply { version, metadata_version: None, range_locks: None }
    }

    #[test]
    fn one_asks_and_all_are_told() {
        let (mut version, mut after) = (ReadVersion::default(), After::default());
        assert!(version.is_unset() && version.ask().is_none());
        let waiting = [version.ask().unwrap(), version.ask().unwrap()];
        assert_eq!((version.is_unset(), version.known()), (false, None));
        assert_eq!(version.note(Ok(answer(7)), &mut after), Ok(7));
        after.run();
        for reply in waiting {
            assert_eq!(reply.wait(), Ok(7));
        }
        assert_eq!((version.known(), version.metadata()), (Some(7), Some(None)));
        version.forget();
        assert!(version.is_unset() && version.metadata().is_none());
    }

    #[test]
    fn locked_ranges_are_those_of_the_version() {
        let (mut version, mut after) = (ReadVersion::default(), After::default());
        assert!(version.ask().is_none() && !version.is_apart());
        let locks = RangeLocks::new(Vec::new());
        let locked = ReadVersionReply { range_locks: Some(locks.clone()), ..answer(7) };
        assert_eq!(version.note(Ok(locked), &mut after), Ok(7));
        assert!(version.is_apart() && version.apart().1 == Some(locks));
        version.forget();
        assert!(!version.is_apart(), "another version has others, or none");
        assert!(version.ask().is_none());
        assert_eq!(version.note(Ok(answer(8)), &mut after), Ok(8));
        assert!(!version.is_apart());
    }

    #[test]
    fn a_failure_stays() {
        let (mut version, mut after) = (ReadVersion::default(), After::default());
        assert!(version.ask().is_none());
        let error = Error::database_locked();
        assert_eq!(version.note(Err(error.clone()), &mut after), Err(error.clone()));
        after.run();
        assert_eq!(version.ask().unwrap().wait(), Err(error));
    }
}
