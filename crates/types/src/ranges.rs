//! Flat lists of key ranges and of keys: what a transaction read, what it wrote, what it asks for.
//!
//! Nearly every range of a transaction holds a single key, so such a range stores its key once and
//! a mark in place of its end; whoever needs the end makes it.

use crate::{Bytes, Error, KeyRange, Result, key_after};

/// One range of a list, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeRef<'a> {
    /// First key of the range.
    pub begin: &'a [u8],
    /// First key after the range; `None`: the range holds `begin` alone (its end is `begin` and a
    /// zero byte).
    pub end: Option<&'a [u8]>,
}

impl<'a> RangeRef<'a> {
    /// Whether the range holds exactly one key.
    pub fn is_single(&self) -> bool {
        self.end.is_none()
    }

    /// Whether this range and the other have a key in common.
    pub fn overlaps(&self, other: &RangeRef<'_>) -> bool {
        self.is_before_end_of(other) && other.is_before_end_of(self)
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self.end {
            None => self.begin == key,
            Some(end) => self.begin <= key && key < end,
        }
    }

    /// The same range with bytes of its own.
    pub fn to_range(&self) -> KeyRange {
        match self.end {
            None => KeyRange::single(self.begin),
            Some(end) => {
                KeyRange::new(Bytes::copy_from_slice(self.begin), Bytes::copy_from_slice(end))
            }
        }
    }

    /// The end of the range, made where it is implied.
    pub fn end_key(&self) -> Bytes {
        self.end.map_or_else(|| key_after(self.begin), Bytes::copy_from_slice)
    }

    fn is_before_end_of(&self, other: &RangeRef<'_>) -> bool {
        match other.end {
            None => self.begin <= other.begin,
            Some(end) => self.begin < end,
        }
    }
}

/// Key ranges in one buffer. Empty ranges are not kept.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RangeList {
    bytes: Vec<u8>,
    count: usize,
    weight: usize,
}

const SINGLE: u32 = u32::MAX;
const HEADER: usize = 8;

impl RangeList {
    /// An empty list.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), count: 0, weight: 0 }
    }

    /// Adds the range that holds `key` alone.
    pub fn push_single(&mut self, key: &[u8]) {
        self.bytes.reserve(HEADER + key.len());
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&SINGLE.to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.count += 1;
        self.weight += 2 * key.len() + 1;
    }

    /// Adds the range from `begin` up to `end`, unless it is empty.
    pub fn push(&mut self, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        if end.len() == begin.len() + 1 && end.last() == Some(&0) && end.starts_with(begin) {
            return self.push_single(begin);
        }
        self.bytes.reserve(HEADER + begin.len() + end.len());
        self.bytes.extend_from_slice(&(begin.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(end.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(begin);
        self.bytes.extend_from_slice(end);
        self.count += 1;
        self.weight += begin.len() + end.len();
    }

    /// How many ranges the list has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the list has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The lengths of all begins and ends together, implied ends included.
    pub fn key_bytes(&self) -> usize {
        self.weight
    }

    /// Forgets all ranges and keeps the buffer.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.weight = 0;
    }

    /// The bytes of the whole list, for [`RangeList::decode`].
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The ranges in order of their pushes.
    pub fn iter(&self) -> Ranges<'_> {
        Ranges { rest: &self.bytes }
    }

    /// The list that these bytes spell, checked whole.
    ///
    /// # Errors
    /// `file_corrupt` (1522) if they spell none or an empty range.
    pub fn decode(bytes: Vec<u8>) -> Result<Self> {
        let (mut count, mut weight) = (0, 0);
        let mut ranges = Ranges { rest: &bytes };
        for range in ranges.by_ref() {
            count += 1;
            weight += match range.end {
                None => 2 * range.begin.len() + 1,
                Some(end) if range.begin < end => range.begin.len() + end.len(),
                Some(_) => {
                    return Err(Error::file_corrupt()
                        .with_detail("empty or inverted range in a range list"));
                }
            };
        }
        if !ranges.rest.is_empty() {
            let at = bytes.len() - ranges.rest.len();
            return Err(Error::file_corrupt()
                .with_detail(format!("range list is broken at byte {at} of {}", bytes.len())));
        }
        Ok(Self { bytes, count, weight })
    }
}

