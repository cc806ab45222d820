//! A cell that is assigned once and read once, possibly on two threads.
//!
//! Everything that waits for something in this crate (replies, tasks) is one of these. The state is
//! a small enum behind a mutex that is held for a few instructions and never while foreign code
//! runs: wakers, callbacks and destructors of values are all called after it has been released. Two
//! flags beside it answer the questions that are asked in loops without taking the mutex.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::Thread;

/// What a call for the other side looks like.
type Call = Box<dyn FnOnce() + Send>;

/// Who is told that the value is there.
enum Waiter<V> {
    Nobody,
    Task(Waker),
    Thread(Thread),
    Call(Box<dyn FnOnce(V) + Send>),
}

enum State<V> {
    /// No value yet, and the receiver still wants one.
    Open {
        waiter: Waiter<V>,
        on_cancel: Option<Call>,
    },
    Full(V),
    /// The value has been taken, or the receiver has gone.
    Closed,
}

struct Shared<V> {
    state: Mutex<State<V>>,
    full: AtomicBool,
    abandoned: AtomicBool,
}

impl<V> Shared<V> {
    fn lock(&self) -> MutexGuard<'_, State<V>> {
        // No foreign code runs under the mutex, so a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the value out if it is there.
    fn take(&self) -> Option<V> {
        if !self.full.load(Ordering::Acquire) {
            return None;
        }
        match std::mem::replace(&mut *self.lock(), State::Closed) {
            State::Full(value) => Some(value),
            State::Open { .. } | State::Closed => None,
        }
    }
}

/// The side that assigns.
pub(crate) struct Sender<V> {
    shared: Option<Arc<Shared<V>>>,
}

/// The side that reads. Dropping it tells the sender that nobody wants the value.
pub(crate) struct Receiver<V> {
    shared: Arc<Shared<V>>,
    /// The value has been taken, so that there is nothing to tell the sender at the end.
    taken: bool,
}

/// A new, empty cell.
pub(crate) fn cell<V>() -> (Sender<V>, Receiver<V>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State::Open { waiter: Waiter::Nobody, on_cancel: None }),
        full: AtomicBool::new(false),
        abandoned: AtomicBool::new(false),
    });
    (Sender { shared: Some(shared.clone()) }, Receiver { shared, taken: false })
}

impl<V> Sender<V> {
    /// Assigns the value and tells whoever waits. Later calls do nothing.
    pub(crate) fn complete(&mut self, value: V) {
        let Some(shared) = self.shared.take() else { return };
        let mut state = shared.lock();
        match std::mem::replace(&mut *state, State::Closed) {
            State::Open { waiter: Waiter::Call(call), on_cancel } => {
                drop(state);
                drop(on_cancel);
                call(value);
            }
            State::Open { waiter, on_cancel } => {
                *state = State::Full(value);
                shared.full.store(true, Ordering::Release);
                drop(state);
                drop(on_cancel);
                match waiter {
                    Waiter::Task(waker) => waker.wake(),
                    Waiter::Thread(thread) => thread.unpark(),
                    Waiter::Nobody | Waiter::Call(_) => {}
                }
            }
            // The receiver has gone: the value is dropped, outside of the mutex.
            State::Full(_) | State::Closed => drop(state),
        }
    }

    /// Whether the value was assigned already.
    pub(crate) fn is_spent(&self) -> bool {
        self.shared.is_none()
    }

    /// Whether the receiver has gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.abandoned.load(Ordering::Acquire))
    }

    /// Has `call` called when the receiver goes before the value comes; at once if it has gone.
    pub(crate) fn on_abandon(&mut self, call: Call) {
        let Some(shared) = &self.shared else { return };
        let mut state = shared.lock();
        let replaced = match &mut *state {
            State::Open { on_cancel, .. } => on_cancel.replace(call),
            State::Full(_) => Some(call),
            State::Closed => {
                drop(state);
                return call();
            }
        };
        drop(state);
        drop(replaced);
    }
}

