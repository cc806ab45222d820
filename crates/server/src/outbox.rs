//! Where answers that come later wait for their connection's task.
//!
//! A commit is answered on a worker's thread. It leaves the encoded reply here and wakes the task, once however many
//! answers come before it runs, so that all of them leave in one write.

use plinth_env::Env;
use plinth_types::{Error, Version};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Longest name of a client that is kept, in characters.
const MOST_NAME: usize = 64;

/// One connection, as others see it.
pub(crate) struct Outbox {
    pub(crate) peer: SocketAddr,
    /// What its client says it is, once it has.
    name: OnceLock<Box<str>>,
    state: Mutex<State>,
    /// Bytes of requests whose answers are yet to come.
    in_flight: AtomicUsize,
    /// Milliseconds of the clock after which the connection has been silent for too long.
    deadline: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Frames.
    bytes: Vec<u8>,
    /// Watches to look at.
    fired: Vec<u32>,
    order: Order,
    waker: Option<Waker>,
}

/// What the connection is told to do.
#[derive(Clone, Default)]
pub(crate) enum Order {
    /// Serve.
    #[default]
    GoOn,
    /// Read nothing more; close once everything under way is answered.
    Finish,
    /// Close, saying why.
    Close(Error),
}

impl Outbox {
    pub(crate) fn new(peer: SocketAddr) -> Arc<Self> {
        Arc::new(Self {
            peer,
            name: OnceLock::new(),
            state: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            deadline: AtomicU64::new(u64::MAX),
        })
    }

    /// The client has said what it is: cut to what fits a line, without what a terminal would obey.
    pub(crate) fn introduce(&self, name: &str) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(MOST_NAME).collect();
        let _ = self.name.set(name.into());
    }

    /// What the client says it is; empty until then.
    pub(crate) fn name(&self) -> &str {
        self.name.get().map_or("", |name| name)
    }

    /// Whether the client has said what it is.
    pub(crate) fn has_greeted(&self) -> bool {
        self.name.get().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request of so many bytes will be answered by [`Outbox::answer`].
    pub(crate) fn begin(&self, bytes: usize) {
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of requests under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Leaves an answer to a request that began with so many bytes.
    pub(crate) fn answer(&self, bytes: usize, put: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        put(&mut state.bytes);
        self.in_flight.fetch_sub(bytes, Ordering::Release);
        wake(state);
    }

    fn fire(&self, id: u32) {
        let mut state = self.lock();
        state.fired.push(id);
        wake(state);
    }

    /// Tells the connection what to do. Closing can't be taken back.
    pub(crate) fn order(&self, order: Order) {
        let mut state = self.lock();
        if !matches!(state.order, Order::Close(_)) {
            state.order = order;
        }
        wake(state);
    }

    /// Moves what has come to the end of `output`, notes watches to look at, and sees to `waker` being woken by what
    /// comes next. Says what to do.
    pub(crate) fn collect(&self, output: &mut Vec<u8>, fired: &mut Vec<u32>, waker: &Waker) -> Order {
        let mut replaced = None;
        let mut state = self.lock();
        if output.is_empty() {
            std::mem::swap(output, &mut state.bytes);
        } else {
            output.append(&mut state.bytes);
        }
        fired.append(&mut state.fired);
        if state.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            replaced = state.waker.replace(waker.clone());
        }
        let order = state.order.clone();
        drop(state);
        drop(replaced);
        order
    }

    /// The connection has given a sign of life, and is expected to give another within `patience`.
    pub(crate) fn expect_within(&self, env: &Env, patience: Duration) {
        let deadline = (env.now() + patience).as_millis();
        self.deadline.store(u64::try_from(deadline).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether the sign of life did not come.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        now.as_millis() > u128::from(self.deadline.load(Ordering::Relaxed))
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    // Taken out, so that many answers cost one wake-up; `collect` puts it back.
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Wakes a connection for one of its watches.
pub(crate) struct WatchBell {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) id: u32,
}

impl Wake for WatchBell {
    fn wake(self: Arc<Self>) {
        self.outbox.fire(self.id);
    }
}

/// A watch that waits, and what it holds.
pub(crate) struct Watch {
    pub(crate) reply: plinth_env::Reply<Version>,
    pub(crate) bytes: usize,
}
