//! Commits that were refused: why, how often, and when that began and ended.
//!
//! What is decided about a batch stands in `backpressure.rs`; this is what is remembered of it, for
//! whoever is told and for whoever looks. Bursts are told as one.

use crate::failure::NodeError;
use plinth_env::Burst;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Why commits are held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Cause {
    /// Something broke, and no commit is taken any more.
    Failed,
    /// Rows take all the memory that they may take.
    Memory,
    /// The disk is full.
    Disk,
    /// Older versions take all the memory that they may take.
    Window,
    /// Tables can't be written.
    Tables,
    /// The log can't be appended to, for another cause than a full disk: no file descriptors, a
    /// disk that fails.
    Log,
    /// The disk doesn't answer what the log waits for, and commits wait with it.
    Silent,
    /// A member hears of no leader: without a majority nothing commits, and no read version is
    /// proven.
    NoLeader,
}

impl Cause {
    pub const ALL: [Self; 8] = [
        Self::Failed,
        Self::Memory,
        Self::Disk,
        Self::Window,
        Self::Tables,
        Self::Log,
        Self::Silent,
        Self::NoLeader,
    ];

    /// Its name in `status` and in labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Memory => "memory_full",
            Self::Disk => "disk_full",
            Self::Window => "window_full",
            Self::Tables => "flush_failing",
            Self::Log => "log_failing",
            Self::Silent => "disk_silent",
            Self::NoLeader => "no_leader",
        }
    }
}

/// What is remembered of refusals.
#[derive(Default)]
pub(crate) struct Refusals {
    memory_full: AtomicBool,
    window_full: AtomicBool,
    stuck: AtomicBool,
    crowded: AtomicBool,
    refused: [AtomicU64; Cause::ALL.len()],
    /// Bytes of the last batch that was refused for want of room on the disk, where none that wrote
    /// rows was taken since, and when that was, in milliseconds.
    for_disk: [AtomicU64; 2],
    burst: Burst,
}

/// For how long what was refused for want of room is taken for a sign of what the next one meets.
const LASTING: Duration = Duration::from_secs(10);

impl Refusals {
    /// Commits that were refused for this.
    pub fn refused(&self, cause: Cause) -> u64 {
        self.refused[cause as usize].load(Ordering::Relaxed)
    }

    /// Whether rows took all the memory that they may take, at the last look, or what was
    /// overwritten has taken the last of it and doesn't leave.
    pub fn is_memory_full(&self) -> bool {
        self.memory_full.load(Ordering::Relaxed) || self.stuck.load(Ordering::Relaxed)
    }

    /// Whether rows and what was overwritten lately did, together.
    pub fn is_window_full(&self) -> bool {
        self.window_full.load(Ordering::Relaxed)
    }

    /// Rows take all the memory that they may take, or do not; and together with what was
    /// overwritten lately.
    pub fn set_full(&self, rows: bool, with_window: bool) {
        self.memory_full.store(rows, Ordering::Relaxed);
        self.window_full.store(with_window, Ordering::Relaxed);
        if !with_window {
            self.stuck.store(false, Ordering::Relaxed);
        }
    }

    /// Waiting for what was overwritten was in vain: nobody waits for it again until there is room.
    pub fn set_stuck(&self) {
        self.stuck.store(true, Ordering::Relaxed);
    }

    /// Whether so much was overwritten lately that transactions begin more slowly, if more is.
    pub fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// That it is so, or not.
    pub fn set_crowded(&self, is_crowded: bool) {
        self.crowded.store(is_crowded, Ordering::Relaxed);
    }

    /// Commits were refused: the first of a burst is told at once, how many there were when it is
    /// over.
    pub fn note(&self, cause: Cause, error: &NodeError, refused: u64, now: Duration) {
        self.refused[cause as usize].fetch_add(refused, Ordering::Relaxed);
        if self.burst.note(refused, now) {
            crate::events::refusing(cause.name(), error);
        }
    }

    /// Rows of so many bytes met with a disk that is full for them. It may have room for fewer: so
    /// whoever asks how the node is hears of it for a while.
    pub fn note_disk(&self, bytes: u64, now: Duration) {
        self.for_disk[1].store(now.as_millis() as u64, Ordering::Relaxed);
        self.for_disk[0].store(bytes.max(1), Ordering::Relaxed);
    }

    /// Rows were taken.
    #[inline]
    pub fn note_taken(&self) {
        if self.for_disk[0].load(Ordering::Relaxed) != 0 {
            self.for_disk[0].store(0, Ordering::Relaxed);
        }
    }

    /// Whether the last rows that came were refused for want of room, a moment ago: how many bytes.
    pub fn refused_for_disk(&self, now: Duration) -> Option<u64> {
        let bytes = self.for_disk[0].load(Ordering::Relaxed);
        let at = Duration::from_millis(self.for_disk[1].load(Ordering::Relaxed));
        (bytes != 0 && now < at + LASTING).then_some(bytes)
    }

    /// Tells the end of a burst of refusals. To be called now and then.
    pub fn tick(&self, now: Duration) {
        if let Some(over) = self.burst.over(now) {
            crate::events::refused(over);
        }
    }

    /// Tells the end of a burst, if there is one: the node closes.
    pub fn end(&self) {
        self.burst.end().into_iter().for_each(crate::events::refused);
    }
}
