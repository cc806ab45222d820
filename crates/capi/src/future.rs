//! Futures: cells that are filled once, and may be asked, waited for, called back from and
//! destroyed on any thread.
//!
//! ```text
//!   UNASKED ──first use──▶ ASKING ──▶ PENDING ──answer, cancel──▶ FILLING ──▶ DONE ──release──▶ RELEASED
//!      │                     │                                       │  └────▶ FAILED
//!      │ cancel              └─ there at once ──▶ DONE, FAILED       │
//!      └─────────────────────────────────────────────────────────────┘
//! ```
//! A point read of a transaction whose version is known is not asked for until somebody wants it,
//! so that those asked for one after the other go together: what they find is fixed already.
//!
//! One atomic word says who owns the slot with the value: whoever moved it to ASKING or FILLING; in
//! DONE and FAILED nobody, and everybody may read. So a future whose answer is there at once costs
//! one allocation and no lock. What only waiting needs (the Rust future that is waited for,
//! callbacks, blocked threads) stands behind a lock that is taken only once MORE says that there is
//! some: whoever adds something sets MORE under the lock and looks at the phase it replaced;
//! whoever fills the slot looks at MORE in the word it replaced. One of the two sees the other.
//!
//! A pending future is itself the waker of the Rust future that it waits for. No lock is held while
//! that is polled or dropped, or while a callback runs, since each of these may come back here.
//! Callbacks that are due on the caller's own thread are given to the exported function, which
//! calls them (see [`call`]).
//!
//! A handle that C has is one count of a [`Held`]; a callback that is due holds another. It counts
//! as an `Arc` does, but the last one, which mostly is the only one there ever was, goes without a
//! write.

use crate::network::{Parameter, is_network_thread};
use crate::value::Value;
use call::{Call, Callback, NETWORK};
use held::Held;
use plinth_client::Get;
use plinth_env::reply::{Listener, Reply};
use plinth_types::{Error, Result};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(crate) mod call;
pub(crate) mod held;

#[cfg(test)]
mod tests;

type Source = Pin<Box<dyn Future<Output = Result<Value>> + Send>>;

/// `FDBFuture`.
pub(crate) struct FutureCore {
    /// A phase, flags, and two counts.
    word: AtomicU64,
    slot: UnsafeCell<Slot>,
    /// Absent while nothing needs it, which keeps a future that is ready small.
    waiting: Mutex<Option<Box<Waiting>>>,
    ready: Condvar,
    /// How many [`Held`]s there are.
    holders: AtomicU32,
}

// SAFETY: the word says who may touch the slot: one thread in ASKING and FILLING, for which
// `Slot: Send` is enough, and any number of readers of a `Result<Value>` in DONE and FAILED, which
// is `Sync`: asserted below.
unsafe impl Send for FutureCore {}
// SAFETY: as above.
unsafe impl Sync for FutureCore {}

const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_sync<T: Sync>() {}
    is_send::<Slot>();
    is_sync::<Result<Value>>();
};

/// Nobody has wanted the value yet.
const UNASKED: u64 = 0;
/// Somebody sends the read.
const ASKING: u64 = 1;
/// The answer is on its way.
const PENDING: u64 = 2;
/// Somebody writes the slot.
const FILLING: u64 = 3;
/// There is a value.
const DONE: u64 = 4;
/// There is an error, which stays.
const FAILED: u64 = 5;
/// The value has been released.
const RELEASED: u64 = 6;
const PHASE: u64 = 7;
/// There is something in `waiting`.
const MORE: u64 = 8;
/// Cancelled while it was asked for.
const CANCELLED: u64 = 16;
/// A getter that looks at the value now.
const READER: u64 = 1 << 8;
const READERS: u64 = (GET - 1) & !(READER - 1);
/// A getter that has succeeded and was not released.
const GET: u64 = 1 << 32;

const fn phase(word: u64) -> u64 {
    word & PHASE
}

const fn is_over(word: u64) -> bool {
    phase(word) >= DONE
}

enum Slot {
    Empty,
    Unasked(Get),
    /// Whoever has the answer will write it.
    Awaited(Listener<()>),
    Done(Result<Value>),
}

