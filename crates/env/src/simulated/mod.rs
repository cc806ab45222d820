//! The simulated world: [`Simulation`].
//!
//! One seed decides everything: which of the ready tasks runs next, how long calls take, which
//! fail, and what a crash leaves of unsynced data. A run on one machine is the same on every other;
//! a test prints its seed, and the seed is the reproduction.
//!
//! ```
//! use plinth_env::simulated::Simulation;
//! use std::time::Duration;
//!
//! let sim = Simulation::new(7);
//! let env = sim.process("server");
//! let (theirs, began) = (env.clone(), env.now());
//! let passed = sim.run_until(async move {
//!     theirs.sleep(Duration::from_secs(3600)).await;
//!     theirs.now() - began
//! });
//! assert!(passed >= Duration::from_secs(3600));
//! ```
//!
//! What is random without being seeded is still random: a `HashMap` with the standard library's
//! hasher iterates in another order in each run. Where order shows, use ordered maps.

mod disk;
mod faults;
pub(crate) mod files;
mod links;
mod network;
mod processes;
mod random;
pub(crate) mod sockets;
mod timers;
mod trace;
pub(crate) mod universe;
pub(crate) mod waits;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

pub use disk::inode::Unsynced;
pub use faults::{CallFaults, CallKind, FaultPlan};
pub use network::NetworkPlan;
pub use random::Random;
pub use trace::Event;

use crate::{Env, World};
use universe::{Driven, Host, Process, Universe};

/// A simulated world, run by the thread that calls [`Simulation::run_until`].
///
/// Clones are the same world, which ends with the last of them: its tasks are dropped. A task that
/// holds a clone keeps it from ending.
#[derive(Clone)]
pub struct Simulation {
    owner: Arc<Owner>,
}

struct Owner {
    universe: Arc<Universe>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.universe.end();
    }
}

/// How long [`Simulation::run_until`] lets a world run before it gives up.
const TIME_LIMIT: Duration = Duration::from_secs(7 * 86_400);

impl Simulation {
    /// A new world. The same seed, and the same calls, give the same run.
    pub fn new(seed: u64) -> Self {
        Self { owner: Arc::new(Owner { universe: Universe::new(seed) }) }
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.universe().seed
    }

    /// The environment of a process, which is made if there is none of this name: a machine of its
    /// own with its own disk. After a crash this is the process started again.
    pub fn process(&self, name: &str) -> Env {
        let mut guard = self.universe().lock();
        let core = &mut *guard;
        let known = core.processes.iter().position(|process| process.name == name);
        let process = known.unwrap_or_else(|| {
            let random = core.random.split();
            core.processes.push(Process::new(name, random));
            core.note("process", core.processes.len() as u64, 0);
            core.processes.len() - 1
        });
        let incarnation = core.processes[process].incarnation;
        drop(guard);
        let universe = self.universe().clone();
        Env::new(World::Simulated(Arc::new(Host { universe, process, incarnation })))
    }

    /// Runs the world until `future` is ready. The future may borrow from the test; it belongs to
    /// no process.
    ///
    /// # Panics
    /// If a task panics (see [`Simulation::tolerate_panics`]), if nothing moves any more, or if
    /// a simulated week passes. The seed is printed.
    pub fn run_until<F: Future>(&self, future: F) -> F::Output {
        let until = self.now().saturating_add(TIME_LIMIT);
        match self.drive(future, until) {
            Driven::Done(output) => output,
            Driven::Late => panic!("seed {}: still not done after {TIME_LIMIT:?}", self.seed()),
            Driven::Rest => {
                let tasks = self.universe().task_names();
                panic!("seed {}: nothing will ever move again; waiting: {tasks:?}", self.seed())
            }
        }
    }

    /// The same, but gives up after `limit` (or when nothing moves any more): `None`.
    pub fn run_until_within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let until = self.now().saturating_add(limit);
        match self.drive(future, until) {
            Driven::Done(output) => Some(output),
            Driven::Late | Driven::Rest => None,
        }
    }

    /// Runs the world for a time.
    pub fn run_for(&self, duration: Duration) {
        let until = self.now().saturating_add(duration);
        let driven = self.drive(std::future::pending::<()>(), until);
        if matches!(driven, Driven::Rest) {
            self.universe().lock().now = until;
        }
    }

    fn drive<F: Future>(&self, future: F, until: Duration) -> Driven<F::Output> {
        assert!(!crate::park::is_simulating(), "a simulation cannot be run from inside of one");
        let _seed = TellSeed(self);
        self.universe().drive(pin!(future), until)
    }

    /// The time since the simulation began.
    pub fn now(&self) -> Duration {
        self.universe().lock().now
    }

    /// A number that stands for everything that has happened: equal runs have equal ones.
    pub fn trace_hash(&self) -> u64 {
        self.universe().lock().trace.hash()
    }

    /// How many events there have been.
    pub fn event_count(&self) -> u64 {
        self.universe().lock().trace.count()
    }

    /// The last events, oldest first.
    pub fn last_events(&self) -> Vec<Event> {
        self.universe().lock().trace.last().cloned().collect()
    }

    /// A random number stream for the test itself, given by the seed.
    pub fn random(&self) -> Random {
        self.universe().lock().random.split()
    }

    /// Whether a task that panics only ends as failed, as in the real world. If not (as at first),
    /// it also ends the run with its panic.
    pub fn tolerate_panics(&self, tolerate: bool) {
        self.universe().lock().tolerate_panics = tolerate;
    }

    fn universe(&self) -> &Arc<Universe> {
        &self.owner.universe
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("seed", &self.seed()).field("now", &self.now()).finish()
    }
}

/// Says which seed it was when a panic passes through.
struct TellSeed<'a>(&'a Simulation);

impl Drop for TellSeed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the simulation with seed {} failed at {:?}", self.0.seed(), self.0.now());
        }
    }
}
