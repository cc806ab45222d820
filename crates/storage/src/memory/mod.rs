//! The engine `memory`: the whole data set, and the window's versions of it, in one ordered index
//! in memory.
//!
//! ```text
//!                    ┌────────┐
//!        root ──────▶│ inner  │         readers: pin an epoch, walk, copy, unpin; no lock, no waiting
//!                    └─┬────┬─┘         writer:  one at a time, behind a mutex that readers never take
//!              ┌───────┘    └──────┐
//!          ┌───▼──┐            ┌───▼──┐
//!          │ leaf │            │ leaf │  63 × (8 bytes of key, pointer)
//!          └─┬─┬──┘            └──────┘
//!            │ └──────────────┐
//!       ┌────▼──────────┐ ┌───▼───────────┐
//!       │ k1 @ 90 "new" │ │ k2 @ 40 "val" │   records: one version of one key each
//!       └────┬──────────┘ └───────────────┘
//!       ┌────▼──────────┐
//!       │ k1 @ 70 "old" │                     older versions, until they leave the window
//!       └───────────────┘
//! ```
//!
//! Read next: [`node`], [`tree`], [`read`], then [`writer`], [`epoch`] and [`arena`].

#[expect(unsafe_code, reason = "hands out memory")]
mod arena;
mod check;
#[expect(unsafe_code, reason = "says how long what the root leads to is live")]
mod core;
mod epoch;
mod estimate;
mod load;
#[expect(unsafe_code, reason = "nodes are read while their slots change; measured hot path")]
mod node;
mod overlay;
mod read;
#[expect(unsafe_code, reason = "key and value lie behind the head; measured hot path")]
mod record;
mod tree;
#[expect(unsafe_code, reason = "decides when nodes and records are freed")]
mod writer;

#[cfg(test)]
mod tests;

pub use load::Loaded;
pub(crate) use overlay::{Overlay, OverlayWriter, Seen};
pub(crate) use read::place;
pub(crate) use tree::GROUP;

use crate::checkpoint::{self, Pace, Source};
use crate::chunk::{self, Chunk};
use crate::failure::{Answer, StorageError, StorageResult};
use crate::{Changed, Flushed, Memory, PinnedVersion, Prepared, Reader, Waiting};
use core::{Core, Held};
use plinth_env::{Env, Reply};
use plinth_format::Owner;
use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, LogPosition, MutationRef, RangeRead, RangeResult,
    Version, key_after,
};
use read::View;
use std::future::ready;
use std::ops::{ControlFlow, Deref};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use writer::{Filling, Replaying, Writer};

/// All data in memory: the one who writes to it. Derefs to what everybody else has.
pub struct MemoryStorage {
    reader: MemoryReader,
    /// Always there, until this is dropped.
    writer: Option<Writer>,
    files: Option<CheckpointFiles>,
}

/// A store in memory, for its readers. A handle: clones are the same store.
#[derive(Clone)]
pub struct MemoryReader {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    /// The memory that can be reached from the core's root, once nobody writes to it any more.
    /// Readers may go on.
    left: Mutex<Option<Writer>>,
    /// What the newest checkpoint has.
    durable: Mutex<LogPosition>,
    /// Bytes of checkpoints that are not sealed by the newest key.
    outdated: AtomicU64,
}

/// Where a store's checkpoints are.
#[derive(Clone, Debug)]
pub struct CheckpointFiles {
    /// What the files are reached through.
    pub env: Env,
    /// Their directory, which exists.
    pub dir: PathBuf,
    /// Whose they are.
    pub owner: Owner,
}

impl MemoryStorage {
    /// An empty store that has everything up to this place in the log: nothing.
    pub fn new(at: LogPosition) -> Self {
        Self::of(Writer::new(at))
    }

    fn of(writer: Writer) -> Self {
        let core = writer.core().clone();
        let (durable, left, outdated) = Default::default();
        let reader = MemoryReader { shared: Arc::new(Shared { core, left, durable, outdated }) };
        Self { reader, writer: Some(writer), files: None }
    }

    /// From now on checkpoints can be written, into these files; the newest one there has
    /// everything up to `durable`.
    pub fn keep_checkpoints(&mut self, files: CheckpointFiles, durable: LogPosition) {
        self.files = Some(files);
        self.shared.set_durable(durable);
    }

    /// Keeps the newest version readable through the snapshot, whatever becomes of the window. A
    /// snapshot costs at most one old row for each key that is written while it lives.
    pub fn snapshot(&self) -> Snapshot {
        let held = self.shared.core.hold_newest();
        let at = self.writer.as_ref().expect(WRITES).position_at(held.version());
        Snapshot { held, at, _store: self.shared.clone() }
    }

