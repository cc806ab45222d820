//! What expressions come to, as a table: each line has a time, an expression, and the answer that
//! its meaning demands.
//!
//! The table is `cases.txt`, its series are here. A second test asks each for a range of times,
//! which has to be the instants one after the other.

use super::script::{self, Point, SECOND, labels, load, now, points, time, values, words};
use plinth_promql::{Answered, Labels, Memory, Options, Value, instant, range};

const CASES: &str = include_str!("cases.txt");

/// A value a minute.
const SERIES: [&str; 38] = [
    r#"up_total{a="1", g="x"} 0+10x10"#,
    r#"up_total{a="2", g="x"} 0+20x10"#,
    r#"up_total{a="3", g="y"} 0 5 10 15 20 25 0 5 10 15 20"#,
    r#"gauge{a="1"} 1+1x10"#,
    r#"flat 3x10"#,
    r#"factor{g="x", of="ex"} 2x10"#,
    r#"factor{g="y", of="why"} 3x10"#,
    r#"odd{a="nan"} NaNx10"#,
    r#"odd{a="7"} 7x10"#,
    r#"ended 1+1x4 stale"#,
    r#"exact _x7 1 1e100 1 -1e100"#,
    r#"huge 1.7e308x10"#,
    r#"tiny{a="1"} 1x10"#,
    r#"tiny{a="2"} 1e100x10"#,
    r#"tiny{a="3"} 2x10"#,
    r#"tiny{a="4"} -1e100x10"#,
    r#"seconds_bucket{le="1"} 0+10x10"#,
    r#"seconds_bucket{le="2"} 0+30x10"#,
    r#"seconds_bucket{le="+Inf"} 0+40x10"#,
    r#"{"na.me é", "la bel"="v"} 3x10"#,
    r#"{"na.me"} 4x10"#,
    r#"sum{by="x"} 1x10"#,
    r#"{"offset"} 1x10"#,
    r#"{"on"} 1x10"#,
    r#"took{a="1"} {{schema:0 count:4 sum:5 buckets:[1 2 1]}}+{{count:2 sum:6 buckets:[0 1 1]}}x10"#,
    r#"took{a="2"} {{schema:1 count:3 sum:8 z_bucket:1 z_bucket_w:0.001 n_buckets:[2]}}+{{schema:1 count:1 sum:-1 n_buckets:[1]}}x10"#,
    r#"fell {{count:9 sum:9 buckets:[4 5]}} {{count:3 sum:3 buckets:[1 2]}} {{count:5 sum:4 buckets:[2 3]}}x8"#,
    r#"level {{count:4 sum:4 counter_reset_hint:gauge buckets:[2 2]}}+{{count:-1 sum:-1 counter_reset_hint:gauge buckets:[-1]}}x1 {{count:3 sum:3 counter_reset_hint:gauge buckets:[1 2]}}x8"#,
    r#"listed{a="1"} {{schema:-53 count:4 sum:9 custom_values:[1 2 4] buckets:[1 2 0 1]}}x10"#,
    r#"listed{a="2"} {{schema:-53 count:3 sum:6 custom_values:[2 4] buckets:[1 1 1]}}x10"#,
    r#"both 1 2 3 4 5 {{count:1 sum:1 buckets:[1]}}x5"#,
    r#"lost {{count:5 sum:NaN buckets:[2 2]}}x10"#,
    r#"other {{count:5 sum:4 buckets:[3 2]}}x10"#,
    r#"claims {{count:9 sum:9 buckets:[9]}} {{count:1 sum:1 buckets:[1] counter_reset_hint:not_reset}}x9"#,
    r#"swapped {{count:9 sum:9 buckets:[9]}} {{schema:-53 count:1 sum:1 custom_values:[1] buckets:[1]}} {{schema:-53 count:3 sum:3 custom_values:[1] buckets:[3]}}x8"#,
    r#"within {{count:1 sum:1 buckets:[1]}} {{schema:-53 count:2 sum:2 custom_values:[1] buckets:[2]}} {{count:3 sum:3 buckets:[3]}}x8"#,
    r#"vast {{count:1e308 sum:1.5e308 buckets:[1e308]}}x10"#,
    r#"gone {{count:1 sum:1 buckets:[1]}}x3 stale"#,
];

