//! The controller: from how full the node's queues are to how many transactions may begin.
//!
//! ```text
//!   queue    0 ............ target - spring ............ target ........ limit
//!   rate          free                |  as many as end ×  1/(0.5+x)  |  less and less
//! ```
//!
//! Below the spring nothing is limited. In it, x grows from 0 to 1 and the rate is what the node
//! has been seen to bear, times something above 1 at first and below 1 at the end: so a queue
//! settles in the middle of its spring, at full throughput. Batch transactions have targets of half
//! the size, and so give way first. A limit halves at most and grows by a seventh at most from look
//! to look; up to half of what the node has borne lately it doubles, so that a pause of the disk
//! costs little more than itself.
//!
//! Versions in the window leave it when they are old enough, whatever is done about the rate: a
//! queue that answers seconds late. A rate that followed it would be next to nothing until a burst
//! has left, all at once, and let in the next burst then. So what the window holds nobody back
//! below is the rate at which it would fill three quarters of its target, by what the transactions
//! of the last second have left there: readers leave nothing, and needn't wait for what others
//! wrote before.
//!
//! Rows that near the bound of their memory hold batch transactions back first, then default ones,
//! but not below a rate at which readers and those who clear can live: at the bound itself it is
//! the commits that are refused (`room.rs`).
//!
//! Where there is a bound at which commits have to wait (the memory that an engine has for its
//! window, or the small tables that may wait to be merged before nothing is flushed any more), the
//! target lies before it. Behind such a bound the log's queue grows too; the cause that is told is
//! the one that came first.

use std::collections::VecDeque;
use std::time::Duration;

/// How full things are, and what is done. All counts only grow.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Gauges {
    /// Bytes of transactions that wait for the log.
    pub queue_bytes: u64,
    /// Bytes of older versions in memory.
    pub window_bytes: u64,
    /// The same as a share of the memory that the engine has for them: from 1 on commits wait for
    /// room.
    pub fullness: f64,
    /// How much the engine has yet to merge, as a share of what may wait: from 1 on it flushes no
    /// more.
    pub backlog: f64,
    /// What rows take in memory, as a share of what they may take: from 1 on none are written any
    /// more.
    pub rows: f64,
    /// The part of what the log may take of the disk that it has taken: from 1 on commits that
    /// write rows wait for room.
    pub disk: f64,
    /// Transactions begun so far.
    pub started: u64,
    /// Bytes committed so far.
    pub written: u64,
    /// Transactions that are held back, not counting those that wait for a tag.
    pub waiting: u64,
}

/// What the queues are allowed to be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Targets {
    pub queue_bytes: u64,
    pub window_bytes: u64,
    /// How long a version stays in the window.
    pub window: Duration,
}

/// What limits the rate, with FoundationDB's numbers and names.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Reason {
    /// Nothing but what clients ask for.
    #[default]
    Workload,
    /// The log can't write as fast as commits come.
    LogQueue,
    /// Older versions take more memory than they may.
    Window,
    /// Tables are made faster than they can be merged.
    Backlog,
    /// Rows take nearly all the memory that they may take.
    Room,
    /// The disk is nearly full.
    Disk,
}

impl Reason {
    pub fn id(self) -> u32 {
        match self {
            Self::Workload => 0,
            Self::Window => 1,
            Self::LogQueue => 5,
            Self::Room | Self::Disk => 6,
            Self::Backlog => 10,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Workload => "workload",
            Self::Window => "storage_server_write_queue_size",
            Self::LogQueue => "log_server_write_queue",
            Self::Backlog => "storage_server_durability_lag",
            Self::Room | Self::Disk => "storage_server_min_free_space",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::Workload => "The database is not being saturated by the workload.",
            Self::Window => "Older versions of rows take as much memory as they may.",
            Self::LogQueue => "Commits wait for the log: the disk is as busy as it can be.",
            Self::Backlog => {
                "The storage lags behind: tables are written faster than the disk can merge them."
            }
            Self::Disk => "Running out of space: the disk is nearly full.",
            Self::Room => {
                "Running out of space: rows take nearly all the memory that they may take."
            }
        }
    }
}

/// How many transactions may begin in a second, by priority. Infinite: as many as like to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Limits {
    pub default: f64,
    pub batch: f64,
    pub reason: Reason,
    pub batch_reason: Reason,
    /// Transactions begun in a second, lately.
    pub released: f64,
}

impl Default for Limits {
    fn default() -> Self {
        let (reason, batch_reason) = (Reason::Workload, Reason::Workload);
        Self { default: f64::INFINITY, batch: f64::INFINITY, reason, batch_reason, released: 0.0 }
    }
}

impl Limits {
    pub fn is_limited(&self) -> bool {
        self.default.is_finite() || self.batch.is_finite()
    }
}

