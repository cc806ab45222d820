//! What readers may see: the newest version, and what every new transaction is told besides it: the
//! locks, and the metadata version.
//!
//! They change rarely and are asked for with every read version, so the usual answer (no lock, no
//! metadata version) is one atomic load. When there is something to tell, version and metadata are
//! changed and read under one lock, for a reader must not get the one without the other.

use crate::metadata::Metadata;
use crate::versions::Applied;
use plinth_types::{Bytes, RangeLocks, Version};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// What readers may see.
pub(crate) struct Visible {
    /// The version that they may be at.
    pub applied: Applied,
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
    pub fn new(newest: Version, metadata: Metadata) -> Self {
        Self {
            applied: Applied::new(newest),
            anything: AtomicBool::new(is_anything(&metadata)),
            metadata: RwLock::new(metadata),
        }
    }

    /// Makes `version` known, with metadata that changed there.
    pub fn change(&self, version: Version, change: impl FnOnce(&mut Metadata)) {
        let mut metadata = self.metadata.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut metadata);
        self.anything.store(is_anything(&metadata), Ordering::SeqCst);
        self.applied.reach(version);
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
        // Set before the version that it belongs to became known: who sees that version sees the
        // flag.
        if !self.anything.load(Ordering::SeqCst) {
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

/// Whether there is anything to tell.
fn is_anything(metadata: &Metadata) -> bool {
    metadata.locked.is_some()
        || metadata.range_locks.is_some()
        || metadata.metadata_version.is_some()
}
