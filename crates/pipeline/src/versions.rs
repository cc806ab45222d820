//! Versions: the newest that readers may be at, and the sequencer that hands new ones out.
//!
//! The first belongs to the replica and is one atomic load. The second belongs to the leader: only
//! a version that has fallen behind the clock (nothing was committed for a tenth of a second) takes
//! its lock.

use crate::batch_lock::lock;
use crate::sequencer::{Assigned, Sequencer};
use plinth_types::{Version, planted};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// The newest version up to which everything has been applied. It only rises.
pub(crate) struct Applied(AtomicI64);

impl Applied {
    /// Storage holds everything up to `newest`.
    pub fn new(newest: Version) -> Self {
        Self(AtomicI64::new(newest))
    }

    /// The newest version that reads may be at.
    #[inline]
    pub fn newest(&self) -> Version {
        self.0.load(Ordering::Acquire)
    }

    /// Storage serves `version` from now on.
    pub fn reach(&self, version: Version) {
        let before = self.0.swap(version, Ordering::AcqRel);
        assert!(before < version, "version {version} was reached after {before}");
    }
}

/// The versions of one term.
pub(crate) struct Versions {
    clock_base: (Version, Duration),
    /// How far the clock has been moved ahead since.
    ahead: AtomicI64,
    sequencer: Mutex<Sequencer>,
    /// Read versions follow the clock while nothing happens; else entries alone move them.
    follows: bool,
    /// Whether a reader wanted a version newer than the newest commit.
    asked: AtomicBool,
}

impl Versions {
    pub fn new(sequencer: Sequencer) -> Self {
        let clock_base = sequencer.clock_base();
        let (ahead, asked) = (AtomicI64::new(0), AtomicBool::new(true));
        Self { clock_base, ahead, sequencer: Mutex::new(sequencer), follows: true, asked }
    }

    /// Of a cluster, where every node has to be able to serve each read version: entries alone move
    /// them.
    pub fn moved_by_entries(sequencer: Sequencer) -> Self {
        let follows = planted!("versions are used before a majority has them");
        Self { follows, ..Self::new(sequencer) }
    }

    #[inline]
    fn clock_base(&self) -> (Version, Duration) {
        let (base, since) = self.clock_base;
        (base + self.ahead.load(Ordering::Relaxed), since)
    }

    /// How far the newest version is behind the clock.
    pub fn lag(&self, applied: &Applied, now: Duration) -> Version {
        let (base, since) = self.clock_base();
        Sequencer::clock_at(base, since, now).saturating_sub(applied.newest())
    }

    /// The version for a new transaction: the newest applied one, moved along with the clock while
    /// nothing is in flight. `publish` makes storage serve a version before anybody learns of it.
    #[inline]
    pub fn read_version(
        &self,
        applied: &Applied,
        now: Duration,
        publish: impl FnOnce(Version),
    ) -> Version {
        let newest = applied.newest();
        let (base, since) = self.clock_base();
        if !Sequencer::is_stale(base, since, newest, now) {
            return newest;
        }
        self.asked.store(true, Ordering::Relaxed);
        self.follow(applied, now, publish)
    }

    /// The same for the node's own chores, which are no reason to go on extending the lease.
    pub fn follow(
        &self,
        applied: &Applied,
        now: Duration,
        publish: impl FnOnce(Version),
    ) -> Version {
        if !self.follows {
            return applied.newest();
        }
        let mut sequencer = lock(&self.sequencer);
        let newest = applied.newest();
        let Some(followed) = sequencer.follow(newest, now) else { return newest };
        publish(followed);
        applied.reach(followed);
        followed
    }

    /// The version for a batch that now is in flight: not below `least`, unless that is out of the
    /// world.
    pub fn assign(&self, now: Duration, least: Version) -> Assigned {
        let mut sequencer = lock(&self.sequencer);
        let ahead = sequencer.move_beyond(least, now);
        self.ahead.fetch_add(ahead, Ordering::Relaxed);
        sequencer.assign(now)
    }

    /// A batch is no longer in flight: it has taken effect, or left no trace. With it a lease may
    /// have become durable.
    pub fn finish(&self, lease: Option<Version>) {
        let mut sequencer = lock(&self.sequencer);
        lease.into_iter().for_each(|lease| sequencer.leased(lease));
        sequencer.finish();
    }

    /// The lease is durable.
    pub fn leased(&self, lease: Version) {
        lock(&self.sequencer).leased(lease);
    }

    /// Panics if what must hold between two calls doesn't.
    pub fn check_invariants(&self, applied: &Applied) {
        lock(&self.sequencer).check_invariants(applied.newest());
        assert!(self.ahead.load(Ordering::Relaxed) >= 0, "the clock is moved ahead only");
    }

    /// A lease that should be written even though nothing is committed: when somebody reads.
    pub fn wanted_lease(&self, now: Duration) -> Option<Version> {
        // Where entries alone move versions, the lease comes with the entry that needs it.
        if !self.follows || !self.asked.swap(false, Ordering::Relaxed) {
            return None;
        }
        lock(&self.sequencer).wanted_lease(now)
    }
}
