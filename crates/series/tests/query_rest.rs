//! Queries against a naive evaluation, where `query.rs` ends: events, names and what is suggested,
//! functions on rows, aggregates of several metrics, sets of tags, conditions on several columns.
//!
//! A model goes through all that there is for each query. Functions are applied to the rows that
//! the same query has without them, which the other models answer for. The seed and the query are
//! in each message.

mod common;

use common::*;
use plinth_env::block_on;
use plinth_series::workload::Random;
use plinth_series::{Query, SeriesStore, event};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const RAW: &str = r#""output": {"format": "csv", "timestamp": "raw"}"#;

fn text(store: &SeriesStore, query: &str) -> String {
    let parsed = Query::parse(query.as_bytes()).unwrap_or_else(|error| panic!("{error}: {query}"));
    let text = block_on(async { store.query(&parsed).await?.collect().await });
    String::from_utf8(text.unwrap_or_else(|error| panic!("{error}: {query}"))).unwrap()
}

/// A name with those of its tags that `keeps` lets through.
fn kept(name: &str, keeps: impl Fn(&str) -> bool) -> String {
    let metric = name.split(' ').next().unwrap().to_string();
    tags(name)
        .iter()
        .filter(|(tag, _)| keeps(tag))
        .fold(metric, |text, (tag, value)| format!("{text} {tag}={value}"))
}

