//! Two ways in which the commit workers keep out of each other's way.
//!
//! [`Baton`]: one worker at a time forms and appends a batch; whoever holds the baton owns the front
//! of the pipeline. [`Turns`]: batches take effect in the order in which they were appended, whatever
//! the order in which their syncs end.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Locks, even if a thread panicked inside: the protected states are changed in single steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value that one task at a time may hold, across awaits. First come, first served.
pub(crate) struct Baton<T> {
    state: Mutex<BatonState<T>>,
}

struct BatonState<T> {
    value: Option<T>,
    waiting: VecDeque<Waker>,
}

impl<T> Baton<T> {
    pub fn new(value: T) -> Self {
        Self { state: Mutex::new(BatonState { value: Some(value), waiting: VecDeque::new() }) }
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
        Held { baton: self, value: Some(value.await) }
    }
}

/// The value of a [`Baton`] in somebody's hands; dropping it passes it on.
pub(crate) struct Held<'a, T> {
    baton: &'a Baton<T>,
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
            let mut state = lock(&self.baton.state);
            state.value = self.value.take();
            std::mem::take(&mut state.waiting)
        };
        // All are woken: a waiter that was dropped meanwhile must not swallow the only wake-up.
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Lets holders of numbered tickets pass in the order of their numbers.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<TurnsState>,
}

#[derive(Default)]
struct TurnsState {
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Turns {
    /// Waits until every ticket below `ticket` has passed.
    pub async fn wait(&self, ticket: u64) {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            if state.next >= ticket {
                return Poll::Ready(());
            }
            state.waiting.insert(ticket, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Whether every ticket below `ticket` has passed.
    pub fn have_passed(&self, ticket: u64) -> bool {
        lock(&self.state).next >= ticket
    }

    /// `ticket`, whose turn it was, has passed.
    pub fn pass(&self, ticket: u64) {
        let next = {
            let mut state = lock(&self.state);
            debug_assert_eq!(state.next, ticket, "passed out of turn");
            state.next = ticket + 1;
            state.waiting.remove(&(ticket + 1))
        };
        next.into_iter().for_each(Waker::wake);
    }
}