    /// The same for any version of the window.
    #[cfg(test)]
    fn snapshot_at(&self, version: Version) -> StorageResult<Snapshot> {
        let at = LogPosition::without_log(version);
        Ok(Snapshot { held: self.shared.core.hold(version)?, at, _store: self.shared.clone() })
    }

    fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().expect(WRITES)
    }
}

const WRITES: &str = "it has its writer until it is dropped";

impl Deref for MemoryStorage {
    type Target = MemoryReader;

    fn deref(&self) -> &MemoryReader {
        &self.reader
    }
}

impl Drop for MemoryStorage {
    fn drop(&mut self) {
        *self.shared.left.lock().unwrap_or_else(PoisonError::into_inner) = self.writer.take();
    }
}

impl Shared {
    fn set_durable(&self, at: LogPosition) {
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, now) = (durable.version, at.version);
        assert!(before <= now, "the newest checkpoint is of {before}, and then of {now}");
        *durable = at;
    }
}

impl MemoryReader {
    #[inline(always)]
    fn core(&self) -> &Core {
        &self.shared.core
    }
}

impl crate::Writer for MemoryStorage {
    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.reader.clone())
    }

    fn prepare(
        &mut self,
        _mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
    ) -> Answer<Prepared> {
        // All rows are at hand.
        Reply::ready(Ok(Prepared::default()))
    }

    fn apply(
        &mut self,
        _prepared: Prepared,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
        changed: Changed<'_>,
    ) {
        self.writer().apply(at, mutations, changed);
    }

    fn forget_before(&mut self, version: Version, budget: usize) -> bool {
        self.writer().forget_before(version, budget)
    }

    fn pin(&mut self) -> Answer<Box<dyn PinnedVersion>> {
        Reply::ready(Ok(Box::new(self.snapshot())))
    }

    fn flush(&mut self, pace: Pace) -> Waiting<StorageResult<Flushed>> {
        let Some(CheckpointFiles { env, dir, owner }) = self.files.clone() else {
            let what = "a database in memory has no checkpoints";
            return Box::pin(ready(Err(StorageError::Unsupported(what.into()))));
        };
        let (snapshot, shared) = (self.snapshot(), self.shared.clone());
        Box::pin(async move {
            let written = checkpoint::write(&env, &dir, owner, &snapshot, pace).await?;
            // Old rows are kept for it no longer.
            drop(snapshot);
            shared.set_durable(written.at);
            let removed = checkpoint::remove_others(&env, &dir, written.at.version).await?;
            shared.outdated.store(0, Ordering::Relaxed);
            let longest_step = written.longest_step.max(removed.longest_step);
            Ok(Flushed { at: written.at, longest_step })
        })
    }

    fn check_invariants(&self) {
        self.writer.as_ref().expect(WRITES).check_invariants();
    }
}

impl Reader for MemoryReader {
    fn outdated(&self) -> (u64, u64) {
        let bytes = self.shared.outdated.load(Ordering::Relaxed);
        (u64::from(bytes > 0), bytes)
    }