/// What is told beside the values of expressions, in Prometheus' words.
const TOLD: [(&str, &str); 33] = [
    ("rate(up_total[5m])", ""),
    ("rate(nothing[5m])", ""),
    (
        "1 + rate(gauge[5m])",
        "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"gauge\" (1:10)",
    ),
    (
        "histogram_quantile(2, seconds_bucket)",
        "PromQL warning: quantile value should be between 0 and 1, got 2 (1:20)",
    ),
    (
        "quantile(NaN, gauge)",
        "PromQL warning: quantile value should be between 0 and 1, got NaN (1:10)",
    ),
    (
        "histogram_quantile(0.5, gauge)",
        "PromQL warning: bucket label \"le\" is missing or has a malformed value of \"\" (1:25)",
    ),
    (
        "count(limit_ratio(1.5, gauge))",
        "PromQL warning: ratio value should be between -1 and 1, got 1.5, capping to 1 (1:19)",
    ),
    (
        "count(limit_ratio(-1e21, gauge))",
        "PromQL warning: ratio value should be between -1 and 1, got -1e+21, capping to -1 (1:19)",
    ),
    ("limit_ratio(-1, took)", ""),
    ("rate(took[5m])", ""),
    ("sum(took) == sum(took)", ""),
    ("increase(swapped[11m])", ""),
    (
        "increase(within[11m])",
        "PromQL warning: vector contains a mix of histograms with exponential and custom buckets schemas for metric name \"within\" (1:10)",
    ),
    (
        "sum_over_time(both[10m])",
        "PromQL warning: encountered a mix of histograms and floats for metric name \"both\" (1:15)",
    ),
    (
        "max_over_time(both[10m])",
        "PromQL info: ignored histograms in a range containing both floats and histograms for metric name \"both\" (1:15)",
    ),
    (
        "increase(level[5m])",
        "PromQL warning: this native histogram metric is not a counter: \"level\" (1:10)",
    ),
    (
        "delta(took{a='1'}[5m])",
        "PromQL warning: this native histogram metric is not a gauge: \"took\" (1:7)",
    ),
    (
        "sum({__name__=~'took|flat'})",
        "PromQL warning: encountered a mix of histograms and floats for aggregation (1:5)",
    ),
    (
        "sum({__name__=~'took|listed', a='1'})",
        "PromQL warning: vector contains a mix of histograms with exponential and custom buckets schemas for metric name \"took\" (1:5)",
    ),
    (
        "sum(listed)",
        "PromQL info: mismatched custom buckets were reconciled during aggregation (1:5)",
    ),
    ("min(took)", "PromQL info: ignored histogram in min aggregation (1:5)"),
    ("topk(1, took)", "PromQL info: ignored histogram in topk aggregation (1:1)"),
    (
        "1 + 2 / took{a='1'}",
        "PromQL info: incompatible sample types encountered for binary operator \"/\": float / histogram (1:5)",
    ),
    (
        "took > took",
        "PromQL info: incompatible sample types encountered for binary operator \">\": histogram > histogram (1:1)",
    ),
    (
        "flat </ 1",
        "PromQL info: incompatible sample types encountered for binary operator \"</\": float </ float (1:1)",
    ),
    (
        "took - listed",
        "PromQL warning: incompatible bucket layout encountered for binary operator - (1:1)",
    ),
    ("histogram_quantile(0.9, listed or label_replace(flat, 'le', '1', '', ''))", ""),
    (
        "histogram_fraction(0, 1, label_replace(fell, '__name__', 'seconds_bucket', '', '') or seconds_bucket)",
        "PromQL warning: vector contains a mix of classic and native histograms (1:26)",
    ),
    (
        "histogram_count(sum_over_time(fell[11m]))",
        "PromQL warning: conflicting counter resets during histogram aggregation (1:31)",
    ),
    ("sum_over_time(fell[11m])", ""),
    (
        "histogram_quantile(0.5, lost)",
        "PromQL info: input to histogram_quantile has NaN observations, result is skewed higher (1:25)",
    ),
    (
        "histogram_quantile(1, lost)",
        "PromQL info: input to histogram_quantile has NaN observations, result is NaN (1:23)",
    ),
    (
        "histogram_fraction(0, 1, lost)",
        "PromQL info: input to histogram_fraction has NaN observations, which are excluded from all fractions (1:26)",
    ),
];

