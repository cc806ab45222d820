//! PromQL against a naive evaluation: every function over a range, every aggregation, matchers of
//! each kind, arithmetic between series.
//!
//! The model goes through all points for each step, by the formulas of Prometheus' manual. The seed
//! and the expression are in each message.

mod common;

use common::*;
use plinth_env::block_on;
use plinth_series::workload::Random;
use plinth_series::{SeriesStore, prometheus};
use std::collections::BTreeMap;

/// The value of a function over the points of a window that ends at a time, as Prometheus' manual
/// has it.
fn over(name: &str, points: &[(i64, f64)], time: i64, range: i64) -> Option<f64> {
    let seconds = |nanoseconds: i64| nanoseconds as f64 / 1e9;
    let values = || points.iter().map(|(_, value)| *value);
    let (first, last) = (*points.first()?, *points.last()?);
    let rise = |counter: bool| -> f64 {
        let fall =
            |pair: &[(i64, f64)]| if counter && pair[1].1 < pair[0].1 { pair[0].1 } else { 0.0 };
        last.1 - first.1 + points.windows(2).map(fall).sum::<f64>()
    };
    let extrapolated = |counter: bool| {
        let rise = rise(counter);
        let sampled = seconds(last.0 - first.0);
        let each = sampled / (points.len() - 1) as f64;
        let (mut start, end) = (seconds(first.0 - (time - range)), seconds(time - last.0));
        if start >= each * 1.1 {
            start = each / 2.0;
        }
        let end = if end >= each * 1.1 { each / 2.0 } else { end };
        if counter && rise > 0.0 && first.1 >= 0.0 {
            start = start.min(sampled * (first.1 / rise));
        }
        rise * ((sampled + start + end) / sampled)
    };
    match name {
        "rate" | "increase" | "delta" if points.len() < 2 => None,
        "rate" => Some(extrapolated(true) / seconds(range)),
        "increase" => Some(extrapolated(true)),
        "delta" => Some(extrapolated(false)),
        "irate" if points.len() < 2 => None,
        "irate" => {
            let before = points[points.len() - 2];
            let rise = if last.1 < before.1 { last.1 } else { last.1 - before.1 };
            Some(rise / seconds(last.0 - before.0))
        }
        "avg_over_time" => Some(values().sum::<f64>() / points.len() as f64),
        "sum_over_time" => Some(values().sum()),
        "count_over_time" => Some(points.len() as f64),
        "min_over_time" => Some(values().fold(f64::INFINITY, f64::min)),
        "max_over_time" => Some(values().fold(f64::NEG_INFINITY, f64::max)),
        "last_over_time" => Some(last.1),
        other => panic!("{other}"),
    }
}

/// The values of an answer of Prometheus', by labels and seconds.
fn matrix(store: &SeriesStore, expression: &str, from: i64, to: i64, step: i64) -> Cells {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let parameters = format!("query={encoded}&start={from}&end={to}&step={step}");
    let (status, text) =
        block_on(prometheus(store, "/api/v1/query_range", &[parameters.as_bytes(), b""], 0));
    assert_eq!(status, 200, "{expression}: {text}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut all = BTreeMap::new();
    for series in json["data"]["result"].as_array().unwrap() {
        let metric = series["metric"].as_object().unwrap();
        let labels: BTreeMap<String, String> = metric
            .iter()
            .map(|(label, value)| (label.clone(), value.as_str().unwrap().to_string()))
            .collect();
        for value in series["values"].as_array().unwrap() {
            let at = (labels.clone(), value[0].as_i64().unwrap());
            assert_eq!(
                all.insert(at, value[1].as_str().unwrap().parse().unwrap()),
                None,
                "{expression}: twice"
            );
        }
    }
    all
}

type Fits = fn(&BTreeMap<String, String>) -> bool;

/// A condition on labels, and whether it holds for those of a series.
fn matcher(random: &mut Random) -> (&'static str, Fits) {
    pick(
        random,
        &[
            ("", (|_| true) as Fits),
            (r#"{host="a"}"#, |tags| tags["host"] == "a"),
            (r#"{host!="a", region=~"e.|us"}"#, |tags| {
                tags["host"] != "a"
                    && tags.get("region").is_some_and(|region| region == "eu" || region == "us")
            }),
            (r#"{rack=""}"#, |tags| !tags.contains_key("rack")),
            (r#"{region!~"e.*"}"#, |tags| {
                tags.get("region").is_none_or(|region| !region.starts_with('e'))
            }),
        ],
    )
}

/// The last value of a series that is seen at a second.
fn seen(all: &Points, name: &str, time: i64) -> Option<f64> {
    let (end, back) = (time * SECOND, 300 * SECOND);
    all.get(name)?.range(end - back + 1..=end).next_back().map(|(_, value)| *value)
}

type Points = BTreeMap<String, BTreeMap<i64, f64>>;
type Cells = BTreeMap<(BTreeMap<String, String>, i64), f64>;

const SECOND: i64 = 1_000_000_000;

fn are_near(found: &Cells, expected: &Cells) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(a, b)| a.0 == b.0 && is_near(*a.1, *b.1))
}

