//! The storage of a node: one of the engines, chosen when the database was created.
//!
//! What differs between them beyond [`Reader`] and [`Writer`] stands here: how each is made, how it
//! comes back at a start, and from where on the log is needed then.

use crate::config::NodeConfig;
use crate::directory::{Directory, checkpoint_path};
use crate::failure::NodeResult;
use crate::held::Held;
use crate::identity::{DirectoryIdentity, EngineKind};
use plinth_env::Env;
use plinth_format::{Identity, Keys, Owner};
use plinth_storage::{
    CheckpointFiles, Import, MemoryReplay, MemoryStorage, Reader, SsdStorage, Writer, checkpoint,
    ssd::SsdFound,
};
use plinth_types::{LogPosition, MutationList};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The directory of the engine `ssd` in a generation's.
const TABLES: &str = "tables";

/// The tables of a generation.
pub(crate) fn tables_path(dir: &Path) -> PathBuf {
    dir.join(TABLES)
}

/// How long replay waits before it looks for room again.
const PAUSE_WHILE_FULL: Duration = Duration::from_millis(5);

/// An engine with its window: the one who writes, and what everybody else has.
pub(crate) struct Store {
    pub writer: Box<dyn Writer>,
    pub reader: Arc<dyn Reader>,
}

/// The engine of a node that runs. Whoever applies entries takes its writer for an instant: two who
/// do so at a time would be wrong anyway.
pub(crate) struct SharedStore {
    reader: Arc<dyn Reader>,
    writer: Mutex<Box<dyn Writer>>,
    held: Held,
}

impl SharedStore {
    /// Who changes it.
    pub fn writer(&self) -> MutexGuard<'_, Box<dyn Writer>> {
        self.writer.lock().expect("a writer that panicked leaves its rows half changed")
    }

    /// The snapshots of it that clients hold.
    pub fn held(&self) -> &Held {
        &self.held
    }
}

impl From<Store> for SharedStore {
    fn from(Store { writer, reader }: Store) -> Self {
        Self { reader, writer: Mutex::new(writer), held: Held::default() }
    }
}

impl Deref for SharedStore {
    type Target = dyn Reader;

    fn deref(&self) -> &Self::Target {
        &*self.reader
    }
}

/// An engine at a start, which still lacks what is in the log alone. Nobody reads it yet.
pub(crate) enum Recovering {
    Memory(Box<MemoryReplay>, Option<(CheckpointFiles, LogPosition)>),
    Ssd(SsdStorage),
}

/// An engine whose files were found whole. Nothing was changed of them yet.
pub(crate) enum Stored {
    Memory(Box<MemoryReplay>, LogPosition),
    Ssd(SsdFound),
}

impl Stored {
    /// Reads the engine of a database.
    pub async fn read(env: &Env, directory: &Directory, config: &NodeConfig) -> NodeResult<Self> {
        if config.engine == EngineKind::Memory {
            let loaded = load_newest(env, directory, config.keys()).await?;
            let (storage, at) = loaded.unwrap_or_else(|| {
                let nothing = LogPosition::default();
                (MemoryStorage::new(nothing), nothing)
            });
            let replay =
                MemoryReplay::new(storage).expect("nobody else has a store that was just loaded");
            return Ok(Self::Memory(Box::new(replay), at));
        }
        let (tables, identity) = (tables_path(&directory.path), directory.ids);
        Ok(Self::Ssd(SsdStorage::read(env, &tables, identity, config.ssd.clone()).await?))
    }

    /// Up to where in the log it has everything.
    pub fn position(&self) -> LogPosition {
        match self {
            Self::Memory(_, at) => *at,
            Self::Ssd(found) => found.position(),
        }
    }

