//! A first that is no database of Plinth's: Apple's FoundationDB 8, by its change data capture.
//!
//! ```text
//!   start    row at the first ──▶ stream registered ──▶ the second is locked, and has its head
//!   follow   batches behind what was acknowledged, those up to the place left out ──▶ applied ──▶ acknowledged
//!   switch   `handover.rs`
//!   abort    unlocked, if by this switch ──▶ row and stream gone ──▶ the second is free
//! ```
//! A stream is no row there, so it can't come and go with one. The row at the first comes before it
//! and goes after it, and whoever has registered a stream looks once more whether the row is still
//! there.
//!
//! A consumer has one operation at a time. Nothing is acknowledged but what the place has: behind
//! it a stream is read again after a kill, from what was acknowledged on, and so after a proxy of
//! FoundationDB's was replaced.
//!
//! Only the normal keys are followed.

use crate::rows::{First, Head, Id, first_key, stream_name};
use crate::system::{self, lock_id, lock_version, within};
use plinth_client::{CaptureConsumer, CapturedStream, ChangeCapture, Database};
use plinth_env::reply::Reply;
use plinth_types::{
    Changes, Error, KeyRange, Result, Version,
    system::{DATABASE_LOCKED, NORMAL_END},
};
use std::sync::Arc;
use std::time::Duration;

/// How long a call of FoundationDB's may take: it waits by itself for whatever is away.
const PATIENCE: Duration = Duration::from_secs(5);
/// A stream that has given nothing for so long is nudged: it may wait until something is committed
/// in its range.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// A key that nobody has. That it is cleared changes nothing, and shows in a stream of the normal
/// keys.
const NUDGE: &[u8] = b"\xfe\xfe\xfe/plinth/dr/nudge/6f1c0c9e52f34d2b";

/// The streams of a database that is no Plinth.
pub(crate) fn of(db: &Database) -> Option<&dyn ChangeCapture> {
    db.endpoint().change_capture()
}

/// What a refusal means there: it has one number for everything.
fn refused(error: Error) -> Error {
    if error != Error::client_invalid_operation() {
        return error;
    }
    let detail = "FoundationDB takes no new stream: change data capture is behind a switch there, and every fdbserver needs \
                  --knob_enable_native_cdc=true";
    Error::client_invalid_operation().with_detail(detail)
}

async fn find(
    db: &Database,
    capture: &dyn ChangeCapture,
    name: &str,
) -> Result<Option<CapturedStream>> {
    let streams = within(db, PATIENCE, capture.list()).await?;
    Ok(streams.into_iter().find(|stream| stream.name == name.as_bytes()))
}

/// Whether it has such streams at all.
///
/// # Errors
/// `unsupported_operation`, saying what is missing.
pub(crate) async fn check(db: &Database, capture: &dyn ChangeCapture) -> Result<()> {
    within(db, PATIENCE, capture.list()).await.map(drop)
}

/// Whether the first knows of this relation.
async fn is_known(first: &Database, head: &Head) -> Result<bool> {
    let row = system::read_one(first, &first_key(&head.tag)).await?;
    Ok(row.map(|value| First::decode(&value)).transpose()?.is_some_and(|row| row.id == head.id))
}

/// Registers the stream of a relation, if the first knows of that. Gives its number and the version
/// that it begins behind.
pub(crate) async fn register(
    first: &Database,
    capture: &dyn ChangeCapture,
    head: &Head,
) -> Result<Option<(u64, Version)>> {
    if !is_known(first, head).await? {
        return Ok(None);
    }
    let name = stream_name(&head.id);
    let range = KeyRange::new("", NORMAL_END);
    within(first, PATIENCE, capture.register(name.as_bytes(), &range)).await.map_err(refused)?;
    if !is_known(first, head).await? {
        remove(first, capture, &head.id).await?;
        return Ok(None);
    }
    let stream = find(first, capture, &name).await?;
    Ok(stream.map(|stream| (stream.id, stream.needed.saturating_sub(1))))
}

/// Removes the stream of a relation, if there is one.
async fn remove(first: &Database, capture: &dyn ChangeCapture, id: &Id) -> Result<()> {
    let name = stream_name(id);
    match within(first, PATIENCE, capture.remove(name.as_bytes())).await {
        Err(error) if error == Error::client_invalid_operation() => {
            match find(first, capture, &name).await? {
                Some(_) => Err(error),
                None => Ok(()),
            }
        }
        removed => removed,
    }
}

