//! What the node measures of itself: counts, latencies, and the text in which Prometheus reads
//! them.
//!
//! Everything here is written by the paths that it measures, so it must cost next to nothing there:
//! counts on the read path lie in stripes, one to a thread, and only one read in [`SAMPLE`] looks
//! at the clock. No library: the text format has three kinds of lines, and a library's registry
//! would put a lock or a hash on these paths.

mod histogram;
mod hot;
mod rates;
mod striped;
mod waits;

pub(crate) use histogram::{Histogram, Snapshot};
pub(crate) use hot::{Heat, Hot, HotRange, SlowTransaction};
pub(crate) use rates::{Rated, Rates};
pub(crate) use striped::Striped;
pub use waits::LongestWaits;
pub(crate) use waits::Waits;

use plinth_client::Priority;
use plinth_types::RangeResult;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// One read or commit in so many is timed, and a read's bytes are counted for all of them. A prime:
/// whatever pattern reads and commits come in, both are met.
pub(crate) const SAMPLE: u32 = 61;

/// Counts of the read path, by their place in a stripe.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Count {
    StartedBatch,
    StartedDefault,
    StartedImmediate,
    /// Reads: values asked for, selectors, ranges.
    Reads,
    /// Keys read: values asked for, and rows given.
    Keys,
    /// Bytes of keys and values read; of single values an estimate from the sample.
    Bytes,
}

const COUNTS: usize = 6;

/// Measurements of a node.
#[derive(Default)]
pub(crate) struct Metrics {
    reads: Striped<COUNTS>,
    /// From a request to commit to its answer, of a sample.
    pub commit: Histogram,
    /// Commits asked for, for the sample alone; goes round.
    commits: AtomicU32,
    /// A sync of the log.
    pub sync: Histogram,
    /// From a request for a read version to its answer, where it had to wait.
    pub start_wait: Histogram,
    /// A read that memory answered, of the sample.
    pub read: Histogram,
    pub rates: Rates,
    pub hot: Hot,
    pub waits: Waits,
}

thread_local! {
    static TURN: Cell<u32> = const { Cell::new(0) };
}

impl Metrics {
    pub fn add(&self, count: Count, amount: u64) {
        self.reads.add(count as usize, amount);
    }

    pub fn get(&self, count: Count) -> u64 {
        self.reads.get(count as usize)
    }

    /// So many values, or keys that selectors describe, are asked for. Each is a read, as
    /// FoundationDB counts them, however many travel together.
    pub fn read_values(&self, count: usize) {
        self.add(Count::Reads, count as u64);
        self.add(Count::Keys, count as u64);
    }

    /// A range gave these rows.
    pub fn read_rows(&self, result: &RangeResult) {
        self.add(Count::Keys, result.rows.len() as u64);
        self.add(Count::Bytes, result.rows.data_len() as u64);
    }

    /// So many transactions have begun.
    pub fn started(&self, priority: Priority, transactions: u64) {
        let count = match priority {
            Priority::Batch => Count::StartedBatch,
            Priority::Default => Count::StartedDefault,
            Priority::Immediate => Count::StartedImmediate,
        };
        self.add(count, transactions);
    }

    /// All that have been started, whatever their priority.
    pub fn started_all(&self) -> u64 {
        [Count::StartedBatch, Count::StartedDefault, Count::StartedImmediate]
            .into_iter()
            .map(|count| self.get(count))
            .sum()
    }

    /// Whether this commit is one of those that are timed. The answer's way is another then, so it
    /// must be the node's own count that decides: with one that outlives the node, the same seed
    /// would not give the same run.
    pub fn is_sampled_commit(&self) -> bool {
        self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE)
    }

    /// Whether this read is one of those that are timed.
    pub fn is_sampled_read() -> bool {
        TURN.with(|turn| {
            let next = turn.get() + 1;
            turn.set(if next == SAMPLE { 0 } else { next });
            next == SAMPLE
        })
    }

    pub fn note_read(&self, took: Duration) {
        self.read.record(took, 1);
    }
}
