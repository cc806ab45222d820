//! Transactions of the store: repeated like everybody's, but for a locked database, which is told
//! and not waited for.
//!
//! A lock may last for hours. Whoever sends points, or asks for some, would hear nothing all that
//! time; so the caller learns of it at once and decides. What was appended stays in memory and is
//! saved when the database is unlocked.

use crate::error::{Error, Result};
use plinth_client::{Database, Transaction};

/// Runs `body` in a transaction until it is committed, as [`Database::try_transact`] does.
///
/// # Errors
/// Those of `body` that another try can't help; [`Error::Locked`].
pub(super) async fn transact<T, F, Fut>(database: &Database, mut body: F) -> Result<T>
where
    F: FnMut(Transaction) -> Fut,
    Fut: Future<Output = plinth_types::Result<T>>,
{
    transact_all(database, |tr| {
        let done = body(tr);
        async move { done.await.map_err(Error::from) }
    })
    .await
}

/// The same for bodies that fail in other ways than the database, too.
///
/// # Errors
/// As [`transact`].
pub(super) async fn transact_all<T, F, Fut>(database: &Database, mut body: F) -> Result<T>
where
    F: FnMut(Transaction) -> Fut,
    Fut: Future<Output = Result<T>>,
{
    database
        .try_transact(|tr| {
            let done = body(tr);
            async move { done.await.map_err(Error::or_locked) }
        })
        .await
}

/// Prepares a transaction for another try, after as long a pause as is due.
///
/// # Errors
/// `error`, if another try can't help; [`Error::Locked`].
pub(super) async fn again(tr: &Transaction, error: Error) -> Result<()> {
    match error.or_locked() {
        Error::Database(error) => Ok(tr.on_error(error).await?),
        error => Err(error),
    }
}
