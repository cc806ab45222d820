//! The commit log: entries in order, durable before they are acknowledged, kept until nobody needs
//! them.
//!
//! ## Role
//! One writer appends entries (a version and bytes); syncs make them durable, several at a time;
//! consumers read them by name and pop what they have dealt with. After a crash everything that was
//! acknowledged is there, and of the rest a prefix. [`LocalLog`] is the log of a single node: what
//! it has synced is committed. [`ReplicaLog`] is what consensus stands on: entries come with index
//! and term, are committed when somebody says so, and until then may be voided; it remembers what
//! the node promised.
//!
//! ## Data structure
//! Segment files made ahead of need, in each a chain of records. A record is an entry, or one of
//! the log's own: a state (lease, vote, consumers), a vote, a rewind. The first of each segment is
//! a state, so that older segments can go.
//!
//! ```text
//!   segment 7               segment 8               next           spares
//!   |head|S|E|E|E|E|S|E|    |head|S|E|E|E|·······    |head|······   |····| |····|
//!         ^popped up to here             ^     ^
//!                                  durable     written
//!
//!   record   | checksums | length | checksum of the one before | term | number | index | version |
//!            | previous version | version known committed | opening | how many before it were not
//!            | durable | kind |   body ...   |
//! ```
//!
//! Every checksum begins with the segment's identity (cluster, node, log, serial number, a random
//! number), so that what a file held in an earlier life is never read as a record.
//!
//! ## Invariants (checked by [`LocalLog::check_invariants`] and by every walk through the files)
//! 1. Records are numbered without gaps, entries that count too; each names the checksum of the one
//!    before; terms and openings never fall; versions rise; no entry of a single node is above the
//!    lease in the entries before it. A rewind voids entries behind the last committed one, and
//!    cuts nothing.
//! 2. Segments are numbered without gaps: a missing file is damage.
//! 3. A record that is missing or damaged is damage if any later record says that it was durable,
//!    and stops the start; else it is a torn tail, which is cut, overwritten and synced before
//!    anything is appended.
//! 4. Nothing is acknowledged after a sync has failed; an append that fails has appended nothing.
//! 5. A segment leaves when no consumer needs it in any state that a crash could bring back, the
//!    oldest first.
//!
//! ## Not here
//! What the bodies mean, which version is next, when to sync (`pipeline`); the lock on the
//! directory (its owner); who votes for whom and what a majority has, which is consensus's.
//!
//! Read next: `docs/format/log.md`, the traits in `commit_log.rs`, [`LocalLog`] in `log.rs`,
//! [`LocalView`] in `view.rs`, [`ReplicaLog`] in `replica.rs`, then `shared.rs`, `writer.rs`,
//! `syncer.rs`, `upkeep.rs`, `history.rs`, `recovery.rs`.
#![forbid(unsafe_code)]

mod check;
mod commit_log;
mod config;
pub mod conformance;
mod consumers;
mod entry;
mod failure;
mod findings;
pub mod format;
mod frame;
mod history;
mod landmarks;
mod link;
mod local;
mod log;
mod marking;
mod marks;
mod opened;
mod place;
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
pub mod planted;
mod position;
mod reader;
mod recovery;
mod replica;
mod retention;
mod scan;
mod segment;
mod shared;
mod supply;
mod syncer;
mod tail;
mod upkeep;
mod view;
mod walk;
mod writer;

pub use check::{Report, Salvage, Salvaged, verify};
pub use commit_log::{CommitLog, LogReader, LogView, Waiting};
pub use config::LogConfig;
pub use entry::{
    ALL_ROWS, Entry, EntryHead, EntryKind, MAX_SECTIONS, SECTIONS_FORMAT, Tag, sections,
    sections_head,
};
pub use failure::{LogError, LogResult};
pub use findings::{CutTail, Findings, Recovery};
pub use format::Vote;
pub use landmarks::{Landmarks, Mismatch};
pub use log::LocalLog;
pub use plinth_format::{Corruption, Identity};
pub use position::{Position, Progress};
pub use reader::Reader;
pub use replica::{EntryReader, ReplicaLog};
pub use segment::is_segment;
pub use syncer::Syncer;
pub use view::LocalView;