/// The part of a target in which the rate is being adjusted.
const SPRING: f64 = 0.5;
/// How much may have yet to be merged, as a share of the bound. A few tables are always there.
const BACKLOG: f64 = 0.9;
/// The part of that target in which the rate is being adjusted.
const BACKLOG_SPRING: f64 = 0.25;
/// From here on commits wait for room now and then.
const FULL: f64 = 0.9;
/// How much of the rate seen lately a new look at it counts for.
const SMOOTHING: f64 = 0.3;
/// The part of the window's target that a rate held for long is to fill.
const WINDOW_FILL: f64 = 1.0 - SPRING / 2.0;
/// What transactions leave in the window is what those of this time left.
const LATELY: Duration = Duration::from_secs(1);
/// How long ago the node began, at the first look.
const FIRST: Duration = Duration::from_millis(100);
/// Nobody is held back below this many a second, or a node that stood still could never begin
/// again.
const LEAST: f64 = 10.0;
/// How much of the disk that there is for it the log may have taken. It is let go of long before.
const DISK: f64 = 0.95;
/// From this share of the memory for rows on transactions begin more slowly: batch, default.
const ROOM: [f64; 2] = [0.85, 0.95];
/// How far beyond that they are as slow as the rate has it.
const ROOM_SPRING: f64 = 0.05;
/// What rows that near their bound never hold anybody back below, in transactions a second.
const ROOM_LEAST: f64 = 1000.0;
/// Batch transactions are held back whole below this share of the default rate.
const BATCH_LEAST: f64 = 0.01;

/// How much a limit falls and grows at most from one look to the next. Without this, those who were
/// held back would all begin at once at the first look that finds a queue empty, and nobody after
/// the next.
const FALL: f64 = 0.5;
const GROW: f64 = 1.15;
/// How much it grows on the way back to half of what the node has borne. A disk that pauses for
/// half a second has its queue full all that while, so the limit falls to a thirtieth; the disk is
/// as fast as before when it goes on, and would idle for two seconds.
const RECOVER: f64 = 2.0;
/// What is left, at the next look, of what the node has borne: half of it after three and a half
/// seconds.
const BORNE: f64 = 0.98;
/// Nothing is limited any more once nobody waits and the limit is so many times what is asked for.
const FREE: f64 = 2.0;

pub(crate) struct Controller {
    targets: Targets,
    /// The limits of the look before: default, batch.
    held: [f64; 2],
    /// Transactions begun in a second: lately, and since the look before.
    rate: f64,
    latest: f64,
    /// The highest rate of the last seconds, fading.
    borne: f64,
    /// The looks whose versions are in the window, the oldest first.
    looks: VecDeque<Look>,
}

/// What had been done when it was looked.
#[derive(Clone, Copy, Default)]
struct Look {
    at: Duration,
    started: u64,
    written: u64,
}

impl Controller {
    pub fn new(targets: Targets) -> Self {
        Self {
            targets,
            held: [f64::INFINITY; 2],
            rate: 0.0,
            latest: 0.0,
            borne: 0.0,
            looks: VecDeque::new(),
        }
    }

    /// The limits for the time until the next look.
    pub fn look(&mut self, gauges: Gauges, now: Duration) -> Limits {
        let first = Look { at: now.saturating_sub(FIRST), ..Look::default() };
        let last = *self.looks.back().unwrap_or(&first);
        let seconds = now.saturating_sub(last.at).as_secs_f64().max(1e-3);
        self.latest = gauges.started.saturating_sub(last.started) as f64 / seconds;
        self.rate += SMOOTHING * (self.latest - self.rate);
        self.borne = self.rate.max(self.borne * BORNE);
        let begin = now.saturating_sub(self.targets.window);
        while self.looks.front().is_some_and(|look| look.at < begin) {
            self.looks.pop_front();
        }
        let (default, reason) = self.limit(gauges, 1.0);
        let (batch, batch_reason) = self.limit(gauges, 0.5);
        let (default, batch) = (self.settle(0, default, gauges), self.settle(1, batch, gauges));
        let mut batch = batch.min(default);
        if default.is_finite() && batch < BATCH_LEAST * default {
            batch = 0.0;
        }
        assert!(batch <= default, "batch transactions give way first: {batch}, {default}");
        self.looks.push_back(Look { at: now, started: gauges.started, written: gauges.written });
        Limits { default, batch, reason, batch_reason, released: self.rate }
    }

