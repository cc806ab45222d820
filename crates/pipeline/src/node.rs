//! A node: the roles wired together in one process, opened, recovered and closed.
//!
//! Opening takes the directory's lock and reads its identity (`creation.rs`), loads the newest checkpoint
//! and replays the log behind it (`opening.rs`), and starts the tasks: commit workers, chores, checkpoints.
//! Recovery is replay; there is no other way in which data comes back.

use crate::batch::internal_request;
use crate::batch_lock::lock;
use crate::config::NodeConfig;
use crate::directory::Directory;
use crate::events::{self, Opened};
use crate::identity::EngineKind;
use crate::leader::{Batcher, Leader};
use crate::metadata::Metadata;
use crate::metrics::LongestWaits;
use crate::opening::recover;
use crate::replica::Replica;
use crate::sequencer::Sequencer;
use crate::store::Store;
use crate::versions::Versions;
use crate::{checkpoints, chores, creation, exposition, space, supervise, worker};
use plinth_env::{Env, Task};
use plinth_log::CommitLog;
use plinth_resolver::Resolver;
use plinth_storage::{MemoryStorage, Reader};
use plinth_types::system::{CONFIGURATION_PREFIX, KEY_SERVERS_PREFIX};
use plinth_types::{Error, KeyList, KeySpace, LogPosition, MutationList, MutationType, Result, Version};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running node. Dropping the last handle closes it.
pub struct Node {
    pub(crate) leader: Arc<Leader>,
    tasks: Mutex<Vec<Task>>,
}

impl Node {
    /// Opens the database in `dir`, or creates it there. The directory above it must exist. What is made is its
    /// owner's alone.
    ///
    /// # Errors
    /// `lock_file_failure` if it is open already, here or in another process; `file_not_found` or
    /// `client_invalid_operation` if `dir` holds no database, or other things; `unsupported_operation` for
    /// another format; `file_corrupt` or `checksum_failed`, naming file and offset, if its files are
    /// damaged, missing, or of different databases or moments. Nothing was changed in `dir` then.
    pub async fn open(env: &Env, dir: &Path, config: NodeConfig) -> Result<Arc<Self>> {
        let began = env.now();
        // Whoever may read the files reads all rows, whatever rights they have in the database.
        let env = &env.keeping_private();
        let (directory, engine) = creation::claim(env, dir, &config).await?;
        let config = fitted(config, engine);
        let recovered = match recover(env, &directory, &config).await {
            // On a full disk the next try has the reserve's room.
            Err(error) if space::release_before_opening(env, dir, &error).await => {
                recover(env, &directory, &config).await?
            }
            recovered => recovered?,
        };
        let (storage, log, sequencer, is_new) = recovered;
        let log_bytes = log.bytes();
        let node = Self::start(env, config, Some(directory), storage, Some(Box::new(log)), sequencer).await?;
        if is_new && let Err(error) = node.write_first_rows().await {
            // What went wrong first is what counts.
            let _ = node.close().await;
            return Err(error);
        }
        node.tell_opened(log_bytes, env.now().saturating_sub(began));
        Ok(node)
    }

    fn tell_opened(&self, log_bytes: u64, took: Duration) {
        let replica = &*self.leader.replica;
        let opened = Opened {
            engine: replica.config.engine.name(),
            version: replica.newest(),
            rows: replica.storage.count(),
            data_bytes: replica.storage.data_bytes(),
            log_bytes,
            took,
        };
        events::opened(replica.directory.as_ref().map(|directory| &*directory.root), &opened);
    }

    /// A database that lives in memory alone and is gone with its last handle.
    pub async fn in_memory(env: &Env, config: NodeConfig) -> Result<Arc<Self>> {
        let sequencer = Sequencer::starting_at(1, env.now());
        let config = fitted(config, EngineKind::Memory);
        let storage = Store::new(MemoryStorage::new(LogPosition::default()));
        let node = Self::start(env, config, None, storage, None, sequencer).await?;
        node.write_first_rows().await?;
        node.tell_opened(0, Duration::ZERO);
        Ok(node)
    }

    pub(crate) async fn start(
        env: &Env,
        config: NodeConfig,
        directory: Option<Directory>,
        mut storage: Store,
        log: Option<Box<dyn CommitLog>>,
        sequencer: Sequencer,
    ) -> Result<Arc<Self>> {
        // Whatever was read before this run is older than the window.
        let first = sequencer.newest();
        storage.reader.publish(first);
        storage.writer.forget_before(first, 0);
        let reader = &*storage.reader;
        let metadata = or_close(reader, read_metadata(reader, first).await).await?;
        let view = log.as_ref().map(|log| log.view());
        let resolver = new_resolver(env, first, &config);
        let replica = Arc::new(Replica::new(env, config, directory, (storage, view), (first, metadata)));
        replica.space.look(&replica, 0).await;
        let batcher = Batcher { log, resolver, metadata: replica.visible.metadata() };
        // The only log there is needs no proof that this node leads.
        let leader = Arc::new(Leader::begin(replica, batcher, Versions::new(sequencer), None));
        let tasks = Mutex::new(start_tasks(&leader));
        Ok(Arc::new(Self { leader, tasks }))
    }

    /// The rows that every database has from its first moment, as tools and bindings expect them.
    pub(crate) async fn write_first_rows(&self) -> Result<()> {
        let mut rows = MutationList::new();
        rows.push(MutationType::Set, KEY_SERVERS_PREFIX, b"local");
        let configuration =
            [("redundancy_mode", "single"), ("storage_engine", self.leader.replica.config.engine.name())];
        for (name, value) in configuration {
            rows.push(MutationType::Set, &[CONFIGURATION_PREFIX, name.as_bytes()].concat(), value.as_bytes());
        }
        let request = internal_request(rows, self.leader.replica.newest());
        self.leader.queue.submit(request).await.map(drop)
    }

