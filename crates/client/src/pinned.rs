//! Versions of a database that are kept, and what reads them.
//!
//! Neither type has a call that writes, so that a program that would doesn't compile. What they
//! stand on refuses it besides: see [`Pinned`](crate::endpoint::Pinned).

use crate::database::Database;
use crate::endpoint::Endpoint;
use crate::mapped::MappedRangeResult;
use crate::options::TransactionOption;
use crate::range::RangeOptions;
use crate::stream::RangeStream;
use crate::transaction::{Get, Transaction};
use plinth_env::reply::{Reply, promise};
use plinth_types::{Bytes, Error, KeySelector, RangeResult, Result, Version};
use std::sync::Arc;

impl Database {
    /// Pins a version of the database: the newest that the engine can keep, which with `ssd` is a
    /// window's length (seconds) and a flush behind the newest commits. It stays readable for
    /// hours, however much is written meanwhile: for backups and analyses. It costs files with the
    /// engine `ssd`, and with `memory` an old row in memory for each key that is written meanwhile.
    ///
    /// Behind a server it is a lease, which is renewed by itself while the snapshot lives and the
    /// server can be reached. When it lapses, or the server is started anew, reads fail with
    /// `version_invalid`, and another one must be pinned. So they do once the snapshot was ended
    /// for want of room: before what snapshots keep takes the last of the memory that rows may
    /// take (engine `memory`), or while the disk is full (`ssd`), the oldest is ended, and then the
    /// next.
    ///
    /// ```no_run
    /// # fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
    /// let snapshot = db.pin_snapshot().wait()?;
    /// let value = snapshot.get("hello").wait()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `unsupported_operation` for a server that is too old, and over FoundationDB;
    /// `operation_failed` if a server holds as many as it may; those of writing files.
    pub fn pin_snapshot(&self) -> Reply<PinnedSnapshot> {
        let api_version = self.api_version();
        let (done, reply) = promise();
        self.endpoint().pin_snapshot().on_complete(move |pinned| {
            done.send(pinned.map(|pinned| PinnedSnapshot {
                version: pinned.version,
                database: Self::new(pinned.endpoint).with_api_version(api_version),
            }));
        });
        reply
    }
}

/// One version of a database, which can be read until this, its clones and what reads them are
/// dropped: see [`Database::pin_snapshot`].
///
/// [`get`](Self::get) and the like are enough for a read or two. Reads that belong together, and
/// travel together, are those of a [`ReadTransaction`]; [`read`](Self::read) runs them again where
/// that may help.
///
/// ```no_run
/// # async fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
/// let snapshot = db.pin_snapshot().await?;
/// let mut rows = snapshot.range("users/".."users0");
/// while let Some(row) = rows.next().await {
///     println!("{:?}", row?.key);
/// }
/// # Ok(()) }
/// ```
///
/// It has no call that writes:
///
/// ```compile_fail,E0599
/// # async fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
/// let snapshot = db.pin_snapshot().await?;
/// snapshot.begin_read().set("hello", "world");
/// # Ok(()) }
/// ```
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

    /// What reads it, for programs that work on a whole database. It refuses commits and watches.
    pub fn endpoint(&self) -> &Arc<dyn Endpoint> {
        self.database.endpoint()
    }

    /// Begins reads that belong together.
    pub fn begin_read(&self) -> ReadTransaction {
        ReadTransaction { transaction: self.database.create_transaction() }
    }

    /// The value of `key`, `None` if it doesn't exist.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Get {
        self.begin_read().get(key)
    }

    /// As [`Transaction::get_key`].
    pub fn get_key(&self, selector: KeySelector) -> Reply<Bytes> {
        self.begin_read().get_key(selector)
    }

    /// As [`Transaction::get_range`].
    pub fn get_range(&self, range: impl Into<RangeOptions>) -> Reply<RangeResult> {
        self.begin_read().get_range(range)
    }

    /// As [`Transaction::range`].
    pub fn range(&self, range: impl Into<RangeOptions>) -> RangeStream {
        self.begin_read().range(range)
    }

    /// Runs `body`, and again while it fails by what may pass, such as a lock.
    ///
    /// ```no_run
    /// # async fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
    /// let snapshot = db.pin_snapshot().await?;
    /// let keys = ["a", "b"];
    /// let found = snapshot
    ///     .read(async |tr| {
    ///         let reads = keys.map(|key| tr.get(key)); // both in one request
    ///         let mut found = 0;
    ///         for read in reads {
    ///             found += usize::from(read.await?.is_some());
    ///         }
    ///         Ok(found)
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The body's own; the database's when a retry can't help.
    pub async fn read<T, F, Fut>(&self, mut body: F) -> Result<T>
    where
        F: FnMut(ReadTransaction) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let tr = self.begin_read();
        loop {
            match body(tr.clone()).await {
                Err(error) => tr.on_error(error).await?,
                found => return found,
            }
        }
    }

    /// [`PinnedSnapshot::read`] for threads that may block.
    ///
    /// # Errors
    /// As there.
    pub fn read_blocking<T, F>(&self, mut body: F) -> Result<T>
    where
        F: FnMut(&ReadTransaction) -> Result<T>,
    {
        let tr = self.begin_read();
        loop {
            match body(&tr) {
                Err(error) => tr.on_error(error).wait()?,
                found => return found,
            }
        }
    }
}

impl std::fmt::Debug for PinnedSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PinnedSnapshot").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Reads of a [`PinnedSnapshot`] that belong together: point reads that were asked for travel in
/// one request, and options hold for all. Clones are the same; each keeps the version.
#[derive(Clone, Debug)]
pub struct ReadTransaction {
    transaction: Transaction,
}

impl ReadTransaction {
    /// Sets an option. Those about writing make no difference.
    ///
    /// # Errors
    /// As [`Transaction::set_option`].
    pub fn set_option(&self, option: TransactionOption) -> Result<()> {
        self.transaction.set_option(option)
    }

    /// The version that is read.
    pub fn get_read_version(&self) -> Reply<Version> {
        self.transaction.get_read_version()
    }

    /// As [`Transaction::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Get {
        self.transaction.snapshot().get(key)
    }

    /// As [`Transaction::get_key`].
    pub fn get_key(&self, selector: KeySelector) -> Reply<Bytes> {
        self.transaction.snapshot().get_key(selector)
    }

    /// As [`Transaction::get_range`].
    pub fn get_range(&self, range: impl Into<RangeOptions>) -> Reply<RangeResult> {
        self.transaction.snapshot().get_range(range)
    }

    /// As [`Transaction::range`].
    pub fn range(&self, range: impl Into<RangeOptions>) -> RangeStream {
        self.transaction.snapshot().range(range)
    }

    /// As [`Transaction::get_mapped_range`].
    ///
    /// # Errors
    /// As there.
    pub fn get_mapped_range(
        &self,
        range: impl Into<RangeOptions>,
        mapper: impl AsRef<[u8]>,
    ) -> Reply<MappedRangeResult> {
        self.transaction.get_mapped_range(range, mapper)
    }

    /// As [`Transaction::estimated_range_size`].
    pub fn estimated_range_size(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Reply<i64> {
        self.transaction.estimated_range_size(begin, end)
    }

    /// As [`Transaction::split_points`].
    pub fn split_points(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        chunk: i64,
    ) -> Reply<Vec<Bytes>> {
        self.transaction.split_points(begin, end, chunk)
    }

    /// As [`Transaction::on_error`].
    ///
    /// # Errors
    /// As there.
    pub fn on_error(&self, error: Error) -> Reply<()> {
        self.transaction.on_error(error)
    }
}
