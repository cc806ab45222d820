//! Consumers of streams of changes, as C has them: a position that one operation at a time may use
//! and move on.
//!
//! C may cancel a future while its answer arrives, on another thread. So an operation gives its
//! turn back with the answer, and the future moves the position on when the answer is its own. A
//! cancelled operation may still be on its way out on that thread when C asks for the next one: its
//! turn is taken away from it.
//!
//! Always: the position is behind everything that C could get from a future, and before everything
//! else.

use plinth_client::{ChangeConsumer, Changes, Database, Error, Result, Version};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The position of a consumer that has none yet: it begins behind what was acknowledged.
const NOWHERE: Version = -1;

/// What is behind `FDBCdcConsumer`.
pub(crate) struct Consumer {
    database: Database,
    id: u64,
    state: Mutex<State>,
}

struct State {
    position: Version,
    /// How many turns there have been.
    turns: u64,
    /// Whose turn it is.
    holder: Option<Holder>,
}

struct Holder {
    turn: u64,
    /// Whether C's future of the operation is over. Absent while it begins, when C has no handle to
    /// cancel it by.
    is_over: Option<IsOver>,
}

type IsOver = Box<dyn Fn() -> bool + Send>;

impl Holder {
    fn is_under_way(&self) -> bool {
        self.is_over.as_ref().is_none_or(|is_over| !is_over())
    }
}

/// The right to use a consumer, until it is dropped, or its operation is cancelled and the next one
/// begins.
pub(crate) struct Turn {
    consumer: Arc<Consumer>,
    number: u64,
}

/// What a stream has delivered, and the consumer that is to move on once C can have it: a future
/// that is cancelled first drops both.
pub(crate) struct Consumed {
    pub(crate) changes: Changes,
    pub(crate) turn: Turn,
}

impl Consumer {
    /// A consumer of this stream that goes on behind this version; below 0: behind what was
    /// acknowledged.
    pub(crate) fn new(database: Database, id: u64, position: Version) -> Arc<Self> {
        let state = State { position: position.max(NOWHERE), turns: 0, holder: None };
        let state = Mutex::new(state);
        Arc::new(Self { database, id, state })
    }

    /// The stream's id.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Everything up to this version has been consumed.
    pub(crate) fn position(&self) -> Version {
        self.state().position
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an operation: `start` gives what C has of it, and `is_over` says of that whether it
    /// has ended, or was cancelled.
    ///
    /// # Errors
    /// `client_invalid_operation` while another one is under way.
    pub(crate) fn begin<H: Clone + Send + 'static>(
        self: &Arc<Self>,
        start: impl FnOnce(Turn) -> H,
        is_over: impl Fn(&H) -> bool + Send + 'static,
    ) -> Result<H> {
        let turn = self.take_turn()?;
        let number = turn.number;
        let begun = start(turn);
        if let Some(holder) = self.state().holder.as_mut().filter(|holder| holder.turn == number) {
            let begun = begun.clone();
            holder.is_over = Some(Box::new(move || is_over(&begun)));
        }
        Ok(begun)
    }

    fn take_turn(self: &Arc<Self>) -> Result<Turn> {
        let mut state = self.state();
        if state.holder.as_ref().is_some_and(Holder::is_under_way) {
            let detail = "an operation of this consumer is under way: there is one at a time";
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        state.turns += 1;
        let number = state.turns;
        let before = state.holder.replace(Holder { turn: number, is_over: None });
        drop(state);
        // The last count of a future drops its operation, and that one's turn comes back here.
        drop(before);
        Ok(Turn { consumer: self.clone(), number })
    }

    async fn at_its_position(&self) -> Result<ChangeConsumer> {
        let position = self.state().position;
        if position >= 0 {
            return Ok(self.database.resume_changes(self.id, position));
        }
        let streams = self.database.list_changes().await?;
        let stream = streams.into_iter().find(|stream| stream.id == self.id).ok_or_else(|| {
            Error::client_invalid_operation()
                .with_detail(format!("no stream has the id {}", self.id))
        })?;
        Ok(self.database.resume_changes(self.id, stream.acknowledged))
    }
}

impl Turn {
    /// Waits for what comes next.
    pub(crate) async fn consume(self) -> Result<Consumed> {
        let changes = self.consumer.at_its_position().await?.next().await.map_err(as_theirs)?;
        Ok(Consumed { changes, turn: self })
    }

    /// Everything up to this version has been delivered: the consumer moves on, and is free.
    pub(crate) fn move_on(self, upto: Version) {
        self.consumer.state().position = upto;
    }

    /// Notes durably that nothing is needed any longer of what was consumed.
    pub(crate) async fn acknowledge(self) -> Result<()> {
        let position = self.consumer.state().position;
        if position < 0 {
            return Ok(());
        }
        self.consumer.database.acknowledge_changes(self.consumer.id, position).await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.consumer.state();
        let holder = state.holder.take_if(|holder| holder.turn == self.number);
        drop(state);
        drop(holder);
    }
}

/// What is gone, because it was acknowledged or its consumer was away for too long, has a number of
/// its own there.
fn as_theirs(error: Error) -> Error {
    if error != Error::version_invalid() {
        return error;
    }
    Error::transaction_too_old().with_detail(error.detail().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::changes::begin;
    use crate::future::held::Held;
    use plinth_env::{Env, block_on};
    use plinth_pipeline::{Node, NodeConfig};
    use plinth_types::KeyRange;

    fn consumed(future: &Held) -> Result<i64> {
        future.block()?;
        future.get(|value| value.changes().map(|(batches, _)| batches[0].version))
    }

    /// What was cancelled was not consumed, also if its answer was on its way already.
    #[test]
    fn changes_whose_future_is_cancelled_come_again() {
        if cfg!(miri) {
            return; // a whole store is too much there
        }
        let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).expect("a store");
        let database = Database::new(Arc::new(node.endpoint()));
        let stream = database
            .register_changes("all", [KeyRange::new("a", "z")], None)
            .wait()
            .expect("a stream");
        let tr = database.create_transaction();
        tr.set("key", "value");
        tr.commit().wait().expect("a commit");
        let consumer = Consumer::new(database, stream.id, -1);
        let (gate, opened) = plinth_env::reply::promise::<()>();
        let handle = Arc::new(Mutex::new(None::<Held>));
        let again = Arc::new(Mutex::new(None::<Held>));
        let (cancels, goes_on, cancelled) = (handle.clone(), again.clone(), consumer.clone());
        let future = begin(&consumer, |turn| async move {
            opened.await?;
            let changes = turn.consume().await;
            // Another thread comes in between, with the next operation before this one has seen
            // that it is cancelled.
            let future = cancels.lock().expect("nobody panicked").take().expect("it is there");
            assert!(future.cancel().is_empty(), "it has no callback");
            let next =
                begin(&cancelled, Turn::consume).expect("the cancelled one is not in its way");
            *goes_on.lock().expect("nobody panicked") = Some(next);
            changes
        });
        let future = future.expect("it is free");
        assert!(begin(&consumer, Turn::acknowledge).is_err(), "there is one at a time");
        *handle.lock().expect("nobody panicked") = Some(future.clone());
        gate.send(Ok(()));
        assert_eq!(consumed(&future), Err(Error::operation_cancelled()));
        let again = loop {
            if let Some(again) = again.lock().expect("nobody panicked").take() {
                break again;
            }
            std::thread::yield_now();
        };
        let version = consumed(&again).expect("they come again");
        assert!(consumer.position() >= version);
        assert!(
            begin(&consumer, Turn::acknowledge).is_ok(),
            "it is free once its answer can be seen"
        );
    }
}
