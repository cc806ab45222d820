//! Conflict detection: decides which transactions of a batch may commit.
//!
//! ## Role
//! Input: batches in version order, each transaction with its read version, what it read and what
//! it writes. Output for each: commit, conflict or too old. A transaction conflicts if and only if
//! one of its read ranges overlaps a write range of a transaction that was accepted above its read
//! version, or earlier in the same batch; never by chance, never because of rounding. One thread
//! calls, for every commit of the database: speed is what this crate is about.
//!
//! ## Data structure
//! A row of *generations*. All writes of a stretch of time lie in one, so most reads, which are a
//! few batches old, look at the newest one only (it stays in the processor's second-level cache),
//! and the old is forgotten by dropping one. Within a generation a write is named by its *stamp*, a
//! small number that counts up; "after version v" is "above stamp s".
//!
//! ```text
//!   versions   oldest ──────────────────────────────────────────▶ newest
//!              [ generation ] [ generation ] .. [ generation ] [ current ]
//!                    │ forgotten whole                             ▲ written to
//!   each one:
//!     keys     bytes of all keys, one after the other
//!     points   log:  stamp 1, 2, 3, .. → key          written single keys, as they came
//!              hash table:  key → newest stamp        answers reads of single keys
//!     ordered  tree: key → newest stamp               the same keys in order, as far as range reads asked for it
//!     ranges   tree: step function key → newest stamp what range writes wrote, answers every read
//! ```
//!
//! Why this and not one ordered map, or one hash table: see
//! `docs/decisions/0002-resolver-structure.md`. On a shared 2-core machine, one thread, a window of
//! five seconds with millions of live keys: 14 to 22 million blind point writes or checked point
//! reads a second (an ordered map of all writes: 0.2 to 0.4), 1.5 to 5 million range reads or
//! writes with the points around them; 32 bytes a live point write; forgetting takes microseconds.
//!
//! ## Invariants (checked by [`Resolver::check_invariants`])
//! 1. Generations are in version order; none but the newest is written to or empty; none is above
//!    its capacity.
//! 2. Each key of a generation's log has one slot in its table, with its newest stamp.
//! 3. The ordered points are exactly those of a stretch of the log; what they lack, range reads
//!    look up in the log.
//! 4. Trees: keys ascend, each node knows its bounds' common prefix and the newest stamp below each
//!    child.
//!
//! ## Not here
//! Versions, batching, and what to do with the verdicts: `pipeline`. Durability: `log`.
//! Read next: `resolver.rs`, then `generation.rs`, `points.rs`, `tree.rs`.
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

#[cfg(test)]
mod tests;

use plinth_types::Conflicts;

/// A transaction that wants to commit, as far as conflicts are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Transaction<'a> {
    /// What it read, at which version, and what it writes.
    pub conflicts: &'a Conflicts,
    /// Whether the verdict is to say which reads conflict. Otherwise the first one found ends the
    /// search.
    pub report: bool,
}

/// What becomes of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing that it read was written since: it may commit, and what it writes counts for later
    /// transactions.
    Commit,
    /// Something that it read was written after its read version, or earlier in its batch.
    Conflict {
        /// The positions of all such ranges among its reads, ascending; empty unless asked for.
        reads: Vec<usize>,
    },
    /// It has reads, and what was written since its read version is partly forgotten.
    TooOld,
}
