//! The trace: everything a simulation does, folded into one number.
//!
//! Two runs of the same seed must do the same; a difference anywhere, in one scheduling choice or
//! one byte written, changes the number. The last events are kept as they were, for people.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// How many events are kept for people.
const KEPT: usize = 256;

/// What happened, with two numbers that depend on it (a task and its process, a file and an
/// offset).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, since the simulation began.
    pub at: Duration,
    /// What.
    pub what: &'static str,
    /// Of which process, task, file or connection.
    pub of: u64,
    /// Offset, length, time or the like.
    pub with: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>16} ns  {} {} {}", self.at.as_nanos(), self.what, self.of, self.with)
    }
}

#[derive(Default)]
pub(crate) struct Trace {
    hash: u64,
    count: u64,
    last: VecDeque<Event>,
}

impl Trace {
    pub(crate) fn note(&mut self, at: Duration, what: &'static str, of: u64, with: u64) {
        self.fold(at.as_nanos() as u64);
        self.fold_bytes(what.as_bytes());
        self.fold(of);
        self.fold(with);
        self.count += 1;
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(Event { at, what, of, with });
    }

    /// Adds the bytes that a call carried.
    pub(crate) fn fold_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.fold(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn fold(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    pub(crate) fn hash(&self) -> u64 {
        // The count distinguishes a run from its continuation with words that fold to nothing.
        self.hash ^ self.count
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn last(&self) -> impl Iterator<Item = &Event> {
        self.last.iter()
    }
}
