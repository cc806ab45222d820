//! What a transaction knows, behind one lock, and who may still use it.
//!
//! Each public call takes the lock once, briefly, and never calls out (to the endpoint, a waker, a
//! promise) while it holds it: what has to be called is collected in [`After`] and called once the
//! lock is free.
//!
//! A transaction goes through *epochs*: reset and retry begin a new one. An answer that comes late
//! belongs to an epoch that is over, and is dropped.

use super::batch::Batches;
use super::options::Options;
use super::tasks::{Abort, Tasks};
use super::watches::WatchList;
use super::writes::Writes;
use crate::database::Defaults;
use crate::endpoint::Endpoint;
use crate::special_keys::SpecialState;
use bytes::Bytes;
use plinth_env::Timer;
use plinth_env::reply::Promise;
use plinth_types::version::INVALID_VERSION;
use plinth_types::{Error, RangeList, RangeLocks, Result, Version, Versionstamp};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Everything a transaction knows.
pub(crate) struct State {
    pub(crate) life: Life,
    pub(crate) options: Options,
    pub(crate) version: ReadVersion,
    pub(crate) batches: Batches,
    pub(crate) tasks: Tasks,
    pub(crate) reads: Reads,
    pub(crate) writes: Writes,
    pub(crate) outcome: Outcome,
    pub(crate) retry: Retry,
    pub(crate) watches: WatchList,
    pub(crate) special: Option<Box<SpecialState>>,
}

/// Whether the transaction may be used, and since when it exists.
pub(crate) struct Life {
    /// The first error of a call that could not report it; every later call does.
    pub(crate) deferred: Option<Error>,
    /// Cancelled, timed out, used during commit: every call fails with this until reset.
    pub(crate) dead: Option<Error>,
    /// Whether commit was called.
    pub(crate) committing: bool,
    /// Whether the transaction begins anew once the commit under way is over: before API version
    /// 410.
    pub(crate) renewal_due: bool,
    /// Counts resets and retries.
    pub(crate) epoch: u64,
    /// When the timeout began to run.
    pub(crate) created: Duration,
    /// Fires when the timeout has passed.
    pub(crate) timer: Option<Timer>,
}

/// The version that the transaction reads at.
#[derive(Default)]
pub(crate) struct ReadVersion {
    pub(crate) state: ReadVersionState,
    /// Who waits for it.
    pub(crate) waiting: Vec<Promise<Version>>,
    /// The metadata version that came with it.
    pub(crate) metadata: Option<Option<Bytes>>,
    /// Whether commit fetched it, so that it is as young as can be.
    pub(crate) by_commit: bool,
    /// How long it was held back, if the transaction has tags.
    pub(crate) held_back: Duration,
    /// The database as it was at that version, which this keeps; `None` unless it was asked for.
    pub(crate) pinned: Option<Arc<dyn Endpoint>>,
    /// The ranges that are locked at that version, and not read.
    pub(crate) range_locks: Option<RangeLocks>,
}

#[derive(Default)]
pub(crate) enum ReadVersionState {
    #[default]
    Unset,
    Requested,
    Known(Version),
    Failed(Error),
}

impl ReadVersion {
    pub(crate) fn known(&self) -> Option<Version> {
        match self.state {
            ReadVersionState::Known(version) => Some(version),
            _ => None,
        }
    }
}

/// What was read.
#[derive(Default)]
pub(crate) struct Reads {
    /// The read conflict ranges so far.
    pub(crate) conflicts: RangeList,
    /// The first error of a read: commit fails with it.
    pub(crate) failed: Option<Error>,
    /// Whether anything was read from the database.
    pub(crate) any: bool,
    /// How many reads have no answer yet.
    pub(crate) pending: usize,
    /// Tells commit that none is pending.
    pub(crate) drained: Option<Promise<()>>,
    /// What all reads together cost.
    pub(crate) cost: i64,
}

impl Reads {
    /// Forgets everything but the buffers.
    pub(crate) fn clear(&mut self) {
        self.conflicts.clear();
        self.failed = None;
        self.any = false;
        self.pending = 0;
        self.drained = None;
        self.cost = 0;
    }
}

/// What became of the commit.
pub(crate) struct Outcome {
    pub(crate) committed_version: Version,
    pub(crate) stamp: Option<Result<Versionstamp>>,
    pub(crate) stamp_waiting: Vec<Promise<Versionstamp>>,
    /// The read conflict ranges that conflicted, if that was asked for.
    pub(crate) conflicting: Option<Box<RangeList>>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            committed_version: INVALID_VERSION,
            stamp: None,
            stamp_waiting: Vec::new(),
            conflicting: None,
        }
    }
}

/// What `on_error` goes by.
pub(crate) struct Retry {
    pub(crate) retries: i32,
    /// Seconds that the next wait is drawn from.
    pub(crate) backoff: f64,
    /// Options that survive a retry: the database's defaults, then those set by the user.
    pub(crate) persistent: Defaults,
    /// Who waits for the next try to begin, and what ends the wait.
    pub(crate) waiting: Option<Box<(Promise<()>, Timer)>>,
}

