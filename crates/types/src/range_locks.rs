//! Ranges of keys that are locked while the rest of the database is in use: the value of the row
//! [`system::RANGE_LOCKS`].
//!
//! ```text
//!   format (1) | owner (16), begin length (4), end length (4), begin, end | ...     lengths are little-endian
//! ```
//! Always: a value that can't be read, as one of a later format, locks all keys of users. What is
//! locked is never taken for free.

use crate::{Bytes, Error, KeyRange, Result, printable, system};
use std::fmt;
use std::sync::Arc;

/// The first byte of the value.
const FORMAT: u8 = 1;
/// Bytes of a lock but for its keys.
const HEAD: usize = 24;

/// A range that only lock-aware transactions may use.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RangeLock {
    /// The range.
    pub range: KeyRange,
    /// Who has locked it.
    pub owner: [u8; 16],
}

/// All ranges that are locked. A clone shares them.
#[derive(Clone, PartialEq, Eq)]
pub struct RangeLocks(Arc<Inner>);

#[derive(PartialEq, Eq)]
struct Inner {
    value: Bytes,
    locks: Vec<RangeLock>,
    /// The same ranges in order, those that touch or overlap made one.
    merged: Vec<KeyRange>,
}

impl RangeLocks {
    /// Longest value that is to be written: every transaction that begins is told it.
    pub const MAX_BYTES: usize = 10_000;

    /// Locks of these ranges.
    pub fn new(mut locks: Vec<RangeLock>) -> Self {
        locks.retain(|lock| !lock.range.is_empty());
        locks.sort();
        let mut value = vec![FORMAT];
        for RangeLock { range, owner } in &locks {
            value.extend_from_slice(owner);
            value.extend_from_slice(&(range.begin.len() as u32).to_le_bytes());
            value.extend_from_slice(&(range.end.len() as u32).to_le_bytes());
            value.extend_from_slice(&range.begin);
            value.extend_from_slice(&range.end);
        }
        Self::of(value.into(), locks)
    }

    /// The locks that a value spells.
    pub fn decode(value: Bytes) -> Self {
        let locks = decode(&value).unwrap_or_else(|| {
            let range = KeyRange::new(Bytes::new(), system::NORMAL_END);
            vec![RangeLock { range, owner: [0; 16] }]
        });
        Self::of(value, locks)
    }

    fn of(value: Bytes, locks: Vec<RangeLock>) -> Self {
        let mut ranges: Vec<_> = locks.iter().map(|lock| lock.range.clone()).collect();
        ranges.sort();
        let mut merged = Vec::<KeyRange>::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut().filter(|last| range.begin <= last.end) {
                Some(last) => last.end = range.end.max(last.end.clone()),
                None => merged.push(range),
            }
        }
        Self(Arc::new(Inner { value, locks, merged }))
    }

    /// The value of the row.
    pub fn value(&self) -> &Bytes {
        &self.0.value
    }

    /// Each lock.
    pub fn locks(&self) -> &[RangeLock] {
        &self.0.locks
    }

    /// Whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.0.locks.is_empty()
    }

    /// Whether a transaction that isn't lock-aware may use the keys from `begin` up to, and
    /// without, `end`.
    ///
    /// # Errors
    /// `transaction_rejected_range_locked`, with the range.
    pub fn check(&self, begin: &[u8], end: &[u8]) -> Result<()> {
        // The last one that begins before the end: no other one before it reaches further.
        let after = self.0.merged.partition_point(|locked| locked.begin[..] < *end);
        match after.checked_sub(1).map(|at| &self.0.merged[at]) {
            Some(locked) if begin < end && *begin < locked.end[..] => Err(refusal(locked)),
            _ => Ok(()),
        }
    }

    /// The same for one key.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_key(&self, key: &[u8]) -> Result<()> {
        let after = self.0.merged.partition_point(|locked| locked.begin[..] <= *key);
        match after.checked_sub(1).map(|at| &self.0.merged[at]) {
            Some(locked) if *key < locked.end[..] => Err(refusal(locked)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for RangeLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0.locks).finish()
    }
}

#[cold]
fn refusal(locked: &KeyRange) -> Error {
    let (begin, end) = (printable(&locked.begin), printable(&locked.end));
    Error::transaction_rejected_range_locked().with_detail(format!("{begin} to {end}"))
}

fn decode(value: &[u8]) -> Option<Vec<RangeLock>> {
    let (&FORMAT, mut rest) = value.split_first()? else { return None };
    let mut locks = Vec::new();
    while !rest.is_empty() {
        let (head, keys) = rest.split_first_chunk::<HEAD>()?;
        let owner = head[..16].try_into().ok()?;
        let length =
            |at: usize| Some(u32::from_le_bytes(head[at..at + 4].try_into().ok()?) as usize);
        let (begin, keys) = keys.split_at_checked(length(16)?)?;
        let (end, keys) = keys.split_at_checked(length(20)?)?;
        let range = KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
        locks.push(RangeLock { range, owner });
        rest = keys;
    }
    Some(locks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks(ranges: &[(&'static str, &'static str)]) -> RangeLocks {
        let lock = |(begin, end): &(&'static str, &'static str)| RangeLock {
            range: KeyRange::new(begin.as_bytes(), end.as_bytes()),
            owner: [7; 16],
        };
        RangeLocks::new(ranges.iter().map(lock).collect())
    }

    #[test]
    fn what_is_locked_is_refused_and_nothing_else() {
        let locks = locks(&[("m", "p"), ("b", "d"), ("c", "c5"), ("p", "q"), ("x", "x")]);
        let all: Vec<_> = (b'a'..=b'z').collect();
        let is_locked = |key: u8| (b'b'..b'd').contains(&key) || (b'm'..b'q').contains(&key);
        for &begin in &all {
            assert_eq!(locks.check_key(&[begin]).is_err(), is_locked(begin), "{begin}");
            for &end in &all {
                let expected = (begin..end).any(is_locked);
                assert_eq!(locks.check(&[begin], &[end]).is_err(), expected, "{begin} to {end}");
            }
        }
        let told = locks.check(b"a", b"z").unwrap_err();
        assert_eq!(told, Error::transaction_rejected_range_locked());
        assert_eq!(told.detail(), Some("m to q"));
        assert_eq!(locks.check(b"cx", b"cy").unwrap_err().detail(), Some("b to d"));
        assert!(!locks.is_empty() && RangeLocks::new(Vec::new()).check(b"", b"\xff").is_ok());
    }

    #[test]
    fn a_value_goes_there_and_back_and_what_can_not_be_read_locks_everything() {
        let locks = locks(&[("a", "b"), ("x", "z")]);
        assert_eq!(RangeLocks::decode(locks.value().clone()), locks);
        let value = locks.value();
        for len in 0..value.len() {
            let cut = RangeLocks::decode(value.slice(..len));
            let is_whole = len == 1 || len == 1 + HEAD + 2;
            assert_eq!(cut.check_key(b"k").is_err(), !is_whole, "{len} of {}", value.len());
        }
        let newer = RangeLocks::decode([&[FORMAT + 1], &value[1..]].concat().into());
        assert!(newer.check_key(b"k").is_err() && newer.check_key(b"\xff/conf/x").is_ok());
    }
}
