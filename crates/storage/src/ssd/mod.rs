//! The engine `ssd`: data larger than memory, in sorted tables on `env` files, under a window in
//! memory.
//!
//! ```text
//!   apply ──▶ window      versions above D, in memory: keys written since, ranges cleared since
//!               │ flush: everything up to D' into a new run of level 0, then one switch D → D'
//!               ▼
//!   state at D  level 0   run, run, ...                      (newest first)
//!               level 1   table | table | ...                │ compaction merges downwards
//!               level 2   table | table | table | ...        ▼
//! ```
//!
//! The engine holds exactly one version D. Nothing above D is in the tables and nothing up to D is
//! missing from them, so the log is needed from D on. A switch replaces the manifest, in one step;
//! the tables themselves never change, which is why a read, or a pinned snapshot, goes on with
//! those it began with.
//!
//! Invariants: D is never above the oldest readable version. All memory (window, cache, indexes,
//! filters) stays within one budget, of which two fifths are for writes: the cache shrinks as the
//! others grow, and a window that grows beyond its part shows as [`Reader::fullness`], for others
//! to slow down by (`budget.rs`).
//!
//! Read next: `window.rs`, `state.rs`, `read.rs`, then `maintain.rs`, `compact.rs` and
//! `switch.rs`.

mod budget;
mod buffers;
mod cache;
mod clears;
mod compact;
mod cursor;
mod estimate;
mod filter;
mod format;
mod gate;
mod import;
mod index;
mod invariants;
mod load;
mod maintain;
mod manifest;
mod pages;
mod pinned;
mod read;
mod rows;
mod salvage;
mod separators;
mod state;
mod switch;
mod table;
mod window;
mod writer;
mod zstd;

#[cfg(test)]
mod tests;

pub use format::{Compression, SEALED_TABLE_FORMAT, TABLE_FORMAT};
pub use manifest::{MANIFEST_FORMAT, path as manifest_path};
pub use pinned::Pinned;
pub use salvage::{SsdReport, SsdSalvage, is_as_created, verify_ssd};

use crate::checkpoint::Pace;
use crate::failure::{Answer, StorageError, StorageResult};
use crate::{Changed, Flushed, Import, Memory, PinnedVersion, Prepared, Reader, Waiting, Writer};
use cache::Cache;
use gate::Gate;
use load::{Loader, Pool, ReadCounts, attempt};
use manifest::Manifest;
use plinth_env::{Env, Promise, Reply, Signal, Task};
use plinth_format::{Identity, Keys, Owner};
use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, LogPosition, MutationRef, RangeRead, RangeResult,
    Version,
};
use read::View;
use state::{Placed, State};
use std::any::Any;
use std::ops::Deref;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use table::{Graveyard, Table, table_path};
use window::Window;
use writer::{Making, Spare};

/// How an engine behaves. Of these, only the compression is written into files; all may differ at
/// each start.
#[derive(Clone, Debug)]
pub struct SsdSettings {
    /// Bytes of memory for window, cache, indexes, filters and what is being written, together.
    pub memory: u64,
    /// How blocks are written.
    pub compression: Compression,
    /// Bytes of a block of rows before compression, about: blocks become as long as the file's
    /// pages of 4096 bytes suggest.
    pub block_bytes: usize,
    /// Bytes of a table, about.
    pub table_bytes: u64,
    /// Bytes of level 1; each level below holds ten times as much.
    pub level_bytes: u64,
    /// Bytes of writes that have left the window after which it is flushed.
    pub flush_bytes: u64,
    /// The time after which it is flushed anyway, if there is anything, so that the log does not
    /// grow old.
    pub flush_after: Duration,
    /// By these tables are sealed that are written, and opened that are there. Tables that are not
    /// sealed by the newest of them are written anew when nothing is more urgent.
    pub keys: Keys,
    /// Whether flushes and compactions happen by themselves; for tests that take each step on their
    /// own.
    pub background: bool,
}

