//! What consensus knows of the log: which terms its entries have.
//!
//! Runs of entries with the same term, from the entry behind which the log begins. A log of years
//! has as many runs as it had leaders, so that all of it is in memory, and `raft` never waits for a
//! disk.

use crate::failure::{ReplicationError, ReplicationResult};
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use crate::NodeId;

/// An entry: no two have the same index and term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct EntryId {
    /// Its number, from 1; 0 stands before the first.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
}

/// The terms of a log's entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    begins_behind: EntryId,
    /// From which index on entries have which term; the first begins at `begins_behind`.
    runs: Vec<(u64, u64)>,
    last: u64,
    /// The indices of entries that change who is a member, in order.
    members: Vec<u64>,
}

impl Terms {
    /// A log without entries, which begins behind this one.
    pub fn new(begins_behind: EntryId) -> Self {
        let EntryId { index, term } = begins_behind;
        Self { begins_behind, runs: vec![(index, term)], last: index, members: Vec::new() }
    }

    /// A log whose entries have these terms: from which index on which, the first being the entry
    /// behind which the log begins. `last` is the index of the last entry.
    ///
    /// # Errors
    /// `Invalid` if they don't rise, or there is none.
    pub fn of_runs(runs: Vec<(u64, u64)>, last: u64) -> ReplicationResult<Self> {
        let rises = runs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let Some((index, term)) =
            runs.first().copied().filter(|_| rises && runs.last().map(|run| run.0) <= Some(last))
        else {
            return Err(ReplicationError::Invalid(format!("terms {runs:?} up to entry {last}")));
        };
        Ok(Self { begins_behind: EntryId { index, term }, runs, last, members: Vec::new() })
    }

    /// With these entries, in order, as those that change who is a member.
    pub fn with_members(mut self, members: Vec<u64>) -> Self {
        self.members = members;
        self
    }

    /// The indices of entries that change who is a member, in order.
    pub fn members(&self) -> &[u64] {
        &self.members
    }

    /// The entry behind which the log begins.
    pub fn begins_behind(&self) -> EntryId {
        self.begins_behind
    }

    /// The last entry.
    pub fn last(&self) -> EntryId {
        EntryId { index: self.last, term: self.runs.last().map_or(0, |(_, term)| *term) }
    }

    /// The term of the entry with this index. That of the one before the first is known too.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        if !(self.begins_behind.index..=self.last).contains(&index) {
            return None;
        }
        let after = self.runs.partition_point(|(first, _)| *first <= index);
        self.runs.get(after.checked_sub(1)?).map(|(_, term)| *term)
    }

    /// Whether this entry is there, or the log begins behind it.
    pub fn has(&self, entry: EntryId) -> bool {
        self.term_of(entry.index) == Some(entry.term)
    }

    /// Adds the next entry, in a term that is not below the last one's.
    ///
    /// # Panics
    /// If it can't follow.
    pub fn push(&mut self, entry: EntryId) {
        let last = self.last();
        assert!(
            entry.index == last.index + 1 && entry.term >= last.term,
            "{entry:?} behind {last:?}"
        );
        if entry.term > last.term {
            self.runs.push((entry.index, entry.term));
        }
        self.last = entry.index;
    }

    /// Adds the next entry, which changes who is a member.
    ///
    /// # Panics
    /// If it can't follow.
    pub fn push_members(&mut self, entry: EntryId) {
        self.push(entry);
        self.members.push(entry.index);
    }

    /// Removes all entries behind this index.
    ///
    /// # Panics
    /// If the log begins behind it.
    pub fn truncate(&mut self, index: u64) {
        assert!(index >= self.begins_behind.index, "what is gone can't be voided");
        self.last = self.last.min(index);
        while self.members.pop_if(|member| *member > index).is_some() {}
        while self.runs.len() > 1 && self.runs.last().is_some_and(|(first, _)| *first > index) {
            self.runs.pop();
        }
    }

    /// Entries up to this index are gone.
    pub fn forget(&mut self, index: u64) {
        let Some(term) = self.term_of(index) else { return };
        self.begins_behind = EntryId { index, term };
        let keep = self.runs.partition_point(|(first, _)| *first <= index);
        self.runs.drain(..keep - 1);
        self.runs[0] = (index, term);
        self.members.retain(|member| *member > index);
    }
}

