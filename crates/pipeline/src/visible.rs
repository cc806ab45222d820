//! What every new transaction is told besides its read version: the lock, and the metadata version.
//!
//! Both change rarely and are asked for with every read version, so the usual answer (no lock, no
//! metadata version) is one atomic load. When there is something to tell, version and metadata are
//! changed and read under one lock, for a reader must not get the one without the other.

use crate::metadata::Metadata;
use plinth_types::{Bytes, Version};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

#[derive(Default)]
pub(crate) struct Visible {
    anything: AtomicBool,
    told: RwLock<Told>,
}

#[derive(Clone, Default)]
struct Told {
    locked: bool,
    metadata_version: Option<Bytes>,
}

/// A read version with what belongs to it.
pub(crate) struct Answer {
    pub version: Version,
    pub locked: bool,
    pub metadata_version: Option<Bytes>,
}

impl Visible {
    /// As of a start.
    pub fn new(metadata: &Metadata) -> Self {
        let visible = Self::default();
        visible.change(metadata, || {});
        visible
    }

    /// Shows `metadata`; `commit` makes the version known at which it holds.
    pub fn change(&self, metadata: &Metadata, commit: impl FnOnce()) {
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        *told =
            Told { locked: metadata.locked.is_some(), metadata_version: metadata.metadata_version.clone() };
        self.anything.store(told.locked || told.metadata_version.is_some(), Ordering::SeqCst);
        commit();
    }

    /// The answer to a request for a read version, which `version` gives.
    pub fn answer(&self, version: impl Fn() -> Version) -> Answer {
        let answer = Answer { version: version(), locked: false, metadata_version: None };
        // Set before the version that it belongs to became known: who sees that version sees the flag.
        if !self.anything.load(Ordering::SeqCst) {
            return answer;
        }
        let told = self.told.read().unwrap_or_else(PoisonError::into_inner);
        Answer { version: version(), locked: told.locked, metadata_version: told.metadata_version.clone() }
    }
}
