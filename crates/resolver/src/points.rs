//! The single keys that a generation's transactions wrote: a hash table over a log.
//!
//! The log has the writes in the order in which they were accepted; a write's stamp is its place in
//! the log, counted from 1. So "after a version" is "above a stamp", and the table needs no
//! versions: a slot is one word, which has some bits of a key's hash and the stamp of the key's
//! newest write. Other bits of the hash say where the search for a key begins; it ends at the first
//! free slot. Small slots keep the table in the processor's second-level cache.

use crate::keys::{KeyAt, Keys};

/// Orders the writes of one generation; 0 is before all of them.
pub(crate) type Stamp = u32;

/// The bits of a slot that are a stamp; the others are the key's tag.
const STAMP: u32 = 0xffff;

/// Writes that a table may have room for.
pub(crate) const LARGEST: usize = STAMP as usize;

/// The table and the log.
pub(crate) struct Points {
    /// Tag and stamp; 0 is a free slot.
    slots: Vec<u32>,
    /// The key of each write, by stamp - 1. Writes of the same key share its bytes.
    log: Vec<KeyAt>,
    capacity: usize,
}

impl Points {
    /// An empty table for at most `capacity` writes, which is at most [`LARGEST`].
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        assert!((1..=LARGEST).contains(&capacity), "a stamp must fit its slot");
        // Five eighths full at most: the search for an absent key sees three or four slots of one
        // cache line then.
        let slots = capacity * 8 / 5 + 1;
        Self { slots: vec![0; slots], log: Vec::with_capacity(capacity), capacity }
    }

    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(0);
        self.log.clear();
    }

    /// How many writes there may be.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many writes there were, which is also the stamp of the newest one.
    #[inline]
    pub(crate) fn newest(&self) -> Stamp {
        self.log.len() as Stamp
    }

    /// The key of the write with this stamp.
    #[inline]
    pub(crate) fn key_at(&self, stamp: Stamp) -> KeyAt {
        self.log[stamp as usize - 1]
    }

    /// The keys of the writes above stamp `after` and up to stamp `upto`, in order.
    pub(crate) fn between(&self, after: Stamp, upto: Stamp) -> &[KeyAt] {
        &self.log[after as usize..upto as usize]
    }

    /// What lies in the slot where the search for a key with this hash begins, only so that it is
    /// in the cache then.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u32 {
        self.slots[self.home(hash)]
    }

    /// Whether `key` was written above stamp `after`.
    #[inline]
    pub(crate) fn written_after(&self, keys: &Keys, hash: u64, key: &[u8], after: Stamp) -> bool {
        let mut slot = self.home(hash);
        loop {
            let found = self.slots[slot];
            if found == 0 {
                return false;
            }
            let stamp = found & STAMP;
            // With an older stamp it may be this key or another one: the walk goes on to the free
            // slot.
            if tag(found) == tag(hash as u32)
                && stamp > after
                && keys.get(self.key_at(stamp)) == key
            {
                return true;
            }
            slot = self.next(slot);
        }
    }

    /// Notes a write of `key`; that is nothing new if `key` was written above stamp `batch`
    /// already.
    ///
    /// # Panics
    /// If the capacity is used up.
    #[inline]
    pub(crate) fn write(&mut self, keys: &mut Keys, hash: u64, key: &[u8], batch: Stamp) {
        assert!(self.log.len() < self.capacity, "a full generation takes no writes");
        let mut slot = self.home(hash);
        let at = loop {
            let found = self.slots[slot];
            if found == 0 {
                break keys.push(key);
            }
            if tag(found) == tag(hash as u32) {
                let stamp = found & STAMP;
                let at = self.key_at(stamp);
                if keys.get(at) == key {
                    if stamp > batch {
                        return;
                    }
                    break at;
                }
            }
            slot = self.next(slot);
        };
        self.log.push(at);
        self.slots[slot] = tag(hash as u32) | self.newest();
    }

    /// The slot at which the search for a key with this hash begins.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<u32>() + self.log.capacity() * size_of::<KeyAt>()
    }

    /// Checks that the table has the newest write of each key of the log, and nothing else.
    ///
    /// # Panics
    /// If it hasn't.
    pub(crate) fn check(&self, keys: &Keys, hash: impl Fn(&[u8]) -> u64) {
        let mut newest = std::collections::BTreeMap::new();
        for (stamp, at) in (1..).zip(&self.log) {
            newest.insert(keys.get(*at), stamp);
        }
        let used = self.slots.iter().filter(|slot| **slot != 0).count();
        assert_eq!(used, newest.len(), "as many slots as keys");
        assert!(used < self.slots.len(), "a search must end");
        for (key, stamp) in newest {
            assert!(
                self.written_after(keys, hash(key), key, stamp - 1),
                "a key's newest write is found"
            );
            assert!(!self.written_after(keys, hash(key), key, stamp), "a key has no newer write");
        }
    }
}

#[inline]
fn tag(bits: u32) -> u32 {
    bits & !STAMP
}
