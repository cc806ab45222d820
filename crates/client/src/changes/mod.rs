//! Streams of changes: registered, listed, removed; and their consumers.
//!
//! A stream is rows among the system's keys (`plinth_types::changes` has their form), written here
//! in ordinary transactions, so a registration holds from one exact version on, wherever it is
//! made. What a consumer has acknowledged is a row, too: the database keeps everything behind it.
//! Reading is a request of its own, [`Endpoint::read_changes`](crate::Endpoint::read_changes),
//! which any node answers.
//!
//! Always: an acknowledgement never goes back, and never beyond what was delivered or committed; a
//! consumer belongs to one stream for ever, also if another one gets its name.
//! Read next: `consumer.rs`, `feed.rs`.

mod consumer;
mod feed;

pub use consumer::ChangeConsumer;
pub use feed::ChangeFeed;

use crate::database::Database;
use crate::options::TransactionOption;
use crate::range::{RangeOptions, StreamingMode};
use crate::transact::transact;
use crate::transaction::{Task, Transaction};
use plinth_env::reply::{Reply, promise};
use plinth_types::changes::{
    LAST_ID, MAX_NAME, MAX_RANGES, MAX_STREAMS, STREAM_END, STREAM_PREFIX, acknowledged_key,
    name_of, number, ranges_of, stream_key, union,
};
use plinth_types::system::{METADATA_VERSION, NORMAL_END, USERS};
use plinth_types::{
    Bytes, Changes, ChangesRequest, Error, KeyRange, MutationType, Result, StreamRow, Version,
    planted, printable,
};

/// A registered stream of changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeStream {
    /// Its name.
    pub name: Bytes,
    /// What names it for ever: a name may be removed and registered again, an id comes once.
    pub id: u64,
    /// The ranges that it covers, in order, without overlaps.
    pub ranges: Vec<KeyRange>,
    /// The version at which it was registered: everything that is committed after it is in the
    /// stream.
    pub registered: Version,
    /// Its consumer needs nothing up to this version any longer.
    pub acknowledged: Version,
    /// Bytes of the log that it may hold back on a node; `None`: a quarter of what is free there
    /// when it is registered.
    pub bound_bytes: Option<u64>,
}

