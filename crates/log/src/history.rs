//! Which entries count: those known committed, those after them, and those that a rewind has
//! voided.
//!
//! ```text
//!   records   | 4 5 6 | 7 8 | rewind to 6 | 7' 8' 9' |
//!                   ^   void                       ^ written
//!                   committed    pending: 7' 8' 9'
//! ```
//!
//! Nothing is ever cut out of the files; a rewind voids a range of records instead, and readers
//! pass them over. What is committed is never voided. Whoever appends, and whoever walks through a
//! log at a start, keeps the same books here.
//!
//! Always: pending entries follow the committed one without a gap in their indices; ranges of void
//! records lie in order and don't overlap; terms rise with the index.

use std::collections::VecDeque;
use std::sync::Arc;

use plinth_types::Version;

use crate::entry::EntryKind;
use crate::format::RecordHeader;
use crate::link::{Link, Memory};

/// Records whose entries are void: from the first to the last of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Void {
    pub(crate) first: u64,
    /// The rewind itself.
    pub(crate) last: u64,
}

/// Void records, in order. Shared with readers.
pub(crate) type Voids = Arc<Vec<Void>>;

/// Whether the entry in record `sequence` is void.
pub(crate) fn is_void(voids: &[Void], sequence: u64) -> bool {
    let after = voids.partition_point(|void| void.last < sequence);
    voids.get(after).is_some_and(|void| void.first <= sequence)
}

/// The books on a log's entries.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// At the last entry known committed.
    committed: Link,
    /// That one is in no file: a log's first record named it, and nothing has confirmed it yet.
    is_assumed: bool,
    /// At each entry after it.
    pending: VecDeque<Link>,
    voids: Voids,
    /// The index from which on entries have this term, in order.
    terms: Vec<(u64, u64)>,
    /// The indices of entries that say who is a member, in order.
    members: Vec<u64>,
}

impl History {
    /// Of a log whose first record comes behind `link`: entries up to there are gone, and were
    /// committed.
    pub(crate) fn beginning(link: Link) -> Self {
        let terms = vec![(link.index, link.term)];
        Self {
            committed: link,
            is_assumed: true,
            pending: VecDeque::new(),
            voids: Voids::default(),
            terms,
            members: Vec::new(),
        }
    }

    pub(crate) fn committed(&self) -> &Link {
        &self.committed
    }

    pub(crate) fn voids(&self) -> &Voids {
        &self.voids
    }

    /// An entry of this kind was added; `link` is there.
    pub(crate) fn push(&mut self, link: Link, kind: EntryKind) {
        assert_eq!(
            link.index,
            self.last().index + 1,
            "entries are added in the order of their indices"
        );
        self.note_term(link.index, link.term);
        if kind == EntryKind::Members {
            self.members.push(link.index);
        }
        self.pending.push_back(link);
    }

    /// An entry was added to a log that is committed by whoever syncs it.
    pub(crate) fn note_term(&mut self, index: u64, term: u64) {
        let last = self.terms.last().map_or(0, |(_, term)| *term);
        assert!(term >= last, "terms never fall");
        if term > last || self.terms.is_empty() {
            self.terms.push((index, term));
        }
    }

    /// At the last entry.
    pub(crate) fn last(&self) -> &Link {
        self.pending.back().unwrap_or(&self.committed)
    }

    /// At the entry with this index, if it is the committed one or behind it.
    pub(crate) fn at(&self, index: u64) -> Option<&Link> {
        match index.checked_sub(self.committed.index)? {
            0 => Some(&self.committed),
            behind => self.pending.get(usize::try_from(behind - 1).ok()?),
        }
    }

