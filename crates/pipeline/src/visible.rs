//! What readers may see: the newest version, and what every new transaction is told besides it: the
//! locks, and the metadata version.
//!
//! They change rarely and are asked for with every read version, so the usual answer (no lock, no
//! metadata version) is one atomic load. When there is something to tell, version and metadata are
//! changed and read under one lock, for a reader must not get the one without the other.

use crate::metadata::Metadata;
use crate::versions::Applied;
use plinth_types::{Bytes, RangeLocks, Version};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// What readers may see.
pub(crate) struct Visible {
    /// The version that they may be at.
    pub applied: Applied,
    /// When an entry was applied last, in microseconds of the clock.
    applied_us: AtomicU64,
    anything: AtomicBool,
    metadata: RwLock<Metadata>,
}

/// A read version with what belongs to it.
pub(crate) struct Answer {
    pub version: Version,
    pub locked: bool,
    pub range_locks: Option<RangeLocks>,
    pub metadata_version: Option<Bytes>,
}

impl Visible {
    /// As of a start, with everything up to `newest`.
    pub fn new(newest: Version, metadata: Metadata, now: Duration) -> Self {
        Self {
            applied: Applied::new(newest),
            applied_us: AtomicU64::new(micros(now)),
            anything: AtomicBool::new(is_anything(&metadata)),
            metadata: RwLock::new(metadata),
        }
    }

    /// An entry was applied now.
    pub fn note_applied(&self, now: Duration) {
        self.applied_us.store(micros(now), Ordering::Relaxed);
    }

    /// How long ago an entry was applied last.
    pub fn applied_ago(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_micros(self.applied_us.load(Ordering::Relaxed)))
    }

    /// Makes `version` known, with metadata that changed there.
    pub fn change(&self, version: Version, change: impl FnOnce(&mut Metadata)) {
        let mut metadata = self.metadata.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut metadata);
        let anything = is_anything(&metadata);
        if anything {
            self.anything.store(true, Ordering::SeqCst);
        }
        self.applied.reach(version);
        if !anything {
            // Behind the version: who is still told the one before goes by what held there.
            self.anything.store(false, Ordering::SeqCst);
        }
    }

    /// Panics if what must hold between two versions doesn't.
    pub fn check_invariants(&self) {
        let metadata = self.metadata.read().unwrap_or_else(PoisonError::into_inner);
        let anything = self.anything.load(Ordering::SeqCst);
        assert_eq!(anything, is_anything(&metadata), "metadata is told exactly if there is any");
    }

    /// The metadata as it is at the newest version.
    pub fn metadata(&self) -> Metadata {
        self.metadata.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answer to a request for a read version, which `version` gives.
    pub fn answer(&self, version: impl Fn() -> Version) -> Answer {
        let answer =
            Answer { version: version(), locked: false, range_locks: None, metadata_version: None };
        // Set before the version that it belongs to becomes known, and unset behind the one at
        // which nothing is left: if there is nothing, and the version is still the same, there was
        // nothing at that version.
        if !self.anything.load(Ordering::SeqCst) && version() == answer.version {
            return answer;
        }
        let metadata = self.metadata.read().unwrap_or_else(PoisonError::into_inner);
        let (range_locks, metadata_version) =
            (metadata.range_locks.clone(), metadata.metadata_version.clone());
        Answer {
            version: version(),
            locked: metadata.locked.is_some(),
            range_locks,
            metadata_version,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Whether there is anything to tell.
fn is_anything(metadata: &Metadata) -> bool {
    metadata.locked.is_some()
        || metadata.range_locks.is_some()
        || metadata.metadata_version.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_types::RangeLocks;

    /// Locks hold at odd versions.
    #[test]
    fn a_version_is_told_with_what_holds_there_while_locks_come_and_go() {
        let visible = Visible::new(0, Metadata::default(), Duration::ZERO);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut last = 0;
                        while last < 200_000 {
                            let answer = visible.answer(|| visible.applied.newest());
                            assert!(answer.version >= last);
                            last = answer.version;
                            assert_eq!(answer.range_locks.is_some(), last % 2 == 1, "at {last}");
                        }
                    })
                })
                .collect();
            for version in 1..=200_000 {
                let locks = (version % 2 == 1).then(|| RangeLocks::new(Vec::new()));
                visible.change(version, |metadata| metadata.range_locks = locks);
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }
}
