//! What the clients and the run share: the database as it is at the moment, and what was found
//! wrong.
//!
//! The node has lives. Between two of them there is no database, and clients wait for the next one.
//! All of it changes only between two steps of the simulation or inside one, so no client sees half
//! a change.

use crate::probes::Probes;
use plinth_client::Database;
use plinth_env::Env;
use plinth_types::Error;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// One life of the node, as clients see it.
#[derive(Clone)]
pub struct Life {
    /// Counted from 1.
    pub number: u64,
    /// The database, as long as this life lasts.
    pub database: Database,
    /// The machine that it runs on, which may die; of a cluster one beside those of its nodes,
    /// which may die, too.
    pub machine: Env,
}

/// Locks what is never left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct State {
    number: u64,
    current: Option<(Database, Env)>,
    /// At most one waiting place a client: it awaits one thing at a time.
    waiting: BTreeMap<usize, Waker>,
    stopping: bool,
    failure: Option<String>,
    damage: Option<Error>,
    probes: Probes,
    committed: u64,
    faulty: bool,
    /// Several nodes: what was given up may still come to be, until something later has been
    /// committed.
    is_cluster: bool,
    /// A workload locks the database now and then.
    is_lockable: bool,
}

/// The meeting place of a run's clients and its nemesis.
pub struct Stage {
    env: Env,
    state: Mutex<State>,
}

impl Stage {
    /// A stage without a database. `env` is the clients' own environment: it outlives all lives of
    /// the node.
    pub fn new(env: Env) -> Self {
        Self { env, state: Mutex::default() }
    }

    /// The clients' environment.
    pub fn env(&self) -> &Env {
        &self.env
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waiting = {
            let mut state = self.state();
            change(&mut state);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// The node lives, and this is its database.
    pub(crate) fn begin_life(&self, database: Database, machine: Env) {
        self.change(|state| {
            state.number += 1;
            state.current = Some((database, machine));
        });
    }

    /// The node is dead, or about to be: whoever works with it stops here.
    pub(crate) fn end_life(&self) {
        self.change(|state| state.current = None);
    }

    /// The number of the present life, or the last one.
    pub fn life_number(&self) -> u64 {
        self.state().number
    }

    /// The present life; waits for the next one where there is none.
    pub async fn life(&self, client: usize) -> Life {
        poll_fn(|context| {
            let mut state = self.state();
            if let Some((database, machine)) = &state.current {
                let (database, machine) = (database.clone(), machine.clone());
                return Poll::Ready(Life { number: state.number, database, machine });
            }
            state.waiting.insert(client, context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits until the life with this number has ended.
    pub async fn end_of(&self, life: u64, client: usize) {
        poll_fn(|context| {
            let mut state = self.state();
            if state.number != life || state.current.is_none() {
                return Poll::Ready(());
            }
            state.waiting.insert(client, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Asks the clients to come to an end.
    pub(crate) fn stop(&self) {
        self.change(|state| state.stopping = true);
    }

    /// Whether clients should begin nothing new.
    pub fn is_stopping(&self) -> bool {
        self.state().stopping || self.is_over()
    }

    /// Whether the nemesis may be at work, so that slow or failing calls are no surprise.
    pub fn is_faulty(&self) -> bool {
        self.state().faulty
    }

    /// Whether the database has several nodes.
    pub fn is_cluster(&self) -> bool {
        self.state().is_cluster
    }

    pub(crate) fn set_cluster(&self) {
        self.state().is_cluster = true;
    }

    /// Whether clients may be told that the database is locked.
    pub(crate) fn is_lockable(&self) -> bool {
        self.state().is_lockable
    }

    pub(crate) fn set_lockable(&self) {
        self.state().is_lockable = true;
    }

    pub(crate) fn set_faulty(&self, faulty: bool) {
        self.state().faulty = faulty;
    }

    /// Something is wrong with the database. The first such report ends the run.
    pub fn fail(&self, what: impl Into<String>) {
        self.change(|state| {
            let what = what.into();
            state.failure.get_or_insert(what);
        });
    }

    /// The database says that its files are damaged, which ends the run; whether they are is looked
    /// at then.
    pub fn saw_damage(&self, error: Error) {
        self.change(|state| _ = state.damage.get_or_insert(error));
    }

    /// What the database said of damage.
    pub(crate) fn damage(&self) -> Option<Error> {
        self.state().damage.clone()
    }

    /// Whether something has ended the run.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state();
        state.failure.is_some() || state.damage.is_some()
    }

    /// What was found wrong.
    pub fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    /// A rare path was reached.
    pub fn probe(&self, name: &'static str) {
        self.state().probes.hit(name);
    }

    pub(crate) fn probes(&self) -> Probes {
        self.state().probes.clone()
    }

    pub(crate) fn count_commit(&self) {
        self.state().committed += 1;
    }

    pub(crate) fn committed(&self) -> u64 {
        self.state().committed
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("life", &self.life_number()).finish_non_exhaustive()
    }
}
