//! How fast conflicts are detected: `cargo bench -p plinth-resolver [-- PART-OF-A-NAME]`.
//!
//! Each workload is a stream of batches at 50,000 transactions a second of the database's clock, with the window
//! following five seconds behind. Only the resolver's calls are timed. Beside it stands an ordered map of all writes, as
//! others do it, on the first batches of the same stream; both must give the same verdicts. Figures are the best of three
//! runs. The last column is a hash of all verdicts: it changes when, and only when, verdicts do.
//!
//! `cargo test` runs everything in small, so that this can't rot.
#![expect(clippy::disallowed_methods, reason = "times the real resolver, never runs in simulation")]

mod ordered_map;
mod workload;

use ordered_map::OrderedMap;
use plinth_resolver::{Resolver, Transaction, Verdict};
use plinth_types::limits::WINDOW_VERSIONS;
use std::time::{Duration, Instant};
use workload::{Stream, WORKLOADS, Workload};

/// How many transactions the ordered map gets.
const MAP_TRANSACTIONS: usize = 50_000;

/// What one run of a workload showed.
struct Run {
    time: Duration,
    slowest_batch: Duration,
    slowest_forget: Duration,
    map_time: Duration,
    map_transactions: usize,
    memory: usize,
    commits: usize,
    hash: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let small = !arguments.iter().any(|argument| argument == "--bench");
    let wanted = arguments.iter().find(|argument| !argument.starts_with('-')).map_or("", String::as_str);
    println!(
        "{:38} {:>8} {:>8} {:>7} {:>8} {:>8} {:>8} {:>7} {:>8}  verdicts",
        "", "ktx/s", "M op/s", "ns/op", "map", "batch", "forget", "memory", "commits"
    );
    for workload in WORKLOADS.iter().filter(|workload| workload.name.contains(wanted)) {
        let (workload, runs) = if small { (workload.small(), 1) } else { (*workload, 3) };
        let runs: Vec<Run> = (0..runs).map(|_| run(&workload)).collect();
        print(&workload, &runs);
    }
}

fn run(workload: &Workload) -> Run {
    let (mut resolver, mut map) = (Resolver::new(0), OrderedMap::new());
    let mut stream = Stream::new(workload);
    let mut result = Run {
        time: Duration::ZERO,
        slowest_batch: Duration::ZERO,
        slowest_forget: Duration::ZERO,
        map_time: Duration::ZERO,
        map_transactions: 0,
        memory: 0,
        commits: 0,
        hash: 0,
    };
    let (mut verdicts, mut map_verdicts) = (Vec::new(), Vec::new());
    for batch in 0..workload.batches() {
        let (version, transactions) = stream.next();
        let batch_of = |conflicts| Transaction { conflicts, report: false };
        let requests: Vec<_> = transactions.iter().map(batch_of).collect();
        let began = Instant::now();
        resolver.resolve(version, &requests, &mut verdicts);
        let resolved = began.elapsed();
        resolver.forget_before(version - WINDOW_VERSIONS);
        let forgot = began.elapsed() - resolved;
        result.time += resolved + forgot;
        result.slowest_batch = result.slowest_batch.max(resolved);
        result.slowest_forget = result.slowest_forget.max(forgot);
        result.memory = result.memory.max(resolver.memory());
        for verdict in &verdicts {
            result.commits += usize::from(*verdict == Verdict::Commit);
            result.hash =
                (result.hash ^ u64::from(*verdict == Verdict::Commit)).wrapping_mul(0x100_0000_01b3);
        }
        if batch * workload.transactions < MAP_TRANSACTIONS {
            let began = Instant::now();
            map.resolve(version, &requests, &mut map_verdicts);
            map.forget_before(version - WINDOW_VERSIONS);
            result.map_time += began.elapsed();
            result.map_transactions += requests.len();
            assert!(verdicts == map_verdicts, "{}: batch {version} differs", workload.name);
        }
    }
    result
}

fn print(workload: &Workload, runs: &[Run]) {
    let first = &runs[0];
    assert!(runs.iter().all(|run| run.hash == first.hash), "verdicts are the same in each run");
    let best = |time: fn(&Run) -> Duration| runs.iter().map(time).min().unwrap_or_default();
    let transactions = (workload.batches() * workload.transactions) as f64;
    let operations = transactions * workload.operations();
    let seconds = best(|run| run.time).as_secs_f64();
    let map_operations = first.map_transactions as f64 * workload.operations();
    let map_rate = map_operations / best(|run| run.map_time).as_secs_f64() / 1e6;
    println!(
        "{:38} {:8.0} {:8.2} {:7.0} {:8.2} {:5.2} ms {:5.0} us {:4} MB {:7.1}%  {:016x}",
        workload.name,
        transactions / seconds / 1e3,
        operations / seconds / 1e6,
        seconds * 1e9 / operations,
        map_rate,
        best(|run| run.slowest_batch).as_secs_f64() * 1e3,
        best(|run| run.slowest_forget).as_secs_f64() * 1e6,
        first.memory >> 20,
        first.commits as f64 * 100.0 / transactions,
        first.hash,
    );
}
