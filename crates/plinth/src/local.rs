//! A database that this process opens itself, and how.
//!
//! [`Database`] is a handle that may lead anywhere. [`Local`] is what an open gives: the node in
//! this process, with all that only a node has, and the handle on it. Handles hold the node: the
//! last one to go, transactions included, closes it; [`Local::close`] does so at once and says
//! whether everything reached the disk.

use plinth_client::Database;
use plinth_env::reply::promise;
use plinth_env::{Env, block_on};
use plinth_pipeline::{
    Compression, Creation, EngineKind, Host, Key, Keys, LongestWaits, Node, NodeConfig, SsdSettings,
};
use plinth_types::{Error, Result, Version};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A database that is open in this process. Cheap to clone; every clone is a handle of the same
/// one.
///
/// ```
/// use plinth::Local;
///
/// let node = Local::in_memory()?; // on disk: Local::open("./data")?
/// let db = node.database();
/// db.transact_blocking(|tr| {
///     tr.set("hello", "world");
///     Ok(())
/// })?;
/// let value = db.transact_blocking(|tr| tr.get("hello").wait())?;
/// assert_eq!(value.as_deref(), Some(&b"world"[..]));
/// assert!(node.failure().is_none());
/// node.close()?;
/// # Ok::<(), plinth::Error>(())
/// ```
///
/// Programs that don't care where their database is take a [`Database`]: this one's, or that of a
/// server, which [`Database::connect`] gives.
#[derive(Clone)]
pub struct Local {
    database: Database,
    node: Opened,
}

/// What was opened.
#[derive(Clone)]
enum Opened {
    /// A database of its own.
    Own(Arc<Node>),
    /// A member of a cluster.
    Member(Arc<Host>),
}

impl Local {
    /// Opens the database in a directory; makes both if they don't exist.
    ///
    /// # Errors
    /// `lock_file_failure` if it is open already, in this process or another;
    /// `client_invalid_operation` if the directory has something else in it;
    /// `unsupported_operation` if a newer version wrote it; `file_corrupt` and `checksum_failed`,
    /// naming file and offset, if it is damaged; `file_not_readable`, `file_not_writable` and
    /// `io_error` of the system.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Builder::new(path).open()
    }

    /// A database in memory alone: fast to make, and gone with its last handle.
    ///
    /// # Errors
    /// None that an ordinary machine has; those of starting threads.
    pub fn in_memory() -> Result<Self> {
        Builder::in_memory().open()
    }

    pub(crate) fn of_member(host: &Arc<Host>) -> Self {
        let database = Database::new(Arc::new(host.endpoint()));
        Self { database, node: Opened::Member(host.clone()) }
    }

    /// The handle on it.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The handle alone. The database stays open as long as it, a clone of it, or a transaction
    /// lives, and is closed after that.
    ///
    /// ```
    /// let db = plinth::Local::in_memory()?.into_database();
    /// assert_eq!(db.transact_blocking(|tr| tr.get("hello").wait())?, None);
    /// # Ok::<(), plinth::Error>(())
    /// ```
    pub fn into_database(self) -> Database {
        self.database
    }

    /// Writes a checkpoint now and waits until it is on the disk, so that the next start has little
    /// of the log to read. The database does so by itself now and then; commits and reads go on
    /// meanwhile. Gives the version of its data.
    ///
    /// # Errors
    /// `unsupported_operation` if there are no checkpoints (a database in memory alone); `io_error`
    /// and the like if it can't be written.
    pub fn checkpoint(&self) -> Result<Version> {
        Ok(match &self.node {
            Opened::Own(node) => block_on(node.checkpoint()),
            Opened::Member(host) => block_on(host.checkpoint()),
        }?)
    }

    /// What held up commits longest since this was last asked.
    pub fn take_longest_waits(&self) -> LongestWaits {
        match &self.node {
            Opened::Own(node) => node.take_longest_waits(),
            Opened::Member(host) => host.take_longest_waits(),
        }
    }

    /// Why the database takes no more commits, if something broke: a sync that failed, a task that
    /// panicked. It is to be opened anew then, best by a new process. `None` while all is well.
    pub fn failure(&self) -> Option<Error> {
        let failure = match &self.node {
            Opened::Own(node) => node.failure(),
            Opened::Member(host) => host.failure(),
        };
        failure.map(Error::from)
    }

    /// All measurements of the database, in Prometheus' text format (version 0.0.4).
    pub fn metrics_text(&self) -> String {
        match &self.node {
            Opened::Own(node) => node.metrics_text(),
            Opened::Member(host) => host.metrics_text(),
        }
    }

    /// Closes the database: commits under way come to their end, and what is written is on the
    /// disk. What other handles commit afterwards fails with `shutdown_in_progress`; the directory
    /// is free when the last of them is gone.
    ///
    /// Without it the last handle closes the database when it is dropped, and nobody learns of an
    /// error.
    ///
    /// # Errors
    /// Why what was committed last may not be on the disk.
    pub fn close(self) -> Result<()> {
        block_on(self.end())
    }

    /// [`Local::close`] without blocking the thread: it is done by one of its own. Should the
    /// future be dropped, the database is closed nevertheless.
    ///
    /// # Errors
    /// As [`Local::close`].
    pub async fn close_async(self) -> Result<()> {
        let env = self.database.endpoint().env().clone();
        apart(&env, "close", async move { self.end().await }).await
    }

    async fn end(self) -> Result<()> {
        Ok(match &self.node {
            Opened::Own(node) => node.close().await,
            Opened::Member(host) => host.close().await,
        }?)
    }
}