/// Seconds from the first to the last, and from one to the next.
fn steps(random: &mut Random) -> (i64, i64, i64) {
    let (from, step) = (random.below(150) as i64, 1 + random.below(20) as i64);
    (from, from + random.below(600) as i64, step)
}

type Keeps = Option<fn(&str) -> bool>;

/// How series become one, and which labels stay; if they do.
fn grouping(random: &mut Random) -> (&'static str, Keeps) {
    pick(
        random,
        &[
            ("", None),
            ("sum", Some((|_| false) as fn(&str) -> bool)),
            ("max by (region)", Some(|label| label == "region")),
            ("avg without (host)", Some(|label| label != "host" && label != "__name__")),
            ("min by (host, rack)", Some(|label| label == "host" || label == "rack")),
            ("count", Some(|_| false)),
        ],
    )
}

/// What an aggregation makes of values.
fn together(grouping: &str, values: &[f64]) -> f64 {
    match grouping.split(' ').next().unwrap() {
        "max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        "min" => values.iter().copied().fold(f64::INFINITY, f64::min),
        "avg" => values.iter().sum::<f64>() / values.len() as f64,
        "count" => values.len() as f64,
        _ => values.iter().sum(),
    }
}

#[test]
fn functions_and_aggregations_are_answered_as_a_model_does() {
    const FUNCTIONS: [&str; 10] = [
        "rate",
        "increase",
        "irate",
        "delta",
        "avg_over_time",
        "min_over_time",
        "max_over_time",
        "sum_over_time",
        "count_over_time",
        "last_over_time",
    ];
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let (store, all) = measured(&mut random);
        for _ in 0..40 {
            let ((from, to, step), (matcher, fits)) = (steps(&mut random), matcher(&mut random));
            let function = (random.below(4) > 0).then(|| pick(&mut random, &FUNCTIONS));
            let range = 1 + random.below(60) as i64;
            let (grouping, keeps) = grouping(&mut random);
            let inner = match function {
                Some(function) => format!("{function}(x{matcher}[{range}s])"),
                None => format!("x{matcher}"),
            };
            let expression =
                if grouping.is_empty() { inner } else { format!("{grouping}({inner})") };
            let mut cells: BTreeMap<_, Vec<f64>> = BTreeMap::new();
            for (name, points) in
                all.iter().filter(|(name, _)| name.starts_with("x ") && fits(&tags(name)))
            {
                let mut labels = tags(name);
                let is_a_point = function.is_none_or(|function| function == "last_over_time");
                labels.extend(is_a_point.then(|| ("__name__".to_string(), "x".to_string())));
                labels.retain(|label, _| keeps.is_none_or(|keeps| keeps(label)));
                for time in (from..=to).step_by(step as usize) {
                    let (end, back) = (time * SECOND, range * SECOND);
                    let window: Vec<(i64, f64)> = points
                        .range(end - back + 1..=end)
                        .map(|(time, value)| (*time, *value))
                        .collect();
                    let value = match function {
                        Some(function) => over(function, &window, end, back),
                        None => seen(&all, name, time),
                    };
                    if let Some(value) = value {
                        cells.entry((labels.clone(), time)).or_default().push(value);
                    }
                }
            }
            let found = matrix(&store, &expression, from, to, step);
            let expected: Cells =
                cells.into_iter().map(|(at, values)| (at, together(grouping, &values))).collect();
            let context = format!("seed {seed}: {expression} from {from} to {to} by {step}");
            assert!(are_near(&found, &expected), "{context}\n{found:?}\n{expected:?}");
        }
    }
}

/// Two sets of series meet by their labels, and numbers meet all of them.
#[test]
fn arithmetic_between_series_is_as_a_model_has_it() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let (store, all) = measured(&mut random);
        for _ in 0..20 {
            let ((from, to, step), (matcher, fits)) = (steps(&mut random), matcher(&mut random));
            let expression = format!("(x{matcher} * 2 - y) / 4 + 2 ^ 3 % 5");
            let mut expected = Cells::new();
            for name in all.keys().filter(|name| name.starts_with("x ") && fits(&tags(name))) {
                for time in (from..=to).step_by(step as usize) {
                    if let (Some(x), Some(y)) =
                        (seen(&all, name, time), seen(&all, &name.replacen('x', "y", 1), time))
                    {
                        expected.insert((tags(name), time), (x * 2.0 - y) / 4.0 + 3.0);
                    }
                }
            }
            let found = matrix(&store, &expression, from, to, step);
            assert!(
                are_near(&found, &expected),
                "seed {seed}: {expression}\n{found:?}\n{expected:?}"
            );
        }
    }
}