impl SsdSettings {
    /// Settings that fit a budget of memory.
    pub fn with_memory(memory: u64) -> Self {
        let flush_bytes = (memory / 16).clamp(256 << 10, 64 << 20);
        Self {
            memory,
            compression: Compression::default(),
            block_bytes: 4096,
            table_bytes: 32 << 20,
            level_bytes: 256 << 20,
            flush_bytes,
            flush_after: Duration::from_secs(10),
            keys: Keys::none(),
            background: true,
        }
    }
}

impl Default for SsdSettings {
    /// A budget of 1 GiB.
    fn default() -> Self {
        Self::with_memory(1 << 30)
    }
}

/// What an engine has done and has, for status and benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SsdFigures {
    /// Everything up to this version is in the tables.
    pub version: Version,
    /// Tables, and their bytes on disk.
    pub tables: u64,
    /// Bytes of all tables.
    pub disk_bytes: u64,
    /// Runs of level 0.
    pub flushed_runs: u64,
    /// Reads from files that readers waited for.
    pub device_reads: u64,
    /// Keys whose value was looked for in a file.
    pub uncached_reads: u64,
    /// Bytes of rows that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes written to tables by flushes and compactions.
    pub written_bytes: u64,
    /// Bytes of tables that only pinned snapshots still need.
    pub pinned_bytes: u64,
    /// Snapshots that are pinned.
    pub pinned: u64,
}

/// Everything behind a handle.
struct Engine {
    settings: SsdSettings,
    making: Arc<Making>,
    window: Window,
    parts: budget::Parts,
    state: RwLock<Arc<State>>,
    gates: Gates,
    pool: Arc<Pool>,
    /// For reads that end at once or not at all.
    instant: Loader,
    reads: Arc<ReadCounts>,
    pins: Mutex<Vec<Arc<State>>>,
    trouble: maintain::Trouble,
    life: Life,
}

/// Each for one at a time.
#[derive(Default)]
struct Gates {
    /// From one state to the next.
    switch: Gate,
    flush: Gate,
    compact: Gate,
}

/// Wakes the tasks before their time.
#[derive(Default)]
struct Wakeups {
    flusher: Signal,
    compactor: Signal,
}

/// The tasks, and their end.
#[derive(Default)]
struct Life {
    closing: AtomicBool,
    wakeups: Wakeups,
    tasks: Mutex<Vec<Task>>,
    /// What must outlive the tasks.
    kept: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

/// Data in tables on disk, with the window in memory: the one who writes to it. Dropping it ends
/// its tasks. Derefs to what everybody else has.
pub struct SsdStorage {
    reader: SsdReader,
}

/// A store in tables, for its readers. A handle: clones are the same store.
#[derive(Clone)]
pub struct SsdReader {
    engine: Arc<Engine>,
}

impl Deref for SsdStorage {
    type Target = SsdReader;

    fn deref(&self) -> &SsdReader {
        &self.reader
    }
}

/// An engine whose files were found whole, and which nothing was changed of yet.
pub struct SsdFound {
    state: State,
    making: Arc<Making>,
    settings: SsdSettings,
}

impl SsdFound {
    /// Up to where in the log everything is in the tables.
    pub fn position(&self) -> LogPosition {
        self.state.at
    }

    /// Removes what a crash left over, and begins.
    ///
    /// # Errors
    /// Those of syncing and listing the directory and of removing files.
    pub async fn start(self) -> StorageResult<SsdStorage> {
        let Self { state, making, settings } = self;
        // The process before may have been killed between giving the manifest its name and making
        // that durable. Files and log go on the strength of it.
        making.env.files().sync_dir(&making.dir).await?;
        maintain::remove_leftovers(&making.env, &making.dir, &state).await?;
        Ok(SsdStorage::start(state, making, settings))
    }
}

impl SsdStorage {
    /// Makes an engine without rows, before the first entry of any log, in a directory that exists;
    /// tables that lie there become leftovers.
    ///
    /// # Errors
    /// Those of writing files.
    pub async fn create(env: &Env, dir: &Path, identity: Identity) -> StorageResult<()> {
        Self::create_at(env, dir, identity, LogPosition::default()).await
    }

