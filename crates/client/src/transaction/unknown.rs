//! Finding out what became of a commit whose answer was lost.
//!
//! First a transaction is committed that writes a key which the lost one conflicts with itself on:
//! once that is done the lost one has committed or never will. Then, if it had an idempotency id,
//! its record says which.

use super::attempt::Sent;
use super::done::Done;
use super::{Inner, Transaction};
use crate::options::TransactionOption;
use crate::range::RangeOptions;
use plinth_types::{Error, Result, Version, Versionstamp, codes, key_after, limits, probe, system};

/// Records of commits at this version and before have been removed.
const EXPIRED_VERSION: &[u8] = system::IDEMPOTENCY_EXPIRED;

/// Whether a commit that failed like this may have taken effect, now or later.
pub(super) fn is_unknown(error: &Error) -> bool {
    matches!(
        error.code(),
        codes::COMMIT_UNKNOWN_RESULT | codes::CONNECTION_FAILED | codes::BROKEN_PROMISE
    )
}

impl Inner {
    /// What became of a commit: done, `transaction_too_old` (it certainly did not commit), or
    /// `commit_unknown_result`.
    pub(super) async fn find_out(&self, sent: &Sent) -> Result<Done> {
        let Some(key) = &sent.self_conflict else { return Err(Error::commit_unknown_result()) };
        let still_unknown = |error| still_unknown(error, sent.id.is_some());
        self.fence(sent, &[self.prefix(), key].concat()).await.map_err(still_unknown)?;
        probe!("client: lost commit fenced");
        let Some(id) = &sent.id else { return Err(Error::commit_unknown_result()) };
        match self.find_record(sent, id).await.map_err(still_unknown)? {
            Some(stamp) => {
                probe!("client: lost commit found by its record");
                Ok(Done { version: Some(stamp.version()), stamp: Ok(stamp) })
            }
            None => {
                probe!("client: lost commit known to have come to nothing");
                Err(Error::transaction_too_old().with_detail(
                    "the answer to the commit was lost; its record shows that it did not take effect",
                ))
            }
        }
    }

    /// Commits a transaction that conflicts with every one that was under way and read `key`.
    async fn fence(&self, sent: &Sent, key: &[u8]) -> Result<()> {
        let tr = Transaction::bare(&self.database);
        loop {
            tr.ask_of(sent.shown.clone());
            for option in [
                TransactionOption::AccessSystemKeys,
                TransactionOption::CausalWriteRisky,
                TransactionOption::LockAware,
            ] {
                tr.set_option(option)?;
            }
            tr.add_read_conflict_range(key, key_after(key))?;
            tr.add_write_conflict_range(key, key_after(key))?;
            match tr.commit().await {
                Ok(()) => return Ok(()),
                Err(error) => tr.on_error(error).await?,
            }
        }
    }

    /// The versionstamp of the commit that left a record under `id`.
    async fn find_record(&self, sent: &Sent, id: &[u8]) -> Result<Option<Versionstamp>> {
        let (tr, read_version) = (Transaction::bare(&self.database), sent.version);
        loop {
            tr.ask_of(sent.shown.clone());
            tr.set_option(TransactionOption::ReadSystemKeys)?;
            tr.set_option(TransactionOption::ReadLockAware)?;
            let found = async {
                let expired = tr.snapshot().get(EXPIRED_VERSION).await?;
                if expired
                    .and_then(|value| version_of(&value))
                    .is_some_and(|expired| expired >= read_version)
                {
                    return Err(Error::commit_unknown_result_fatal());
                }
                let last = read_version.saturating_add(limits::WINDOW_VERSIONS + 1);
                let key = |version: Version| {
                    [system::IDEMPOTENCY_PREFIX, &version.to_be_bytes()].concat()
                };
                let records = tr.snapshot().range(RangeOptions::from(key(read_version)..key(last)));
                let records = records.collect().await?;
                Ok(records.iter().find_map(|record| find_in_record(&record.key, &record.value, id)))
            };
            match found.await {
                Ok(found) => return Ok(found),
                Err(error) => tr.on_error(error).await?,
            }
        }
    }
}

/// That finding out has failed says nothing about the commit: its own error would look like a
/// refusal. Whoever gave the transaction an id counts on its taking effect once: an error that asks
/// for a retry would have it take effect twice.
fn still_unknown(error: Error, has_id: bool) -> Error {
    if error == Error::commit_unknown_result_fatal() || (error.is_maybe_committed() && !has_id) {
        return error;
    }
    let unknown =
        if has_id { Error::commit_unknown_result_fatal() } else { Error::commit_unknown_result() };
    unknown.with_detail(format!("and it can't be found out: {error}"))
}

fn version_of(value: &[u8]) -> Option<Version> {
    value.first_chunk::<8>().map(|bytes| Version::from_le_bytes(*bytes))
}

/// Looks for `id` in one record: 8 bytes protocol version, 8 bytes time, then length, id and low
/// byte of the batch index of each transaction; the key ends with the version and the batch index's
/// high byte.
fn find_in_record(key: &[u8], value: &[u8], id: &[u8]) -> Option<Versionstamp> {
    let (version, high) = key.strip_prefix(system::IDEMPOTENCY_PREFIX)?.split_first_chunk::<8>()?;
    let high = *high.first()?;
    let mut rest = value.get(16..)?;
    loop {
        let (&length, tail) = rest.split_first()?;
        let (found, tail) = tail.split_at_checked(usize::from(length))?;
        let (&low, tail) = tail.split_first()?;
        if found == id {
            return Some(Versionstamp::new(
                Version::from_be_bytes(*version),
                u16::from_be_bytes([high, low]),
            ));
        }
        rest = tail;
    }
}