/// What a pending future needs.
#[derive(Default)]
struct Waiting {
    /// Absent while it is polled; `woken` says that it must be polled again then.
    source: Option<Source>,
    woken: bool,
    callbacks: Vec<(Callback, Parameter)>,
    /// How many threads wait: waking nobody would cost a system call.
    blocked: u32,
}

impl FutureCore {
    #[inline]
    fn begin(word: u64, slot: Slot, waiting: Option<Box<Waiting>>) -> Held {
        Held::new(Self {
            word: AtomicU64::new(word),
            slot: UnsafeCell::new(slot),
            waiting: Mutex::new(waiting),
            ready: Condvar::new(),
            holders: AtomicU32::new(1),
        })
    }

    fn born(mut result: Result<Value>) -> Held {
        if let Ok(value) = &mut result {
            value.is_had();
        }
        let phase = if result.is_ok() { DONE } else { FAILED };
        Self::begin(phase, Slot::Done(result), None)
    }

    /// A future that is ready.
    pub(crate) fn done(value: impl Into<Value>) -> Held {
        Self::born(Ok(value.into()))
    }

    /// A future that has failed.
    pub(crate) fn failed(error: Error) -> Held {
        Self::born(Err(error))
    }

    /// The C future of a point read: if only its transaction's version is known, it is sent when
    /// somebody wants its value.
    pub(crate) fn of_get(get: Get) -> Held {
        if get.is_settled() {
            return Self::begin(UNASKED, Slot::Unasked(get), None);
        }
        Self::start(get)
    }

    /// A future that nothing but cancelling makes ready.
    pub(crate) fn never() -> Held {
        Self::begin(PENDING, Slot::Empty, None)
    }

    /// The C future of a reply that takes a while, as a commit does: whoever sends the answer
    /// writes it here, with no waker and no second look in between.
    pub(crate) fn of_reply(mut reply: Reply<()>) -> Held {
        if let Some(result) = reply.try_take() {
            return Self::born(result.map(Into::into));
        }
        let slot = reply.listener().map_or(Slot::Empty, Slot::Awaited);
        let future = Self::begin(PENDING, slot, None);
        let answered = future.clone();
        reply.on_complete(move |result| answered.complete(result.map(Into::into)));
        future
    }

    /// The C future of a Rust one, which is asked at once: what is there already costs one
    /// allocation.
    pub(crate) fn start<T: Into<Value>>(
        mut future: impl Future<Output = Result<T>> + Send + Unpin + 'static,
    ) -> Held {
        let first = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(result) = first {
            return Self::born(result.map(Into::into));
        }
        let source: Source = Box::pin(async move { future.await.map(Into::into) });
        let waiting = Waiting { source: Some(source), ..Waiting::default() };
        let future = Self::begin(PENDING | MORE, Slot::Empty, Some(Box::new(waiting)));
        future.poll();
        future
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the word from one phase to another, keeping the rest of it; false if it is not in the
    /// first one.
    fn advance(&self, from: u64, to: u64) -> bool {
        let step = |word| (phase(word) == from).then_some(word & !PHASE | to);
        self.word.fetch_update(AcqRel, Acquire, step).is_ok()
    }

    /// Drops the value once each successful getter has its release.
    pub(crate) fn release(&self) {
        let step = |word: u64| {
            let left = word.checked_sub(GET).filter(|_| phase(word) == DONE)?;
            Some(if left < GET { left & !PHASE | RELEASED } else { left })
        };
        if let Ok(word) = self.word.fetch_update(AcqRel, Acquire, step)
            && word < 2 * GET
            && word & READERS == 0
        {
            self.drop_value();
        }
    }

    /// Drops a released value, by whoever saw the last of its readers go.
    fn drop_value(&self) {
        // SAFETY: the word is in RELEASED, which nobody reads from, and no reader that came before
        // is left.
        drop(unsafe { std::mem::replace(&mut *self.slot.get(), Slot::Empty) });
    }

    /// The error that getters give in a phase without a value.
    #[cold]
    fn missing(&self, word: u64) -> Error {
        match phase(word) {
            // SAFETY: in FAILED the slot is only read.
            FAILED => match unsafe { &*self.slot.get() } {
                Slot::Done(Err(error)) => error.clone(),
                _ => Error::internal_error(),
            },
            RELEASED => Error::future_released(),
            _ => Error::future_not_set(),
        }
    }
}

impl Held {
    /// Sends a read that nobody wanted before. Gives the word as it is then.
    #[inline]
    fn ask(&self) -> u64 {
        let word = self.word.load(Acquire);
        if phase(word) == UNASKED { self.ask_now() } else { word }
    }