impl Database {
    /// Registers a stream of the changes to these ranges, from the version that the answer has on:
    /// everything that is committed after it is in the stream. A name that is registered already
    /// with the same ranges stays as it is.
    ///
    /// While its consumer doesn't acknowledge, a stream holds back the log, up to `bound_bytes` on
    /// each node. Beyond it what it held back is lost, and its consumer is told so.
    ///
    /// # Errors
    /// `client_invalid_operation` if the name is registered with other ranges, or is empty or
    /// longer than 255 bytes, or there are 500 streams, or the ranges have more than 100 parts or
    /// none; `key_outside_legal_range` beyond the normal keys; `unsupported_operation` over a
    /// FoundationDB behind its C library.
    pub fn register_changes(
        &self,
        name: impl AsRef<[u8]>,
        ranges: impl IntoIterator<Item = KeyRange>,
        bound_bytes: Option<u64>,
    ) -> Reply<ChangeStream> {
        let name = Bytes::copy_from_slice(name.as_ref());
        match check(&name, ranges.into_iter().collect()) {
            Ok(ranges) => self.register_ranges(name, ranges, bound_bytes),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    /// Registers a stream of all that users write: the normal keys, time series, the rows by which
    /// tenants are found, and the metadata version. For whoever keeps a second database in step.
    ///
    /// # Errors
    /// Those of [`Database::register_changes`].
    pub fn register_all_changes(
        &self,
        name: impl AsRef<[u8]>,
        bound_bytes: Option<u64>,
    ) -> Reply<ChangeStream> {
        let name = Bytes::copy_from_slice(name.as_ref());
        match check_name(&name) {
            Ok(()) => self.register_ranges(name, all_ranges(), bound_bytes),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    fn register_ranges(
        &self,
        name: Bytes,
        ranges: Vec<KeyRange>,
        bound_bytes: Option<u64>,
    ) -> Reply<ChangeStream> {
        let database = self.clone();
        detached(async move {
            let bound = bound_bytes.unwrap_or(0);
            let body = |tr| register(tr, name.clone(), ranges.clone(), bound);
            let registered = transact(Transaction::bare(&database), body).await?;
            // Its version is known once it is committed.
            let body = |tr| find(tr, name.clone());
            let found = transact(Transaction::bare(&database), body).await?;
            if found.id == registered { Ok(found) } else { Err(removed(&name)) }
        })
    }

    /// Removes a stream. What its consumer hasn't taken is lost, and the consumer is told so.
    ///
    /// # Errors
    /// `client_invalid_operation` if there is none of this name.
    pub fn remove_changes(&self, name: impl AsRef<[u8]>) -> Reply<()> {
        let (name, database) = (Bytes::copy_from_slice(name.as_ref()), self.clone());
        detached(async move {
            let mut attempts = 0;
            let body = |tr| {
                attempts += 1;
                remove(tr, name.clone(), attempts == 1)
            };
            transact(Transaction::bare(&database), body).await
        })
    }

    /// All streams, in the order of their names.
    pub fn list_changes(&self) -> Reply<Vec<ChangeStream>> {
        let database = self.clone();
        detached(async move { transact(Transaction::bare(&database), list).await })
    }

    /// The consumer of a stream, which goes on behind what was acknowledged.
    ///
    /// A stream has one consumer at a time: two would get the same changes, and acknowledge them
    /// for each other.
    ///
    /// # Errors
    /// `client_invalid_operation` if there is none of this name.
    pub fn consume_changes(&self, name: impl AsRef<[u8]>) -> Reply<ChangeConsumer> {
        let (name, database) = (Bytes::copy_from_slice(name.as_ref()), self.clone());
        detached(async move {
            let found = transact(Transaction::bare(&database), |tr| find(tr, name.clone())).await?;
            Ok(ChangeConsumer::new(database, found.id, found.acknowledged))
        })
    }

    /// A consumer of the stream with this id that goes on behind a version up to which it has dealt
    /// with everything. Whether there is such a stream, and whether it has that, shows with the
    /// first read.
    pub fn resume_changes(&self, id: u64, position: Version) -> ChangeConsumer {
        ChangeConsumer::new(self.clone(), id, position)
    }

    /// Reads a stream once: see [`ChangeConsumer`], which knows where to go on and asks again where
    /// that helps.
    ///
    /// # Errors
    /// Those of [`Endpoint::read_changes`](crate::Endpoint::read_changes).
    pub fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        self.endpoint().read_changes(request)
    }

    /// Notes durably that the consumer of a stream needs nothing up to this version any longer.
    /// Going back does nothing.
    ///
    /// # Errors
    /// `client_invalid_operation` if there is no such stream, or nothing was committed at that
    /// version yet.
    pub fn acknowledge_changes(&self, id: u64, upto: Version) -> Reply<()> {
        let database = self.clone();
        detached(async move {
            transact(Transaction::bare(&database), |tr| acknowledge(tr, id, upto)).await
        })
    }
}

/// Streams that come, or go, with whatever else a transaction says: a row that was read decides
/// whether it may, and one that is written knows of them.
impl Transaction {
    /// As [`Database::register_changes`], once this is committed. Gives the stream's id.
    ///
    /// # Errors
    /// Those of [`Database::register_changes`].
    pub async fn register_changes(
        &self,
        name: impl AsRef<[u8]>,
        ranges: impl IntoIterator<Item = KeyRange>,
        bound_bytes: Option<u64>,
    ) -> Result<u64> {
        let name = Bytes::copy_from_slice(name.as_ref());
        let ranges = check(&name, ranges.into_iter().collect())?;
        boxed(register(self.clone(), name, ranges, bound_bytes.unwrap_or(0))).await
    }

    /// As [`Database::register_all_changes`], once this is committed. Gives the stream's id.
    ///
    /// # Errors
    /// Those of [`Database::register_changes`].
    pub async fn register_all_changes(
        &self,
        name: impl AsRef<[u8]>,
        bound_bytes: Option<u64>,
    ) -> Result<u64> {
        let name = Bytes::copy_from_slice(name.as_ref());
        check_name(&name)?;
        boxed(register(self.clone(), name, all_ranges(), bound_bytes.unwrap_or(0))).await
    }

    /// Removes a stream, if there is one of this name, once this is committed.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn remove_changes(&self, name: impl AsRef<[u8]>) -> Result<()> {
        boxed(remove(self.clone(), Bytes::copy_from_slice(name.as_ref()), false)).await
    }
}

/// Large, and rarely needed: no part of the futures of those who call it.
fn boxed<'a, T>(
    work: impl Future<Output = T> + Send + 'a,
) -> std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>> {
    Box::pin(work)
}

/// All that users write.
fn all_ranges() -> Vec<KeyRange> {
    let metadata_version = KeyRange::single(METADATA_VERSION);
    let users = USERS.iter().map(|(begin, end)| KeyRange::new(*begin, *end));
    union(users.chain([metadata_version]).collect())
}

/// Goes on whether or not anybody waits.
fn detached<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Reply<T> {
    let (promise, reply) = promise();
    Task::detached(work, promise);
    reply
}

fn invalid(what: String) -> Error {
    Error::client_invalid_operation().with_detail(what)
}

fn removed(name: &[u8]) -> Error {
    invalid(format!("stream {} was removed meanwhile", printable(name)))
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(invalid(format!(
            "the name of a stream has 1 to {MAX_NAME} bytes, not {}",
            name.len()
        )));
    }
    Ok(())
}

