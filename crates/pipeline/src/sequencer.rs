//! Versions: which one a batch gets, and how read versions follow the clock while nothing happens.
//!
//! A state machine over the time it is told. A batch's version is at least one more than any
//! version handed out before, and otherwise what the clock says, a million a second. While no batch
//! is in flight the clock may be followed by read versions too ([`Sequencer::follow`]), so that the
//! first commit after an idle minute does not make a young transaction look old.
//!
//! The log holds a lease: no version above it is ever shown to anybody, and a restart begins beyond
//! it. The lease is extended together with the batch that needs it, by the same sync.

use plinth_types::version::{VERSION_JUMP_AT_RESTART, VERSIONS_PER_SECOND};
use plinth_types::{Version, limits};
use std::time::Duration;

/// How far beyond the version that asks for it a lease reaches: a minute.
const LEASE_VERSIONS: i64 = 60 * VERSIONS_PER_SECOND;

/// Below this distance to the lease a new one is asked for.
const LEASE_MARGIN: i64 = LEASE_VERSIONS / 2;

/// How stale a read version may become while nothing is committed.
const FOLLOW_AFTER: i64 = VERSIONS_PER_SECOND / 10;

/// No clock is moved further: from there on it has a hundred thousand years left.
const FURTHEST: Version = Version::MAX / 2;

const _: () = assert!(LEASE_MARGIN > limits::WINDOW_VERSIONS);

/// What [`Sequencer::assign`] decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Assigned {
    /// The batch's version.
    pub version: Version,
    /// A lease that must be in the log, at the latest with the batch.
    pub lease: Option<Version>,
}

/// Hands out versions.
#[derive(Debug)]
pub(crate) struct Sequencer {
    /// The clock reads `base` at time `since`.
    base: Version,
    since: Duration,
    newest: Version,
    in_flight: usize,
    lease: Version,
}

impl Sequencer {
    /// Begins beyond `last` (the newest version that may have been seen in an earlier run) at time
    /// `now`. `first` is what the sequencer begins with.
    pub fn after_restart(last: Version, now: Duration) -> Self {
        Self::starting_at(last.saturating_add(VERSION_JUMP_AT_RESTART), now)
    }

    /// Begins at `first`, in a database that has no past.
    pub fn starting_at(first: Version, now: Duration) -> Self {
        Self { base: first, since: now, newest: first, in_flight: 0, lease: first }
    }

    /// The newest version handed out, to a batch or to readers.
    pub fn newest(&self) -> Version {
        self.newest
    }

    /// From now on the clock reads `least` at least: for a database whose versions have to be
    /// beyond those of another one. How far it was moved by that.
    pub fn move_beyond(&mut self, least: Version, now: Duration) -> Version {
        let ahead = least.saturating_sub(self.clock(now)).max(0);
        if least > FURTHEST {
            // Nobody could commit any more; so it is refused, as a version below it.
            return 0;
        }
        self.base += ahead;
        ahead
    }

    /// The version for the next batch, which is then in flight until [`Sequencer::finish`].
    pub fn assign(&mut self, now: Duration) -> Assigned {
        let version = self.clock(now).max(self.newest + 1);
        self.newest = version;
        self.in_flight += 1;
        let lease = (version + LEASE_MARGIN > self.lease).then_some(version + LEASE_VERSIONS);
        Assigned { version, lease }
    }

    /// A batch is no longer in flight, whether it took effect or not.
    pub fn finish(&mut self) {
        assert!(self.in_flight > 0, "a batch ended that had not begun");
        self.in_flight -= 1;
    }

    /// The lease is durable up to `lease`.
    pub fn leased(&mut self, lease: Version) {
        self.lease = self.lease.max(lease);
    }

    /// A newer version for readers, if the clock has run ahead of `committed` and nothing is in
    /// flight.
    ///
    /// Versions of batches that came to nothing don't count: readers may be shown older ones, for
    /// nothing lies between. Were they to hold readers back, clients whose commits are refused (as
    /// too old, say) would keep read versions from moving by trying again, and go on being refused.
    pub fn follow(&mut self, committed: Version, now: Duration) -> Option<Version> {
        let version = self.clock(now).min(self.lease);
        if self.in_flight > 0 || version < committed + FOLLOW_AFTER {
            return None;
        }
        self.newest = self.newest.max(version);
        Some(version)
    }

    /// A lease worth writing although nothing is committed, because readers have nearly used up the
    /// present one.
    pub fn wanted_lease(&self, now: Duration) -> Option<Version> {
        let version = self.clock(now).max(self.newest);
        (version + LEASE_MARGIN > self.lease).then_some(version + LEASE_VERSIONS)
    }