    /// The same behind another entry, for rows that come from elsewhere.
    ///
    /// # Errors
    /// Those of writing files.
    pub async fn create_at(
        env: &Env,
        dir: &Path,
        identity: Identity,
        at: LogPosition,
    ) -> StorageResult<()> {
        let manifest = Manifest::of(&State::empty(at), identity, 1);
        manifest.write(env, dir).await
    }

    /// Opens the engine in a directory and removes what a crash left over. Its window is its
    /// version alone.
    ///
    /// # Errors
    /// Those of [`SsdStorage::read`], and those of removing files.
    pub async fn open(
        env: &Env,
        dir: &Path,
        identity: Identity,
        settings: SsdSettings,
    ) -> StorageResult<Self> {
        Self::read(env, dir, identity, settings).await?.start().await
    }

    /// Reads what opening the engine in a directory needs, and changes nothing there.
    ///
    /// # Errors
    /// `Corrupt`, naming file, offset, expected and found, for damage, for missing files and
    /// for those of another node; `NewerFormat` for a newer format, and for a compression
    /// that is not built in; `Locked` if a key is lacking; those of files.
    pub async fn read(
        env: &Env,
        dir: &Path,
        identity: Identity,
        settings: SsdSettings,
    ) -> StorageResult<SsdFound> {
        check_compression(&settings)?;
        let manifest = Manifest::read(env, dir).await?;
        manifest.expect(dir, identity)?;
        let graveyard = Arc::new(Graveyard::default());
        let owner = Owner { identity, keys: settings.keys.clone() };
        let mut placed = Vec::with_capacity(manifest.tables.len());
        for named in &manifest.tables {
            let table = Table::open(env, &table_path(dir, named.id), &owner, &graveyard).await;
            let table = table.map_err(|error| manifest::named_but_missing(dir, error))?;
            if (table.header().nonce, table.file_len()) != (named.nonce, named.file_len) {
                let path = table_path(dir, named.id).display().to_string();
                let detail =
                    format!("{path} at offset 0: table: expected the manifest's, found another");
                return Err(StorageError::Foreign(detail.into()));
            }
            placed.push(Placed { level: named.level, flush: named.flush, table: Arc::new(table) });
        }
        let state = State::of(manifest.at, manifest.serial, manifest.next_flush, placed);
        let making = making((env, dir), owner, &settings, (graveyard, manifest.next_id));
        Ok(SsdFound { state, making, settings })
    }

    /// Begins an engine in a directory that exists and is empty, which chunks of this place in the
    /// log fill. It can be opened once the import has been finished.
    ///
    /// # Errors
    /// `Unsupported` for a compression that is not built in.
    pub fn import(
        env: &Env,
        dir: &Path,
        identity: Identity,
        settings: &SsdSettings,
        at: LogPosition,
    ) -> StorageResult<Box<dyn Import>> {
        check_compression(settings)?;
        let owner = Owner { identity, keys: settings.keys.clone() };
        let making = making((env, dir), owner, settings, (Arc::default(), 1));
        Ok(Box::new(import::SsdImport::new(making, at)))
    }

