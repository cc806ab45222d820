//! Moving what is left in sparse chunks of memory together, so that memory at rest is as large as
//! the data.
//!
//! When a burst of overwrites has left the window, the rows that stay lie scattered over all the
//! memory the burst took. The arena names what is best emptied, each row there is copied to where
//! there is room and its slot pointed at the copy, leaves are moved in the same way, and empty
//! chunks go back to the system. Only rows at rest move: newest, alone in their chain, cleaned up.

use super::super::arena::{Arena, Kind};
use super::super::node::{Header, Node, NodeRef};
use super::super::record::{self, Record, RecordRef};
use super::super::tree::Path;
use super::Writer;
use plinth_types::Version;
use std::ptr::NonNull;

/// Rounds are at least this many versions apart, about a second.
const PAUSE: Version = 1_000_000;
/// Free memory that is not worth a round.
const TRIFLE: usize = 3 << 20;

/// How much of the memory may be free before a round is worth the while.
fn worth_a_round(reserved: usize) -> usize {
    reserved / 12 + TRIFLE
}

/// Where the round stands.
#[derive(Default)]
pub(super) struct Compaction {
    /// Objects of what is being emptied, still to be moved.
    objects: Vec<(Kind, NonNull<u8>)>,
    running: bool,
    /// How much this round may still empty, so that it ends whatever happens.
    left: usize,
    next_round: Version,
    reserved_before: usize,
    /// Free memory that a fruitless round could not get rid of, or less if there was less since.
    floor: usize,
}

impl Writer {
    /// Moves about `budget` objects, if it is worth the while. `cleaned`: everything up to this
    /// version has been cleaned up. Whether there is more to do at once.
    pub(super) fn compact(&mut self, cleaned: Version, budget: usize) -> bool {
        if !self.compaction.running {
            self.begin_round(cleaned);
        }
        for _ in 0..budget {
            if !self.compaction.running {
                return false;
            }
            match self.compaction.objects.pop() {
                Some((_, object)) if !self.arena.is_evacuating(object) => {}
                Some((Kind::Record, object)) => self.move_record(object.cast(), cleaned),
                Some((_, object)) => self.move_leaf_at(object.cast()),
                None => self.next_evacuation(cleaned),
            }
            self.collect_some();
        }
        self.compaction.running
    }

    fn begin_round(&mut self, cleaned: Version) {
        let (reserved, free) = self.slack();
        let round = &mut self.compaction;
        round.floor = round.floor.min(free);
        round.running = cleaned >= round.next_round && free > round.floor + worth_a_round(reserved);
        round.reserved_before = reserved;
        round.left = reserved / Arena::LEAST_EVACUATED;
    }

    /// Chooses what to empty next; ends the round when there is nothing.
    fn next_evacuation(&mut self, cleaned: Version) {
        let (reserved, free) = self.slack();
        let round = &mut self.compaction;
        round.objects.shrink_to(1024);
        if round.left > 0
            && free > worth_a_round(reserved)
            && self.arena.begin_evacuation(&mut round.objects)
        {
            round.left -= 1;
            return;
        }
        self.arena.end_evacuations();
        round.running = false;
        round.next_round = cleaned.saturating_add(PAUSE);
        let fruitless = reserved > round.reserved_before / 32 * 31;
        round.floor = if fruitless { free.saturating_sub(worth_a_round(reserved)) } else { 0 };
    }

    /// Memory for rows and leaves, and how much of it is free.
    fn slack(&self) -> (usize, usize) {
        let (reserved, live) = self.arena.movable();
        (reserved, reserved - live)
    }

    fn move_record(&mut self, record: NonNull<Record>, cleaned: Version) {
        // SAFETY: it is in use: at worst it is garbage that has not been freed yet, and then still
        // a record.
        let record = unsafe { RecordRef::new(record) };
        if record.version() > cleaned || record.is_tombstone() {
            return;
        }
        let path = Path::descend(self.root(), record.key());
        let Some((at, newest)) = path.find(record.key()) else { return };
        if newest.as_ptr() != record.as_ptr() || record.prev().is_some() {
            return;
        }
        let copy =
            record::create(&mut self.arena, record.version(), record.key(), record.value(), None);
        path.leaf.set_record(at, copy);
        self.garbage.retire(record.as_ptr());
    }

    fn move_leaf_at(&mut self, leaf: NonNull<Header>) {
        // SAFETY: it is in use: at worst it is garbage that has not been freed yet, and then still
        // a leaf. What a leaf points at is retired, and so freed, after the leaf.
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

#[cfg(all(test, not(miri)))]
mod tests;
