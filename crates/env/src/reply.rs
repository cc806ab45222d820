//! The edge between roles: an answer that one side promises and the other awaits.
//!
//! A [`Reply`] is either ready from the start (no allocation, no atomics: what a read answered from
//! memory costs) or waits for its [`Promise`], which may be kept on any thread (one allocation for
//! both). It is a future, can be waited for on a thread, or gets a function to call; dropping it
//! tells the promise that nobody wants the answer. A promise dropped unsent gives
//! [`Unanswered::Broken`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use plinth_types::Error;

use crate::cell::{self, Receiver, Sender, cell};

/// Why there is no answer, whatever was asked. The error of a reply is made of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Unanswered {
    /// Whoever had promised the answer has gone.
    Broken,
    /// The answer was taken before.
    Taken,
    /// A simulated task, which must not block, would have to wait for it.
    WouldBlock,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)
    }
}

impl std::error::Error for Unanswered {}

impl From<Unanswered> for Error {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Broken => Self::broken_promise(),
            Unanswered::Taken => Self::future_released(),
            Unanswered::WouldBlock => Self::blocked_from_network_thread(),
        }
    }
}

/// The duty to answer.
pub struct Promise<T, E: From<Unanswered> = Error> {
    sender: Sender<Result<T, E>>,
}

/// An answer, now or later.
#[must_use = "dropping a reply cancels what was asked for"]
pub struct Reply<T, E: From<Unanswered> = Error> {
    state: State<T, E>,
}

enum State<T, E> {
    Ready(Result<T, E>),
    Pending(Receiver<Result<T, E>>),
    Taken,
}

/// What can still take back a call that was left with [`Reply::on_complete`], which itself no
/// longer can. Dropping it changes nothing.
pub struct Listener<T, E = Error> {
    listener: cell::Listener<Result<T, E>>,
}

impl<T, E> Listener<T, E> {
    /// Drops the call, unless it has begun, and tells the promise that nobody wants the answer.
    pub fn cancel(self) {
        self.listener.cancel();
    }

    /// Tells the promise that nobody wants the answer. The call still comes, with what the promise
    /// then says: what stands in it for the end of a request is done whatever that is.
    pub fn give_up(&self) {
        self.listener.give_up();
    }

    /// Whether the answer is yet to come.
    pub fn is_waiting(&self) -> bool {
        self.listener.is_open()
    }
}

impl<T, E> fmt::Debug for Listener<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

/// A promise and the reply that it completes, with FoundationDB's errors.
pub fn promise<T: Send>() -> (Promise<T>, Reply<T>) {
    Promise::pair()
}

impl<T: Send, E: From<Unanswered> + Send> Promise<T, E> {
    /// A promise and the reply that it completes.
    pub fn pair() -> (Self, Reply<T, E>) {
        let (sender, receiver) = cell();
        (Self { sender }, Reply { state: State::Pending(receiver) })
    }
}

impl<T, E: From<Unanswered>> Promise<T, E> {
    /// Gives the answer. Whoever waits for it is woken; a function given to [`Reply::on_complete`]
    /// is called here.
    pub fn send(mut self, result: Result<T, E>) {
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

impl<T, E: From<Unanswered>> Drop for Promise<T, E> {
    fn drop(&mut self) {
        if !self.sender.is_spent() {
            self.sender.complete(Err(Unanswered::Broken.into()));
        }
    }
}

impl<T, E: From<Unanswered>> fmt::Debug for Promise<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").field("cancelled", &self.is_cancelled()).finish()
    }
}

