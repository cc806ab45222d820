//! What only whoever opened the database can do for a workload: checkpoints, crashes, restarts, and
//! databases beside it.
//!
//! Most workloads see a database as any client does. A few measure what happens around it; they ask
//! their host, and are skipped where there is none (a database on another machine, say).

use plinth_backup::restore::Loader;
use plinth_client::Database;
use plinth_types::{Result, Version};
use std::path::Path;
use std::time::Duration;

/// Whoever opened the database that is measured.
pub trait Host: Send + Sync {
    /// Writes a checkpoint of the database, and waits until it is on the disk.
    ///
    /// # Errors
    /// `unsupported_operation` if its engine has no checkpoints; those of writing files.
    fn checkpoint(&self) -> Result<()>;

    /// What held up the database's commits longest since this was last asked.
    fn take_longest_waits(&self) -> Waits;

    /// In a directory that doesn't exist yet: has another process load `rows` rows, write a
    /// checkpoint, and then overwrite random rows as fast as it can; kills it without warning after
    /// `transactions` of its commits were acknowledged. Its database has the same engine, and so
    /// many bytes of memory, if that is said.
    ///
    /// # Errors
    /// Whatever kept the process from getting so far.
    fn crash(
        &self,
        directory: &Path,
        rows: u64,
        transactions: u64,
        memory: Option<u64>,
    ) -> Result<Crash>;

    /// A new database of the same engine in a directory that doesn't exist yet; with so many bytes
    /// of memory for its data, caches and all, if that is said.
    ///
    /// # Errors
    /// `unsupported_operation` if the engine can't be given so little; those of opening a database.
    fn create(&self, directory: &Path, memory: Option<u64>) -> Result<Database>;

    /// Opens what a crash left, as after any start; with so much memory, if that is said.
    ///
    /// # Errors
    /// Those of opening a database.
    fn open(&self, directory: &Path, memory: Option<u64>) -> Result<Database>;

    /// Begins to make a new database of the same engine of rows, for a restore to a directory that
    /// doesn't exist yet. Its versions go on behind `version`.
    ///
    /// # Errors
    /// Those of writing files.
    fn loader(&self, directory: &Path, version: Version) -> Result<Box<dyn Loader>>;

    /// Starts a server of a new database of the same engine, in a directory that doesn't exist yet.
    ///
    /// # Errors
    /// Whatever kept it from serving.
    fn serve(&self, directory: &Path) -> Result<Server>;

    /// Starts so many servers of a new database of the same engine, one cluster, in a directory
    /// that doesn't exist yet. `is_apart`: each can be cut off from the others, which costs what
    /// goes between them time.
    ///
    /// # Errors
    /// `unsupported_operation` if it can't; whatever kept them from serving.
    fn cluster(
        &self,
        directory: &Path,
        servers: usize,
        is_apart: bool,
    ) -> Result<Box<dyn Cluster>> {
        let _ = (directory, servers, is_apart);
        Err(plinth_types::Error::unsupported_operation()
            .with_detail("it needs servers, which nobody starts here"))
    }
}

/// What happens to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// SIGKILL.
    Killed,
    /// SIGSTOP.
    Stopped,
    /// Nothing comes to it or from it of what servers say to each other.
    CutOff,
    /// SIGTERM: it ends cleanly.
    Ended,
}

/// Servers of one database, by their places; they end with the value.
pub trait Cluster: Send {
    /// A client of its own.
    ///
    /// # Errors
    /// Those of reading the cluster file.
    fn database(&self) -> Result<Database>;

    /// What makes clients of one server alone.
    ///
    /// # Errors
    /// Those of a connection string.
    fn one(&self, at: usize) -> Result<Box<dyn Fn() -> Database + Send>>;

    /// Which server leads, if that is known.
    fn leader(&self) -> Option<usize>;

    /// Something happens to a server.
    ///
    /// # Errors
    /// What went wrong besides.
    fn begin(&mut self, at: usize, mishap: Mishap) -> Result<()>;

    /// That is over, and the server is back.
    ///
    /// # Errors
    /// Why it doesn't serve.
    fn end(&mut self, at: usize, mishap: Mishap) -> Result<()>;

    /// Starts one more server, which has nothing and asks to be taken in. Gives its place.
    ///
    /// # Errors
    /// Those of starting a process.
    fn add(&mut self) -> Result<usize>;

    /// Waits until a server serves.
    ///
    /// # Errors
    /// Why it doesn't.
    fn until_ready(&mut self, at: usize) -> Result<()>;
}

/// A server that was started for a workload.
pub struct Server {
    /// Its database.
    pub database: Database,
    /// Ends it when dropped.
    pub process: Box<dyn Send + Sync>,
}

/// The longest times of their kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Waits {
    /// A commit waited for the log to be on the disk.
    pub sync: Duration,
    /// A commit waited for anything else that the database does.
    pub work: Duration,
    /// A checkpoint kept the disk busy in one go, in being written or removed.
    pub checkpoint_step: Duration,
}

impl Waits {
    /// The longer of both, of each kind.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            sync: self.sync.max(other.sync),
            work: self.work.max(other.work),
            checkpoint_step: self.checkpoint_step.max(other.checkpoint_step),
        }
    }
}

/// What a killed process left behind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Crash {
    /// Transactions whose commits it had acknowledged. Each added one to [`COMMITS`].
    pub acknowledged: u64,
    /// Bytes of its checkpoint, or of its engine's tables.
    pub checkpoint_bytes: u64,
    /// Bytes of its log, as far as it is whole.
    pub log_bytes: u64,
}

/// The key under which a process that is going to be killed counts its transactions, eight bytes,
/// little-endian.
pub const COMMITS: &[u8] = b"bench:commits";
/// Random rows that it overwrites in each of them.
pub const CRASH_WRITES: u64 = 10;