/// The ranges as they are registered.
fn check(name: &[u8], ranges: Vec<KeyRange>) -> Result<Vec<KeyRange>> {
    check_name(name)?;
    if let Some(wrong) = ranges.iter().find(|range| range.end[..] > *NORMAL_END) {
        let detail = format!("a stream covers normal keys, which {wrong:?} goes beyond");
        return Err(Error::key_outside_legal_range().with_detail(detail));
    }
    if let Some(wrong) = ranges.iter().find(|range| range.is_empty()) {
        let detail = format!("a stream covers ranges that have keys, which {wrong:?} has not");
        return Err(Error::inverted_range().with_detail(detail));
    }
    let ranges = union(ranges);
    if ranges.is_empty() || ranges.len() > MAX_RANGES {
        return Err(invalid(format!(
            "a stream covers 1 to {MAX_RANGES} ranges, not {}",
            ranges.len()
        )));
    }
    Ok(ranges)
}

/// These are the system's rows, and they may be needed while the database is locked, too.
fn for_system(tr: &Transaction) -> Result<()> {
    tr.set_option(TransactionOption::AccessSystemKeys)?;
    tr.set_option(TransactionOption::LockAware)
}

async fn rows(tr: &Transaction) -> Result<Vec<(Bytes, StreamRow)>> {
    let range = RangeOptions::from(STREAM_PREFIX..STREAM_END).mode(StreamingMode::WantAll);
    let rows = tr.range(range).collect().await?;
    let row = |row: plinth_types::KeyValue| {
        let name = name_of(&row.key)?;
        let row = StreamRow::of(&name, &row.value).ok()?;
        Some((name, row))
    };
    Ok(rows.into_iter().filter_map(row).collect())
}

