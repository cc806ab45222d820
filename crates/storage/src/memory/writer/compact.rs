//! Moving what is left in sparse spans of memory together, so that memory at rest is as large as the data.
//!
//! When a burst of overwrites has left the window, the rows that stay lie scattered over all the memory the burst took. The
//! emptiest span is chosen, each row in it is copied to where there is room and its slot pointed at
//! the copy; leaves are moved in the same way. Only rows at rest move: newest, alone in their chain, cleaned up.

use super::super::arena::Kind;
use super::super::node::{Header, Node, NodeRef};
use super::super::record::{self, Record, RecordRef};
use super::super::tree::Path;
use super::Writer;
use plinth_types::Version;
use std::ptr::NonNull;

/// Rounds are at least this many versions apart, about a second.
const PAUSE: Version = 1_000_000;
/// Memory that is not worth a round.
const TRIFLE: usize = 2 << 20;

/// Where the round stands.
#[derive(Default)]
pub(super) struct Compaction {
    /// Objects of the span that is being emptied, still to be moved.
    objects: Vec<NonNull<u8>>,
    kind: Option<Kind>,
    next_round: Version,
}

impl Writer {
    /// Moves about `budget` objects, if it is worth the while. `cleaned`: everything up to this version has been cleaned
    /// up. Whether there is more to do at once.
    pub(super) fn compact(&mut self, cleaned: Version, budget: usize) -> bool {
        if self.compaction.kind.is_none() {
            if cleaned < self.compaction.next_round || !self.has_slack() {
                return false;
            }
            self.compaction.kind = Some(Kind::Record);
        }
        for _ in 0..budget {
            let Some(kind) = self.compaction.kind else { return false };
            match (self.compaction.objects.pop(), kind) {
                (Some(object), _) if !self.arena.is_evacuating(object) => {}
                (Some(object), Kind::Record) => self.move_record(object.cast(), cleaned),
                (Some(object), _) => self.move_leaf_at(object.cast()),
                (None, _) => self.next_span(kind, cleaned),
            }
            self.collect_some();
        }
        self.compaction.kind.is_some()
    }

    /// Chooses the next span to empty; ends the round when there is none.
    fn next_span(&mut self, kind: Kind, cleaned: Version) {
        if self.has_slack_of(kind) && self.arena.begin_evacuation(kind, &mut self.compaction.objects) {
            return;
        }
        self.compaction.kind = match kind {
            Kind::Record => Some(Kind::Leaf),
            _ => {
                self.arena.end_evacuations();
                self.compaction.next_round = cleaned.saturating_add(PAUSE);
                None
            }
        };
    }

    fn has_slack(&self) -> bool {
        self.has_slack_of(Kind::Record) || self.has_slack_of(Kind::Leaf)
    }

    /// Whether more than a tenth of the spans' memory is free.
    fn has_slack_of(&self, kind: Kind) -> bool {
        let usage = self.arena.usage(kind);
        usage.spans - usage.live > usage.spans / 10 + TRIFLE
    }

    fn move_record(&mut self, record: NonNull<Record>, cleaned: Version) {
        // SAFETY: it is in use: at worst it is garbage that has not been freed yet, and then still a record.
        let record = unsafe { RecordRef::new(record) };
        if record.version() > cleaned || record.is_tombstone() {
            return;
        }
        let path = Path::descend(self.root(), record.key());
        let Some((at, newest)) = path.find(record.key()) else { return };
        if newest.as_ptr() != record.as_ptr() || record.prev().is_some() {
            return;
        }
        let copy = record::create(&mut self.arena, record.version(), record.key(), record.value(), None);
        path.leaf.set_record(at, copy);
        self.garbage.retire(record.as_ptr());
    }

    fn move_leaf_at(&mut self, leaf: NonNull<Header>) {
        // SAFETY: it is in use: at worst it is garbage that has not been freed yet, and then still a leaf. What
        // a leaf points at is retired, and so freed, after the leaf.
        let node = unsafe { NodeRef::new(leaf) };
        let Node::Leaf(leaf) = node.kind() else { return };
        if leaf.count() == 0 {
            return;
        }
        let path = Path::descend(self.root(), leaf.record(0).key());
        if path.leaf.node().as_ptr() == node.as_ptr() {
            self.move_leaf(&path);
        }
    }
}
