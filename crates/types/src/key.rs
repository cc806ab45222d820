//! Keys, key ranges and key selectors.

use crate::{Bytes, printable};
use std::fmt;

/// The first key after `key`: `key` followed by a zero byte.
pub fn key_after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// The first key that does not begin with `prefix`; `None` if there is none (the prefix is empty or
/// all `\xff`).
///
/// ```
/// use plinth_types::strinc;
/// assert_eq!(strinc(b"ab\xff").as_deref(), Some(&b"ac"[..]));
/// assert_eq!(strinc(b"\xff\xff"), None);
/// ```
pub fn strinc(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

/// The keys `k` with `begin <= k < end`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// First key of the range.
    pub begin: Bytes,
    /// First key after the range.
    pub end: Bytes,
}

impl KeyRange {
    /// The range from `begin` up to, and without, `end`.
    pub fn new(begin: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { begin: begin.into(), end: end.into() }
    }

    /// The range that holds `key` alone.
    pub fn single(key: &[u8]) -> Self {
        let end = key_after(key);
        Self { begin: end.slice(..key.len()), end }
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.begin[..] <= *key && *key < self.end[..]
    }

    /// Whether no key can lie in the range.
    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", printable(&self.begin), printable(&self.end))
    }
}

/// A description of a key by its place among the keys that exist (FoundationDB's key selector).
///
/// Base is the last existing key `< key`, or `<= key` with `or_equal`; the selected key lies
/// `offset` existing keys after it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeySelector {
    /// The reference key.
    pub key: Bytes,
    /// Whether `key` itself, if it exists, is the base.
    pub or_equal: bool,
    /// How many existing keys to go forward from the base; negative: backward.
    pub offset: i32,
}

impl KeySelector {
    /// The selector with these three parts.
    pub fn new(key: impl Into<Bytes>, or_equal: bool, offset: i32) -> Self {
        Self { key: key.into(), or_equal, offset }
    }

    /// The last key `< key`.
    pub fn last_less_than(key: impl Into<Bytes>) -> Self {
        Self::new(key, false, 0)
    }

    /// The last key `<= key`.
    pub fn last_less_or_equal(key: impl Into<Bytes>) -> Self {
        Self::new(key, true, 0)
    }

    /// The first key `> key`.
    pub fn first_greater_than(key: impl Into<Bytes>) -> Self {
        Self::new(key, true, 1)
    }

    /// The first key `>= key`.
    pub fn first_greater_or_equal(key: impl Into<Bytes>) -> Self {
        Self::new(key, false, 1)
    }

    /// The same selector moved `by` keys; saturates.
    pub fn shifted(mut self, by: i32) -> Self {
        self.offset = self.offset.saturating_add(by);
        self
    }

    /// The same selection without `or_equal`: `(k, true, o)` is `(k\0, false, o)`.
    pub fn normalized(self) -> Self {
        if !self.or_equal {
            return self;
        }
        Self { key: key_after(&self.key), or_equal: false, offset: self.offset }
    }
}

impl fmt::Debug for KeySelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}, {:+})", printable(&self.key), self.or_equal, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_key_range_holds_just_that_key() {
        let range = KeyRange::single(b"a");
        assert!(range.contains(b"a") && !range.contains(b"a\0") && !range.contains(b""));
        assert!(KeyRange::new(&b"b"[..], &b"a"[..]).is_empty());
    }

    #[test]
    fn normalizing_keeps_the_meaning_of_or_equal() {
        let selector = KeySelector::first_greater_than(&b"k"[..]).normalized();
        assert_eq!(selector, KeySelector::new(&b"k\0"[..], false, 1));
        assert_eq!(selector.clone().shifted(i32::MAX).offset, i32::MAX);
        assert_eq!(strinc(b""), None);
    }
}
