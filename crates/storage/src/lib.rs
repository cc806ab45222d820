//! Storage: what the database holds, at every version that a transaction may still read.
//!
//! ## Role
//! Input: batches of mutations in version order, each with the version of its commit, from one
//! writer. Output: reads at a version. A batch is invisible until it is published; readers at older
//! versions are not disturbed.
//!
//! ## Data structure
//! ```text
//!     versions ───────────────────────────────────────────▶
//!                  oldest                newest    applied
//!     ─ forgotten ───┼─────── window ──────┼─ hidden ─┤
//!                    │  reads allowed      │
//!     transaction_too_old            future_version
//! ```
//! An engine keeps the rows and the versions in the window: `memory` holds everything in one index
//! in memory ([`MemoryStorage`]), and its checkpoints on disk; `ssd` holds in memory what was
//! written in the window, and the rest in tables on disk ([`SsdStorage`]).
//!
//! ## Invariants
//! 1. A read at a published version of the window sees all batches up to it and nothing of later
//!    ones.
//! 2. Reads of `memory` take no lock and wait for nobody. Those of `ssd` do neither where memory
//!    has the answer; else they wait for the disk, and the cache of blocks has locks that are held
//!    for a lookup.
//! 3. Memory is bounded by the data, the window, and one old row for each key that a snapshot
//!    keeps.
//!
//! ## Not here
//! Durability of commits: `log`. Which version a transaction gets, and when the window moves:
//! `pipeline`.
//! Read next: [`Reader`], [`Writer`], `memory/mod.rs`, `ssd/mod.rs`, then `conformance` (with the
//! feature of that name).
#![deny(unsafe_code)]

pub mod checkpoint;
pub mod chunk;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod failure;
mod import;
mod memory;
mod removal;
mod sequential;
pub mod ssd;

pub use checkpoint::Pace;
pub use chunk::Chunk;
pub use failure::{Answer, StorageError, StorageResult};
pub use import::{Import, Taking};
pub use memory::{
    CheckpointFiles, Loaded, Loader, MemoryReader, MemoryReplay, MemoryStorage, Snapshot,
};
pub use ssd::{SsdFigures, SsdReader, SsdSettings, SsdStorage};

use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, LogPosition, MutationRef, RangeRead, RangeResult,
    Version,
};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// What a batch changed, as whoever asked for it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// A key whose value was written (the new value) or removed.
    Key(&'a [u8], Option<&'a [u8]>),
    /// A range, from the first key to before the second, of which all keys were removed. Told
    /// instead of the keys by an engine that would have to look for them.
    Range(&'a [u8], &'a [u8]),
}

/// Who is told of what a batch changes.
pub type Changed<'c> = Option<&'c mut dyn FnMut(Change<'_>)>;

/// The versions in the window over an engine, as everybody has them: reads, from any number of
/// threads, and figures.
///
/// Every read gives `TooOld` if its version is below [`Reader::oldest`] and
/// `Future` if it is above [`Reader::newest`].
pub trait Reader: Send + Sync {
    /// The values of the keys at `version`, in their order. Keys that `space` does not show have
    /// none, but for the metadata version's key.
    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Answer<Vec<Option<Bytes>>>;

    /// The key that a selector describes at `version`: empty before the first one, the end of the
    /// space after the last one. Costs a step for each key that the offset passes.
    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Answer<Bytes>;

    /// The rows from the key that the begin selector describes up to, and without, the one that the
    /// end selector does.
    ///
    /// One reply holds at most about 1 GiB, whatever the target. The row with which the bytes reach
    /// the target is included. `more` is set when limit or target ended the read, be it exactly at
    /// the end of the range. `read_to_begin` is set when the begin selector would have moved before
    /// the first key, `read_through_end` when the end selector would have moved beyond the place
    /// behind the last key: then a new key at that end would change the rows.
    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead)
    -> Answer<RangeResult>;

    /// Allows reads up to `version`, of which all batches have been applied. Versions pass without
    /// batches too.
    fn publish(&self, version: Version);

    /// The newest version that may be read.
    fn newest(&self) -> Version;

    /// The oldest version that may be read.
    fn oldest(&self) -> Version;

    /// Key and value bytes of the rows in a range, estimated, at about the newest version.
    fn range_size(&self, begin: &[u8], end: &[u8]) -> u64;

    /// How many rows a range has, estimated, at about the newest version: unless an engine knows
    /// better, as many as there are of all rows in so many bytes.
    fn range_count(&self, begin: &[u8], end: &[u8]) -> u64 {
        let part = self.range_size(begin, end) as f64 / self.data_bytes().max(1) as f64;
        (part.min(1.0) * self.count() as f64).round() as u64
    }

    /// Keys that split a range into pieces of about `chunk` bytes each, `begin` first and `end`
    /// last; `begin` alone if the range is empty. At most 65,536 pieces.
    fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes>;

    /// What the memory is used for.
    fn memory(&self) -> Memory;

    /// How many rows there are, at about the newest version; an engine may estimate it.
    fn count(&self) -> u64;

    /// Key and value bytes of all rows, in memory and on disk; an engine may estimate it.
    fn data_bytes(&self) -> u64 {
        self.memory().data
    }

    /// How full the memory for the window is: at 1 and above nothing more should be written before
    /// some of it has been given back, and on the way there it should be written more slowly.
    fn fullness(&self) -> f32 {
        0.0
    }

    /// Takes note of the bytes of memory that others keep of the writes in the window, such as the
    /// keys that conflicts are found by. An engine with a budget counts them as part of it.
    fn note_elsewhere(&self, bytes: usize) {
        let _ = bytes;
    }

    /// The engine's files have everything up to this entry of the log, which is needed from the
    /// next one on.
    fn durable(&self) -> LogPosition;

    /// How much has yet to be merged, as a share of what may wait: at 1 nothing is flushed any
    /// more.
    fn backlog(&self) -> f32 {
        0.0
    }

    /// Why files can't be written at the moment by what the engine does by itself, if so.
    fn trouble(&self) -> Option<StorageError> {
        None
    }

    /// The first damage that a read met with since it was opened, and how many times any was met
    /// with.
    fn damage(&self) -> Option<(StorageError, u64)> {
        None
    }

    /// Files that count, and their bytes, that are not sealed by the newest of the keys that were
    /// given.
    fn outdated(&self) -> (u64, u64) {
        (0, 0)
    }

    /// What an engine with tables has done and has.
    fn tables(&self) -> Option<SsdFigures> {
        None
    }

    /// Bytes of disk that have to be free for [`Writer::flush`] and what follows it.
    fn room_to_work(&self) -> u64;

    /// Waits until the engine has ended all it does by itself. What is not in its files is in the
    /// log.
    fn close(&self) -> Waiting<()>;
}

