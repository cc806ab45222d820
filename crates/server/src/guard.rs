//! What requests may say: a client's library checks this before it sends, somebody else's may not.
//!
//! Lengths of keys and values, sizes of transactions and the order of ranges are compared with the
//! limits once more, with some room for what the library itself adds; replies are bounded too.
//!
//! Always: what gets past here is no longer than the pipeline and its log expect.

use plinth_types::limits::{REPLY_BYTES, SYSTEM_KEY_SIZE, TRANSACTION_SIZE, VALUE_SIZE};
use plinth_types::{
    Bytes, CommitRequest, Error, KeySelector, MutationRef, MutationType, RangeList, RangeRead,
    Result, system,
};
use std::borrow::Cow;

/// What a stored key may be longer than a user's: a tenant's prefix, the place of a versionstamp, a
/// zero byte.
const KEY_ROOM: usize = 32;
/// What conflict ranges that the client adds by itself may take beyond the size limit.
const SIZE_ROOM: usize = 1 << 20;
/// Most pieces that a range is cut into.
const MOST_PIECES: i64 = 10_000;

/// Whether a transaction may go to the pipeline.
///
/// # Errors
/// `transaction_too_large`, `key_too_large`, `value_too_large`, `key_outside_legal_range`,
/// `inverted_range`.
pub(crate) fn commit(request: &CommitRequest) -> Result<()> {
    let size = request.size();
    if size > TRANSACTION_SIZE + SIZE_ROOM {
        let detail = format!("{size} bytes, at most {TRANSACTION_SIZE}");
        return Err(Error::transaction_too_large().with_detail(detail));
    }
    ranges(&request.conflicts.reads)?;
    ranges(&request.conflicts.writes)?;
    request.mutations.iter().try_for_each(|change| mutation(&change))
}

fn ranges(list: &RangeList) -> Result<()> {
    list.iter().try_for_each(|range| {
        key(range.begin)?;
        range.end.map_or(Ok(()), key)
    })
}

fn mutation(mutation: &MutationRef<'_>) -> Result<()> {
    let MutationRef { kind, param1, param2 } = *mutation;
    key(param1)?;
    if kind == MutationType::ClearRange {
        key(param2)?;
        if param1 > param2 {
            return Err(Error::inverted_range());
        }
        return if param2 > system::SYSTEM_END {
            Err(Error::key_outside_legal_range())
        } else {
            Ok(())
        };
    }
    if param1 >= system::SYSTEM_END {
        return Err(Error::key_outside_legal_range());
    }
    // A stamped value has the place of its stamp behind it.
    if param2.len() > VALUE_SIZE + 4 {
        let detail = format!("{} bytes, at most {VALUE_SIZE}", param2.len());
        return Err(Error::value_too_large().with_detail(detail));
    }
    Ok(())
}

/// Whether a key is short enough.
///
/// # Errors
/// `key_too_large`.
pub(crate) fn key(key: &[u8]) -> Result<()> {
    if key.len() > SYSTEM_KEY_SIZE + KEY_ROOM {
        let detail = format!("{} bytes, at most {SYSTEM_KEY_SIZE}", key.len());
        return Err(Error::key_too_large().with_detail(detail));
    }
    Ok(())
}

/// The selector, if its key is short enough.
///
/// # Errors
/// `key_too_large`.
pub(crate) fn selector(selector: &KeySelector) -> Result<()> {
    key(&selector.key)
}

/// Bounds what one reply to a range read carries; the client asks for the rest.
///
/// # Errors
/// `key_too_large`.
pub(crate) fn range(read: &mut RangeRead) -> Result<()> {
    selector(&read.begin)?;
    selector(&read.end)?;
    read.target_bytes = read.target_bytes.min(REPLY_BYTES);
    Ok(())
}

/// The least size of a piece for a range of `size` bytes, so that there are not too many.
pub(crate) fn chunk(chunk: i64, size: i64) -> i64 {
    chunk.max(size / MOST_PIECES).max(1)
}

/// Some of the keys that cut a range, evenly, the first and the last among them, so that they take
/// at most so many bytes.
pub(crate) fn points(points: &[Bytes], most: usize) -> Cow<'_, [Bytes]> {
    let size = |keys: &[Bytes]| keys.iter().map(|key| key.len() + 4).sum::<usize>();
    let mut points = Cow::Borrowed(points);
    while points.len() > 2 && size(&points) > most {
        let last = points.len() - 1;
        let every_other = points.iter().enumerate().filter(|(at, _)| at % 2 == 0 && *at != last);
        points = every_other.map(|(_, key)| key).chain(points.last()).cloned().collect();
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kind: MutationType, param1: &[u8], param2: &[u8]) -> Result<()> {
        let mut request = CommitRequest::default();
        request.mutations.push(kind, param1, param2);
        commit(&request)
    }

    #[test]
    fn points_that_are_too_many_are_thinned_out_evenly() {
        let all: Vec<_> = (0..=100_u8).map(|number| Bytes::from(vec![number; 6])).collect();
        assert_eq!(points(&all, 1010)[..], all[..]);
        let some = points(&all, 1009);
        assert_eq!((some.len(), some.first(), some.last()), (51, all.first(), all.last()));
        assert_eq!(some[1], all[2]);
        let few = points(&all, 35);
        assert_eq!((few.len(), few.first(), few.last()), (3, all.first(), all.last()));
        assert_eq!(points(&all, 0).len(), 2);
        assert!(points(&[], 0).is_empty());
    }

    #[test]
    fn what_a_client_would_not_send_is_refused() {
        let long = vec![b'k'; SYSTEM_KEY_SIZE + KEY_ROOM + 1];
        let value = vec![0; VALUE_SIZE + 5];
        assert_eq!(with(MutationType::Set, b"k", &value[5..]), Ok(()));
        assert_eq!(with(MutationType::Set, b"k", &value), Err(Error::value_too_large()));
        assert_eq!(with(MutationType::Set, &long, b""), Err(Error::key_too_large()));
        assert_eq!(with(MutationType::ClearRange, b"b", b"a"), Err(Error::inverted_range()));
        assert_eq!(with(MutationType::ClearRange, b"", b"\xff\xff"), Ok(()));
        assert_eq!(
            with(MutationType::Set, b"\xff\xff/x", b""),
            Err(Error::key_outside_legal_range())
        );
        let mut request = CommitRequest::default();
        request.conflicts.reads.push_single(&long);
        assert_eq!(commit(&request), Err(Error::key_too_large()));
    }
}
