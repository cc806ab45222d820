//! How fast conflicts are detected: `cargo bench -p plinth-resolver [-- PART-OF-A-NAME]`.
//!
//! Each workload is a stream of batches at 50,000 transactions a second of the database's clock,
//! with the window following five seconds behind. Only the resolver's calls are timed. Beside it
//! stands an ordered map of all writes, as others do it, on the first batches of the same stream;
//! both must give the same verdicts. Each workload runs three times, and of each call the shortest
//! time counts. The last column is a hash of all verdicts: it changes when, and only when, verdicts
//! do.
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

/// What one run of a workload showed, and how long each call took.
#[derive(Default)]
struct Run {
    resolve: Vec<Duration>,
    forget: Vec<Duration>,
    map: Vec<Duration>,
    memory: usize,
    commits: usize,
    hash: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let small = !arguments.iter().any(|argument| argument == "--bench");
    let wanted =
        arguments.iter().find(|argument| !argument.starts_with('-')).map_or("", String::as_str);
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
    let mut result = Run::default();
    let (mut verdicts, mut map_verdicts) = (Vec::new(), Vec::new());
    for batch in 0..workload.batches() {
        let (version, transactions) = stream.next();
        let batch_of = |conflicts| Transaction { conflicts, report: false };
        let requests: Vec<_> = transactions.iter().map(batch_of).collect();
        let began = Instant::now();
        resolver.resolve(version, &requests, &mut verdicts);
        result.resolve.push(began.elapsed());
        let began = Instant::now();
        resolver.forget_before(version - WINDOW_VERSIONS);
        result.forget.push(began.elapsed());
        result.memory = result.memory.max(resolver.memory());
        for verdict in &verdicts {
            result.commits += usize::from(*verdict == Verdict::Commit);
            result.hash = (result.hash ^ u64::from(*verdict == Verdict::Commit))
                .wrapping_mul(0x100_0000_01b3);
        }
        if batch * workload.transactions < MAP_TRANSACTIONS {
            let began = Instant::now();
            map.resolve(version, &requests, &mut map_verdicts);
            map.forget_before(version - WINDOW_VERSIONS);
            result.map.push(began.elapsed());
            assert!(verdicts == map_verdicts, "{}: batch {version} differs", workload.name);
        }
    }
    result
}

/// The shortest time of each call over all runs: they do the same, so what is longer was disturbed.
fn shortest(runs: &[Run], times: fn(&Run) -> &[Duration]) -> Vec<Duration> {
    let calls = 0..times(&runs[0]).len();
    calls.map(|call| runs.iter().map(|run| times(run)[call]).min().unwrap_or_default()).collect()
}

fn print(workload: &Workload, runs: &[Run]) {
    let first = &runs[0];
    assert!(runs.iter().all(|run| run.hash == first.hash), "verdicts are the same in each run");
    let (resolve, forget) = (shortest(runs, |run| &run.resolve), shortest(runs, |run| &run.forget));
    let map = shortest(runs, |run| &run.map);
    let operations = |calls: usize| (calls * workload.transactions) as f64 * workload.operations();
    let seconds = |times: &[Duration]| times.iter().sum::<Duration>().as_secs_f64();
    let slowest =
        |times: &[Duration]| times.iter().max().copied().unwrap_or_default().as_secs_f64();
    let time = seconds(&resolve) + seconds(&forget);
    println!(
        "{:38} {:8.0} {:8.2} {:7.0} {:8.2} {:5.2} ms {:5.0} us {:4} MB {:7.1}%  {:016x}",
        workload.name,
        (resolve.len() * workload.transactions) as f64 / time / 1e3,
        operations(resolve.len()) / time / 1e6,
        time * 1e9 / operations(resolve.len()),
        operations(map.len()) / seconds(&map) / 1e6,
        slowest(&resolve) * 1e3,
        slowest(&forget) * 1e6,
        first.memory >> 20,
        first.commits as f64 * 100.0 / (resolve.len() * workload.transactions) as f64,
        first.hash,
    );
}
