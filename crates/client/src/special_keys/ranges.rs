//! A map from key ranges to values, where a later range overwrites what it covers.

use bytes::Bytes;
use plinth_types::KeyRange;
use std::collections::BTreeMap;

/// Values of ranges; keys in no range have none.
#[derive(Clone, Debug)]
pub(crate) struct RangeMap<V> {
    /// What holds from each boundary to the next.
    boundaries: BTreeMap<Bytes, Option<V>>,
}

impl<V: Clone> RangeMap<V> {
    pub(crate) fn new() -> Self {
        Self { boundaries: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.boundaries.values().all(Option::is_none)
    }

    /// The value at a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        self.boundaries
            .range(..=Bytes::copy_from_slice(key))
            .next_back()
            .and_then(|(_, value)| value.as_ref())
    }

    pub(crate) fn insert(&mut self, range: KeyRange, value: V) {
        self.overwrite(range, Some(value));
    }

    /// Takes the values of a range away.
    pub(crate) fn forget(&mut self, begin: &[u8], end: &[u8]) {
        self.overwrite(
            KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end)),
            None,
        );
    }

    fn overwrite(&mut self, range: KeyRange, value: Option<V>) {
        if range.is_empty() {
            return;
        }
        let rest = self.get(&range.end).cloned();
        self.boundaries.insert(range.end.clone(), rest);
        let inside: Vec<Bytes> = self
            .boundaries
            .range(range.begin.clone()..range.end)
            .map(|(key, _)| key.clone())
            .collect();
        for key in inside {
            self.boundaries.remove(&key);
        }
        self.boundaries.insert(range.begin, value);
    }

    /// The ranges that have a value and meet `begin..end`, in order, cut to it.
    pub(crate) fn iter(&self, begin: &[u8], end: &[u8]) -> Vec<(KeyRange, V)> {
        let mut found = Vec::new();
        let mut boundaries = self.boundaries.iter().peekable();
        while let Some((from, value)) = boundaries.next() {
            let to = boundaries.peek().map_or(end, |(key, _)| &key[..]);
            let low = (&from[..]).max(begin);
            let high = to.min(end);
            if let Some(value) = value
                && low < high
            {
                let range =
                    KeyRange::new(Bytes::copy_from_slice(low), Bytes::copy_from_slice(high));
                found.push((range, value.clone()));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ranges_overwrite_earlier_ones() {
        let mut map = RangeMap::new();
        map.insert(KeyRange::new(&b"b"[..], &b"m"[..]), 1);
        map.insert(KeyRange::new(&b"d"[..], &b"f"[..]), 2);
        map.forget(b"k", b"z");
        let found: Vec<_> = map
            .iter(b"c", b"zz")
            .into_iter()
            .map(|(range, n)| (range.begin, range.end, n))
            .collect();
        let expected: [(&[u8], &[u8], i32); 3] =
            [(b"c", b"d", 1), (b"d", b"f", 2), (b"f", b"k", 1)];
        assert!(found.iter().map(|(b, e, n)| (&b[..], &e[..], *n)).eq(expected));
        assert_eq!(
            (map.get(b"a"), map.get(b"e"), map.get(b"f"), map.get(b"x")),
            (None, Some(&2), Some(&1), None)
        );
    }
}
