//! Ways for tasks to wait for one another: [`Signal`], [`race`] and [`until_set`].
//!
//! A signal is a remembered knock on the door. Whoever changes something that a task waits for
//! (pushes to its queue, say) notifies; the task takes the permit and looks. Permits don't add up:
//! however many knocks, the task looks once, and whatever was changed before a knock is seen by the
//! look that follows it. A knock while one is pending is a single atomic exchange.

use crate::Env;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A permit that can be given any number of times before it is taken once.
///
/// Made for one waiting task. With several, each permit goes to one of them.
#[derive(Default)]
pub struct Signal {
    permit: AtomicBool,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    next: u64,
    queue: VecDeque<(u64, Waker)>,
}

impl Signal {
    /// A signal without a permit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the permit and wakes a waiting task. Never blocks; may be called on any thread.
    pub fn notify(&self) {
        // An exchange, not a load and a store: the taker's exchange then sees everything that was
        // done before this one, also when the permit had been given already.
        if !self.permit.swap(true, Ordering::AcqRel) {
            self.wake_one();
        }
    }

    /// Takes the permit if there is one.
    pub fn try_take(&self) -> bool {
        self.permit.swap(false, Ordering::AcqRel)
    }

    /// Waits for the permit and takes it.
    pub fn wait(&self) -> Wait<'_> {
        Wait { signal: self, place: None }
    }

    fn wake_one(&self) {
        let waiter = self.lock().queue.pop_front();
        if let Some((_, waker)) = waiter {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signal").field("permit", &self.permit.load(Ordering::Relaxed)).finish()
    }
}

/// What [`Signal::wait`] gives.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Wait<'a> {
    signal: &'a Signal,
    /// The place in the queue, once there is one.
    place: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.signal.try_take() {
            return Poll::Ready(());
        }
        {
            let mut waiters = self.signal.lock();
            let place =
                self.place.and_then(|place| waiters.queue.iter_mut().find(|(at, _)| *at == place));
            match place {
                Some((_, waker)) => waker.clone_from(context.waker()),
                None => {
                    let place = waiters.next;
                    waiters.next += 1;
                    waiters.queue.push_back((place, context.waker().clone()));
                    self.place = Some(place);
                }
            }
        }
        // A permit given before the place was taken has woken nobody.
        if self.signal.try_take() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut waiters = self.signal.lock();
        let at = waiters.queue.iter().position(|(at, _)| *at == place);
        let removed = at.and_then(|at| waiters.queue.remove(at));
        let was_woken = removed.is_none();
        drop(waiters);
        drop(removed);
        // Woken, but gone without the permit (or with it, and another came meanwhile): the next
        // one's turn.
        if was_woken && self.signal.permit.load(Ordering::Acquire) {
            self.signal.wake_one();
        }
    }
}

/// Which of two futures was first, and what it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First<A, B> {
    /// The left one, also when both were ready.
    Left(A),
    /// The right one.
    Right(B),
}

/// Waits until a flag is set, by whoever can't wake a task, as a handler of signals; looks so
/// often.
pub async fn until_set(flag: &AtomicBool, env: &Env, tick: Duration) {
    while !flag.load(Ordering::Relaxed) {
        env.sleep(tick).await;
    }
}

/// Lets the other futures that are polled with this one go first, those of its task and of its
/// thread: for one that has much to do at a time.
pub async fn pause() {
    let mut is_done = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut is_done, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for the first of two futures, preferring `left`; the other is left as it is.
///
/// ```
/// use plinth_env::sync::{First, race};
/// let never = std::future::pending::<()>();
/// assert_eq!(plinth_env::block_on(race(never, async { 7 })), First::Right(7));
/// ```
pub async fn race<A: Future, B: Future>(left: A, right: B) -> First<A::Output, B::Output> {
    let mut left = std::pin::pin!(left);
    let mut right = std::pin::pin!(right);
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(output));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}

/// Waits for all of these futures, which go on beside each other, and gives what each gave, in
/// their order. Each wake-up polls all that are not ready yet, so it is for some dozens, not for
/// thousands.
///
/// ```
/// use plinth_env::sync::all;
/// let squares = (1..4).map(|n| async move { n * n });
/// assert_eq!(plinth_env::block_on(all(squares)), [1, 4, 9]);
/// ```
pub async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    enum Slot<F: Future> {
        Going(std::pin::Pin<Box<F>>),
        Ready(F::Output),
    }
    let mut slots: Vec<_> =
        futures.into_iter().map(|future| Slot::Going(Box::pin(future))).collect();
    std::future::poll_fn(|context| {
        let mut is_ready = true;
        for slot in &mut slots {
            if let Slot::Going(future) = slot {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *slot = Slot::Ready(output),
                    Poll::Pending => is_ready = false,
                }
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let ready = |slot| match slot {
        Slot::Ready(output) => Some(output),
        Slot::Going(_) => None,
    };
    slots.into_iter().filter_map(ready).collect()
}
