//! A database to open, and to close.
//!
//! [`Database`] is the client's [`plinth_client::Database`] together with the node that it reaches:
//! whoever holds one holds the node. The last handle to go, transactions included, closes it;
//! [`Database::close`] does so at once and says whether everything reached the disk.

use plinth_client::Endpoint;
use plinth_env::{Env, block_on};
use plinth_pipeline::cluster::{Membership, Peers};
use plinth_pipeline::{
    Compression, Creation, EngineKind, Host, LongestWaits, Node, NodeConfig, SsdSettings,
};
use plinth_types::{Error, Result, Version};
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A database. Cheap to clone; every clone is a handle of the same one.
///
/// ```
/// use plinth::Database;
///
/// let db = Database::in_memory()?;
/// db.transact_blocking(|tr| {
///     tr.set("hello", "world");
///     Ok(())
/// })?;
/// let value = db.transact_blocking(|tr| tr.get("hello").wait())?;
/// assert_eq!(value.as_deref(), Some(&b"world"[..]));
/// # Ok::<(), plinth::Error>(())
/// ```
///
/// What can be done with it is in [`plinth_client::Database`], to which it dereferences.
#[derive(Clone)]
pub struct Database {
    client: plinth_client::Database,
    place: Place,
}

/// Where a database is.
#[derive(Clone)]
enum Place {
    /// In another process.
    Elsewhere,
    /// In this one.
    Here(Arc<Node>),
    /// A member of a cluster in this one.
    Member(Arc<Host>),
}

impl Database {
    /// Opens the database in a directory; makes both if they don't exist.
    ///
    /// # Errors
    /// `lock_file_failure` if it is open already, in this process or another;
    /// `client_invalid_operation` if the directory has something else in it;
    /// `unsupported_operation` if a newer version wrote it; `file_corrupt` and `checksum_failed`,
    /// naming file and offset, if it is damaged; `file_not_readable`, `file_not_writable` and
    /// `io_error` of the system.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// A database in memory alone: fast to make, and gone with its last handle.
    ///
    /// # Errors
    /// None that an ordinary machine has; those of starting threads.
    pub fn in_memory() -> Result<Self> {
        Builder::in_memory().open()
    }

