//! Futures: cells that are filled once, and may be asked, waited for, called back from and destroyed on any thread.
//!
//! ```text
//!   unasked ──first use──▶ pending ──answer──▶ done(value) ──release──▶ released
//!      │                      │                done(error)
//!      └──────────────────────┴──cancel, destroy──▶ done(1101)
//! ```
//! A point read of a transaction whose version is known is not asked for until somebody wants it, so that those asked for
//! one after the other go together: what they find is fixed already.
//! A pending future holds what it waits for, a Rust future, and is itself that future's waker: whoever brings the answer wakes
//! it, it takes the answer, wakes the threads that block on it and hands its callbacks to the network thread. No lock is held
//! while the Rust future is polled or dropped, or while a callback runs, since each of these may come back here.
//!
//! A handle that C has is one count of an [`Arc`]; a callback that is due holds another.

use crate::network::{Call, Callback, NETWORK, Parameter, is_network_thread};
use crate::value::Value;
use plinth_client::Get;
use plinth_types::{Error, Result};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Source = Pin<Box<dyn Future<Output = Result<Value>> + Send>>;

/// `FDBFuture`.
pub(crate) struct FutureCore {
    state: Mutex<State>,
    ready: Condvar,
}

struct State {
    phase: Phase,
    callbacks: Vec<(Callback, Parameter)>,
    /// How many getters have succeeded and not been released.
    gets: u32,
    /// How many threads wait: waking nobody would cost a system call.
    blocked: u32,
}

enum Phase {
    Unasked(Get),
    /// The source is absent while it is polled; `woken` says that it must be polled again then.
    Pending {
        source: Option<Source>,
        woken: bool,
    },
    Done(Result<Value>),
}

impl FutureCore {
    fn new(phase: Phase) -> Arc<Self> {
        let state = State { phase, callbacks: Vec::new(), gets: 0, blocked: 0 };
        Arc::new(Self { state: Mutex::new(state), ready: Condvar::new() })
    }

    /// A future that is ready.
    pub(crate) fn done(value: impl Into<Value>) -> Handle {
        Handle(Self::new(Phase::Done(Ok(value.into()))))
    }

    /// A future that has failed.
    pub(crate) fn failed(error: Error) -> Handle {
        Handle(Self::new(Phase::Done(Err(error))))
    }

    /// The C future of a point read that is sent when somebody wants its value.
    pub(crate) fn later(get: Get) -> Handle {
        Handle(Self::new(Phase::Unasked(get)))
    }

    /// A future that nothing but cancelling makes ready.
    pub(crate) fn never() -> Handle {
        Handle(Self::new(Phase::Pending { source: None, woken: false }))
    }

    /// The C future of a Rust one, which is asked at once: what is there already costs one allocation.
    pub(crate) fn start<T: Into<Value>>(
        mut future: impl Future<Output = Result<T>> + Send + Unpin + 'static,
    ) -> Handle {
        let first = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(result) = first {
            return Handle(Self::new(Phase::Done(result.map(Into::into))));
        }
        let source: Source = Box::pin(async move { future.await.map(Into::into) });
        let core = Self::new(Phase::Pending { source: Some(source), woken: false });
        core.poll();
        Handle(core)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a read that nobody wanted before.
    fn ask(self: &Arc<Self>) {
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Unasked(_)) {
            return;
        }
        // Whoever comes meanwhile finds it pending without a source, as while it is polled.
        let pending = Phase::Pending { source: None, woken: false };
        let Phase::Unasked(mut get) = std::mem::replace(&mut state.phase, pending) else { return };
        drop(state);
        let first = Pin::new(&mut get).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(result) = first {
            return self.complete(result.map(Into::into), false);
        }
        let asked: Source = Box::pin(async move { get.await.map(Into::into) });
        let mut state = self.lock();
        match &mut state.phase {
            Phase::Pending { source, .. } => *source = Some(asked),
            // Cancelled meanwhile: dropping the source, without the lock, takes back what was asked for.
            _ => {
                drop(state);
                return drop(asked);
            }
        }
        drop(state);
        self.poll();
    }

