//! A handle on a database: makes transactions, runs them until they commit, keeps defaults for
//! them.
//!
//! The retry loop is the one place that decides to run a closure again, and it asks only
//! `on_error`; whatever a closure returns that is no database error ends it. Defaults reach the
//! transactions made after they were set.

use crate::endpoint::Endpoint;
use crate::options::{DatabaseOption, parameter};
use crate::retry::TransactError;
use crate::transaction::Transaction;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, Result, Version, limits};
use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The newest API version whose behaviour this client has, and that handles have unless told
/// otherwise.
pub const API_VERSION: i32 = 730;
/// The oldest API version whose behaviour this client has.
pub const API_VERSION_OLDEST: i32 = 200;

/// A handle on a database. Clones share options and watches.
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
    api_version: i32,
}

pub(crate) struct Shared {
    endpoint: Arc<dyn Endpoint>,
    may_lose_answers: bool,
    defaults: Mutex<Defaults>,
    /// Whether `defaults` has any, so that a new transaction needn't lock to find none.
    default_count: AtomicUsize,
    snapshot_ryw: AtomicI64,
    max_watches: AtomicUsize,
    watches: AtomicUsize,
}

/// Transaction options that each transaction begins with, in the order in which they were set.
pub(crate) type Defaults = Vec<(i32, Option<Box<[u8]>>)>;

impl Database {
    /// The database behind `endpoint`, with the newest API version's behaviour.
    pub fn new(endpoint: Arc<dyn Endpoint>) -> Self {
        let may_lose_answers = endpoint.may_lose_answers();
        let shared = Shared {
            endpoint,
            may_lose_answers,
            defaults: Mutex::new(Vec::new()),
            default_count: AtomicUsize::new(0),
            snapshot_ryw: AtomicI64::new(0),
            max_watches: AtomicUsize::new(limits::DEFAULT_MAX_WATCHES),
            watches: AtomicUsize::new(0),
        };
        Self { shared: Arc::new(shared), api_version: API_VERSION }
    }

    /// The same database (and options) with the behaviour of another API version, as the C
    /// library's users select. Versions outside of what this client knows behave as the nearest
    /// one.
    #[must_use]
    pub fn with_api_version(mut self, version: i32) -> Self {
        self.api_version = version;
        self
    }

    /// The API version whose behaviour transactions of this handle have.
    pub fn api_version(&self) -> i32 {
        self.api_version
    }

    /// What this handle reaches the database through.
    pub fn endpoint(&self) -> &Arc<dyn Endpoint> {
        &self.shared.endpoint
    }

    /// A new transaction.
    pub fn create_transaction(&self) -> Transaction {
        Transaction::new(self.clone(), None)
    }

    /// A transaction without the user's defaults, for the client's own work.
    pub(crate) fn create_bare_transaction(&self) -> Transaction {
        let database = Self { shared: self.shared.clone(), api_version: API_VERSION };
        Transaction::with_options(database, None, Vec::new())
    }

    /// Sets an option of this handle, or a default for its transactions.
    ///
    /// # Errors
    /// `invalid_option_value` if the option doesn't take the value.
    pub fn set_option(&self, option: DatabaseOption) -> Result<()> {
        self.set_option_raw(option.code(), option.value().as_bytes())
    }

    /// Sets an option by FoundationDB's code, the value as bytes.
    ///
    /// # Errors
    /// `invalid_option` for an unknown code; `invalid_option_value` if the option doesn't take the
    /// value.
    pub fn set_option_raw(&self, code: i32, value: Option<&[u8]>) -> Result<()> {
        if !DatabaseOption::exists(code) {
            return Err(Error::invalid_option()
                .with_detail(format!("no database option has the code {code}")));
        }
        if let Some(option) = DatabaseOption::default_for(code) {
            if code >= 500 && self.api_version < 610 {
                return Err(Error::invalid_option().with_detail("needs API version 610"));
            }
            self.create_bare_transaction().try_option(option, value)?;
            self.set_default(option, value);
            return Ok(());
        }
        match code {
            10 => parameter::int(value, 0, i32::MAX.into()).map(drop),
            20 => parameter::int(value, 0, 1_000_000)
                .map(|most| self.shared.max_watches.store(most as usize, Ordering::Relaxed)),
            26 | 27 => {
                parameter::none(value)?;
                self.shared
                    .snapshot_ryw
                    .fetch_add(if code == 26 { 1 } else { -1 }, Ordering::Relaxed);
                Ok(())
            }
            800 => parameter::none(value),
            900 => parameter::int(value, 0, 100).map(drop),
            _ => Ok(()),
        }
    }

    fn set_default(&self, option: i32, value: Option<&[u8]>) {
        let mut defaults = self.shared.defaults.lock().unwrap_or_else(PoisonError::into_inner);
        defaults.retain(|(code, _)| *code != option);
        defaults.push((option, value.map(Into::into)));
        self.shared.default_count.store(defaults.len(), Ordering::Release);
    }

    /// The options that a transaction begins with.
    pub(crate) fn defaults(&self) -> Defaults {
        if self.shared.default_count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.shared.defaults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The snapshot read-your-writes counter that transactions begin with: 1 since API version 300,
    /// moved by options.
    pub(crate) fn snapshot_ryw(&self) -> i64 {
        self.shared.snapshot_ryw.load(Ordering::Relaxed) + i64::from(self.api_version >= 300)
    }

    pub(crate) fn may_lose_answers(&self) -> bool {
        self.shared.may_lose_answers
    }

    /// Counts a watch in.
    ///
    /// # Errors
    /// `too_many_watches` if there are as many as may be.
    pub(crate) fn begin_watch(&self) -> Result<WatchPermit> {
        let most = self.shared.max_watches.load(Ordering::Relaxed);
        let counted =
            self.shared.watches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |watches| {
                (watches < most).then_some(watches + 1)
            });
        match counted {
            Ok(_) => Ok(WatchPermit { shared: self.shared.clone() }),
            Err(_) => {
                Err(Error::too_many_watches()
                    .with_detail(format!("{most} watches are outstanding")))
            }
        }
    }

