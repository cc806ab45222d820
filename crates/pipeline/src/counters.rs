//! What the pipeline counts about itself, for `status` and the benchmarks.

use crate::metrics::Metrics;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows. Relaxed: it orders nothing.
#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Totals since the start. Counted per batch, so that they cost nothing; what is counted per read
/// is in `metrics`.
#[derive(Default)]
pub(crate) struct Counters {
    pub committed: Counter,
    pub conflicted: Counter,
    pub too_old: Counter,
    pub refused: Counter,
    pub batches: Counter,
    pub mutations: Counter,
    pub bytes_written: Counter,
    pub checkpoints: Counter,
    /// Checkpoints and flushes that could not be written.
    pub checkpoints_failed: Counter,
    /// Bytes of rows that other members were given.
    pub rows_given_bytes: Counter,
    /// Reads, starts and latencies.
    pub metrics: Metrics,
    /// When the node was opened.
    pub opened: Duration,
}

impl Counters {
    /// Of a node that is opened now.
    pub fn beginning(now: Duration) -> Self {
        Self { opened: now, ..Self::default() }
    }
}
