//! The consumer of a stream: where it goes on, and what it has acknowledged.
//!
//! A consumer reads on from the last version that it was given. What went wrong on the way (a node
//! that died, that is behind, that lacks what others have) is tried again; what will not get better
//! is said. A read that is given up leaves the consumer where it was.

use super::for_system;
use crate::database::Database;
use crate::transact::transact;
use crate::transaction::Transaction;
use plinth_types::{Changes, ChangesRequest, Error, Result, Version, codes, probe};
use std::time::Duration;

/// About how many bytes of mutations come at a time.
const BYTES: usize = 1 << 20;
/// The first pause before something is tried again, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Reads a stream of changes: see [`Database::consume_changes`].
///
/// Delivery is at least once: whoever stops before an acknowledgement gets the same changes again.
/// To have an effect exactly once, keep [`ChangeConsumer::position`] with it, in the same
/// transaction of the target, and go on from there with [`Database::resume_changes`].
#[derive(Debug)]
pub struct ChangeConsumer {
    database: Database,
    id: u64,
    position: Version,
    bytes: usize,
}

impl ChangeConsumer {
    pub(super) fn new(database: Database, id: u64, position: Version) -> Self {
        Self { database, id, position, bytes: BYTES }
    }

    /// The same, reading about so many bytes at a time. A batch comes whole, however large it is.
    #[must_use]
    pub fn with_bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// The stream's id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Everything up to this version has been delivered.
    pub fn position(&self) -> Version {
        self.position
    }

    /// What comes next: batches, or, about once a second, none, if nothing was committed in the
    /// stream's ranges. In either case the position moves on. May be given up at any moment.
    ///
    /// # Errors
    /// `client_invalid_operation` if the stream was removed; `version_invalid` if what was asked
    /// for has been acknowledged, or the stream has lost it because its consumer was away for too
    /// long; `unsupported_operation` where there are no streams; `shutdown_in_progress` once a
    /// database in this process is closed.
    pub async fn next(&mut self) -> Result<Changes> {
        self.read(true).await
    }

    /// What there is now: batches, or none if nothing that was committed before it was asked is
    /// behind the position.
    ///
    /// # Errors
    /// As those of [`ChangeConsumer::next`].
    pub async fn try_next(&mut self) -> Result<Changes> {
        // Only whoever leads knows what is committed; the node that gives changes may lag.
        let committed = transact(Transaction::bare(&self.database), |tr| async move {
            for_system(&tr)?;
            tr.get_read_version().await
        });
        let committed = committed.await?;
        loop {
            let changes = self.read(false).await?;
            if !changes.batches.is_empty() || changes.upto >= committed {
                return Ok(changes);
            }
            self.database.endpoint().env().sleep(PAUSES[0]).await;
        }
    }

    async fn read(&mut self, wait: bool) -> Result<Changes> {
        let from = self.position.saturating_add(1);
        let request = ChangesRequest { stream: self.id, from, bytes: self.bytes, wait };
        let mut pause = PAUSES[0];
        loop {
            match self.database.read_changes(request).await {
                Ok(changes) => {
                    self.position = changes.upto.max(self.position);
                    return Ok(changes);
                }
                Err(error) if may_get_better(&error) && !self.database.endpoint().is_over() => {
                    probe!("client: a read of changes is tried again");
                    self.database.endpoint().env().sleep(pause).await;
                    pause = (pause * 2).min(PAUSES[1]);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Notes durably that nothing is needed any longer of what was delivered.
    ///
    /// # Errors
    /// As those of [`ChangeConsumer::acknowledge_upto`].
    pub async fn acknowledge(&self) -> Result<()> {
        self.acknowledge_upto(self.position).await
    }

    /// The same for what was delivered up to this version.
    ///
    /// # Errors
    /// `client_invalid_operation` if that was not delivered, or the stream was removed.
    pub async fn acknowledge_upto(&self, version: Version) -> Result<()> {
        if version > self.position {
            let detail = format!(
                "version {version} can't be acknowledged: what was delivered goes up to {}",
                self.position
            );
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        self.database.acknowledge_changes(self.id, version).await
    }
}

/// A node that is gone, or behind: another one, or the same one later, has the answer.
fn may_get_better(error: &Error) -> bool {
    matches!(
        error.code(),
        codes::ALL_ALTERNATIVES_FAILED
            | codes::FUTURE_VERSION
            | codes::CONNECTION_FAILED
            | codes::PROCESS_BEHIND
            | codes::SHUTDOWN_IN_PROGRESS
            | codes::BROKEN_PROMISE
    )
}
