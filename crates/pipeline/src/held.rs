//! The snapshots that clients hold: what each keeps, until it is dropped or ended.
//!
//! ```text
//!   Held    [ oldest, ..., newest ]      who lacks room ends the oldest (`backpressure.rs`)
//!              weak ┆
//!   PinnedSnapshot ─▶ Kept ─▶ a version of the storage, or nothing any more (`pinned.rs`)
//! ```
//!
//! Always: what was ended is let go of as soon as nobody reads it, whoever still holds the
//! snapshot.

use crate::batch_lock::lock;
use crate::failure::{NodeError, NodeResult};
use plinth_storage::PinnedVersion;
use plinth_types::Version;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

/// What a snapshot keeps; `None` once it was ended.
pub(crate) struct Kept(RwLock<Option<Arc<dyn PinnedVersion>>>);

impl Kept {
    /// What it keeps.
    ///
    /// # Errors
    /// `Gone` once it was ended.
    pub fn read(&self) -> NodeResult<Arc<dyn PinnedVersion>> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        kept.clone().ok_or_else(ended)
    }

    /// Lets go of it; gives its version, if that wasn't done before. Reads under way end.
    fn end(&self) -> Option<Version> {
        let kept = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        kept.map(|kept| kept.version())
    }
}

#[cold]
fn ended() -> NodeError {
    let what = "this pinned snapshot was ended: what it kept would have left others no room to write; pin another one";
    NodeError::Gone(what.into())
}

/// The snapshots that are held, in the order in which they were pinned.
#[derive(Default)]
pub(crate) struct Held {
    kept: Mutex<Vec<Weak<Kept>>>,
    /// When one was ended last.
    ended: Mutex<Option<Duration>>,
}

/// What one kept goes little by little: another one isn't ended before that.
const PAUSE: Duration = Duration::from_millis(500);

impl Held {
    /// One more, which is held until this and its clones have gone.
    pub fn keep(&self, pinned: Box<dyn PinnedVersion>) -> Arc<Kept> {
        let kept = Arc::new(Kept(RwLock::new(Some(pinned.into()))));
        let mut held = lock(&self.kept);
        held.retain(|kept| kept.strong_count() > 0);
        held.push(Arc::downgrade(&kept));
        kept
    }

    /// Ends the oldest one, unless another one was ended a moment ago; gives its version, if there
    /// was one.
    pub fn end_oldest(&self, now: Duration) -> Option<Version> {
        if lock(&self.ended).is_some_and(|ended| now < ended + PAUSE) {
            return None;
        }
        loop {
            let oldest = {
                let mut held = lock(&self.kept);
                let count = held.len();
                held.drain(..count.min(1)).next()?
            };
            // Outside the lock: it may have files to remove.
            if let Some(version) = oldest.upgrade().and_then(|kept| kept.end()) {
                *lock(&self.ended) = Some(now);
                return Some(version);
            }
        }
    }
}