/// Does what may block a thread on one of its own.
async fn apart<T: Send + 'static>(
    env: &Env,
    name: &str,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (promise, reply) = promise();
    let task = env.spawn(name, async move { promise.send(work.await) });
    let done = reply.await;
    // A task that couldn't be started, or panicked, says so.
    if done.is_err() {
        task.await?;
    }
    done
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("database", &self.database).finish_non_exhaustive()
    }
}

/// How a database is to be opened in this process.
///
/// ```no_run
/// use plinth::{Builder, EngineKind};
///
/// let node = Builder::new("./data").engine(EngineKind::Ssd).memory_bytes(256 << 20).open()?;
/// # Ok::<(), plinth::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before open()"]
pub struct Builder {
    env: Option<Env>,
    directory: Option<PathBuf>,
    config: NodeConfig,
}

impl Builder {
    /// That in a directory.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { directory: Some(path.as_ref().to_path_buf()), ..Self::in_memory() }
    }

    /// A database in memory alone.
    pub fn in_memory() -> Self {
        Self { env: None, directory: None, config: NodeConfig::default() }
    }

    /// The storage engine of a new database; one that exists keeps its own. Unless said it is
    /// [`EngineKind::Memory`]. [`EngineKind::from_name`] has the names that settings use.
    ///
    /// ```
    /// use plinth::{Builder, EngineKind};
    ///
    /// let db = Builder::in_memory().engine(EngineKind::Memory).open()?;
    /// assert_eq!(EngineKind::from_name("ssd")?, EngineKind::Ssd);
    /// # Ok::<(), plinth::Error>(())
    /// ```
    pub fn engine(mut self, engine: EngineKind) -> Self {
        self.config.engine = engine;
        self
    }

    /// Opens only what exists: otherwise `file_not_found`.
    pub fn must_exist(mut self) -> Self {
        self.config.creation = Creation::Never;
        self
    }

    /// Opens only what is new: if there is a database already, `client_invalid_operation`.
    pub fn must_be_new(mut self) -> Self {
        self.config.creation = Creation::Always;
        self
    }

    /// Which versions of the members' protocol a member of a cluster speaks: fewer than this
    /// program does keep the way back to an older one open. A database of its own has no use for
    /// it.
    pub fn spoken(mut self, spoken: plinth_pipeline::cluster::Spoken) -> Self {
        self.config.spoken = spoken;
        self
    }

    /// For how long a transaction may read and commit. FoundationDB's, and the default, are five
    /// seconds. A longer window takes memory for what is overwritten in it.
    pub fn window(mut self, window: Duration) -> Self {
        self.config.window = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
        self
    }

    /// How many batches of commits may be on their way to the disk at a time, at least 1. While
    /// that many are, the next one fills.
    pub fn commit_depth(mut self, batches: usize) -> Self {
        self.config.commit_depth = batches;
        self
    }

    /// How many threads carry commits to the disk; while one gathers a batch the others may be
    /// syncing.
    pub fn commit_workers(mut self, count: usize) -> Self {
        self.config.commit_workers = count;
        self
    }

    /// How long after its read version a transaction that commits is slow: an event of the crate
    /// `tracing` tells of it then, and the status document keeps the latest. A second unless said.
    pub fn slow_transaction(mut self, age: Duration) -> Self {
        self.config.slow = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        self
    }

    /// After how many bytes of log a checkpoint is written, at least. Fewer make the next start
    /// quicker, more make less work.
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.config.checkpoint_bytes = bytes;
        self
    }

    /// Bytes of memory for all that the engine holds.
    ///
    /// `ssd`: what was written lately, its cache, its indexes; data may be many times as large. 1
    /// GiB unless said.
    ///
    /// `memory`: all rows, and what was overwritten or cleared in the last five seconds. Near the
    /// bound transactions begin more slowly; at it commits that write rows fail with
    /// `operation_failed`, and those that clear don't. Unless said there is no bound.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.config.memory_bytes = Some(bytes);
        let SsdSettings { compression, keys, .. } = self.config.ssd;
        self.config.ssd = SsdSettings { compression, keys, ..SsdSettings::with_memory(bytes) };
        self
    }

    /// How the engine `ssd` compresses the blocks that it writes from now on; those that are there
    /// can be read whatever is said here. The default is LZ4. [`Compression::Zstd`] wants the
    /// feature `zstd`.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.config.ssd.compression = compression;
        self
    }

    /// Has all rows and keys that are written to the directory encrypted with the first of these
    /// keys; what any of them has encrypted can be read. Log, checkpoints and tables that are
    /// there, in the clear or with an older key, are written anew while the database is open: until
    /// the status document says that there are none left, the older keys belong behind the new one.
    ///
    /// Without the key a directory that is encrypted isn't opened (`encrypt_key_not_found`), and
    /// nothing brings the rows back. [`Key::of_file`] makes a key of 32 bytes; it wants the feature
    /// `encryption`.
    ///
    /// ```
    /// # #[cfg(feature = "encryption")]
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let key = plinth::Key::of_file(&[7; 32])?; // random ones, of course
    /// let db = plinth::Builder::in_memory().encryption(&[key]).open()?;
    /// # Ok(())
    /// # }
    /// # #[cfg(feature = "encryption")]
    /// # example().unwrap();
    /// ```
    pub fn encryption(mut self, keys: &[Key]) -> Self {
        self.config.set_keys(Keys::new(keys));
        self
    }

    /// The world outside: unless said, the real one.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// The database in a directory, with settings that are known already.
    #[cfg(feature = "backup")]
    pub(crate) fn of(env: Env, directory: PathBuf, config: NodeConfig) -> Self {
        Self { env: Some(env), directory: Some(directory), config }
    }

    /// The world outside, the directory, and the settings.
    #[cfg(feature = "backup")]
    pub(crate) fn parts(self) -> Result<(Env, PathBuf, NodeConfig)> {
        let nowhere = || Error::invalid_option_value().with_detail("a restore needs a directory");
        let directory = self.directory.ok_or_else(nowhere)?;
        Ok((self.env.unwrap_or_else(Env::real), directory, self.config))
    }

    /// For a member of a cluster: the world outside, the directory, and the settings.
    pub(crate) fn of_member(&self) -> Result<(Env, &Path, &NodeConfig)> {
        let detail = "a member of a cluster needs a directory";
        let nowhere = || Error::invalid_option_value().with_detail(detail);
        let directory = self.directory.as_deref().ok_or_else(nowhere)?;
        Ok((self.env.clone().unwrap_or_else(Env::real), directory, &self.config))
    }

    /// Opens the database.
    ///
    /// # Errors
    /// As [`Local::open`].
    pub fn open(self) -> Result<Local> {
        let env = self.env.clone().unwrap_or_else(Env::real);
        block_on(self.open_in(env))
    }

    /// [`Builder::open`] as a future. It blocks no thread of the caller's: files are read, and the
    /// log applied, by one of its own, which ends with it. Should the future be dropped, what was
    /// opened is closed.
    ///
    /// ```
    /// # async fn example() -> plinth::Result<()> {
    /// let node = plinth::Builder::in_memory().open_async().await?;
    /// node.database().transact(async |tr| Ok(tr.set("hello", "world"))).await?;
    /// node.close_async().await
    /// # }
    /// # plinth::block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Local::open`].
    pub async fn open_async(self) -> Result<Local> {
        let env = self.env.clone().unwrap_or_else(Env::real);
        apart(&env, "open", self.open_in(env.clone())).await
    }

    async fn open_in(self, env: Env) -> Result<Local> {
        let node = match &self.directory {
            Some(directory) => Node::open(&env, directory, self.config).await?,
            None => Node::in_memory(&env, self.config).await?,
        };
        let database = Database::new(Arc::new(node.endpoint()));
        Ok(Local { database, node: Opened::Own(node) })
    }
}