/// What methods give that take their time: a boxed future.
pub type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What was looked up for a batch, without which it can't be applied. Only [`Writer::prepare`]
/// makes one.
#[derive(Default, Debug)]
pub struct Prepared {
    /// What keys hold that an atomic operation of the batch will change, as far as the engine has
    /// to be asked.
    bases: BTreeMap<Bytes, Option<Bytes>>,
}

/// The one who changes a store: batches in version order, the window, what is in files.
pub trait Writer: Send {
    /// The same store for everybody else.
    fn reader(&self) -> Arc<dyn Reader>;

    /// Looks up what must be known before a batch can be applied: what its atomic operations
    /// change. Nothing else may be applied before it.
    fn prepare(&mut self, mutations: &mut dyn Iterator<Item = MutationRef<'_>>)
    -> Answer<Prepared>;

    /// Applies a batch, the entry of the log at this position, in order. Atomic operations see what
    /// the mutations before them left; versionstamped ones have become `Set` before. Versions
    /// ascend; a batch may be given in parts of one version. Nobody sees it before it is published.
    ///
    /// A `ClearRange` may cost a step for each key in memory that it removes; it never blocks
    /// readers.
    ///
    /// # Panics
    /// If its version is published already, or below that of the batch before; if another batch was
    /// prepared.
    fn apply(
        &mut self,
        prepared: Prepared,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
        changed: Changed<'_>,
    );

    /// Ends the window at `version` (or at the newest version, if that is older; it never moves
    /// back), at once, and reclaims what only older versions needed: at most about `budget` rows in
    /// this call. True if there is more to reclaim: then call again, with the same version, when
    /// there is time.
    fn forget_before(&mut self, version: Version, budget: usize) -> bool;

    /// Pins the newest version that the engine can keep, and writes what has to be in files for
    /// that: `memory` keeps the newest one, `ssd` the one that its tables have, which is a window's
    /// length and a flush behind.
    ///
    /// # Errors
    /// Those of writing files.
    fn pin(&mut self) -> Answer<Box<dyn PinnedVersion>>;

    /// Brings into files what the engine can: `memory` writes a checkpoint of the newest version,
    /// `ssd` moves what has left the window into tables. Commits go on meanwhile. After an error
    /// everything is as it was, but that old files may be left; may be dropped at any await.
    ///
    /// # Errors
    /// Those of writing files, of which a full disk is the likely one; `Unsupported` for
    /// an engine without a directory.
    fn flush(&mut self, pace: Pace) -> Waiting<StorageResult<Flushed>>;

    /// Checks what must hold. Slow: for tests and simulation.
    ///
    /// # Panics
    /// If it doesn't.
    fn check_invariants(&self);
}

/// What a flush has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flushed {
    /// The engine's files have everything up to here.
    pub at: LogPosition,
    /// The longest that the disk was kept busy in one go, as far as that was measured.
    pub longest_step: Duration,
}

/// One version of a store, which stays readable until this is dropped, whatever becomes of the
/// window.
///
/// With `memory` it costs at most one old row for each key that is written meanwhile; with `ssd`
/// the table files that would have gone. Reads are those of [`Reader`], without the version.
pub trait PinnedVersion: Send + Sync {
    /// The version.
    fn version(&self) -> Version;

    /// The last batch in it: what is pinned is everything up to there, and nothing behind it.
    fn position(&self) -> LogPosition;

    /// As [`Reader::get_many`].
    fn get_many(&self, space: KeySpace, keys: &KeyList) -> Answer<Vec<Option<Bytes>>>;

    /// As [`Reader::get_key`].
    fn get_key(&self, space: KeySpace, selector: &KeySelector) -> Answer<Bytes>;

    /// As [`Reader::get_range`].
    fn get_range(&self, space: KeySpace, read: &RangeRead) -> Answer<RangeResult>;

    /// The rows from `begin` up to, and without, `end`, system rows too, as many as make about so
    /// many bytes: at least one, if there are any. The next chunk begins where this one ends, and
    /// the last one ends at `end`. Takes no room in a cache.
    fn export(&self, begin: &[u8], end: &[u8], target_bytes: usize) -> Answer<Chunk>;

    /// As [`Reader::range_size`].
    fn range_size(&self, begin: &[u8], end: &[u8]) -> u64;

    /// As [`Reader::split_points`].
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
