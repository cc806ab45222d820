//! What readers and the writer share: the root, the versions, the epochs.
//!
//! The order of two stores makes reads right without locks: the writer publishes a version after
//! all of it is in the tree, and moves the window before it cuts what left it. So a reader that
//! looks at `newest` before it walks and at `oldest` after it has either seen all of its version or
//! is told that it came too late.

use super::epoch::{Epochs, Pin};
use super::node::{Header, NodeRef};
use crate::failure::{StorageError, StorageResult};
use plinth_types::Version;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The shared part of a store.
pub(crate) struct Core {
    root: AtomicPtr<Header>,
    newest: AtomicI64,
    oldest: AtomicI64,
    pub(crate) epochs: Epochs,
    pub(crate) figures: Figures,
    held: Mutex<BTreeMap<Version, usize>>,
    released: AtomicBool,
}

/// Counts that the writer keeps up to date for whoever asks.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) rows: AtomicU64,
    pub(crate) reserved: AtomicU64,
    pub(crate) window: AtomicU64,
    pub(crate) pinned: AtomicU64,
}

impl Core {
    /// # Safety
    /// `root` is a finished node, and whatever is reachable from the root stays allocated while a
    /// reader who could reach it is pinned.
    pub(crate) unsafe fn new(root: NonNull<Header>, version: Version) -> Self {
        Self {
            root: AtomicPtr::new(root.as_ptr()),
            newest: AtomicI64::new(version),
            oldest: AtomicI64::new(version),
            epochs: Epochs::new(),
            figures: Figures::default(),
            held: Mutex::default(),
            released: AtomicBool::new(false),
        }
    }

    /// The root, for as long as the pin is held.
    #[inline(always)]
    pub(crate) fn root<'p>(&self, _pin: &'p Pin<'_>) -> NodeRef<'p> {
        // SAFETY: what can be reached while the pin is held is not freed before it is dropped.
        unsafe { self.writers_root() }
    }

    /// The root, for the writer.
    ///
    /// # Safety
    /// The caller is the writer, and lets go of all it reaches from here before it frees garbage.
    #[inline(always)]
    pub(crate) unsafe fn writers_root<'a>(&self) -> NodeRef<'a> {
        // SAFETY: the root is never null; it is live by the promise of whoever calls.
        unsafe { NodeRef::new(NonNull::new_unchecked(self.root.load(Ordering::Acquire))) }
    }

    /// Makes `root` the root. Writer only.
    pub(crate) fn set_root(&self, root: NonNull<Header>) {
        self.root.store(root.as_ptr(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn newest(&self) -> Version {
        self.newest.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn oldest(&self) -> Version {
        self.oldest.load(Ordering::Acquire)
    }

    /// Lets readers see everything up to `version`.
    pub(crate) fn publish(&self, version: Version) {
        assert!(version >= self.newest(), "versions are published in order");
        self.newest.store(version, Ordering::Release);
    }

    /// Whether `version` may be read, before a read.
    #[inline]
    pub(crate) fn check(&self, version: Version) -> StorageResult<()> {
        let newest = self.newest();
        if version > newest {
            let detail = format!("version {version} was asked for, the newest is {newest}");
            return Err(StorageError::Future(detail.into()));
        }
        self.check_again(version)
    }

    /// Whether `version` could still be read all the time up to now, after a read.
    #[inline]
    pub(crate) fn check_again(&self, version: Version) -> StorageResult<()> {
        // Whoever followed a link that the writer cut sees here that the window had moved before.
        fence(Ordering::Acquire);
        let oldest = self.oldest.load(Ordering::Relaxed);
        if version < oldest { Err(too_old(version, oldest)) } else { Ok(()) }
    }

    /// Moves the window. Gives the versions below it that are held. Writer only.
    pub(crate) fn raise_oldest(&self, version: Version) -> Vec<Version> {
        let held = self.lock_held();
        if version > self.oldest() {
            self.oldest.store(version, Ordering::Release);
        }
        held.keys().copied().collect()
    }

    /// Keeps `version` readable to the holder, whatever becomes of the window.
    #[cfg(test)]
    pub(crate) fn hold(self: &Arc<Self>, version: Version) -> StorageResult<Held> {
        let mut held = self.lock_held();
        self.check(version)?;
        *held.entry(version).or_insert(0) += 1;
        Ok(Held { core: self.clone(), version })
    }

    /// Keeps the newest version readable. It can't have left the window: that moves under the same
    /// lock, and not beyond it.
    pub(crate) fn hold_newest(self: &Arc<Self>) -> Held {
        let mut held = self.lock_held();
        let version = self.newest();
        *held.entry(version).or_insert(0) += 1;
        Held { core: self.clone(), version }
    }

    /// Whether a held version has been let go since this was asked last.
    pub(crate) fn take_released(&self) -> bool {
        self.released.swap(false, Ordering::AcqRel)
    }

    fn lock_held(&self) -> MutexGuard<'_, BTreeMap<Version, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cold]
fn too_old(version: Version, oldest: Version) -> StorageError {
    let detail = format!("version {version} was asked for, the oldest is {oldest}");
    StorageError::TooOld(detail.into())
}

/// A version that stays readable while this lives, though the window moves on.
pub(crate) struct Held {
    core: Arc<Core>,
    version: Version,
}

impl Held {
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.core.lock_held();
        if let Some(holders) = held.get_mut(&self.version) {
            *holders -= 1;
            if *holders == 0 {
                held.remove(&self.version);
            }
        }
        self.core.released.store(true, Ordering::Release);
    }
}