impl<T, E: From<Unanswered>> Reply<T, E> {
    /// An answer that is there already.
    #[inline]
    pub const fn ready(result: Result<T, E>) -> Self {
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
    pub fn listener(&self) -> Option<Listener<T, E>> {
        match &self.state {
            State::Pending(receiver) => Some(Listener { listener: receiver.listener() }),
            State::Ready(_) | State::Taken => None,
        }
    }

    /// The answer if it is there. It is given once: afterwards there is none, and asking in another
    /// way gives `future_released`.
    #[inline]
    pub fn try_take(&mut self) -> Option<Result<T, E>> {
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

impl<T: Send + 'static, E: From<Unanswered> + Send + 'static> Reply<T, E> {
    /// Calls `f` with the answer: here and now if it is there, else on the thread that gives it,
    /// which is why `f` must be quick and never wait.
    #[inline]
    pub fn on_complete(self, f: impl FnOnce(Result<T, E>) + Send + 'static) {
        match self.state {
            State::Ready(result) => f(result),
            State::Pending(mut receiver) if receiver.is_full() => match receiver.take() {
                Some(result) => f(result),
                None => f(Err(Unanswered::Taken.into())),
            },
            State::Pending(receiver) => receiver.on_complete(Box::new(f)),
            State::Taken => f(Err(Unanswered::Taken.into())),
        }
    }
}

impl<T: Send + 'static, E: From<Unanswered> + Send + 'static> Reply<T, E> {
    /// What `f` makes of the answer. `f` is called whatever becomes of the reply that this gives:
    /// dropping that tells the promise that nobody wants the answer, as before.
    pub fn map<U: Send + 'static>(
        self,
        f: impl FnOnce(Result<T, E>) -> Result<U, E> + Send + 'static,
    ) -> Reply<U, E> {
        let (mut promise, reply) = Promise::pair();
        if let Some(listener) = self.listener() {
            promise.on_cancel(move || listener.give_up());
        }
        self.on_complete(move |result| promise.send(f(result)));
        reply
    }

    /// The same answer with an error of the layer above. One that is there already costs nothing;
    /// dropping the other, the promise is told as before.
    #[inline]
    pub fn err_into<F: From<E> + From<Unanswered> + Send + 'static>(self) -> Reply<T, F> {
        match self.state {
            State::Ready(result) => Reply::ready(result.map_err(F::from)),
            State::Pending(_) => self.err_into_later(),
            State::Taken => Reply { state: State::Taken },
        }
    }

    #[cold]
    fn err_into_later<F: From<E> + From<Unanswered> + Send + 'static>(self) -> Reply<T, F> {
        let (mut promise, reply) = Promise::pair();
        if let Some(listener) = self.listener() {
            promise.on_cancel(move || listener.cancel());
        }
        self.on_complete(move |result| promise.send(result.map_err(F::from)));
        reply
    }
}

impl<T, E: From<Unanswered>> Reply<T, E> {
    /// Parks the thread until the answer is there.
    ///
    /// # Errors
    /// The answer's own; `blocked_from_network_thread` in a simulated task, which would wait for
    /// ever.
    #[inline]
    pub fn wait(self) -> Result<T, E> {
        match self.state {
            State::Ready(result) => result,
            State::Pending(receiver) => {
                if crate::park::is_simulating() && !receiver.is_full() {
                    return Err(Unanswered::WouldBlock.into());
                }
                receiver.wait().unwrap_or_else(|| Err(Unanswered::Taken.into()))
            }
            State::Taken => Err(Unanswered::Taken.into()),
        }
    }
}

// Nothing in a reply is ever pinned: a ready value is moved out when it is asked for.
impl<T, E: From<Unanswered>> Unpin for Reply<T, E> {}

impl<T, E: From<Unanswered>> Future for Reply<T, E> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        if let State::Pending(receiver) = &mut self.state {
            let polled = receiver.poll(context);
            if polled.is_ready() {
                self.state = State::Taken;
            }
            return polled;
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Ready(result) => Poll::Ready(result),
            State::Pending(_) | State::Taken => Poll::Ready(Err(Unanswered::Taken.into())),
        }
    }
}

impl<T, E: From<Unanswered>> fmt::Debug for Reply<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Taken => "taken",
            _ if self.is_ready() => "ready",
            _ => "pending",
        };
        f.debug_tuple("Reply").field(&state).finish()
    }
}
