//! How far a member is that takes in what it lacks, for status, metrics, and whoever waits until it
//! serves.

use crate::batch_lock::lock;
use crate::failure::NodeError;
use plinth_replication::NodeId;
use plinth_types::Version;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a member that lacks something is doing about it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Stage {
    /// It takes rows from somebody, or looks for somebody to take them from.
    Rows,
    /// All rows are there; it is opened with them.
    Opening,
    /// It is open, and gets the entries behind its rows: after rows were taken, and after each
    /// start.
    Entries,
}

/// How far it is.
#[derive(Clone, Debug)]
pub(crate) struct CatchingUp {
    pub stage: Stage,
    /// Who sends the rows, once it is known.
    pub source: Option<NodeId>,
    /// The version that the rows are of; 0 if it isn't known.
    pub version: Version,
    pub taken_bytes: u64,
    /// All rows, about; 0 if it isn't known.
    pub about_bytes: u64,
    /// How many entries it lacks, once whoever leads has said how far the log is.
    pub entries_behind: Option<u64>,
    /// The most that it has lacked.
    pub lacked: u64,
    pub began: Duration,
    /// Why it doesn't get on, if so.
    pub trouble: Option<NodeError>,
}

/// All rows, as they were taken last.
#[derive(Clone, Debug)]
pub(crate) struct RowsTaken {
    /// Who sent them.
    pub source: NodeId,
    pub bytes: u64,
    /// When they were asked for, by the wall clock.
    pub began: Duration,
    /// How long it took until the last of them had been taken.
    pub took: Duration,
}

/// The same, shared. Empty in a member that lacks nothing.
#[derive(Default)]
pub(crate) struct Progress {
    now: Mutex<Option<CatchingUp>>,
    /// Rows that were taken since the program began.
    rows: Mutex<Option<RowsTaken>>,
    /// Looked at by every read.
    under_way: AtomicBool,
}

impl Progress {
    pub fn begin(&self, stage: Stage, now: Duration) {
        *lock(&self.now) = Some(CatchingUp {
            stage,
            source: None,
            version: 0,
            taken_bytes: 0,
            about_bytes: 0,
            entries_behind: None,
            lacked: 0,
            began: now,
            trouble: None,
        });
        self.under_way.store(true, Ordering::SeqCst);
    }

    pub fn change(&self, f: impl FnOnce(&mut CatchingUp)) {
        if let Some(now) = lock(&self.now).as_mut() {
            f(now);
        }
    }

    pub fn end(&self) -> Option<CatchingUp> {
        self.under_way.store(false, Ordering::SeqCst);
        lock(&self.now).take()
    }

    pub fn get(&self) -> Option<CatchingUp> {
        lock(&self.now).clone()
    }

    /// All rows were taken.
    pub fn took_rows(&self, taken: RowsTaken) {
        *lock(&self.rows) = Some(taken);
    }

    /// All rows, as they were taken last.
    pub fn rows_taken(&self) -> Option<RowsTaken> {
        lock(&self.rows).clone()
    }

    pub fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst)
    }
}

impl CatchingUp {
    /// What it does, as status names it.
    pub fn stage(&self) -> &'static str {
        match self.stage {
            Stage::Rows if self.source.is_none() => "looking for rows",
            Stage::Rows => "taking rows",
            Stage::Opening => "opening",
            Stage::Entries => "taking entries",
        }
    }
}
