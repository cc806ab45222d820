//! The watches of a connection, and what they hold.

use crate::outbox::Watch;
use plinth_types::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Watches that wait, by the id of their request.
#[derive(Default)]
pub(super) struct Watches {
    waiting: BTreeMap<u32, Watch>,
    bytes: usize,
}

impl Watches {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes that they hold.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether one waits that has this id.
    pub(super) fn contains(&self, id: u32) -> bool {
        self.waiting.contains_key(&id)
    }

    /// The tokens by which they are watched.
    pub(super) fn tokens(&self) -> BTreeSet<Bytes> {
        self.waiting.values().map(|watch| watch.token.clone()).collect()
    }

    /// The ids of those that are watched by a token, and whose key `is_meant`.
    pub(super) fn of_keys(&self, token: &Bytes, is_meant: impl Fn(&[u8]) -> bool) -> Vec<u32> {
        let meant =
            self.waiting.iter().filter(|(_, watch)| watch.token == *token && is_meant(&watch.key));
        meant.map(|(id, _)| *id).collect()
    }

    /// The one of this id.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Watch> {
        self.waiting.get_mut(&id)
    }

    /// All of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Watch> {
        self.waiting.values_mut()
    }

    /// Takes one in, whose id no other has.
    pub(super) fn insert(&mut self, id: u32, watch: Watch) {
        self.bytes += watch.bytes;
        let before = self.waiting.insert(id, watch);
        debug_assert!(before.is_none(), "two watches have the id {id}");
    }

    /// They are nobody's any more, by whose quota they were counted.
    pub(super) fn count_no_more(&mut self) {
        self.waiting.values_mut().for_each(|watch| watch.counted = Vec::new());
    }

    /// Drops so many of them.
    pub(super) fn drop_some(&mut self, count: usize) {
        for _ in 0..count {
            let Some((_, watch)) = self.waiting.pop_first() else { return };
            self.bytes -= watch.bytes;
        }
    }

    /// Ends the one of this id; whether there was one.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        let Some(watch) = self.waiting.remove(&id) else { return false };
        self.bytes -= watch.bytes;
        true
    }
}