    /// Asks the source for the answer.
    fn poll(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        loop {
            let mut source = match &mut self.lock().phase {
                Phase::Done(_) | Phase::Unasked(_) => return,
                Phase::Pending { source, woken } => match source.take() {
                    Some(source) => source,
                    None => {
                        *woken = true;
                        return;
                    }
                },
            };
            match source.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return self.complete(result, false),
                Poll::Pending => {
                    let mut state = self.lock();
                    let Phase::Pending { source: place, woken } = &mut state.phase else {
                        // Cancelled meanwhile: dropping the source, without the lock, takes back what was asked for.
                        drop(state);
                        return drop(source);
                    };
                    *place = Some(source);
                    if !std::mem::take(woken) {
                        return;
                    }
                }
            }
        }
    }

    fn complete(self: &Arc<Self>, result: Result<Value>, by_program: bool) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Done(_)) {
            return;
        }
        let before = std::mem::replace(&mut state.phase, Phase::Done(result));
        let callbacks = std::mem::take(&mut state.callbacks);
        let blocked = state.blocked > 0;
        drop(state);
        if blocked {
            self.ready.notify_all();
        }
        drop(before);
        for (callback, parameter) in callbacks {
            NETWORK.deliver(Call { future: self.clone(), callback, parameter }, by_program);
        }
    }

    /// A pending future fails with `operation_cancelled`.
    pub(crate) fn cancel(self: &Arc<Self>) {
        self.complete(Err(Error::operation_cancelled()), true);
    }

    pub(crate) fn is_ready(self: &Arc<Self>) -> bool {
        self.ask();
        matches!(self.lock().phase, Phase::Done(_))
    }

    /// Waits for the future on this thread.
    ///
    /// # Errors
    /// `blocked_from_network_thread` where the wait could be for this very thread.
    pub(crate) fn block(self: &Arc<Self>) -> Result<()> {
        self.ask();
        let mut state = self.lock();
        while matches!(state.phase, Phase::Pending { .. }) {
            if is_network_thread() {
                return Err(Error::blocked_from_network_thread());
            }
            if crate::fork::is_child() {
                return Err(Error::broken_promise().with_detail("the process was forked"));
            }
            state.blocked += 1;
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.blocked -= 1;
        }
        Ok(())
    }

    /// Has a function called once the future is ready: here and now if it is.
    pub(crate) fn call_back(self: &Arc<Self>, callback: Callback, parameter: Parameter) {
        self.ask();
        let mut state = self.lock();
        if matches!(state.phase, Phase::Pending { .. }) {
            return state.callbacks.push((callback, parameter));
        }
        drop(state);
        Call { future: self.clone(), callback, parameter }.run();
    }

    /// Drops the value once each successful getter has its release.
    pub(crate) fn release(&self) {
        let mut state = self.lock();
        if state.gets == 0 {
            return;
        }
        state.gets -= 1;
        if state.gets == 0 {
            let value = std::mem::replace(&mut state.phase, Phase::Done(Err(Error::future_released())));
            drop(state);
            drop(value);
        }
    }

    /// The error of the future; `future_not_set` while there is neither value nor error.
    pub(crate) fn error(self: &Arc<Self>) -> Result<()> {
        self.ask();
        match &self.lock().phase {
            Phase::Pending { .. } | Phase::Unasked(_) => Err(Error::future_not_set()),
            Phase::Done(Ok(_)) => Ok(()),
            Phase::Done(Err(error)) => Err(error.clone()),
        }
    }

    /// Gives the value to `take`, which says `None` where the future is one of another kind.
    pub(crate) fn get<R>(self: &Arc<Self>, take: impl FnOnce(&Value) -> Option<R>) -> Result<R> {
        self.ask();
        let mut state = self.lock();
        let result = match &state.phase {
            Phase::Pending { .. } | Phase::Unasked(_) => return Err(Error::future_not_set()),
            Phase::Done(Err(error)) => return Err(error.clone()),
            Phase::Done(Ok(value)) => take(value).ok_or_else(|| {
                Error::client_invalid_operation().with_detail("the future is of another kind")
            })?,
        };
        state.gets += 1;
        Ok(result)
    }
}

impl Wake for FutureCore {
    fn wake(self: Arc<Self>) {
        self.poll();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.poll();
    }
}

/// A future on its way to C.
pub(crate) struct Handle(Arc<FutureCore>);

impl Handle {
    /// The handle that C has from now on; `fdb_future_destroy` takes it back.
    pub(crate) fn into_raw(self) -> *mut FutureCore {
        Arc::into_raw(self.0).cast_mut()
    }
}

/// The future behind a handle, held.
///
/// # Safety
/// `handle` must be null or a handle that was not destroyed.
pub(crate) unsafe fn held(handle: *const FutureCore) -> Result<Arc<FutureCore>> {
    if handle.is_null() {
        return Err(Error::client_invalid_operation().with_detail("a null handle"));
    }
    // SAFETY: the handle came from `Arc::into_raw` and its count is still there, so one may be added to it.
    unsafe {
        Arc::increment_strong_count(handle);
        Ok(Arc::from_raw(handle))
    }
}
