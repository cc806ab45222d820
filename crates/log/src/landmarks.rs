//! Landmarks: where some of a log's entries lie, so that it can be compared with what was made from
//! it.
//!
//! ```text
//!   entries    1 2 3 4 5 | 6 7 8 9 10 | 11 12 13        | a segment begins
//!   terms      3 3 3 3 3   3 5 5 5 5    5  5  5
//!   landmarks          5   6 7     10          13       and what the log begins behind
//! ```
//!
//! Always: in the order of their indices; the last entry of each term and the first of the next one
//! are among them, so that the term of every other entry is known too.

use plinth_types::LogPosition;

use crate::format::RecordHeader;

/// Positions of some entries, the first and the last among them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Landmarks {
    marks: Vec<LogPosition>,
    last: LogPosition,
}

/// Why a log does not go on from a position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// What is wrong with the log.
    pub what: &'static str,
    /// What it should have.
    pub expected: String,
    /// What it has.
    pub found: String,
}

impl Landmarks {
    /// A segment begins with this record, which is none of an entry.
    pub(crate) fn segment(&mut self, first: &RecordHeader) {
        if self.marks.is_empty() {
            self.last = position(first);
        }
        self.add(self.last);
    }

    /// An entry follows.
    pub(crate) fn entry(&mut self, header: &RecordHeader) {
        let entry = position(header);
        if entry.term != self.last.term {
            self.add(self.last);
            self.add(entry);
        }
        self.last = entry;
    }

    /// The entries behind the one that this rewind names are void.
    pub(crate) fn rewind(&mut self, rewind: &RecordHeader) {
        self.marks.retain(|mark| mark.index <= rewind.index);
        self.last = position(rewind);
        self.add(self.last);
    }

    fn add(&mut self, mark: LogPosition) {
        if self.marks.last().is_none_or(|last| last.index < mark.index) {
            self.marks.push(mark);
        }
    }

    /// The last entry.
    pub fn last(&self) -> LogPosition {
        self.last
    }

    /// Why what has everything up to `at` can't be from this log, or can't go on with it; `None` if
    /// it can, as far as landmarks tell.
    pub fn mismatch(&self, at: LogPosition) -> Option<Mismatch> {
        let tell = |what, expected: String, found: String| Some(Mismatch { what, expected, found });
        if at.index > self.last.index {
            let expected = format!("{at}, and what follows");
            return tell("the log ends too early", expected, format!("{} as the last", self.last));
        }
        let after = self.marks.partition_point(|mark| mark.index <= at.index);
        let above = self.marks.get(after).copied().unwrap_or(self.last);
        let Some(below) = after.checked_sub(1).map(|before| self.marks[before]) else {
            // Entries of one version that are let go of with it have no mutations: leases,
            // beginnings of terms.
            if above.version == at.version && above.term >= at.term {
                return None;
            }
            let expected = format!("entries from {} on", at.index.saturating_add(1));
            return tell("the log begins too late", expected, format!("those behind {above}"));
        };
        let is_exact = |mark: LogPosition| mark.index != at.index || mark == at;
        let is_between = below.term <= at.term
            && below.version <= at.version
            && at.term <= above.term
            && at.version <= above.version;
        if is_between && is_exact(below) && is_exact(above) {
            return None;
        }
        let found = if below.index == at.index {
            below.to_string()
        } else {
            format!("{below}, then {above}")
        };
        tell("the log is of another history", at.to_string(), found)
    }
}

/// The entry of a record, or the last one before it.
fn position(header: &RecordHeader) -> LogPosition {
    LogPosition { index: header.index, term: header.term, version: header.version }
}

#[cfg(test)]
mod tests;
