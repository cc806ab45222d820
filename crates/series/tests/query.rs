//! Queries against a naive evaluation: every kind, with every field, over random series, both ways
//! in time and in both orders.
//!
//! The model holds all points in maps, goes through all of them for each query, and sorts the rows
//! at the end. All values are small multiples of 1/4, whose sums do not depend on the order. The
//! seed and the query are in each message.

mod common;

use common::{ask, filled as store};
use plinth::Local;
use plinth_env::block_on;
use plinth_series::workload::Random;
use plinth_series::{Name, Query, QueryLimits, SeriesStore, Settings, Value, event};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

const NAMES: [&str; 9] = [
    "x host=a region=eu",
    "x host=b region=eu",
    "y host=b region=eu",
    "y host=a region=eu",
    "x host=c region=us",
    "y host=c region=us",
    "z host=a region=eu",
    "x host=d",
    "z host=d",
];
const SPAN: i64 = 4000;

type Points = BTreeMap<i64, Value>;
type Joined = BTreeMap<(String, i64), Vec<Option<f64>>>;

struct Model {
    random: Random,
    store: SeriesStore,
    points: Vec<Points>,
}

/// A row, before it is text.
#[derive(Clone, Debug)]
struct Row {
    line: usize,
    name: String,
    time: i64,
    cells: Vec<Option<f64>>,
}

