//! A value that others wait for: set by one, seen by many.

use crate::batch_lock::lock;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

/// A value, and whoever waits for another one.
#[derive(Default)]
pub(super) struct Posted<T> {
    state: Mutex<State<T>>,
}

#[derive(Default)]
struct State<T> {
    value: T,
    waiting: Vec<Waker>,
}

impl<T> Posted<T> {
    pub fn new(value: T) -> Self {
        Self { state: Mutex::new(State { value, waiting: Vec::new() }) }
    }

    /// Looks at the value.
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&lock(&self.state).value)
    }

    /// Changes the value, and has everybody look who waits.
    pub fn change<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let (result, waiting) = {
            let mut state = lock(&self.state);
            (f(&mut state.value), std::mem::take(&mut state.waiting))
        };
        waiting.into_iter().for_each(Waker::wake);
        result
    }

    /// Waits until `f` gives something; it is asked now and after every change.
    pub async fn until<R>(&self, mut f: impl FnMut(&T) -> Option<R>) -> R {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            match f(&state.value) {
                Some(result) => Poll::Ready(result),
                None => {
                    if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                        state.waiting.push(context.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}
