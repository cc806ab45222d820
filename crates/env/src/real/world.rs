//! Clock, random numbers and tasks of the real world.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

use crate::task::{Completion, panic_message};

/// The real world as one environment sees it.
#[derive(Clone, Copy)]
pub(crate) struct RealWorld {
    began: Instant,
}

impl RealWorld {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now() }
    }

    pub(crate) fn now(self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn wall_clock() -> Duration {
        // A clock set to before 1970 reads as 1970.
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    pub(crate) fn cpu_time() -> Duration {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(spent).unwrap_or_default()
    }

    /// The instant that is `at` after the environment began; a far one if the clock can't tell it.
    pub(crate) fn instant(self, at: Duration) -> Instant {
        const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);
        self.began.checked_add(at).unwrap_or_else(|| self.began + FAR)
    }

    /// Runs `future` on a thread of its own.
    pub(crate) fn spawn(
        completion: Completion,
        name: &str,
        future: impl Future<Output = ()> + Send + 'static,
    ) {
        // A name that a thread can't have (it contains a zero byte) is left out.
        let name: String = name.chars().filter(|c| *c != '\0').collect();
        let slot = std::sync::Arc::new(std::sync::Mutex::new(Some(completion)));
        let theirs = slot.clone();
        let take = |slot: &std::sync::Mutex<Option<Completion>>| {
            slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
        };
        let body = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| crate::block_on(future)));
            let Some(completion) = take(&theirs) else { return };
            match ended {
                Ok(()) => completion.finish(),
                Err(payload) => {
                    completion.fail(format!("it panicked: {}", panic_message(&*payload)))
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name(name).spawn(body)
            && let Some(completion) = take(&slot)
        {
            completion.fail(format!("no thread could be started: {error}"));
        }
    }
}

/// Fills `bytes` with random ones from the operating system, fit for keys.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes)
        .expect("every system that Plinth runs on has a source of random numbers");
}
