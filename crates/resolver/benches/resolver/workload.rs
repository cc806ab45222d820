//! The workloads, and the transactions that they consist of.
//!
//! Keys are sixteen bytes long and agree in the first nine, as those of a table do; each
//! transaction has a key of its own in both sets besides, as clients add it that want to know
//! whether they were committed.

use plinth_types::{Conflicts, Version, system};

/// Keys there are.
const KEYS: u64 = 4_000_000;

/// Versions that pass with each transaction: 50,000 transactions a second.
const VERSIONS_PER_TRANSACTION: Version = 20;

/// One kind of load. Counts of reads and writes are those of one transaction.
#[derive(Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    /// Transactions in all, and in each batch.
    pub total: usize,
    pub transactions: usize,
    pub points: Mix,
    pub ranges: Mix,
    /// One transaction in so many has the range reads.
    pub range_reads_every: usize,
    /// How many keys a range spans.
    pub width: u64,
    /// How many batches the read version lies behind.
    pub age: usize,
}

/// Reads and writes of one kind.
#[derive(Clone, Copy)]
pub struct Mix {
    reads: usize,
    writes: usize,
}

const fn mix(reads: usize, writes: usize) -> Mix {
    Mix { reads, writes }
}

const USUAL: Workload = Workload {
    name: "",
    total: 500_000,
    transactions: 250,
    points: mix(0, 10),
    ranges: mix(0, 0),
    range_reads_every: 1,
    width: 100,
    age: 3,
};

/// All of them.
pub const WORKLOADS: [Workload; 16] = [
    Workload { name: "10 blind writes, batches of 50", transactions: 50, ..USUAL },
    Workload { name: "10 blind writes", ..USUAL },
    Workload { name: "10 blind writes, batches of 1000", transactions: 1000, ..USUAL },
    Workload { name: "10 reads, 10 writes", points: mix(10, 10), ..USUAL },
    Workload { name: "100 reads, 1 write", points: mix(100, 1), total: 100_000, ..USUAL },
    Workload { name: "10 reads a second old, 10 writes", points: mix(10, 10), age: 200, ..USUAL },
    Workload { name: "10 reads 4.9 s old, 10 writes", points: mix(10, 10), age: 980, ..USUAL },
    Workload { name: "1 range read, 10 writes", ranges: mix(1, 0), ..USUAL },
    Workload {
        name: "the same, every 250th transaction",
        ranges: mix(1, 0),
        range_reads_every: 250,
        ..USUAL
    },
    Workload {
        name: "every 250th, 4.9 s old",
        ranges: mix(1, 0),
        range_reads_every: 250,
        age: 980,
        ..USUAL
    },
    Workload { name: "10 range reads, 10 writes", ranges: mix(10, 0), total: 250_000, ..USUAL },
    Workload {
        name: "10 wide range reads, 1 write",
        points: mix(0, 1),
        ranges: mix(10, 0),
        width: 4000,
        total: 250_000,
        ..USUAL
    },
    Workload { name: "1 range write, 10 writes", ranges: mix(0, 1), ..USUAL },
    Workload {
        name: "10 reads, 10 writes, 1 range write",
        points: mix(10, 10),
        ranges: mix(0, 1),
        ..USUAL
    },
    Workload {
        name: "10 range writes",
        points: mix(0, 0),
        ranges: mix(0, 10),
        total: 250_000,
        ..USUAL
    },
    Workload {
        name: "10 of each",
        points: mix(10, 10),
        ranges: mix(10, 10),
        total: 150_000,
        ..USUAL
    },
];

impl Workload {
    /// The same, small enough for a test.
    pub fn small(&self) -> Self {
        Self { total: 400, transactions: self.transactions.min(20), age: self.age.min(15), ..*self }
    }

    pub fn batches(&self) -> usize {
        self.total / self.transactions
    }

    /// Reads and writes of one transaction, its self-conflict key in both.
    pub fn operations(&self) -> f64 {
        let range_reads = self.ranges.reads as f64 / self.range_reads_every as f64;
        (self.points.reads + self.points.writes + self.ranges.writes + 2) as f64 + range_reads
    }
}

/// The batches of a workload.
pub struct Stream<'a> {
    workload: &'a Workload,
    random: u64,
    version: Version,
}

impl<'a> Stream<'a> {
    pub fn new(workload: &'a Workload) -> Self {
        Self { workload, random: 1, version: 0 }
    }

    /// The next batch and its version.
    pub fn next(&mut self) -> (Version, Vec<Conflicts>) {
        let step = VERSIONS_PER_TRANSACTION * self.workload.transactions as Version;
        let read_version = (self.version - step * (self.workload.age as Version - 1)).max(0);
        self.version += step;
        let count = self.workload.transactions;
        (
            self.version,
            (0..count).map(|position| self.transaction(read_version, position)).collect(),
        )
    }

    fn transaction(&mut self, read_version: Version, position: usize) -> Conflicts {
        let Workload { points, ranges, range_reads_every, width, .. } = *self.workload;
        let mut conflicts = Conflicts { read_version, ..Conflicts::default() };
        for (list, points) in
            [(&mut conflicts.reads, points.reads), (&mut conflicts.writes, points.writes)]
        {
            (0..points).for_each(|_| list.push_single(&key(self.random() % KEYS)));
        }
        let range_reads = if position.is_multiple_of(range_reads_every) { ranges.reads } else { 0 };
        for (list, ranges) in
            [(&mut conflicts.reads, range_reads), (&mut conflicts.writes, ranges.writes)]
        {
            for _ in 0..ranges {
                let begin = self.random() % KEYS;
                list.push(&key(begin), &key(begin + width));
            }
        }
        let id = [self.random().to_be_bytes(), self.random().to_be_bytes()].concat();
        let own = [system::SELF_CONFLICT_PREFIX, &id].concat();
        conflicts.reads.push_single(&own);
        conflicts.writes.push_single(&own);
        conflicts
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}

/// The sixteen bytes of a row's key.
fn key(number: u64) -> [u8; 16] {
    let mut key = *b"row-000000000000";
    let mut rest = number;
    for digit in key.iter_mut().rev().take(12) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}
