//! What a node is opened with.
//!
//! Plain settings, without behaviour: whoever opens a node fills them in, the roles read them.

use crate::identity::EngineKind;
use plinth_format::Keys;
use plinth_log::LogConfig;
use plinth_replication::Spoken;
use plinth_storage::SsdSettings;
use plinth_types::version::VERSIONS_PER_SECOND;
use plinth_types::{Version, limits};

/// How a node behaves.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The storage engine of a database that is created; one that exists keeps its own.
    pub engine: EngineKind,
    /// What to do about a directory that holds no database, or holds one.
    pub creation: Creation,
    /// For how long transactions may read and commit, in versions (microseconds).
    pub window: Version,
    /// Threads that carry commits to the log: while one gathers a batch the others may lend
    /// themselves to its syncs.
    pub commit_workers: usize,
    /// How many batches may be appended and not yet committed, at least 1. While that many are, the
    /// next one fills.
    pub commit_depth: usize,
    /// Bytes of log after which a checkpoint is written, at least; it grows with the data.
    pub checkpoint_bytes: u64,
    /// How the engine `ssd` behaves, its memory among it.
    pub ssd: SsdSettings,
    /// Bytes that rows may take in memory with the engine `memory`: keys, values, what it takes to
    /// find them, and what was overwritten or cleared within the window. At the bound no commit
    /// that writes rows is taken. `None`: as much as they need.
    pub memory_bytes: Option<u64>,
    /// Bytes of the newest entries that a member of a cluster keeps for others that are behind,
    /// beyond what it needs itself. One that has no entry yet takes rows where there are more than
    /// an eighth of that.
    pub follower_log_bytes: u64,
    /// How rows are given to members that lack them.
    pub rows: RowsConfig,
    /// Which versions of the members' protocol a member of a cluster speaks: less than this program
    /// can, for tests, or to keep the way back to an older one open.
    pub spoken: Spoken,
    /// The log's own settings.
    pub log: LogConfig,
    /// How large queues may grow before transactions are held back.
    pub load: LoadTargets,
    /// A transaction that commits so long after its read version, in versions (microseconds), is
    /// slow: an event tells of it, and `status` keeps it.
    pub slow: Version,
    #[cfg(feature = "planted-bugs")]
    /// A bug for the tests of tests.
    pub planted: Option<plinth_resolver::Planted>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            engine: EngineKind::Memory,
            creation: Creation::IfMissing,
            window: limits::WINDOW_VERSIONS,
            commit_workers: 3,
            commit_depth: 3,
            checkpoint_bytes: 256 << 20,
            ssd: SsdSettings::default(),
            memory_bytes: None,
            follower_log_bytes: 256 << 20,
            rows: RowsConfig::default(),
            spoken: Spoken::THIS,
            log: LogConfig::default(),
            load: LoadTargets::default(),
            slow: VERSIONS_PER_SECOND,
            #[cfg(feature = "planted-bugs")]
            planted: None,
        }
    }
}

impl NodeConfig {
    /// Has log, checkpoints and tables sealed by the newest of these keys, and opens what any of
    /// them has sealed.
    pub fn set_keys(&mut self, keys: Keys) {
        self.ssd.keys = keys.clone();
        self.log.keys = keys;
    }

    /// The keys that were given.
    pub fn keys(&self) -> &Keys {
        &self.log.keys
    }

    /// The bytes that rows may take in memory, where that is where they are.
    pub(crate) fn rows_bound(&self) -> Option<u64> {
        self.memory_bytes.filter(|_| self.engine == EngineKind::Memory)
    }
}

/// How members that are too far behind for the log get rows.
#[derive(Clone, Debug)]
pub struct RowsConfig {
    /// Bytes that one asks others for at a time: by default so few that what holds them on the way
    /// isn't one of the allocator's large blocks, which come from the system each time.
    pub chunk_bytes: u64,
    /// Bytes that are given in a second while somebody commits; else as many as are taken.
    pub bytes_per_second: u64,
}

impl Default for RowsConfig {
    fn default() -> Self {
        Self { chunk_bytes: 96 << 10, bytes_per_second: 104_000_000 }
    }
}

/// Whether opening may create a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Creation {
    /// Create one if the directory is missing or empty.
    IfMissing,
    /// There must be one.
    Never,
    /// There must be none yet.
    Always,
}

/// How large the node's queues may grow before transactions are held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadTargets {
    /// Bytes of transactions that wait to be committed.
    pub queue_bytes: u64,
    /// Bytes of older versions of rows in memory; with the engine `ssd` two fifths of its memory at
    /// most.
    pub window_bytes: u64,
}

impl Default for LoadTargets {
    fn default() -> Self {
        Self { queue_bytes: 64 << 20, window_bytes: 4 << 30 }
    }
}