    fn ask_now(&self) -> u64 {
        if !self.advance(UNASKED, ASKING) {
            return self.word.load(Acquire);
        }
        // SAFETY: this thread moved the word to ASKING, so the slot is its own until it moves the
        // word on; whatever asking may call keeps off it, as every other thread does.
        let slot = unsafe { &mut *self.slot.get() };
        let Slot::Unasked(get) = slot else { return self.word.load(Acquire) };
        // In its place, and without a waker: one that is pending is polled below.
        if let Some(result) = get.try_take() {
            let phase = if result.is_ok() { DONE } else { FAILED };
            *slot = Slot::Done(result.map(Into::into));
            NETWORK.deliver(self.publish(phase));
            return phase;
        }
        let Slot::Unasked(get) = std::mem::replace(slot, Slot::Empty) else {
            return self.word.load(Acquire);
        };
        let source: Source = Box::pin(async move { get.await.map(Into::into) });
        let mut waiting = self.lock();
        waiting.get_or_insert_default().source = Some(source);
        let before =
            self.word.fetch_update(AcqRel, Acquire, |word| Some(word & !PHASE | PENDING | MORE));
        drop(waiting);
        if before.is_ok_and(|word| word & CANCELLED != 0) {
            self.complete(Err(Error::operation_cancelled()));
        }
        self.poll();
        self.word.load(Acquire)
    }

    /// Asks the source for the answer.
    fn poll(&self) {
        let waker = self.clone().into_waker();
        loop {
            let mut waiting = self.lock();
            if phase(self.word.load(Acquire)) != PENDING {
                return;
            }
            let waiting_for = waiting.get_or_insert_default();
            let Some(mut source) = waiting_for.source.take() else {
                waiting_for.woken = true;
                return;
            };
            drop(waiting);
            match source.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => {
                    self.complete(result);
                    return;
                }
                Poll::Pending => {
                    let mut waiting = self.lock();
                    if is_over(self.word.load(Acquire)) {
                        // Cancelled meanwhile: dropping the source, without the lock, takes back
                        // what was asked for.
                        drop(waiting);
                        return drop(source);
                    }
                    let waiting = waiting.get_or_insert_default();
                    waiting.source = Some(source);
                    if !std::mem::take(&mut waiting.woken) {
                        return;
                    }
                }
            }
        }
    }

    /// Gives a pending future its result, unless it has one.
    fn complete(&self, result: Result<Value>) {
        if self.advance(PENDING, FILLING) {
            let (before, due) = self.fill(result);
            NETWORK.deliver(due);
            // Only now, for this may call out.
            drop(before);
        }
    }

    /// Writes the result, by the thread that the slot belongs to, and wakes whoever waits for it.
    /// Gives what the slot was before, and the callbacks that are due.
    fn fill(&self, mut result: Result<Value>) -> (Slot, Vec<Call>) {
        if let Ok(value) = &mut result {
            value.is_had();
        }
        let phase = if result.is_ok() { DONE } else { FAILED };
        // SAFETY: the caller moved the word to ASKING or FILLING, so the slot is this thread's own.
        let before = unsafe { std::mem::replace(&mut *self.slot.get(), Slot::Done(result)) };
        (before, self.publish(phase))
    }

    /// Shows everybody the slot that this thread has written, and wakes whoever waits. Gives the
    /// callbacks that are due.
    fn publish(&self, phase: u64) -> Vec<Call> {
        let word = self.word.swap(phase, AcqRel);
        if word & MORE != 0 { self.wake() } else { Vec::new() }
    }

    #[cold]
    fn wake(&self) -> Vec<Call> {
        let mut waiting = self.lock();
        let Some(waiting_for) = waiting.as_mut() else { return Vec::new() };
        let source = waiting_for.source.take();
        let callbacks = std::mem::take(&mut waiting_for.callbacks);
        let blocked = waiting_for.blocked > 0;
        drop(waiting);
        if blocked {
            self.ready.notify_all();
        }
        drop(source);
        let call = |(callback, parameter)| Call { future: self.clone(), callback, parameter };
        callbacks.into_iter().map(call).collect()
    }

