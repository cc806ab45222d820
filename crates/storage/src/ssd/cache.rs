//! Blocks of rows in memory: those read lately.
//!
//! What they lie in is used again by the next ones (see `buffers.rs`): together with what waits for
//! that they keep within the capacity. In shards, so that threads seldom meet; each shard a map and
//! a ring of slots. A block that is asked for is marked; when room is wanted the hand goes round
//! the ring, takes the marks off and lets go of the first block without one.

use super::buffers::Buffers;
use super::rows::RowsBlock;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 32;
/// What a cached block costs beyond its bytes: slot, map, reference counts.
const OVERHEAD: usize = 96;

type Key = (u64, u32);

/// Spreads keys, which are small numbers already.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

struct Slot {
    key: Key,
    block: Arc<RowsBlock>,
    marked: bool,
}

#[derive(Default)]
struct Shard {
    places: HashMap<Key, u32, BuildHasherDefault<Spread>>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    hand: usize,
    bytes: usize,
}

/// The cache of an engine.
pub(crate) struct Cache {
    shards: Box<[Mutex<Shard>]>,
    /// Bytes that all shards together may hold.
    capacity: AtomicUsize,
    bytes: AtomicUsize,
    buffers: Buffers,
}

impl Cache {
    pub fn new(capacity: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            capacity: AtomicUsize::new(capacity),
            bytes: AtomicUsize::new(0),
            buffers: Buffers::default(),
        }
    }

    /// A buffer of so many bytes, whatever they are, for a block.
    pub fn buffer(&self, len: usize) -> Vec<u8> {
        self.buffers.take(len)
    }

    /// Takes back a buffer that no block came to lie in.
    pub fn give_back(&self, buffer: Vec<u8>) {
        self.buffers.give(buffer, self.room());
    }

    /// Keeps what a block lies in, if it was the last one to hold it and there is room.
    fn recycle(&self, gone: impl IntoIterator<Item = Slot>) {
        for slot in gone {
            if let Some(block) = Arc::into_inner(slot.block) {
                self.give_back(block.into_bytes());
            }
        }
    }

    /// Bytes of the capacity that no block takes.
    pub fn room(&self) -> usize {
        self.capacity.load(Ordering::Relaxed).saturating_sub(self.bytes())
    }

    #[inline]
    fn shard(&self, table: u64, number: u32) -> MutexGuard<'_, Shard> {
        let mut spread = Spread::default();
        spread.write_u64(table ^ (u64::from(number) << 20));
        let at = (spread.finish() >> 40) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub fn get(&self, table: u64, number: u32) -> Option<Arc<RowsBlock>> {
        let mut shard = self.shard(table, number);
        let at = *shard.places.get(&(table, number))?;
        let slot = shard.slots[at as usize].as_mut()?;
        slot.marked = true;
        Some(slot.block.clone())
    }

    pub fn insert(&self, table: u64, number: u32, block: &Arc<RowsBlock>) {
        let share = self.capacity.load(Ordering::Relaxed) / SHARDS;
        let cost = block.bytes() + OVERHEAD;
        let mut gone = Vec::new();
        let mut shard = self.shard(table, number);
        if cost > share || shard.places.contains_key(&(table, number)) {
            return;
        }
        let freed = shard.make_room(share - cost, &mut gone);
        shard.put((table, number), block.clone(), cost);
        drop(shard);
        self.bytes.fetch_add(cost, Ordering::Relaxed);
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
        // Outside the lock.
        self.recycle(gone);
        if self.bytes() + self.spare() > self.capacity.load(Ordering::Relaxed) {
            self.buffers.shrink(self.room());
        }
    }

    /// Whether a block of so many bytes would push no other out.
    pub fn has_room(&self, bytes: usize) -> bool {
        let capacity = self.capacity.load(Ordering::Relaxed);
        self.bytes.load(Ordering::Relaxed) + bytes + OVERHEAD < capacity - capacity / 8
    }

    /// Lets go of the blocks of a table.
    pub fn forget(&self, table: u64, blocks: u32) {
        for number in 0..blocks {
            let mut shard = self.shard(table, number);
            let gone = shard.places.remove(&(table, number)).and_then(|at| shard.empty(at));
            drop(shard);
            if let Some(slot) = gone {
                self.bytes.fetch_sub(slot.block.bytes() + OVERHEAD, Ordering::Relaxed);
                self.recycle([slot]);
            }
        }
    }

    /// Changes how much it may hold; what is too much goes now.
    pub fn set_capacity(&self, capacity: usize) {
        if self.capacity.swap(capacity, Ordering::Relaxed) <= capacity {
            return;
        }
        for shard in &self.shards {
            let mut gone = Vec::new();
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let freed = shard.make_room(capacity / SHARDS, &mut gone);
            drop(shard);
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
            self.recycle(gone);
        }
        self.buffers.shrink(self.room());
    }

    /// Bytes that wait to be used again.
    pub fn spare(&self) -> usize {
        self.buffers.bytes()
    }

    /// # Panics
    /// If blocks aren't counted as they are.
    pub fn check_invariants(&self) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).check_invariants();
        }
    }

    /// Bytes of the blocks that it holds.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Shard {
    /// Lets blocks go until no more than `most` bytes are left. Gives how many bytes went.
    fn make_room(&mut self, most: usize, gone: &mut Vec<Slot>) -> usize {
        let before = self.bytes;
        while self.bytes > most && !self.places.is_empty() {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            match &mut self.slots[at] {
                Some(slot) if slot.marked => slot.marked = false,
                Some(slot) => {
                    self.places.remove(&slot.key);
                    gone.extend(self.empty(at as u32));
                }
                None => {}
            }
        }
        before - self.bytes
    }

    fn check_invariants(&self) {
        let used = self.slots.iter().flatten();
        let bytes: usize = used.clone().map(|slot| slot.block.bytes() + OVERHEAD).sum();
        assert_eq!(bytes, self.bytes, "bytes of a shard");
        assert_eq!(self.places.len(), used.count(), "each block can be found");
        assert_eq!(self.places.len() + self.free.len(), self.slots.len(), "slots of a shard");
        let is_in = |(key, at): (&Key, &u32)| {
            self.slots[*at as usize].as_ref().is_some_and(|slot| slot.key == *key)
        };
        assert!(self.places.iter().all(is_in), "what is found is what was put in");
    }

    fn empty(&mut self, at: u32) -> Option<Slot> {
        let slot = self.slots[at as usize].take()?;
        assert!(self.bytes >= slot.block.bytes() + OVERHEAD, "more goes than there is");
        self.bytes -= slot.block.bytes() + OVERHEAD;
        self.free.push(at);
        Some(slot)
    }

    fn put(&mut self, key: Key, block: Arc<RowsBlock>, cost: usize) {
        let slot = Some(Slot { key, block, marked: false });
        let at = match self.free.pop() {
            Some(at) => {
                assert!(self.slots[at as usize].is_none(), "a free slot has no block");
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.places.insert(key, at);
        self.bytes += cost;
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::RowsBuilder;
    use super::*;
    use plinth_env::simulated::Random;

    fn block(cache: &Cache, number: u32) -> Arc<RowsBlock> {
        let mut builder = RowsBuilder::default();
        builder.push(&number.to_be_bytes(), Some(&vec![1; 500 + number as usize % 1000]));
        let mut built = Vec::new();
        builder.finish(&mut built);
        let mut body = cache.buffer(built.len());
        body.copy_from_slice(&built);
        Arc::new(RowsBlock::new(body).unwrap())
    }

    #[test]
    fn it_holds_no_more_than_it_may_and_gives_what_was_put_in() {
        let cache = Cache::new(1 << 20);
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let (table, number) = (random.below(3), random.index(1000) as u32);
            match cache.get(table, number) {
                Some(found) => assert!(found.get(&number.to_be_bytes()).is_some()),
                None => cache.insert(table, number, &block(&cache, number)),
            }
            assert!(cache.bytes() + cache.spare() <= 1 << 20);
        }
        assert!(cache.bytes() > 700_000, "{}", cache.bytes());
        cache.set_capacity(1 << 18);
        assert!(cache.bytes() + cache.spare() <= 1 << 18);
        cache.check_invariants();
        (0..3).for_each(|table| cache.forget(table, 1000));
        cache.check_invariants();
        assert_eq!(cache.bytes(), 0);
        assert!(cache.spare() > 1 << 16, "what they lay in waits to be used again");
        assert!(cache.get(0, 1).is_none());
    }
}
