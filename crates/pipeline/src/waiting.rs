//! Reads at a version that the database has not reached yet: they wait, for a second at most.

use crate::batch_lock::lock;
use crate::failure::NodeError;
use plinth_env::reply::{Promise, Reply};
use plinth_env::{Env, Timer};
use plinth_types::{Version, probe};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How long a read of the future waits before it fails with [`NodeError::Future`].
const PATIENCE: Duration = Duration::from_secs(1);

struct Waiter {
    promise: Promise<(), NodeError>,
    _timer: Timer,
}

#[derive(Default)]
struct Waiters {
    by_version: BTreeMap<(Version, u64), Waiter>,
    next_id: u64,
}

/// Whoever waits for versions to come.
pub(crate) struct Waiting {
    waiters: Mutex<Waiters>,
    /// The earliest version waited for, so that commits pay one load.
    earliest: AtomicI64,
}

impl Waiting {
    pub fn new() -> Self {
        Self { waiters: Mutex::default(), earliest: AtomicI64::new(Version::MAX) }
    }

    /// Ready when `version` is reached ([`Waiting::reached`]), or with [`NodeError::Future`] after
    /// a second. `committed` is asked once the waiter is in place, so that nothing slips between.
    pub fn wait(
        self: &Arc<Self>,
        env: &Env,
        version: Version,
        committed: impl FnOnce() -> Version,
    ) -> Reply<(), NodeError> {
        probe!("pipeline: read of a version to come");
        let (promise, reply) = Promise::pair();
        {
            let mut waiters = lock(&self.waiters);
            waiters.next_id += 1;
            let place = (version, waiters.next_id);
            let this: Weak<Self> = Arc::downgrade(self);
            let timer = env.call_at(env.now() + PATIENCE, move || {
                if let Some(this) = this.upgrade() {
                    this.give_up(place);
                }
            });
            waiters.by_version.insert(place, Waiter { promise, _timer: timer });
            self.earliest.fetch_min(version, Ordering::SeqCst);
        }
        self.reached(committed());
        reply
    }

    /// Versions up to this one may be read now.
    pub fn reached(&self, version: Version) {
        if version < self.earliest.load(Ordering::SeqCst) {
            return;
        }
        let reached = {
            let mut waiters = lock(&self.waiters);
            let later = waiters.by_version.split_off(&(version, u64::MAX));
            let reached = std::mem::replace(&mut waiters.by_version, later);
            let earliest =
                waiters.by_version.keys().next().map_or(Version::MAX, |(version, _)| *version);
            self.earliest.store(earliest, Ordering::SeqCst);
            reached
        };
        reached.into_values().for_each(|waiter| waiter.promise.send(Ok(())));
    }

    /// Panics if what must hold between two calls doesn't.
    pub fn check_invariants(&self) {
        let waiters = lock(&self.waiters);
        let earliest = self.earliest.load(Ordering::SeqCst);
        let first = waiters.by_version.keys().next();
        assert!(
            first.is_none_or(|(version, _)| earliest <= *version),
            "a read of version {first:?} would not be told: the earliest is taken to be {earliest}"
        );
        assert!(waiters.by_version.keys().all(|(_, id)| *id <= waiters.next_id), "ids in order");
    }

    fn give_up(&self, place: (Version, u64)) {
        let waiter = lock(&self.waiters).by_version.remove(&place);
        if let Some(waiter) = waiter {
            waiter.promise.send(Err(NodeError::Future));
        }
    }
}
