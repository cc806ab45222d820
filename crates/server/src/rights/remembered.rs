//! The last things that somebody came to know, a bounded number of them.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Of more than `most` the oldest goes.
pub(super) struct Remembered<K, V> {
    most: usize,
    known: HashMap<K, (u64, V)>,
    /// What came when, by a number that grows.
    order: BTreeMap<u64, K>,
}

impl<K: Clone + Eq + Hash, V> Remembered<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, known: HashMap::new(), order: BTreeMap::new() }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key).map(|(_, value)| value)
    }

    /// In the order in which they came.
    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.order.values()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.known.values().map(|(_, value)| value)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        let number = self.order.last_key_value().map_or(0, |(last, _)| last + 1);
        if let Some((before, _)) = self.known.insert(key.clone(), (number, value)) {
            self.order.remove(&before);
        }
        self.order.insert(number, key);
        if self.known.len() > self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_what_comes_again_is_new() {
        let mut last = Remembered::new(3);
        (0..3).for_each(|n| last.insert(n, n * 10));
        last.insert(0, 7);
        last.insert(3, 30);
        assert_eq!(last.keys().copied().collect::<Vec<_>>(), [2, 0, 3]);
        assert_eq!(
            [0, 1, 2, 3].map(|n| last.get(&n).copied()),
            [Some(7), None, Some(20), Some(30)]
        );
        (4..6).for_each(|n| last.insert(n, 0));
        assert_eq!(last.keys().copied().collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!((last.known.len(), last.order.len()), (3, 3));
    }
}
