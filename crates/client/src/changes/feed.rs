//! The changes of a stream as a [`Stream`], batch after batch.

use super::ChangeConsumer;
use crate::database::Database;
use futures_core::Stream;
use plinth_env::reply::Reply;
use plinth_types::{Bytes, ChangeBatch, Changes, Error, Result, Version};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

type Step = Pin<Box<dyn Future<Output = (Option<ChangeConsumer>, Result<Changes>)> + Send>>;

/// The batches of a stream of changes, from behind what was acknowledged on: the result of [`Database::changes`].
///
/// Waits for what is yet to be committed, so it ends only after an error. Dropping it acknowledges nothing.
#[must_use = "a stream reads nothing until it is polled"]
pub struct ChangeFeed {
    database: Database,
    name: Bytes,
    id: Option<u64>,
    consumer: Option<ChangeConsumer>,
    step: Option<Step>,
    batches: VecDeque<ChangeBatch>,
    has_failed: bool,
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

    /// Notes durably that nothing is needed any longer up to this version, which was delivered.
    ///
    /// # Errors
    /// `client_invalid_operation` if nothing was delivered yet, or the stream was removed.
    pub fn acknowledge(&self, upto: Version) -> Reply<()> {
        match self.id {
            Some(id) => self.database.acknowledge_changes(id, upto),
            None => Reply::ready(Err(
                Error::client_invalid_operation().with_detail("nothing was delivered yet to acknowledge")
            )),
        }
    }

    fn begin_step(&mut self) -> Step {
        let (database, name, consumer) = (self.database.clone(), self.name.clone(), self.consumer.take());
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
                Ok(changes) => self.batches.extend(changes.batches),
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
        f.debug_struct("ChangeFeed").field("name", &self.name).field("id", &self.id).finish_non_exhaustive()
    }
}
