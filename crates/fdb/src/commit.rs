//! A request to commit, as a transaction of the C library's with exactly its conflict ranges and
//! mutations.
//!
//! The position in the batch, which the client needs for versionstamps, comes by the library's
//! versionstamp; which reads conflicted, by the special keys that list them.

use crate::native::{Database, RangeAsk, Ready, Transaction, option};
use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::{
    CommitReply, CommitRequest, Error, KeyRange, KeySelector, MutationType, RangeList, RangeRef,
    Result, Versionstamp,
};
use std::sync::Arc;

const CONFLICTING_KEYS: &[u8] = b"\xff\xff/transaction/conflicting_keys/";
const CONFLICTING_KEYS_END: &[u8] = b"\xff\xff/transaction/conflicting_keys0";
/// FoundationDB takes idempotency ids of at least this many bytes.
const IDEMPOTENCY_ID_LEAST: usize = 16;

const READ: i32 = 0;
const WRITE: i32 = 1;

/// Sends a request. Giving the reply up leaves the commit to its fate.
///
/// # Errors
/// Those of building the transaction; nothing has been sent then.
pub(crate) fn commit(database: &Database, request: &CommitRequest) -> Result<Reply<CommitReply>> {
    let tr = build(database, request)?;
    let reads = request.report_conflicting_keys.then(|| request.conflicts.reads.clone());
    let (promise, reply) = promise();
    // To be asked for before the commit; answered with it.
    let stamp = tr.versionstamp().reply(|ready| ready.key());
    let committing = tr.clone();
    tr.commit().on_ready(move |ready| match outcome(&committing, &ready) {
        Ok(version) => stamp.on_complete(move |stamp| {
            promise.send(stamp.and_then(|stamp| {
                let stamp = stamp[..].try_into().map_err(|_| {
                    Error::internal_error()
                        .with_detail(format!("a versionstamp of {} bytes", stamp.len()))
                })?;
                let batch_index = Versionstamp::from_bytes(stamp).batch_index();
                Ok(CommitReply::Committed { version, batch_index })
            }));
        }),
        Err(error) if error == Error::not_committed() => match reads {
            Some(reads) => report(&committing, reads, promise),
            None => promise.send(Ok(CommitReply::Conflict { conflicting_reads: Vec::new() })),
        },
        Err(error) => promise.send(Err(error)),
    });
    Ok(reply)
}

fn outcome(tr: &Transaction, ready: &Ready<'_>) -> Result<i64> {
    ready.done()?;
    tr.committed_version()
}

fn build(database: &Database, request: &CommitRequest) -> Result<Arc<Transaction>> {
    let tr = database.create_transaction()?;
    // Writes and conflict ranges go as they are: the client above has merged and filtered them.
    tr.set_option(option::READ_YOUR_WRITES_DISABLE)?;
    tr.set_option(option::ACCESS_SYSTEM_KEYS)?;
    if request.lock_aware {
        tr.set_option(option::LOCK_AWARE)?;
    }
    if request.report_conflicting_keys {
        tr.set_option(option::REPORT_CONFLICTING_KEYS)?;
    }
    if let Some(id) = &request.idempotency_id
        && id.len() >= IDEMPOTENCY_ID_LEAST
    {
        tr.set_option_bytes(option::IDEMPOTENCY_ID, id)?;
    }
    let conflicts = &request.conflicts;
    if conflicts.read_version > 0 && !conflicts.reads.is_empty() {
        tr.set_read_version(conflicts.read_version);
    }
    for range in &conflicts.reads {
        tr.add_conflict_range(range.begin, &range.end_key(), READ)?;
    }
    for range in &conflicts.writes {
        tr.add_conflict_range(range.begin, &range.end_key(), WRITE)?;
    }
    for mutation in &request.mutations {
        // The conflict ranges of the request are all there are.
        tr.set_option(option::NEXT_WRITE_NO_WRITE_CONFLICT_RANGE)?;
        match mutation.kind {
            MutationType::Set => tr.set(mutation.param1, mutation.param2),
            MutationType::ClearRange => tr.clear_range(mutation.param1, mutation.param2),
            kind => tr.atomic_op(mutation.param1, mutation.param2, atomic_code(kind)?),
        }
    }
    Ok(tr)
}

/// The code by which an API version of 700 or later is asked for a normalised operation.
fn atomic_code(kind: MutationType) -> Result<i32> {
    match kind {
        MutationType::MinV2 => Ok(MutationType::Min as i32),
        MutationType::BitAndV2 => Ok(MutationType::BitAnd as i32),
        MutationType::Min | MutationType::BitAnd => Err(Error::unsupported_operation().with_detail(
            "MIN and AND as API versions below 510 have them can't be had through FoundationDB's C library; \
             use API version 510 or later",
        )),
        kind => Ok(kind as i32),
    }
}

/// Asks which reads conflicted, and gives their positions.
fn report(tr: &Arc<Transaction>, reads: RangeList, promise: Promise<CommitReply>) {
    let ask = RangeAsk {
        begin: &KeySelector::first_greater_or_equal(CONFLICTING_KEYS),
        end: &KeySelector::first_greater_or_equal(CONFLICTING_KEYS_END),
        limit: 0,
        target_bytes: 0,
        mode: -2,
        reverse: false,
    };
    let keeping = tr.clone();
    tr.get_range(&ask).on_ready(move |ready| {
        // That it conflicted is known; where, may be not.
        let conflicting =
            ready.rows().map(|(rows, _)| conflicting_ranges(rows.iter())).unwrap_or_default();
        drop(keeping);
        let conflicts = |range: RangeRef<'_>| {
            conflicting.iter().any(|other| {
                range.overlaps(&RangeRef { begin: &other.begin, end: Some(&other.end) })
            })
        };
        let conflicting_reads = reads
            .iter()
            .enumerate()
            .filter(|(_, range)| conflicts(*range))
            .map(|(at, _)| at)
            .collect();
        promise.send(Ok(CommitReply::Conflict { conflicting_reads }));
    });
}

/// The ranges between rows with value `1` (a range begins) and `0` (it ends).
fn conflicting_ranges<'a>(rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<KeyRange> {
    let mut ranges = Vec::new();
    let mut begin: Option<Vec<u8>> = None;
    for (key, value) in rows {
        let Some(key) = key.strip_prefix(CONFLICTING_KEYS) else { continue };
        match (value, begin.take()) {
            (b"1", open) => begin = open.or_else(|| Some(key.to_vec())),
            (_, Some(begin)) => ranges.push(KeyRange::new(begin, key.to_vec())),
            (_, None) => {}
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicting_ranges_are_read_off_their_bounds() {
        let key = |key: &str| [CONFLICTING_KEYS, key.as_bytes()].concat();
        let rows = [
            (key("a"), b"1"),
            (key("b"), b"0"),
            (key("c"), b"1"),
            (key("d"), b"1"),
            (key("e"), b"0"),
        ];
        let ranges = conflicting_ranges(rows.iter().map(|(key, value)| (&key[..], &value[..])));
        assert_eq!(
            ranges,
            [KeyRange::new(&b"a"[..], &b"b"[..]), KeyRange::new(&b"c"[..], &b"e"[..])]
        );
    }

    #[test]
    fn operations_that_the_library_can_not_do_are_refused() {
        assert_eq!(atomic_code(MutationType::MinV2), Ok(13));
        assert_eq!(atomic_code(MutationType::Add), Ok(2));
        assert_eq!(atomic_code(MutationType::BitAnd), Err(Error::unsupported_operation()));
    }
}
