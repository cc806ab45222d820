//! What the client itself costs, over an endpoint that answers everything at once with the same
//! bytes.
//!
//! `cargo bench -p plinth-client` prints nanoseconds for each operation; under `cargo test` each
//! case runs a few times only, to see that it runs. The last column is a hash of results, so that
//! nothing is optimised away.

use plinth_client::endpoint::{Description, Endpoint, ReadVersionReply, ReadVersionRequest};
use plinth_client::{
    Bytes, Database, KeyRange, KeySelector, RangeOptions, RangeResult, Reply, Rows, StreamingMode,
    Version,
};
use plinth_env::{Env, block_on};
use plinth_types::{CommitReply, CommitRequest, KeyList, KeySpace, RangeRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

struct Instant {
    env: Env,
    version: AtomicI64,
    value: Bytes,
    rows: Rows,
}

impl Endpoint for Instant {
    fn env(&self) -> &Env {
        &self.env
    }
    fn read_version(&self, _: ReadVersionRequest) -> Reply<ReadVersionReply> {
        let version = self.version.load(Ordering::Relaxed);
        Reply::ready(Ok(ReadVersionReply { version, metadata_version: None, range_locks: None }))
    }
    fn get_many(&self, _: Version, _: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>> {
        Reply::ready(Ok((0..keys.len()).map(|_| Some(self.value.clone())).collect()))
    }
    fn get_key(&self, _: Version, _: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        Reply::ready(Ok(selector.key.clone()))
    }
    fn get_range(&self, _: Version, _: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        // All rows to a read from the begin, none to one that goes on.
        let rows = if read.begin.key.len() > 3 { Rows::new() } else { self.rows.clone() };
        Reply::ready(Ok(RangeResult { more: !rows.is_empty(), rows, ..RangeResult::default() }))
    }
    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        std::hint::black_box(&request);
        let version = self.version.fetch_add(1, Ordering::Relaxed);
        Reply::ready(Ok(CommitReply::Committed { version, batch_index: 0 }))
    }
    fn watch(&self, _: Bytes, _: Option<Bytes>, version: Version) -> Reply<Version> {
        Reply::ready(Ok(version))
    }
    fn range_size(&self, _: KeyRange) -> Reply<i64> {
        Reply::ready(Ok(0))
    }
    fn split_points(&self, range: KeyRange, _: i64) -> Reply<Vec<Bytes>> {
        Reply::ready(Ok(vec![range.begin, range.end]))
    }
    fn addresses_for_key(&self, _: &[u8]) -> Reply<Vec<String>> {
        Reply::ready(Ok(Vec::new()))
    }
    fn describe(&self) -> Description {
        Description::default()
    }
    fn status_json(&self) -> Reply<String> {
        Reply::ready(Ok("{}".into()))
    }
    fn may_lose_answers(&self) -> bool {
        false
    }
}

/// Sixteen bytes that look random, as the benchmarks' keys do.
fn key(n: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

struct Bench {
    /// Only cases whose name has this in it.
    only: String,
    env: Env,
    db: Database,
    operations: u64,
}

const ROUNDS: u64 = 200;

impl Bench {
    /// Runs `f` and prints what one of the `per_run` operations in it takes.
    fn case(&self, name: &str, per_run: u64, f: impl Fn(&Database, u64) -> u64) {
        if !name.contains(&self.only) {
            return;
        }
        let mut hash = 0u64;
        let mut best = f64::INFINITY;
        // The best of many short rounds: what others do on the machine meanwhile doesn't count.
        let runs = (self.operations / per_run / ROUNDS).max(1);
        for round in 0..ROUNDS {
            let begin = self.env.now();
            for n in 0..runs {
                hash = hash.wrapping_mul(31).wrapping_add(f(&self.db, round * runs + n));
            }
            let taken = (self.env.now() - begin).as_nanos() as f64 / (runs * per_run) as f64;
            best = best.min(taken);
        }
        println!("{name:<44} {best:>8.0} ns  {hash:016x}");
    }
}

fn main() {
    let env = Env::real();
    let mut rows = Rows::builder();
    for n in 0..1000u32 {
        rows.push(format!("key{n:013}").as_bytes(), &[b'v'; 54]);
    }
    let endpoint = Instant {
        env: env.clone(),
        version: AtomicI64::new(1_000_000),
        value: Bytes::from(vec![b'v'; 54]),
        rows: rows.finish(),
    };
    let only =
        std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let bench = Bench {
        only,
        env,
        db: Database::new(Arc::new(endpoint)),
        operations: if is_bench { 400_000 } else { 1 },
    };
    reads(&bench);
    writes(&bench);
    mixed(&bench);
}

fn reads(bench: &Bench) {
    bench.case("create a transaction and drop it", 1, |db, _| {
        db.create_transaction().committed_version().unwrap_or(0) as u64
    });
    bench.case("get, 10 together, a read", 10, |db, n| {
        let tr = db.create_transaction();
        let gets: [_; 10] = std::array::from_fn(|at| tr.get(key(10 * n + at as u64)));
        block_on(async {
            let mut sum = 0;
            for get in gets {
                sum += get.await.map_or(0, |value| value.map_or(0, |value| value.len()));
            }
            sum as u64
        })
    });
    bench.case("get, 10 one after the other, a read", 10, |db, n| {
        let tr = db.create_transaction();
        (0..10)
            .map(|at| {
                tr.get(key(10 * n + at)).wait().map_or(0, |v| v.map_or(0, |v| v.len() as u64))
            })
            .sum()
    });
    bench.case("get, snapshot, 10 together, a read", 10, |db, n| {
        let tr = db.create_transaction();
        let gets: [_; 10] = std::array::from_fn(|at| tr.snapshot().get(key(10 * n + at as u64)));
        gets.into_iter().map(|get| get.wait().map_or(0, |v| v.map_or(0, |v| v.len() as u64))).sum()
    });
    bench.case("get_key", 1, |db, n| {
        let selector = KeySelector::first_greater_or_equal(key(n).to_vec());
        db.create_transaction().get_key(selector).wait().map_or(0, |key| key.len() as u64)
    });
    bench.case("get_range of 1000 rows, exact, a range", 1, |db, _| {
        let range = RangeOptions::from("a".."b").limit(1000).mode(StreamingMode::Exact);
        db.create_transaction().get_range(range).wait().map_or(0, |result| result.rows.len() as u64)
    });
}

fn writes(bench: &Bench) {
    bench.case("set, 1 and commit, a transaction", 1, |db, n| {
        let tr = db.create_transaction();
        tr.set(key(n), [b'v'; 54]);
        tr.commit().wait().map_or(0, |()| tr.committed_version().unwrap_or(0) as u64)
    });
    bench.case("set, 10 and commit, a transaction", 1, |db, n| {
        let tr = db.create_transaction();
        for at in 0..10 {
            tr.set(key(10 * n + at), [b'v'; 54]);
        }
        tr.commit().wait().map_or(0, |()| tr.committed_version().unwrap_or(0) as u64)
    });
    bench.case("set, 10 and commit in transact, a transaction", 1, |db, n| {
        let done = block_on(db.transact(|tr| async move {
            for at in 0..10 {
                tr.set(key(10 * n + at), [b'v'; 54]);
            }
            Ok(n)
        }));
        done.unwrap_or(0)
    });
    bench.case("set, 1000 blind, a write", 1000, |db, n| {
        let tr = db.create_transaction();
        for at in 0..1000 {
            tr.set(key(1000 * n + at), [b'v'; 54]);
        }
        0
    });
}

fn mixed(bench: &Bench) {
    bench.case("9 get, 1 set, commit, a transaction", 1, |db, n| {
        let tr = db.create_transaction();
        let gets: [_; 9] = std::array::from_fn(|at| tr.get(key(10 * n + at as u64)));
        let sum: u64 = gets
            .into_iter()
            .map(|get| get.wait().map_or(0, |v| v.map_or(0, |v| v.len() as u64)))
            .sum();
        tr.set(key(n), [b'v'; 54]);
        sum + tr.commit().wait().map_or(0, |()| 1)
    });
    bench.case("10 set, then 10 get of them, a get", 10, |db, n| {
        let tr = db.create_transaction();
        for at in 0..10 {
            tr.set(key(10 * n + at), [b'v'; 54]);
        }
        (0..10)
            .map(|at| {
                tr.get(key(10 * n + at)).wait().map_or(0, |v| v.map_or(0, |v| v.len() as u64))
            })
            .sum()
    });
    bench.case("get_range of 1000 rows, 1 own write in it, a row", 1000, |db, _| {
        let tr = db.create_transaction();
        tr.set("key0000000000500", "own");
        let range = RangeOptions::from("key".."kez").limit(1000).mode(StreamingMode::Exact);
        tr.get_range(range).wait().map_or(0, |result| result.rows.len() as u64)
    });
}
