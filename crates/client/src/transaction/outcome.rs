//! What became of a commit: its version, its versionstamp, what it conflicted on.

use super::after::After;
use super::done::Done;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::{Error, RangeList, Result, Version, Versionstamp};

/// What became of the last commit.
#[derive(Default)]
pub(super) struct Outcome {
    committed_version: Option<Version>,
    stamp: Option<Result<Versionstamp>>,
    waiting: Vec<Promise<Versionstamp>>,
    /// The read conflict ranges that conflicted, if that was asked for.
    conflicting: Option<Box<RangeList>>,
}

impl Outcome {
    pub(super) fn committed_version(&self) -> Option<Version> {
        self.committed_version
    }

    /// The versionstamp of a commit that is done.
    pub(super) fn known_stamp(&self) -> Option<Versionstamp> {
        self.stamp.as_ref().and_then(|stamp| stamp.as_ref().ok()).copied()
    }

    /// The versionstamp, or why there is none, as soon as that is known.
    pub(super) fn stamp(&mut self) -> Reply<Versionstamp> {
        if let Some(stamp) = &self.stamp {
            return Reply::ready(stamp.clone());
        }
        let (promise, reply) = promise();
        self.waiting.push(promise);
        reply
    }

    /// Notes that the commit is done.
    pub(super) fn succeed(&mut self, done: &Done, after: &mut After) {
        self.committed_version = done.version;
        self.settle(done.stamp.clone(), after);
    }

    /// Notes that the commit was tried and has failed.
    pub(super) fn fail(&mut self, after: &mut After) {
        self.settle(Err(Error::transaction_invalid_version()), after);
    }

    #[inline]
    fn settle(&mut self, stamp: Result<Versionstamp>, after: &mut After) {
        for promise in std::mem::take(&mut self.waiting) {
            after.reply(promise, stamp.clone());
        }
        self.stamp = Some(stamp);
    }

    /// Ends all waiting.
    pub(super) fn fail_waiting(&mut self, error: &Error, after: &mut After) {
        for promise in self.waiting.drain(..) {
            after.reply(promise, Err(error.clone()));
        }
    }

    /// Forgets the versionstamp: another commit will have one of its own.
    pub(super) fn begin_again(&mut self) {
        self.stamp = None;
    }

    /// Notes which read conflict ranges conflicted, if that was asked for.
    pub(super) fn note_conflicts(&mut self, conflicting: Option<Box<RangeList>>) {
        self.conflicting = conflicting;
    }

    pub(super) fn conflicting(&self) -> Option<&RangeList> {
        self.conflicting.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asked_before_hears_of_it_and_who_asks_later_too() {
        let (mut outcome, mut after) = (Outcome::default(), After::default());
        assert_eq!((outcome.committed_version(), outcome.known_stamp()), (None, None));
        let before = outcome.stamp();
        let stamp = Versionstamp::new(9, 2);
        outcome.succeed(&Done { version: Some(9), stamp: Ok(stamp) }, &mut after);
        after.run();
        assert_eq!((before.wait(), outcome.stamp().wait()), (Ok(stamp), Ok(stamp)));
        assert_eq!((outcome.committed_version(), outcome.known_stamp()), (Some(9), Some(stamp)));
    }

    #[test]
    fn a_commit_that_failed_has_no_stamp_and_the_next_try_may_have_one() {
        let (mut outcome, mut after) = (Outcome::default(), After::default());
        outcome.fail(&mut after);
        assert_eq!(outcome.stamp().wait(), Err(Error::transaction_invalid_version()));
        outcome.begin_again();
        assert!(!outcome.stamp().is_ready());
    }
}
