//! The batch lock: a value that one task at a time may hold across awaits.
//!
//! Whoever holds it forms the next batch. First come, first served is not promised: every waiter is
//! woken, so that one that was dropped meanwhile can't swallow the only wake-up.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Locks, even if a thread panicked inside: the protected states are changed in single steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mutex for tasks: waiting for it doesn't block the thread's other futures.
pub(crate) struct BatchLock<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Option<T>,
    waiting: VecDeque<Waker>,
}

impl<T> BatchLock<T> {
    pub fn new(value: T) -> Self {
        Self { state: Mutex::new(State { value: Some(value), waiting: VecDeque::new() }) }
    }

    /// Whether nobody holds the value.
    pub fn is_free(&self) -> bool {
        lock(&self.state).value.is_some()
    }

    /// Waits until nobody holds the value, and takes it.
    pub async fn take(&self) -> Held<'_, T> {
        let value = poll_fn(|context| {
            let mut state = lock(&self.state);
            match state.value.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    state.waiting.push_back(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        Held { lock: self, value: Some(value.await) }
    }
}

/// The value of a [`BatchLock`], held. Dropping it passes it on, also while a panic unwinds.
pub(crate) struct Held<'a, T> {
    lock: &'a BatchLock<T>,
    value: Option<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is there until the drop")
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is there until the drop")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = lock(&self.lock.state);
            assert!(state.value.is_none(), "a lock that is held was given to somebody else");
            state.value = self.value.take();
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
