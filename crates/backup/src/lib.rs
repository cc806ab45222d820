//! Backups: snapshots of a database and the log between them, in a directory or an object store;
//! and what is restored from them.
//!
//! ## Role
//! Reads a database as any client does, through its [`Endpoint`](plinth_client::Endpoint), and puts
//! what it reads as whole files into a [`Target`]. A restore reads those files and makes the
//! database as it was at a version, or at a second: in a new directory, where somebody makes an
//! engine's files of the rows ([`restore::Loader`]), or in a database that is running.
//!
//! ## Data structure
//! ```text
//!   backup.id                              what it is, and of which database and ranges
//!   lease/N.lease                          who writes it; the highest number counts
//!   snapshots/VERSION-SALT/N.rows          rows of a range, as they were at a version
//!   snapshots/VERSION-SALT/snapshot.manifest   the list of those files; put last, and so what makes it a snapshot
//!   logs/FROM-TO-SALT.log                  what was committed from one version up to, and without, another
//!
//!   version ─────────────────────────────────────────────────────────▶
//!   snapshots        S1                       S2
//!   log               ├────┼──┼──────┼─────┼───┼────┼────┤   gap   ├────
//!   restorable       ════════════════════════════════════
//! ```
//!
//! ## Invariants
//! 1. A snapshot has a manifest only if all of its files are there, and they speak of every key of
//!    its ranges.
//! 2. A file of the log has every mutation of its versions. So a stretch of files without a gap,
//!    from a snapshot on, is everything that came after it.
//! 3. What is being restored can't be taken for something whole: it is locked, or has another name.
//! 4. Every byte that is read back is covered by a checksum, and every file says which one it is.
//!    Of an encrypted backup whoever has no key can't make another file of one, nor a shorter one.
//! 5. All snapshots and the log are of the ranges that the backup was begun with.
//!
//! ## Not here
//! Opening databases and making files of an engine (the facade), command lines (`cli`), what a
//! stream of changes is (`client`).
//! Read next: `container.rs`, `snapshot.rs`, `log.rs`, `restore/mod.rs`; `docs/format/backup.md`
//! for the bytes.
#![forbid(unsafe_code)]

pub mod agent;
mod container;
mod expire;
mod format;
mod lease;
mod log;
mod manifest;
mod merge;
mod moments;
mod names;
mod ranges;
pub mod restore;
mod rows;
mod snapshot;
pub mod target;
mod verify;

pub use agent::Agent;
pub use container::{Backup, Contents, Gap, LogFile, Snapshot};
pub use expire::{Expired, delete, expire};
pub use format::{Key, key_of_file};
pub use lease::Lease;
pub use log::{LogBuilder, LogSizes, Moment};
pub use moments::{parse_time, show_time};
pub use ranges::{everything, show_ranges};
pub use rows::Piece;
pub use snapshot::{SnapshotReport, SnapshotSettings, take_snapshot};
pub use target::{Directory, Object, Target};
pub use verify::{Help, Problem, VerifyReport, verify};