    /// Whether `committed` is so far behind the clock that [`Sequencer::follow`] is worth a try.
    pub fn is_stale(base: Version, since: Duration, committed: Version, now: Duration) -> bool {
        clock(base, since, now) >= committed + FOLLOW_AFTER
    }

    /// Panics if what must hold between two calls doesn't.
    pub fn check_invariants(&self, applied: Version) {
        assert!(applied <= self.newest, "version {applied} was applied and not handed out");
        assert!(self.base >= 0 && self.newest >= 0, "versions count from 0");
    }

    /// What the clock of [`Sequencer::clock_base`] reads.
    pub fn clock_at(base: Version, since: Duration, now: Duration) -> Version {
        clock(base, since, now)
    }

    /// The two figures by which [`Sequencer::is_stale`] can be asked without this state machine's
    /// lock.
    pub fn clock_base(&self) -> (Version, Duration) {
        (self.base, self.since)
    }

    fn clock(&self, now: Duration) -> Version {
        clock(self.base, self.since, now)
    }
}

fn clock(base: Version, since: Duration, now: Duration) -> Version {
    let elapsed = now.saturating_sub(since).as_micros();
    base.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn versions_follow_the_clock_and_never_repeat() {
        let mut sequencer = Sequencer::starting_at(1, Duration::ZERO);
        let first = sequencer.assign(SECOND).version;
        let second = sequencer.assign(SECOND).version;
        assert_eq!((first, second), (1_000_001, 1_000_002));
        assert_eq!(
            sequencer.assign(Duration::ZERO).version,
            1_000_003,
            "the clock may stand, versions don't"
        );
    }

    #[test]
    fn the_clock_can_be_moved_ahead_but_neither_back_nor_out_of_the_world() {
        let mut sequencer = Sequencer::starting_at(1, Duration::ZERO);
        sequencer.assign(Duration::ZERO);
        assert_eq!(sequencer.move_beyond(5, SECOND), 0, "it is there already");
        assert_eq!(sequencer.move_beyond(9_000_001, SECOND), 8_000_000);
        let assigned = sequencer.assign(SECOND);
        assert_eq!(assigned.version, 9_000_001);
        assert!(assigned.lease.is_some_and(|lease| lease > assigned.version));
        sequencer.leased(assigned.lease.unwrap());
        sequencer.finish();
        sequencer.finish();
        assert_eq!(
            sequencer.follow(9_000_001, 2 * SECOND),
            Some(10_000_001),
            "readers follow from there"
        );
        assert_eq!(sequencer.move_beyond(Version::MAX, SECOND), 0);
        assert!(sequencer.assign(2 * SECOND).version < 11_000_000);
    }

    #[test]
    fn readers_follow_the_clock_only_while_nothing_is_in_flight_and_within_the_lease() {
        let mut sequencer = Sequencer::starting_at(1, Duration::ZERO);
        let assigned = sequencer.assign(Duration::ZERO);
        sequencer.leased(assigned.lease.unwrap());
        assert_eq!(sequencer.follow(assigned.version, SECOND), None, "a batch is in flight");
        sequencer.finish();
        assert_eq!(
            sequencer.follow(assigned.version, Duration::from_micros(10)),
            None,
            "not worth it"
        );
        let followed = sequencer.follow(assigned.version, SECOND).unwrap();
        assert!(followed > assigned.version && sequencer.assign(SECOND).version > followed);
        sequencer.finish();
        let far = sequencer.follow(followed + 1, 3600 * SECOND).unwrap();
        assert_eq!(far, assigned.lease.unwrap(), "nothing above the lease is shown");
        assert!(sequencer.wanted_lease(3600 * SECOND).unwrap() > far);
    }

    /// Read versions stood still for as long as commits were refused more often than ten times a
    /// second: after five seconds of a full disk every transaction that had read was too old, for
    /// good.
    #[test]
    fn batches_that_come_to_nothing_do_not_keep_readers_from_following_the_clock() {
        let mut sequencer = Sequencer::starting_at(1, Duration::ZERO);
        let mut committed = sequencer.assign(Duration::ZERO).version;
        sequencer.finish();
        sequencer.leased(1_000_000_000);
        for tick in 1..1000 {
            let now = Duration::from_millis(10 * tick);
            let refused = sequencer.assign(now).version;
            assert_eq!(sequencer.follow(committed, now), None, "it is in flight");
            sequencer.finish();
            committed = sequencer.follow(committed, now).unwrap_or(committed);
            assert!(refused - committed <= FOLLOW_AFTER, "{} behind", refused - committed);
            assert!(sequencer.assign(now).version > committed);
            sequencer.finish();
        }
    }

    #[test]
    fn a_restart_begins_beyond_everything_seen() {
        let mut sequencer = Sequencer::after_restart(77, Duration::ZERO);
        assert!(sequencer.assign(Duration::ZERO).version > 77 + limits::WINDOW_VERSIONS);
    }
}
