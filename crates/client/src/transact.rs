//! Making transactions, and running them until they commit.
//!
//! The retry loop is the one place that decides to run a closure again, and it asks only
//! `on_error`; whatever a closure returns that is no database error ends it. Any error type will do
//! that the database's error fits into, and comes out of again.
//!
//! There are two bounds for an async body, since no one bound does both things that are wanted.
//! `FnMut(Transaction) -> Fut` takes an async closure that borrows what it only reads, and futures
//! made of it are `Send` wherever the body is: in a task that is spawned, in a handler of a server.
//! It can't lend what the closure changes to the body's future. [`AsyncFnMut`] can, but Rust can't
//! see yet that a future around it is `Send` if the closure borrows. (sqlx and foundationdb-rs box
//! each body's future instead, which costs an allocation a transaction.)

use crate::database::Database;
use crate::transaction::Transaction;
use plinth_types::{Error, Result};
use std::future::Future;

/// An error type that a transaction's body may return.
///
/// It can be made of the database's [`Error`], and gives it back, so that the loop knows whether to
/// try again. An error without one inside ends the loop.
pub trait TransactError: From<Error> {
    /// The database's error, if that is what this is.
    fn database_error(&self) -> Option<&Error>;
}

impl TransactError for Error {
    fn database_error(&self) -> Option<&Error> {
        Some(self)
    }
}

impl TransactError for Box<dyn std::error::Error + Send + Sync> {
    fn database_error(&self) -> Option<&Error> {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(self.as_ref());
        while let Some(error) = source {
            if let Some(found) = error.downcast_ref::<Error>() {
                return Some(found);
            }
            source = error.source();
        }
        None
    }
}

impl Database {
    /// A new transaction.
    pub fn create_transaction(&self) -> Transaction {
        Transaction::new(self.clone(), None)
    }

    /// Runs `body` in a transaction and commits it, again and again until that succeeds or fails
    /// for good.
    ///
    /// The body may run several times: what it does beside the transaction should bear that.
    /// Between two runs the loop waits as [`Transaction::on_error`] says. For bodies with an error
    /// type of their own there is [`Database::try_transact`].
    ///
    /// The body is best an async closure. It borrows what it reads, and the future is `Send`:
    ///
    /// ```
    /// # use plinth_client::{Database, Result};
    /// async fn visit(db: &Database, page: &str) -> Result<usize> {
    ///     let key = format!("visits/{page}");
    ///     db.transact(async |tr| {
    ///         let visits = tr.get(&key).await?.map_or(0, |bytes| bytes.len()) + 1;
    ///         tr.set(&key, vec![b'|'; visits]);
    ///         Ok(visits)
    ///     })
    ///     .await
    /// }
    ///
    /// fn spawn(task: impl Future + Send + 'static) {}
    /// fn serve(db: Database) {
    ///     spawn(async move { visit(&db, "/index").await });
    /// }
    /// ```
    ///
    /// What it changes outside of the transaction it can't borrow: see [`Database::transact_mut`].
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

    /// [`Database::transact`] for an async closure that borrows what it changes. Since it may run
    /// several times, it begins by undoing what an earlier run left there.
    ///
    /// ```
    /// # use plinth_client::{Database, Result};
    /// # async fn example(db: Database) -> Result<()> {
    /// let (keys, mut longest) = (["a", "b"], 0);
    /// db.transact_mut(async |tr| {
    ///     longest = 0;
    ///     for key in keys {
    ///         longest = longest.max(tr.get(key).await?.map_or(0, |value| value.len()));
    ///     }
    ///     Ok(())
    /// })
    /// .await?;
    /// println!("{longest}");
    /// # Ok(()) }
    /// ```
    ///
    /// The future is `Send` if the closure's captures are, but Rust can't see that yet inside of
    /// another future: a task that is spawned (`implementation of Send is not general enough`). A
    /// closure that owns what it changes (`async move |tr|`) has no such bound, and neither has
    /// [`Database::transact`], whose body may give back what it found.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub async fn transact_mut<T, F>(&self, body: F) -> Result<T>
    where
        F: AsyncFnMut(Transaction) -> Result<T>,
    {
        transact_mut(self.create_transaction(), body).await
    }

    /// [`Database::transact_mut`] for bodies with any error type, as [`Database::try_transact`]
    /// takes them.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub async fn try_transact_mut<T, E, F>(&self, body: F) -> Result<T, E>
    where
        F: AsyncFnMut(Transaction) -> Result<T, E>,
        E: TransactError,
    {
        transact_mut(self.create_transaction(), body).await
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
}

pub(crate) async fn transact<T, E, F, Fut>(tr: Transaction, mut body: F) -> Result<T, E>
where
    F: FnMut(Transaction) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: TransactError,
{
    loop {
        let result = body(tr.clone()).await;
        if let Some(done) = settle(&tr, result).await {
            return done;
        }
    }
}

pub(crate) async fn transact_mut<T, E, F>(tr: Transaction, mut body: F) -> Result<T, E>
where
    F: AsyncFnMut(Transaction) -> Result<T, E>,
    E: TransactError,
{
    loop {
        let result = body(tr.clone()).await;
        if let Some(done) = settle(&tr, result).await {
            return done;
        }
    }
}

/// Commits what a body has done; `None` if it is to be run again.
async fn settle<T, E: TransactError>(
    tr: &Transaction,
    result: Result<T, E>,
) -> Option<Result<T, E>> {
    let failure = match result {
        Ok(value) => match tr.commit().await {
            Ok(()) => return Some(Ok(value)),
            Err(error) => E::from(error),
        },
        Err(failure) => failure,
    };
    let Some(error) = failure.database_error() else { return Some(Err(failure)) };
    tr.on_error(error.clone()).await.is_err().then_some(Err(failure))
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
