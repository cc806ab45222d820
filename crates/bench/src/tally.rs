//! What the clients of one thread counted, and what all of them together measured.
//!
//! A transaction counts if it ended between the end of the warm-up and the deadline, so the rate is
//! the count over exactly that time, whatever is still under way at its edges.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest latency told apart from longer ones.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// One thread's counts.
#[derive(Clone, PartialEq, Debug)]
pub struct Tally {
    /// Transactions that succeeded.
    pub transactions: u64,
    /// Their operations: reads, writes or keys.
    pub operations: u64,
    /// Attempts that failed with an error that allows another.
    pub retries: u64,
    /// Of everything read, so that no read can be optimised away.
    pub hash: u64,
    /// Operations by slice of time, where asked for.
    pub slices: Vec<u64>,
    /// Each client's transactions, in no order.
    pub of_clients: Vec<u64>,
    latencies: Histogram<u64>,
}

impl Tally {
    /// Nothing yet, with so many slices of time.
    pub fn new(slices: usize) -> Self {
        let latencies = Histogram::new_with_bounds(1, LATENCY_MAX.as_nanos() as u64, 3)
            .expect("the bounds above are in order and the precision is one it has");
        Self {
            transactions: 0,
            operations: 0,
            retries: 0,
            hash: 0,
            slices: vec![0; slices],
            of_clients: Vec::new(),
            latencies,
        }
    }

    /// Counts a transaction.
    #[inline]
    pub fn record(&mut self, latency: Duration, operations: u64) {
        self.transactions += 1;
        self.operations += operations;
        self.latencies.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds another's counts; slices are added one by one, and its clients are others than these.
    pub fn add(&mut self, other: &Self) {
        self.transactions += other.transactions;
        self.operations += other.operations;
        self.retries += other.retries;
        self.hash ^= other.hash;
        for (slice, more) in self.slices.iter_mut().zip(&other.slices) {
            *slice += more;
        }
        self.of_clients.extend_from_slice(&other.of_clients);
        let _same_bounds = self.latencies.add(&other.latencies);
    }

    /// What the slowest tenth of the clients got each, as a part of what the median client got;
    /// `None` below ten clients, or if the median got nothing.
    pub fn fairness(&self) -> Option<f64> {
        let mut clients = self.of_clients.clone();
        clients.sort_unstable();
        let slowest = clients.get(..clients.len() / 10).filter(|slowest| !slowest.is_empty())?;
        let mean = slowest.iter().sum::<u64>() as f64 / slowest.len() as f64;
        let median = clients[clients.len() / 2] as f64;
        (median > 0.0).then(|| mean / median)
    }

    /// How long transactions took.
    pub fn latency(&self) -> Latency {
        let at = |quantile| Duration::from_nanos(self.latencies.value_at_quantile(quantile));
        Latency {
            mean: Duration::from_nanos(self.latencies.mean() as u64),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: Duration::from_nanos(self.latencies.max()),
        }
    }
}

/// How long transactions took, from their begin to the end of their commit, retries included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// The mean.
    pub mean: Duration,
    /// Half were faster.
    pub p50: Duration,
    /// 90 in 100 were faster.
    pub p90: Duration,
    /// 99 in 100 were faster.
    pub p99: Duration,
    /// 999 in 1000 were faster.
    pub p999: Duration,
    /// The slowest.
    pub max: Duration,
}

impl Latency {
    /// For the report, in microseconds.
    pub fn to_json(self) -> Value {
        let micros = |duration: Duration| duration.as_nanos() as f64 / 1e3;
        json!({
            "mean_us": micros(self.mean),
            "p50_us": micros(self.p50),
            "p90_us": micros(self.p90),
            "p99_us": micros(self.p99),
            "p999_us": micros(self.p999),
            "max_us": micros(self.max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let mut sum = Tally::new(2);
        for micros in 1..=100 {
            let mut one = Tally::new(2);
            one.record(Duration::from_micros(micros), 10);
            one.slices[1] = micros;
            one.hash = micros;
            sum.add(&one);
        }
        assert_eq!((sum.transactions, sum.operations, sum.retries), (100, 1_000, 0));
        assert_eq!(sum.slices, [0, 5_050]);
        let latency = sum.latency();
        let about =
            |duration: Duration, micros: f64| (duration.as_secs_f64() * 1e6 - micros).abs() < 0.1;
        assert!(
            about(latency.mean, 50.5) && about(latency.p50, 50.0) && about(latency.p99, 99.0),
            "{latency:?}"
        );
        assert!(about(latency.max, 100.0), "{latency:?}");
    }

    #[test]
    fn fairness_holds_the_slowest_tenth_against_the_median() {
        let tally = |of_clients: &[u64]| Tally { of_clients: of_clients.to_vec(), ..Tally::new(0) };
        let mut clients = vec![100; 18];
        clients.extend([10, 50]);
        assert_eq!(tally(&clients).fairness(), Some(0.3));
        assert_eq!(tally(&[7; 40]).fairness(), Some(1.0));
        assert_eq!((tally(&[7; 9]).fairness(), tally(&[0; 20]).fairness()), (None, None));
        let mut sum = tally(&clients);
        sum.add(&tally(&[100; 20]));
        assert_eq!(sum.fairness(), Some((10.0 + 50.0 + 200.0) / 400.0));
    }
}
