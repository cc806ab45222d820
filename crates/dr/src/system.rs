//! Reads and transactions of the system's rows, whether a database is locked or not; its lock; and
//! waiting for several things at once.
//!
//! Always: what may get better is tried again for a while; what doesn't is told. A database that
//! can't be reached makes no end of waiting by itself: whoever has no patience uses [`within`].

use crate::rows::Id;
use plinth_client::{Database, Retries, Transaction, TransactionOption};
use plinth_env::sync::{First, race};
use plinth_types::{Bytes, Error, MutationType, Result, Version, Versionstamp, system};
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// How often it is tried again, and the pause between.
const RETRIES: Retries = Retries { attempts: 100, pause: PAUSE };
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// What of a first is copied, in order: all that users write. A FoundationDB's streams have its
/// normal keys alone.
pub(crate) fn copied_of(first: &Database) -> &'static [(&'static [u8], &'static [u8])] {
    let ranges = &system::USERS;
    if first.endpoint().change_capture().is_some() { &ranges[..1] } else { ranges }
}

/// A version at which everything acknowledged before is visible.
pub(crate) async fn read_version(db: &Database) -> Result<Version> {
    RETRIES.read_version(db).await
}

/// The values of these keys, and the version that they are from.
pub(crate) async fn read(db: &Database, keys: &[&[u8]]) -> Result<(Version, Vec<Option<Bytes>>)> {
    RETRIES.read(db, keys).await
}

/// One of them.
pub(crate) async fn read_one(db: &Database, key: &[u8]) -> Result<Option<Bytes>> {
    Ok(read(db, &[key]).await?.1.pop().flatten())
}

/// Runs a transaction that may do all that an operator may, until it is committed.
pub(crate) async fn transact<T, F>(
    db: &Database,
    mut body: impl FnMut(Transaction) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    db.transact(|tr| {
        let options = [TransactionOption::AccessSystemKeys, TransactionOption::LockAware];
        let set = options.into_iter().try_for_each(|option| tr.set_option(option));
        let done = body(tr);
        async move {
            set?;
            done.await
        }
    })
    .await
}

/// The id in the value of the lock's key.
pub(crate) fn lock_id(value: &[u8]) -> Option<Id> {
    value.get(Versionstamp::LEN..)?.try_into().ok()
}

/// The version at which it was locked.
pub(crate) fn lock_version(value: &[u8]) -> Option<Version> {
    value.first_chunk::<8>().map(|bytes| Version::from_be_bytes(*bytes))
}

/// Locks the database of a transaction, as FoundationDB's tools do.
pub(crate) fn lock(tr: &Transaction, id: &Id) {
    let operand = [&[0; Versionstamp::LEN][..], id, &[0; 4]].concat();
    tr.atomic_op(system::DATABASE_LOCKED, operand, MutationType::SetVersionstampedValue);
}

/// Unlocks it: whoever read before it was locked conflicts, and whoever caches a layer's metadata
/// reads it again. From the next commit on its versions, and so its versionstamps, are beyond
/// `beyond`.
pub(crate) fn unlock(tr: &Transaction, beyond: Version, now: Version) -> Result<()> {
    tr.clear(system::DATABASE_LOCKED);
    for (begin, end) in system::USERS {
        tr.add_write_conflict_range(begin, end)?;
    }
    tr.atomic_op(system::METADATA_VERSION, [0; 14], MutationType::SetVersionstampedValue);
    if beyond >= now {
        tr.set(system::MIN_REQUIRED_COMMIT_VERSION, beyond.saturating_add(1).to_le_bytes());
    }
    Ok(())
}

/// What `work` gives, or `timed_out` when so much time has passed.
pub(crate) async fn within<T>(
    db: &Database,
    patience: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match race(work, db.endpoint().env().sleep(patience)).await {
        First::Left(result) => result,
        First::Right(()) => {
            let name = match db.endpoint().describe().cluster_file_path {
                path if path.is_empty() => "the database".to_owned(),
                path => format!("the database of {path}"),
            };
            let detail =
                format!("{name} gives no answer for {} s: it can't be reached", patience.as_secs());
            Err(Error::timed_out().with_detail(detail))
        }
    }
}

/// What no patience helps against: the stream is lost, there are none, or the two are no pair.
pub(crate) fn is_final(error: &Error) -> bool {
    [Error::version_invalid(), Error::client_invalid_operation(), Error::unsupported_operation()]
        .contains(error)
}

/// Waits for all of them, in this task: dropping it drops them.
pub(crate) async fn all<T>(
    mut waiting: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>,
) -> Vec<T> {
    let mut done: Vec<Option<T>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut is_over = true;
        for (future, done) in waiting.iter_mut().zip(&mut done) {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *done = Some(output),
                    Poll::Pending => is_over = false,
                }
            }
        }
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