fn memory() -> Memory {
    let mut memory = Memory::default();
    for line in SERIES.into_iter().chain([r#"{"and"} 1x10"#]) {
        assert!(load(&mut memory, line, 60 * SECOND), "{line}");
    }
    memory
}

/// One series of an answer: its labels, and values with their times.
type Row<V> = (Labels, Vec<(Option<i64>, V)>);

fn row(text: &str) -> Option<Row<Point>> {
    let (labels, rest) = labels(text.trim())?;
    let one = |text: &str| points(text)?.into_iter().next();
    let point = |word: &&str| match word.split_once('@') {
        Some((value, at)) => Some((Some(time(at)?), one(value)?)),
        None => Some((None, one(word)?)),
    };
    Some((labels, words(rest).iter().map(point).collect::<Option<_>>()?))
}

/// Whether an answer is the one of the table.
fn is_it(found: &Answered, wanted: &str) -> bool {
    let (is_ordered, wanted) = match wanted.strip_prefix('=') {
        Some(rest) => (true, rest),
        None => (false, wanted),
    };
    let mut found: Vec<Row<Value>> = match found {
        Answered::Scalar(number) => {
            return values(wanted).is_some_and(|all| script::is_near(all[0].unwrap(), *number));
        }
        Answered::String(text) => return wanted == plinth_promql::quoted(text),
        Answered::Vector(series) => {
            let point = |value: &Value| vec![(None, value.clone())];
            series.iter().map(|(labels, value)| (labels.clone(), point(value))).collect()
        }
        Answered::Matrix(rows) => {
            rows.iter().map(|row| (row.labels.clone(), values_of(row))).collect()
        }
    };
    let rows = wanted.split(';').filter(|row| !row.trim().is_empty()).map(row);
    let Some(mut wanted) = rows.collect::<Option<Vec<Row<Point>>>>() else {
        panic!("not understood: {wanted}")
    };
    if !is_ordered {
        found.sort_by(|a, b| a.0.cmp(&b.0));
        wanted.sort_by(|a, b| a.0.cmp(&b.0));
    }
    let is_same = |a: &Row<Value>, b: &Row<Point>| {
        let points = a.1.iter().zip(&b.1);
        a.0 == b.0
            && a.1.len() == b.1.len()
            && points.into_iter().all(|(a, b)| a.0 == b.0 && b.1.is(&a.1))
    };
    found.len() == wanted.len() && found.iter().zip(&wanted).all(|(a, b)| is_same(a, b))
}

/// The values of a row with their times, in the order of these.
fn values_of(row: &plinth_promql::Row) -> Vec<(Option<i64>, Value)> {
    let floats = row.samples.iter().map(|(at, value)| (Some(*at), Value::Float(*value)));
    let histograms =
        row.histograms.iter().map(|(at, one)| (Some(*at), Value::Histogram(one.clone())));
    let mut all: Vec<_> = floats.chain(histograms).collect();
    all.sort_by_key(|(at, _)| *at);
    all
}

/// Whether two values are the same but for a millionth.
fn is_near(a: &Value, b: &Value) -> bool {
    let point = match a {
        Value::Float(value) => Point::Float(*value),
        Value::Histogram(one) => {
            let histogram = (**one).clone();
            Point::Histogram(script::histogram::Literal { histogram, has_hint: true })
        }
    };
    point.is(b)
}

fn cases() -> impl Iterator<Item = (i64, &'static str, &'static str)> {
    let lines = CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let (at, rest) = line.split_once(" | ").unwrap();
        let (expression, wanted) = rest.rsplit_once(" |").unwrap();
        (time(at).unwrap(), expression, wanted.trim())
    })
}