    /// Says how the database in a directory is to be opened.
    ///
    /// ```no_run
    /// let db = plinth::Database::builder("./data").must_exist().open()?;
    /// # Ok::<(), plinth::Error>(())
    /// ```
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder { directory: Some(path.as_ref().to_path_buf()), ..Builder::in_memory() }
    }

    /// The database that a server serves, found by its cluster file: `plinth server` writes one.
    /// Everything works as with a database in a directory of one's own. The server needs not be
    /// there yet: operations wait for it, and a transaction's timeout ends them.
    ///
    /// ```no_run
    /// let db = plinth::Database::connect("./shop/fdb.cluster")?;
    /// # Ok::<(), plinth::Error>(())
    /// ```
    ///
    /// An empty path stands for the file that `FDB_CLUSTER_FILE` names, or `fdb.cluster` in the
    /// current directory, or the system's.
    ///
    /// If the file's addresses end in `:tls`, and this is built with the feature `tls`,
    /// certificates come from FoundationDB's environment variables: `FDB_TLS_CERTIFICATE_FILE`,
    /// `FDB_TLS_KEY_FILE`, `FDB_TLS_CA_FILE`, `FDB_TLS_VERIFY_PEERS`. To say them in the program,
    /// see [`Database::connect_with`].
    ///
    /// # Errors
    /// `no_cluster_file_found`; `connection_string_invalid` if the file is none;
    /// `file_not_readable`.
    #[cfg(feature = "net")]
    pub fn connect(cluster_file: impl AsRef<Path>) -> Result<Self> {
        let env = Env::real();
        let file = block_on(crate::ClusterFile::find(&env, Some(cluster_file.as_ref())))?;
        Ok(Self::connect_to(&env, file))
    }

    /// The database that a server serves, found by what a cluster file says. See
    /// [`Database::connect`].
    #[cfg(feature = "net")]
    pub fn connect_to(env: &Env, cluster_file: crate::ClusterFile) -> Self {
        Self::over(Arc::new(plinth_client::remote::RemoteEndpoint::connect(env, cluster_file)))
    }

    /// The same, with a say in how: how many connections are made, and with which certificates
    /// (feature `tls`).
    ///
    /// ```no_run
    /// # #[cfg(feature = "tls")]
    /// # fn connect() -> plinth::Result<plinth::Database> {
    /// use plinth::{ClusterFile, Database, Env, RemoteOptions, Source, TlsOptions};
    ///
    /// let env = Env::real();
    /// let file = plinth::block_on(ClusterFile::read(&env, "./shop/fdb.cluster"))?;
    /// let tls = TlsOptions {
    ///     certificate: Some(Source::File("till.crt".into())),
    ///     key: Some(Source::File("till.key".into())),
    ///     authorities: Some(Source::File("ca.crt".into())),
    ///     ..TlsOptions::default()
    /// };
    /// let db = Database::connect_with(&env, file, &RemoteOptions { tls, ..RemoteOptions::new(&env) });
    /// # Ok(db)
    /// # }
    /// ```
    #[cfg(feature = "net")]
    pub fn connect_with(
        env: &Env,
        cluster_file: crate::ClusterFile,
        options: &crate::RemoteOptions,
    ) -> Self {
        use plinth_client::remote::RemoteEndpoint;
        Self::over(Arc::new(RemoteEndpoint::with_options(env, cluster_file, options)))
    }

    /// The database behind an endpoint, wherever that is.
    pub fn over(endpoint: Arc<dyn Endpoint>) -> Self {
        Self { client: plinth_client::Database::new(endpoint), place: Place::Elsewhere }
    }

    /// Opens a database of Apple's FoundationDB through its C library, which is loaded now.
    /// Whatever runs on Plinth runs on it.
    ///
    /// ```no_run
    /// let db = plinth::Database::foundationdb(&"fdb:/etc/foundationdb/fdb.cluster".parse()?)?;
    /// # Ok::<(), plinth::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Foundation::open`](crate::fdb::Foundation::open).
    #[cfg(feature = "fdb")]
    pub fn foundationdb(target: &crate::fdb::Target) -> Result<Self> {
        Ok(Self::over(Arc::new(crate::fdb::Foundation::open(target)?)))
    }

    /// The time series of this database. Points that a transaction writes are committed with its
    /// keys and values, or not at all.
    ///
    /// ```
    /// use plinth::Database;
    /// use plinth::series::{Direction, Error};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let db = Database::in_memory()?;
    /// let series = db.series();
    /// let noon = 1_767_268_800_000_000_000; // nanoseconds since 1970
    ///
    /// db.try_transact_blocking(|tr| {
    ///     tr.set("valve/3", "open");
    ///     series.append(tr, "valve.moves plant=north valve=3", noon, 1).wait()?;
    ///     series.append(tr, "pressure plant=north", noon, 2.25).wait()?;
    ///     Ok::<_, Error>(())
    /// })?;
    ///
    /// // Who opens the series owns them: takes in what transactions wrote, answers queries, writes millions of points a second.
    /// plinth::block_on(async {
    ///     let store = series.open().await?;
    ///     let pressure = store.series("pressure plant=north").await?;
    ///     pressure.append(noon + 1_000_000_000, 2.5)?;
    ///     let points = pressure.scan(.., Direction::Forward).await?.collect().await?;
    ///     assert_eq!(points.len(), 2);
    ///     store.sync().await
    /// })
    /// # }
    /// ```
    #[cfg(feature = "series")]
    pub fn series(&self) -> crate::series::SeriesLayer {
        crate::series::SeriesLayer::new(&self.client)
    }

    pub(crate) fn member(&self) -> Option<&Arc<Host>> {
        match &self.place {
            Place::Member(host) => Some(host),
            Place::Elsewhere | Place::Here(_) => None,
        }
    }

    /// Writes a checkpoint now and waits until it is on the disk, so that the next start has little
    /// of the log to read. The database does so by itself now and then; commits and reads go on
    /// meanwhile. Gives the version of its data.
    ///
    /// # Errors
    /// `unsupported_operation` if there are no checkpoints (a database in memory alone, or in
    /// another process); `io_error` and the like if it can't be written.
    pub fn checkpoint(&self) -> Result<Version> {
        match &self.place {
            Place::Here(node) => block_on(node.checkpoint()),
            Place::Member(host) => block_on(host.checkpoint()),
            Place::Elsewhere => {
                Err(Error::unsupported_operation()
                    .with_detail("the database is in another process"))
            }
        }
    }

    /// What held up commits longest since this was last asked; nothing where the database is in
    /// another process.
    pub fn take_longest_waits(&self) -> LongestWaits {
        match &self.place {
            Place::Here(node) => node.take_longest_waits(),
            Place::Member(host) => host.take_longest_waits(),
            Place::Elsewhere => LongestWaits::default(),
        }
    }

    /// Why the database takes no more commits, if something broke in this process: a sync that
    /// failed, a task that panicked. It is to be opened anew then, best by a new process. `None`
    /// while all is well, and where the database is in another process.
    pub fn failure(&self) -> Option<Error> {
        match &self.place {
            Place::Here(node) => node.failure(),
            Place::Member(host) => host.failure(),
            Place::Elsewhere => None,
        }
    }

    /// All measurements of the database, in Prometheus' text format (version 0.0.4); nothing where
    /// it is in another process.
    pub fn metrics_text(&self) -> String {
        match &self.place {
            Place::Here(node) => node.metrics_text(),
            Place::Member(host) => host.metrics_text(),
            Place::Elsewhere => String::new(),
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
        block_on(self.close_async())
    }

    /// [`Database::close`] without blocking the thread.
    ///
    /// # Errors
    /// As [`Database::close`].
    pub async fn close_async(self) -> Result<()> {
        match &self.place {
            Place::Here(node) => node.close().await,
            Place::Member(host) => host.close().await,
            Place::Elsewhere => Ok(()),
        }
    }
}

