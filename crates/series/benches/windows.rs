//! How long functions of windows of a day take over points that nobody has rolled up: a point each
//! ten seconds, for a month; a window a day, one each hour, and all of it as one.
//!
//! Those of which a node's summary says enough are to be read against `sum_over_time`, which reads
//! each point.
//! `cargo bench -p plinth-series --bench windows -- [series] [days]`.
#![expect(clippy::disallowed_methods, reason = "a benchmark takes the machine's time")]

use plinth::Local;
use plinth_env::{Env, block_on};
use plinth_series::workload::Random;
use plinth_series::{Error, Point, SeriesStore, Value, prometheus};
use std::time::Instant;

const BEGIN: i64 = 1_672_531_200;
const DAY: i64 = 86_400;
const HOUR: i64 = 3_600;
const SECOND: i64 = 1_000_000_000;
/// Seconds from a point to the next.
const EVERY: i64 = 10;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<i64>().ok());
    let series = numbers.next().unwrap_or(if measured { 20 } else { 2 });
    let days = numbers.next().unwrap_or(if measured { 30 } else { 2 });
    let env = Env::real();
    let directory =
        block_on(env.files().temporary_dir("series-windows")).expect("a temporary directory");
    let local = Local::open(directory.path()).expect("a new database");
    let store = block_on(SeriesStore::open(local.database())).expect("no series yet");
    fill(&store, series, days);
    println!("{series} series, {days} days of a point each {EVERY} s");
    for function in ["sum", "count", "min", "max", "first", "last"] {
        ask(&env, &store, (&format!("{function}_over_time"), "1d"), (days, DAY));
        ask(&env, &store, (&format!("{function}_over_time"), "1d"), (days, HOUR));
        ask(&env, &store, (&format!("{function}_over_time"), &format!("{days}d")), (days, 0));
    }
    drop(store);
    local.close().expect("an open database");
}

fn fill(store: &SeriesStore, series: i64, days: i64) {
    for number in 0..series {
        let name = format!("cpu.usage host=host_{number}");
        let series = block_on(store.series(&name)).expect("a new series");
        let mut random = Random::new(number as u64);
        let mut value = 1_000_i64;
        let points: Vec<Point> = (1..=days * DAY / EVERY)
            .map(|at| {
                value += random.below(21) as i64 - 10;
                let time = (BEGIN + at * EVERY) * SECOND;
                Point { time, value: Value::Float(value as f64 / 100.0) }
            })
            .collect();
        let mut left = &points[..];
        while let (taken, Err(why)) = series.append_all(left) {
            assert!(matches!(why, Error::Behind), "{why}");
            left = &left[taken..];
            block_on(store.sync()).expect("what was appended is committed");
        }
    }
    block_on(store.sync()).expect("what was appended is committed");
}

/// The best of three times that a question takes; with steps of 0 it is about the end alone.
fn ask(env: &Env, store: &SeriesStore, (function, range): (&str, &str), (days, step): (i64, i64)) {
    let query = format!("{function}({{__name__=\"cpu.usage\"}}[{range}])");
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let end = BEGIN + days * DAY;
    let (path, form) = match step {
        0 => ("/api/v1/query", format!("query={encoded}&time={end}")),
        _ => {
            let start = BEGIN + DAY;
            let times = format!("start={start}&end={end}&step={step}");
            ("/api/v1/query_range", format!("query={encoded}&{times}"))
        }
    };
    let took = (0..3).map(|_| {
        let (begin, cpu) = (Instant::now(), env.cpu_time());
        let (status, text) = block_on(prometheus(store, path, &[form.as_bytes()], 0));
        assert!(status == 200 && text.len() > 100, "{text}");
        (begin.elapsed(), env.cpu_time() - cpu)
    });
    let (wall, cpu) = took.min().unwrap_or_default();
    println!("{function}(..[{range}]), step {step} s: {wall:.1?}, {cpu:.1?} of the processors");
}
