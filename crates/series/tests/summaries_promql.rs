//! PromQL where nodes of the tree lie in windows as a whole: what their summaries say is what their
//! points do, to the bit, whatever is among them and wherever they are: marks, NaN, zeros of both
//! signs, integers, late points, ranges that were deleted, points that are in no tree yet. And the
//! points aren't read.

use plinth::Local;
use plinth_env::block_on;
use plinth_series::workload::Random;
use plinth_series::{Direction, SeriesStore, Settings, Value, prometheus};
use serde_json::Value as Json;
use std::collections::BTreeMap;

const SECOND: i64 = 1_000_000_000;
const STALE: u64 = 0x7ff0_0000_0000_0002;
const BEGIN: i64 = 1_767_225_600;
const END: i64 = BEGIN + 86_400;
/// Eight hours have three nodes above leaves, of eight points a minute.
const LEAF: usize = 8;

fn store() -> SeriesStore {
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { commit_every: None, leaf_points: LEAF, ..Settings::default() };
    block_on(SeriesStore::open_with(&db, settings)).unwrap()
}

/// A day's points of a series, as odd as the seed has it.
fn fill(store: &SeriesStore, name: &str, seed: u64) {
    let mut random = Random::new(seed);
    let series = block_on(store.series(name)).unwrap();
    let oddness = [0, 0, 300, 60][seed as usize % 4];
    let value = |random: &mut Random| {
        let is_odd = oddness > 0 && random.below(oddness) == 0;
        match random.below(if is_odd { 6 } else { 3 }) {
            0 => Value::Integer(random.below(100) as i64 - 50),
            1 => Value::Float(random.below(400) as f64 / 4.0 - 50.0),
            2 => Value::Float([0.0, -0.0, 50.0, -50.0][random.below(4) as usize]),
            3 => Value::Float(f64::from_bits(STALE)),
            4 => Value::Float(f64::NAN),
            _ => Value::Float([f64::INFINITY, f64::NEG_INFINITY][random.below(2) as usize]),
        }
    };
    let mut time = BEGIN * SECOND;
    while time < END * SECOND {
        series.append(time, value(&mut random)).unwrap();
        time += match seed % 3 {
            0 => 15 * SECOND,
            _ => 1 + random.below(30 * SECOND as u64) as i64,
        };
        // Now and then nothing comes for an hour.
        time += if random.below(400) == 0 { 3600 * SECOND } else { 0 };
        if random.below(500) == 0 {
            block_on(store.sync()).unwrap();
        }
        // And what comes may be late, some of it of the time of another point.
        if seed > 3 && random.below(300) == 0 {
            let back = random.below(8 * 3600) as i64 * SECOND;
            series.append((time - back).max(BEGIN * SECOND), value(&mut random)).unwrap();
        }
    }
    for _ in 0..seed % 3 {
        let from = (BEGIN + random.below(80_000) as i64) * SECOND;
        let until = from + random.below(3600 * SECOND as u64) as i64;
        block_on(series.delete_range(from..until)).unwrap();
    }
}

/// All points of a series but marks.
fn points(store: &SeriesStore, name: &str) -> Vec<(i64, f64)> {
    let read =
        async { store.series(name).await?.scan(.., Direction::Forward).await?.collect().await };
    let points: plinth_series::Result<Vec<plinth_series::Point>> = block_on(read);
    let points = points.unwrap().into_iter().map(|point| (point.time, point.value.as_f64()));
    points.filter(|(_, value)| value.to_bits() != STALE).collect()
}