/// A first is none any more: neither the stream nor the row that knows of it stays, nor the lock of
/// a switch that was given up.
pub(crate) async fn end(
    first: &Database,
    capture: &dyn ChangeCapture,
    (tag, id): (&str, &Id),
    locked_by: Option<Id>,
) -> Result<()> {
    remove(first, capture, id).await?;
    system::transact(first, |tr| async move {
        let locked = tr.get(DATABASE_LOCKED).await?.and_then(|value| lock_id(&value));
        if locked.is_some() && locked == locked_by {
            tr.clear(DATABASE_LOCKED);
        }
        let row = tr.get(first_key(tag)).await?.map(|value| First::decode(&value)).transpose()?;
        if row.is_some_and(|row| row.id == *id) {
            tr.clear(first_key(tag));
        }
        Ok(())
    })
    .await?;
    // An agent that woke late may have registered it between.
    remove(first, capture, id).await
}

/// Has something committed in the range of the streams, which changes nothing.
pub(crate) async fn nudge(first: &Database) -> Result<()> {
    system::transact(first, |tr| async move {
        tr.clear(NUDGE);
        Ok(())
    })
    .await
}

/// Reads the stream of a relation, for one run.
pub(crate) struct Reader {
    name: String,
    stream: u64,
    consumer: Option<Arc<dyn CaptureConsumer>>,
}

impl Reader {
    /// A reader of this stream; nothing is asked yet.
    pub fn new(id: &Id, stream: u64) -> Self {
        Self { name: stream_name(id), stream, consumer: None }
    }

    /// Asks for what comes next, behind what was acknowledged, or behind what this reader has had.
    ///
    /// # Errors
    /// `version_invalid` if the stream is gone, or has let go of what comes behind `position`.
    pub async fn ask(&mut self, first: &Database, position: Version) -> Result<Reply<Changes>> {
        if let Some(consumer) = &self.consumer {
            return Ok(consumer.next());
        }
        let Some(capture) = of(first) else { return Err(Error::unsupported_operation()) };
        let found = find(first, capture, &self.name).await?;
        if found.is_none_or(|found| {
            found.id != self.stream || found.needed > position.saturating_add(1)
        }) {
            let detail =
                "the stream of the first site was removed there, or acknowledged by somebody else";
            return Err(Error::version_invalid().with_detail(detail));
        }
        let consumer = within(first, PATIENCE, capture.consume(self.name.as_bytes())).await?;
        Ok(self.consumer.insert(consumer).next())
    }

    /// Something went wrong: a new consumer goes on, if there is still a stream.
    pub fn start_over(&mut self) {
        self.consumer = None;
    }

    /// Notes at the first that nothing is needed any more of what was given.
    pub async fn acknowledge(&mut self, first: &Database) {
        let Some(consumer) = &self.consumer else { return };
        // Whether it can be done shows with the next read.
        if within(first, PATIENCE, consumer.acknowledge()).await.is_err() {
            self.start_over();
        }
    }
}

/// The version at which the first was locked by this id, if it is.
pub(crate) async fn locked_at(first: &Database, by: &Id) -> Result<Option<Version>> {
    let value = system::read_one(first, DATABASE_LOCKED).await?;
    Ok(value.filter(|value| lock_id(value) == Some(*by)).and_then(|value| lock_version(&value)))
}

/// By whom a database is locked, as FoundationDB's `fdbcli` writes it, if it is.
///
/// # Errors
/// Those of reading; `timed_out` if it can't be reached.
pub async fn lock_of(db: &Database) -> Result<Option<String>> {
    let value = within(db, PATIENCE, system::read_one(db, DATABASE_LOCKED)).await?;
    Ok(value.and_then(|value| lock_id(&value)).map(|id| uid(&id)))
}

/// A UID is two numbers there, each written with its highest digit first.
fn uid(id: &Id) -> String {
    id.chunks_exact(8)
        .flat_map(|half| half.iter().rev())
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_written_as_fdbcli_reads_it() {
        let id = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        assert_eq!(uid(&id), "0807060504030201100f0e0d0c0b0a09");
    }
}
