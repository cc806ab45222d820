//! Storage: what the database holds, at every version that a transaction may still read.
//!
//! ## Role
//! Input: batches of mutations in version order, each with the version of its commit, from one writer.
//! Output: reads at a version. A batch is invisible until it is published; readers at older versions are
//! not disturbed.
//!
//! ## Data structure
//! ```text
//!     versions ───────────────────────────────────────────▶
//!                  oldest                newest    applied
//!     ─ forgotten ───┼─────── window ──────┼─ hidden ─┤
//!                    │  reads allowed      │
//!     transaction_too_old            future_version
//! ```
//! An engine keeps the rows and the versions in the window: `memory` holds everything in one index in
//! memory ([`MemoryStorage`]), and its checkpoints on disk; `ssd` holds in memory what was written in the window,
//! and the rest in tables on disk ([`SsdStorage`]).
//!
//! ## Invariants
//! 1. A read at a published version of the window sees all batches up to it and nothing of later ones.
//! 2. Reads of `memory` take no lock and wait for nobody. Those of `ssd` do neither where memory has the answer; else they wait for
//!    the disk, and the cache of blocks has locks that are held for a lookup.
//! 3. Memory is bounded by the data, the window, and one old row for each key that a snapshot keeps.
//!
//! ## Not here
//! Durability of commits: `log`. Which version a transaction gets, and when the window moves: `pipeline`.
//! Read next: [`Storage`], `memory/mod.rs`, `ssd/mod.rs`, then `conformance` (with the feature of that name).
#![deny(unsafe_code)]

pub mod checkpoint;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod memory;
mod removal;
pub mod ssd;

pub use memory::{Loader, MemoryReplay, MemoryStorage, Snapshot};
pub use ssd::{SsdSettings, SsdStorage};

use plinth_env::Reply;
use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, LogPosition, MutationRef, RangeRead, RangeResult, Version,
};

/// What a batch changed, as whoever asked for it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// A key whose value was written (the new value) or removed.
    Key(&'a [u8], Option<&'a [u8]>),
    /// A range, from the first key to before the second, of which all keys were removed. Told instead of the keys
    /// by an engine that would have to look for them.
    Range(&'a [u8], &'a [u8]),
}