impl std::fmt::Debug for RangeList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|range| range.to_range())).finish()
    }
}

impl<'a> IntoIterator for &'a RangeList {
    type Item = RangeRef<'a>;
    type IntoIter = Ranges<'a>;

    fn into_iter(self) -> Ranges<'a> {
        self.iter()
    }
}

/// Walks a flat list of ranges.
#[derive(Clone)]
pub struct Ranges<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Ranges<'a> {
    type Item = RangeRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<RangeRef<'a>> {
        let (header, rest) = self.rest.split_first_chunk::<HEADER>()?;
        let len1 = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let len2 = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let (begin, rest) = rest.split_at_checked(len1)?;
        let (end, rest) = match len2 {
            SINGLE => (None, rest),
            len2 => rest.split_at_checked(len2 as usize).map(|(end, rest)| (Some(end), rest))?,
        };
        self.rest = rest;
        Some(RangeRef { begin, end })
    }
}

/// Keys in one buffer, each reachable by its position.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl KeyList {
    /// An empty list.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new() }
    }

    /// Adds a key; gives its position.
    #[inline]
    pub fn push(&mut self, key: &[u8]) -> usize {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
        self.ends.len() - 1
    }

    /// How many keys the list has.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the list has none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Forgets all keys and keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The key at `index`.
    ///
    /// # Panics
    /// If the list has no such position, like a slice.
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[begin..self.ends[index] as usize]
    }

    /// The keys in order of their pushes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The keys at these positions, as a list of their own.
    ///
    /// # Panics
    /// If the list doesn't have them all, like a slice.
    #[must_use]
    pub fn slice(&self, positions: std::ops::Range<usize>) -> Self {
        let mut part = Self::new();
        positions.for_each(|position| {
            part.push(self.get(position));
        });
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singles_and_ranges_round_trip_and_empty_ones_vanish() {
        let mut list = RangeList::new();
        list.push(b"a", b"a\0");
        list.push(b"b", b"b");
        list.push(b"c", b"d");
        let ranges: Vec<_> = list.iter().map(|range| range.to_range()).collect();
        assert_eq!(ranges, [KeyRange::single(b"a"), KeyRange::new(&b"c"[..], &b"d"[..])]);
        assert!(list.iter().next().unwrap().is_single());
        assert_eq!(list.key_bytes(), 3 + 2);
        assert_eq!(RangeList::decode(list.as_bytes().to_vec()).unwrap(), list);
        for len in 1..list.as_bytes().len() {
            let cut = RangeList::decode(list.as_bytes()[..len].to_vec());
            assert!(cut.is_err() || cut.unwrap().len() == 1, "{len}");
        }
    }

    #[test]
    fn overlap_is_having_a_key_in_common() {
        let range = |begin, end| RangeRef { begin, end };
        assert!(range(b"a", None).overlaps(&range(b"a", Some(b"b"))));
        assert!(!range(b"b", None).overlaps(&range(b"a", Some(b"b"))));
        assert!(!range(b"a", None).overlaps(&range(b"a\0", Some(b"b"))));
        assert!(range(b"a", Some(b"c")).overlaps(&range(b"b", Some(b"d"))));
        assert!(!range(b"a", Some(b"b")).overlaps(&range(b"b", Some(b"d"))));
    }

    #[test]
    fn a_key_list_keeps_positions() {
        let mut keys = KeyList::new();
        assert_eq!((keys.push(b"one"), keys.push(b""), keys.push(b"three")), (0, 1, 2));
        assert_eq!(keys.iter().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
        assert_eq!(keys.slice(1..3).iter().collect::<Vec<_>>(), [&b""[..], b"three"]);
        assert!(keys.slice(3..3).is_empty());
    }
}
