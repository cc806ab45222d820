//! Consumers of streams of changes, as C has them: a position that one operation at a time may use and move on.

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
    is_busy: bool,
}

/// The right to use a consumer, until it is dropped.
pub(crate) struct Turn(Arc<Consumer>);

impl Consumer {
    /// A consumer of this stream that goes on behind this version; below 0: behind what was acknowledged.
    pub(crate) fn new(database: Database, id: u64, position: Version) -> Arc<Self> {
        let state = Mutex::new(State { position: position.max(NOWHERE), is_busy: false });
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

    /// Begins an operation.
    ///
    /// # Errors
    /// `client_invalid_operation` while another one is under way.
    pub(crate) fn take_turn(self: &Arc<Self>) -> Result<Turn> {
        if std::mem::replace(&mut self.state().is_busy, true) {
            let detail = "an operation of this consumer is under way: there is one at a time";
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        Ok(Turn(self.clone()))
    }

    async fn at_its_position(&self) -> Result<ChangeConsumer> {
        let position = self.state().position;
        if position >= 0 {
            return Ok(self.database.resume_changes(self.id, position));
        }
        let streams = self.database.list_changes().await?;
        let stream = streams.into_iter().find(|stream| stream.id == self.id).ok_or_else(|| {
            Error::client_invalid_operation().with_detail(format!("no stream has the id {}", self.id))
        })?;
        Ok(self.database.resume_changes(self.id, stream.acknowledged))
    }
}

impl Turn {
    /// Waits for what comes next, and moves on.
    pub(crate) async fn consume(self) -> Result<Changes> {
        let changes = self.0.at_its_position().await?.next().await.map_err(as_theirs)?;
        self.0.state().position = changes.upto;
        Ok(changes)
    }

    /// Notes durably that nothing is needed any longer of what was consumed.
    pub(crate) async fn acknowledge(self) -> Result<()> {
        let position = self.0.state().position;
        if position < 0 {
            return Ok(());
        }
        self.0.database.acknowledge_changes(self.0.id, position).await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state().is_busy = false;
    }
}

/// What is gone, because it was acknowledged or its consumer was away for too long, has a number of its own there.
fn as_theirs(error: Error) -> Error {
    if error != Error::version_invalid() {
        return error;
    }
    Error::transaction_too_old().with_detail(error.detail().unwrap_or_default())
}