    /// Runs `body` in a transaction and commits it, again and again until that succeeds or fails
    /// for good.
    ///
    /// The body may run several times: what it does beside the transaction should bear that.
    /// Between two runs the loop waits as [`Transaction::on_error`] says. For bodies with an error
    /// type of their own there is [`Database::try_transact`].
    ///
    /// ```
    /// # async fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
    /// let visits = db
    ///     .transact(|tr| async move {
    ///         let visits = tr.get("visits").await?.map_or(0, |bytes| bytes.len()) + 1;
    ///         tr.set("visits", vec![b'|'; visits]);
    ///         Ok(visits)
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The body's own; the database's when a retry can't help or the retry limit is reached.
    pub async fn transact<T, F, Fut>(&self, body: F) -> Result<T>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        transact(self.create_transaction(), body).await
    }

    /// [`Database::transact`] for bodies with any error type that can hold the database's error and
    /// gives it back, such as `Box<dyn Error + Send + Sync>`. An error without a database error
    /// inside ends the loop.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub async fn try_transact<T, E, F, Fut>(&self, body: F) -> Result<T, E>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: TransactError,
    {
        transact(self.create_transaction(), body).await
    }

    /// [`Database::transact`] for threads that may block: no runtime is needed, every future has
    /// `wait`.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn transact_blocking<T, F>(&self, body: F) -> Result<T>
    where
        F: FnMut(&Transaction) -> Result<T>,
    {
        transact_blocking(&self.create_transaction(), body)
    }

    /// [`Database::try_transact`] for threads that may block.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn try_transact_blocking<T, E, F>(&self, body: F) -> Result<T, E>
    where
        F: FnMut(&Transaction) -> Result<T, E>,
        E: TransactError,
    {
        transact_blocking(&self.create_transaction(), body)
    }

    /// Pins a version of the database: the newest that the engine can keep, which with `ssd` is a
    /// window's length (seconds) and a flush behind the newest commits. It stays readable for
    /// hours, however much is written meanwhile: for backups and analyses. It costs files with the
    /// engine `ssd`, and with `memory` an old row in memory for each key that is written meanwhile.
    ///
    /// Behind a server it is a lease, which is renewed by itself while the snapshot lives and the
    /// server can be reached. When it lapses, or the server is started anew, reads fail with
    /// `version_invalid`, and another one must be pinned.
    ///
    /// ```no_run
    /// # fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
    /// let snapshot = db.pin_snapshot().wait()?;
    /// let value = snapshot.transact_blocking(|tr| tr.get("hello").wait())?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `unsupported_operation` for a server that is too old, and over FoundationDB;
    /// `operation_failed` if a server holds as many as it may; those of writing files.
    pub fn pin_snapshot(&self) -> Reply<PinnedSnapshot> {
        let api_version = self.api_version;
        let (done, reply) = promise();
        self.shared.endpoint.pin_snapshot().on_complete(move |pinned| {
            done.send(pinned.map(|pinned| PinnedSnapshot {
                version: pinned.version,
                database: Self::new(pinned.endpoint).with_api_version(api_version),
            }));
        });
        reply
    }

    /// The status document of the database, as JSON.
    pub fn status_json(&self) -> Reply<String> {
        self.shared.endpoint.status_json()
    }
}

/// One version of a database, which stays readable until this and its clones are dropped: see
/// [`Database::pin_snapshot`].
///
/// To transactions it is a [`Database`] (to which it dereferences) that nobody writes to. Commits
/// of writes fail with `transaction_read_only`.
#[derive(Clone)]
pub struct PinnedSnapshot {
    version: Version,
    database: Database,
}

impl PinnedSnapshot {
    /// The version that every read sees.
    pub fn version(&self) -> Version {
        self.version
    }
}

impl Deref for PinnedSnapshot {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

impl std::fmt::Debug for PinnedSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PinnedSnapshot").field("version", &self.version).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("api_version", &self.api_version).finish_non_exhaustive()
    }
}

/// A place among a database handle's watches; given back when dropped.
pub(crate) struct WatchPermit {
    shared: Arc<Shared>,
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        self.shared.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) async fn transact<T, E, F, Fut>(tr: Transaction, mut body: F) -> Result<T, E>
where
    F: FnMut(Transaction) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: TransactError,
{
    loop {
        let failure = match body(tr.clone()).await {
            Ok(value) => match tr.commit().await {
                Ok(()) => return Ok(value),
                Err(error) => E::from(error),
            },
            Err(failure) => failure,
        };
        let Some(error) = failure.database_error() else { return Err(failure) };
        if tr.on_error(error.clone()).await.is_err() {
            return Err(failure);
        }
    }
}

pub(crate) fn transact_blocking<T, E, F>(tr: &Transaction, mut body: F) -> Result<T, E>
where
    F: FnMut(&Transaction) -> Result<T, E>,
    E: TransactError,
{
    loop {
        let failure = match body(tr) {
            Ok(value) => match tr.commit().wait() {
                Ok(()) => return Ok(value),
                Err(error) => E::from(error),
            },
            Err(failure) => failure,
        };
        let Some(error) = failure.database_error() else { return Err(failure) };
        if tr.on_error(error.clone()).wait().is_err() {
            return Err(failure);
        }
    }
}
