//! What goes wrong on a simulated disk, and how often: [`FaultPlan`].

use std::path::PathBuf;
use std::time::Duration;

/// The kinds of calls that have faults of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CallKind {
    /// Reading from a file.
    Read,
    /// Writing to a file, changing its length.
    Write,
    /// Syncing a file or a directory.
    Sync,
    /// Opening a file, listing a directory, looking whether something exists, taking a lock.
    Open,
    /// Changing names: renaming, removing, making directories.
    Rename,
}

/// How often calls of one kind fail and stall, and how long they take.
#[derive(Clone, PartialEq, Debug)]
pub struct CallFaults {
    /// The probability that a call fails with `io_error`. What it had done by then is open: a
    /// failed write has written a part, a failed rename may have happened, and a failed sync leaves
    /// what it should have synced in an unknown state.
    pub fail: f64,
    /// The probability that a call takes much longer than it should.
    pub stall: f64,
    /// How much longer, at most.
    pub stall_max: Duration,
    /// The shortest time that a call takes.
    pub latency_min: Duration,
    /// The longest time that a call takes unless it stalls.
    pub latency_max: Duration,
}

/// What goes wrong on the disk of a process. Given with
/// [`Simulation::set_faults`](crate::simulated::Simulation::set_faults), at any time; at first
/// nothing goes wrong and calls take about as long as on a good disk.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultPlan {
    /// Reading.
    pub read: CallFaults,
    /// Writing.
    pub write: CallFaults,
    /// Syncing.
    pub sync: CallFaults,
    /// Opening and looking.
    pub open: CallFaults,
    /// Changing names.
    pub rename: CallFaults,
    /// The size of the disk in bytes; writes beyond it fail with "no space left"
    /// ([`IoErrorKind::DiskFull`](crate::IoErrorKind::DiskFull)). `None` for no bounds.
    pub capacity: Option<u64>,
    /// The probability that reading finds a bit turned over, for good, in what it reads.
    pub flip_on_read: f64,
    /// Calls that write, sync or change names in this directory or below it are not answered for as
    /// long as it stands here; what they do, they do before or when they are.
    pub silent: Option<PathBuf>,
    /// A planted bug for tests of tests: syncs say that they succeeded, and do nothing.
    pub skip_sync: bool,
}

impl CallFaults {
    const fn within(latency_min: Duration, latency_max: Duration) -> Self {
        Self { fail: 0.0, stall: 0.0, stall_max: Duration::from_secs(10), latency_min, latency_max }
    }
}

impl Default for FaultPlan {
    fn default() -> Self {
        const fn micros(micros: u64) -> Duration {
            Duration::from_micros(micros)
        }
        Self {
            read: CallFaults::within(micros(5), micros(100)),
            write: CallFaults::within(micros(2), micros(30)),
            sync: CallFaults::within(micros(50), micros(1000)),
            open: CallFaults::within(micros(2), micros(50)),
            rename: CallFaults::within(micros(2), micros(50)),
            capacity: None,
            flip_on_read: 0.0,
            silent: None,
            skip_sync: false,
        }
    }
}

impl FaultPlan {
    /// Every kind of call fails and stalls with these probabilities.
    #[must_use]
    pub fn failing(fail: f64, stall: f64) -> Self {
        let mut plan = Self::default();
        for faults in
            [&mut plan.read, &mut plan.write, &mut plan.sync, &mut plan.open, &mut plan.rename]
        {
            faults.fail = fail;
            faults.stall = stall;
        }
        plan
    }

    /// The faults of a kind of call.
    pub fn of(&self, kind: CallKind) -> &CallFaults {
        match kind {
            CallKind::Read => &self.read,
            CallKind::Write => &self.write,
            CallKind::Sync => &self.sync,
            CallKind::Open => &self.open,
            CallKind::Rename => &self.rename,
        }
    }
}
