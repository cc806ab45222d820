//! Reset, cancel, and what to do about an error.
//!
//! A retry keeps the persistent options, the count of retries and the grown wait; a reset forgets
//! all three. An error that no retry can mend comes back as it is and leaves the transaction
//! cancelled.

use super::options::Options;
use super::state::{After, FIRST_BACKOFF, State};
use super::{Inner, Transaction};
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest wait, in seconds, after an error that says that there are too many transactions.
const OVERLOAD_BACKOFF: f64 = 30.0;
/// The wait after an error about the read version.
const VERSION_DELAY: Duration = Duration::from_millis(10);

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
            state.retry.retries = 0;
            state.retry.backoff = FIRST_BACKOFF;
            state.retry.persistent = self.inner.database().defaults();
            state.life.created = self.inner.env().now();
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
                if state.life.dead.is_none() {
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
        state.check_alive()?;
        let limit = state.options.retry_limit;
        let limit_reached = limit != -1 && state.retry.retries >= limit;
        state.retry.retries = state.retry.retries.saturating_add(1);
        if limit_reached {
            return Err(error.clone());
        }
        let most = state.options.max_retry_delay;
        match error.code() {
            1007 | 1009 => Ok(VERSION_DELAY.min(most)),
            1020 | 1021 | 1037 | 1038 | 1042 | 1051 | 1078 | 1079 | 1213 | 1223 | 1235 | 1242 => {
                let overloaded = matches!(error.code(), 1042 | 1078);
                let cap = if overloaded { OVERLOAD_BACKOFF } else { most.as_secs_f64() };
                // 53 random bits: a number from 0 up to, and without, 1.
                let random = (self.env().random_u64() >> 11) as f64 / (1u64 << 53) as f64;
                let delay = state.retry.backoff * random;
                state.retry.backoff = (state.retry.backoff * 2.0).min(cap);
                Ok(Duration::from_secs_f64(delay))
            }
            1039 => Ok(Duration::ZERO),
            _ => Err(error.clone()),
        }
    }

    fn begin_again_after(
        self: &Arc<Self>,
        state: &mut State,
        delay: Duration,
        after: &mut After,
    ) -> Reply<()> {
        let (promise, reply) = promise();
        let (inner, epoch) = (self.clone(), state.life.epoch);
        let timer = self.env().call_at(self.env().now() + delay, move || {
            inner.with(|state, after| {
                if state.life.epoch == epoch
                    && let Some(waiting) = state.retry.waiting.take()
                {
                    let (promise, timer) = *waiting;
                    inner.begin_again(state, after);
                    after.reply(promise, Ok(()));
                    after.drop_later(timer);
                }
            });
        });
        if let Some(earlier) = state.retry.waiting.replace(Box::new((promise, timer))) {
            let (promise, timer) = *earlier;
            after.drop_later(timer);
            after.reply(promise, Err(Error::transaction_cancelled()));
        }
        reply
    }

    /// Begins a new epoch: nothing of the old one remains but counts, persistent options and
    /// buffers.
    pub(super) fn begin_again(self: &Arc<Self>, state: &mut State, after: &mut After) {
        state.fail_outstanding(&Error::transaction_cancelled(), after);
        state.life.epoch += 1;
        state.life.deferred = None;
        state.life.dead = None;
        state.life.committing = false;
        state.life.renewal_due = false;
        if let Some(timer) = state.life.timer.take() {
            after.drop_later(timer);
        }
        state.options = Options::new(self.database().snapshot_ryw());
        let before = std::mem::take(&mut state.version);
        self.reads_apart.store(false, Ordering::Relaxed);
        if let Some(pinned) = before.pinned {
            after.drop_later(pinned);
        }
        state.reads.clear();
        state.writes.clear();
        state.outcome.stamp = None;
        state.special = None;
        self.apply_persistent(state, after);
    }

    /// What commit did to a transaction before API version 410: it began anew. Once the commit
    /// itself is over, which would otherwise be among what that ends.
    pub(super) fn renew_if_due(&self, state: &mut State, after: &mut After) {
        if !std::mem::take(&mut state.life.renewal_due) {
            return;
        }
        state.retry.retries = 0;
        state.retry.backoff = FIRST_BACKOFF;
        state.retry.persistent = self.database().defaults();
        state.life.created = self.env().now();
        let Some(inner) = self.itself.upgrade() else { return };
        inner.begin_again(state, after);
    }
}
