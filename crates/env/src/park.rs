//! Waiting for a future on a thread: [`block_on`].
//!
//! The way from a wake to the woken thread is the latency of every commit, so it is one futex call
//! (`Thread::unpark`) and nothing else. Each thread keeps one waker for its outermost `block_on`,
//! so that waiting allocates nothing. The waker has a flag of its own beside the thread's park
//! token, because the token is shared by everything that parks the thread: a `block_on` inside of
//! another would otherwise swallow the outer one's wake-up.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

struct ThreadWaker {
    thread: Thread,
    woken: AtomicBool,
}

impl ThreadWaker {
    fn new() -> Arc<Self> {
        Arc::new(Self { thread: current_thread(), woken: AtomicBool::new(false) })
    }

    /// Parks until a wake-up that came since the last return from here.
    fn sleep(&self) {
        while !self.woken.swap(false, Ordering::Acquire) {
            park();
        }
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

thread_local! {
    /// The waker of this thread's outermost `block_on`; `None` while that runs.
    static IDLE: Cell<Option<(Arc<ThreadWaker>, Waker)>> = const { Cell::new(None) };
    /// Whether this thread is running a simulation.
    static SIMULATING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `future` on this thread and parks the thread while it waits.
///
/// May be nested. Not inside a simulated task: there the whole world runs on this one thread, so
/// waiting for it would never end.
///
/// # Panics
/// If a simulated task waits for something that is not ready.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // During the destruction of thread-locals there is none to reuse.
    let kept = IDLE.try_with(Cell::take).ok().flatten();
    let (thread, waker) = kept.unwrap_or_else(|| {
        let thread = ThreadWaker::new();
        (thread.clone(), Waker::from(thread))
    });
    let mut context = Context::from_waker(&waker);
    let output = loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => break output,
            Poll::Pending => {
                assert!(
                    !is_simulating(),
                    "a simulated task blocks its thread: it would wait for ever"
                );
                thread.sleep();
            }
        }
    };
    let _ = IDLE.try_with(|idle| idle.set(Some((thread, waker))));
    output
}

pub(crate) fn current_thread() -> Thread {
    std::thread::current()
}

pub(crate) fn park() {
    std::thread::park();
}

/// While it lives, this thread runs a simulation.
pub(crate) struct Simulating {
    before: bool,
}

impl Simulating {
    pub(crate) fn enter() -> Self {
        Self { before: SIMULATING.replace(true) }
    }
}

impl Drop for Simulating {
    fn drop(&mut self) {
        SIMULATING.set(self.before);
    }
}

/// Whether the calling thread runs a simulation at this moment, so that it must not wait.
pub(crate) fn is_simulating() -> bool {
    SIMULATING.try_with(Cell::get).unwrap_or(false)
}
