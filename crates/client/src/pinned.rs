//! Versions of a database that are kept.

use crate::database::Database;
use plinth_env::reply::{Reply, promise};
use plinth_types::Version;
use std::ops::Deref;

impl Database {
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
