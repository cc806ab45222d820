//! How the one budget of memory is divided.
//!
//! ```text
//!   | writing | tables: indexes, filters | window, and what the pipeline keeps of the same writes | cache |
//!     fixed     as large as they are       up to its share, then writers wait                        the rest
//! ```
//!
//! Two fifths are kept for writes whether they need them or not: blocks that the cache lets go when
//! the window wants its memory back go to the allocator, not to the system, so that the process
//! would keep both. When the tables' part grows, that of writes shrinks, and
//! [`Engine::window_fullness`] makes whoever writes slow down; it never comes to a standstill for
//! that.

use super::Engine;
use super::state::State;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is known of the parts.
#[derive(Default)]
pub(super) struct Parts {
    /// Bytes that writes may have, by the last division.
    share: AtomicU64,
    /// Bytes that others keep of the writes in the window.
    elsewhere: AtomicU64,
}

impl Parts {
    pub fn note_elsewhere(&self, bytes: u64) {
        self.elsewhere.store(bytes, Ordering::Relaxed);
    }

    fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// Gives the cache what the others leave of the budget.
    pub(super) fn divide_memory(&self) {
        let budget = self.settings.memory;
        // A flush and a merge at once: a portion of the file, hashes and filter of each table, and
        // what the merge has read ahead.
        let writing = (32 << 20).min(budget / 8);
        let least_cache = budget / 16;
        let tables = self.tables_memory();
        let room = budget.saturating_sub(writing + least_cache + tables);
        // What is written lies in chunks of memory that are never quite full.
        self.parts.share.store((room / 4 * 3).max(budget / 8).max(1), Ordering::Relaxed);
        let writes = (self.window.bytes() as u64 + self.parts.elsewhere()).max(budget / 5 * 2);
        let cache = budget.saturating_sub(writes + tables + writing).max(least_cache);
        self.making.cache.set_capacity(usize::try_from(cache).unwrap_or(usize::MAX));
    }

    /// How full the part of writes is. What others keep fills half of it at most: the window can be
    /// emptied, what they need least of all can't.
    pub(super) fn window_fullness(&self) -> f32 {
        let share = self.parts.share.load(Ordering::Relaxed);
        let used = self.window.live() as u64 + self.parts.elsewhere().min(share / 2);
        used as f32 / share as f32
    }

    /// Bytes of memory of the tables without their blocks, those among them that only pinned
    /// snapshots need.
    pub(super) fn tables_memory(&self) -> u64 {
        let (state, pins) = (self.state(), self.lock_pins().clone());
        if pins.is_empty() {
            return state.memory() as u64;
        }
        let of_each = |state: &Arc<State>| -> Vec<_> {
            state.tables().map(|table| (table.id(), table.memory() as u64)).collect()
        };
        let each: BTreeMap<u64, u64> = pins.iter().chain([&state]).flat_map(of_each).collect();
        each.values().sum()
    }
}
