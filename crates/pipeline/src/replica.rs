//! The replica: what every node is, for as long as its process lives.
//!
//! ```text
//!   entry, committed ──▶ apply ──▶ storage ──▶ versions: the newest that reads may be at
//!                                     │
//!                                     ├──▶ metadata that new transactions are told
//!                                     ├──▶ streams that it registers, or that deliver it
//!                                     └──▶ watches that the entry fires
//! ```
//!
//! [`Replica::apply`] is the one way in which an entry takes effect while the node runs. Nothing
//! here knows who leads, or how an entry came to be committed.
//!
//! Always: entries are applied in the order of their versions, each whole; a version is shown to
//! readers only when everything up to it has been applied.

use crate::changes::{StreamRows, Streams};
use crate::config::NodeConfig;
use crate::counters::Counters;
use crate::directory::Directory;
use crate::failure::{NodeError, NodeResult};
use crate::health::Health;
use crate::metadata::Metadata;
use crate::space::Space;
use crate::store::{SharedStore, Store};
use crate::visible::Visible;
use crate::waiting::Waiting;
use crate::watches::Watches;
use plinth_env::Env;
use plinth_env::reply::Promise;
use plinth_env::sync::{Signal, race};
use plinth_log::LogView;
use plinth_storage::{Change, Prepared, Writer};
use plinth_types::{LogPosition, MutationList, MutationRef, Version, planted};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// How many rows of forgotten versions are given back with each entry: more than one makes, on
/// average.
const FORGET_ROWS: usize = 4096;

/// What takes effect at one place in the log.
pub(crate) struct Entry<'a> {
    pub at: LogPosition,
    /// The mutations, list after list.
    pub lists: Vec<&'a MutationList>,
    /// Whether any of them may change the metadata, or which streams there are.
    pub touches_metadata: bool,
}

impl Entry<'_> {
    fn mutations(&self) -> impl Iterator<Item = MutationRef<'_>> {
        self.lists.iter().flat_map(|list| list.iter())
    }
}

/// Storage, versions, watches, reads.
pub(crate) struct Replica {
    pub env: Env,
    pub config: NodeConfig,
    pub directory: Option<Directory>,
    pub storage: SharedStore,
    /// `None`: the database lives in memory alone.
    pub log: Option<Arc<dyn LogView>>,
    pub visible: Visible,
    pub watches: Watches,
    pub waiting: Arc<Waiting>,
    pub health: Health,
    pub counters: Counters,
    pub space: Space,
    pub streams: Arc<Streams>,
}

/// What the rows of a replica say at its beginning.
pub(crate) struct Beginning {
    /// Up to where they are.
    pub newest: Version,
    pub metadata: Metadata,
    pub streams: StreamRows,
}

impl Replica {
    /// A replica whose storage holds everything up to `newest`.
    pub fn new(
        env: &Env,
        config: NodeConfig,
        directory: Option<Directory>,
        (storage, log): (Store, Option<Arc<dyn LogView>>),
        Beginning { newest, metadata, streams }: Beginning,
    ) -> Self {
        let (served, durable) = (storage.reader.newest(), storage.reader.durable().version);
        assert!(served >= newest, "a replica begins at {newest}, its storage serves {served}");
        assert!(
            durable <= newest,
            "rows are durable up to {durable}, a replica begins at {newest}"
        );
        let streams = Arc::new(Streams::new(streams, log.clone()));
        let root = directory.as_ref().map(|directory| &*directory.root);
        let space = Space::new(env, root, log.clone(), storage.reader.clone());
        Self {
            env: env.clone(),
            config,
            directory,
            storage: storage.into(),
            log,
            visible: Visible::new(newest, metadata, env.now()),
            watches: Watches::default(),
            waiting: Arc::new(Waiting::new()),
            health: Health::default(),
            counters: Counters::beginning(env.now()),
            space,
            streams,
        }
    }