    /// Begins, which removes what a crash left. What was read counts from now on, and is there
    /// after a crash too: what the process before gave a name it may not have made durable.
    pub async fn start(
        self,
        env: &Env,
        directory: &Directory,
        keys: &Keys,
    ) -> NodeResult<Recovering> {
        env.files().sync_dir(&directory.root).await?;
        match self {
            Self::Memory(replay, at) => {
                let (dir, owner) = (directory.checkpoint_path(), owner(directory.ids, keys));
                env.files().create_dir_all(&dir).await?;
                env.files().sync_dir(&dir).await?;
                let files = CheckpointFiles { env: env.clone(), dir, owner };
                Ok(Recovering::Memory(replay, Some((files, at))))
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
    pub async fn apply(
        &mut self,
        env: &Env,
        at: LogPosition,
        mutations: &MutationList,
    ) -> NodeResult<()> {
        let storage = match self {
            Self::Memory(replay, _) => {
                replay.apply(at, &mut mutations.iter());
                return Ok(());
            }
            Self::Ssd(storage) => storage,
        };
        while storage.fullness() >= 1.0 {
            match storage.trouble() {
                // All of it was in memory before the restart, and fits there again.
                Some(error) if error.is_disk_full() => break,
                Some(error) => return Err(error.into()),
                None => {}
            }
            env.sleep(PAUSE_WHILE_FULL).await;
        }
        let newest = storage.newest();
        assert!(newest < at.version, "{} is applied behind {newest}", at.version);
        let prepared = storage.prepare(&mut mutations.iter()).await?;
        storage.apply(prepared, at, &mut mutations.iter(), None);
        storage.publish(at.version);
        storage.forget_before(at.version, usize::MAX);
        Ok(())
    }

    /// The engine, ready for readers.
    pub fn finish(self) -> Store {
        match self {
            Self::Memory(replay, files) => {
                let mut storage = replay.finish();
                if let Some((files, durable)) = files {
                    storage.keep_checkpoints(files, durable);
                }
                Store::new(storage)
            }
            Self::Ssd(storage) => Store::new(storage),
        }
    }
}

impl Store {
    /// Of any engine.
    pub fn new(writer: impl Writer + 'static) -> Self {
        Self { reader: writer.reader(), writer: Box::new(writer) }
    }

    /// Makes what an engine needs in the directory of a generation that is being made: no rows,
    /// behind this entry of the log.
    pub async fn create(
        env: &Env,
        dir: &Path,
        identity: Identity,
        (engine, keys): (EngineKind, &Keys),
        at: LogPosition,
    ) -> NodeResult<()> {
        match engine {
            EngineKind::Memory => {
                let path = checkpoint_path(dir);
                env.files().create_dir_all(&path).await?;
                if at != LogPosition::default() {
                    let (empty, pace) = (MemoryStorage::new(at), checkpoint::Pace::default());
                    let owner = owner(identity, keys);
                    checkpoint::write(env, &path, owner, &empty.snapshot(), pace).await?;
                }
                Ok(())
            }
            EngineKind::Ssd => {
                let tables = tables_path(dir);
                env.files().create_dir_all(&tables).await?;
                Ok(SsdStorage::create_at(env, &tables, identity, at).await?)
            }
        }
    }
}

/// Begins the engine of a generation that is being made, out of chunks.
pub(crate) async fn import_engine(
    env: &Env,
    generation: &Path,
    identity: &DirectoryIdentity,
    config: &NodeConfig,
    at: LogPosition,
) -> NodeResult<Box<dyn Import>> {
    let ids = identity.ids;
    let dir = match identity.engine {
        EngineKind::Memory => checkpoint_path(generation),
        EngineKind::Ssd => tables_path(generation),
    };
    env.files().create_dir_all(&dir).await?;
    match identity.engine {
        EngineKind::Memory => {
            Ok(checkpoint::import(env, &dir, owner(ids, config.keys()), at).await?)
        }
        EngineKind::Ssd => Ok(SsdStorage::import(env, &dir, ids, &config.ssd, at)?),
    }
}

fn owner(identity: Identity, keys: &Keys) -> Owner {
    Owner { identity, keys: keys.clone() }
}

/// Loads the newest checkpoint, if there is one.
async fn load_newest(
    env: &Env,
    directory: &Directory,
    keys: &Keys,
) -> NodeResult<Option<(MemoryStorage, LogPosition)>> {
    let owner = owner(directory.ids, keys);
    let loaded = MemoryStorage::load(env, &directory.checkpoint_path(), owner).await?;
    Ok(loaded.map(|loaded| (loaded.store, loaded.at)))
}
