//! The newest committed version, and the sequencer behind it.
//!
//! Reading the committed version is one atomic load; only a version that has fallen behind the clock
//! (nothing was committed for a tenth of a second) takes the sequencer's lock.

use crate::order::lock;
use crate::sequencer::{Assigned, Sequencer};
use plinth_types::Version;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

pub(crate) struct Versions {
    committed: AtomicI64,
    clock_base: (Version, Duration),
    sequencer: Mutex<Sequencer>,
    /// Whether a reader wanted a version newer than the newest commit.
    asked: AtomicBool,
}

impl Versions {
    /// `committed` is the version of the data as it stands.
    pub fn new(sequencer: Sequencer, committed: Version) -> Self {
        let clock_base = sequencer.clock_base();
        Self {
            committed: AtomicI64::new(committed),
            clock_base,
            sequencer: Mutex::new(sequencer),
            asked: AtomicBool::new(true),
        }
    }

    /// The newest version that reads may be at.
    pub fn committed(&self) -> Version {
        self.committed.load(Ordering::Acquire)
    }

    /// The version for a new transaction: the newest committed one, moved along with the clock while nothing
    /// is in flight. `publish` makes storage serve a version before anybody learns of it.
    pub fn read_version(&self, now: Duration, publish: impl FnOnce(Version)) -> Version {
        let committed = self.committed();
        let (base, since) = self.clock_base;
        if !Sequencer::is_stale(base, since, committed, now) {
            return committed;
        }
        self.asked.store(true, Ordering::Relaxed);
        self.follow(now, publish)
    }

    /// The same for the node's own chores, which are no reason to go on extending the lease.
    pub fn follow(&self, now: Duration, publish: impl FnOnce(Version)) -> Version {
        let mut sequencer = lock(&self.sequencer);
        let committed = self.committed();
        let Some(followed) = sequencer.follow(committed, now) else { return committed };
        publish(followed);
        self.committed.store(followed, Ordering::Release);
        followed
    }

    /// The version for a batch that now is in flight.
    pub fn assign(&self, now: Duration) -> Assigned {
        lock(&self.sequencer).assign(now)
    }

    /// The batch at `version` has been applied and published by storage: everybody may know. In version order.
    pub fn commit(&self, version: Version) {
        let mut sequencer = lock(&self.sequencer);
        debug_assert!(version > self.committed(), "batches end out of order");
        self.committed.store(version, Ordering::Release);
        sequencer.finish();
    }

    /// A batch ended without effect.
    pub fn abandon(&self) {
        lock(&self.sequencer).finish();
    }

    /// The lease is durable.
    pub fn leased(&self, lease: Version) {
        lock(&self.sequencer).leased(lease);
    }

    /// A lease that should be written even though nothing is committed: when somebody reads.
    pub fn wanted_lease(&self, now: Duration) -> Option<Version> {
        if !self.asked.swap(false, Ordering::Relaxed) {
            return None;
        }
        lock(&self.sequencer).wanted_lease(now)
    }
}
