//! Leaves: the newest record of each of up to 63 keys, in key order.
//!
//! Key bytes stand in the records; here are heads to tell the keys apart. Entries below the count
//! never change but for the record a slot points at; what lies beyond the count is the writer's
//! alone, until it raises the count.

use super::super::arena::{Arena, Kind, NODE_ALIGN};
use super::super::record::{Record, RecordRef};
use super::{Header, NodeRef, head, lower_bound, upper_bound};
use plinth_env::prefetch;
use std::cmp::Ordering::{Greater, Less};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Most entries of a leaf: with them it fills 1 KiB.
pub(crate) const LEAF_SLOTS: usize = 63;

#[repr(C, align(64))]
struct Leaf {
    header: Header,
    /// Those below `count` are set and never change.
    heads: [u64; LEAF_SLOTS],
    /// Those below `count` are set and never null.
    slots: [AtomicPtr<Record>; LEAF_SLOTS],
}

const _: () = assert!(size_of::<Leaf>() == 1024 && align_of::<Leaf>() == NODE_ALIGN);

/// A leaf that stays allocated for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct LeafRef<'a>(NodeRef<'a>);

impl<'a> LeafRef<'a> {
    #[inline(always)]
    pub(super) fn of(node: NodeRef<'a>) -> Self {
        debug_assert_eq!(node.level(), 0);
        Self(node)
    }

    #[inline(always)]
    pub(crate) fn node(self) -> NodeRef<'a> {
        self.0
    }

    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.0.count()
    }

    #[inline(always)]
    fn at(self) -> *mut Leaf {
        self.0.at.cast().as_ptr()
    }

    /// The heads of the first `count` entries, where `count` was given by [`LeafRef::count`].
    #[inline(always)]
    fn heads(self, count: usize) -> &'a [u64] {
        // SAFETY: the node is a leaf, live for 'a; entries below a count that was read are set and
        // never change, and `count` is at most LEAF_SLOTS.
        unsafe { std::slice::from_raw_parts((&raw const (*self.at()).heads).cast(), count) }
    }

    #[inline(always)]
    fn slot(self, at: usize) -> &'a AtomicPtr<Record> {
        debug_assert!(at < self.count());
        // SAFETY: as for `heads`; a slot changes by atomic stores only.
        unsafe { &*(&raw const (*self.at()).slots).cast::<AtomicPtr<Record>>().add(at) }
    }

    /// The newest record of the entry at `at`, which is below the count.
    #[inline(always)]
    pub(crate) fn record(self, at: usize) -> RecordRef<'a> {
        let record = self.slot(at).load(Ordering::Acquire);
        // SAFETY: slots below the count are never null, and what a reader can reach outlives its
        // pin.
        unsafe { RecordRef::new(NonNull::new_unchecked(record)) }
    }

    /// Makes `record` the newest one of the entry at `at`. Writer only.
    #[inline(always)]
    pub(crate) fn set_record(self, at: usize, record: NonNull<Record>) {
        self.slot(at).store(record.as_ptr(), Ordering::Release);
    }

    /// Asks for the line of the slot at `at`.
    #[inline(always)]
    pub(crate) fn prefetch_slot(self, at: usize) {
        prefetch(self.slot(at) as *const AtomicPtr<Record> as *const u8);
    }

    /// Asks for the first line of each of these entries' records.
    pub(crate) fn prefetch_records(self, range: Range<usize>) {
        for at in range {
            prefetch(self.record(at).as_ptr().as_ptr().cast());
        }
    }

    /// The first entry with the head of `key`, if any: the key is there, at this or a following
    /// entry with the same head, or nowhere.
    #[inline(always)]
    pub(crate) fn candidate(self, key: &[u8]) -> Option<usize> {
        let count = self.count();
        let head = head(key, self.0.prefix_len());
        let heads = self.heads(count);
        let at = lower_bound(heads, head);
        (at < count && heads[at] == head).then_some(at)
    }

    /// The entry of `key`, if it is there, and its newest record; `candidate` is what
    /// [`LeafRef::candidate`] gave.
    #[inline(always)]
    pub(crate) fn confirm(self, candidate: usize, key: &[u8]) -> Option<(usize, RecordRef<'a>)> {
        let record = self.record(candidate);
        if record.key() == key {
            return Some((candidate, record));
        }
        self.confirm_in_run(candidate + 1, key)
    }

    #[inline(never)]
    fn confirm_in_run(self, from: usize, key: &[u8]) -> Option<(usize, RecordRef<'a>)> {
        let heads = self.heads(self.count());
        let head = head(key, self.0.prefix_len());
        let at = self.lower_in(from..from + upper_bound(&heads[from..], head), key);
        if at >= heads.len() || heads[at] != head {
            return None;
        }
        let record = self.record(at);
        (record.key() == key).then_some((at, record))
    }

    /// The first entry of `range` whose key is not below `key`; the range's end if there is none.
    fn lower_in(self, range: Range<usize>, key: &[u8]) -> usize {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = (low + high) / 2;
            if self.record(middle).key() < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The first entry whose key is not below `key`. `verified` leading bytes of `key` are those of
    /// every key here.
    pub(crate) fn seek(self, key: &[u8], verified: usize) -> usize {
        let count = self.count();
        let prefix_len = self.0.prefix_len();
        if count > 0 && prefix_len > verified {
            let prefix = &self.record(0).key()[verified..prefix_len];
            match key[verified..key.len().min(prefix_len)].cmp(prefix) {
                Less => return 0,
                Greater => return count,
                _ => {}
            }
        }
        let heads = self.heads(count);
        let head = head(key, prefix_len);
        let low = lower_bound(heads, head);
        self.lower_in(low..low + upper_bound(&heads[low..], head), key)
    }

    /// How many entries were added at the end since the leaf was made.
    pub(crate) fn appended(self) -> u8 {
        self.0.header().appended.load(Ordering::Relaxed)
    }

    /// Forgets that entries were added at the end. Writer only.
    pub(crate) fn reset_appended(self) {
        self.0.header().appended.store(0, Ordering::Relaxed);
    }

    /// Adds an entry behind the last one, in place. Its key is above all others, shares the prefix,
    /// and there is room. Writer only.
    pub(crate) fn append(self, record: NonNull<Record>, key: &[u8]) {
        let count = self.count();
        assert!(count < LEAF_SLOTS);
        // SAFETY: entries at or beyond the count are the writer's alone, and there is room for one.
        unsafe {
            let leaf = self.at();
            (&raw mut (*leaf).heads).cast::<u64>().add(count).write(head(key, self.0.prefix_len()));
            let slot = (&raw mut (*leaf).slots).cast::<AtomicPtr<Record>>().add(count);
            slot.write(AtomicPtr::new(record.as_ptr()));
        }
        let header = self.0.header();
        header.count.store(count as u16 + 1, Ordering::Release);
        header.appended.store(self.appended().saturating_add(1), Ordering::Relaxed);
    }
}

