//! PromQL over rollups: where the points are still there, the answer is the one that they give;
//! where they have gone, it is that which they gave; and what rollups don't answer says so. Two
//! stores with the same points are asked the same, of which one has rules.

mod common;

use super::rollups::rollup;
use common::is_near;
use plinth::Local;
use plinth_env::block_on;
use plinth_series::workload::Random;
use plinth_series::{
    Query, Remarks, Retention, Rollup, SeriesStore, Settings, opentsdb, prometheus,
};
use serde_json::Value as Json;
use std::time::Duration;

const SECOND: i64 = 1_000_000_000;
const STALE: u64 = 0x7ff0_0000_0000_0002;
const BEGIN: i64 = 1_767_225_600;
const END: i64 = BEGIN + 7200;

fn store(rules: Vec<Rollup>) -> SeriesStore {
    store_of(64, rules)
}

fn store_of(leaf_points: usize, rules: Vec<Rollup>) -> SeriesStore {
    let db = Local::in_memory().unwrap().into_database();
    let settings = Settings { commit_every: None, leaf_points, ..Settings::default() };
    block_on(SeriesStore::change_keeping(&db, &settings, |keeping| {
        rules.iter().try_for_each(|rule| keeping.add(rule.clone()))
    }))
    .unwrap();
    block_on(SeriesStore::open_with(&db, settings)).unwrap()
}

/// Counters that begin again, gauges with marks and NaN, on the second and off it.
fn fill(stores: &[&SeriesStore]) {
    for which in 0..6 {
        let name = ["count_total", "gauge"][which % 2];
        let mut random = Random::new(which as u64);
        let series: Vec<_> = stores
            .iter()
            .map(|store| block_on(store.series(&format!("{name} n={which}"))).unwrap())
            .collect();
        let (mut time, mut count) = (BEGIN * SECOND, 0.0);
        while time < END * SECOND {
            let value = match name {
                "gauge" if random.below(40) == 0 => f64::from_bits(STALE),
                "gauge" if which == 1 && random.below(300) == 0 => f64::NAN,
                "gauge" => random.below(4000) as f64 / 4.0 - 500.0,
                _ => {
                    let falls = random.below(50) == 0;
                    count = if falls { 0.0 } else { count + random.below(40) as f64 };
                    count
                }
            };
            series.iter().for_each(|series| series.append(time, value).unwrap());
            time += match which {
                0 | 1 => 15 * SECOND,
                _ => 1 + random.below(30 * SECOND as u64) as i64,
            };
            // Now and then nothing comes for a while.
            time += if random.below(60) == 0 { 400 * SECOND } else { 0 };
        }
    }
    stores.iter().for_each(|store| block_on(store.sync()).unwrap());
}