async fn register(tr: Transaction, name: Bytes, ranges: Vec<KeyRange>, bound: u64) -> Result<u64> {
    if tr.database().endpoint().change_capture().is_some() {
        // Its rows would lie there, and nobody would ever read them.
        let detail =
            "streams of changes are Plinth's own: a FoundationDB behind its C library keeps none";
        return Err(Error::unsupported_operation().with_detail(detail));
    }
    for_system(&tr)?;
    let ranges = ranges_of(&name, ranges);
    let rows = rows(&tr).await?;
    if let Some((_, row)) = rows.iter().find(|(other, _)| *other == name) {
        if row.ranges == ranges {
            return Ok(row.id);
        }
        let name = printable(&name);
        return Err(invalid(format!(
            "stream {name} is registered already, with the ranges {:?}",
            row.ranges
        )));
    }
    if rows.len() >= MAX_STREAMS {
        return Err(invalid(format!("there are {MAX_STREAMS} streams already, which is the most")));
    }
    let last = tr.get(LAST_ID).await?.map_or(Ok(0), |value| number(&value))?;
    let highest = rows.iter().map(|(_, row)| row.id).max().unwrap_or(0);
    let id = last.max(highest) + 1;
    tr.set(LAST_ID, id.to_le_bytes());
    tr.clear(acknowledged_key(id));
    let value = StreamRow::to_be_stamped(id, bound, &ranges);
    tr.atomic_op(stream_key(&name), value, MutationType::SetVersionstampedValue);
    Ok(id)
}

async fn acknowledged(tr: &Transaction, row: &StreamRow) -> Result<Version> {
    let value = tr.get(acknowledged_key(row.id)).await?;
    let version = value.map_or(Ok(0), |value| number(&value))?;
    Ok(Version::try_from(version).unwrap_or(Version::MAX).max(row.registered))
}

async fn shown(tr: &Transaction, name: Bytes, row: StreamRow) -> Result<ChangeStream> {
    let acknowledged = acknowledged(tr, &row).await?;
    let StreamRow { registered, id, bound, ranges } = row;
    let bound_bytes = (bound > 0).then_some(bound);
    Ok(ChangeStream { name, id, ranges, registered, acknowledged, bound_bytes })
}

async fn find(tr: Transaction, name: Bytes) -> Result<ChangeStream> {
    for_system(&tr)?;
    let value = tr.get(stream_key(&name)).await?;
    let value = value.ok_or_else(|| unknown(&name))?;
    let row = StreamRow::of(&name, &value)?;
    shown(&tr, name, row).await
}

fn unknown(name: &[u8]) -> Error {
    invalid(format!("there is no stream of the name {}", printable(name)))
}

async fn list(tr: Transaction) -> Result<Vec<ChangeStream>> {
    for_system(&tr)?;
    let mut all = Vec::new();
    for (name, row) in rows(&tr).await? {
        all.push(shown(&tr, name, row).await?);
    }
    Ok(all)
}

/// A removal whose fate was unknown may have succeeded: then the next attempt finds nothing.
async fn remove(tr: Transaction, name: Bytes, must_exist: bool) -> Result<()> {
    for_system(&tr)?;
    let Some(value) = tr.get(stream_key(&name)).await? else {
        return if must_exist { Err(unknown(&name)) } else { Ok(()) };
    };
    if let Ok(row) = StreamRow::decode(&value) {
        tr.clear(acknowledged_key(row.id));
    }
    tr.clear(stream_key(&name));
    Ok(())
}

async fn acknowledge(tr: Transaction, id: u64, upto: Version) -> Result<()> {
    for_system(&tr)?;
    let committed = tr.get_read_version().await?;
    if upto > committed {
        let detail = format!(
            "version {upto} can't be acknowledged: what is committed goes up to {committed}"
        );
        return Err(invalid(detail));
    }
    let (_, row) = rows(&tr).await?.into_iter().find(|(_, row)| row.id == id).ok_or_else(|| {
        invalid(format!("there is no stream with the id {id}: it was removed, or never registered"))
    })?;
    if upto > acknowledged(&tr, &row).await? && !planted!("an acknowledged position is lost") {
        tr.set(acknowledged_key(id), upto.to_le_bytes());
    }
    Ok(())
}
