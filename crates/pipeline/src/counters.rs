//! What the pipeline counts about itself, for `status` and the benchmarks.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// Totals since the start. Counted per batch, not per read, so that they cost nothing on the read path.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    pub committed: Counter,
    pub conflicted: Counter,
    pub too_old: Counter,
    pub refused: Counter,
    pub batches: Counter,
    pub mutations: Counter,
    pub bytes_written: Counter,
    pub checkpoints: Counter,
}
