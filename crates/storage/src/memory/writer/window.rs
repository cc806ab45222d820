//! The window: versions that a running transaction may still read, and what is cleaned up when they
//! leave it.
//!
//! Each record that replaced another, and each tombstone, stands in a queue in the order of
//! versions. When its version is at or below the oldest readable one, everything older of its key
//! is unreadable: the chain is cut behind it, and a tombstone that is still the newest record takes
//! its key's entry with it.
//!
//! A version that is *held* (by a checkpoint, or a pinned snapshot) keeps the record it reads, and
//! no other: such records are put aside and looked at again when a hold ends. So a long hold costs
//! at most one record more for each key that is written meanwhile.

use super::super::arena::Arena;
use super::super::record::{self, Record, RecordRef};
use super::super::tree::Path;
use super::Writer;
use plinth_env::prefetch;
use plinth_types::{Version, probe};
use std::collections::VecDeque;
use std::ptr::NonNull;

const BLOCK: usize = 1024;
const AHEAD: usize = 8;

/// Of what cleaning up leaves of a budget, compaction gets one part in so many: it can wait, and
/// each row that it moves is a way down the tree. With all of it, half a million writes a second
/// became 130,000 for as long as a round took.
pub(super) const COMPACTION_SHARE: usize = 32;

/// Records to clean up behind, and where that stands.
#[derive(Default)]
pub(super) struct Window {
    /// Blocks of the queue, full ones but for the last; each record once, versions ascending.
    queue: VecDeque<Vec<NonNull<Record>>>,
    /// How many of the first block are done.
    done: usize,
    /// Records below others that only a held version reads.
    kept: Vec<NonNull<Record>>,
    /// Bytes of those records.
    kept_bytes: usize,
    /// How many of `kept` are to be looked at again.
    recheck: usize,
    /// The held versions below the window, ascending.
    held: Vec<Version>,
}

impl Window {
    pub(super) fn push(&mut self, record: NonNull<Record>) {
        match self.queue.back_mut() {
            Some(block) if block.len() < BLOCK => block.push(record),
            _ => {
                let mut block = Vec::with_capacity(if self.queue.is_empty() { 16 } else { BLOCK });
                block.push(record);
                self.queue.push_back(block);
            }
        }
    }

    /// Forgets what is in the queue.
    pub(super) fn clear(&mut self) {
        if !self.queue.is_empty() {
            self.queue.clear();
            self.done = 0;
        }
    }

    /// Bytes of the queue.
    pub(super) fn bytes(&self) -> usize {
        (self.queue.len() * BLOCK + self.kept.capacity()) * size_of::<NonNull<Record>>()
    }

    /// Bytes of records that are there for held versions alone.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// # Panics
    /// If the bytes of kept records are not theirs.
    pub(super) fn check_counts(&self) {
        // SAFETY: a kept record is freed only when its entry goes.
        let kept = self.kept.iter().map(|record| bytes(unsafe { RecordRef::new(*record) }));
        assert_eq!(
            kept.sum::<usize>(),
            self.kept_bytes,
            "bytes of records that held versions keep"
        );
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.kept.is_empty()
    }

    /// The first record of the queue.
    fn front(&self) -> Option<RecordRef<'_>> {
        let block = self.queue.front()?;
        if let Some(ahead) = block.get(self.done + AHEAD) {
            prefetch(ahead.as_ptr().cast());
        }
        // SAFETY: a record is freed only by those who have taken its entry from the queue.
        block.get(self.done).map(|record| unsafe { RecordRef::new(*record) })
    }

    fn pop(&mut self) {
        self.done += 1;
        if self.queue.front().is_some_and(|block| block.len() == self.done) {
            self.queue.pop_front();
            self.done = 0;
        }
    }

    /// Whether a held version reads the record of version `at` below one of version `above`.
    fn is_held(&self, at: Version, above: Version) -> bool {
        let first = self.held.partition_point(|held| *held < at);
        self.held.get(first).is_some_and(|held| *held < above)
    }
}

