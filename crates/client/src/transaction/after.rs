//! What has to be called once the lock is free: nothing foreign runs while it is held.

use super::tasks::Abort;
use plinth_env::reply::Promise;
use plinth_types::{Error, Result};
use std::sync::Arc;
use std::task::Waker;

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