    /// A pending future fails with `operation_cancelled`. Gives the callbacks that the caller has
    /// to call, on this thread: those that are due once the network has stopped.
    #[must_use]
    pub(crate) fn cancel(&self) -> Vec<Call> {
        loop {
            let word = self.word.load(Acquire);
            match phase(word) {
                UNASKED | PENDING => {
                    if self.advance(phase(word), FILLING) {
                        let (before, due) = self.fill(Err(Error::operation_cancelled()));
                        let due = NETWORK.deliver_or_give_back(due);
                        // A read that was never sent, or an answer that nobody wants.
                        match before {
                            Slot::Awaited(listener) => listener.cancel(),
                            before => drop(before),
                        }
                        return due;
                    }
                }
                // Whoever asks sees it when it has asked.
                ASKING => {
                    let cancelled = word | CANCELLED;
                    if self.word.compare_exchange(word, cancelled, AcqRel, Relaxed).is_ok() {
                        return Vec::new();
                    }
                }
                _ => return Vec::new(),
            }
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        is_over(self.ask())
    }

    /// Waits for the future on this thread.
    ///
    /// # Errors
    /// `blocked_from_network_thread` where the wait could be for this very thread.
    pub(crate) fn block(&self) -> Result<()> {
        if is_over(self.ask()) {
            return Ok(());
        }
        // Through the wait, whatever becomes of the handle.
        let future = self.clone();
        let mut waiting = future.lock();
        while !is_over(future.word.fetch_or(MORE, AcqRel)) {
            if is_network_thread() {
                return Err(Error::blocked_from_network_thread());
            }
            if crate::fork::is_child() {
                return Err(Error::broken_promise().with_detail("the process was forked"));
            }
            waiting.get_or_insert_default().blocked += 1;
            waiting = future.ready.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.get_or_insert_default().blocked -= 1;
        }
        Ok(())
    }

    /// Has a function called once the future is ready. If it is, gives the call, which the caller
    /// makes here and now.
    #[must_use]
    pub(crate) fn call_back(&self, callback: Callback, parameter: Parameter) -> Option<Call> {
        if !is_over(self.ask()) {
            let mut waiting = self.lock();
            if !is_over(self.word.fetch_or(MORE, AcqRel)) {
                waiting.get_or_insert_default().callbacks.push((callback, parameter));
                return None;
            }
        }
        Some(Call { future: self.clone(), callback, parameter })
    }

    /// The error of the future; `future_not_set` while there is neither value nor error.
    pub(crate) fn error(&self) -> Result<()> {
        let word = self.ask();
        if phase(word) == DONE { Ok(()) } else { Err(self.missing(word)) }
    }

    /// Gives the value to `take`, which says `None` where the future is one of another kind.
    pub(crate) fn get<R>(&self, take: impl FnOnce(&Value) -> Option<R>) -> Result<R> {
        let mut word = self.ask();
        loop {
            if phase(word) != DONE {
                return Err(self.missing(word));
            }
            match self.word.compare_exchange_weak(word, word + GET + READER, AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        // SAFETY: the word was in DONE when this thread counted itself among the readers, and the
        // value is dropped by none but the last of them.
        let taken = match unsafe { &*self.slot.get() } {
            Slot::Done(Ok(value)) => take(value),
            _ => None,
        };
        let over = if taken.is_some() { READER } else { GET + READER };
        let before = self.word.fetch_sub(over, AcqRel);
        if phase(before) == RELEASED && before & READERS == READER {
            self.drop_value();
        }
        taken.ok_or_else(|| {
            Error::client_invalid_operation().with_detail("the future is of another kind")
        })
    }
}

/// The future behind a handle. The count is C's: whatever outlives the call must take one of its
/// own.
///
/// # Safety
/// `handle` must be null or a handle that is not destroyed while the result is used.
pub(crate) unsafe fn behind(handle: *const FutureCore) -> Result<ManuallyDrop<Held>> {
    if handle.is_null() {
        return Err(Error::client_invalid_operation().with_detail("a null handle"));
    }
    // SAFETY: the handle came from `Held::into_raw`, its count is still there, and here it is not
    // given back.
    Ok(ManuallyDrop::new(unsafe { Held::from_raw(handle) }))
}
