//! The changes of a stream as a [`Stream`], batch after batch.
//!
//! Where nobody writes into the stream's ranges there is no batch to acknowledge, while the log
//! that is kept for the stream grows. So a feed acknowledges what it has looked over by itself, as
//! long as its reader has acknowledged everything that it was given.

use super::ChangeConsumer;
use crate::database::Database;
use futures_core::Stream;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Bytes, ChangeBatch, Changes, Error, Result, Version, probe};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// How often a feed acknowledges by itself, at most.
const QUIET: Duration = Duration::from_secs(3);

type Step = Pin<Box<dyn Future<Output = (Option<ChangeConsumer>, Result<Changes>)> + Send>>;

/// The batches of a stream of changes, from behind what was acknowledged on: the result of
/// [`Database::changes`].
///
/// Waits for what is yet to be committed, so it ends only after an error. Dropping it acknowledges
/// nothing. While it is polled, and everything that it gave has been acknowledged, it acknowledges
/// every few seconds that there was nothing behind it.
#[must_use = "a stream reads nothing until it is polled"]
pub struct ChangeFeed {
    database: Database,
    name: Bytes,
    id: Option<u64>,
    consumer: Option<ChangeConsumer>,
    step: Option<Step>,
    batches: VecDeque<ChangeBatch>,
    has_failed: bool,
    /// The version of the last batch that it gave.
    delivered: Version,
    /// Up to where everything was looked at.
    looked: Option<Version>,
    /// Up to where its reader, or itself, has acknowledged.
    acknowledged: Arc<AtomicI64>,
    /// When it acknowledged by itself.
    last: Option<Duration>,
}

impl Database {
    /// The changes of the stream of this name, from behind what was acknowledged on, as a `Stream`.
    ///
    /// ```
    /// # async fn example(db: plinth_client::Database) -> plinth_client::Result<()> {
    /// let orders = plinth_client::KeyRange::new("order/", "order0");
    /// db.register_changes("orders", [orders], None).await?;
    /// let mut changes = db.changes("orders");
    /// while let Some(batch) = changes.next().await {
    ///     let batch = batch?;
    ///     for mutation in &batch.mutations {
    ///         println!("{} {:?}", batch.version, mutation);
    ///     }
    ///     changes.acknowledge(batch.version).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn changes(&self, name: impl AsRef<[u8]>) -> ChangeFeed {
        ChangeFeed {
            database: self.clone(),
            name: Bytes::copy_from_slice(name.as_ref()),
            id: None,
            consumer: None,
            step: None,
            batches: VecDeque::new(),
            has_failed: false,
            delivered: 0,
            looked: None,
            acknowledged: Arc::default(),
            last: None,
        }
    }
}

impl ChangeFeed {
    /// The next batch; `None` after an error.
    ///
    /// # Errors
    /// Those of [`Database::consume_changes`] and [`ChangeConsumer::next`].
    #[expect(clippy::should_implement_trait, reason = "it awaits what an iterator would block for")]
    pub fn next(&mut self) -> impl Future<Output = Option<Result<ChangeBatch>>> + Send + '_ {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context))
    }

    /// Everything up to this version has been delivered; `None` before the first answer. It moves
    /// on where there is no batch, too.
    pub fn position(&self) -> Option<Version> {
        if self.batches.is_empty() { self.looked } else { self.looked.map(|_| self.delivered) }
    }

    /// Notes durably that nothing is needed any longer up to this version, which was delivered.
    ///
    /// # Errors
    /// `client_invalid_operation` if nothing was delivered yet, or the stream was removed.
    pub fn acknowledge(&self, upto: Version) -> Reply<()> {
        match self.id {
            Some(id) => {
                let (done, reply) = promise();
                let acknowledged = self.acknowledged.clone();
                self.database.acknowledge_changes(id, upto).on_complete(move |result| {
                    if result.is_ok() {
                        acknowledged.fetch_max(upto, Ordering::Relaxed);
                    }
                    done.send(result);
                });
                reply
            }
            None => Reply::ready(Err(Error::client_invalid_operation()
                .with_detail("nothing was delivered yet to acknowledge"))),
        }
    }

    /// An answer without batches has come. What it looked over is needed no longer if everything
    /// before it isn't.
    fn acknowledge_looked(&mut self) {
        let (Some(id), Some(looked)) = (self.id, self.looked) else { return };
        let now = self.database.endpoint().env().now();
        let is_due = self.last.is_none_or(|last| now.saturating_sub(last) >= QUIET);
        if is_due && self.acknowledged.load(Ordering::Relaxed) >= self.delivered {
            probe!("client: a feed acknowledges what it has looked over");
            self.last = Some(now);
            // One that fails is made up for by the next one. One that nobody waited for would be
            // given up.
            self.database.acknowledge_changes(id, looked).on_complete(drop);
        }
    }

    fn begin_step(&mut self) -> Step {
        let (database, name, consumer) =
            (self.database.clone(), self.name.clone(), self.consumer.take());
        Box::pin(async move {
            let mut consumer = match consumer {
                Some(consumer) => consumer,
                None => match database.consume_changes(name).await {
                    Ok(consumer) => consumer,
                    Err(error) => return (None, Err(error)),
                },
            };
            let changes = consumer.next().await;
            (Some(consumer), changes)
        })
    }
}

impl Stream for ChangeFeed {
    type Item = Result<ChangeBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(batch) = self.batches.pop_front() {
                self.delivered = batch.version;
                return Poll::Ready(Some(Ok(batch)));
            }
            if self.has_failed {
                return Poll::Ready(None);
            }
            let mut step = match self.step.take() {
                Some(step) => step,
                None => self.begin_step(),
            };
            let Poll::Ready((consumer, changes)) = step.as_mut().poll(context) else {
                self.step = Some(step);
                return Poll::Pending;
            };
            self.id = consumer.as_ref().map(ChangeConsumer::id).or(self.id);
            self.consumer = consumer;
            match changes {
                Ok(changes) => {
                    self.looked = self.consumer.as_ref().map(ChangeConsumer::position);
                    self.batches.extend(changes.batches);
                    if self.batches.is_empty() {
                        self.acknowledge_looked();
                    }
                }
                Err(error) => {
                    self.has_failed = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl std::fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeFeed")
            .field("name", &self.name)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