/// What can still take back a call that a receiver left with [`Receiver::on_complete`]. Dropping it
/// changes nothing.
pub(crate) struct Listener<V> {
    shared: Arc<Shared<V>>,
}

impl<V> Listener<V> {
    /// Whether the value is yet to come.
    pub(crate) fn is_open(&self) -> bool {
        matches!(&*self.shared.lock(), State::Open { .. })
    }

    /// Tells the sender that nobody wants the value. Whoever waits for it still gets it, if it
    /// comes nevertheless.
    pub(crate) fn give_up(&self) {
        let mut state = self.shared.lock();
        let State::Open { on_cancel, .. } = &mut *state else { return };
        let call = on_cancel.take();
        self.shared.abandoned.store(true, Ordering::Release);
        drop(state);
        if let Some(call) = call {
            call();
        }
    }

    /// Drops the call, unless it has begun, and tells the sender that nobody wants the value.
    pub(crate) fn cancel(self) {
        let mut state = self.shared.lock();
        if !matches!(&*state, State::Open { .. }) {
            return;
        }
        let last = std::mem::replace(&mut *state, State::Closed);
        self.shared.abandoned.store(true, Ordering::Release);
        drop(state);
        if let State::Open { waiter, on_cancel } = last {
            drop(waiter);
            if let Some(call) = on_cancel {
                call();
            }
        }
    }
}

impl<V> Receiver<V> {
    /// What can take back a call that is left with this receiver later.
    pub(crate) fn listener(&self) -> Listener<V> {
        Listener { shared: self.shared.clone() }
    }

    /// Whether the value is there.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.full.load(Ordering::Acquire)
    }

    /// Takes the value if it is there.
    pub(crate) fn take(&mut self) -> Option<V> {
        let value = self.shared.take();
        self.taken |= value.is_some();
        value
    }

    /// Takes the value, or has `context`'s task woken when it comes. For ever pending once it was
    /// taken.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<V> {
        if let Some(value) = self.take() {
            return Poll::Ready(value);
        }
        let mut state = self.shared.lock();
        if let State::Open { waiter, .. } = &mut *state {
            if !matches!(waiter, Waiter::Task(waker) if waker.will_wake(context.waker())) {
                let replaced = std::mem::replace(waiter, Waiter::Task(context.waker().clone()));
                drop(state);
                drop(replaced);
            }
            return Poll::Pending;
        }
        drop(state);
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Parks the thread until the value comes. `None` if it had been taken before.
    pub(crate) fn wait(mut self) -> Option<V> {
        if let Some(value) = self.take() {
            return Some(value);
        }
        let mut state = self.shared.lock();
        if let State::Open { waiter, .. } = &mut *state {
            let replaced = std::mem::replace(waiter, Waiter::Thread(crate::park::current_thread()));
            drop(state);
            drop(replaced);
        } else {
            drop(state);
            return self.take();
        }
        loop {
            crate::park::park();
            if let Some(value) = self.take() {
                return Some(value);
            }
        }
    }

    /// Has `call` called with the value: now if it is there, else on the thread that assigns it.
    pub(crate) fn on_complete(self, call: Box<dyn FnOnce(V) + Send>) {
        let mut state = self.shared.lock();
        if let State::Open { waiter, .. } = &mut *state {
            let replaced = std::mem::replace(waiter, Waiter::Call(call));
            drop(state);
            drop(replaced);
            return;
        }
        let last = std::mem::replace(&mut *state, State::Closed);
        drop(state);
        if let State::Full(value) = last {
            call(value);
        }
    }
}

impl<V> Drop for Receiver<V> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = self.shared.lock();
        if let State::Open { waiter: Waiter::Call(_), .. } = &*state {
            // The call has taken the receiver's place.
            return;
        }
        let open = matches!(&*state, State::Open { .. });
        let last = std::mem::replace(&mut *state, State::Closed);
        if open {
            self.shared.abandoned.store(true, Ordering::Release);
        }
        drop(state);
        if let State::Open { on_cancel: Some(call), .. } = last {
            call();
        }
    }
}
