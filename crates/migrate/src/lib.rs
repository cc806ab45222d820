//! Migration: copies a database into another one while it is in use, through the client's API
//! alone.
//!
//! ## Role
//! Makes the destination hold exactly the rows that the source had at one version. The source may
//! be written all the while, has no feed of changes, and lets nobody read a version for longer than
//! five seconds. So the copy is made piece by piece, and that a copied piece still is what the
//! source has is *proven*, without reading it again, by the one part of a database that remembers
//! writes for nothing: its conflict detection.
//!
//! ## Data structure
//! ```text
//!   table     ""        f          m        t         \xff        pieces, side by side, the whole key space
//!             │ clean   │ suspect  │ clean  │ unread  │
//!             │ ≤ v     │ (sum)    │ ≤ v    │         │
//!                 ▲ every half second: a commit with read version v and the clean pieces as read conflict ranges.
//!                 │ It succeeds at version w: nothing was written between, all clean ≤ w. It conflicts: the
//!                 │ ranges reported have changed, they are suspect; the others are tried again.
//!   workers   read a piece that is not clean, at v; write it, its sum and its bounds in one transaction
//!   cut       at a version V: read what is not clean at V, prove the rest clean ≤ W, W ≥ V; what has changed between, read at V too
//! ```
//!
//! ## Invariants
//! 1. A piece is clean up to v only if the destination has what the source has at v.
//! 2. The destination is locked, and says how far it is, until it is whole.
//! 3. Nothing is written to the source but, if asked for, its lock.
//!
//! ## Not here
//! Opening databases (`cli`, the facade), what a transaction is (`client`). What is promised to
//! users: `docs/migration.md`.
//! Read next: `prover.rs`, `table.rs`, `round.rs`, then `migration.rs` and `destination.rs`.
#![forbid(unsafe_code)]

mod abort;
mod destination;
mod migration;
mod naming;
mod progress;
mod prover;
mod reading;
mod round;
mod sum;
mod table;

pub use abort::{Unfinished, abort, unfinished};
pub use migration::{Report, migrate};
pub use progress::{Phase, Progress, Settings, Watcher};
pub use sum::Sum;