/// What a query asks for, as the model understands it.
struct Asked {
    json: String,
    from: i64,
    to: i64,
    by_series: bool,
    hosts: Vec<&'static str>,
    keep: Keep,
    limit: usize,
    offset: usize,
    above: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Keep {
    All,
    Region,
    NotHost,
}

/// Rows with the fewest digits that mean the same numbers.
fn shortest(rows: &str) -> String {
    let cell = |(column, cell): (usize, &str)| match cell.parse::<f64>() {
        Ok(number) if column > 1 => number.to_string(),
        _ => cell.to_string(),
    };
    let row = |row: &str| row.split(',').enumerate().map(cell).collect::<Vec<_>>().join(",") + "\n";
    rows.lines().map(row).collect()
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let settings = Settings {
            leaf_points: 1 + random.below(40) as usize,
            commit_every: None,
            ..Settings::default()
        };
        let db = Local::in_memory().unwrap().into_database();
        let store = block_on(SeriesStore::open_with(&db, settings.clone())).unwrap();
        // One after the other: the order of lines is that in which series came to be.
        let series: Vec<_> =
            NAMES.iter().map(|name| block_on(store.series(name)).unwrap()).collect();
        let mut points = vec![Points::new(); NAMES.len()];
        for (which, points) in points.iter_mut().enumerate() {
            let mut time = 0;
            let step = 1 + random.below(60);
            while time < SPAN {
                time += 1 + random.below(step) as i64;
                let late = if random.below(20) == 0 { random.below(500) as i64 } else { 0 };
                let value = match random.below(4) {
                    0 => Value::Integer(random.below(100) as i64 - 50),
                    _ => Value::Float(random.below(800) as f64 / 4.0 - 100.0),
                };
                series[which].append(time - late, value).unwrap();
                points.insert(time - late, value);
            }
            if random.below(2) == 0 {
                block_on(store.sync()).unwrap();
            }
        }
        let mut store = store;
        if random.below(2) == 0 {
            // Series that nobody has written since: none of them is in memory as a whole.
            block_on(store.sync()).unwrap();
            store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
        }
        Self { random, store, points }
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.below(of.len() as u64) as usize]
    }

    /// The fields that all kinds share.
    fn ask(&mut self, with_keep: bool, with_order: bool) -> Asked {
        let (from, to) =
            (self.random.below(4400) as i64 - 200, self.random.below(4400) as i64 - 200);
        let by_series = with_order && self.random.below(2) == 0;
        let hosts =
            self.pick(&[&["a", "b", "c", "d"][..], &["a"], &["b", "c"], &["a", "d"]]).to_vec();
        let keep = if with_keep {
            self.pick(&[Keep::All, Keep::Region, Keep::NotHost])
        } else {
            Keep::All
        };
        let limit =
            if self.random.below(3) == 0 { self.random.below(50) as usize } else { usize::MAX };
        let offset = if self.random.below(3) == 0 { self.random.below(50) as usize } else { 0 };
        let above = (self.random.below(3) == 0).then(|| self.random.below(100) as f64);
        let mut json = format!(
            r#""range": {{"from": "{from}ns", "to": "{to}"}}, "output": {{"format": "csv", "timestamp": "raw"}}"#
        );
        let hosts_are_all = hosts.len() == 4;
        if !hosts_are_all {
            write!(json, r#", "where": {{"host": {hosts:?}}}"#).unwrap();
        }
        match keep {
            Keep::All => {}
            Keep::Region => json.push_str(r#", "pivot-by-tag": ["region"]"#),
            Keep::NotHost => json.push_str(r#", "group-by-tag": "host""#),
        }
        if by_series {
            json.push_str(r#", "order-by": "series""#);
        }
        if limit < usize::MAX {
            write!(json, r#", "limit": {limit}"#).unwrap();
        }
        if offset > 0 {
            write!(json, r#", "offset": "{offset}""#).unwrap();
        }
        Asked { json, from, to, by_series, hosts, keep, limit, offset, above }
    }

    /// The series of a metric that a query asks for, with the name of their line.
    fn series(&self, asked: &Asked, metric: &str) -> Vec<(usize, String)> {
        let of = |(which, name): (usize, &&str)| {
            let name = Name::parse(name).unwrap();
            let wanted =
                name.metric() == metric && name.tags().any(|(_, host)| asked.hosts.contains(&host));
            let tags = name.tags().filter(|(tag, _)| asked.keep == Keep::All || *tag == "region");
            let tags: String = tags.map(|(tag, value)| format!(" {tag}={value}")).collect();
            wanted.then_some((which, tags))
        };
        NAMES.iter().enumerate().filter_map(of).collect()
    }

    fn points(&self, asked: &Asked, which: usize) -> Vec<(i64, Value)> {
        let range =
            if asked.from > asked.to { asked.to + 1..asked.from + 1 } else { asked.from..asked.to };
        self.points[which].range(range).map(|(time, value)| (*time, *value)).collect()
    }

    /// Compares the answer with rows, which are in the order of series.
    fn check(&self, asked: &Asked, mut rows: Vec<Row>) {
        let is_backward = asked.from > asked.to;
        let rank = |row: &Row| if is_backward { -row.time } else { row.time };
        match asked.by_series {
            true => rows.sort_by_key(|row| (row.line, rank(row))),
            false if is_backward => rows.sort_by_key(|row| (rank(row), Reverse(row.line))),
            false => rows.sort_by_key(|row| (rank(row), row.line)),
        }
        let mut expected = String::new();
        for row in rows.iter().skip(asked.offset).take(asked.limit) {
            write!(expected, "{},ts={}", row.name, row.time).unwrap();
            for cell in &row.cells {
                write!(expected, ",{}", cell.map_or(String::new(), |cell| cell.to_string()))
                    .unwrap();
            }
            expected.push('\n');
        }
        assert_eq!(shortest(&self.answer(&asked.json)), expected, "{}", asked.json);
    }

    fn answer(&self, json: &str) -> String {
        block_on(async {
            let query = Query::parse(json.as_bytes()).unwrap();
            match self.store.query(&query).await {
                Ok(answer) => String::from_utf8(answer.collect().await.unwrap()).unwrap(),
                Err(error) => panic!("{error}: {json}"),
            }
        })
    }

    /// Numbers lines by name in the order in which they come.
    fn number(rows: &mut [Row], order: &[String]) {
        for row in rows {
            row.line = order.iter().position(|name| *name == row.name).unwrap();
        }
    }

    fn select(&mut self) {
        let mut asked = self.ask(true, true);
        let filter =
            asked.above.map_or(String::new(), |above| format!(r#", "filter": {{"gt": {above}}}"#));
        asked.json = format!(r#"{{"select": "x", {}{filter}}}"#, asked.json);
        let series = self.series(&asked, "x");
        let order: Vec<String> = series.iter().map(|(_, tags)| format!("x{tags}")).collect();
        let mut rows = Vec::new();
        for (which, tags) in &series {
            for (time, value) in self.points(&asked, *which) {
                if asked.above.is_none_or(|above| value.as_f64() > above) {
                    let cells = vec![Some(value.as_f64())];
                    rows.push(Row { line: 0, name: format!("x{tags}"), time, cells });
                }
            }
        }
        Self::number(&mut rows, &order);
        self.check(&asked, rows);
    }

    fn join(&mut self) {
        let mut asked = self.ask(false, true);
        let filter = asked
            .above
            .map_or(String::new(), |above| format!(r#", "filter": {{"y": {{"le": {above}}}}}"#));
        asked.json = format!(r#"{{"join": ["x", "y", "z"], {}{filter}}}"#, asked.json);
        let (mut order, mut cells): (Vec<String>, Joined) = Default::default();
        for (column, metric) in ["x", "y", "z"].into_iter().enumerate() {
            for (which, tags) in self.series(&asked, metric) {
                let name = format!("x|y|z{tags}");
                for (time, value) in self.points(&asked, which) {
                    if metric == "y" && asked.above.is_some_and(|above| value.as_f64() > above) {
                        continue;
                    }
                    let row = cells.entry((name.clone(), time)).or_insert_with(|| vec![None; 3]);
                    row[column] = Some(value.as_f64());
                }
                order.push(name);
            }
        }
        let row = |((name, time), cells)| Row { line: 0, name, time, cells };
        // A filter on one metric of them lets whole rows through, or not.
        let meets =
            |(_, cells): &(_, Vec<Option<f64>>)| asked.above.is_none() || cells[1].is_some();
        let mut rows: Vec<Row> = cells.into_iter().filter(meets).map(row).collect();
        Self::number(&mut rows, &order);
        self.check(&asked, rows);
    }

    fn function(name: &str, points: &[(i64, Value)], backward: bool) -> (i64, f64) {
        let values = points.iter().map(|(time, value)| (*time, value.as_f64()));
        let (mut first, mut last) =
            (values.clone().next().unwrap(), values.clone().next_back().unwrap());
        let newest = last.0;
        if backward {
            std::mem::swap(&mut first, &mut last);
        }
        let min = values.clone().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let max = values.clone().reduce(|a, b| if b.1 > a.1 { b } else { a }).unwrap();
        let sum: f64 = values.clone().map(|value| value.1).sum();
        match name {
            "min" => min,
            "max" => max,
            "first" => first,
            "last" => last,
            "sum" => (newest, sum),
            "count" => (newest, points.len() as f64),
            "mean" => (newest, sum / points.len() as f64),
            "min_timestamp" => (min.0, min.0 as f64),
            "max_timestamp" => (max.0, max.0 as f64),
            "first_timestamp" => (first.0, first.0 as f64),
            "last_timestamp" => (last.0, last.0 as f64),
            other => panic!("{other}"),
        }
    }

    const FUNCS: [&str; 11] = [
        "min",
        "max",
        "first",
        "last",
        "sum",
        "count",
        "mean",
        "min_timestamp",
        "max_timestamp",
        "first_timestamp",
        "last_timestamp",
    ];

    fn aggregate(&mut self) {
        let mut asked = self.ask(true, false);
        let func = self.pick(&Self::FUNCS);
        asked.json = format!(r#"{{"aggregate": {{"x": "{func}"}}, {}}}"#, asked.json);
        let backward = asked.from > asked.to;
        let mut lines: Vec<(String, Vec<(i64, Value)>)> = Vec::new();
        for (which, tags) in self.series(&asked, "x") {
            let name = format!("x:{func}{tags}");
            let points = self.points(&asked, which);
            match lines.iter_mut().find(|(found, _)| *found == name) {
                Some((_, all)) => all.extend(points),
                None => lines.push((name, points)),
            }
        }
        let mut expected = String::new();
        lines.iter_mut().for_each(|(_, points)| points.sort_by_key(|point| point.0));
        let lines = lines.iter().filter(|(_, points)| !points.is_empty());
        for (name, points) in lines.skip(asked.offset).take(asked.limit) {
            // Which of several points of one time comes first is the order of series.
            let (time, value) = Self::function(func, points, backward);
            writeln!(expected, "{name},ts={time},{value}").unwrap();
        }
        let found = shortest(&self.answer(&asked.json));
        if asked.keep == Keep::All || !func.contains("st") {
            assert_eq!(found, expected, "{}", asked.json);
        }
    }

    fn buckets(
        &self,
        asked: &Asked,
        which: &[usize],
        step: i64,
    ) -> BTreeMap<i64, Vec<(i64, Value)>> {
        let mut buckets: BTreeMap<i64, Vec<(i64, Value)>> = BTreeMap::new();
        for which in which {
            for (time, value) in self.points(asked, *which) {
                let bucket = match asked.from > asked.to {
                    false => asked.from + (time - asked.from) / step * step,
                    true => asked.from - (asked.from - time) / step * step,
                };
                buckets.entry(bucket).or_default().push((time, value));
            }
        }
        buckets.values_mut().for_each(|points| points.sort_by_key(|point| point.0));
        buckets
    }

    fn group(&mut self) {
        let mut asked = self.ask(true, true);
        let step = 1 + self.random.below(900) as i64;
        let filter = asked.above.map_or(String::new(), |above| {
            format!(
                r#", "filter": {{"max": {{"gt": {above}}}, "mean": {{"lt": 0}}, "=": {{"require": "any"}}}}"#
            )
        });
        asked.json = format!(
            r#"{{"group-aggregate": {{"metric": ["x", "y"], "step": {step}, "func": ["max", "mean", "count"]}}, {}{filter}}}"#,
            asked.json
        );
        let backward = asked.from > asked.to;
        let mut rows = Vec::new();
        let mut order: Vec<String> = Vec::new();
        for metric in ["x", "y"] {
            let mut lines: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            for (which, tags) in self.series(&asked, metric) {
                let name = format!("{metric}:max|{metric}:mean|{metric}:count{tags}");
                order.push(name.clone());
                lines.entry(name).or_default().push(which);
            }
            for (name, which) in lines {
                for (time, points) in self.buckets(&asked, &which, step) {
                    let value = |func| Self::function(func, &points, backward).1;
                    let (max, mean) = (value("max"), value("mean"));
                    if asked.above.is_none_or(|above| max > above || mean < 0.0) {
                        let cells = vec![Some(max), Some(mean), Some(value("count"))];
                        rows.push(Row { line: 0, name: name.clone(), time, cells });
                    }
                }
            }
        }
        Self::number(&mut rows, &order);
        self.check(&asked, rows);
    }

    fn group_join(&mut self) {
        let mut asked = self.ask(false, true);
        let step = 1 + self.random.below(900) as i64;
        let func = self.pick(&Self::FUNCS);
        asked.json = format!(
            r#"{{"group-aggregate-join": {{"metric": ["x", "y"], "step": "{step}ns", "func": "{func}"}}, {}}}"#,
            asked.json
        );
        let backward = asked.from > asked.to;
        let (mut order, mut cells): (Vec<String>, Joined) = Default::default();
        for (column, metric) in ["x", "y"].into_iter().enumerate() {
            for (which, tags) in self.series(&asked, metric) {
                let name = format!("x|y{tags}");
                for (time, points) in self.buckets(&asked, &[which], step) {
                    let row = cells.entry((name.clone(), time)).or_insert_with(|| vec![None; 2]);
                    row[column] = Some(Self::function(func, &points, backward).1);
                }
                order.push(name);
            }
        }
        let row = |((name, time), cells)| Row { line: 0, name, time, cells };
        let mut rows: Vec<Row> = cells.into_iter().map(row).collect();
        Self::number(&mut rows, &order);
        self.check(&asked, rows);
    }
}

#[test]
fn every_kind_of_query_is_answered_as_a_model_does() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut model = Model::new(seed);
        for _ in 0..10 {
            model.select();
            model.join();
            model.aggregate();
            model.group();
            model.group_join();
        }
    }
}

/// The values of the rows that a function makes, and of which lines they are.
fn applied(store: &SeriesStore, kind: &str, apply: &str) -> Vec<String> {
    let json = format!(
        r#"{{{kind}, "apply": [{apply}], "range": {{"from": 0, "to": "19700101T010000"}}, "output": {{"format": "csv"}}}}"#
    );
    let rows = shortest(&ask(store, &json).unwrap());
    rows.lines().map(|row| row.rsplit_once("000,").unwrap().1.to_string()).collect()
}

#[test]
fn functions_do_what_the_manual_says() {
    let store = store(&[
        ("x host=a", &[1.0, 3.0, -3.0, 5.0]),
        ("y host=a", &[2.0, 2.0]),
        ("n host=a", &[1.0; 12]),
        ("n host=b", &[5.0, 5.0, 5.0]),
        ("n host=c", &[100.0]),
    ]);
    let x = r#""select": "x""#;
    for (apply, expected) in [
        (r#"{"name": "rate"}"#, vec!["2", "-6", "8"]),
        (r#"{"name": "accumulate"}"#, vec!["1", "4", "1", "6"]),
        (r#"{"name": "abs"}, {"name": "cusum"}"#, vec!["1", "4", "7", "12"]),
        (r#"{"name": "scale", "weights": [0.5]}"#, vec!["0.5", "1.5", "-1.5", "2.5"]),
        (r#"{"name": "cma"}"#, vec!["1", "2", "0.3333333333333333", "1.5"]),
        (r#"{"name": "sma", "window-width": 2}"#, vec!["2", "0", "1"]),
        (r#"{"name": "sma-error", "window-width": 2}"#, vec!["1", "-3", "4"]),
        (r#"{"name": "eval", "expr": "x ^ 2 - 1"}"#, vec!["0", "8", "8", "24"]),
        (r#"{"name": "top", "N": 1}"#, vec!["3"]),
    ] {
        assert_eq!(applied(&store, x, apply), expected, "{apply}");
    }
    let join = r#""join": ["x", "y"]"#;
    for (apply, expected) in [
        (r#"{"name": "rate"}"#, vec!["2,0", "-6,", "8,"]),
        (r#"{"name": "sum", "ignore_missing": true}"#, vec!["3", "5", "-3", "5"]),
        (r#"{"name": "diff", "ignore_missing": false}"#, vec!["-1", "1"]),
        (r#"{"name": "multiply", "ignore_missing": false}"#, vec!["2", "6"]),
        (r#"{"name": "divide", "ignore_missing": false}"#, vec!["0.5", "1.5"]),
        (r#"{"name": "eval", "expr": "x + 10 * y"}"#, vec!["21", "23", "-3", "5"]),
    ] {
        assert_eq!(applied(&store, join, apply), expected, "{apply}");
    }
    let n = r#""select": "n""#;
    for (apply, expected) in [
        (r#"{"name": "ewma", "decay": 0.5}"#, vec!["1", "1"]),
        (r#"{"name": "ewma-error", "decay": 0.5}"#, vec!["0", "0"]),
        (r#"{"name": "top", "N": 2}"#, vec!["11", "10"]),
        (r#"{"name": "frequent-items", "error": 0.01, "portion": 0.1}"#, vec!["12", "3"]),
        (r#"{"name": "heavy-hitters", "error": 0.01, "portion": 0.5}"#, vec!["100"]),
    ] {
        assert_eq!(applied(&store, n, apply), expected, "{apply}");
    }
}

#[test]
fn rows_have_akumulis_form() {
    let store = store(&[("x host=a", &[1.5, 2.0]), ("y host=a", &[7.0])]);
    let ask = |json: &str| ask(&store, json).unwrap();
    let range = r#""range": {"from": 0, "to": "2000000001ns"}"#;
    assert_eq!(
        ask(&format!(r#"{{"select": "x", {range}}}"#)),
        "+x host=a\r\n+19700101T000001.000000000\r\n+1.5\r\n+x host=a\r\n+19700101T000002.000000000\r\n+2\r\n"
    );
    assert_eq!(
        ask(&format!(
            r#"{{"join": ["x", "y"], {range}, "output": {{"timestamp": "raw"}}, "offset": 1}}"#
        )),
        "+x|y host=a\r\n+ts=2000000000\r\n*2\r\n+2\r\n$-1\r\n"
    );
    assert_eq!(ask(r#"{"select": "meta:names"}"#), "+x host=a\r\n+y host=a\r\n");
    assert_eq!(ask(r#"{"select": "meta:names:y", "output": {"format": "csv"}}"#), "y host=a\n");
    assert_eq!(
        ask(r#"{"aggregate": {"x": "sum", "y": "last"}, "output": {"format": "csv"}}"#)
            .lines()
            .count(),
        2
    );
}

#[test]
fn events_are_selected_both_ways() {
    let store = store(&[]);
    let texts: Vec<(i64, String)> = (0..200_i64)
        .map(|n| {
            (n * 2_000 + n * n % 1000, format!("event {n} {}", "x".repeat((n * 37 % 90) as usize)))
        })
        .collect();
    block_on(async {
        let series = store.series("!ev host=a").await.unwrap();
        for (time, text) in &texts {
            for point in event::points(*time, text.as_bytes()).unwrap() {
                series.append(point.time, point.value).unwrap();
            }
        }
    });
    for (from, to, filter) in
        [(0, 1_000_000, ""), (50_000, 200_345, ""), (300_000, 20_000, ""), (400_000, -1, "7 x")]
    {
        let json = format!(
            r#"{{"select-events": "!ev", "range": {{"from": {from}, "to": {to}}}, "filter": "{filter}",
                "output": {{"format": "csv", "timestamp": "raw"}}}}"#
        );
        let range = if from > to { to + 1..from + 1 } else { from..to };
        let wanted =
            texts.iter().filter(|(time, text)| range.contains(time) && text.contains(filter));
        let mut expected: Vec<String> =
            wanted.map(|(time, text)| format!("!ev host=a,ts={time},{text}\n")).collect();
        if from > to {
            expected.reverse();
        }
        assert!(!expected.is_empty());
        assert_eq!(ask(&store, &json).unwrap(), expected.concat(), "{json}");
    }
}

#[test]
fn names_are_found_and_suggested() {
    let store = store(&[]);
    let mut names: Vec<String> =
        (0..2500).map(|n| format!("cpu.user host=h{n:04} os=o{}", n % 3)).collect();
    names.push("cpu.sys host=h1".to_string());
    names.push("cpu host=h1".to_string());
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    block_on(store.all_series(&refs)).unwrap();
    let suggest = |json: &str| {
        let text = block_on(async { store.suggest(json.as_bytes())?.collect().await }).unwrap();
        String::from_utf8(text)
            .unwrap()
            .lines()
            .map(|line| line[1..].to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(suggest(r#"{"select": "metric-names"}"#), ["cpu", "cpu.sys", "cpu.user"]);
    assert_eq!(
        suggest(r#"{"select": "metric-names", "starts-with": "cpu."}"#),
        ["cpu.sys", "cpu.user"]
    );
    assert_eq!(suggest(r#"{"select": "tag-names", "metric": "cpu.user"}"#), ["host", "os"]);
    assert_eq!(
        suggest(r#"{"select": "tag-names", "metric": "cpu.user", "starts-with": "o"}"#),
        ["os"]
    );
    assert_eq!(
        suggest(r#"{"select": "tag-values", "metric": "cpu.user", "tag": "os"}"#),
        ["o0", "o1", "o2"]
    );
    let hosts = suggest(r#"{"select": "tag-values", "metric": "cpu.user", "tag": "host"}"#);
    assert_eq!((hosts.len(), hosts[2499].as_str()), (2500, "h2499"));
    assert_eq!(
        suggest(
            r#"{"select": "tag-values", "metric": "cpu.user", "tag": "host", "starts-with": "h00"}"#
        )
        .len(),
        100
    );
    assert!(suggest(r#"{"select": "tag-names", "metric": "none"}"#).is_empty());

    let search = |json: &str| {
        let query = Query::parse_search(json.as_bytes()).unwrap();
        block_on(async { store.query(&query).await?.collect().await })
            .map(|text| text.split(|b| *b == b'\n').count() - 1)
    };
    assert_eq!(search(r#"{"select": ""}"#).unwrap(), 2502);
    assert_eq!(search(r#"{"select": "", "where": {"os": "o1"}}"#).unwrap(), 833);
    assert_eq!(search(r#"{"select": "cpu.user", "where": {"os": ["o1", "o2"]}}"#).unwrap(), 1666);
    assert_eq!(
        search(r#"{"select": "cpu.user", "where": {"os": ["o1"], "host": ["h0001", "h0002"]}}"#)
            .unwrap(),
        1
    );
    assert_eq!(
        search(
            r#"{"select": "cpu.user", "where": [{"host": "h0001", "os": "o1"}, {"host": "h0001"}]}"#
        )
        .unwrap(),
        1
    );
    assert_eq!(search(r#"{"select": "cpu.user", "limit": 10, "offset": 2495}"#).unwrap(), 5);
}

#[test]
fn a_query_may_read_more_points_than_it_may_hold() {
    let settings = Settings { leaf_points: 100, commit_every: None, ..Settings::default() };
    let db = Local::in_memory().unwrap().into_database();
    let store = block_on(SeriesStore::open_with(&db, settings)).unwrap();
    let series = block_on(store.series("m host=a")).unwrap();
    for time in 0..5000 {
        series.append(time, time).unwrap();
    }
    block_on(store.sync()).unwrap();
    for range in [r#"{"from": 0, "to": 5000}"#, r#"{"from": 4999, "to": -1}"#] {
        let json = format!(r#"{{"select": "m", "range": {range}, "output": {{"format": "csv"}}}}"#);
        let limits = QueryLimits { points: 250, ..QueryLimits::default() };
        let answer =
            block_on(store.query_within(&Query::parse(json.as_bytes()).unwrap(), limits)).unwrap();
        let text = String::from_utf8(block_on(answer.collect()).unwrap()).unwrap();
        assert_eq!(text.lines().count(), 5000, "{range}");
    }
}

/// Each with what its error has to name.
const WRONG: [(&str, &str); 52] = [
    ("", "JSON"),
    ("[]", "query"),
    ("{}", "one of the fields select"),
    (r#"{"foo": "bar", "a": 1}"#, "expected, `foo`, `a` found"),
    (r#"{"select": "x", "#, "JSON"),
    (r#"{"select": "x"}"#, "`range`"),
    (r#"{"select": "x", "select": "y"}"#, "twice"),
    (r#"{"select": "x", "aggregate": {}}"#, "either"),
    (r#"{"select": 1, R}"#, "`select`"),
    (r#"{"select": "", R}"#, "`select`"),
    (r#"{"select": "meta:namesx"}"#, "`select`"),
    (r#"{"select": "x", R, "sample": 1}"#, "unexpected field `sample`"),
    (r#"{"select": "x", "range": 5}"#, "`range`"),
    (r#"{"select": "x", "range": {"from": 5}}"#, "`range.to`"),
    (r#"{"select": "x", "range": {"from": 5, "to": 6, "by": 7}}"#, "`by`"),
    (r#"{"select": "x", "range": {"from": "2017-01-07 25:03:00", "to": 0}}"#, "`range.from`"),
    (r#"{"select": "x", "range": {"from": "20172107T120300", "to": 0}}"#, "`range.from`"),
    (r#"{"select": "x", "range": {"from": 0, "to": 1.5}}"#, "`range.to`"),
    (r#"{"select": "x", "range": {"from": 0, "to": 99999999999999999999}}"#, "`range.to`"),
    (r#"{"select": "x", R, "where": 5}"#, "`where`"),
    (r#"{"select": "x", R, "where": {"host": 5}}"#, "`where.host`"),
    (r#"{"select": "x", R, "where": {"host": []}}"#, "`where.host`"),
    (r#"{"select": "x", R, "where": [{}]}"#, "`where`"),
    (r#"{"select": "x", R, "where": [{"host": 1}]}"#, "`where.host`"),
    (r#"{"select": "x", R, "order-by": "name"}"#, "`order-by`"),
    (r#"{"select": "x", R, "limit": "abc"}"#, "`limit`"),
    (r#"{"select": "x", R, "limit": -1}"#, "`limit`"),
    (r#"{"select": "x", R, "offset": 1.5}"#, "`offset`"),
    (r#"{"select": "x", R, "filter": 5}"#, "`filter`"),
    (r#"{"select": "x", R, "filter": {"eq": 5}}"#, "`eq`"),
    (r#"{"select": "x", R, "filter": {"gt": "nan"}}"#, "`filter`"),
    (r#"{"select": "x", R, "pivot-by-tag": 5}"#, "`pivot-by-tag`"),
    (r#"{"select": "x", R, "pivot-by-tag": ["a"], "group-by-tag": ["b"]}"#, "only one"),
    (r#"{"select": "x", R, "output": "csv"}"#, "`output`"),
    (r#"{"select": "x", R, "output": {"format": "xml"}}"#, "`output.format`"),
    (r#"{"select": "x", R, "output": {"timestamp": "unix"}}"#, "`output.timestamp`"),
    (r#"{"select": "x", R, "apply": {"name": "rate"}}"#, "`apply`"),
    (r#"{"select": "x", R, "apply": [{}]}"#, "`apply.name`"),
    (r#"{"select": "x", R, "apply": [{"name": "sax"}]}"#, "`apply.name`"),
    (r#"{"select": "x", R, "apply": [{"name": "rate", "by": 1}]}"#, "`apply.by`"),
    (r#"{"select": "x", R, "apply": [{"name": "scale", "weights": [1, 2]}]}"#, "`apply.weights`"),
    (
        r#"{"select": "x", R, "apply": [{"name": "sma", "window-width": 0}]}"#,
        "`apply.window-width`",
    ),
    (r#"{"select": "x", R, "apply": [{"name": "sum"}]}"#, "`apply.ignore_missing`"),
    (r#"{"select": "x", R, "apply": [{"name": "eval", "expr": "y"}]}"#, "`apply.expr`"),
    (r#"{"select-events": "x", R}"#, "`select-events`"),
    (r#"{"select-events": "!x", R, "filter": "("}"#, "`filter`"),
    (r#"{"aggregate": "x"}"#, "`aggregate`"),
    (r#"{"aggregate": {"x": "median"}}"#, "`aggregate.x`"),
    (r#"{"aggregate": {"x": "max"}, "order-by": "time"}"#, "`order-by`"),
    (r#"{"join": "x", R}"#, "`join`"),
    (
        r#"{"group-aggregate": {"metric": "x", "func": "max", "step": "1 sec."}, R}"#,
        "`group-aggregate.step`",
    ),
    (
        r#"{"group-aggregate-join": {"metric": ["x", "y"], "func": ["max", "min"], "step": "1s"}, R}"#,
        "`group-aggregate-join.func`",
    ),
];

#[test]
fn times_are_read_in_the_ways_in_which_they_are_written() {
    let hour = 3600 * 1_000_000_000_i64;
    let query = |time: &str, now| {
        let json = format!(r#"{{"select": "x", "range": {{"from": "{time}", "to": 0}}}}"#);
        Query::parse_at(json.as_bytes(), now).map(|query| format!("{query:?}"))
    };
    let from = |time: &str| query(time, Some(7 * hour)).unwrap();
    let expected = from("19700101T060000");
    for time in ["1970-01-01T07:00:00+01:00", "now-1h", "21600s", "21600.0", "21600000000000"] {
        assert_eq!(from(time), expected, "{time}");
    }
    assert!(query("now", None).is_err(), "nobody said what now is");
}

#[test]
fn what_is_wrong_with_a_query_is_named() {
    let range = r#""range": {"from": 0, "to": 10}"#;
    let parse = |json: &str| Query::parse(json.as_bytes()).map_err(|error| error.to_string());
    for (json, named) in WRONG {
        let json = json.replace(", R", &format!(", {range}"));
        let error = parse(&json).expect_err(&json);
        assert!(
            error.starts_with("query parsing error: ") && error.contains(named),
            "{json}: {error}"
        );
    }
    let store = store(&[("x host=a", &[1.0])]);
    for kind in
        [r#""select": "err""#, r#""join": ["foo", "bar"]"#, r#""aggregate": {"err": "sum"}"#]
    {
        assert!(
            ask(&store, &format!("{{{kind}, {range}}}")).unwrap_err().starts_with("not found"),
            "{kind}"
        );
    }
    // Bytes changed at random: an error or a query, and never a panic.
    let mut random = Random::new(1);
    for (json, _) in WRONG {
        for _ in 0..300 {
            let mut bytes = json.replace(", R", &format!(", {range}")).into_bytes();
            for _ in 0..1 + random.below(3) {
                let place = random.below(bytes.len() as u64 + 1) as usize;
                match random.below(3) {
                    0 => bytes.insert(place, b"{}[]\",:0-9eax"[random.below(13) as usize]),
                    1 if place < bytes.len() => drop(bytes.remove(place)),
                    _ if place < bytes.len() => bytes[place] = random.below(256) as u8,
                    _ => {}
                }
            }
            if let Ok(query) = Query::parse(&bytes) {
                let _ = block_on(async { store.query(&query).await?.collect().await });
            }
        }
    }
}

/// Without the feature the format is known, and what it takes is said.
#[test]
#[cfg(not(feature = "arrow"))]
fn arrow_is_a_matter_of_how_the_program_was_built() {
    let json = r#"{"select": "x", "range": {"from": 0, "to": 1}, "output": {"format": "arrow"}}"#;
    let error = Query::parse(json.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("`output.format`") && error.contains("feature `arrow`"), "{error}");
}