/// Seconds that the first wait of `on_error` is drawn from.
pub(crate) const FIRST_BACKOFF: f64 = 0.01;

impl Retry {
    pub(crate) fn new(persistent: Defaults) -> Self {
        Self { retries: 0, backoff: FIRST_BACKOFF, persistent, waiting: None }
    }
}

impl State {
    /// What every call but a few must ask first: whether the transaction may be used.
    ///
    /// Using a transaction that is committing kills it, unless that protection is off.
    #[inline]
    pub(crate) fn check(&mut self, after: &mut After) -> Result<()> {
        if self.life.deferred.is_none() && !self.life.committing && self.life.dead.is_none() {
            return Ok(());
        }
        self.check_slowly(after)
    }

    #[cold]
    fn check_slowly(&mut self, after: &mut After) -> Result<()> {
        self.check_deferred()?;
        self.check_not_committing(after)?;
        self.check_alive()
    }

    pub(crate) fn check_deferred(&self) -> Result<()> {
        self.life.deferred.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        self.life.dead.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn check_not_committing(&mut self, after: &mut After) -> Result<()> {
        if !self.life.committing {
            return Ok(());
        }
        if self.life.dead.is_none() && !self.options.used_during_commit_protection_disabled {
            self.kill(Error::used_during_commit(), after);
        }
        Err(Error::used_during_commit())
    }

    /// Whether a call that changes the transaction goes on: it is skipped once an error is
    /// deferred, and while committing it is an error. (A dead transaction takes writes; they come
    /// to nothing.)
    #[inline]
    pub(crate) fn check_write(&mut self, after: &mut After) -> Result<()> {
        if self.life.committing { self.check_not_committing(after) } else { Ok(()) }
    }

    /// Ends every outstanding operation with `error`, as every later one will until reset.
    pub(crate) fn kill(&mut self, error: Error, after: &mut After) {
        if self.life.dead.is_some() {
            return;
        }
        self.life.dead = Some(error.clone());
        self.fail_outstanding(&error, after);
        // Nothing is read any more: what is pinned need not wait for whoever drops the handle.
        if let Some(pinned) = self.version.pinned.take() {
            after.drop_later(pinned);
        }
    }

    /// Ends every outstanding operation with `error`.
    pub(crate) fn fail_outstanding(&mut self, error: &Error, after: &mut After) {
        self.batches.fail_all(error, after);
        for task in self.tasks.take_all() {
            after.abort(task, error.clone());
        }
        for promise in self.version.waiting.drain(..) {
            after.reply(promise, Err(error.clone()));
        }
        for promise in self.outcome.stamp_waiting.drain(..) {
            after.reply(promise, Err(error.clone()));
        }
        if let Some(waiting) = self.retry.waiting.take() {
            let (promise, timer) = *waiting;
            after.drop_later(timer);
            after.reply(promise, Err(error.clone()));
        }
        self.watches.fail_all(error, after);
        self.reads.pending = 0;
        if let Some(promise) = self.reads.drained.take() {
            // Dropping it wakes the commit that waits for the reads, which takes the lock.
            after.drop_later(promise);
        }
    }

    /// Notes that so many reads have their answer.
    pub(crate) fn read_finished(&mut self, count: usize, error: Option<&Error>, after: &mut After) {
        if let Some(error) = error {
            self.reads.failed.get_or_insert_with(|| error.clone());
        }
        self.reads.pending = self.reads.pending.saturating_sub(count);
        if self.reads.pending == 0
            && let Some(promise) = self.reads.drained.take()
        {
            after.reply(promise, Ok(()));
        }
    }
}

/// Calls that wait until the lock is free.
#[derive(Default)]
pub(crate) struct After {
    wakers: Vec<Waker>,
    calls: Vec<Box<dyn FnOnce() + Send>>,
}

impl After {
    pub(crate) fn wake(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    pub(crate) fn call(&mut self, call: impl FnOnce() + Send + 'static) {
        self.calls.push(Box::new(call));
    }

    pub(crate) fn reply<T: Send + 'static>(&mut self, promise: Promise<T>, result: Result<T>) {
        self.call(move || promise.send(result));
    }

    pub(crate) fn abort(&mut self, task: Arc<dyn Abort>, error: Error) {
        self.call(move || task.abort(error));
    }

    /// Drops a value outside of the lock, because dropping it may call out.
    pub(crate) fn drop_later<T: Send + 'static>(&mut self, value: T) {
        self.call(move || drop(value));
    }

    #[inline]
    pub(crate) fn run(self) {
        if self.calls.is_empty() && self.wakers.is_empty() {
            return;
        }
        self.run_all();
    }

    #[cold]
    fn run_all(self) {
        for call in self.calls {
            call();
        }
        for waker in self.wakers {
            waker.wake();
        }
    }
}