/// Who is told of what a batch changes.
pub type Changed<'c> = Option<&'c mut dyn FnMut(Change<'_>)>;

/// The versions in the window over an engine, as the pipeline and the endpoint see them.
///
/// Reads may be asked for from any number of threads. The methods that change something are the writer's:
/// one caller at a time, others wait.
///
/// Every read gives `transaction_too_old` if its version is below [`Storage::oldest`] and `future_version`
/// if it is above [`Storage::newest`].
pub trait Storage: Send + Sync {
    /// The values of the keys at `version`, in their order. Keys that `space` does not show have none,
    /// but for the metadata version's key.
    fn get_many(&self, version: Version, space: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>>;

    /// The key that a selector describes at `version`: empty before the first one, the end of the space
    /// after the last one. Costs a step for each key that the offset passes.
    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes>;

    /// The rows from the key that the begin selector describes up to, and without, the one that the end
    /// selector does.
    ///
    /// One reply holds at most about 1 GiB, whatever the target. The row with which the bytes reach the
    /// target is included. `more` is set when limit or target ended the read, be it exactly at the end
    /// of the range. `read_to_begin` is set when the begin selector would have moved before the first
    /// key, `read_through_end` when the end selector would have moved beyond the place behind the last
    /// key: then a new key at that end would change the rows.
    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult>;

    /// Looks up what must be known before a batch can be applied: what its atomic operations change. At most one
    /// batch is between this and [`Storage::apply`].
    fn prepare(&self, mutations: &mut dyn Iterator<Item = MutationRef<'_>>) -> Reply<()> {
        let _ = mutations;
        Reply::ready(Ok(()))
    }

    /// Applies a batch, the entry of the log at this position, in order. Atomic operations see what the mutations before them left; versionstamped
    /// ones have become `Set` before. Versions ascend; a batch may be given in parts of one version. Nobody
    /// sees it before it is published.
    ///
    /// [`Storage::prepare`] has been given the same mutations before, and has answered.
    ///
    /// A `ClearRange` may cost a step for each key in memory that it removes; it never blocks readers.
    ///
    /// # Panics
    /// If its version is published already, or below that of the batch before; if the batch was not prepared.
    fn apply(
        &self,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
        changed: Changed<'_>,
    );

    /// Allows reads up to `version`, of which all batches have been applied.
    fn publish(&self, version: Version);

    /// The newest version that may be read.
    fn newest(&self) -> Version;

    /// The oldest version that may be read.
    fn oldest(&self) -> Version;

    /// Ends the window at `version` (or at the newest version, if that is older; it never moves back), at
    /// once, and reclaims what only older versions needed: at most about `budget` rows in this call.
    /// True if there is more to reclaim: then call again, with the same version, when there is time.
    fn forget_before(&self, version: Version, budget: usize) -> bool;

    /// Key and value bytes of the rows in a range, estimated, at about the newest version.
    fn range_size(&self, begin: &[u8], end: &[u8]) -> u64;

    /// Keys that split a range into pieces of about `chunk` bytes each, `begin` first and `end` last;
    /// `begin` alone if the range is empty. At most 65,536 pieces.
    fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes>;

    /// What the memory is used for.
    fn memory(&self) -> Memory;

    /// How many rows there are, at about the newest version; an engine may estimate it.
    fn count(&self) -> u64;

    /// Key and value bytes of all rows, in memory and on disk; an engine may estimate it.
    fn data_bytes(&self) -> u64 {
        self.memory().data
    }

    /// How full the memory for the window is: at 1 and above nothing more should be written before some of it
    /// has been given back, and on the way there it should be written more slowly.
    fn fullness(&self) -> f32 {
        0.0
    }

    /// Pins the newest version that the engine can keep, and writes what has to be in files for that: `memory` keeps the newest
    /// one, `ssd` the one that its tables have, which is a window's length and a flush behind.
    ///
    /// # Errors
    /// Those of writing files.
    fn pin(&self) -> Reply<Box<dyn PinnedVersion>>;

    /// Takes note of the bytes of memory that others keep of the writes in the window, such as the keys that conflicts are found by. An
    /// engine with a budget counts them as part of it.
    fn note_elsewhere(&self, bytes: usize) {
        let _ = bytes;
    }
}

/// One version of a store, which stays readable until this is dropped, whatever becomes of the window.
///
/// With `memory` it costs at most one old row for each key that is written meanwhile; with `ssd` the table files that would have gone.
/// Reads are those of [`Storage`], without the version.
pub trait PinnedVersion: Send + Sync {
    /// The version.
    fn version(&self) -> Version;

    /// The last batch in it: what is pinned is everything up to there, and nothing behind it.
    fn position(&self) -> LogPosition;

    /// As [`Storage::get_many`].
    fn get_many(&self, space: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>>;

    /// As [`Storage::get_key`].
    fn get_key(&self, space: KeySpace, selector: &KeySelector) -> Reply<Bytes>;

    /// As [`Storage::get_range`].
    fn get_range(&self, space: KeySpace, read: &RangeRead) -> Reply<RangeResult>;

    /// As [`Storage::range_size`].
    fn range_size(&self, begin: &[u8], end: &[u8]) -> u64;

    /// As [`Storage::split_points`].
    fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes>;
}

/// Bytes of memory, all that the store has taken from the system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Memory {
    /// Keys and values of the newest rows.
    pub data: u64,
    /// What it takes to find them: nodes, heads of records, rounding, free space.
    pub index: u64,
    /// Older versions, removed keys, and what waits to be freed.
    pub window: u64,
    /// Of those, rows that are kept for pinned versions alone.
    pub pinned: u64,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.data + self.index + self.window
    }
}
