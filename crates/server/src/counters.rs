//! What a server counts: requests by kind, bytes, connections.
//!
//! A connection counts in numbers of its own while it handles what arrived, and adds them here
//! once, so that cores don't fight over a counter for each request.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers, as of one moment. Totals since the start, but for `connections`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// Open connections.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused: too many, or no common version.
    pub refused: u64,
    /// Connections with which TLS came to nothing.
    pub tls_failures: u64,
    /// Connections cut off because they held the most while memory was short.
    pub cut_off: u64,
    /// Requests of all kinds.
    pub requests: u64,
    /// Requests for read versions.
    pub read_versions: u64,
    /// Transactions that they were for.
    pub transactions: u64,
    /// Keys of point reads, and selectors.
    pub reads: u64,
    /// Range reads.
    pub ranges: u64,
    /// Rows that they gave.
    pub rows: u64,
    /// Commits.
    pub commits: u64,
    /// Requests answered with an error.
    pub failures: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl Figures {
    fn fields(&self) -> [u64; FIELDS] {
        let Self { connections: _, accepted, refused, tls_failures, cut_off, requests, .. } = *self;
        let Self { read_versions, transactions, reads, ranges, rows, .. } = *self;
        let Self { commits, failures, bytes_in, bytes_out, .. } = *self;
        [
            accepted,
            refused,
            tls_failures,
            cut_off,
            requests,
            read_versions,
            transactions,
            reads,
            ranges,
            rows,
            commits,
            failures,
            bytes_in,
            bytes_out,
        ]
    }

    fn of_fields(fields: [u64; FIELDS], connections: u64) -> Self {
        let [accepted, refused, tls_failures, cut_off, requests, read_versions, rest @ ..] = fields;
        let [transactions, reads, ranges, rows, commits, failures, bytes_in, bytes_out] = rest;
        Self {
            connections,
            accepted,
            refused,
            tls_failures,
            cut_off,
            requests,
            read_versions,
            transactions,
            reads,
            ranges,
            rows,
            commits,
            failures,
            bytes_in,
            bytes_out,
        }
    }
}

const FIELDS: usize = 14;

/// The totals. Relaxed: they order nothing.
#[derive(Default)]
pub(crate) struct Counters([AtomicU64; FIELDS]);

impl Counters {
    /// Adds what was counted elsewhere.
    pub(crate) fn add(&self, figures: &Figures) {
        for (total, more) in self.0.iter().zip(figures.fields()) {
            if more > 0 {
                total.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn figures(&self, connections: usize) -> Figures {
        let fields = std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed));
        Figures::of_fields(fields, connections as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_what_is_read_each_in_its_place() {
        // Every figure another number, so that no two can be mistaken for each other.
        let numbers = |times: u64, connections| Figures {
            connections,
            accepted: times,
            refused: 2 * times,
            requests: 3 * times,
            read_versions: 4 * times,
            transactions: 5 * times,
            reads: 6 * times,
            ranges: 7 * times,
            rows: 8 * times,
            commits: 9 * times,
            failures: 10 * times,
            bytes_in: 11 * times,
            bytes_out: 12 * times,
            tls_failures: 13 * times,
            cut_off: 14 * times,
        };
        let counters = Counters::default();
        counters.add(&numbers(1, 0));
        counters.add(&numbers(1, 0));
        assert_eq!(counters.figures(3), numbers(2, 3));
    }
}
