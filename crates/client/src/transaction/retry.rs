//! Reset, cancel, and what to do about an error.
//!
//! A retry keeps the persistent options, the count of retries and the grown wait; a reset forgets
//! all three. An error that no retry can mend comes back as it is and leaves the transaction
//! cancelled.

use super::after::After;
use super::state::State;
use super::{Inner, Transaction};
use crate::options::Settings;
use crate::special_keys::Special;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Transaction {
    /// Prepares the transaction for another try after `error`: waits a while, then resets it,
    /// except that persistent options, the count of retries and the growth of the wait remain.
    ///
    /// # Errors
    /// `error` itself if another try can't help or the retry limit is reached; the transaction is
    /// then cancelled. `transaction_cancelled` and `transaction_timed_out` if that is what the
    /// transaction is.
    pub fn on_error(&self, error: Error) -> Reply<()> {
        self.inner.on_error(error)
    }

    /// [`Transaction::on_error`] by number.
    ///
    /// # Errors
    /// As there; for the number 0 `client_invalid_operation`.
    pub fn on_error_code(&self, code: i32) -> Reply<()> {
        if code == 0 {
            return self.inner.on_error(Error::client_invalid_operation());
        }
        self.inner.on_error(Error::from_code(code))
    }

    /// Makes the transaction as new. Outstanding operations fail with `transaction_cancelled`.
    pub fn reset(&self) {
        self.inner.with(|state, after| {
            self.inner.forget_tries(state);
            self.inner.begin_again(state, after);
        });
    }

    /// Fails all outstanding operations, and every later one until reset, with
    /// `transaction_cancelled`. A commit under way may still take effect.
    pub fn cancel(&self) {
        self.inner.with(|state, after| state.kill(Error::transaction_cancelled(), after));
    }
}

impl Inner {
    fn on_error(self: &Arc<Self>, error: Error) -> Reply<()> {
        self.with(|state, after| match self.delay(state, &error) {
            Err(error) => {
                if !state.life.is_dead() {
                    if self.api(610) {
                        state.kill(Error::transaction_cancelled(), after);
                    } else {
                        self.begin_again(state, after);
                    }
                }
                let broken = error == Error::broken_promise();
                Reply::ready(Err(if broken { Error::transaction_cancelled() } else { error }))
            }
            Ok(delay) if delay.is_zero() => {
                self.begin_again(state, after);
                Reply::ready(Ok(()))
            }
            Ok(delay) => self.begin_again_after(state, delay, after),
        })
    }

    /// How long to wait before the next try, or the error that there will be none.
    fn delay(&self, state: &mut State, error: &Error) -> Result<Duration> {
        state.life.check_alive()?;
        let (limit, most) = (state.options.retry_limit, state.options.max_retry_delay);
        state.backoff.delay(error, limit, most, || self.env().random_u64())
    }

    fn begin_again_after(
        self: &Arc<Self>,
        state: &mut State,
        delay: Duration,
        after: &mut After,
    ) -> Reply<()> {
        let (promise, reply) = promise();
        let (inner, epoch) = (self.clone(), state.life.epoch());
        let timer = self.env().call_at(self.env().now() + delay, move || {
            inner.with(|state, after| {
                if state.life.is_in(epoch)
                    && let Some((promise, timer)) = state.backoff.take_waiting()
                {
                    inner.begin_again(state, after);
                    after.reply(promise, Ok(()));
                    after.drop_later(timer);
                }
            });
        });
        if let Some((promise, timer)) = state.backoff.wait(promise, timer) {
            after.drop_later(timer);
            after.reply(promise, Err(Error::transaction_cancelled()));
        }
        reply
    }

    /// Begins a new epoch: nothing of the old one remains but counts, persistent options and
    /// buffers.
    pub(super) fn begin_again(self: &Arc<Self>, state: &mut State, after: &mut After) {
        state.fail_outstanding(&Error::transaction_cancelled(), after);
        state.life.begin_again();
        if let Some(timer) = state.life.disarm() {
            after.drop_later(timer);
        }
        state.options = Settings::new(self.database().snapshot_ryw());
        self.shown.set(None);
        let mut before = std::mem::take(&mut state.version);
        self.reads_apart.store(false, Ordering::Relaxed);
        if let Some(pinned) = before.let_go() {
            after.drop_later(pinned);
        }
        state.reads.clear();
        state.writes.clear();
        state.outcome.begin_again();
        state.special = Special::default();
        self.apply_persistent(state, after);
    }

    /// Forgets the tries so far: the next one begins as the first one did.
    fn forget_tries(&self, state: &mut State) {
        state.backoff.reset();
        state.persistent = self.database().defaults();
        state.life.restart(self.env().now());
    }

    /// What commit did to a transaction before API version 410: it began anew. Once the commit
    /// itself is over, which would otherwise be among what that ends.
    pub(super) fn renew_if_due(&self, state: &mut State, after: &mut After) {
        if !state.life.take_renewal() {
            return;
        }
        self.forget_tries(state);
        let Some(inner) = self.itself.upgrade() else { return };
        inner.begin_again(state, after);
    }
}
