//! One simulated client: attempts at transactions, with every way in which they can end told apart.
//!
//! A workload writes the body of a transaction; the client finds the database, runs the body,
//! commits, and says what is known about the outcome. The node may die at any moment in between:
//! then the attempt ends there, and nobody knows whether its commit took effect.

use crate::link::LATEST;
use crate::stage::{Life, Stage, lock};
use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_env::simulated::Random;
use plinth_env::sync::{First, race};
use plinth_types::version::INVALID_VERSION;
use plinth_types::{Bytes, Error, Result, Version};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How an attempt at a transaction ended.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    /// It took effect, at this version (`INVALID_VERSION` if it wrote nothing).
    Committed(T, Version),
    /// It certainly took no effect and never will.
    Refused(Error),
    /// Nobody can say whether it took effect.
    Unknown,
}

/// A client with its own random numbers.
pub struct Client {
    /// Its number among the clients of its workload, from 0.
    pub id: usize,
    /// Its number among all clients of the run.
    place: usize,
    stage: Arc<Stage>,
    random: Mutex<Random>,
}

impl Client {
    pub(crate) fn new(id: usize, place: usize, stage: Arc<Stage>, random: Random) -> Self {
        Self { id, place, stage, random: Mutex::new(random) }
    }

    /// Where it meets the database.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    fn random(&self) -> MutexGuard<'_, Random> {
        lock(&self.random)
    }

    /// A number below `limit`.
    pub fn below(&self, limit: u64) -> u64 {
        self.random().below(limit)
    }

    /// An index into something of this length.
    pub fn index(&self, len: usize) -> usize {
        self.random().index(len)
    }

    /// Whether something of this probability happens.
    pub fn chance(&self, probability: f64) -> bool {
        self.random().chance(probability)
    }

    /// A random number.
    pub fn next_u64(&self) -> u64 {
        self.random().next_u64()
    }

    /// Waits a random time, at most this many microseconds.
    pub async fn pause(&self, at_most_micros: u64) {
        let pause = Duration::from_micros(self.below(at_most_micros) + 1);
        self.stage.env().sleep(pause).await;
    }

    /// Whether to begin nothing new.
    pub fn is_stopping(&self) -> bool {
        self.stage.is_stopping()
    }

    /// Something is wrong with the database.
    pub fn fail(&self, what: impl Into<String>) {
        self.stage.fail(what);
    }

    /// Does something with the present life's database; `None` if that life ends before.
    pub async fn in_life<T, Fut: Future<Output = T>>(
        &self,
        work: impl FnOnce(crate::stage::Life) -> Fut,
    ) -> Option<T> {
        let life = self.stage.life(self.place).await;
        let number = life.number;
        // The end is looked at first: what a dead node says counts for nothing.
        match race(self.stage.end_of(number, self.place), work(life)).await {
            First::Left(()) => {
                self.stage.probe("attempt cut off by the end of the node");
                None
            }
            First::Right(done) => Some(done),
        }
    }

    /// Does something with a database until it succeeds, in whichever life; gives up, with an error
    /// that has to be explained, once the run is over.
    pub(crate) async fn in_some_life<Fut: Future<Output = Result<()>>>(
        &self,
        work: impl Fn(crate::stage::Life) -> Fut,
    ) {
        loop {
            match self.in_life(&work).await {
                Some(Ok(())) => return,
                Some(Err(error)) if self.stage.is_over() => return self.explain(error),
                _ => self.pause(20_000).await,
            }
        }
    }

    /// Runs `body` in a transaction and commits it, once.
    pub async fn attempt<T: Send, Fut>(
        &self,
        body: impl FnOnce(Transaction) -> Fut + Send,
    ) -> Outcome<T>
    where
        Fut: Future<Output = Result<T>> + Send,
    {
        self.attempt_on(&|life| Some(life.database.clone()), body).await
    }

    /// The same with another database of the present life, if there is one; without one it is
    /// refused as if that were locked.
    pub(crate) async fn attempt_on<T: Send, Fut>(
        &self,
        database: &(dyn Fn(&Life) -> Option<Database> + Sync),
        body: impl FnOnce(Transaction) -> Fut + Send,
    ) -> Outcome<T>
    where
        Fut: Future<Output = Result<T>> + Send,
    {
        let place = Mutex::new(None);
        let outcome = self.attempt_boxed(database, Box::new(|tr| put(&place, body(tr)))).await;
        match (outcome, take(place)) {
            (Outcome::Committed((), version), Some(value)) => Outcome::Committed(value, version),
            (Outcome::Refused(error), _) => Outcome::Refused(error),
            _ => Outcome::Unknown,
        }
    }

    async fn attempt_boxed<'a>(
        &'a self,
        database: &(dyn Fn(&Life) -> Option<Database> + Sync),
        body: Body<'a>,
    ) -> Outcome<()> {
        let done = self.in_life(|life| async move {
            let database = database(&life).ok_or_else(|| (Error::database_locked(), false))?;
            let transaction = database.create_transaction();
            body(transaction.clone()).await.map_err(|error| (error, false))?;
            transaction.commit().await.map_err(|error| (error, true))?;
            Ok(transaction.committed_version().unwrap_or(INVALID_VERSION))
        });
        match done.await {
            None => Outcome::Unknown,
            Some(Ok(version)) => {
                self.stage.count_commit();
                Outcome::Committed((), version)
            }
            Some(Err((error, was_commit))) => {
                if was_commit && is_undecided(&error) {
                    // Its request may still be on its way; it has arrived, or never will, when this
                    // has passed.
                    self.stage.env().sleep(LATEST).await;
                    self.settle().await;
                }
                self.judge(error, was_commit)
            }
        }
    }

    /// In a cluster what was given up may still come to be committed, as long as nothing later has
    /// been.
    async fn settle(&self) {
        while self.stage.is_cluster() && !self.stage.is_over() {
            let committed = self.in_life(|life| async move {
                let tr = life.database.create_transaction();
                tr.set_option(TransactionOption::LockAware)?;
                tr.add_write_conflict_range(b"settle", b"settle\0")?;
                tr.commit().await
            });
            if committed.await.is_some_and(|committed| committed.is_ok()) {
                return;
            }
            self.pause(20_000).await;
        }
    }

    /// Runs `body` in a transaction that is not committed. `None` if the node's life ends before.
    pub async fn look<T: Send, Fut>(
        &self,
        body: impl FnOnce(Transaction) -> Fut + Send,
    ) -> Option<T>
    where
        Fut: Future<Output = Result<T>> + Send,
    {
        let place = Mutex::new(None);
        self.look_boxed(Box::new(|tr| put(&place, body(tr)))).await;
        take(place)
    }

    async fn look_boxed<'a>(&'a self, body: Body<'a>) {
        let done =
            self.in_life(|life| async move { body(life.database.create_transaction()).await });
        if let Some(Err(error)) = done.await {
            let _: Outcome<()> = self.judge(error, false);
        }
    }

    fn judge<T>(&self, error: Error, was_commit: bool) -> Outcome<T> {
        let is_lost =
            [Error::broken_promise(), Error::commit_unknown_result_fatal()].contains(&error);
        let unknown = error.is_maybe_committed() || is_lost;
        if was_commit && unknown {
            self.stage.probe("commit result unknown");
            return Outcome::Unknown;
        }
        match error.code() {
            1007 => self.stage.probe("commit too old"),
            1020 => self.stage.probe("conflict"),
            1043 => self.stage.probe("commit refused: shutting down"),
            1510 if !self.stage.is_cluster() => self.stage.probe("commit refused: i/o error"),
            _ if error == Error::file_not_writable() => {
                self.stage.probe("commit refused: disk full")
            }
            // A read of a damaged table. In a cluster others have those rows.
            1522 if !self.stage.is_cluster() => self.stage.saw_damage(error.clone()),
            // Nobody of a cluster can be reached for long: for a read, or for the version that a
            // commit wants first. Whether a commit itself had arrived is another error.
            1026 if self.stage.is_cluster() => {}
            1038 | 1242 if self.stage.is_lockable() => {}
            // Commits wait for one another, not for ever.
            1009 | 1037 | 1042 | 1078 | 1100 => {}
            _ => self
                .fail(format!("client {}: an error that nothing here explains: {error}", self.id)),
        }
        Outcome::Refused(error)
    }

    /// Looks at an error that came outside of a transaction: whether anything here explains it.
    pub(crate) fn explain(&self, error: Error) {
        let _: Outcome<()> = self.judge(error, false);
    }

    /// Attempts `body` until it commits for certain. Bodies must bear being applied more than once.
    /// `None` if the run ends before.
    pub async fn insist<T: Send, Fut>(
        &self,
        mut body: impl FnMut(Transaction) -> Fut + Send,
    ) -> Option<(T, Version)>
    where
        Fut: Future<Output = Result<T>> + Send,
    {
        loop {
            match self.attempt(&mut body).await {
                Outcome::Committed(value, version) => return Some((value, version)),
                Outcome::Refused(_) | Outcome::Unknown => {}
            }
            if self.stage.is_over() {
                return None;
            }
            self.pause(5_000).await;
        }
    }

    /// All rows whose keys begin with `prefix`, in one transaction; `None` if the run ends before.
    pub(crate) async fn read_all(&self, prefix: &str) -> Option<Vec<(Bytes, Bytes)>> {
        let read = self.insist(async |tr| -> Result<Vec<(Bytes, Bytes)>> {
            let rows = tr.range(RangeOptions::prefix(prefix)).collect().await?;
            Ok(rows.into_iter().map(|row| (row.key, row.value)).collect())
        });
        read.await.map(|(rows, _)| rows)
    }

    /// The client library's own retry loop in the present life. `None`: that life ended, or an
    /// error that no retry helps against came.
    pub async fn transact<T: Send, Fut>(
        &self,
        mut body: impl FnMut(Transaction) -> Fut + Send,
    ) -> Option<T>
    where
        Fut: Future<Output = Result<T>> + Send,
    {
        let place = Mutex::new(None);
        let is_done = self.transact_boxed(Box::new(|tr| put(&place, body(tr)))).await;
        take(place).filter(|_| is_done)
    }

    /// Calls what commits by itself, such as a layer that takes a database. `None`: nobody knows
    /// whether it took effect (the node's life ended, an answer was lost), or it failed by what was
    /// done to the database. Whatever else it fails by ends the run.
    pub async fn call<T, Fut>(&self, work: impl FnOnce(Database) -> Fut) -> Option<T>
    where
        Fut: Future<Output = Result<T>>,
    {
        match self.in_life(|life| work(life.database)).await? {
            Ok(value) => {
                self.stage.count_commit();
                Some(value)
            }
            Err(error) => {
                let _: Outcome<()> = self.judge(error, true);
                None
            }
        }
    }

    async fn transact_boxed<'a>(&'a self, body: BodyAgain<'a>) -> bool {
        let done = self.in_life(|life| async move { life.database.transact(body).await }).await;
        match done {
            Some(Ok(())) => {
                self.stage.count_commit();
                true
            }
            Some(Err(error)) => {
                let _: Outcome<()> = self.judge(error, true);
                false
            }
            None => false,
        }
    }
}

/// The steps of a transaction's body, and bodies, without their types: what surrounds them is
/// compiled once.
type Steps<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;
type Body<'a> = Box<dyn FnOnce(Transaction) -> Steps<'a> + Send + 'a>;
type BodyAgain<'a> = Box<dyn FnMut(Transaction) -> Steps<'a> + Send + 'a>;

/// Puts what the steps give into its place.
fn put<'a, T: Send>(
    place: &'a Mutex<Option<T>>,
    steps: impl Future<Output = Result<T>> + Send + 'a,
) -> Steps<'a> {
    Box::pin(async move {
        let value = steps.await?;
        *lock(place) = Some(value);
        Ok(())
    })
}

fn take<T>(place: Mutex<Option<T>>) -> Option<T> {
    place.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a commit's fate is unknown and may still be decided: the client library could not make
/// sure.
fn is_undecided(error: &Error) -> bool {
    *error == Error::commit_unknown_result() && error.detail().is_some()
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}
