//! What two rollups of every series cost who writes points, and how long a year by the hour of many
//! series takes that is answered from buckets.
//!
//! The same points are written with rules and without, in turns, until all is committed and all
//! buckets are made: points for a second of processor time, of both. Then a series has a point each
//! quarter of an hour for a year.
//! `cargo bench -p plinth-series --bench rollups -- [series] [points of each] [series of a year]`.
#![expect(clippy::disallowed_methods, reason = "a benchmark takes the machine's time")]

use plinth::{Database, Local};
use plinth_env::{Env, block_on};
use plinth_series::workload::Random;
use plinth_series::{
    Error, Metrics, Point, Rollup, Series, SeriesStore, Settings, Value, prometheus,
};
use std::time::{Duration, Instant};

const BEGIN: i64 = 1_672_531_200;
const YEAR: usize = 365 * 86_400;
const QUARTER_OF_AN_HOUR: usize = 900;
const SECOND: i64 = 1_000_000_000;
const HOUR: u64 = 3_600;
/// Points of a series that come together.
const TOGETHER: usize = 8;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse().ok());
    let series = numbers.next().unwrap_or(if measured { 1_000 } else { 5 });
    let each = numbers.next().unwrap_or(if measured { 20_000 } else { 400 });
    let of_a_year = numbers.next().unwrap_or(if measured { 1_000 } else { 2 });
    let env = Env::real();

    for turn in 0..if measured { 6 } else { 2 } {
        let rules = if turn % 2 == 0 { vec![] } else { vec![300, HOUR] };
        let times = write(&env, &rules, (series, each));
        let [wall, written, all] =
            times.map(|time| (series * each) as f64 / time.as_secs_f64() / 1e6);
        println!(
            "{} rollups: {wall:.2} M points/s until the last was saved, {written:.2} M for a second of processor time; {all:.2} M until all was rolled up",
            rules.len()
        );
    }
    if of_a_year > 0 {
        year(&env, of_a_year);
    }
}

/// A database whose series have rollups of so many seconds.
fn begin(env: &Env, rules: &[u64]) -> (plinth_env::TemporaryDir, Local) {
    let directory =
        block_on(env.files().temporary_dir("series-rollups")).expect("a temporary directory");
    let local = Local::open(directory.path()).expect("a new database");
    let add = |database: &Database, every: u64| {
        let metrics = Metrics::parse("cpu.*").expect("metrics");
        let rollup = Rollup::new(metrics, Duration::from_secs(every));
        let add = |keeping: &mut plinth_series::Keeping| keeping.add(rollup.clone());
        block_on(SeriesStore::change_keeping(database, &Settings::default(), add))
            .expect("a rule that is taken");
    };
    rules.iter().for_each(|every| add(local.database(), *every));
    (directory, local)
}

fn open(local: &Local, count: usize) -> (SeriesStore, Vec<Series>) {
    let store = block_on(SeriesStore::open(local.database())).expect("no series yet");
    let names: Vec<String> = (0..count).map(|at| format!("cpu.usage host=host_{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let series = block_on(store.all_series(&names)).expect("new series");
    (store, series)
}

/// Writes points of all series, so many seconds apart.
fn fill(store: &SeriesStore, series: &[Series], (each, seconds): (usize, usize)) {
    let mut random = Random::new(1);
    let mut values = vec![1_000_i64; series.len()];
    for step in (0..each).step_by(TOGETHER) {
        for (series, value) in series.iter().zip(&mut values) {
            let points: Vec<Point> = (step..each.min(step + TOGETHER))
                .map(|at| {
                    *value += random.below(21) as i64 - 10;
                    let time = (BEGIN + (at * seconds) as i64) * SECOND;
                    Point { time, value: Value::Float(*value as f64 / 100.0) }
                })
                .collect();
            let mut left = &points[..];
            while let (taken, Err(why)) = series.append_all(left) {
                assert!(matches!(why, Error::Behind), "{why}");
                left = &left[taken..];
                block_on(store.sync()).expect("what was appended is committed");
            }
        }
    }
    block_on(store.sync()).expect("what was appended is committed");
}

/// How long it took by the clock until all was saved; and how long the processors worked by then,
/// and until all was rolled up.
fn write(env: &Env, rules: &[u64], (count, each): (usize, usize)) -> [Duration; 3] {
    let (_directory, local) = begin(env, rules);
    let (store, series) = open(&local, count);
    let (begin, cpu) = (Instant::now(), env.cpu_time());
    fill(&store, &series, (each, 10));
    let (wall, written) = (begin.elapsed(), env.cpu_time() - cpu);
    block_on(store.roll_up()).expect("buckets that are made");
    let all = env.cpu_time() - cpu;
    drop((store, series));
    local.close().expect("an open database");
    [wall, written, all]
}

fn year(env: &Env, count: usize) {
    let (_directory, local) = begin(env, &[HOUR]);
    let (store, series) = open(&local, count);
    let begin = Instant::now();
    fill(&store, &series, (YEAR / QUARTER_OF_AN_HOUR, QUARTER_OF_AN_HOUR));
    block_on(store.roll_up()).expect("buckets that are made");
    println!("a year of {count} series, written in {:.1?}", begin.elapsed());
    for _ in 0..3 {
        by_the_hour(env, &store, &series);
        by_promql(env, &store);
    }
    drop((store, series));
    local.close().expect("an open database");
}

/// Each bucket of each series.
fn by_the_hour(env: &Env, store: &SeriesStore, series: &[Series]) {
    let (begin, cpu) = (Instant::now(), env.cpu_time());
    let (first, behind) = (BEGIN * SECOND, (BEGIN + YEAR as i64) * SECOND);
    let (mut buckets, mut points) = (0_u64, 0);
    for one in series {
        let groups = one.group_aggregate(first..behind, HOUR * SECOND as u64);
        let mut groups = block_on(groups).expect("a readable series");
        while let Some((_, summary)) = block_on(groups.next()).expect("a readable series") {
            buckets += 1;
            points += summary.count;
        }
    }
    assert_eq!(points, (series.len() * YEAR / QUARTER_OF_AN_HOUR) as u64);
    let (wall, cpu) = (begin.elapsed(), env.cpu_time() - cpu);
    println!("group-aggregate: {buckets} buckets: {wall:.1?}, {cpu:.1?} of the processors");
    assert_eq!(store.stats().rollups.failed, 0);
}

/// What some functions of each hour come to in all series, as a program that asks PromQL hears it.
fn by_promql(env: &Env, store: &SeriesStore) {
    let end = BEGIN + YEAR as i64;
    for function in ["avg_over_time", "max_over_time", "count_over_time", "rate"] {
        let (begin, cpu) = (Instant::now(), env.cpu_time());
        let query = format!("sum({function}({{__name__=\"cpu.usage\"}}[1h]))");
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let form = format!("query={query}&start={}&end={end}&step=3600", BEGIN + HOUR as i64);
        let (status, text) =
            block_on(prometheus(store, "/api/v1/query_range", &[form.as_bytes()], 0));
        assert!(status == 200 && text.len() > 1000, "{text}");
        let (wall, cpu) = (begin.elapsed(), env.cpu_time() - cpu);
        println!("sum({function}(..[1h])): {wall:.1?}, {cpu:.1?} of the processors");
    }
}
