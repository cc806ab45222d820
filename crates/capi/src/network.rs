//! The network thread: where callbacks run.
//!
//! There is no network in it. Answers come on whatever thread has them, and waiting threads are
//! woken there and then; but FoundationDB promises that callbacks run on the thread that the
//! program lent to `fdb_run_network`, and programs rely on it, so callbacks queue here. Several
//! threads may be lent; each takes the next callback.
//!
//! After `fdb_stop_network` the queue is emptied once more. A callback that comes later runs only
//! if the program itself caused it (by cancelling or destroying a future), on the thread that did:
//! a thread that the program doesn't know must not call into a language that may be shutting down.
//!
//! What the program has called (callbacks, hooks) may end its thread instead of coming back: see
//! [`call`](crate::future::call). So it is called with no lock, and with nothing that would have to
//! be dropped.

use crate::guard::guard;
use plinth_types::{Error, Result};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What runs when a network thread ends.
pub(crate) type Hook = unsafe extern "C-unwind" fn(*mut c_void);

/// A pointer of the program's that goes back to it as it came.
#[derive(Clone, Copy)]
pub(crate) struct Parameter(pub(crate) *mut c_void);

// SAFETY: the pointer is never followed here; what the program makes of it on another thread is its
// own promise.
unsafe impl Send for Parameter {}

/// A callback that is due.
pub(crate) trait Due {
    /// Calls the program.
    fn run(self);
}

/// The callbacks that are due, and the threads that run them.
pub(crate) struct Network<C> {
    state: Mutex<State<C>>,
    changed: Condvar,
}

struct State<C> {
    stage: Stage,
    threads: usize,
    /// Whether a network thread has run to its end, after which none begins.
    ended: bool,
    due: VecDeque<C>,
    hooks: Vec<(Hook, Parameter)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unset,
    SetUp,
    Stopped,
}

impl<C> State<C> {
    const fn new() -> Self {
        Self {
            stage: Stage::Unset,
            threads: 0,
            ended: false,
            due: VecDeque::new(),
            hooks: Vec::new(),
        }
    }
}

/// Calls the program with each, by `call`, which may not come back: not inside of a [`guard`]. What
/// is left of the list by a thread that ends before the last call is never freed; at the last one
/// there is nothing to be freed.
#[inline]
pub(crate) fn call_each<T>(due: Vec<T>, call: fn(T)) {
    let mut due = ManuallyDrop::new(due.into_iter());
    while due.len() > 1
        && let Some(next) = due.next()
    {
        call(next);
    }
    let last = due.next();
    drop(ManuallyDrop::into_inner(due));
    if let Some(last) = last {
        call(last);
    }
}

/// What a thread is lent to.
trait Borrower: Sync {
    /// The thread has ended, in a callback.
    fn lose(&self);
}

/// What this thread is to the network. It outlives the frames of a thread that ends.
struct Lent(Cell<Lending>);

#[derive(Clone, Copy)]
enum Lending {
    No,
    Runs(&'static dyn Borrower),
    /// It runs hooks, and is counted no more.
    Ends,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Lending::Runs(network) = self.0.get() {
            network.lose();
        }
    }
}

thread_local! {
    static LENT: Lent = const { Lent(Cell::new(Lending::No)) };
}

/// Whether this thread is in `fdb_run_network`, so that waiting here could wait for itself.
pub(crate) fn is_network_thread() -> bool {
    LENT.try_with(|lent| !matches!(lent.0.get(), Lending::No)).unwrap_or(false)
}

fn lend(what: Lending) {
    // Only a thread that ends has none any more.
    let _ = LENT.try_with(|lent| lent.0.set(what));
}

impl<C: Due + Send + 'static> Borrower for Network<C> {
    fn lose(&self) {
        self.lock().threads -= 1;
    }
}

impl<C: Due + Send + 'static> Network<C> {
    pub(crate) const fn new() -> Self {
        Self { state: Mutex::new(State::new()), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_up(&self) -> Result<()> {
        let mut state = self.lock();
        if state.stage != Stage::Unset {
            return Err(Error::network_already_setup());
        }
        state.stage = Stage::SetUp;
        Ok(())
    }

    /// Fails with `network_not_setup` before `fdb_setup_network`.
    pub(crate) fn check_set_up(&self) -> Result<()> {
        if self.lock().stage == Stage::Unset { Err(Error::network_not_setup()) } else { Ok(()) }
    }

    pub(crate) fn is_set_up(&self) -> bool {
        self.lock().stage != Stage::Unset
    }

    pub(crate) fn add_hook(&self, hook: Hook, parameter: Parameter) -> Result<()> {
        self.check_set_up()?;
        self.lock().hooks.push((hook, parameter));
        Ok(())
    }

    /// Runs callbacks on this thread until the network is stopped. No panic leaves it.
    pub(crate) fn run(&'static self) -> Result<()> {
        guard(Err(Error::internal_error()), || self.begin())?;
        while let Some(call) = guard(None, || self.next()) {
            call.run();
        }
        // SAFETY: the program gave the function to be called with this parameter when a network
        // thread ends.
        call_each(guard(Vec::new(), || self.end()), |(hook, parameter)| unsafe {
            hook(parameter.0);
        });
        lend(Lending::No);
        Ok(())
    }

    /// This thread is a network thread from now on.
    fn begin(&'static self) -> Result<()> {
        self.check_set_up()?;
        let mut state = self.lock();
        // A thread that comes late, after the stop, still runs: to its end at once.
        if state.ended {
            return Err(Error::network_cannot_be_restarted());
        }
        state.threads += 1;
        lend(Lending::Runs(self));
        Ok(())
    }

    /// Waits for the next callback; none comes once the network is stopped.
    fn next(&self) -> Option<C> {
        let mut state = self.lock();
        loop {
            if let Some(call) = state.due.pop_front() {
                return Some(call);
            }
            if state.stage == Stage::Stopped {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// This network thread has run to its end. Gives what is to be called then.
    fn end(&self) -> Vec<(Hook, Parameter)> {
        let mut state = self.lock();
        state.threads -= 1;
        state.ended = true;
        lend(Lending::Ends);
        state.hooks.clone()
    }

    pub(crate) fn stop(&self) -> Result<()> {
        self.check_set_up()?;
        self.lock().stage = Stage::Stopped;
        self.changed.notify_all();
        Ok(())
    }

    /// Has callbacks run on a network thread.
    pub(crate) fn deliver(&self, calls: Vec<C>) {
        if !calls.is_empty() {
            self.queue(self.lock(), calls);
        }
    }

    /// As [`deliver`](Self::deliver), for what a call of the program's on this very thread made
    /// due: gives it back, to be run here, where there is no network thread any more.
    pub(crate) fn deliver_or_give_back(&self, calls: Vec<C>) -> Vec<C> {
        if calls.is_empty() {
            return calls;
        }
        let state = self.lock();
        if state.stage == Stage::Stopped && state.threads == 0 {
            return calls;
        }
        self.queue(state, calls);
        Vec::new()
    }

    fn queue(&self, mut state: MutexGuard<'_, State<C>>, calls: Vec<C>) {
        let many = calls.len() > 1;
        state.due.extend(calls);
        drop(state);
        if many { self.changed.notify_all() } else { self.changed.notify_one() }
    }
}
