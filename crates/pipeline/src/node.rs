//! A node: the roles wired together in one process, opened, recovered and closed.
//!
//! Opening takes the directory's lock and reads its identity (`creation.rs`), loads the newest
//! checkpoint and replays the log behind it (`opening.rs`), and starts the tasks: commit workers,
//! chores, checkpoints. Recovery is replay; there is no other way in which data comes back.

use crate::batch::internal_request;
use crate::batch_lock::lock;
use crate::beginning::{first_rows, new_resolver};
use crate::cluster::Participant;
use crate::config::NodeConfig;
use crate::directory::Directory;
use crate::events::{self, Opened};
use crate::failure::{NodeError, NodeResult};
use crate::identity::EngineKind;
use crate::leader::{Batcher, Leader};
use crate::metadata::Metadata;
use crate::metrics::LongestWaits;
use crate::opening::recover;
use crate::queue::CommitQueue;
use crate::replica::{Beginning, Replica};
use crate::sequencer::Sequencer;
use crate::shown::{Shown, ShownMember};
use crate::store::Store;
use crate::supervise::Supervisor;
use crate::versions::Versions;
use crate::{changes, checkpoints, creation, deliver, exposition, space, supervise, worker};
use plinth_env::{Env, Reply, Task, Unanswered};
use plinth_log::CommitLog;
use plinth_storage::{MemoryStorage, Reader};
use plinth_types::{CommitReply, CommitRequest, KeyList, KeySpace, LogPosition, Version};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running node. Dropping the last handle closes it.
pub struct Node {
    pub(crate) replica: Arc<Replica>,
    pub(crate) seat: Seat,
    tasks: Mutex<Vec<Task>>,
}

/// Who leads.
pub(crate) enum Seat {
    /// This node, always: it is the only one.
    Alone(Arc<Leader>),
    /// Whoever the members of its cluster elect.
    Member(Arc<Participant>),
}

impl Node {
    /// Opens the database in `dir`, or creates it there. The directory above it must exist. What is
    /// made is its owner's alone.
    ///
    /// # Errors
    /// `Io` if it is open already, here or in another process; `Missing` or `Foreign` if `dir`
    /// holds no database, or other things; `NewerFormat` for another format; `Damaged`, naming file
    /// and offset, if its files are damaged, missing, or of different databases or moments. Nothing
    /// was changed in `dir` then.
    pub async fn open(env: &Env, dir: &Path, config: NodeConfig) -> NodeResult<Arc<Self>> {
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
        let node =
            Self::start(env, config, Some(directory), storage, Some(Box::new(log)), sequencer)
                .await?;
        if is_new && let Err(error) = node.write_first_rows().await {
            // What went wrong first is what counts.
            let _ = node.close().await;
            return Err(error);
        }
        node.tell_opened(is_new, log_bytes, env.now().saturating_sub(began));
        Ok(node)
    }

