//! Conflict detection: decides which transactions of a batch may commit.
#![forbid(unsafe_code)]

mod generation;
mod hash;
mod keys;
mod planted;
mod points;
mod resolver;
mod tree;

#[cfg(any(test, feature = "planted-bugs"))]
pub use planted::Planted;
pub use resolver::Resolver;

use plinth_types::Conflicts;

/// A transaction that wants to commit, as far as conflicts are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Transaction<'a> {
    /// What it read, at which version, and what it writes.
    pub conflicts: &'a Conflicts,
    /// Whether the verdict is to say which reads conflict. Otherwise the first one found ends the search.
    pub report: bool,
}

/// What becomes of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing that it read was written since: it may commit, and what it writes counts for later transactions.
    Commit,
    /// Something that it read was written after its read version, or earlier in its batch.
    Conflict {
        /// The positions of all such ranges among its reads, ascending; empty unless asked for.
        reads: Vec<usize>,
    },
    /// It has reads, and what was written since its read version is partly forgotten.
    TooOld,
}
