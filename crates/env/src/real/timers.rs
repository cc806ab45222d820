//! Timers of the real world: one thread for the whole process, started with the first timer.
//!
//! Timers wait in one ordered map. The thread sleeps until the first of them and is disturbed only
//! when an earlier one comes; it sleeps on when the first is cancelled, so that timeouts which are
//! set and cancelled all the time cost no wake-ups. Calls run on that thread, one after the other,
//! outside of the lock, so they must be quick; a call that panics takes nobody else with it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

type Id = (Instant, u64);

enum Action {
    Wake(Waker),
    Call(Box<dyn FnOnce() + Send>),
}

struct Timers {
    state: Mutex<State>,
    earlier: Condvar,
}

struct State {
    queue: BTreeMap<Id, Action>,
    next: u64,
    thread: Thread,
}

/// What the thread of the timers does.
#[derive(Clone, Copy)]
enum Thread {
    /// There is none yet.
    Missing,
    /// It will look at the queue before it sleeps.
    Awake,
    SleepsUntil(Instant),
    /// It sleeps until it is called.
    Sleeps,
}

static TIMERS: Timers = Timers {
    state: Mutex::new(State { queue: BTreeMap::new(), next: 0, thread: Thread::Missing }),
    earlier: Condvar::new(),
};

impl Timers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&'static self, at: Instant, action: Action) -> Id {
        let mut state = self.lock();
        let id = (at, state.next);
        state.next += 1;
        state.queue.insert(id, action);
        match state.thread {
            Thread::Missing => {
                state.thread = Thread::Awake;
                self.start();
            }
            Thread::Awake => {}
            Thread::SleepsUntil(time) if time <= at => {}
            Thread::SleepsUntil(_) | Thread::Sleeps => {
                state.thread = Thread::Awake;
                drop(state);
                self.earlier.notify_one();
            }
        }
        id
    }

    fn remove(&self, id: Id) {
        let action = self.lock().queue.remove(&id);
        drop(action);
    }

    fn start(&'static self) {
        std::thread::Builder::new()
            .name("plinth-timers".to_string())
            .spawn(|| self.run())
            .expect("a process that can't start one more thread can't go on");
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            match state.queue.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let action = first.remove();
                    drop(state);
                    // Whatever is called here must not end the thread that all timers need.
                    let _ = catch_unwind(AssertUnwindSafe(|| match action {
                        Action::Wake(waker) => waker.wake(),
                        Action::Call(call) => call(),
                    }));
                    state = self.lock();
                }
                Some(first) => {
                    let until = first.key().0;
                    state.thread = Thread::SleepsUntil(until);
                    let pause = until - now;
                    let waited = self.earlier.wait_timeout(state, pause);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    state.thread = Thread::Sleeps;
                    state = self.earlier.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
            state.thread = Thread::Awake;
        }
    }
}

/// A call at a time, cancelled by dropping it.
pub(crate) struct RealTimer {
    id: Option<Id>,
}

impl RealTimer {
    pub(crate) fn new(at: Instant, call: Box<dyn FnOnce() + Send>) -> Self {
        Self { id: Some(TIMERS.add(at, Action::Call(call))) }
    }

    pub(crate) fn detach(mut self) {
        self.id = None;
    }
}

impl Drop for RealTimer {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            TIMERS.remove(id);
        }
    }
}

/// Ready at a time.
pub(crate) struct RealSleep {
    at: Instant,
    waiting: Option<(Id, Waker)>,
}

impl RealSleep {
    pub(crate) fn new(at: Instant) -> Self {
        Self { at, waiting: None }
    }

    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            self.stop();
            return Poll::Ready(());
        }
        if self.waiting.as_ref().is_none_or(|(_, waker)| !waker.will_wake(context.waker())) {
            self.stop();
            let waker = context.waker().clone();
            self.waiting = Some((TIMERS.add(self.at, Action::Wake(waker.clone())), waker));
        }
        Poll::Pending
    }

    fn stop(&mut self) {
        if let Some((id, _)) = self.waiting.take() {
            TIMERS.remove(id);
        }
    }
}

impl Drop for RealSleep {
    fn drop(&mut self) {
        self.stop();
    }
}