    /// The limit to hold until the next look, on the way to the one that is wanted.
    fn settle(&mut self, which: usize, wanted: f64, gauges: Gauges) -> f64 {
        let held = self.held[which];
        let next = if held.is_infinite() {
            // What came all at once is no rate yet, but more than what came before.
            wanted.max(self.rate.max(self.latest) * FALL)
        } else {
            let careful = held * GROW;
            let most = careful.max((held * RECOVER).min(self.borne / 2.0));
            wanted.clamp(held * FALL, most).max(LEAST)
        };
        let is_free =
            wanted.is_infinite() && gauges.waiting == 0 && next > FREE * self.rate.max(LEAST);
        assert!(next > 0.0, "a limit that nothing could leave again");
        self.held[which] = if is_free { f64::INFINITY } else { next };
        self.held[which]
    }

    /// The rate for targets of this share, and for the room that is left.
    fn limit(&self, gauges: Gauges, share: f64) -> (f64, Reason) {
        let (rate, reason) = self.limit_of_disk(gauges, share);
        let worst = (gauges.rows - ROOM[usize::from(share >= 1.0)]) / ROOM_SPRING;
        if worst <= 0.0 {
            return (rate, reason);
        }
        let worst = worst.min(1.0);
        let room = (self.rate / (0.5 + worst * worst)).max(ROOM_LEAST);
        // Whatever else there is: who can't write wants to know why.
        if room <= rate || gauges.rows >= 1.0 {
            (room.min(rate), Reason::Room)
        } else {
            (rate, reason)
        }
    }

    /// The rate for targets of this share, and for the disk that is left to the log. Whoever waits
    /// for the disk fills the queue of commits as well: the disk is the cause.
    fn limit_of_disk(&self, gauges: Gauges, share: f64) -> (f64, Reason) {
        let (rate, reason) = self.limit_of_queues(gauges, share);
        let worst =
            ((gauges.disk - DISK * share * (1.0 - SPRING)) / (DISK * share * SPRING)).min(1.5);
        if worst <= 0.0 {
            return (rate, reason);
        }
        let disk = (self.rate / (0.5 + worst * worst)).max(ROOM_LEAST);
        if disk <= rate || gauges.disk >= 1.0 {
            (disk.min(rate), Reason::Disk)
        } else {
            (rate, reason)
        }
    }

    /// The rate for targets of this share.
    fn limit_of_queues(&self, gauges: Gauges, share: f64) -> (f64, Reason) {
        let pressure = |amount: f64, target: f64, spring: f64| {
            let target = target * share;
            (amount - target * (1.0 - spring)) / (target * spring)
        };
        let bytes =
            |bytes: u64, target: u64| pressure(bytes as f64, (target as f64).max(2.0), SPRING);
        let log = bytes(gauges.queue_bytes, self.targets.queue_bytes);
        let window = bytes(gauges.window_bytes, self.targets.window_bytes);
        let backlog = pressure(gauges.backlog, BACKLOG, BACKLOG_SPRING);
        // What isn't merged fills the window, and a window that is full fills the queue: what came
        // first is the cause.
        let others = log.max(backlog);
        let worst = others.max(window);
        let reason = match () {
            () if worst <= 0.0 => return (f64::INFINITY, Reason::Workload),
            () if backlog >= 1.0 || backlog >= worst => Reason::Backlog,
            () if gauges.fullness >= FULL || window >= worst => Reason::Window,
            () => Reason::LogQueue,
        };
        let rate = |pressure: f64| {
            if pressure <= 0.0 { f64::INFINITY } else { self.rate / (0.5 + pressure * pressure) }
        };
        let window = rate(window).max(self.window_bears(gauges) * share);
        (rate(others).min(window).max(LEAST), reason)
    }

    /// The rate at which the window settles below its target, if transactions go on to leave as
    /// much there as those of late.
    fn window_bears(&self, gauges: Gauges) -> f64 {
        let since = |look: &Look| {
            let (begun, written) = (
                gauges.started.saturating_sub(look.started),
                gauges.written.saturating_sub(look.written),
            );
            (begun.max(1) as f64, written as f64)
        };
        let Some(newest) = self.looks.back() else { return 0.0 };
        let lately = newest.at.saturating_sub(LATELY);
        let (whole, late) = (
            self.looks.front().map(since),
            self.looks.iter().find(|look| look.at >= lately).map(since),
        );
        let (Some((begun, written)), Some((begun_late, written_late))) = (whole, late) else {
            return 0.0;
        };
        // What a byte of a commit takes in the window.
        let cost = gauges.window_bytes as f64 / written.max(1.0);
        // Commits that wait for room are not written yet: then what they will leave isn't known.
        let each = if gauges.fullness < FULL {
            written_late / begun_late
        } else {
            (written_late / begun_late).max(written / begun)
        };
        let seconds = self.targets.window.as_secs_f64().max(1e-3);
        WINDOW_FILL * self.targets.window_bytes as f64 / seconds / (each * cost).max(1e-3)
    }
}
