//! What the tasks and the clients of one node share.

use crate::counters::Counters;
use crate::metadata::Metadata;
use crate::node::NodeConfig;
use crate::order::{Baton, Turns};
use crate::pace::Gate;
use crate::queue::CommitQueue;
use crate::store::Store;
use crate::versions::Versions;
use crate::visible::Visible;
use crate::waiting::Waiting;
use crate::watches::Watches;
use plinth_env::sync::{Signal, race};
use plinth_env::{DirLock, Env};
use plinth_log::{Identity, LocalLog, LocalView, Syncer};
use plinth_resolver::Resolver;
use plinth_types::{Error, Version};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The front of the pipeline: owned by whichever commit worker holds the baton.
pub(crate) struct Front {
    /// `None`: the database lives in memory alone.
    pub log: Option<LocalLog>,
    pub resolver: Resolver,
    pub metadata: Metadata,
    /// The turn in which the next batch takes effect.
    pub next_ticket: u64,
}

/// Where a node's files are; absent for a database in memory.
pub(crate) struct Directory {
    pub path: PathBuf,
    pub ids: Identity,
    /// Held until the last task is gone, so that nobody opens the directory while it is still written.
    pub lock: Arc<DirLock>,
}

impl Directory {
    pub fn log_path(&self) -> PathBuf {
        self.path.join("log")
    }

    pub fn checkpoint_identity(&self) -> plinth_storage::checkpoint::Identity {
        plinth_storage::checkpoint::Identity { cluster_id: self.ids.cluster_id, node_id: self.ids.node_id }
    }

    pub fn checkpoint_path(&self) -> PathBuf {
        self.path.join("checkpoint")
    }
}

/// Whether the node still takes commits, and how fast transactions may begin.
#[derive(Default)]
pub(crate) struct Health {
    pub gate: Gate,
    failure: OnceLock<Error>,
    closing: AtomicBool,
    /// Rows take all the memory that they may take.
    full: AtomicBool,
}

impl Health {
    /// From now on no commit is taken: what is on disk is not known any more.
    pub fn fail(&self, error: Error) {
        if self.failure.set(error.clone()).is_ok() {
            crate::events::failed(&error);
        }
    }

    /// Why no commit is taken, if so.
    pub fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// Rows take all the memory that they may take, or they don't.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// Whether rows take all the memory that they may take.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub fn begin_closing(&self) -> bool {
        !self.closing.swap(true, Ordering::SeqCst)
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }
}

/// What everybody but the writer does with the log.
pub(crate) struct LogHandles {
    pub syncer: Syncer,
    pub view: LocalView,
}

/// Signals to the tasks that are not commit workers.
#[derive(Default)]
pub(crate) struct Bells {
    pub chores: Signal,
    pub checkpoint: Signal,
}

pub(crate) struct Shared {
    pub env: Env,
    pub config: NodeConfig,
    pub directory: Option<Directory>,
    pub storage: Store,
    /// `None`: the database lives in memory alone.
    pub log: Option<LogHandles>,
    pub queue: CommitQueue,
    pub front: Baton<Front>,
    pub turns: Turns,
    pub versions: Versions,
    pub visible: Visible,
    pub watches: Watches,
    pub waiting: Arc<Waiting>,
    pub health: Health,
    pub bells: Bells,
    pub counters: Counters,
}

impl Shared {
    /// The oldest version that the window still holds when the newest is `newest`.
    pub fn window_begin(&self, newest: Version) -> Version {
        newest.saturating_sub(self.config.window_versions())
    }

    /// Seconds since the Unix epoch.
    pub fn wall_clock_seconds(&self) -> u64 {
        self.env.wall_clock().as_secs()
    }

    /// Sleeps, but not beyond the beginning of the end.
    pub async fn pause(&self, bell: &Signal, at_most: Duration) {
        race(bell.wait(), self.env.sleep(at_most)).await;
    }
}