    /// A committed entry takes effect: rows, metadata, and the version that readers may be at.
    /// Gives the watches that it fires, to be told once whoever committed it has been answered.
    ///
    /// # Errors
    /// If what an atomic operation changes could not be read. Nothing was applied then, and the
    /// node has failed: the next entry would be applied to rows that lack this one.
    pub async fn apply(&self, entry: &Entry<'_>) -> NodeResult<Vec<Promise<Version>>> {
        let version = entry.at.version;
        assert!(version > self.newest(), "entries are applied in the order of their versions");
        let prepared = self.writer().prepare(&mut entry.mutations());
        let prepared = match prepared.await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.health.fail(error.clone().into());
                return Err(error.into());
            }
        };
        assert!(!planted!("a commit worker panics while it applies"), "planted");
        let mut fired = Vec::new();
        self.change_rows(entry, prepared, &mut fired);
        self.storage.publish(version);
        assert!(self.storage.newest() >= version, "storage doesn't serve what it was given");
        let free = || self.space.free_and_kept().map(|(free, _)| free);
        self.streams.applied(entry.at, &entry.lists, entry.touches_metadata, free);
        if entry.touches_metadata {
            self.visible.change(version, |metadata| metadata.fold_all(entry.mutations()));
        } else {
            self.visible.applied.reach(version);
        }
        self.visible.note_applied(self.env.now());
        assert!(self.newest() >= version, "an entry was applied and can't be read");
        self.streams.reached();
        self.writer().forget_before(self.window_begin(version), FORGET_ROWS);
        assert!(self.storage.oldest() <= version, "what was just applied has left the window");
        self.counters.batches.add(1);
        self.counters.mutations.add(entry.lists.iter().map(|list| list.len() as u64).sum());
        Ok(fired)
    }

    fn change_rows(
        &self,
        entry: &Entry<'_>,
        prepared: Prepared,
        fired: &mut Vec<Promise<Version>>,
    ) {
        self.watches.begin(entry.at.version);
        if self.watches.is_empty() {
            return self.writer().apply(prepared, entry.at, &mut entry.mutations(), None);
        }
        let mut changed = |change: Change<'_>| match change {
            Change::Key(key, value) => self.watches.changed(key, value, fired),
            Change::Range(begin, end) => self.watches.cleared(begin, end, fired),
        };
        self.writer().apply(prepared, entry.at, &mut entry.mutations(), Some(&mut changed));
    }

    /// Who changes the storage, held for an instant.
    pub fn writer(&self) -> MutexGuard<'_, Box<dyn Writer>> {
        self.storage.writer()
    }

    /// What was wrong with the first of the damaged files that reads have met, of tables or of the
    /// log, and how often.
    pub fn damage(&self) -> Option<(NodeError, u64)> {
        let tables = self.storage.damage().map(|(error, times)| (NodeError::from(error), times));
        let log = self.log.as_ref().and_then(|log| log.damage());
        let log = log.map(|(error, times)| (NodeError::from(error), times));
        match (tables, log) {
            (Some((first, tables)), Some((_, log))) => Some((first, tables + log)),
            (tables, log) => tables.or(log),
        }
    }

    /// Notes what goes wrong behind the commits, for those who run the database. To be called now
    /// and then.
    pub fn note_trouble(&self) {
        let now = self.env.now();
        self.health.note_damage(self.damage(), now);
        self.health.note_tables(self.tables_trouble(), now);
        let silent = self.log_silence().or_else(|| self.checkpoint_silence());
        self.health.note_silence(silent, now);
    }

    /// A checkpoint, or a flush that makes room, was written or could not be. The first failure in
    /// a row is told at once, its end too.
    pub fn note_checkpoint<T>(&self, written: &NodeResult<T>) {
        let failed = written.as_ref().err();
        self.counters.checkpoints_failed.add(u64::from(failed.is_some()));
        match (self.space.checkpoint.note(failed), failed) {
            (true, None) => {
                crate::events::checkpoints_go_on(self.counters.checkpoints_failed.get());
            }
            (true, Some(error)) => crate::events::checkpoint_failed(error),
            (false, _) => {}
        }
    }

    /// The newest version that reads may be at.
    pub fn newest(&self) -> Version {
        self.visible.applied.newest()
    }

    /// The oldest version that the window still holds when the newest is `newest`.
    pub fn window_begin(&self, newest: Version) -> Version {
        newest.saturating_sub(self.config.window)
    }

    /// # Errors
    /// As [`Directory::check_place`]; never for a database in memory.
    pub fn check_place(&self) -> NodeResult<()> {
        self.directory.as_ref().map_or(Ok(()), Directory::check_place)
    }

    /// Seconds since the Unix epoch.
    pub fn wall_clock_seconds(&self) -> u64 {
        self.env.wall_clock().as_secs()
    }

    /// Sleeps, but not beyond a wake-up.
    pub async fn pause(&self, wake_up: &Signal, at_most: Duration) {
        race(wake_up.wait(), self.env.sleep(at_most)).await;
    }

    /// Panics if what must hold between two entries doesn't.
    pub fn check_invariants(&self) {
        let newest = self.newest();
        assert!(
            self.storage.newest() >= newest,
            "readers may be at a version that storage doesn't serve"
        );
        assert!(self.storage.oldest() <= newest, "the newest version has left the window");
        assert!(
            self.storage.durable().version <= self.storage.newest(),
            "rows are durable that were not applied"
        );
        self.writer().check_invariants();
        self.visible.check_invariants();
        self.watches.check_invariants();
        self.waiting.check_invariants();
        self.space.check_invariants();
        self.streams.check_invariants();
    }
}
