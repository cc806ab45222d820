//! Whether what this node and the leader both have under one index and term is the same entry.
//!
//! `raft` compares index and term, and nobody leads in a term that had a leader: so what is the
//! same there is the same entry. Unless nodes have forgotten whom they elected, restored from older
//! disks: then they may elect another one in that term. A node that still has entries of the one
//! from before would take what comes behind them, and its rows would differ from then on.
//!
//! So the leader says along with an append what checksum the entry before it has, and the checksums
//! of those that are in it, and here already, follow from what was sent. Each is compared before
//! `raft` hears of the message. What was written since the start has its checksum in memory, the
//! newest of it; what is from before is read from the disk, once.
//!
//! What has no checksum at hand is not compared: the entry that the log begins behind, on either
//! side, and whatever an older program sends.

use super::Core;
use crate::failure::{ReplicationError, ReplicationResult};
use crate::members::Part;
use crate::message::{MAX_ENTRIES, Message, MessageKind};
use crate::stand::Role;
use crate::terms::EntryId;
use std::collections::{BTreeMap, VecDeque};
use std::iter;

/// How many checksums of the newest entries are kept, more than commits take in seconds; what is
/// older is read from the disk.
const NEWEST: usize = 1 << 16;
/// How many of older entries are kept at most: more than one message speaks of.
const OLDER: usize = 2 * MAX_ENTRIES;

/// Checksums of this node's entries.
#[derive(Default)]
pub(super) struct Sums {
    /// The index of the first of the newest.
    first: u64,
    newest: VecDeque<u32>,
    /// Of entries before those, by index: what was read from the disk.
    older: BTreeMap<u64, u32>,
}

impl Sums {
    fn get(&self, index: u64) -> Option<u32> {
        let at = index.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let newest = at.and_then(|at| self.newest.get(at));
        newest.or_else(|| self.older.get(&index)).copied()
    }

    /// This entry was written, and those behind it are void.
    fn write(&mut self, index: u64, sum: u32) {
        drop(self.older.split_off(&index));
        match index.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()) {
            Some(at) if at <= self.newest.len() => self.newest.truncate(at),
            _ => (self.first, self.newest) = (index, VecDeque::new()),
        }
        self.newest.push_back(sum);
        if self.newest.len() > NEWEST {
            self.newest.pop_front();
            self.first += 1;
        }
    }

    /// These were read from the disk. Where they don't fit beside those of before, those go.
    fn recall(&mut self, sums: impl ExactSizeIterator<Item = (u64, u32)>) {
        if self.older.len() + sums.len() > OLDER {
            self.older.clear();
        }
        self.older.extend(sums);
    }
}

impl Core {
    /// This entry was written into the log, and has this checksum.
    pub fn note_sum(&mut self, index: u64, sum: u32) {
        self.lacks.sums.write(index, sum);
    }

    /// The entries of the log from this one on, which were written earlier, have these checksums.
    pub fn recall_sums(&mut self, from: u64, sums: &[u32]) {
        let last = self.terms().last().index;
        let here = usize::try_from((last + 1).saturating_sub(from)).unwrap_or(usize::MAX);
        let sums = &sums[..sums.len().min(here)];
        self.lacks.sums.recall(sums.iter().enumerate().map(|(at, sum)| (from + at as u64, *sum)));
    }

    /// The checksum of an entry, if it is in the log, and was written since the start or recalled.
    pub fn sum_of(&self, entry: EntryId) -> Option<u32> {
        self.lacks.sums.get(entry.index).filter(|_| self.terms().has(entry))
    }

    /// Which of the entries that an append speaks of, the one before its own among them, are in the
    /// log, which has those from `first` on, with the same term, or were: those whose checksums are
    /// to be compared. None if the message isn't one that counts.
    pub fn shared(&self, message: &Message, first: u64) -> Vec<EntryId> {
        let Message { kind, from, to, term, index, log_term, .. } = *message;
        let leads = self.members.part(from).is_some_and(Part::votes);
        let counts = kind == MessageKind::Append
            && leads
            && to == self.config.id
            && term >= self.node.raft.term
            && self.role() != Role::Leader;
        if !counts {
            return Vec::new();
        }
        let before = iter::once(EntryId { index, term: log_term });
        let behind = (index.saturating_add(1)..).zip(&message.entries);
        let behind = behind.map(|(index, term)| EntryId { index, term: *term });
        let last = self.terms().last().index;
        let here = behind.take_while(|entry| entry.index <= last);
        let is_here = |entry: &EntryId| {
            self.terms().has(*entry) && (entry.index >= first || self.sum_of(*entry).is_some())
        };
        before.chain(here).filter(is_here).collect()
    }

    /// As [`Core::receive`], of a leader whose entries have these checksums, as far as they are
    /// known. If one of them is here with another checksum, the message changes nothing, and
    /// [`Core::forgotten`] says why.
    ///
    /// # Errors
    /// As those of [`Core::receive`].
    pub fn receive_checked(
        &mut self,
        message: &Message,
        theirs: &[(EntryId, u32)],
    ) -> ReplicationResult<()> {
        let differs =
            |(entry, sum): &&(EntryId, u32)| self.sum_of(*entry).is_some_and(|ours| ours != *sum);
        let Some((entry, _)) = theirs.iter().find(differs) else { return self.receive(message) };
        let Message { from, to, term, .. } = *message;
        let EntryId { index, term: made_in } = *entry;
        self.lacks.forgotten = Some(ReplicationError::Lost(format!(
            "two leaders have led in term {made_in}, one of which is forgotten: entry {index} of that \
             term is another one on node {to} than on node {from}, which leads in term {term}. \
             Nodes were restored from older disks, and may have lost what was acknowledged. Node {to} \
             takes no part any more, and may have what is lost: keep its directory, save the rows \
             with `plinth salvage`, and bring them elsewhere with `plinth migrate`"
        )));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_what_was_written_last() {
        let mut sums = Sums::default();
        sums.recall([(4, 44)].into_iter());
        (5..=9).for_each(|index| sums.write(index, index as u32));
        let get = |sums: &Sums, indices: std::ops::RangeInclusive<u64>| {
            indices.map(|index| sums.get(index)).collect::<Vec<_>>()
        };
        assert_eq!(get(&sums, 3..=6), [None, Some(44), Some(5), Some(6)]);
        // What lost is void.
        sums.write(7, 70);
        assert_eq!(get(&sums, 6..=8), [Some(6), Some(70), None]);
        sums.write(4, 40);
        assert_eq!(get(&sums, 3..=5), [None, Some(40), None]);
        // Many of them: the oldest go.
        (5..5 + NEWEST as u64).for_each(|index| sums.write(index, 1));
        assert_eq!((sums.get(4), sums.get(5), sums.newest.len()), (None, Some(1), NEWEST));
        let recall = |sums: &mut Sums, indices: std::ops::Range<u32>| {
            sums.recall(indices.map(|index| (index.into(), 2)));
        };
        // What is recalled at once stays together, and those of before go if there are too many.
        recall(&mut sums, 0..3);
        recall(&mut sums, 3..OLDER as u32);
        assert_eq!((sums.older.len(), sums.get(0)), (OLDER, Some(2)));
        recall(&mut sums, 2..4);
        assert_eq!((sums.older.len(), sums.get(0), sums.get(3)), (2, None, Some(2)));
    }
}
