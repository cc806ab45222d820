//! Whether a node still takes commits, and why not.

use plinth_env::Signal;
use plinth_types::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct Health {
    failure: OnceLock<Error>,
    failed: Signal,
    over: Signal,
    closing: AtomicBool,
}

impl Health {
    /// From now on no commit is taken: what is on disk, or in memory, is not known any more. The first
    /// cause counts.
    pub fn fail(&self, error: Error) {
        if self.failure.set(error.clone()).is_ok() {
            crate::events::failed(&error);
            self.failed.notify();
            self.over.notify();
        }
    }

    /// Why no commit is taken, if so.
    pub fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// Waits until the node fails, and says why.
    pub async fn until_failed(&self) -> Error {
        loop {
            if let Some(cause) = self.failure() {
                // The next one who waits is to be woken too.
                self.failed.notify();
                return cause;
            }
            self.failed.wait().await;
        }
    }

    /// True for the first caller.
    pub fn begin_closing(&self) -> bool {
        let is_first = !self.closing.swap(true, Ordering::SeqCst);
        self.over.notify();
        is_first
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Waits until tasks are to end.
    pub async fn until_over(&self) {
        while !self.is_over() {
            self.over.wait().await;
        }
        // The next one who waits is to be woken too.
        self.over.notify();
    }

    /// Whether tasks are to end: the node closes, or has failed.
    pub fn is_over(&self) -> bool {
        self.is_closing() || self.failure.get().is_some()
    }
}