    pub(crate) fn tell_opened(&self, is_new: bool, log_bytes: u64, took: Duration) {
        let replica = &*self.replica;
        let opened = Opened {
            is_new,
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
    pub async fn in_memory(env: &Env, config: NodeConfig) -> NodeResult<Arc<Self>> {
        let sequencer = Sequencer::starting_at(1, env.now());
        let config = fitted(config, EngineKind::Memory);
        let storage = Store::new(MemoryStorage::new(LogPosition::default()));
        let node = Self::start(env, config, None, storage, None, sequencer).await?;
        node.write_first_rows().await?;
        node.tell_opened(true, 0, Duration::ZERO);
        Ok(node)
    }

    pub(crate) async fn start(
        env: &Env,
        config: NodeConfig,
        directory: Option<Directory>,
        mut storage: Store,
        log: Option<Box<dyn CommitLog>>,
        sequencer: Sequencer,
    ) -> NodeResult<Arc<Self>> {
        // Whatever was read before this run is older than the window.
        let first = sequencer.newest();
        storage.reader.publish(first);
        storage.writer.forget_before(first, 0);
        let reader = &*storage.reader;
        let beginning = or_close(reader, read_beginning(reader, first).await).await?;
        let view = log.as_ref().map(|log| log.view());
        let resolver = new_resolver(env, first, &config);
        let replica = Arc::new(Replica::new(env, config, directory, (storage, view), beginning));
        replica.space.look(0).await;
        let free = replica.space.free_and_kept().map(|(free, _)| free);
        replica.streams.begin(first, free, false);
        let batcher = Batcher { log, resolver, metadata: replica.visible.metadata() };
        // The only log there is needs no proof that this node leads.
        let leader =
            Arc::new(Leader::begin(replica.clone(), batcher, Versions::new(sequencer), None));
        let mut tasks = supervise::lead(&leader);
        tasks.extend(start_checkpoints(&leader, &replica));
        tasks.push(supervise::spawn(&leader, "changes", deliver::run(replica.clone())));
        Ok(Arc::new(Self { replica, seat: Seat::Alone(leader), tasks: Mutex::new(tasks) }))
    }

    /// The rows that every database has from its first moment, as tools and bindings expect them.
    pub(crate) async fn write_first_rows(&self) -> NodeResult<()> {
        let rows = first_rows(&self.replica.config, None);
        self.submit_own(internal_request(rows, self.replica.newest())).await.map(drop)
    }

    /// The newest version that may be read: where it follows the clock, moved along with that.
    pub(crate) fn newest_readable(&self) -> Version {
        match &self.seat {
            Seat::Alone(leader) => leader.newest_readable(),
            Seat::Member(_) => self.replica.newest(),
        }
    }

    /// Leaves a client's transaction with the leader.
    pub(crate) fn submit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.leave(|queue| queue.submit(request))
    }

    /// Leaves a transaction of the pipeline's own.
    pub(crate) fn submit_own(&self, request: CommitRequest) -> Reply<CommitReply, NodeError> {
        self.leave(|queue| queue.submit_own(request))
    }

    fn leave<E: From<NodeError> + From<Unanswered>>(
        &self,
        leave: impl FnOnce(&CommitQueue) -> Reply<CommitReply, E>,
    ) -> Reply<CommitReply, E> {
        match &self.seat {
            Seat::Alone(leader) => leave(&leader.queue),
            Seat::Member(participant) => match participant.ready_leader() {
                Ok(leader) => leave(&leader.queue),
                Err(error) => Reply::ready(Err(error.into())),
            },
        }
    }

    /// Stops taking commits, lets those under way end, and waits until everything is written.
    ///
    /// Handles that are left get `shutdown_in_progress` from their commits, and from reads that
    /// need the disk; reads from memory go on.
    pub async fn close(&self) -> NodeResult<()> {
        self.begin_close();
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        let mut failure = None;
        for task in tasks {
            // All of them are waited for: each may still write to the directory.
            failure = failure.or(task.await.err().map(NodeError::from));
        }
        let closed = match &self.seat {
            Seat::Alone(leader) => match leader.batcher.take().await.log.take() {
                Some(log) => log.close().await.map_err(NodeError::from),
                None => Ok(()),
            },
            Seat::Member(participant) => participant.until_ended().await,
        };
        failure = failure.or(closed.err());
        self.replica.storage.close().await;
        self.replica.health.failure().or(failure).map_or(Ok(()), Err)
    }

    /// Waits until the node takes no more commits because something broke, and says what: a sync
    /// that failed, a task that panicked. Never ready for a node that is merely closed.
    pub async fn until_failed(&self) -> NodeError {
        self.replica.health.until_failed().await
    }

    /// What held up commits longest since this was last asked.
    pub fn take_longest_waits(&self) -> LongestWaits {
        self.replica.counters.metrics.waits.take()
    }

    /// All measurements of the node, in Prometheus' text format (version 0.0.4).
    pub fn metrics_text(&self) -> String {
        exposition::render(&self.shown())
    }

    /// Why the node takes no more commits, if something broke.
    pub fn failure(&self) -> Option<NodeError> {
        self.replica.health.failure()
    }

    /// Whether its tasks are to end, or have.
    pub(crate) fn is_over(&self) -> bool {
        self.replica.health.is_over()
    }

    /// Panics if what the roles of this node believe of themselves contradicts itself. For
    /// simulations.
    pub fn check_invariants(&self) {
        match &self.seat {
            Seat::Alone(leader) => leader.check_invariants(),
            Seat::Member(participant) => {
                self.replica.check_invariants();
                participant.leader().iter().for_each(|leader| leader.check_invariants());
            }
        }
    }

    /// Writes a checkpoint now and gives its version. For backups and tests; a node does it by
    /// itself.
    ///
    /// # Errors
    /// `Unsupported` for a database in memory; those of files.
    pub async fn checkpoint(&self) -> NodeResult<Version> {
        checkpoints::write(&self.replica).await
    }

    /// What is shown of it.
    pub(crate) fn shown(&self) -> Shown {
        let (leader, member) = match &self.seat {
            Seat::Alone(leader) => (Some(leader.clone()), None),
            Seat::Member(participant) => {
                let (standing, membership) = (participant.standing(), participant.membership());
                let progress = &participant.progress;
                let (catching_up, rows_taken) = (progress.get(), progress.rows_taken());
                let held_back = participant.held_back(&standing.members);
                let stalled = participant.stalled();
                let member = ShownMember {
                    standing,
                    membership,
                    catching_up,
                    rows_taken,
                    held_back,
                    stalled,
                };
                (participant.leader(), Some(member))
            }
        };
        Shown { replica: self.replica.clone(), leader, member }
    }

    pub(crate) fn of(
        replica: Arc<Replica>,
        participant: Arc<Participant>,
        tasks: Vec<Task>,
    ) -> Arc<Self> {
        Arc::new(Self { replica, seat: Seat::Member(participant), tasks: Mutex::new(tasks) })
    }

    fn begin_close(&self) {
        if self.replica.health.begin_closing() {
            if let Seat::Alone(leader) = &self.seat {
                leader.queue.close();
                leader.chores_due.notify();
            }
            self.replica.space.checkpoint.due.notify();
            self.replica.streams.look();
        }
    }
}

/// The task that moves what is in memory to where the log isn't needed for it.
pub(crate) fn start_checkpoints<S: Supervisor>(
    supervisor: &Arc<S>,
    replica: &Arc<Replica>,
) -> Option<Task> {
    replica.directory.as_ref()?;
    Some(match replica.config.engine {
        EngineKind::Memory => {
            supervise::spawn(supervisor, "checkpoint", checkpoints::run(replica.clone()))
        }
        EngineKind::Ssd => {
            supervise::spawn(supervisor, "checkpoint", checkpoints::follow_tables(replica.clone()))
        }
    })
}

impl Drop for Node {
    fn drop(&mut self) {
        // Waiting lets the directory be opened again at once. Where that can't be (an answer
        // dropped the last handle on a worker's own thread, or this is a simulation) the tasks end
        // by themselves.
        if self.replica.env.is_simulated() || worker::is_worker_thread() {
            self.begin_close();
        } else {
            // Nobody is left to tell; what was acknowledged is durable whether or not this
            // succeeds.
            drop(plinth_env::block_on(self.close()));
        }
    }
}

/// What the rows say at this version.
pub(crate) async fn read_beginning(storage: &dyn Reader, newest: Version) -> NodeResult<Beginning> {
    let metadata = read_metadata(storage, newest).await?;
    let streams = changes::read_rows(storage, newest).await?;
    Ok(Beginning { newest, metadata, streams })
}

/// The metadata as the rows have it.
async fn read_metadata(storage: &dyn Reader, version: Version) -> NodeResult<Metadata> {
    let mut keys = KeyList::new();
    Metadata::load(|key| {
        keys.push(key);
        None
    });
    let mut values = storage.get_many(version, KeySpace::System, &keys).await?.into_iter();
    Ok(Metadata::load(|_| values.next().flatten()))
}

/// A storage that nobody will use is closed before the reason is told: its tasks hold the
/// directory's lock until they end.
pub(crate) async fn or_close<T>(storage: &dyn Reader, result: NodeResult<T>) -> NodeResult<T> {
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