/// The log as `raft` reads it.
pub(crate) struct Store {
    pub(crate) terms: Terms,
    pub(crate) hard_state: HardState,
    pub(crate) members: ConfState,
    /// Nodes that need entries from before the log begins, or that are to take rows instead.
    pub(crate) behind: Mutex<BTreeSet<NodeId>>,
    /// Whoever has no entry yet is told to take rows, up to this entry at least, although all
    /// entries are here.
    pub(crate) rows_upto: Option<EntryId>,
    /// Nodes that lack an entry which can't be read any more.
    pub(crate) unreadable: BTreeMap<NodeId, EntryId>,
}

impl Store {
    /// Of this log.
    pub(crate) fn new(terms: Terms, hard_state: HardState, members: ConfState) -> Self {
        let (behind, unreadable) = Default::default();
        Self { terms, hard_state, members, behind, rows_upto: None, unreadable }
    }

    /// The entry that rows for those behind have to reach, at least.
    pub(crate) fn rows_needed(&self) -> EntryId {
        let begin = self.terms.begins_behind();
        self.rows_upto.filter(|_| begin.index == 0).unwrap_or(begin)
    }
}

impl Storage for Store {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.members.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        // What `raft` wants to send is what it would wait for.
        let is_for_a_new_node = low == 1 && context.can_async();
        if low <= self.terms.begins_behind.index || is_for_a_new_node && self.rows_upto.is_some() {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        // An entry without a body has about so many bytes.
        const STUB: u64 = 16;
        let most = max_size.into().map_or(u64::MAX, |bytes| (bytes / STUB).max(1));
        let high = high.min(low.saturating_add(most)).min(self.terms.last + 1);
        let stub = |index| {
            let term = self.terms.term_of(index)?;
            let mut entry = Entry { index, term, ..Entry::default() };
            if self.terms.members.binary_search(&index).is_ok() {
                entry.set_entry_type(EntryType::EntryConfChangeV2);
            }
            Some(entry)
        };
        (low..high)
            .map(stub)
            .collect::<Option<_>>()
            .ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let gone = if index < self.terms.begins_behind.index {
            StorageError::Compacted
        } else {
            StorageError::Unavailable
        };
        self.terms.term_of(index).ok_or(raft::Error::Store(gone))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.terms.begins_behind.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.terms.last)
    }

    /// Whoever is too far behind for the log is told so, gets rows from anybody, and begins a log
    /// behind them.
    fn snapshot(&self, _request_index: u64, to: u64) -> raft::Result<Snapshot> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).insert(to);
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_those_of_a_plain_list() {
        let mut terms = Terms::new(EntryId { index: 3, term: 2 });
        let mut list: Vec<u64> = Vec::new();
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut gone = 0;
        for _ in 0..5000 {
            match random(10) {
                0 => {
                    let left = gone + random((list.len() - gone) as u64 + 1) as usize;
                    list.truncate(left);
                    terms.truncate(3 + left as u64);
                }
                1 => {
                    gone += random((list.len() - gone).min(3) as u64 + 1) as usize;
                    terms.forget(3 + gone as u64);
                }
                _ => {
                    let term = terms.last().term + random(5) / 4;
                    list.push(term);
                    terms.push(EntryId { index: 3 + list.len() as u64, term });
                }
            }
            assert_eq!(terms.last().index, 3 + list.len() as u64);
            for (at, term) in list.iter().enumerate().skip(gone) {
                assert_eq!(terms.term_of(4 + at as u64), Some(*term));
            }
            assert_eq!(terms.term_of(4 + list.len() as u64), None);
            assert!(
                terms.has(terms.begins_behind()) && terms.begins_behind().index == 3 + gone as u64
            );
            assert!(gone == 0 || terms.term_of(2 + gone as u64).is_none());
        }
    }
}