    fn start(state: State, making: Arc<Making>, settings: SsdSettings) -> Self {
        let reads = Arc::new(ReadCounts::default());
        let (env, background) = (making.env.clone(), settings.background);
        let engine = Arc::new(Engine {
            settings,
            window: Window::new(state.at.version),
            parts: budget::Parts::default(),
            state: RwLock::new(Arc::new(state)),
            gates: Gates::default(),
            pool: Arc::default(),
            instant: Loader::new(&making.cache, &reads),
            reads,
            pins: Mutex::default(),
            trouble: Mutex::default(),
            life: Life::default(),
            making,
        });
        engine.divide_memory();
        if background {
            let tasks = vec![
                env.spawn("flush", maintain::run_flusher(engine.clone())),
                env.spawn("compact", maintain::run_compactor(engine.clone())),
            ];
            *engine.lock_tasks() = tasks;
        }
        Self { reader: SsdReader { engine } }
    }
}

fn check_compression(settings: &SsdSettings) -> StorageResult<()> {
    if settings.compression.is_built_in() {
        return Ok(());
    }
    let detail = "this program is built without zstd: choose another compression, or build it with the feature zstd";
    Err(StorageError::Unsupported(detail.into()))
}

/// What tables of an engine are made with.
fn making(
    (env, dir): (&Env, &Path),
    owner: Owner,
    settings: &SsdSettings,
    (graveyard, next_id): (Arc<Graveyard>, u64),
) -> Arc<Making> {
    Arc::new(Making {
        env: env.clone(),
        dir: dir.to_path_buf(),
        owner,
        compression: settings.compression,
        block_bytes: settings.block_bytes,
        table_bytes: settings.table_bytes,
        graveyard,
        cache: Arc::new(Cache::new(0)),
        next_id: AtomicU64::new(next_id),
        written: AtomicU64::new(0),
        flushed: AtomicU64::new(0),
        spare: Spare::default(),
    })
}

impl SsdReader {
    /// Keeps something (the lock of the directory) until the last task that may write has ended.
    pub fn keep(&self, kept: Arc<dyn Any + Send + Sync>) {
        *self.engine.life.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    /// Moves what has left the window into the tables. Whether there was anything.
    ///
    /// # Errors
    /// Those of writing files; then the engine is as it was.
    pub async fn flush_now(&self) -> StorageResult<bool> {
        maintain::flush(&self.engine).await
    }

    /// Does the most urgent piece of compaction. Whether there was one.
    ///
    /// # Errors
    /// Those of files, and `Corrupt`; then the engine is as it was.
    pub async fn compact(&self) -> StorageResult<bool> {
        compact::step(&self.engine).await
    }

    /// What it has done and has.
    pub fn figures(&self) -> SsdFigures {
        self.engine.figures()
    }

    /// Keeps the engine's present version readable for as long as the snapshot lives, without a
    /// flush before ([`crate::Writer::pin`]). That holds table files, and no memory beyond their
    /// indexes and filters.
    pub fn pin_tables(&self) -> Arc<Pinned> {
        Pinned::of(&self.engine)
    }
}

impl Drop for SsdStorage {
    fn drop(&mut self) {
        self.engine.begin_close();
        drop(self.engine.pool.close());
    }
}

impl Engine {
    #[inline]
    fn state(&self) -> Arc<State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn view(&self, version: Version) -> View<'_> {
        View { window: Some(&self.window), state: &self.state, version }
    }

    fn lock_tasks(&self) -> MutexGuard<'_, Vec<Task>> {
        self.life.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_pins(&self) -> MutexGuard<'_, Vec<Arc<State>>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_close(&self) {
        self.life.closing.store(true, Ordering::Release);
        self.life.wakeups.flusher.notify();
        self.life.wakeups.compactor.notify();
    }

    fn is_closing(&self) -> bool {
        self.life.closing.load(Ordering::Acquire)
    }

    fn figures(&self) -> SsdFigures {
        let state = self.state();
        let pins = self.lock_pins().clone();
        let mut held: Vec<(u64, u64)> = pins
            .iter()
            .flat_map(|state| state.tables())
            .map(|table| (table.id(), table.file_len()))
            .collect();
        held.sort_unstable();
        held.dedup();
        let mut live: Vec<u64> = state.tables().map(|table| table.id()).collect();
        live.sort_unstable();
        held.retain(|(id, _)| live.binary_search(id).is_err());
        SsdFigures {
            version: state.at.version,
            tables: live.len() as u64,
            disk_bytes: state.bytes(),
            flushed_runs: state.flushed().count() as u64,
            device_reads: self.reads.device.load(Ordering::Relaxed),
            uncached_reads: self.reads.uncached.load(Ordering::Relaxed),
            flushed_bytes: self.making.flushed.load(Ordering::Relaxed),
            written_bytes: self.making.written.load(Ordering::Relaxed),
            pinned_bytes: held.iter().map(|(_, bytes)| bytes).sum(),
            pinned: pins.len() as u64,
        }
    }

    fn waiting(&self) -> Loader {
        Loader::waiting(&self.making.cache, &self.reads)
    }