    /// Voids all entries behind the one that this rewind names. False if it names one that isn't
    /// there, or one before the last committed.
    pub(crate) fn rewind(&mut self, rewind: &RecordHeader, memory: &Memory) -> bool {
        if rewind.index < self.committed.index && self.is_assumed {
            // The first record was written before entries in front of it were voided.
            let Link { sequence, .. } = self.committed;
            self.committed = Link { sequence, memory: memory.clone(), ..Link::origin() };
            (self.committed.index, self.committed.term) = (rewind.index, rewind.term);
            self.committed.version = rewind.version;
            self.pending.clear();
            self.terms = vec![(rewind.index, rewind.term)];
            self.members.clear();
        }
        let Some(target) = self.at(rewind.index) else { return false };
        if (target.term, target.version) != (rewind.term, rewind.version) {
            return false;
        }
        let void = Void { first: target.sequence + 1, last: rewind.sequence };
        let left = rewind.index - self.committed.index;
        self.pending.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        while self.terms.last().is_some_and(|(first, _)| *first > rewind.index) {
            self.terms.pop();
        }
        while self.members.pop_if(|index| *index > rewind.index).is_some() {}
        let voids = Arc::make_mut(&mut self.voids);
        while voids.last().is_some_and(|older| older.first >= void.first) {
            voids.pop();
        }
        voids.push(void);
        true
    }

    /// Entries up to `index` are committed, as far as they are there. True if that is news.
    pub(crate) fn commit_index(&mut self, index: u64) -> bool {
        let before = self.committed.index;
        while self.pending.front().is_some_and(|next| next.index <= index) {
            self.advance();
        }
        self.committed.index > before
    }

    /// Everything up to the mutations at `version` is committed, as far as it is there.
    pub(crate) fn commit_version(&mut self, version: Version) {
        let is_covered =
            |next: &Link| next.version < version || (next.version == version && next.has_version);
        while self.pending.front().is_some_and(is_covered) {
            self.advance();
        }
    }

    fn advance(&mut self) {
        if let Some(next) = self.pending.pop_front() {
            self.committed = next;
            self.is_assumed = false;
        }
    }

    /// Everything up to this place is committed.
    pub(crate) fn commit_all(&mut self, link: Link) {
        self.pending.clear();
        self.is_assumed = false;
        self.committed = link;
    }

    /// From which index on entries have which term.
    pub(crate) fn terms(&self) -> &[(u64, u64)] {
        &self.terms
    }

    /// The indices of entries that say who is a member.
    pub(crate) fn members(&self) -> &[u64] {
        &self.members
    }

    /// The term of the entry with this index, which lies between the last one that is gone and the
    /// last one.
    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        let after = self.terms.partition_point(|(first, _)| *first <= index);
        self.terms.get(after.checked_sub(1)?).map(|(_, term)| *term)
    }

    /// Whether every rewind is durable, now that this record is.
    pub(crate) fn is_settled(&self, durable: u64) -> bool {
        self.voids.last().is_none_or(|void| void.last <= durable)
    }

    /// Entries up to `index` in records up to `sequence` are gone.
    pub(crate) fn forget(&mut self, index: u64, sequence: u64) {
        if self.voids.first().is_some_and(|void| void.last <= sequence) {
            Arc::make_mut(&mut self.voids).retain(|void| void.last > sequence);
        }
        while self.terms.get(1).is_some_and(|(first, _)| *first <= index) {
            self.terms.remove(0);
        }
        self.members.retain(|member| *member > index);
    }

    /// Panics if the books contradict themselves.
    pub(crate) fn check_invariants(&self) {
        let mut before = &self.committed;
        for link in &self.pending {
            assert_eq!(link.index, before.index + 1, "pending entries have no gap");
            assert!(link.sequence > before.sequence && link.term >= before.term);
            assert!(link.version >= before.version);
            assert!(!is_void(&self.voids, link.sequence), "a void entry counts no longer");
            before = link;
        }
        assert!(self.voids.is_sorted_by(|one, next| one.last < next.first), "voids don't overlap");
        assert!(
            self.terms.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1),
            "terms rise"
        );
    }
}

#[cfg(test)]
mod tests;