fn ask(store: &SeriesStore, query: &str, (start, end, step): (i64, i64, i64)) -> Json {
    let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let form = match step {
        0 => format!("query={query}&time={end}&stats=all"),
        step => format!("query={query}&start={start}&end={end}&step={step}&stats=all"),
    };
    let path = if step == 0 { "/api/v1/query" } else { "/api/v1/query_range" };
    let (status, text) = block_on(prometheus(store, path, &[form.as_bytes()], 0));
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The values of an answer about one series.
fn values(answer: &Json) -> BTreeMap<i64, String> {
    let result = answer["data"]["result"].as_array().unwrap();
    assert!(result.len() < 2, "{answer}");
    let cell = |cell: &Json| (cell[0].as_i64().unwrap(), cell[1].as_str().unwrap().to_owned());
    let of = |series: &Json| match series["values"].as_array() {
        Some(cells) => cells.iter().map(cell).collect::<Vec<_>>(),
        None => vec![cell(&series["value"])],
    };
    result.iter().flat_map(of).collect()
}

fn looked_at(answer: &Json) -> u64 {
    answer["data"]["stats"]["samples"]["totalQueryableSamples"].as_u64().unwrap()
}

const FUNCTIONS: [&str; 8] = [
    "count_over_time",
    "present_over_time",
    "min_over_time",
    "max_over_time",
    "first_over_time",
    "last_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
];

/// What a function is of the points of a window.
fn expected(function: &str, window: &[(i64, f64)]) -> Option<f64> {
    let (first, last) = (window.first()?, window.last()?);
    let best = |is_better: fn(f64, f64) -> bool| {
        let mut values = window.iter().map(|(_, value)| *value);
        let first = values.next().unwrap();
        values.fold(
            first,
            |best, value| {
                if best.is_nan() || is_better(value, best) { value } else { best }
            },
        )
    };
    Some(match function {
        "count_over_time" => window.len() as f64,
        "present_over_time" => 1.0,
        "min_over_time" => best(|value, best| value < best),
        "max_over_time" => best(|value, best| value > best),
        "first_over_time" => first.1,
        "last_over_time" => last.1,
        "ts_of_first_over_time" => first.0 as f64 / SECOND as f64,
        _ => last.0 as f64 / SECOND as f64,
    })
}

fn shown(value: f64) -> String {
    match value {
        value if value.is_infinite() => if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        value => value.to_string(),
    }
}

/// Whether an answer's number is this one, the sign of a zero included.
fn is_same(found: &str, value: f64) -> bool {
    let number: f64 = found.parse().unwrap();
    number.is_nan() && value.is_nan() || number.to_bits() == value.to_bits()
}

#[test]
fn what_summaries_answer_is_what_the_points_do() {
    let store = store();
    let names: Vec<String> = (0..9).map(|seed| format!("m n={seed}")).collect();
    (0..9).for_each(|seed| fill(&store, &names[seed as usize], seed));
    let mut random = Random::new(5);
    let mut compared = 0;
    for (seed, name) in names.iter().enumerate() {
        let points = points(&store, name);
        for _ in 0..40 {
            let pick = |random: &mut Random, of: &[i64]| of[random.below(of.len() as u64) as usize];
            let range = pick(&mut random, &[300, 600, 3600, 5000, 21_600, 86_400]);
            let step = pick(&mut random, &[0, 60, 300, 700, 3600, 7200, 10_000, 43_200]);
            let start = BEGIN - 3600 + random.below(50_000) as i64;
            let end = (start + random.below(60_000) as i64).min(start + 400 * step.max(150));
            let offset = pick(&mut random, &[0, 0, 1234]);
            let steps = if step == 0 { 1 } else { (end - start) / step + 1 };
            for function in FUNCTIONS {
                let query = format!("{function}(m{{n=\"{seed}\"}}[{range}s] offset {offset}s)");
                let found = values(&ask(&store, &query, (start, end, step)));
                let mut count = 0;
                for place in 0..steps {
                    let at = if step == 0 { end } else { start + place * step };
                    let until = (at - offset) * SECOND;
                    let after = until - range * SECOND;
                    let behind = |bound: i64| points.partition_point(|(time, _)| *time <= bound);
                    let window = &points[behind(after)..behind(until)];
                    let Some(value) = expected(function, window) else {
                        assert!(!found.contains_key(&at), "{query} at {at}: {found:?}");
                        continue;
                    };
                    count += 1;
                    let is_found = found.get(&at).is_some_and(|found| is_same(found, value));
                    let (value, found) = (shown(value), found.get(&at));
                    assert!(is_found, "{query} at {at}, step {step}: {value}, not {found:?}");
                }
                assert_eq!(found.len(), count, "{query}");
                compared += count;
            }
        }
    }
    assert!(compared > 50_000, "{compared}");
}

/// One window of a day: of each node within it one thing is looked at.
#[test]
fn points_whose_summaries_say_enough_are_not_read() {
    let store = store();
    let series = block_on(store.series("m")).unwrap();
    for second in (BEGIN..END).step_by(10) {
        series.append(second * SECOND, second as f64).unwrap();
    }
    block_on(store.sync()).unwrap();
    let points = (END - BEGIN) as u64 / 10;
    for function in FUNCTIONS {
        let query = format!("{function}(m[1d])");
        let answer = ask(&store, &query, (0, END - 10, 0));
        let nodes = points / LEAF as u64 / 64 + 2 * 64 + 2 * LEAF as u64;
        assert!(looked_at(&answer) < nodes, "{query}: {}", looked_at(&answer));
        assert_eq!(values(&answer).len(), 1, "{query}");
    }
    // Windows that overlap: what lies in the same ones is put together.
    let answer = ask(&store, "max_over_time(m[12h])", (BEGIN + 43_200, END, 3600));
    let windows = 13;
    assert!(looked_at(&answer) < windows * 12 * 50, "{}", looked_at(&answer));
    // The order of what is added counts: so all are read.
    let answer = ask(&store, "sum_over_time(m[1d])", (0, END - 10, 0));
    assert_eq!(looked_at(&answer), points, "sums");
}
