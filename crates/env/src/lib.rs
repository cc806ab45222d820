//! The world outside: clock, random numbers, tasks, files and sockets, real or simulated.
//!
//! ## Role
//! Everything in Plinth that is not computation happens through an [`Env`]. The real one is the
//! operating system; the simulated ones are one seeded, single-threaded world in which disks lose
//! unsynced writes and calls stall and fail, and in which the same seed gives the same run. Code
//! above this crate can't tell which one it has.
//!
//! ## Data structure
//! ```text
//!            Env (a cheap handle)
//!             │
//!      ┌──────┴───────────────┐
//!    real                 simulated
//!    a thread per task,   one executor, tasks chosen by seed
//!    a core per reactor
//!    system clock         a clock that jumps when nothing is ready
//!    system files         a disk per process, with faults
//!    sockets (`net`)      a network with latency and partitions
//!
//!    Promise ──▶ cell ──▶ Reply        the edge between two tasks, in both worlds
//! ```
//!
//! ## Invariants
//! 1. No other crate uses the system's clock, threads, files, sockets or random numbers;
//!    `clippy.toml` at the root names the substitutes.
//! 2. Whatever waits is woken: a promise that is dropped answers, a task that panics ends as
//!    failed.
//! 3. No foreign code (wakers, callbacks, destructors of values) runs while a lock of this crate is
//!    held.
//!
//! ## Not here
//! What to do when a call fails, and formats of files and messages: the crates above.
//! Read next: [`reply`], [`sync`], then `files.rs`.
#![deny(unsafe_code)]

mod burst;
mod cell;
mod datagrams;
mod disk_room;
mod ends;
mod failure;
mod files;
mod open;
mod park;
#[expect(unsafe_code, reason = "prefetch instructions")]
mod prefetch;
mod raced;
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one place where Plinth meets the system"
)]
mod real;
pub mod reply;
pub mod simulated;
mod sockets;
mod streams;
pub mod sync;
mod task;
mod time;
mod under_way;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use burst::{Burst, Over};
pub use datagrams::{Datagrams, MAX_DATAGRAM};
pub use disk_room::DiskRoom;
pub use ends::Ends;
pub use failure::{IoError, IoErrorKind, IoResult, is_disk_full};
pub use files::{DirLock, File, Files, TemporaryDir};
pub use open::Open;
pub use park::block_on;
pub use prefetch::{prefetch, prefetch_lines};
pub use reply::{Promise, Reply, Unanswered};
pub use sockets::{Listener, Sockets, Stream, Transport};
pub use streams::{say, tell};
pub use sync::Signal;
pub use task::{Task, TaskFailed};
pub use time::{Sleep, Timer};
pub use under_way::Silence;

use real::timers::{RealSleep, RealTimer};
use real::world::RealWorld;
use real::{Precedence, Which};
use simulated::universe::Host;
use simulated::waits::SimulatedSleep;

/// A handle to the world outside. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    inner: Arc<Inner>,
}

struct Inner {
    world: World,
    files: Files,
    sockets: Sockets,
}

/// Which world it is. Every call of this crate begins with a match on it.
#[derive(Clone)]
pub(crate) enum World {
    Real(RealWorld),
    Simulated(Arc<Host>),
}

impl World {
    fn now(&self) -> Duration {
        match self {
            Self::Real(world) => world.now(),
            Self::Simulated(host) => host.now(),
        }
    }
}

impl Env {
    /// The operating system. Its clock ([`Env::now`]) begins now.
    pub fn real() -> Self {
        Self::new(World::Real(RealWorld::new()))
    }

    fn new(world: World) -> Self {
        Self::with_files(world.clone(), Files::new(world))
    }

    /// The same, but the files and directories that are made through it are their owner's alone
    /// (modes 0600 and 0700).
    #[must_use]
    pub fn keeping_private(&self) -> Self {
        let world = &self.inner.world;
        Self::with_files(world.clone(), self.inner.files.private())
    }

    fn with_files(world: World, files: Files) -> Self {
        let sockets = Sockets::new(world.clone());
        Self { inner: Arc::new(Inner { world, files, sockets }) }
    }

    /// The time since the environment began. Never goes backwards.
    pub fn now(&self) -> Duration {
        self.inner.world.now()
    }

    /// The time since 1970-01-01 00:00 UTC, as the system believes; may jump in both directions.
    pub fn wall_clock(&self) -> Duration {
        match &self.inner.world {
            World::Real(_) => RealWorld::wall_clock(),
            World::Simulated(host) => host.wall_clock(),
        }
    }

    /// A random number: unpredictable in the real world, given by the seed in simulation.
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Fills `bytes` with random ones: unpredictable in the real world, given by the seed in
    /// simulation.
    pub fn fill_random(&self, bytes: &mut [u8]) {
        match &self.inner.world {
            World::Real(_) => real::world::fill_random(bytes),
            World::Simulated(host) => host.fill_random(bytes),
        }
    }

