//! Restoring: which snapshot and which files of the log make the version that is wanted, and how
//! they get to where they go.
//!
//! ```text
//!   plan      the newest snapshot that lies at or before the version, and the log from it on
//!   pieces    files of rows, read ahead by several tasks, in key order ─▶ a new directory's tables, or transactions
//!   changes   files of the log, in version order: each piece of rows gets what was committed after *its* version
//! ```
//! What is restored into is locked, or has another name, until it is whole.

mod apply;
mod changes;
mod directory;
mod locks;
mod mapping;
mod plan;
mod read;
mod served;

pub(crate) use plan::moment_at;
pub(crate) use read::read_pieces;

pub use directory::{Loader, restore_into};
pub use mapping::Mapping;
pub use plan::{Choice, Goal, Plan};
pub use served::{
    Restoring, ServedRestore, Unfinished, abort, check_served, is_whole, restore_served, status,
    unfinished,
};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What a restore is told, and tells.
#[derive(Clone, Default)]
pub struct RestoreControl {
    /// Set it to end early.
    pub stop: Arc<AtomicBool>,
    /// How far it is: bytes of the rows of files that have been taken in, or left out, and of files
    /// of the log. Comes to [`Plan::row_bytes`] and [`Plan::log_bytes`].
    pub restored: Arc<AtomicU64>,
}

/// What was restored, by this run and by earlier ones that it went on behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoreReport {
    /// The version whose rows there are.
    pub version: plinth_types::Version,
    /// Rows of the snapshot, of the ranges alone.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Mutations of the log that came on top.
    pub mutations: u64,
}