/// A leaf that no reader knows of yet.
pub(crate) struct LeafBuilder {
    at: NonNull<Leaf>,
    count: usize,
    prefix_len: usize,
    weight: i64,
}

impl LeafBuilder {
    /// An empty leaf for keys that share `prefix_len` leading bytes.
    pub(crate) fn new(arena: &mut Arena, prefix_len: usize) -> Self {
        let at = arena.alloc(Kind::Leaf, size_of::<Leaf>()).cast();
        Self { at, count: 0, prefix_len, weight: 0 }
    }

    /// Adds an entry with this key.
    pub(crate) fn push(&mut self, record: NonNull<Record>, key: &[u8]) {
        assert!(self.count < LEAF_SLOTS);
        // SAFETY: the leaf is ours alone and has room.
        unsafe {
            let leaf = self.at.as_ptr();
            (&raw mut (*leaf).heads)
                .cast::<u64>()
                .add(self.count)
                .write(head(key, self.prefix_len));
            let slot = (&raw mut (*leaf).slots).cast::<AtomicPtr<Record>>().add(self.count);
            slot.write(AtomicPtr::new(record.as_ptr()));
        }
        self.count += 1;
    }

    /// Adds entries of another leaf.
    pub(crate) fn extend(&mut self, from: LeafRef<'_>, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        assert!(self.count + range.len() <= LEAF_SLOTS && range.end <= from.count());
        if from.node().prefix_len() == self.prefix_len {
            // SAFETY: our leaf is ours alone and has room; entries of the other below its count are
            // set, and slots are stored to by this thread only, so they may be read plainly.
            unsafe {
                let (to, from) = (self.at.as_ptr(), from.at());
                ptr::copy_nonoverlapping(
                    (&raw const (*from).heads).cast::<u64>().add(range.start),
                    (&raw mut (*to).heads).cast::<u64>().add(self.count),
                    range.len(),
                );
                ptr::copy_nonoverlapping(
                    (&raw const (*from).slots).cast::<*mut Record>().add(range.start),
                    (&raw mut (*to).slots).cast::<*mut Record>().add(self.count),
                    range.len(),
                );
            }
            self.count += range.len();
            return;
        }
        from.prefetch_records(range.clone());
        for at in range {
            let record = from.record(at);
            self.push(record.as_ptr(), record.key());
        }
    }

    /// What the rows in this leaf weigh.
    pub(crate) fn set_weight(&mut self, weight: i64) {
        self.weight = weight;
    }

    /// The finished leaf.
    pub(crate) fn finish(self) -> NonNull<Header> {
        let header = Header::new(0, self.count, self.prefix_len, self.weight);
        // SAFETY: the leaf is ours alone.
        unsafe { (&raw mut (*self.at.as_ptr()).header).write(header) };
        self.at.cast()
    }
}
