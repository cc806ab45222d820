//! How long a store takes to open, and to answer first, whose owner died with many points in its
//! tail.
//!
//! Series take turns until so many points are in no leaf, which lie in the tail then; nothing is
//! closed but the database, so the next one finds what a process leaves that is killed. Measured is
//! opening the series, then the first answer, about one series, and then one about all.
//! `cargo bench -p plinth-series --bench tail -- [series] [points of each] [points that come together]
//! [parts]`.
#![expect(clippy::disallowed_methods, reason = "a benchmark takes the machine's time")]

use plinth::{Database, Local};
use plinth_env::{Env, block_on};
use plinth_series::workload::Random;
use plinth_series::{Error, Point, Series, SeriesStore, Settings, Value};
use std::path::Path;
use std::time::{Duration, Instant};

/// Names that are made at a time.
const NAMES: usize = 10_000;
/// Points of a series that come together, as those of a sender who gathers some.
const TOGETHER: usize = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse().ok());
    let series = numbers.next().unwrap_or(if measured { 20_000 } else { 50 });
    let each = numbers.next().unwrap_or(if measured { 2_000 } else { 100 });
    let together = numbers.next().unwrap_or(TOGETHER);
    let parts = numbers.next().unwrap_or(1);

    let env = Env::real();
    let directory =
        block_on(env.files().temporary_dir("series-tail")).expect("a temporary directory");
    let begin = Instant::now();
    fill(directory.path(), (series, each, together), parts);
    println!("{} points of {series} series, written in {:.1?}", series * each, begin.elapsed());

    let begin = Instant::now();
    let local = reopen(directory.path());
    println!("the database: {:.2?}", begin.elapsed());
    let opening = open(env.clone(), local.database().clone(), (series, each));
    env.spawn("opener", opening).wait().expect("a store that opens and answers");
    local.close().expect("an open database");
}

fn settings(parts: usize) -> Settings {
    Settings { parts, ..Settings::default() }
}

fn name(at: usize) -> String {
    format!("cpu.usage host=host_{} region=eu-{} core={}", at / 8, at % 5, at % 8)
}

/// Writes the points, and lets go of the series as whoever dies does.
fn fill(directory: &Path, (count, each, together): (usize, usize, usize), parts: usize) {
    let local = Local::open(directory).expect("a new database");
    let store =
        block_on(SeriesStore::open_with(local.database(), settings(parts))).expect("no series yet");
    let names: Vec<String> = (0..count).map(name).collect();
    let mut series: Vec<Series> = Vec::with_capacity(count);
    for names in names.chunks(NAMES) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        series.extend(block_on(store.all_series(&names)).expect("new series"));
    }
    let mut random = Random::new(1);
    let mut values = vec![1_000_i64; count];
    for step in (0..each).step_by(together) {
        for (series, value) in series.iter().zip(&mut values) {
            let points: Vec<Point> = (step..each.min(step + together))
                .map(|at| {
                    *value += random.below(21) as i64 - 10;
                    let time = 1_700_000_000_000_000_000 + at as i64 * 10_000_000_000;
                    Point { time, value: Value::Float(*value as f64 / 100.0) }
                })
                .collect();
            append(&store, series, &points);
        }
    }
    block_on(store.sync()).expect("what was appended is committed");
    println!("{:?}", store.stats());
    drop((series, store));
    local.close().expect("an open database");
}

fn append(store: &SeriesStore, series: &Series, points: &[Point]) {
    let mut left = points;
    loop {
        let (taken, why) = series.append_all(left);
        left = &left[taken..];
        match why {
            Ok(()) => return,
            Err(Error::Behind) => block_on(store.sync()).expect("what was appended is committed"),
            Err(why) => panic!("{why}"),
        }
    }
}

/// Opens the database, once the store that had it has let go.
fn reopen(directory: &Path) -> Local {
    for _ in 0..100 {
        if let Ok(local) = Local::open(directory) {
            return local;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Local::open(directory).expect("the database that was there")
}

/// Opens the series, and asks.
async fn open(env: Env, database: Database, (count, each): (usize, usize)) {
    let (begin, cpu) = (Instant::now(), env.cpu_time());
    let store = SeriesStore::open_with(&database, settings(1)).await.expect("series");
    println!("open: {:.2?}, {:.2?} of the processors", begin.elapsed(), env.cpu_time() - cpu);
    assert_eq!(count_of(&store, count / 2).await, each as u64);
    println!("open and one answer: {:.2?}", begin.elapsed());
    let one = store.series(&name(count / 3)).await.expect("a series to write to");
    append(&store, &one, &[Point { time: i64::MAX, value: Value::Float(1.0) }]);
    store.sync().await.expect("what was appended is committed");
    println!("and one point saved: {:.2?}", begin.elapsed());
    let mut points = 0;
    for at in 0..count {
        points += count_of(&store, at).await;
    }
    assert_eq!(points, (count * each) as u64 + 1);
    println!(
        "and an answer of each: {:.2?}, {:.2?} of the processors",
        begin.elapsed(),
        env.cpu_time() - cpu
    );
    println!("{:?}", store.stats());
}

/// How many points a series has.
async fn count_of(store: &SeriesStore, at: usize) -> u64 {
    let one = store.existing(&name(at)).await.expect("an index").expect("a series");
    one.aggregate(..).await.expect("a readable series").map_or(0, |summary| summary.count)
}
