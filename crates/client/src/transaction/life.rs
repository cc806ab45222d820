//! The life cycle of a transaction: whether it may be used, and in which try it is.
//!
//! ```text
//!   usable ──commit──▶ committing ──┐
//!     │ │                           │ reset, retry: the next epoch, usable
//!     │ └──an error that its call couldn't tell──▶ deferred ──┤
//!     └──cancelled, timed out, used during commit──▶ dead ────┘
//! ```
//! What is deferred, and that it is dead, stays until the next epoch; the first of each counts.

use plinth_env::Timer;
use plinth_types::{Error, Result};
use std::time::Duration;

/// Whether the transaction may be used, and since when it exists.
pub(super) struct Life {
    /// The first error of a call that could not report it; every later call does.
    deferred: Option<Error>,
    /// Cancelled, timed out, used during commit: every call fails with this until reset.
    dead: Option<Error>,
    /// Whether commit was called.
    committing: bool,
    /// Whether the transaction begins anew once the commit under way is over: before API version
    /// 410.
    renewal_due: bool,
    /// Counts resets and retries.
    epoch: u64,
    /// When the timeout began to run.
    created: Duration,
    /// Fires when the timeout has passed.
    timer: Option<Timer>,
}

impl Life {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            deferred: None,
            dead: None,
            committing: false,
            renewal_due: false,
            epoch: 0,
            created: now,
            timer: None,
        }
    }

    /// Whether nothing stands against any call.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        self.deferred.is_none() && !self.committing && self.dead.is_none()
    }

    /// Keeps the error of a call that can't tell it, unless there is one.
    pub(super) fn defer(&mut self, error: Error) {
        self.deferred.get_or_insert(error);
    }

    #[inline]
    pub(super) fn is_deferred(&self) -> bool {
        self.deferred.is_some()
    }

    pub(super) fn check_deferred(&self) -> Result<()> {
        self.deferred.clone().map_or(Ok(()), Err)
    }

    /// Has every call fail from now on; false if they do already.
    pub(super) fn die(&mut self, error: &Error) -> bool {
        let is_alive = self.dead.is_none();
        self.dead.get_or_insert_with(|| error.clone());
        is_alive
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.is_some()
    }

    pub(super) fn check_alive(&self) -> Result<()> {
        self.dead.clone().map_or(Ok(()), Err)
    }

    pub(super) fn begin_commit(&mut self) {
        self.committing = true;
    }

    #[inline]
    pub(super) fn is_committing(&self) -> bool {
        self.committing
    }

    /// Which try this is. What is asked for keeps the number, and is dropped if another try runs
    /// when the answer comes.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    #[inline]
    pub(super) fn is_in(&self, epoch: u64) -> bool {
        self.epoch == epoch
    }

    /// Has the transaction begin anew once its commit is over.
    pub(super) fn renew_later(&mut self) {
        self.renewal_due = true;
    }

    /// Whether that is due; once.
    pub(super) fn take_renewal(&mut self) -> bool {
        std::mem::take(&mut self.renewal_due)
    }

    /// Has the timeout count from now on.
    pub(super) fn restart(&mut self, now: Duration) {
        self.created = now;
    }

    /// When a timeout of this length has passed.
    pub(super) fn deadline(&self, timeout: Duration) -> Duration {
        self.created + timeout
    }

    pub(super) fn arm(&mut self, timer: Timer) {
        self.timer = Some(timer);
    }

    /// The timer of the timeout, to be dropped without the lock.
    pub(super) fn disarm(&mut self) -> Option<Timer> {
        self.timer.take()
    }

    /// Begins the next epoch, in which all is well.
    pub(super) fn begin_again(&mut self) {
        self.epoch += 1;
        self.deferred = None;
        self.dead = None;
        self.committing = false;
        self.renewal_due = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_counts_until_the_next_epoch() {
        let mut life = Life::new(Duration::ZERO);
        assert!(life.is_usable() && life.is_in(0));
        life.defer(Error::inverted_range());
        life.defer(Error::key_too_large());
        assert_eq!(life.check_deferred(), Err(Error::inverted_range()));
        assert!(life.die(&Error::transaction_timed_out()));
        assert!(!life.die(&Error::transaction_cancelled()));
        assert_eq!(life.check_alive(), Err(Error::transaction_timed_out()));
        life.begin_commit();
        life.renew_later();
        life.begin_again();
        assert!(life.is_usable() && life.is_in(1) && !life.take_renewal());
    }

    #[test]
    fn a_renewal_is_due_once() {
        let mut life = Life::new(Duration::ZERO);
        life.renew_later();
        assert!(life.take_renewal());
        assert!(!life.take_renewal());
    }

    #[test]
    fn the_timeout_counts_from_the_last_start() {
        let mut life = Life::new(Duration::from_secs(1));
        life.restart(Duration::from_secs(5));
        life.begin_again();
        assert_eq!(life.deadline(Duration::from_secs(2)), Duration::from_secs(7));
    }
}