    #[inline]
    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Answer<Vec<Option<Bytes>>> {
        Reply::ready(View::new(self.core(), version).and_then(|view| view.get_many(space, keys)))
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Answer<Bytes> {
        let view = View::new(self.core(), version);
        Reply::ready(view.and_then(|view| view.resolve(space, selector)).map(|(key, _)| key))
    }

    #[inline]
    fn get_range(
        &self,
        version: Version,
        space: KeySpace,
        read: &RangeRead,
    ) -> Answer<RangeResult> {
        Reply::ready(View::new(self.core(), version).and_then(|view| view.get_range(space, read)))
    }

    fn publish(&self, version: Version) {
        self.core().publish(version);
    }

    fn newest(&self) -> Version {
        self.core().newest()
    }

    fn oldest(&self) -> Version {
        self.core().oldest()
    }

    fn range_size(&self, begin: &[u8], end: &[u8]) -> u64 {
        self.core().range_size(begin, end)
    }

    fn range_count(&self, begin: &[u8], end: &[u8]) -> u64 {
        self.core().range_count(begin, end)
    }

    fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes> {
        self.core().split_points(begin, end, chunk)
    }

    fn memory(&self) -> Memory {
        let figures = &self.core().figures;
        let data = self.core().root(&self.core().epochs.pin()).weight().max(0) as u64;
        let window = figures.window.load(Ordering::Relaxed);
        let reserved = figures.reserved.load(Ordering::Relaxed);
        let pinned = figures.pinned.load(Ordering::Relaxed);
        Memory { data, window, pinned, index: reserved.saturating_sub(data + window) }
    }

    fn count(&self) -> u64 {
        self.core().figures.rows.load(Ordering::Relaxed)
    }

    fn durable(&self) -> LogPosition {
        *self.shared.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A checkpoint.
    fn room_to_work(&self) -> u64 {
        let data = self.memory().data;
        // Lengths of keys and values, heads of blocks, and the file's own head and foot.
        data + data / 64 + 12 * self.count() + (64 << 10)
    }

    fn close(&self) -> Waiting<()> {
        Box::pin(ready(()))
    }
}

/// Fills a store with the rows of one version.
pub struct Loader {
    filling: Filling,
}

impl Loader {
    /// Begins to fill a store with everything up to this place in the log; its window will be that
    /// version alone.
    pub fn new(at: LogPosition) -> Self {
        Self { filling: Filling::new(at) }
    }

    /// Adds a row. Quickest when keys ascend; then the leaves are full and memory is least.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.filling.push(key, value);
    }

    /// The filled store.
    pub fn finish(self) -> MemoryStorage {
        MemoryStorage::of(self.filling.finish())
    }
}

/// Applies what a log has to a store, before anybody reads it: of each key only the last state is
/// kept.
pub struct MemoryReplay {
    replaying: Replaying,
    /// As the store had it.
    outdated: AtomicU64,
}

impl MemoryReplay {
    /// Goes on from what a store has at its newest version. `None` if others have the store too.
    pub fn new(store: MemoryStorage) -> Option<Self> {
        let MemoryReader { shared } = store.reader.clone();
        drop(store);
        let Shared { left, outdated, .. } = Arc::into_inner(shared)?;
        let writer = left.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        Some(Self { replaying: Replaying::new(writer), outdated })
    }

    /// Applies mutations in their order, as [`crate::Writer::apply`] and [`Reader::publish`] would.
    /// Quickest when their keys ascend; each key should have few.
    ///
    /// # Panics
    /// If the version is not above that of the batch before.
    pub fn apply(&mut self, at: LogPosition, mutations: &mut dyn Iterator<Item = MutationRef<'_>>) {
        self.replaying.apply(at, mutations);
    }

    /// The store; its window is the last version applied.
    pub fn finish(self) -> MemoryStorage {
        let store = MemoryStorage::of(self.replaying.finish());
        store.shared.outdated.store(self.outdated.into_inner(), Ordering::Relaxed);
        store
    }
}

/// One version of a [`MemoryStorage`] that stays readable.
pub struct Snapshot {
    held: Held,
    at: LogPosition,
    /// What the view looks at belongs to the writer.
    _store: Arc<Shared>,
}

impl Source for Snapshot {
    fn at(&self) -> LogPosition {
        self.at
    }

    fn visit(
        &self,
        from: &[u8],
        target: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> StorageResult<Option<Bytes>> {
        let mut bytes = 0;
        let mut next = None;
        View::held(&self.held).walk(from, true, |key, value| {
            visit(key, value);
            bytes += key.len() + value.len();
            if bytes < target {
                return ControlFlow::Continue(());
            }
            next = Some(key_after(key));
            ControlFlow::Break(())
        })?;
        Ok(next)
    }
}

impl PinnedVersion for Snapshot {
    fn version(&self) -> Version {
        self.held.version()
    }

    fn position(&self) -> LogPosition {
        self.at
    }

    fn get_many(&self, space: KeySpace, keys: &KeyList) -> Answer<Vec<Option<Bytes>>> {
        Reply::ready(View::held(&self.held).get_many(space, keys))
    }

    fn get_key(&self, space: KeySpace, selector: &KeySelector) -> Answer<Bytes> {
        Reply::ready(View::held(&self.held).resolve(space, selector).map(|(key, _)| key))
    }

    fn get_range(&self, space: KeySpace, read: &RangeRead) -> Answer<RangeResult> {
        Reply::ready(View::held(&self.held).get_range(space, read))
    }

    fn export(&self, begin: &[u8], end: &[u8], target_bytes: usize) -> Answer<Chunk> {
        let read = chunk::read_for(begin, end, target_bytes);
        let result = View::held(&self.held).get_range(KeySpace::System, &read);
        Reply::ready(result.map(|result| Chunk::of(self.at, (begin, end), result)))
    }

    fn range_size(&self, begin: &[u8], end: &[u8]) -> u64 {
        self.held.core().range_size(begin, end)
    }

    fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes> {
        self.held.core().split_points(begin, end, chunk)
    }
}
