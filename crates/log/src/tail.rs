//! The newest entries in memory, for readers that follow the log.
//!
//! While nobody follows, nothing is kept and an append pays for a look at a counter. While somebody
//! does, each entry is copied once, when it is written, and the oldest go when all of them take
//! more than the bound. Entries in the tail have indices without gaps and are those last written,
//! so whoever stands just before any of them can go on in memory; who doesn't reads the files, and
//! gets from each entry the place in them where it would go on.

use std::collections::VecDeque;

use plinth_types::Version;

use crate::entry::Entry;
use crate::link::Link;

/// Where a reader goes on in the files: behind a record.
#[derive(Clone, Debug)]
pub(crate) struct Resume {
    /// Serial number of the segment, and where the next record begins.
    pub(crate) serial: u64,
    pub(crate) offset: u64,
    /// The record.
    pub(crate) link: Link,
}

struct Cached {
    entry: Entry,
    after: Resume,
}

/// Bytes that an entry takes in memory.
fn weight(entry: &Entry) -> usize {
    entry.body.len() + size_of::<Cached>()
}

/// Entries that were written last.
#[derive(Default)]
pub(crate) struct Tail {
    followers: usize,
    entries: VecDeque<Cached>,
    bytes: usize,
}

impl Tail {
    pub(crate) fn is_followed(&self) -> bool {
        self.followers > 0
    }

    /// Somebody follows from now on.
    pub(crate) fn follow(&mut self) {
        self.followers += 1;
    }

    /// Somebody follows no longer.
    pub(crate) fn leave(&mut self) {
        assert!(self.followers > 0, "whoever leaves has followed");
        self.followers -= 1;
        if self.followers == 0 {
            *self = Self::default();
        }
    }

    /// Keeps the entry that was just written.
    pub(crate) fn push(&mut self, entry: Entry, after: Resume, bound: usize) {
        assert_eq!(entry.index, after.link.index, "the place behind an entry is that entry's");
        let is_next = self.entries.back().is_some_and(|last| last.entry.index + 1 == entry.index);
        if !is_next {
            // One was written before anybody followed.
            (self.entries, self.bytes) = Default::default();
        }
        self.bytes += weight(&entry);
        self.entries.push_back(Cached { entry, after });
        while self.bytes > bound {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= weight(&oldest.entry);
        }
    }

    /// Entries behind this one are void.
    pub(crate) fn rewind(&mut self, index: u64) {
        while self.entries.back().is_some_and(|last| last.entry.index > index) {
            let Some(last) = self.entries.pop_back() else { break };
            self.bytes -= weight(&last.entry);
        }
    }

    /// The place behind the last entry below version `from`, if that is here, and not above index
    /// `committed`.
    pub(crate) fn before(&self, from: Version, committed: u64) -> Option<Resume> {
        let count = self.entries.partition_point(|cached| cached.entry.version < from);
        let last = self.entries.get(count.checked_sub(1)?)?;
        (last.entry.index <= committed).then(|| last.after.clone())
    }

    /// The entry with this index, and the place behind it.
    pub(crate) fn get(&self, index: u64) -> Option<(Entry, Resume)> {
        let first = self.entries.front()?.entry.index;
        let cached = self.entries.get(usize::try_from(index.checked_sub(first)?).ok()?)?;
        Some((cached.entry.clone(), cached.after.clone()))
    }
}