    /// Stops taking commits, lets those under way end, and waits until everything is written.
    ///
    /// Handles that are left get `shutdown_in_progress` from their commits, and from reads that need the disk;
    /// reads from memory go on.
    pub async fn close(&self) -> Result<()> {
        self.begin_close();
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        let mut failure = None;
        for task in tasks {
            // All of them are waited for: each may still write to the directory.
            failure = failure.or(task.await.err().map(Error::from));
        }
        let replica = &self.leader.replica;
        let log = self.leader.batcher.take().await.log.take();
        if let Some(log) = log {
            failure = failure.or(log.close().await.err());
        }
        replica.storage.close().await;
        replica.health.failure().or(failure).map_or(Ok(()), Err)
    }

    /// Waits until the node takes no more commits because something broke, and says what: a sync that failed, a
    /// task that panicked. Never ready for a node that is merely closed.
    pub async fn until_failed(&self) -> Error {
        self.leader.replica.health.until_failed().await
    }

    /// What held up commits longest since this was last asked.
    pub fn take_longest_waits(&self) -> LongestWaits {
        self.leader.replica.counters.metrics.waits.take()
    }

    /// All measurements of the node, in Prometheus' text format (version 0.0.4).
    pub fn metrics_text(&self) -> String {
        exposition::render(&self.leader)
    }

    /// Why the node takes no more commits, if something broke.
    pub fn failure(&self) -> Option<Error> {
        self.leader.replica.health.failure()
    }

    /// Panics if what the roles of this node believe of themselves contradicts itself. For simulations.
    pub fn check_invariants(&self) {
        self.leader.check_invariants();
    }

    /// Writes a checkpoint now and gives its version. For backups and tests; a node does it by itself.
    ///
    /// # Errors
    /// `unsupported_operation` for a database in memory; file errors.
    pub async fn checkpoint(&self) -> Result<Version> {
        checkpoints::write(&self.leader.replica).await
    }

    fn begin_close(&self) {
        let replica = &self.leader.replica;
        if replica.health.begin_closing() {
            self.leader.queue.close();
            self.leader.chores_due.notify();
            replica.checkpoint_due.notify();
        }
    }
}

/// The tasks of a node.
fn start_tasks(leader: &Arc<Leader>) -> Vec<Task> {
    let config = &leader.replica.config;
    let mut tasks: Vec<_> = (0..config.commit_workers.max(1))
        .map(|n| supervise::spawn(leader, &format!("commit-{n}"), worker::run(leader.clone())))
        .collect();
    if leader.replica.log.as_ref().is_some_and(|log| log.commits_by_itself()) {
        tasks.push(supervise::spawn(leader, "commits", worker::follow_commits(leader.clone())));
    }
    tasks.push(supervise::spawn(leader, "chores", chores::keep_time(leader.clone())));
    if leader.replica.directory.is_some() {
        let replica = leader.replica.clone();
        let task = match config.engine {
            EngineKind::Memory => supervise::spawn(leader, "checkpoint", checkpoints::run(replica)),
            EngineKind::Ssd => supervise::spawn(leader, "checkpoint", checkpoints::follow_tables(replica)),
        };
        tasks.push(task);
    }
    tasks
}

impl Drop for Node {
    fn drop(&mut self) {
        // Waiting lets the directory be opened again at once. Where that can't be (an answer dropped the last
        // handle on a worker's own thread, or this is a simulation) the tasks end by themselves.
        if self.leader.replica.env.is_simulated() || worker::is_worker_thread() {
            self.begin_close();
        } else {
            // Nobody is left to tell; what was acknowledged is durable whether or not this succeeds.
            drop(plinth_env::block_on(self.close()));
        }
    }
}

/// Its hash is seeded at random: keys that collide can't be made up by somebody who knows the code.
fn new_resolver(env: &Env, first: Version, config: &NodeConfig) -> Resolver {
    #[cfg_attr(not(feature = "planted-bugs"), expect(unused_mut, reason = "only a planted bug changes it"))]
    let mut resolver = Resolver::with_seed(first, env.random_u64());
    #[cfg(feature = "planted-bugs")]
    if let Some(planted) = config.planted {
        resolver.plant(planted);
    }
    let _ = config;
    resolver
}

/// The metadata as the rows have it.
async fn read_metadata(storage: &dyn Reader, version: Version) -> Result<Metadata> {
    let mut keys = KeyList::new();
    Metadata::load(|key| {
        keys.push(key);
        None
    });
    let mut values = storage.get_many(version, KeySpace::System, &keys).await?.into_iter();
    Ok(Metadata::load(|_| values.next().flatten()))
}

/// A storage that nobody will use is closed before the reason is told: its tasks hold the directory's lock until they end.
async fn or_close<T>(storage: &dyn Reader, result: Result<T>) -> Result<T> {
    if result.is_err() {
        storage.close().await;
    }
    result
}

/// The settings for a database that has its engine already.
pub(crate) fn fitted(mut config: NodeConfig, engine: EngineKind) -> NodeConfig {
    config.engine = engine;
    if let Some(bound) = config.memory_bytes.filter(|_| engine == EngineKind::Memory) {
        // What is overwritten again and again is held back before it takes the rows' place.
        config.load.window_bytes = config.load.window_bytes.min(bound / 4);
    }
    if engine == EngineKind::Ssd {
        // Transactions are held back before the window's part of the memory is full.
        config.load.window_bytes = config.load.window_bytes.min(config.ssd.memory / 5 * 2);
    }
    config
}