#[test]
fn expressions_come_to_what_they_mean() {
    let (memory, mut wrong, mut count) = (memory(), Vec::new(), 0);
    for (at, expression, wanted) in cases() {
        count += 1;
        let answer = now(instant(&memory, expression, at, &Options::default()));
        let is_it = match (&answer, wanted.strip_prefix('!')) {
            (Ok(answer), None) => is_it(&answer.value, wanted),
            (Err(error), Some(part)) => error.to_string().contains(part),
            _ => false,
        };
        if !is_it {
            wrong.push(format!("{expression}\n    wanted {wanted}\n    {answer:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 150, "{count} cases");
}

/// A range of times has at each step what an instant has, unless the expression asks when the range
/// begins and ends.
#[test]
fn a_range_is_what_instants_are() {
    let memory = memory();
    for (_, expression, _) in cases() {
        let ask = |at| now(instant(&memory, expression, at, &Options::default()));
        let steps = (120 * SECOND, 720 * SECOND, 90 * SECOND);
        let Ok(answer) = now(range(&memory, expression, steps, &Options::default())) else {
            continue;
        };
        if expression.contains("start()") || expression.contains("end()") {
            continue;
        }
        let Answered::Matrix(rows) = answer.value else { panic!("{expression}") };
        for at in (steps.0..=steps.1).step_by(steps.2 as usize) {
            let of = |row: &plinth_promql::Row| {
                let value = values_of(row).into_iter().find(|(time, _)| *time == Some(at));
                Some((row.labels.clone(), value?.1))
            };
            let mut found: Vec<(Labels, Value)> = rows.iter().filter_map(of).collect();
            let mut wanted = match ask(at).unwrap().value {
                Answered::Scalar(value) => vec![(Labels::default(), Value::Float(value))],
                Answered::Vector(series) => series,
                other => panic!("{expression}: {other:?}"),
            };
            found.sort_by(|a, b| a.0.cmp(&b.0));
            wanted.sort_by(|a, b| a.0.cmp(&b.0));
            let is_same =
                |a: &(Labels, Value), b: &(Labels, Value)| a.0 == b.0 && is_near(&a.1, &b.1);
            let are_same = found.len() == wanted.len()
                && found.iter().zip(&wanted).all(|(a, b)| is_same(a, b));
            assert!(are_same, "{expression} at {at}:\n{found:?}\n{wanted:?}");
        }
    }
}

/// What is written is read as the same: it comes to the same, and is written so again.
#[test]
fn what_is_written_is_read_again() {
    let memory = memory();
    for (at, expression, _) in cases() {
        let Ok(node) = plinth_promql::parse(expression) else { continue };
        let written = node.to_string();
        let again = plinth_promql::parse(&written)
            .unwrap_or_else(|error| panic!("{expression}: {written}: {error}"));
        assert_eq!(again.to_string(), written, "{expression}");
        let ask = |text: &str| match now(instant(&memory, text, at, &Options::default())) {
            Ok(answer) => format!("{:?}", answer.value),
            Err(error) => error.to_string(),
        };
        assert_eq!(ask(&written), ask(expression), "{expression}: {written}");
    }
    for (expression, wanted) in [
        ("SUM(x{b='1',a!~\"2\"})   BY (g)", "sum by (g) (x{b=\"1\",a!~\"2\"})"),
        ("rate(x[90s] offset -1h)*0x10", "rate(x[1m30s] offset -1h) * 16"),
        ("{'my name', a='b'}@1.5", "{\"my name\",a=\"b\"} @ 1.500"),
        ("a.b/on(\"x y\",z)group_left c", "a.b / on (\"x y\", z) group_left () c"),
        ("-(1+2)^2", "-(1 + 2) ^ 2"),
        ("max_over_time(x[1w:]) >bool 36h", "max_over_time(x[1w:]) > bool 129600"),
    ] {
        assert_eq!(plinth_promql::parse(expression).unwrap().to_string(), wanted);
    }
}

/// What is told beside the values, in Prometheus' words and with the place.
#[test]
fn warnings_and_infos_are_told() {
    let memory = memory();
    let told = |expression: &str, is_range: bool| {
        let answer = match is_range {
            true => {
                now(range(&memory, expression, (0, 600 * SECOND, 60 * SECOND), &Options::default()))
            }
            false => now(instant(&memory, expression, 600 * SECOND, &Options::default())),
        };
        let answer = answer.unwrap_or_else(|error| panic!("{expression}: {error}"));
        [answer.warnings, answer.infos].concat()
    };
    for (expression, wanted) in TOLD {
        assert_eq!(told(expression, false).join(";"), wanted, "{expression}");
    }
    assert_eq!(
        told("sort(gauge)", true),
        [
            "PromQL warning: sort is ineffective for range queries since results are always ordered by labels (1:1)"
        ]
    );
}
