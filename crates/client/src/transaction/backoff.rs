//! Which errors another try may mend, and how long to wait before it.
//!
//! A retry counts and lets the wait grow; a reset forgets both.

use plinth_env::Timer;
use plinth_env::reply::Promise;
use plinth_types::{Error, Result, codes};
use std::time::Duration;

/// Seconds that the first wait is drawn from.
const FIRST: f64 = 0.01;
/// The longest wait, in seconds, after an error that says that there are too many transactions.
const OVERLOAD: f64 = 30.0;
/// The wait after an error about the read version.
const VERSION_DELAY: Duration = Duration::from_millis(10);

/// Who waits for the next try to begin, and what ends the wait.
pub(super) type Waiting = (Promise<()>, Timer);

/// How often a transaction was tried again, and how long it waits the next time.
pub(super) struct Backoff {
    retries: usize,
    /// Seconds that the next wait is drawn from.
    next: f64,
    waiting: Option<Box<Waiting>>,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { retries: 0, next: FIRST, waiting: None }
    }

    /// Forgets what came before.
    pub(super) fn reset(&mut self) {
        self.retries = 0;
        self.next = FIRST;
    }

    /// How long to wait before the next try, at most `most`, or the error that there will be none:
    /// `limit` tries have been (`None`: any number may be), or another try can't help.
    pub(super) fn delay(
        &mut self,
        error: &Error,
        limit: Option<usize>,
        most: Duration,
        random: impl FnOnce() -> u64,
    ) -> Result<Duration> {
        let limit_reached = limit.is_some_and(|limit| self.retries >= limit);
        self.retries = self.retries.saturating_add(1);
        if limit_reached {
            return Err(error.clone());
        }
        match error.code() {
            1007 | 1009 => Ok(VERSION_DELAY.min(most)),
            1020 | 1021 | 1037 | 1038 | 1042 | 1051 | 1078 | 1079 | 1213 | 1223 | 1235 | 1242 => {
                let overloaded = matches!(
                    error.code(),
                    codes::COMMIT_PROXY_MEMORY_LIMIT_EXCEEDED
                        | codes::GRV_PROXY_MEMORY_LIMIT_EXCEEDED
                );
                let cap = if overloaded { OVERLOAD } else { most.as_secs_f64() };
                // 53 random bits: a number from 0 up to, and without, 1.
                let random = (random() >> 11) as f64 / (1u64 << 53) as f64;
                let delay = self.next * random;
                self.next = (self.next * 2.0).min(cap);
                Ok(Duration::from_secs_f64(delay))
            }
            1039 => Ok(Duration::ZERO),
            _ => Err(error.clone()),
        }
    }

    /// Notes who waits for the next try; gives who waited for it before.
    pub(super) fn wait(&mut self, promise: Promise<()>, timer: Timer) -> Option<Waiting> {
        self.waiting.replace(Box::new((promise, timer))).map(|earlier| *earlier)
    }

    pub(super) fn take_waiting(&mut self) -> Option<Waiting> {
        self.waiting.take().map(|waiting| *waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(40);

    #[test]
    fn waits_double_up_to_the_longest_and_a_reset_forgets_them() {
        let mut backoff = Backoff::new();
        let wait = |backoff: &mut Backoff| {
            let delay = backoff.delay(&Error::not_committed(), None, MOST, || u64::MAX).unwrap();
            (delay.as_secs_f64() * 1000.0).round() as u64
        };
        let waits: Vec<u64> = (0..5).map(|_| wait(&mut backoff)).collect();
        assert_eq!(waits, [10, 20, 40, 40, 40]);
        backoff.reset();
        assert_eq!(wait(&mut backoff), 10);
    }

    #[test]
    fn the_limit_counts_every_error() {
        let mut backoff = Backoff::new();
        let error = Error::not_committed();
        assert!(backoff.delay(&error, Some(2), MOST, || 0).is_ok());
        assert!(backoff.delay(&Error::future_version(), Some(2), MOST, || 0).is_ok());
        assert_eq!(backoff.delay(&error, Some(2), MOST, || 0), Err(error.clone()));
    }

    #[test]
    fn what_another_try_cannot_mend_comes_back() {
        let mut backoff = Backoff::new();
        let error = Error::key_too_large();
        assert_eq!(backoff.delay(&error, None, MOST, || 0), Err(error));
        let gone = Error::transaction_too_old();
        assert_eq!(backoff.delay(&gone, None, MOST, || 0), Ok(VERSION_DELAY));
    }
}
