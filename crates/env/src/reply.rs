//! The edge between roles: an answer that one side promises and the other awaits.
//!
//! A [`Reply`] is either ready from the start (no allocation, no atomics: what a read answered from
//! memory costs) or waits for its [`Promise`], which may be kept on any thread (one allocation for
//! both). It is a future, can be waited for on a thread, or gets a function to call; dropping it
//! tells the promise that nobody wants the answer. A promise dropped unsent gives `broken_promise`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use plinth_types::{Error, Result};

use crate::cell::{self, Receiver, Sender, cell};

/// The duty to answer.
pub struct Promise<T> {
    sender: Sender<Result<T>>,
}

/// An answer, now or later.
#[must_use = "dropping a reply cancels what was asked for"]
pub struct Reply<T> {
    state: State<T>,
}

enum State<T> {
    Ready(Result<T>),
    Pending(Receiver<Result<T>>),
    Taken,
}

/// What can still take back a call that was left with [`Reply::on_complete`], which itself no
/// longer can. Dropping it changes nothing.
pub struct Listener<T> {
    listener: cell::Listener<Result<T>>,
}

impl<T> Listener<T> {
    /// Drops the call, unless it has begun, and tells the promise that nobody wants the answer.
    pub fn cancel(self) {
        self.listener.cancel();
    }
}

impl<T> fmt::Debug for Listener<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

/// A promise and the reply that it completes.
pub fn promise<T: Send>() -> (Promise<T>, Reply<T>) {
    let (sender, receiver) = cell();
    (Promise { sender }, Reply { state: State::Pending(receiver) })
}

impl<T> Promise<T> {
    /// Gives the answer. Whoever waits for it is woken; a function given to [`Reply::on_complete`]
    /// is called here.
    pub fn send(mut self, result: Result<T>) {
        self.sender.complete(result);
    }

    /// Whether the reply has been dropped, so that the answer is of no use.
    pub fn is_cancelled(&self) -> bool {
        self.sender.is_abandoned()
    }

    /// Has `f` called when the reply is dropped before the answer came: on the thread that drops
    /// it, or at once if it was dropped already. A second function replaces the first.
    pub fn on_cancel(&mut self, f: impl FnOnce() + Send + 'static) {
        self.sender.on_abandon(Box::new(f));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if !self.sender.is_spent() {
            self.sender.complete(Err(Error::broken_promise()));
        }
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").field("cancelled", &self.is_cancelled()).finish()
    }
}

impl<T> Reply<T> {
    /// An answer that is there already.
    #[inline]
    pub const fn ready(result: Result<T>) -> Self {
        Self { state: State::Ready(result) }
    }

    /// Whether the answer is there (or has been taken), so that nothing below would wait.
    #[inline]
    pub fn is_ready(&self) -> bool {
        match &self.state {
            State::Ready(_) | State::Taken => true,
            State::Pending(receiver) => receiver.is_full(),
        }
    }

    /// What can take back a call that is left with [`Reply::on_complete`] afterwards; `None` if the
    /// answer needs no promise.
    pub fn listener(&self) -> Option<Listener<T>> {
        match &self.state {
            State::Pending(receiver) => Some(Listener { listener: receiver.listener() }),
            State::Ready(_) | State::Taken => None,
        }
    }

    /// The answer if it is there. It is given once: afterwards there is none, and asking in another
    /// way gives `future_released`.
    #[inline]
    pub fn try_take(&mut self) -> Option<Result<T>> {
        if let State::Pending(receiver) = &mut self.state {
            let result = receiver.take()?;
            self.state = State::Taken;
            return Some(result);
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Ready(result) => Some(result),
            State::Pending(_) | State::Taken => None,
        }
    }
}

impl<T: Send + 'static> Reply<T> {
    /// Calls `f` with the answer: here and now if it is there, else on the thread that gives it,
    /// which is why `f` must be quick and never wait.
    #[inline]
    pub fn on_complete(self, f: impl FnOnce(Result<T>) + Send + 'static) {
        match self.state {
            State::Ready(result) => f(result),
            State::Pending(mut receiver) if receiver.is_full() => match receiver.take() {
                Some(result) => f(result),
                None => f(Err(Error::future_released())),
            },
            State::Pending(receiver) => receiver.on_complete(Box::new(f)),
            State::Taken => f(Err(Error::future_released())),
        }
    }
}

impl<T> Reply<T> {
    /// Parks the thread until the answer is there.
    ///
    /// # Errors
    /// The answer's own; `blocked_from_network_thread` in a simulated task, which would wait for
    /// ever.
    #[inline]
    pub fn wait(self) -> Result<T> {
        match self.state {
            State::Ready(result) => result,
            State::Pending(receiver) => {
                if crate::park::is_simulating() && !receiver.is_full() {
                    return Err(Error::blocked_from_network_thread());
                }
                receiver.wait().unwrap_or_else(|| Err(Error::future_released()))
            }
            State::Taken => Err(Error::future_released()),
        }
    }
}

// Nothing in a reply is ever pinned: a ready value is moved out when it is asked for.
impl<T> Unpin for Reply<T> {}

impl<T> Future for Reply<T> {
    type Output = Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let State::Pending(receiver) = &mut self.state {
            let polled = receiver.poll(context);
            if polled.is_ready() {
                self.state = State::Taken;
            }
            return polled;
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Ready(result) => Poll::Ready(result),
            State::Pending(_) | State::Taken => Poll::Ready(Err(Error::future_released())),
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Taken => "taken",
            _ if self.is_ready() => "ready",
            _ => "pending",
        };
        f.debug_tuple("Reply").field(&state).finish()
    }
}