fn ask(store: &SeriesStore, query: &str, (start, end, step): (i64, i64, i64)) -> Json {
    let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let form = match step {
        0 => format!("query={query}&time={end}"),
        step => format!("query={query}&start={start}&end={end}&step={step}"),
    };
    let path = if step == 0 { "/api/v1/query" } else { "/api/v1/query_range" };
    let (status, text) = block_on(prometheus(store, path, &[form.as_bytes()], 0));
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The same but for how sums are rounded.
fn assert_same(one: &Json, other: &Json, what: &str) {
    match (one, other) {
        (Json::Array(one), Json::Array(other)) => {
            assert_eq!(one.len(), other.len(), "{what}: {one:?} and {other:?}");
            one.iter().zip(other).for_each(|(one, other)| assert_same(one, other, what));
        }
        (Json::Object(one), Json::Object(other)) => {
            assert_eq!(one.len(), other.len(), "{what}");
            one.iter().for_each(|(name, one)| assert_same(one, &other[name], what));
        }
        (Json::String(one), Json::String(other)) if one != other => {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert!(is_near(one, other), "{what}: {one} and {other}");
        }
        (one, other) => assert_eq!(one, other, "{what}"),
    }
}

const FUNCTIONS: [&str; 12] = [
    "avg_over_time",
    "sum_over_time",
    "count_over_time",
    "min_over_time",
    "max_over_time",
    "first_over_time",
    "last_over_time",
    "present_over_time",
    "rate",
    "increase",
    "delta",
    "ts_of_last_over_time",
];

fn is_from_rollups(answer: &Json) -> bool {
    answer["infos"].to_string().contains("answered from rollups")
}

#[test]
fn rollups_answer_as_their_points_do() {
    let rules = vec![rollup("*", 60), rollup("*", 300)];
    let (plain, rolled) = (store(Vec::new()), store(rules));
    fill(&[&plain, &rolled]);
    block_on(rolled.roll_up()).unwrap();
    let mut answered = 0;
    for metric in ["count_total", "gauge"] {
        for (window, step, offset) in
            [(300, 300, 0), (60, 60, 0), (600, 60, 0), (300, 600, 120), (900, 300, 60), (90, 60, 0)]
        {
            for function in FUNCTIONS {
                let query = format!("{function}({metric}[{window}s] offset {offset}s)");
                let range = (BEGIN - 60, END, step);
                let (one, other) = (ask(&plain, &query, range), ask(&rolled, &query, range));
                assert_same(&one["data"], &other["data"], &query);
                assert!(!is_from_rollups(&one), "{query}");
                assert_eq!(is_from_rollups(&other), window % 60 == 0, "{query}: {other}");
                answered += usize::from(is_from_rollups(&other));
            }
        }
        // One window, wherever it ends.
        for function in FUNCTIONS {
            let query = format!("{function}({metric}[1h])");
            let at = (0, END - 1234, 0);
            let (one, other) = (ask(&plain, &query, at), ask(&rolled, &query, at));
            assert_same(&one["data"], &other["data"], &query);
            assert!(is_from_rollups(&other), "{query}");
        }
        for query in [metric.to_string(), format!("timestamp({metric})")] {
            let range = (BEGIN - 600, END + 600, 300);
            let (one, other) = (ask(&plain, &query, range), ask(&rolled, &query, range));
            assert_same(&one["data"], &other["data"], &query);
            assert!(is_from_rollups(&other), "{query}");
        }
        for query in [format!("stddev_over_time({metric}[5m])"), format!("{metric}[10m]")] {
            let range = if query.ends_with("]") { (0, END, 0) } else { (BEGIN, END, 300) };
            let (one, other) = (ask(&plain, &query, range), ask(&rolled, &query, range));
            assert_eq!(one, other, "{query}");
        }
    }
    assert_eq!(answered, 2 * 5 * FUNCTIONS.len());
}

/// Series with a thousand buckets and more, which are worked at on several threads where there are
/// some. A value says whose it is, so one that comes in another's place is seen.
/// A counter begins anew with the first point of a leaf, with the last of one, and in the middle:
/// what summaries of leaves and rollups make of it is what the points in one leaf do.
#[test]
fn counters_that_begin_anew_where_leaves_end_are_counted_on() {
    const POINTS: i64 = 600;
    let falls = |point: i64| matches!(point, 64 | 191 | 300 | 448);
    let last = BEGIN + 10 * (POINTS - 1);
    let answers = [(1000, vec![]), (64, vec![]), (4, vec![]), (64, vec![rollup("*", 60)])].map(
        |(leaf_points, rules)| {
            let store = store_of(leaf_points, rules);
            let series = block_on(store.series("requests_total")).unwrap();
            let mut count = 0.0;
            for point in 0..POINTS {
                count = if falls(point) { 3.0 } else { count + 1.0 };
                series.append((BEGIN + 10 * point) * SECOND, count).unwrap();
            }
            block_on(store.sync()).unwrap();
            block_on(store.roll_up()).unwrap();
            let of = |query: &str| ask(&store, query, (0, last + 10, 0))["data"].to_string();
            [
                "increase(requests_total[6000s])",
                "resets(requests_total[6000s])",
                "increase(requests_total[3600s])",
            ]
            .map(of)
        },
    );
    assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:#?}");
    // 595 steps of one and four beginnings at three, of which a window of its ends has all.
    assert!(answers[0][0].contains("\"607\"") || answers[0][0].contains("608"), "{answers:?}");
    assert!(answers[0][1].contains("\"4\""), "{answers:?}");
}

/// Points of one time replace each other: in leaves, late, and where buckets had been made.
#[test]
fn of_points_of_one_time_the_last_counts_in_rollups_too() {
    let store = store(vec![rollup("*", 60)]);
    let series = block_on(store.series("gauge")).unwrap();
    let fill = |value: f64| {
        (0..300).for_each(|second| series.append((BEGIN + second) * SECOND, value).unwrap());
        block_on(store.sync()).unwrap();
        block_on(store.roll_up()).unwrap();
    };
    let sums = || {
        let at = (0, BEGIN + 299, 0);
        [
            "sum_over_time(gauge[300s])",
            "count_over_time(gauge[300s])",
            "sum_over_time(gauge[240s] offset 59s)",
        ]
        .map(|query| ask(&store, query, at)["data"]["result"][0]["value"][1].clone())
    };
    fill(1.0);
    assert_eq!(sums(), ["300", "300", "240"]);
    fill(5.0);
    assert_eq!(sums(), ["1500", "300", "1200"]);
    series.append((BEGIN + 7) * SECOND, 100.0).unwrap();
    series.append((BEGIN + 7) * SECOND, 2.0).unwrap();
    assert_eq!(sums(), ["1497", "300", "1197"]);
    block_on(store.sync()).unwrap();
    block_on(store.roll_up()).unwrap();
    assert_eq!(sums(), ["1497", "300", "1197"]);
}

#[test]
fn series_that_are_worked_at_beside_each_other_come_in_their_order() {
    const MINUTES: i64 = 1_200;
    let (plain, rolled) = (store(Vec::new()), store(vec![rollup("*", 60)]));
    for store in [&plain, &rolled] {
        for which in 0..12 {
            let name = format!("wide n={which}");
            let series = block_on(store.series(&name)).unwrap();
            // Some have few points, so that those behind them end first.
            let every = if which % 5 == 0 { 600 } else { 25 };
            for second in (0..MINUTES * 60).step_by(every) {
                let value = f64::from(which) * 1e6 + (second / 7) as f64;
                series.append((BEGIN + second) * SECOND, value).unwrap();
            }
        }
        block_on(store.sync()).unwrap();
    }
    block_on(rolled.roll_up()).unwrap();
    let range = (BEGIN + 60, BEGIN + MINUTES * 60, 60);
    for function in FUNCTIONS {
        for query in [format!("{function}(wide[1m])"), format!("sum({function}(wide[10m]))")] {
            let (one, other) = (ask(&plain, &query, range), ask(&rolled, &query, range));
            assert_same(&one["data"], &other["data"], &query);
            assert!(is_from_rollups(&other) && !is_from_rollups(&one), "{query}");
        }
    }
}

#[test]
fn rollups_answer_when_their_points_have_gone_and_others_say_so() {
    let raw = Some(Duration::from_mins(10));
    let (plain, rolled) = (store(Vec::new()), store(vec![Rollup { raw, ..rollup("*", 60) }]));
    fill(&[&plain, &rolled]);
    block_on(rolled.forget(&Retention::default(), END * SECOND)).unwrap();
    for metric in ["count_total", "gauge"] {
        for function in FUNCTIONS {
            let query = format!("{function}({metric}[10m])");
            let range = (BEGIN, END, 300);
            let (one, other) = (ask(&plain, &query, range), ask(&rolled, &query, range));
            assert_same(&one["data"], &other["data"], &query);
            assert!(is_from_rollups(&other) && other["warnings"].is_null(), "{query}: {other}");
        }
        let (one, other) =
            (ask(&plain, metric, (BEGIN, END, 60)), ask(&rolled, metric, (BEGIN, END, 60)));
        assert_same(&one["data"], &other["data"], metric);
        for query in [format!("stddev_over_time({metric}[10m])"), format!("irate({metric}[10m])")] {
            let other = ask(&rolled, &query, (BEGIN, END, 300));
            assert!(other["warnings"].to_string().contains("points have gone"), "{other}");
        }
        let query = format!("rate({metric}[10m])");
        let other = ask(&rolled, &query, (BEGIN + 7, END, 300));
        assert!(other["warnings"].to_string().contains("points have gone"), "{other}");
        // What lies in the last minutes has its points.
        let query = format!("rate({metric}[5m])");
        let other = ask(&rolled, &query, (END - 10, END, 7));
        assert!(other["warnings"].is_null(), "{other}");
    }
}

/// OpenTSDB's intervals begin where buckets do. They never met any, and nothing came for times
/// whose points had gone.
#[test]
fn intervals_of_opentsdb_are_answered_when_their_points_have_gone() {
    let raw = Some(Duration::from_mins(10));
    let (plain, rolled) = (store(Vec::new()), store(vec![Rollup { raw, ..rollup("*", 60) }]));
    fill(&[&plain, &rolled]);
    block_on(rolled.forget(&Retention::default(), END * SECOND)).unwrap();
    for aggregator in ["avg", "sum", "count", "min", "max", "first"] {
        for interval in ["1m", "10m", "1h"] {
            let url = format!("start={BEGIN}&end={END}&m=sum:{interval}-{aggregator}:count_total");
            let ask = |store| block_on(opentsdb(store, "/api/query", (url.as_bytes(), b""), 0));
            let [one, other] = [ask(&plain), ask(&rolled)].map(|(status, text, remarks)| {
                assert_eq!((status, remarks.warning), (200, None), "{text}");
                serde_json::from_str::<Json>(&text).unwrap()
            });
            let dps = |json: &Json| json[0]["dps"].as_object().cloned().unwrap_or_default();
            let (one, other) = (dps(&one), dps(&other));
            assert!(one.len() >= 2 && one.len() == other.len(), "{url}: {other:?}");
            for (time, value) in &one {
                let (value, found) = (value.as_f64().unwrap(), other[time].as_f64().unwrap());
                assert!(is_near(value, found), "{url} at {time}: {value} and {found}");
            }
        }
    }
}

/// Nothing came where no buckets fit, and nothing said why.
#[test]
fn akumulis_and_opentsdbs_answers_say_that_points_have_gone() {
    let raw = Some(Duration::from_mins(10));
    let (plain, rolled) = (store(Vec::new()), store(vec![Rollup { raw, ..rollup("*", 60) }]));
    fill(&[&plain, &rolled]);
    block_on(rolled.forget(&Retention::default(), END * SECOND)).unwrap();
    let opentsdb = |store, query: &str| {
        let url = format!("start={BEGIN}&end={END}&m={query}");
        block_on(opentsdb(store, "/api/query", (url.as_bytes(), b""), 0))
    };
    for query in ["sum:1m-dev:gauge", "sum:90s-avg:gauge", "sum:gauge"] {
        let (status, text, remarks) = opentsdb(&rolled, query);
        assert!(
            status == 200 && remarks.warning.is_some_and(|why| why.contains("points have gone")),
            "{text}"
        );
        assert_eq!(opentsdb(&plain, query).2, Remarks::default(), "{query}");
    }
    // What is said is known before the first row.
    let akumuli = |store: &SeriesStore, query: &str| {
        let range = format!(r#""range": {{"from": "{BEGIN}s", "to": "{END}s"}}"#);
        let json = format!(r#"{{{query}, {range}, "output": {{"format": "csv"}}}}"#);
        block_on(async {
            let mut answer = store.query(&Query::parse(json.as_bytes()).unwrap()).await.unwrap();
            answer.next().await.unwrap();
            answer.remarks().warning
        })
    };
    let group = |step: &str| {
        format!(r#""group-aggregate": {{"metric": "gauge", "step": "{step}", "func": "max"}}"#)
    };
    let joined = r#""group-aggregate-join": {"metric": ["gauge", "count_total"], "step": "7s", "func": "max"}"#;
    for query in [
        r#""select": "gauge""#,
        r#""select": "gauge", "order-by": "series""#,
        r#""join": ["gauge", "count_total"]"#,
        &group("90s"),
        joined,
    ] {
        let warning = akumuli(&rolled, query);
        assert!(warning.is_some_and(|why| why.contains("points have gone")), "{query}");
        assert_eq!(akumuli(&plain, query), None, "{query}");
    }
    for query in [&*group("60s"), &*group("1h"), r#""aggregate": {"gauge": "max"}"#] {
        assert_eq!(akumuli(&rolled, query), None, "{query}");
    }
}
