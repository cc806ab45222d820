//! Applying what a log has, before anybody reads: only the last state of each key counts.
//!
//! ```text
//!   batch, keys ascending     a b c d e f g h ...
//!                             └──────┬──────┘ looked up side by side: leaf, place in it, record
//!   present ──▶ the record is overwritten, or another takes its place and it is freed at once
//!   absent  ──▶ inserted; removed ──▶ its entry goes. Then the rest of the group is looked up one by one,
//!               for the leaves may be others now
//! ```
//!
//! Nobody else knows of the store yet. So there are no versions to keep, no readers to wait for,
//! and the weights of the inner nodes can be left until the end. Any order of mutations is right;
//! neighbours in the index are quickest one after the other.

use super::super::arena::Arena;
use super::super::node::{LeafRef, Node, NodeRef};
use super::super::record::{self, RecordRef};
use super::super::tree::{Cursor, Entry, GROUP, Path, find_entries};
use super::Writer;
use super::positions::Positions;
use super::shape::add_weight_above;
use plinth_types::{LogPosition, MutationRef, MutationType, atomic};

/// What of a leaf is left when it should look for a neighbour to merge with.
const FEW: usize = 16;

/// A writer of a store that nobody else has.
pub(crate) struct Replaying {
    writer: Writer,
}

impl Replaying {
    /// Goes on from what the writer has. There must be no reader, and nothing held.
    pub(crate) fn new(mut writer: Writer) -> Self {
        if !writer.window.is_empty() {
            writer.forget_before(writer.core.newest(), usize::MAX);
        }
        assert!(writer.window.is_empty(), "everything applied is published, and nothing held");
        Self { writer }
    }

    /// Applies mutations in their order.
    pub(crate) fn apply(
        &mut self,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
    ) {
        assert!(at.version > self.writer.applied, "batches are applied in version order");
        self.writer.applied = at.version;
        // Nobody reads before the last of them.
        self.writer.positions = Positions::new(at);
        let nothing = MutationRef { kind: MutationType::Set, param1: &[], param2: &[] };
        let mut group = [nothing; GROUP];
        loop {
            let mut len = 0;
            for (place, mutation) in group.iter_mut().zip(&mut *mutations) {
                *place = mutation;
                len += 1;
            }
            self.apply_group(&group[..len]);
            self.writer.collect_some();
            if len < GROUP {
                return;
            }
        }
    }

    /// The store, whose window is the last version applied.
    pub(crate) fn finish(mut self) -> Writer {
        let writer = &mut self.writer;
        weigh(writer.root());
        writer.collect();
        writer.core.publish(writer.applied);
        writer.core.raise_oldest(writer.applied);
        writer.publish_figures();
        self.writer
    }

