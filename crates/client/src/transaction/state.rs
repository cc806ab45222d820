//! What a transaction knows, behind one lock: its parts, and what concerns several of them.
//!
//! Each public call takes the lock once, briefly, and never calls out (to the endpoint, a waker, a
//! promise) while it holds it: what has to be called is collected in [`After`] and called once the
//! lock is free.
//!
//! A transaction goes through *epochs*: reset and retry begin a new one. An answer that comes late
//! belongs to an epoch that is over, and is dropped.

use super::after::After;
use super::backoff::Backoff;
use super::batches::Batches;
use super::life::Life;
use super::outcome::Outcome;
use super::read_set::ReadSet;
use super::read_version::ReadVersion;
use super::tasks::Tasks;
use super::watch_list::WatchList;
use super::write_set::WriteSet;
use crate::database::Defaults;
use crate::options::Settings;
use crate::special_keys::{Allowed, Special};
use crate::write_map::WriteMap;
use plinth_types::{Error, Result};

/// Everything a transaction knows.
pub(super) struct State {
    pub(super) life: Life,
    pub(super) options: Settings,
    /// Options that survive a retry: the database's defaults, then those set by the user.
    pub(super) persistent: Defaults,
    pub(super) version: ReadVersion,
    pub(super) batches: Batches,
    pub(super) tasks: Tasks,
    pub(super) reads: ReadSet,
    pub(super) writes: WriteSet,
    pub(super) outcome: Outcome,
    pub(super) backoff: Backoff,
    pub(super) watches: WatchList,
    pub(super) special: Special,
}

impl State {
    /// What every call but a few must ask first: whether the transaction may be used.
    ///
    /// Using a transaction that is committing kills it, unless that protection is off.
    #[inline]
    pub(super) fn check(&mut self, after: &mut After) -> Result<()> {
        if self.life.is_usable() {
            return Ok(());
        }
        self.check_slowly(after)
    }

    #[cold]
    fn check_slowly(&mut self, after: &mut After) -> Result<()> {
        self.life.check_deferred()?;
        self.check_not_committing(after)?;
        self.life.check_alive()
    }

    pub(super) fn check_not_committing(&mut self, after: &mut After) -> Result<()> {
        if !self.life.is_committing() {
            return Ok(());
        }
        if !self.life.is_dead() && !self.options.used_during_commit_protection_disabled {
            self.kill(Error::used_during_commit(), after);
        }
        Err(Error::used_during_commit())
    }

    /// Whether a call that changes the transaction goes on: it is skipped once an error is
    /// deferred, and while committing it is an error. (A dead transaction takes writes; they come
    /// to nothing.)
    #[inline]
    pub(super) fn check_write(&mut self, after: &mut After) -> Result<()> {
        if self.life.is_committing() { self.check_not_committing(after) } else { Ok(()) }
    }

    /// Ends every outstanding operation with `error`, as every later one will until reset.
    pub(super) fn kill(&mut self, error: Error, after: &mut After) {
        if !self.life.die(&error) {
            return;
        }
        self.fail_outstanding(&error, after);
        // Nothing is read any more: what is pinned need not wait for whoever drops the handle.
        if let Some(pinned) = self.version.let_go() {
            after.drop_later(pinned);
        }
    }

    /// Ends every outstanding operation with `error`.
    pub(super) fn fail_outstanding(&mut self, error: &Error, after: &mut After) {
        self.batches.fail_all(error, after);
        for task in self.tasks.take_all() {
            after.abort(task, error.clone());
        }
        self.version.fail_waiting(error, after);
        self.outcome.fail_waiting(error, after);
        if let Some((promise, timer)) = self.backoff.take_waiting() {
            after.drop_later(timer);
            after.reply(promise, Err(error.clone()));
        }
        self.watches.fail_all(error, after);
        self.reads.abandon(after);
    }

    /// Has every later call fail with the error of one that can't tell it.
    pub(super) fn defer(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.life.defer(error);
        }
    }

    /// What the transaction counts so far, as it is held against the size limit.
    pub(super) fn size(&self) -> i64 {
        self.reads.size() + self.writes.size()
    }

    /// Whether a read doesn't see own writes.
    #[inline]
    pub(super) fn is_blind(&self, snapshot: bool) -> bool {
        self.options.ryw_disabled || (snapshot && self.options.snapshot_ryw <= 0)
    }

    /// The own writes that a read sees now; `None` if it sees none.
    pub(super) fn visible_writes(&mut self, snapshot: bool) -> Option<&WriteMap> {
        if self.is_blind(snapshot) { None } else { self.writes.map() }
    }

    /// Adds a read conflict range as of now.
    pub(super) fn add_read_conflict(&mut self, begin: &[u8], end: &[u8]) {
        let map = self.visible_writes(false).cloned();
        self.reads.add(map.as_ref(), begin, end);
    }

    /// What the options allow with special keys.
    pub(super) fn allowed(&self) -> Allowed {
        Allowed {
            relaxed: self.options.special.relaxed,
            writes: self.options.special.writes,
            own_writes: !self.options.ryw_disabled,
        }
    }
}
