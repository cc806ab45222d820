//! The storage of a node: one of the engines, chosen when the database was created.
//!
//! What differs between them beyond [`Storage`] stands here: how each comes back at a start, from where on the log is
//! needed then, and what has to be waited for at the end. `memory` has checkpoints, which `checkpoints` writes; `ssd`
//! moves its tables on by itself.

use crate::config::NodeConfig;
use crate::directory::{Directory, checkpoint_path};
use crate::identity::EngineKind;
use plinth_env::{Env, Reply, is_disk_full};
use plinth_storage::{
    Changed, Memory, MemoryReplay, MemoryStorage, PinnedVersion, SsdStorage, Storage, checkpoint,
    ssd::SsdFound,
};
use plinth_types::{
    Bytes, Error, KeyList, KeySelector, KeySpace, LogPosition, MutationList, MutationRef, RangeRead,
    RangeResult, Result, Version,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of the engine `ssd` in a generation's.
const TABLES: &str = "tables";

/// The tables of a generation.
pub(crate) fn tables_path(dir: &Path) -> PathBuf {
    dir.join(TABLES)
}

/// How long replay waits before it looks for room again.
const PAUSE_WHILE_FULL: Duration = Duration::from_millis(5);

/// An engine with its window.
pub(crate) enum Store {
    Memory(MemoryStorage),
    Ssd(SsdStorage),
}

/// An engine at a start, which still lacks what is in the log alone. Nobody reads it yet.
pub(crate) enum Recovering {
    Memory(Box<MemoryReplay>),
    Ssd(SsdStorage),
}

/// An engine whose files were found whole. Nothing was changed of them yet.
pub(crate) enum Stored {
    Memory(Box<MemoryReplay>, LogPosition),
    Ssd(SsdFound),
}

impl Stored {
    /// Reads the engine of a database.
    pub async fn read(env: &Env, directory: &Directory, config: &NodeConfig) -> Result<Self> {
        if config.engine == EngineKind::Memory {
            let loaded = load_newest(env, directory).await?;
            let (storage, at) = loaded.unwrap_or_else(|| {
                let nothing = LogPosition::default();
                (MemoryStorage::new(nothing), nothing)
            });
            let replay = MemoryReplay::new(storage).expect("nobody else has a store that was just loaded");
            return Ok(Self::Memory(Box::new(replay), at));
        }
        let (tables, identity) = (tables_path(&directory.path), directory.checkpoint_identity());
        Ok(Self::Ssd(SsdStorage::read(env, &tables, identity, config.ssd.clone()).await?))
    }

    /// Up to where in the log it has everything.
    pub fn position(&self) -> LogPosition {
        match self {
            Self::Memory(_, at) => *at,
            Self::Ssd(found) => found.position(),
        }
    }

    /// Begins, which removes what a crash left.
    pub async fn start(self, env: &Env, directory: &Directory) -> Result<Recovering> {
        match self {
            Self::Memory(replay, _) => {
                env.files().create_dir_all(directory.checkpoint_path()).await?;
                Ok(Recovering::Memory(replay))
            }
            Self::Ssd(found) => {
                let storage = found.start().await?;
                // Its tasks write to the directory until they end.
                storage.keep(directory.lock.clone());
                Ok(Recovering::Ssd(storage))
            }
        }
    }
}

impl Recovering {
    /// Applies a batch of the log, waiting for room if need be. What it replaces is gone at once.
    pub async fn apply(&mut self, env: &Env, at: LogPosition, mutations: &MutationList) -> Result<()> {
        let storage = match self {
            Self::Memory(replay) => {
                replay.apply(at, &mut mutations.iter());
                return Ok(());
            }
            Self::Ssd(storage) => storage,
        };
        while storage.fullness() >= 1.0 {
            match storage.trouble() {
                // All of it was in memory before the restart, and fits there again.
                Some(error) if is_disk_full(&error) => break,
                Some(error) => return Err(error),
                None => {}
            }
            env.sleep(PAUSE_WHILE_FULL).await;
        }
        storage.prepare(&mut mutations.iter()).await?;
        storage.apply(at, &mut mutations.iter(), None);
        storage.publish(at.version);
        storage.forget_before(at.version, usize::MAX);
        Ok(())
    }

    /// The engine, ready for readers.
    pub fn finish(self) -> Store {
        match self {
            Self::Memory(replay) => Store::Memory(replay.finish()),
            Self::Ssd(storage) => Store::Ssd(storage),
        }
    }
}

impl Store {
    /// Makes what an engine needs in the directory of a generation that is being made: no rows, behind this entry of the log.
    pub async fn create(
        env: &Env,
        dir: &Path,
        identity: Identity,
        engine: EngineKind,
        at: LogPosition,
    ) -> Result<()> {
        match engine {
            EngineKind::Memory => {
                let path = checkpoint_path(dir);
                env.files().create_dir_all(&path).await?;
                if at != LogPosition::default() {
                    let (empty, pace) = (MemoryStorage::new(at), checkpoint::Pace::default());
                    checkpoint::write(env, &path, identity, &empty.snapshot(), pace).await?;
                }
                Ok(())
            }
            EngineKind::Ssd => {
                let tables = tables_path(dir);
                env.files().create_dir_all(&tables).await?;
                SsdStorage::create_at(env, &tables, identity, at).await
            }
        }
    }

    /// The engine `memory`, if that is it.
    pub fn memory_engine(&self) -> Option<&MemoryStorage> {
        match self {
            Self::Memory(storage) => Some(storage),
            Self::Ssd(_) => None,
        }
    }

    /// The engine `ssd`, if that is it.
    pub fn ssd_engine(&self) -> Option<&SsdStorage> {
        match self {
            Self::Memory(_) => None,
            Self::Ssd(storage) => Some(storage),
        }
    }

    /// Waits until it has ended all it does by itself.
    pub async fn close(&self) {
        if let Self::Ssd(storage) = self {
            storage.close().await;
        }
    }

    /// How much has yet to be merged, as a share of what may wait: at 1 nothing is flushed any more.
    pub fn backlog(&self) -> f32 {
        self.ssd_engine().map_or(0.0, SsdStorage::backlog)
    }

    /// How far what is in tables lies behind what can be read. With `memory` the log alone is the durable place.
    pub fn durability_lag(&self) -> Version {
        self.ssd_engine()
            .map_or(0, |storage| storage.newest().saturating_sub(storage.durable().version).max(0))
    }

    /// Why tables can't be written at the moment, if so.
    pub fn trouble(&self) -> Option<Error> {
        self.ssd_engine()?.trouble()
    }
}

/// Loads the newest checkpoint, if there is one.
async fn load_newest(env: &Env, directory: &Directory) -> Result<Option<(MemoryStorage, LogPosition)>> {
    let loaded = checkpoint::load(env, &directory.checkpoint_path(), directory.checkpoint_identity()).await?;
    Ok(loaded.map(|loaded| (loaded.store, loaded.at)))
}

type Identity = plinth_storage::checkpoint::Identity;

impl Storage for Store {
    #[inline]
    fn get_many(&self, version: Version, space: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>> {
        match self {
            Self::Memory(storage) => storage.get_many(version, space, keys),
            Self::Ssd(storage) => storage.get_many(version, space, keys),
        }
    }

    #[inline]
    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        match self {
            Self::Memory(storage) => storage.get_key(version, space, selector),
            Self::Ssd(storage) => storage.get_key(version, space, selector),
        }
    }

    #[inline]
    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        match self {
            Self::Memory(storage) => storage.get_range(version, space, read),
            Self::Ssd(storage) => storage.get_range(version, space, read),
        }
    }

    fn prepare(&self, mutations: &mut dyn Iterator<Item = MutationRef<'_>>) -> Reply<()> {
        match self {
            Self::Memory(storage) => storage.prepare(mutations),
            Self::Ssd(storage) => storage.prepare(mutations),
        }
    }

    fn apply(
        &self,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
        changed: Changed<'_>,
    ) {
        match self {
            Self::Memory(storage) => storage.apply(at, mutations, changed),
            Self::Ssd(storage) => storage.apply(at, mutations, changed),
        }
    }

    fn publish(&self, version: Version) {
        match self {
            Self::Memory(storage) => storage.publish(version),
            Self::Ssd(storage) => storage.publish(version),
        }
    }

    fn newest(&self) -> Version {
        match self {
            Self::Memory(storage) => storage.newest(),
            Self::Ssd(storage) => storage.newest(),
        }
    }

    fn oldest(&self) -> Version {
        match self {
            Self::Memory(storage) => storage.oldest(),
            Self::Ssd(storage) => storage.oldest(),
        }
    }

    fn forget_before(&self, version: Version, budget: usize) -> bool {
        match self {
            Self::Memory(storage) => storage.forget_before(version, budget),
            Self::Ssd(storage) => storage.forget_before(version, budget),
        }
    }

    fn range_size(&self, begin: &[u8], end: &[u8]) -> u64 {
        match self {
            Self::Memory(storage) => storage.range_size(begin, end),
            Self::Ssd(storage) => storage.range_size(begin, end),
        }
    }

    fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes> {
        match self {
            Self::Memory(storage) => storage.split_points(begin, end, chunk),
            Self::Ssd(storage) => storage.split_points(begin, end, chunk),
        }
    }

    fn pin(&self) -> Reply<Box<dyn PinnedVersion>> {
        match self {
            Self::Memory(storage) => storage.pin(),
            Self::Ssd(storage) => storage.pin(),
        }
    }

    fn memory(&self) -> Memory {
        match self {
            Self::Memory(storage) => storage.memory(),
            Self::Ssd(storage) => storage.memory(),
        }
    }

    fn count(&self) -> u64 {
        match self {
            Self::Memory(storage) => storage.count(),
            Self::Ssd(storage) => storage.count(),
        }
    }

    fn data_bytes(&self) -> u64 {
        match self {
            Self::Memory(storage) => storage.data_bytes(),
            Self::Ssd(storage) => storage.data_bytes(),
        }
    }

    fn fullness(&self) -> f32 {
        match self {
            Self::Memory(storage) => storage.fullness(),
            Self::Ssd(storage) => storage.fullness(),
        }
    }

    fn note_elsewhere(&self, bytes: usize) {
        match self {
            Self::Memory(storage) => storage.note_elsewhere(bytes),
            Self::Ssd(storage) => storage.note_elsewhere(bytes),
        }
    }
}
