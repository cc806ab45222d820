//! The performance article's input into a database in this process: points for a second of
//! processor time, and bytes a point.
//!
//! Rows of ten metrics, a second apart, round robin over hosts, committed every 5 ms to a directory
//! that is synced. The points are made before the clock runs. Bytes a point are counted twice: keys
//! and values of the layer, and the files of a checkpoint, with all that the database adds.
//! `cargo bench -p plinth-series --bench ingest -- [hosts] [steps]`.
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark takes the machine's time and looks at files"
)]

use plinth::{Database, Local, RangeOptions};
use plinth_env::{Env, block_on};
use plinth_series::workload::{self, Random, SEED_METRICS};
use plinth_series::{Error, Points, Series, SeriesStore};
use plinth_types::system::SERIES_PREFIX;
use std::path::Path;
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse().ok());
    let hosts = numbers.next().unwrap_or(if measured { 50 } else { 1 });
    let steps = numbers.next().unwrap_or(if measured { 8000 } else { 300 });

    let env = Env::real();
    let directory =
        block_on(env.files().temporary_dir("series-ingest")).expect("a temporary directory");
    let local = Local::open(directory.path()).expect("a new database");
    let db = local.database();
    let store = block_on(SeriesStore::open(db)).expect("no series yet");
    let (series, points) = generate(&store, hosts, steps);
    let count = series.len() * steps;

    let (begin, cpu) = (Instant::now(), env.cpu_time());
    for step in 0..steps {
        for (series, points) in series.iter().zip(&points) {
            let point = points.get(step);
            while let Err(error) = series.append(point.time, point.value) {
                assert!(matches!(error, Error::Behind), "{error}");
                block_on(store.sync()).expect("what was appended is committed");
            }
        }
    }
    let appended = env.cpu_time() - cpu;
    block_on(store.sync()).expect("what was appended is committed");
    let (elapsed, cpu) = (begin.elapsed(), env.cpu_time() - cpu);
    let rate = |seconds: f64| count as f64 / seconds / 1e6;
    println!("{count} points of {} series", series.len());
    println!(
        "{:.2} M points/s, {:.2} M for a second of processor time",
        rate(elapsed.as_secs_f64()),
        rate(cpu.as_secs_f64())
    );
    println!("{:.2} M for a second until the last was appended", rate(appended.as_secs_f64()));

    let begin = Instant::now();
    let mut sum = 0.0;
    for series in &series {
        let summary = block_on(series.aggregate(..))
            .expect("a readable series")
            .expect("a series with points");
        assert_eq!(summary.count, steps as u64);
        sum += summary.sum;
    }
    let each = begin.elapsed().as_secs_f64() / series.len() as f64;
    println!("aggregate of a whole series: {:.3} ms (sum of all {sum:e})", each * 1e3);

    let rows = rows(db);
    println!("{:.3} bytes a point in keys and values", rows as f64 / count as f64);
    local.checkpoint().expect("a checkpoint");
    let files = bytes_below(&directory.path().join("gen-1/checkpoint"));
    println!("{:.3} bytes a point in the checkpoint's files", files as f64 / count as f64);
}

fn generate(store: &SeriesStore, hosts: usize, steps: usize) -> (Vec<Series>, Vec<Points>) {
    let mut random = Random::new(1);
    let mut names = Vec::new();
    let mut points = Vec::new();
    for host in 0..hosts {
        for (metric, as_integer) in SEED_METRICS {
            names.push(format!(
                "{metric} OS=Ubuntu_16.04 arch=x64 host=host_{host} instance-type=m4.large rack={} region=us-east-1 team=A",
                host % 10
            ));
            points.push(workload::seed_input(&mut random, steps, as_integer));
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (block_on(store.all_series(&names)).expect("new series"), points)
}

/// Bytes of all keys and values of the layer.
fn rows(db: &Database) -> usize {
    db.clone()
        .with_system_keys()
        .transact_blocking(|tr| {
            let rows = tr.range(RangeOptions::prefix(SERIES_PREFIX)).collect_blocking()?;
            Ok(rows.iter().map(|row| row.key.len() + row.value.len()).sum())
        })
        .expect("readable rows")
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("a directory of the database");
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
}
