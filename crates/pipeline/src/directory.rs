//! Where a node's files are, and the lock that keeps others out while any of its tasks lives.

use plinth_env::DirLock;
use plinth_log::Identity;
use std::path::PathBuf;
use std::sync::Arc;

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