/// Bytes that a record takes.
fn bytes(record: RecordRef<'_>) -> usize {
    Arena::rounded(record::OVERHEAD + record.key().len() + record.value().map_or(0, <[u8]>::len))
}

impl Writer {
    /// Moves the window to `version` and cleans up, but no more than about `budget` records.
    /// Whether there is more to do.
    pub(crate) fn forget_before(&mut self, version: Version, budget: usize) -> bool {
        self.window.held = self.core.raise_oldest(version.min(self.core.newest()));
        let horizon = self.core.oldest();
        if self.core.take_released() {
            self.window.recheck = self.window.kept.len();
        }
        let mut left = budget;
        while left > 0 && self.clean_next(horizon) {
            left -= 1;
            self.collect_some();
        }
        while left > 0 && self.recheck_next(horizon) {
            left -= 1;
            self.collect_some();
        }
        if self.window.kept.is_empty() {
            self.window.kept = Vec::new();
        }
        let cleaned =
            self.window.front().map_or(horizon, |record| record.version() - 1).min(horizon);
        let more = left == 0 || self.compact(cleaned, left.div_ceil(COMPACTION_SHARE));
        let uncollected = self.collect();
        self.publish_figures();
        more || uncollected || self.window.recheck > 0
    }

    /// Cleans up behind the first record of the queue, if its version has reached the horizon.
    fn clean_next(&mut self, horizon: Version) -> bool {
        let Some(record) = self.window.front().map(RecordRef::as_ptr) else { return false };
        // SAFETY: what is in the queue is live, and nothing is collected before this is over.
        let record = unsafe { RecordRef::new(record) };
        if record.version() > horizon {
            return false;
        }
        self.window.pop();
        if let Some(prev) = record.prev() {
            if self.window.is_held(prev.version(), record.version()) {
                probe!("storage: old row kept for a checkpoint");
                self.window.kept.push(prev.as_ptr());
                self.window.kept_bytes += bytes(prev);
            } else {
                self.cut(record, prev);
            }
        }
        if record.is_tombstone() {
            self.remove_if_dead(record);
        }
        true
    }

    /// Takes `prev` out from below `record`.
    fn cut(&mut self, record: RecordRef<'_>, prev: RecordRef<'_>) {
        // Older ones below `prev` were cut when its own turn came, but for those that are held.
        record.set_prev(if self.window.kept.is_empty() { None } else { prev.prev() });
        self.garbage.retire(prev.as_ptr());
    }

    /// Removes the entry of a tombstone that has nothing above it or below it.
    fn remove_if_dead(&mut self, tombstone: RecordRef<'_>) {
        if tombstone.prev().is_some() {
            return;
        }
        let path = Path::descend(self.root(), tombstone.key());
        let found =
            path.find(tombstone.key()).filter(|(_, newest)| newest.as_ptr() == tombstone.as_ptr());
        if let Some((at, _)) = found {
            self.remove_entry(&path, at);
            self.garbage.retire(tombstone.as_ptr());
        }
    }

    /// Looks at one record again that a held version kept. False if there is none to look at.
    fn recheck_next(&mut self, horizon: Version) -> bool {
        let Some(at) = self.window.recheck.checked_sub(1) else { return false };
        self.window.recheck = at;
        // SAFETY: kept records are freed only here.
        let kept = unsafe { RecordRef::new(self.window.kept[at]) };
        let path = Path::descend(self.root(), kept.key());
        let (_, newest) = path.find(kept.key()).expect("a chain with a kept record has an entry");
        let mut above = newest;
        loop {
            let prev = above.prev().expect("a kept record is below its key's newest one");
            if prev.as_ptr() == kept.as_ptr() {
                break;
            }
            above = prev;
        }
        if self.window.is_held(kept.version(), above.version()) {
            return true;
        }
        self.window.kept_bytes -= bytes(kept);
        self.cut(above, kept);
        self.window.kept.swap_remove(at);
        if above.as_ptr() == newest.as_ptr() && newest.is_tombstone() && newest.version() <= horizon
        {
            self.remove_if_dead(newest);
        }
        true
    }
}