    fn apply_group(&mut self, group: &[MutationRef<'_>]) {
        let mut keys = [&[][..]; GROUP];
        for (key, mutation) in keys.iter_mut().zip(group) {
            *key = mutation.param1;
        }
        let mut found = [None; GROUP];
        find_entries(self.writer.root(), &keys[..group.len()], &mut found);
        let mut has_moved = false;
        for (entry, mutation) in found.into_iter().zip(group) {
            if has_moved || !self.change_in_place(entry, mutation) {
                // Leaves may be replaced now: what was looked up before leads nowhere any more.
                has_moved = true;
                self.change(mutation);
            }
        }
    }

    /// Does what can be done without a change of the tree's shape. False if that was not enough.
    fn change_in_place(&mut self, entry: Option<Entry<'_>>, mutation: &MutationRef<'_>) -> bool {
        let Some((leaf, at)) = entry.filter(|_| mutation.kind != MutationType::ClearRange) else {
            return false;
        };
        let record = leaf.record(at);
        if mutation.kind == MutationType::Set {
            self.put(leaf, at, record, mutation.param2);
            return true;
        }
        match atomic::apply(mutation.kind, record.value(), mutation.param2) {
            Some(value) => {
                // The result may lie in the record that is about to be overwritten.
                let value = value.into_owned();
                self.put(leaf, at, record, &value);
                true
            }
            None => false,
        }
    }

    /// Looks the key up and does whatever is to be done.
    fn change(&mut self, mutation: &MutationRef<'_>) {
        let (key, operand) = (mutation.param1, mutation.param2);
        if mutation.kind == MutationType::ClearRange {
            return self.clear(key, operand);
        }
        let path = Path::descend(self.writer.root(), key);
        let found = path.find(key).map(|(at, _)| (path.leaf, at));
        if self.change_in_place(found, mutation) {
            return;
        }
        match found {
            Some((_, at)) => self.remove(&path, at),
            None => {
                let value = match mutation.kind {
                    MutationType::Set => Some(operand.into()),
                    operation => atomic::apply(operation, None, operand),
                };
                if let Some(value) = value {
                    self.writer.insert(&path, self.writer.applied, key, &value);
                }
            }
        }
    }

    /// Gives the entry another value.
    fn put(&mut self, leaf: LeafRef<'_>, at: usize, old: RecordRef<'_>, value: &[u8]) {
        let writer = &mut self.writer;
        let (key, old_weight) = (old.key(), old.weight());
        let old_bytes = Arena::rounded(record::OVERHEAD + old_weight as usize);
        let bytes = Arena::rounded(record::OVERHEAD + key.len() + value.len());
        if old.weight() == (key.len() + value.len()) as i64 {
            return old.overwrite(value);
        }
        let new = record::create(&mut writer.arena, writer.applied, key, Some(value), None);
        leaf.set_record(at, new);
        leaf.node().add_weight((key.len() + value.len()) as i64 - old_weight);
        writer.newest_bytes = writer.newest_bytes + bytes - old_bytes;
        // SAFETY: it came from this arena, its only entry leads to the new one, and nobody reads
        // this store. `old` and its key are not used below.
        unsafe { writer.arena.free(old.as_ptr().cast()) };
    }

    /// Removes an entry.
    fn remove(&mut self, path: &Path<'_>, at: usize) {
        let writer = &mut self.writer;
        let record = path.leaf.record(at);
        let weight = record.weight();
        writer.newest_bytes -= Arena::rounded(record::OVERHEAD + weight as usize);
        writer.rows -= 1;
        path.leaf.node().add_weight(-weight);
        add_weight_above(path, -weight);
        writer.remove_entry(path, at);
        writer.garbage.retire(record.as_ptr());
    }

    /// Removes the keys of a range, leaf by leaf.
    fn clear(&mut self, begin: &[u8], end: &[u8]) {
        let is_within = |key: &[u8]| begin <= key && key < end;
        loop {
            let mut cursor = Cursor::seek(self.writer.root(), begin);
            let Some(first) = cursor.next().filter(|record| is_within(record.key())) else {
                return;
            };
            let (path, at) = cursor.last_given();
            let (path, leaf) = (path.clone(), path.leaf);
            let gone =
                (at..leaf.count()).take_while(|at| is_within(leaf.record(*at).key())).count();
            let survivors = leaf.count() - gone;
            if gone == 1 {
                self.remove(&path, at);
            } else if survivors == 0 || survivors > FEW {
                self.writer.shrink_leaf(&path, survivors, |record| !is_within(record.key()));
            } else {
                // The first of them goes alone, in the next turn, so that the leaf merges with a
                // neighbour.
                let stays = |record: RecordRef<'_>| {
                    record.as_ptr() == first.as_ptr() || !is_within(record.key())
                };
                self.writer.shrink_leaf(&path, survivors + 1, stays);
            }
            self.writer.collect_some();
        }
    }
}

/// Brings the weights of the inner nodes up to date. Gives that of the node.
fn weigh(node: NodeRef<'_>) -> i64 {
    if let Node::Inner(inner) = node.kind() {
        let weight: i64 = (0..inner.count()).map(|at| weigh(inner.child(at))).sum();
        node.add_weight(weight - node.weight());
    }
    node.weight()
}