/// What `where` may say: as JSON, and whether it fits the tags of a series.
fn filter(random: &mut Random) -> (String, Fits) {
    match random.below(4) {
        0 => (String::new(), Box::new(|_| true)),
        1 => {
            let host = pick(random, &["a", "b", "z"]);
            (
                format!(r#", "where": {{"host": "{host}"}}"#),
                Box::new(move |tags| tags["host"] == host),
            )
        }
        2 => (
            r#", "where": {"host": ["c", "a", "b", "a"], "region": ["eu", "us"]}"#.to_string(),
            Box::new(|tags| {
                ["a", "b", "c"].contains(&tags["host"].as_str())
                    && tags
                        .get("region")
                        .is_some_and(|region| ["eu", "us"].contains(&region.as_str()))
            }),
        ),
        _ => (
            r#", "where": [{"region": "eu", "host": "a"}, {"host": "d"}, {"host": "nobody"}]"#
                .to_string(),
            Box::new(|tags| {
                let tags: Vec<_> =
                    tags.iter().map(|(tag, value)| (tag.as_str(), value.as_str())).collect();
                tags == [("host", "a"), ("region", "eu")] || tags == [("host", "d")]
            }),
        ),
    }
}

/// What a name keeps of its tags: as JSON, and the name.
fn pivot(random: &mut Random) -> (&'static str, fn(&str) -> String) {
    pick(
        random,
        &[
            ("", (|name| name.to_string()) as fn(&str) -> String),
            (r#", "pivot-by-tag": ["region"]"#, |name| kept(name, |tag| tag == "region")),
            (r#", "pivot-by-tag": ["region", "host", "none"]"#, |name| {
                kept(name, |tag| tag != "rack")
            }),
            (r#", "group-by": "rack""#, |name| kept(name, |tag| tag == "rack")),
            (r#", "group-by-tag": ["host", "rack"]"#, |name| kept(name, |tag| tag == "region")),
        ],
    )
}

/// Limit and offset: as JSON, and as numbers.
fn part(random: &mut Random) -> (String, usize, usize) {
    let (limit, offset) = (random.below(60) as usize, random.below(30) as usize);
    match random.below(3) {
        0 => (String::new(), usize::MAX, 0),
        1 => (format!(r#", "limit": {limit}"#), limit, 0),
        _ => (format!(r#", "limit": "{limit}", "offset": {offset}"#), limit, offset),
    }
}

/// From when to when, both ways in time: as JSON, and whether a time is within and the query goes
/// backward.
fn range(random: &mut Random, span: i64) -> (String, Box<dyn Fn(i64) -> bool>, bool) {
    let end = |random: &mut Random| random.below(span as u64 * 12 / 10) as i64 - span / 10;
    let (from, to) = (end(random), end(random));
    let within = move |time: i64| {
        if from > to { to < time && time <= from } else { from <= time && time < to }
    };
    (format!(r#""range": {{"from": "{from}ns", "to": "{to}ns"}}"#), Box::new(within), from > to)
}

/// What a query for events asks for, as the model understands it.
struct Wanted {
    fits: Fits,
    named: fn(&str) -> String,
    within: Box<dyn Fn(i64) -> bool>,
    matches: fn(&str) -> bool,
    backward: bool,
    by_series: bool,
    limit: usize,
    offset: usize,
}

type Fits = Box<dyn Fn(&BTreeMap<String, String>) -> bool>;
type Events = Vec<(String, BTreeMap<i64, String>)>;

const EVENTS_SPAN: i64 = 4_000_000;

fn some_events(random: &mut Random, store: &SeriesStore) -> Events {
    let mut all = Vec::new();
    for host in HOSTS {
        let name = format!("!ev {host}");
        let series = block_on(store.series(&name)).unwrap();
        let mut events = BTreeMap::new();
        for _ in 0..random.below(120) {
            // One in a microsecond: the last of two would replace the other, or a part of it.
            let time = random.below(EVENTS_SPAN as u64) as i64;
            if events.range(time - time % 1000..time - time % 1000 + 1000).next().is_some() {
                continue;
            }
            let word = pick(random, &["up", "down", "build"]);
            let text = format!("{word} {}", "x".repeat(random.below(200) as usize));
            for point in event::points(time, text.as_bytes()).unwrap() {
                series.append(point.time, point.value).unwrap();
            }
            if random.below(40) == 0 {
                block_on(store.sync()).unwrap();
            }
            events.insert(time, text);
        }
        all.push((name, events));
    }
    all
}

/// The rows; `None` if no series is as the query wants it.
fn rows_of_events(all: &Events, wanted: &Wanted) -> Option<String> {
    // Lines in the order of their first series, which is that in which they were made.
    let (mut lines, mut rows): (Vec<String>, Vec<(usize, i64, &str)>) = Default::default();
    for (name, events) in all.iter().filter(|(name, _)| (wanted.fits)(&tags(name))) {
        let line = (wanted.named)(name);
        if !lines.contains(&line) {
            lines.push(line.clone());
        }
        let line = lines.iter().position(|found| *found == line).unwrap();
        let events =
            events.iter().filter(|(time, text)| (wanted.within)(**time) && (wanted.matches)(text));
        rows.extend(events.map(|(time, text)| (line, *time, text.as_str())));
    }
    let rank = |time: i64| if wanted.backward { -time } else { time };
    match wanted.by_series {
        true => rows.sort_by_key(|row| (row.0, rank(row.1))),
        false if wanted.backward => rows.sort_by_key(|row| (rank(row.1), Reverse(row.0))),
        false => rows.sort_by_key(|row| (rank(row.1), row.0)),
    }
    let rows = rows.into_iter().skip(wanted.offset).take(wanted.limit);
    let text = rows.fold(String::new(), |mut text, (line, time, event)| {
        writeln!(text, "{},ts={time},{event}", lines[line]).unwrap();
        text
    });
    (!lines.is_empty()).then_some(text)
}

/// What a function makes of the points of a line, to choose among lines by.
type Weight = Box<dyn Fn(&[(i64, f64)]) -> f64>;

#[test]
fn events_are_answered_as_a_model_does() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let store = store();
        let all = some_events(&mut random, &store);
        for _ in 0..40 {
            let (range, within, backward) = range(&mut random, EVENTS_SPAN);
            let ((tags_json, fits), (pivot_json, named)) =
                (filter(&mut random), pivot(&mut random));
            let (part_json, limit, offset) = part(&mut random);
            let by_series = random.below(2) == 0;
            let order = if by_series { r#", "order-by": "series""# } else { "" };
            let (pattern, matches): (&str, fn(&str) -> bool) = pick(
                &mut random,
                &[
                    ("", (|_| true) as fn(&str) -> bool),
                    (r#", "filter": "down|build""#, |text| {
                        text.starts_with("down") || text.starts_with("build")
                    }),
                    (r#", "filter": "^up x{20,}""#, |text| {
                        text.starts_with("up ") && text.len() >= 23
                    }),
                ],
            );
            let query = format!(
                r#"{{"select-events": "!ev", {range}, {RAW}{tags_json}{pivot_json}{part_json}{order}{pattern}}}"#
            );
            let wanted =
                Wanted { fits, named, within, matches, backward, by_series, limit, offset };
            if let Some(expected) = rows_of_events(&all, &wanted) {
                assert_eq!(text(&store, &query), expected, "seed {seed}: {query}");
            }
        }
    }
}

/// Names in a store, some of which have been there and are gone.
fn some_names(random: &mut Random, store: &SeriesStore) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    while names.len() < 300 {
        let metric = pick(random, &["cpu", "cpu.user", "cpu.user.x", "mem", "\u{e9}t\u{e9}"]);
        let host = pick(random, &["a", "b", "c", "d", "aa", "ab", "\u{fc}"]);
        let name = match random.below(4) {
            0 => format!("{metric} host={host}"),
            1 => format!("{metric} host={host} region={}", pick(random, &["eu", "us", "e"])),
            _ => {
                format!(
                    "{metric} host={host} n={} region={}",
                    random.below(40),
                    pick(random, &["eu", "us"])
                )
            }
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for chunk in names.chunks(70) {
        block_on(store.all_series(&chunk.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
    }
    for _ in 0..30 {
        let gone = names.remove(random.below(names.len() as u64) as usize);
        block_on(async { store.delete(&store.series(&gone).await?).await }).unwrap();
    }
    names
}

/// The names that a query or a search finds.
fn found(store: &SeriesStore, query: &str) -> Vec<String> {
    let parsed = match query.contains("meta:") {
        true => Query::parse(query.as_bytes()),
        false => Query::parse_search(query.as_bytes()),
    };
    let text = block_on(async { store.query(&parsed.unwrap()).await?.collect().await });
    let text = text.unwrap_or_else(|error| panic!("{error}: {query}"));
    String::from_utf8(text).unwrap().lines().map(ToOwned::to_owned).collect()
}

#[test]
fn names_are_found_as_a_model_finds_them() {
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let store = store();
        let names = some_names(&mut random, &store);
        // In the order in which they were made.
        let everything = found(&store, r#"{"select": "meta:names", "output": {"format": "csv"}}"#);
        assert_eq!(
            everything.iter().collect::<BTreeSet<_>>(),
            names.iter().collect::<BTreeSet<_>>()
        );
        for _ in 0..60 {
            let metric =
                pick(&mut random, &["", "cpu", "cpu.user", "mem", "\u{e9}t\u{e9}", "none"]);
            let ((tags_json, fits), (part_json, limit, offset)) =
                (filter(&mut random), part(&mut random));
            let select = match random.below(2) {
                0 => metric.to_string(),
                _ if metric.is_empty() => "meta:names".to_string(),
                _ => format!("meta:names:{metric}"),
            };
            let query = format!(
                r#"{{"select": "{select}", "output": {{"format": "csv"}}{tags_json}{part_json}}}"#
            );
            let wanted = everything.iter().filter(|name| {
                (metric.is_empty() || name.starts_with(&format!("{metric} "))) && fits(&tags(name))
            });
            let expected: Vec<&String> = wanted.skip(offset).take(limit).collect();
            assert_eq!(
                found(&store, &query).iter().collect::<Vec<_>>(),
                expected,
                "seed {seed}: {query}"
            );
        }
    }
}

#[test]
fn metrics_tags_and_values_are_suggested_as_a_model_has_them() {
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let store = store();
        let names = some_names(&mut random, &store);
        for _ in 0..60 {
            let metric = pick(&mut random, &["cpu", "cpu.user", "\u{e9}t\u{e9}", "none"]);
            let prefix = pick(&mut random, &["", "c", "cpu.", "a", "r", "\u{fc}", "e", "1"]);
            let of_metric = || names.iter().filter(|name| name.starts_with(&format!("{metric} ")));
            let (what, all): (String, BTreeSet<String>) = match random.below(3) {
                0 => (
                    r#""select": "metric-names""#.to_string(),
                    names.iter().map(|name| name.split(' ').next().unwrap().to_string()).collect(),
                ),
                1 => (
                    format!(r#""select": "tag-names", "metric": "{metric}""#),
                    of_metric().flat_map(|name| tags(name).into_keys()).collect(),
                ),
                _ => {
                    let tag = pick(&mut random, &["host", "region", "n", "none"]);
                    let values = of_metric().filter_map(|name| tags(name).remove(tag)).collect();
                    (
                        format!(r#""select": "tag-values", "metric": "{metric}", "tag": "{tag}""#),
                        values,
                    )
                }
            };
            let query =
                format!(r#"{{{what}, "starts-with": "{prefix}", "output": {{"format": "csv"}}}}"#);
            let found =
                block_on(async { store.suggest(query.as_bytes())?.collect().await }).unwrap();
            let found = String::from_utf8(found).unwrap();
            let expected: Vec<&String> =
                all.iter().filter(|item| item.starts_with(prefix)).collect();
            assert_eq!(found.lines().collect::<Vec<_>>(), expected, "seed {seed}: {query}");
        }
    }
}

/// A row of values.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    name: String,
    time: i64,
    cells: Vec<Option<f64>>,
}

fn rows(store: &SeriesStore, query: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut fields = line.split(',');
        let name = fields.next().unwrap().to_string();
        let time = fields.next().unwrap().strip_prefix("ts=").unwrap().parse().unwrap();
        Row { name, time, cells: fields.map(|cell| cell.parse().ok()).collect() }
    };
    text(store, query).lines().map(row).collect()
}

const SPAN: i64 = 200_000_000_000;

/// What a function makes of rows, a cell after the other; `None` if the row goes.
fn applied(function: &str, rows: &[Row]) -> Vec<Row> {
    let mut before: BTreeMap<(String, usize), Vec<(i64, f64)>> = BTreeMap::new();
    let mut made = Vec::new();
    for row in rows {
        let mut cells = Vec::new();
        for (column, cell) in row.cells.iter().enumerate() {
            let value = cell.and_then(|value| {
                let seen = before.entry((row.name.clone(), column)).or_default();
                seen.push((row.time, value));
                let values = || seen.iter().map(|(_, value)| *value);
                let count = seen.len();
                match function {
                    "rate" if count > 1 => {
                        let (then, from) = seen[count - 2];
                        Some((value - from) / ((row.time - then) as f64 / 1e9))
                    }
                    "rate" => None,
                    "accumulate" => Some(values().sum()),
                    "abs" => Some(value.abs()),
                    "cma" => Some(values().sum::<f64>() / count as f64),
                    "sma" if count >= 5 => Some(values().skip(count - 5).sum::<f64>() / 5.0),
                    "sma" => None,
                    "scale" => Some(value * [2.0, -0.5, 0.25][column]),
                    other => panic!("{other}"),
                }
            });
            cells.push(value);
        }
        if cells.iter().any(Option::is_some) {
            made.push(Row { cells, ..row.clone() });
        }
    }
    made
}

fn are_near(found: &[Row], expected: &[Row]) -> bool {
    let near = |a: &Option<f64>, b: &Option<f64>| match (a, b) {
        (Some(a), Some(b)) => is_near(*a, *b),
        (a, b) => a.is_none() && b.is_none(),
    };
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(a, b)| {
            (&a.name, a.time, a.cells.len()) == (&b.name, b.time, b.cells.len())
                && a.cells.iter().zip(&b.cells).all(|(a, b)| near(a, b))
        })
}

#[test]
fn functions_are_applied_to_rows_of_every_kind() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let (store, _) = measured(&mut random);
        for _ in 0..40 {
            let (range, _, _) = range(&mut random, SPAN);
            let (kind, columns) = pick(
                &mut random,
                &[
                    (r#""select": "x""#, 1),
                    (r#""join": ["x", "y", "z"]"#, 3),
                    (
                        r#""group-aggregate": {"metric": "x", "step": "7s", "func": ["max", "mean"]}"#,
                        2,
                    ),
                    (
                        r#""group-aggregate-join": {"metric": ["x", "y"], "step": "9s", "func": "sum"}"#,
                        2,
                    ),
                ],
            );
            let order = pick(&mut random, &["", r#", "order-by": "series""#]);
            let base = format!(r#"{kind}, {range}, {RAW}{order}"#);
            let plain = rows(&store, &format!("{{{base}}}"));
            let mut expected = plain.clone();
            let mut functions = Vec::new();
            for _ in 0..1 + random.below(3) {
                let function =
                    pick(&mut random, &["rate", "accumulate", "abs", "cma", "sma", "scale"]);
                let weights = &["2", "-0.5", "0.25"][..columns];
                functions.push(match function {
                    "scale" => {
                        format!(r#"{{"name": "scale", "weights": [{}]}}"#, weights.join(", "))
                    }
                    "sma" => r#"{"name": "sma", "window-width": 5}"#.to_string(),
                    name => format!(r#"{{"name": "{name}"}}"#),
                });
                expected = applied(function, &expected);
            }
            let query = format!(r#"{{{base}, "apply": [{}]}}"#, functions.join(", "));
            let found = rows(&store, &query);
            assert!(are_near(&found, &expected), "seed {seed}: {query}\n{found:?}\n{expected:?}");
            // Of the rows that functions make, limit and offset count.
            let (part_json, limit, offset) = part(&mut random);
            let query = format!(r#"{{{base}, "apply": [{}]{part_json}}}"#, functions.join(", "));
            let expected: Vec<Row> = expected.into_iter().skip(offset).take(limit).collect();
            assert!(are_near(&rows(&store, &query), &expected), "seed {seed}: {query}");
        }
    }
}

#[test]
fn columns_are_made_into_one_as_they_should() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let (store, _) = measured(&mut random);
        for _ in 0..20 {
            let (range, _, _) = range(&mut random, SPAN);
            let base = format!(r#""join": ["x", "y", "z"], {range}, {RAW}"#);
            let plain = rows(&store, &format!("{{{base}}}"));
            let ignores = random.below(2) == 0;
            let collapse =
                |name: &str| format!(r#"{{"name": "{name}", "ignore_missing": {ignores}}}"#);
            type Of = fn(f64, f64) -> f64;
            let (function, of): (String, Option<Of>) = match random.below(5) {
                0 => (collapse("sum"), Some(|a, b| a + b)),
                1 => (collapse("diff"), Some(|a, b| a - b)),
                2 => (collapse("multiply"), Some(|a, b| a * b)),
                3 => (collapse("divide"), Some(|a, b| a / b)),
                _ => (
                    r#"{"name": "eval", "expr": "x > 0 ? (x + y) * 2 : max(y, z) - x ^ 2"}"#
                        .to_string(),
                    None,
                ),
            };
            let one = |cells: &[Option<f64>]| match of {
                Some(_) if !ignores && cells.contains(&None) => None,
                Some(of) => cells.iter().flatten().copied().reduce(of),
                None => {
                    let [x, y, z] = [0, 1, 2].map(|column| cells[column].unwrap_or(0.0));
                    Some(if x > 0.0 { (x + y) * 2.0 } else { y.max(z) - x * x })
                }
            };
            let made = plain.iter().map(|row| Row { cells: vec![one(&row.cells)], ..row.clone() });
            let expected: Vec<Row> = made.filter(|row| row.cells[0].is_some()).collect();
            let query = format!(r#"{{{base}, "apply": [{function}]}}"#);
            assert!(are_near(&rows(&store, &query), &expected), "seed {seed}: {query}");
        }
    }
}

#[test]
fn lines_are_weighed_against_each_other() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let (store, _) = measured(&mut random);
        for _ in 0..20 {
            let (range, _, _) = range(&mut random, SPAN);
            let base = format!(r#""select": "x", {range}, {RAW}"#);
            let mut lines: Vec<(String, Vec<(i64, f64)>)> = Vec::new();
            // In the order in which series were made.
            for row in rows(&store, &format!(r#"{{{base}, "order-by": "series"}}"#)) {
                match lines.last_mut() {
                    Some((name, points)) if *name == row.name => {
                        points.push((row.time, row.cells[0].unwrap()))
                    }
                    _ => lines.push((row.name, vec![(row.time, row.cells[0].unwrap())])),
                }
            }
            let area = |points: &[(i64, f64)]| -> f64 {
                points
                    .windows(2)
                    .map(|p| (p[0].1 + p[1].1) / 2.0 * ((p[1].0 - p[0].0) as f64 / 1e9).abs())
                    .sum()
            };
            let portion = [0.0, 0.1, 0.25][random.below(3) as usize];
            let (function, weight): (String, Weight) = match random.below(3) {
                0 => (r#"{"name": "top", "N": 2}"#.to_string(), Box::new(area)),
                1 => (
                    format!(r#"{{"name": "frequent-items", "error": 0.1, "portion": {portion}}}"#),
                    Box::new(|points| points.len() as f64),
                ),
                _ => (
                    format!(r#"{{"name": "heavy-hitters", "error": 0.1, "portion": {portion}}}"#),
                    Box::new(|points| points.iter().map(|p| p.1).sum()),
                ),
            };
            let mut weights: Vec<(String, f64)> =
                lines.iter().map(|(name, points)| (name.clone(), weight(points))).collect();
            let all: f64 = weights.iter().map(|line| line.1).sum();
            weights.sort_by(|a, b| b.1.total_cmp(&a.1));
            match function.contains("top") {
                true => weights.truncate(2),
                false => weights.retain(|line| line.1 > portion * all),
            }
            let query = format!(r#"{{{base}, "apply": [{function}]}}"#);
            let found: Vec<(String, f64)> = rows(&store, &query)
                .into_iter()
                .map(|row| (row.name, row.cells[0].unwrap()))
                .collect();
            let same = found.len() == weights.len()
                && found.iter().zip(&weights).all(|(a, b)| a.0 == b.0 && is_near(a.1, b.1));
            assert!(same, "seed {seed}: {query}\n{found:?}\n{weights:?}");
        }
    }
}

/// The least, the greatest and so on of points that ascend.
fn function(name: &str, points: &[(i64, f64)]) -> f64 {
    let values = || points.iter().map(|(_, value)| *value);
    match name {
        "min" => values().fold(f64::INFINITY, f64::min),
        "max" => values().fold(f64::NEG_INFINITY, f64::max),
        "sum" => values().sum(),
        "count" => points.len() as f64,
        "mean" => values().sum::<f64>() / points.len() as f64,
        other => panic!("{other}"),
    }
}

/// Points of a metric's series that a query wants, those that have any, by their tags as names have
/// them.
fn points_of(
    all: &Points,
    metric: &str,
    fits: &Fits,
    within: &dyn Fn(i64) -> bool,
) -> Vec<(String, Vec<(i64, f64)>)> {
    let named =
        all.iter().filter(|(name, _)| name.starts_with(&format!("{metric} ")) && fits(&tags(name)));
    let points = |points: &BTreeMap<i64, f64>| -> Vec<(i64, f64)> {
        points.iter().map(|(time, value)| (*time, *value)).filter(|point| within(point.0)).collect()
    };
    let found = named.map(|(name, found)| (name[1..].to_string(), points(found)));
    found.filter(|(_, points)| !points.is_empty()).collect()
}

type Points = BTreeMap<String, BTreeMap<i64, f64>>;

#[test]
fn aggregates_of_several_metrics_and_functions() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let (store, all) = measured(&mut random);
        for _ in 0..30 {
            let (range, within, _) = range(&mut random, SPAN);
            let (tags_json, fits) = filter(&mut random);
            if all.keys().filter(|name| !name.starts_with('y')).all(|name| !fits(&tags(name))) {
                continue;
            }
            let query = format!(
                r#"{{"aggregate": {{"x": ["max", "count"], "z": "mean"}}, {range}, {RAW}{tags_json}}}"#
            );
            let mut expected = BTreeMap::new();
            for (metric, func) in [("x", "max"), ("x", "count"), ("z", "mean")] {
                for (tags, points) in points_of(&all, metric, &fits, &within) {
                    expected.insert(format!("{metric}:{func}{tags}"), function(func, &points));
                }
            }
            let found: BTreeMap<String, f64> = rows(&store, &query)
                .into_iter()
                .map(|row| (row.name, row.cells[0].unwrap()))
                .collect();
            let near = found.iter().zip(&expected).all(|(a, b)| a.0 == b.0 && is_near(*a.1, *b.1));
            assert!(
                found.len() == expected.len() && near,
                "seed {seed}: {query}\n{found:?}\n{expected:?}"
            );
        }
    }
}

const STEP: i64 = 11_000_000_000;

/// The rows of buckets with the least, the sum and the greatest, where all conditions hold or one
/// of them does.
fn buckets(points: Vec<(i64, f64)>, from: i64, backward: bool, any: bool) -> Vec<(i64, [f64; 3])> {
    let mut buckets: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
    for point in points {
        let bucket = match backward {
            false => from + (point.0 - from) / STEP * STEP,
            true => from - (from - point.0) / STEP * STEP,
        };
        buckets.entry(bucket).or_default().push(point);
    }
    let cells = |points: &[(i64, f64)]| ["min", "sum", "max"].map(|func| function(func, points));
    let rows = buckets.iter().map(|(time, points)| (*time, cells(points)));
    let holds = |(_, [min, _, max]): &(i64, [f64; 3])| {
        let (high, low) = (*max > 20.0 && *max <= 90.0, *min < -40.0);
        if any { high || low } else { high && low }
    };
    rows.filter(holds).collect()
}

#[test]
fn buckets_of_several_metrics_where_all_conditions_hold_or_one_of_them() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let (store, all) = measured(&mut random);
        for _ in 0..30 {
            let (from, to) = (
                random.below(200) as i64 * 1_000_000_007,
                random.below(200) as i64 * 1_000_000_007,
            );
            let backward = from > to;
            let within = |time: i64| {
                if backward { to < time && time <= from } else { from <= time && time < to }
            };
            let (tags_json, fits) = filter(&mut random);
            if all.keys().filter(|name| !name.starts_with('y')).all(|name| !fits(&tags(name))) {
                continue;
            }
            let any = random.below(2) == 0;
            let require = if any { "any" } else { "all" };
            let conditions = format!(
                r#""filter": {{"max": {{"gt": 20, "le": 90}}, "min": {{"lt": -40}}, "=": {{"require": "{require}"}}}}"#
            );
            let query = format!(
                r#"{{"group-aggregate": {{"metric": ["x", "z"], "step": "11s", "func": ["min", "sum", "max"]}},
                    "range": {{"from": "{from}ns", "to": "{to}ns"}}, {RAW}{tags_json}, {conditions}}}"#
            );
            let mut expected: Vec<Row> = Vec::new();
            for metric in ["x", "z"] {
                for (tags, points) in points_of(&all, metric, &fits, &within) {
                    for (time, cells) in buckets(points, from, backward, any) {
                        let name = format!("{metric}:min|{metric}:sum|{metric}:max{tags}");
                        expected.push(Row { name, time, cells: cells.map(Some).to_vec() });
                    }
                }
            }
            let mut found = rows(&store, &query);
            let rank = |row: &Row| if backward { -row.time } else { row.time };
            assert!(found.is_sorted_by_key(rank), "seed {seed}: {query}");
            let key = |row: &Row| (row.name.clone(), row.time);
            found.sort_by_key(key);
            expected.sort_by_key(key);
            assert!(are_near(&found, &expected), "seed {seed}: {query}\n{found:?}\n{expected:?}");
        }
    }
}