    /// A future that is ready when `duration` has passed from now.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now().saturating_add(duration))
    }

    /// A future that is ready when [`Env::now`] has reached `at`.
    pub fn sleep_until(&self, at: Duration) -> Sleep {
        match &self.inner.world {
            World::Real(world) => Sleep::real(RealSleep::new(world.instant(at))),
            World::Simulated(host) => {
                Sleep::simulated(SimulatedSleep::new(host.clone(), host.when(at)))
            }
        }
    }

    /// Calls `f` when [`Env::now`] has reached `at`, at once if it has. Dropping the timer cancels
    /// the call. `f` runs on the one thread that serves all timers: it must be quick and never
    /// wait.
    pub fn call_at(&self, at: Duration, f: impl FnOnce() + Send + 'static) -> Timer {
        match &self.inner.world {
            World::Real(world) => Timer::real(RealTimer::new(world.instant(at), Box::new(f))),
            World::Simulated(host) => Timer::simulated(host.call_at(at, Box::new(f))),
        }
    }

    /// Starts a task. In the real world it has a thread of this name of its own, which it may
    /// block. The task goes on when the handle is dropped.
    pub fn spawn(&self, name: &str, f: impl Future<Output = ()> + Send + 'static) -> Task {
        let (completion, task) = Task::new(name);
        match &self.inner.world {
            World::Real(_) => RealWorld::spawn(completion, name, f),
            World::Simulated(host) => host.spawn(completion, name, f),
        }
        task
    }

    /// Starts a task that waits for sockets and other tasks, and never blocks its thread or
    /// computes for long: in the real world it shares one of a few threads (one a core) with others
    /// like it, and stays there. Any number of such tasks are cheap. The task goes on when the
    /// handle is dropped.
    pub fn spawn_network(&self, name: &str, f: impl Future<Output = ()> + Send + 'static) -> Task {
        self.spawn_network_on(usize::MAX, name, f)
    }

    /// The same, on one of the first `threads` of those threads in turn: for tasks that shall leave
    /// the others free.
    pub fn spawn_network_on(
        &self,
        threads: usize,
        name: &str,
        f: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        self.spawn_on((Precedence::First, Which::Among(threads)), name, f)
    }

    /// The same, on the one of those threads that has this number
    /// ([`Env::network_thread`]); numbers beyond the last go round. For tasks that work together:
    /// what they leave each other then needs no other thread to be woken.
    pub fn spawn_network_at(
        &self,
        number: usize,
        name: &str,
        f: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        self.spawn_on((Precedence::First, Which::At(number)), name, f)
    }

    /// Starts a network task that may compute for a millisecond or so before it waits again. Such
    /// tasks share threads of their own, of which there are as many, and which let the others go
    /// first where processors are short. It runs on one of the first `threads` of them in turn.
    pub fn spawn_network_behind(
        &self,
        threads: usize,
        name: &str,
        f: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        self.spawn_on((Precedence::Behind, Which::Among(threads)), name, f)
    }

    fn spawn_on(
        &self,
        place: (Precedence, Which),
        name: &str,
        f: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        let (completion, task) = Task::new(name);
        match &self.inner.world {
            World::Real(_) => real::reactors::spawn(completion, place, f),
            World::Simulated(host) => host.spawn(completion, name, f),
        }
        task
    }

    /// How many threads the tasks of [`Env::spawn_network`] share.
    pub fn network_threads(&self) -> usize {
        match &self.inner.world {
            World::Real(_) => real::reactors::count(),
            World::Simulated(_) => 1,
        }
    }

    /// Which of the threads of [`Env::spawn_network`] the caller runs on, counted from 0; `None` on
    /// any other thread, and in simulation.
    #[inline]
    pub fn network_thread(&self) -> Option<usize> {
        match &self.inner.world {
            World::Real(_) => real::reactors::number(),
            World::Simulated(_) => None,
        }
    }

    /// How much time the processors have spent on this process so far; nothing in simulation.
    pub fn cpu_time(&self) -> Duration {
        match &self.inner.world {
            World::Real(_) => RealWorld::cpu_time(),
            World::Simulated(_) => Duration::ZERO,
        }
    }

    /// The system's number of this process; in simulation always the same.
    pub fn process_id(&self) -> u32 {
        match &self.inner.world {
            World::Real(_) => std::process::id(),
            World::Simulated(_) => 1,
        }
    }

    /// The files.
    pub fn files(&self) -> &Files {
        &self.inner.files
    }

    /// The network.
    pub fn sockets(&self) -> &Sockets {
        &self.inner.sockets
    }

    /// Addresses of this machine, on loopback, where nobody listens now: for servers that are
    /// started later, and again at the same places.
    ///
    /// They are outside of the ports that systems give to outgoing connections (from 32,768 on
    /// Linux, from 49,152 on macOS). One of those may be taken by any connection while its server
    /// is away.
    ///
    /// # Errors
    /// `NotBound` if there are too few; those of [`Sockets::listen`].
    pub async fn unused_addresses(&self, count: usize) -> IoResult<Vec<SocketAddr>> {
        self.inner.sockets.unused(self.random_u64(), count).await
    }

    /// Lets other tasks go first: a scheduling point in simulation, nothing in the real world.
    pub fn yield_now(&self) -> Yield {
        Yield { pending: self.is_simulated() }
    }

    /// Lets everybody else on the thread of a network task go first, sockets included: for one that
    /// has much to do at a time.
    pub async fn give_way(&self) {
        match self.is_simulated() {
            true => self.yield_now().await,
            // A task that merely wakes itself is run again many times before its thread looks at
            // sockets.
            false => real::reactors::give_way().await,
        }
    }

    /// Whether this is a simulated environment.
    pub fn is_simulated(&self) -> bool {
        matches!(&self.inner.world, World::Simulated(_))
    }

    pub(crate) fn world(&self) -> &World {
        &self.inner.world
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_simulated() { "Env(simulated)" } else { "Env(real)" })
    }
}

/// What [`Env::yield_now`] gives.
#[must_use = "a future does nothing unless it is awaited"]
#[derive(Debug)]
pub struct Yield {
    pending: bool,
}

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.pending) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}
