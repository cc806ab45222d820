//! Latencies in buckets that grow by half and by a third, so that each bound is 1 or 1.5 times a
//! power of two.
//!
//! A percentile read from it is right to within a factor of 1.5, which tells a commit of a
//! millisecond from one of two; recording is one atomic addition.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bounds from 2 microseconds to 2^26, a minute; what takes longer is in the last bucket.
const BUCKETS: usize = 51;

/// How often what took how long.
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    /// Of all durations, in microseconds.
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }
}

/// A histogram at one moment.
pub(crate) struct Snapshot {
    /// Upper bound in seconds, and how many lie at or below it.
    pub cumulative: Vec<(f64, u64)>,
    pub count: u64,
    pub sum_seconds: f64,
}

/// The upper bound of a bucket, in microseconds.
fn bound(bucket: usize) -> u64 {
    let power = 2 << (bucket / 2);
    if bucket.is_multiple_of(2) { power } else { power + power / 2 }
}

/// The first bucket whose bound is not below.
fn bucket(micros: u64) -> usize {
    if micros <= 2 {
        return 0;
    }
    // Between this power of two and the next.
    let power = (micros - 1).ilog2() as usize;
    let above_half = micros > bound(2 * power - 1);
    (2 * power - usize::from(!above_half)).min(BUCKETS - 1)
}

impl Histogram {
    /// `times` times something took this long.
    pub fn record(&self, took: Duration, times: u64) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros)].fetch_add(times, Ordering::Relaxed);
        self.sum.fetch_add(micros.saturating_mul(times), Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> Snapshot {
        let mut count = 0;
        let mut cumulative = Vec::with_capacity(BUCKETS);
        for (at, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Ordering::Relaxed);
            cumulative.push((bound(at) as f64 / 1e6, count));
        }
        Snapshot { cumulative, count, sum_seconds: self.sum.load(Ordering::Relaxed) as f64 / 1e6 }
    }
}

impl Snapshot {
    /// The bound, in seconds, that this share of all lies at or below; 0 if there were none.
    pub fn percentile(&self, share: f64) -> f64 {
        let wanted = (share * self.count as f64).ceil() as u64;
        let found = self.cumulative.iter().find(|(_, count)| *count >= wanted.max(1));
        found.filter(|_| self.count > 0).map_or(0.0, |(bound, _)| *bound)
    }

    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_seconds / self.count as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_the_first_whose_bound_is_not_below() {
        let near = (0..40)
            .flat_map(|power| (-2..=2).map(move |off| ((1_i64 << power) + off).max(0) as u64));
        for micros in (0..5000).chain(near).chain([u64::MAX]) {
            let slow =
                (0..BUCKETS - 1).find(|bucket| micros <= bound(*bucket)).unwrap_or(BUCKETS - 1);
            assert_eq!(bucket(micros), slow, "{micros}");
        }
        assert!((1..BUCKETS).all(|at| bound(at - 1) < bound(at)));
    }

    #[test]
    fn percentiles_are_right_to_a_factor_of_one_and_a_half() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.record(Duration::from_micros(micros), 1));
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count, snapshot.mean()), (1000, 500.5e-6));
        for share in [0.1, 0.5, 0.99] {
            let ratio = snapshot.percentile(share) / (share * 1e-3);
            assert!((1.0..=1.5).contains(&ratio), "{share}: {ratio}");
        }
        assert_eq!(Histogram::default().snapshot().percentile(0.5), 0.0);
    }
}
