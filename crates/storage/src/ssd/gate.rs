//! One task at a time, across awaits: [`Gate`].

use plinth_env::Signal;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lets one in at a time.
#[derive(Default)]
pub(crate) struct Gate {
    taken: Mutex<bool>,
    freed: Signal,
}

impl Gate {
    pub async fn enter(&self) -> Inside<'_> {
        loop {
            let taken = std::mem::replace(&mut *self.lock(), true);
            if !taken {
                return Inside { gate: self };
            }
            self.freed.wait().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Inside<'g> {
    gate: &'g Gate,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.gate.lock() = false;
        self.gate.freed.notify();
    }
}