    /// Gives the answer of a read if memory has it, else lets the read go on where it may wait.
    fn finish<T: Send + 'static>(
        &self,
        loader: &Loader,
        read: impl Future<Output = StorageResult<T>> + Send + 'static,
    ) -> Answer<T> {
        let mut read = Box::pin(read);
        match attempt(read.as_mut()) {
            Some(result) => Reply::ready(result),
            None => {
                loader.allow_waiting();
                self.pool.run(&self.making.env, read)
            }
        }
    }

    fn loader(&self) -> Arc<Loader> {
        Arc::new(Loader::new(&self.making.cache, &self.reads))
    }
}

impl Reader for SsdReader {
    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Answer<Vec<Option<Bytes>>> {
        let engine = &self.engine;
        if let Err(error) = engine.window.overlay().check(version) {
            return Reply::ready(Err(error));
        }
        let view = engine.view(version);
        let at_once = pin!(view.get_many(space, keys, &engine.instant));
        if let Some(result) = attempt(at_once) {
            return Reply::ready(result);
        }
        let (engine, keys) = (engine.clone(), keys.clone());
        self.engine.pool.run(&self.engine.making.env, async move {
            engine.view(version).get_many(space, &keys, &engine.waiting()).await
        })
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Answer<Bytes> {
        if let Err(error) = self.engine.window.overlay().check(version) {
            return Reply::ready(Err(error));
        }
        let (engine, selector, loader) =
            (self.engine.clone(), selector.clone(), self.engine.loader());
        self.engine.finish(&loader.clone(), async move {
            engine.view(version).resolve(space, &selector, &loader).await.map(|(key, _)| key)
        })
    }

    fn get_range(
        &self,
        version: Version,
        space: KeySpace,
        read: &RangeRead,
    ) -> Answer<RangeResult> {
        if let Err(error) = self.engine.window.overlay().check(version) {
            return Reply::ready(Err(error));
        }
        let (engine, read, loader) = (self.engine.clone(), read.clone(), self.engine.loader());
        self.engine.finish(&loader.clone(), async move {
            engine.view(version).get_range(space, &read, &loader).await
        })
    }

    fn publish(&self, version: Version) {
        self.engine.window.overlay().publish(version);
    }

    fn newest(&self) -> Version {
        self.engine.window.overlay().newest()
    }

    fn oldest(&self) -> Version {
        self.engine.window.overlay().oldest()
    }

    fn range_size(&self, begin: &[u8], end: &[u8]) -> u64 {
        estimate::range_size(&self.engine.state(), Some(self.engine.window.overlay()), begin, end)
    }

    fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes> {
        estimate::split(&self.engine.state(), Some(self.engine.window.overlay()), begin, end, chunk)
    }

    fn memory(&self) -> Memory {
        let (engine, cache) = (&self.engine, &self.engine.making.cache);
        Memory {
            pinned: 0,
            data: cache.bytes() as u64,
            // With what window and cache keep for what comes.
            index: engine.tables_memory()
                + (engine.window.bytes() - engine.window.live() + cache.spare()) as u64,
            window: engine.window.live() as u64,
        }
    }

    /// Rows in the tables, of which overwritten ones that were not merged yet count again, and in
    /// the window.
    fn count(&self) -> u64 {
        let state = self.engine.state();
        let tables: u64 = state.tables().map(|table| table.footer().rows).sum();
        tables + self.engine.window.overlay().rows()
    }

    fn data_bytes(&self) -> u64 {
        let state = self.engine.state();
        let tables: u64 = state.tables().map(|table| table.footer().row_bytes).sum();
        tables + self.engine.window.overlay().weight()
    }

    fn fullness(&self) -> f32 {
        self.engine.window_fullness()
    }

    fn note_elsewhere(&self, bytes: usize) {
        self.engine.parts.note_elsewhere(bytes as u64);
    }

    fn durable(&self) -> LogPosition {
        self.engine.state().at
    }

    /// How many flushed runs wait to be merged, as a share of the number at which flushes wait for
    /// it.
    fn backlog(&self) -> f32 {
        self.engine.state().flushed().count() as f32 / maintain::MOST_FLUSHED_RUNS as f32
    }

    fn trouble(&self) -> Option<StorageError> {
        let trouble = self.engine.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.iter().flatten().next().cloned()
    }

    fn damage(&self) -> Option<(StorageError, u64)> {
        let reads = &self.engine.reads;
        Some((reads.damage.get()?.clone(), reads.damaged.load(Ordering::Relaxed)))
    }

    fn outdated(&self) -> (u64, u64) {
        self.engine.making.graveyard.outdated()
    }

    fn tables(&self) -> Option<SsdFigures> {
        Some(self.figures())
    }

    /// A flush of all that is in the window and the largest of the usual merges. A merge takes at
    /// most what it merges, which are all tables or a dozen.
    fn room_to_work(&self) -> u64 {
        let (state, settings) = (self.engine.state(), &self.engine.settings);
        let flushed: u64 = state.flushed().map(|run| run.bytes()).sum();
        let merge = state.bytes().min(flushed + 12 * settings.table_bytes);
        self.engine.window.live() as u64 + merge + (64 << 10)
    }

    fn close(&self) -> Waiting<()> {
        let engine = self.engine.clone();
        Box::pin(async move {
            engine.begin_close();
            let mut tasks = std::mem::take(&mut *engine.lock_tasks());
            tasks.extend(engine.pool.close());
            for task in tasks {
                // Nobody is left to tell of a task that panicked; what it did not finish is as
                // after a crash.
                drop(task.await);
            }
        })
    }
}

impl Writer for SsdStorage {
    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.reader.clone())
    }

    fn prepare(
        &mut self,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
    ) -> Answer<Prepared> {
        let engine = &self.engine;
        let keys = engine.window.unknown_bases(mutations);
        if keys.is_empty() {
            return Reply::ready(Ok(Prepared::default()));
        }
        let prepared = |keys: &KeyList, values: Vec<Option<Bytes>>| Prepared {
            bases: keys.iter().map(Bytes::copy_from_slice).zip(values).collect(),
        };
        let view = engine.view(Version::MAX);
        let at_once = attempt(pin!(view.get_many(KeySpace::System, &keys, &engine.instant)));
        if let Some(result) = at_once {
            return Reply::ready(result.map(|values| prepared(&keys, values)));
        }
        let engine = engine.clone();
        self.engine.pool.run(&self.engine.making.env, async move {
            let view = engine.view(Version::MAX);
            let values = view.get_many(KeySpace::System, &keys, &engine.waiting()).await?;
            Ok(prepared(&keys, values))
        })
    }

    fn apply(
        &mut self,
        prepared: Prepared,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
        changed: Changed<'_>,
    ) {
        self.engine.window.apply(&prepared.bases, at, mutations, changed);
    }

    /// What has left the window goes into the tables in the background, so nothing is left to do
    /// here.
    fn forget_before(&mut self, version: Version, _budget: usize) -> bool {
        self.engine.window.overlay().raise_oldest(version);
        if maintain::wants_flush(&self.engine) {
            self.engine.life.wakeups.flusher.notify();
        }
        false
    }

    fn pin(&mut self) -> Answer<Box<dyn PinnedVersion>> {
        // Writing what isn't in tables yet takes time, which the caller's thread may not have.
        let (engine, (promise, reply)) = (self.engine.clone(), Promise::pair());
        let pin = async move {
            let flushed = maintain::flush_all(&engine).await;
            promise.send(flushed.map(|_| Box::new(Pinned::of(&engine)) as Box<dyn PinnedVersion>));
        };
        drop(self.engine.making.env.spawn("pin", pin));
        reply
    }

    fn flush(&mut self, _pace: Pace) -> Waiting<StorageResult<Flushed>> {
        let engine = self.engine.clone();
        Box::pin(async move {
            maintain::flush(&engine).await?;
            Ok(Flushed { at: engine.state().at, longest_step: Duration::ZERO })
        })
    }

    fn check_invariants(&self) {
        self.reader.check();
    }
}