impl Deref for Database {
    type Target = plinth_client::Database;

    fn deref(&self) -> &plinth_client::Database {
        &self.client
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

/// How a database is to be opened. See [`Database::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before open()"]
pub struct Builder {
    env: Option<Env>,
    directory: Option<PathBuf>,
    config: NodeConfig,
}

impl Builder {
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
        let compression = self.config.ssd.compression;
        self.config.ssd = SsdSettings { compression, ..SsdSettings::with_memory(bytes) };
        self
    }

    /// How the engine `ssd` compresses the blocks that it writes from now on; those that are there
    /// can be read whatever is said here. The default is LZ4. [`Compression::Zstd`] wants the
    /// feature `zstd`.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.config.ssd.compression = compression;
        self
    }

    /// The world outside: unless said, the real one.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Makes the directory of a member of a cluster, unless it is one already.
    ///
    /// # Errors
    /// As [`Builder::open`]; `client_invalid_operation` if the directory is that of another node,
    /// or of a database of its own.
    pub async fn form_member(&self, membership: &Membership) -> Result<()> {
        let env = self.env.clone().unwrap_or_else(Env::real);
        Node::form(&env, self.place()?, &self.config, membership).await
    }

    /// Opens the directory of a member of a cluster, which takes part in it at once; `peers` brings
    /// what it says to other members. It answers reads of the versions that it has come to, and
    /// begins and commits transactions while it leads.
    ///
    /// # Errors
    /// As [`Builder::open`]; `file_not_found` if there is nothing, `client_invalid_operation` if it
    /// is a database of its own.
    pub async fn open_member(self, peers: Arc<dyn Peers>) -> Result<Database> {
        let env = self.env.clone().unwrap_or_else(Env::real);
        let host = Host::open(&env, self.place()?, self.config.clone(), peers).await?;
        let client = plinth_client::Database::new(Arc::new(host.endpoint()));
        Ok(Database { client, place: Place::Member(host) })
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

    fn place(&self) -> Result<&Path> {
        let detail = "a member of a cluster needs a directory";
        self.directory.as_deref().ok_or_else(|| Error::invalid_option_value().with_detail(detail))
    }

    /// Opens the database.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open(self) -> Result<Database> {
        block_on(self.open_async())
    }

    /// [`Builder::open`] as a future. In the real world it blocks its thread while it reads files.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub async fn open_async(self) -> Result<Database> {
        let env = self.env.unwrap_or_else(Env::real);
        let node = match &self.directory {
            Some(directory) => Node::open(&env, directory, self.config).await?,
            None => Node::in_memory(&env, self.config).await?,
        };
        let client = plinth_client::Database::new(Arc::new(node.endpoint()));
        Ok(Database { client, place: Place::Here(node) })
    }
}
