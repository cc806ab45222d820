//! Queries that would cost too much: refused before memory is, each by itself and all together,
//! however they say it.
//!
//! A bound is tested from both sides: what just keeps to it is answered whole, what is one more is
//! refused by a message that says what to narrow, and what was held is given back.

mod common;

use common::{ask, filled as store};
use plinth::Local;
use plinth_env::block_on;
use plinth_series::{Query, QueryError, QueryLimits, SeriesStore, Settings};

#[test]
fn what_is_too_much_is_refused_before_memory_is() {
    let store =
        store(&[("x host=a", &[1.0; 100]), ("x host=b", &[1.0; 100]), ("x host=c", &[1.0; 100])]);
    let ask = |json: &str, series, at_once, points| {
        let limits = QueryLimits { series, at_once, points };
        let query = Query::parse(json.as_bytes()).unwrap();
        block_on(async { store.query_within(&query, limits).await?.collect().await })
            .map(|text| text.iter().filter(|byte| **byte == b'\n').count() / 3)
            .map_err(|error| error.to_string())
    };
    let by_time = r#"{"select": "x", "range": {"from": 0, "to": "20200101T000000"}}"#;
    let by_series = by_time.replace("\"range\"", "\"order-by\": \"series\", \"range\"");
    assert_eq!(ask(by_time, 3, 3, 300), Ok(300));
    assert!(ask(by_time, 2, 3, 300).unwrap_err().contains("more than 2 series"));
    assert!(ask(by_time, 3, 2, 300).unwrap_err().contains("order-by"));
    assert!(ask(by_time, 3, 3, 299).unwrap_err().contains("more than 299 points"));
    assert_eq!(ask(&by_series, 3, 1, 100), Ok(300));
}

/// What a query may have, but for some words.
const ROOM: usize = (1 << 20) - 200;
const RANGE: &str = r#""range": {"from": 0, "to": "20200101T000000"}"#;

/// As many of an item as there is room for.
fn list(item: &str) -> String {
    format!("[{}]", vec![item; ROOM / (item.len() + 1)].join(","))
}

fn fields(count: usize) -> String {
    let fields: Vec<_> = (0..count).map(|n| format!("\"t{n}\":\"v\"")).collect();
    fields.join(",")
}

/// Conditions on tags, and what the error speaks of.
fn bombs_of_where() -> Vec<(String, &'static str)> {
    let values: Vec<_> = (0..90_000).map(|n| format!("\"v{n}\"")).collect();
    let values = values.join(",");
    vec![
        (
            format!(r#"{{"select": "x", {RANGE}, "where": {{"host": {}}}}}"#, list("1")),
            "`where.host`",
        ),
        (
            format!(r#"{{"select": "x", {RANGE}, "where": {{"host": [{values}]}}}}"#),
            "at most 10000 values",
        ),
        (
            format!(r#"{{"select": "x", {RANGE}, "where": {{{}}}}}"#, fields(60_000)),
            "at most 10000 values",
        ),
        (
            format!(r#"{{"select": "x", {RANGE}, "where": {}}}"#, list(r#"{"a":"b"}"#)),
            "at most 10000 values",
        ),
        (
            format!(r#"{{"select": "x", {RANGE}, "where": {{"host": {}}}}}"#, "[".repeat(ROOM)),
            "recursion",
        ),
        (
            format!(r#"{{"select": "x", {RANGE}, "where": {}}}"#, r#"{"a":"#.repeat(ROOM / 5)),
            "recursion",
        ),
    ]
}

/// Everything else of a query, and what the error speaks of.
fn other_bombs() -> Vec<(String, &'static str)> {
    vec![
        (format!(r#"{{"select": {}, {RANGE}}}"#, list("0")), "`select`"),
        (format!(r#"{{"select": "x", {RANGE}, {}}}"#, fields(60_000)), "unexpected field"),
        (format!(r#"{{"join": {}, {RANGE}}}"#, list(r#""x""#)), "256 metrics"),
        (format!(r#"{{"aggregate": {{{}}}}}"#, fields(60_000)), "256 metrics"),
        (
            format!(r#"{{"select": "x", {RANGE}, "apply": {}}}"#, list(r#"{"name":"abs"}"#)),
            "16 functions",
        ),
        (format!(r#"{{"select": "{}", {RANGE}}}"#, "x".repeat(ROOM)), "1 to 4096 bytes"),
        (
            format!(
                r#"{{"select-events": "!x", {RANGE}, "filter": "{}"}}"#,
                "(a{900}){900}".repeat(500)
            ),
            "`filter`",
        ),
        (format!(r#"{{"select": "x", {RANGE}, "limit": {}}}"#, "9".repeat(ROOM)), "JSON"),
        (format!(r#"{{"select": "x", {RANGE}, "limit": {}}}"#, " ".repeat(1 << 20)), "longer"),
    ]
}

/// Documents that are large for their own sake, each within what a query may have: an error that
/// says why, or an answer, and never the memory of the machine.
#[test]
fn bombs_of_json_are_refused_or_answered() {
    let store = store(&[("x host=a", &[1.0, 2.0])]);
    for (query, named) in bombs_of_where().into_iter().chain(other_bombs()) {
        let error = match Query::parse(query.as_bytes()) {
            Ok(query) => block_on(store.query(&query)).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(
            error.contains(named) && error.len() < 2000,
            "{named} expected: {}",
            &error[..error.len().min(500)]
        );
    }
    // As many as may be, of which none is there, cost some looks and no more.
    let values: String = (0..9_999).map(|n| format!("\"v{n}\",")).collect();
    for tags in [
        format!(r#"{{"host": [{values}"a"]}}"#),
        format!(r#"[{}{{"host": "a"}}]"#, r#"{"host":"b"},"#.repeat(9_999)),
    ] {
        assert_eq!(
            ask(&store, &format!(r#"{{"select": "x", {RANGE}, "where": {tags}}}"#))
                .unwrap()
                .lines()
                .count(),
            6
        );
    }
}

/// Many queries at once, each within what one may have, were not bounded together.
#[test]
fn what_all_queries_hold_together_is_bounded() {
    let store = block_on(async {
        let db = Local::in_memory().unwrap().into_database();
        let settings = Settings { query_bytes: 100_000, commit_every: None, ..Settings::default() };
        let store = SeriesStore::open_with(&db, settings).await.unwrap();
        for host in 0..20 {
            let series = store.series(&format!("x host={host}")).await.unwrap();
            for time in 0..100 {
                series.append(time, time).unwrap();
            }
        }
        store
    });
    let query = Query::parse(br#"{"select": "x", "range": {"from": 0, "to": 1000}}"#).unwrap();
    // Each has some rows and waits for its reader.
    let begin = || {
        block_on(async {
            let mut answer = store.query(&query).await?;
            answer.next().await?;
            Ok::<_, QueryError>(answer)
        })
    };
    let (mut answers, mut held) = (Vec::new(), 0);
    let error = loop {
        match begin() {
            Ok(answer) => answers.push(answer),
            Err(error) => break error.to_string(),
        }
        assert!(store.stats().query_bytes > held && answers.len() < 1000, "{}", answers.len());
        held = store.stats().query_bytes;
    };
    assert!(
        error.starts_with("high cardinality")
            && error.contains("all queries together, 100000 may be"),
        "{error}"
    );
    assert!(!answers.is_empty() && held <= 100_000, "{} hold {held}", answers.len());
    // One that ends makes room for another, and nothing is left behind.
    drop(answers.pop());
    answers.push(begin().unwrap());
    assert!(begin().is_err());
    drop(answers);
    assert_eq!(store.stats().query_bytes, 0);
    assert_eq!(
        block_on(async { store.query(&query).await?.collect().await })
            .unwrap()
            .iter()
            .filter(|byte| **byte == b'\n')
            .count(),
        6000
    );
    assert_eq!(store.stats().query_bytes, 0);
}

/// A query with the seconds of today was one of the first two seconds of 1970, and found nothing.
#[test]
fn digits_of_our_days_are_of_the_unit_that_their_size_says() {
    let query = |from: &str| {
        let json = format!(r#"{{"select": "x", "range": {{"from": {from}, "to": "now"}}}}"#);
        Query::parse_at(json.as_bytes(), Some(1_800_000_000_000_000_000))
    };
    let at = |from: &str| format!("{:?}", query(from).unwrap());
    for (digits, unit) in [
        ("1767225600", "s"),
        ("1767225600000", "ms"),
        ("1767225600000000", "us"),
        ("1262304000", "s"),
        ("4102444799999", "ms"),
    ] {
        for from in [digits.to_owned(), format!("\"{digits}\"")] {
            assert_eq!(at(&from), at(&format!("\"{digits}{unit}\"")), "{from}");
        }
        assert_ne!(at(digits), at(&format!("\"{digits}ns\"")), "{digits}");
    }
    // Akumuli's numbers are nanoseconds, and those that can be meant so stay it.
    for (number, text) in [
        ("0", "1970-01-01"),
        ("-1", "\"-1ns\""),
        ("1000000000", "\"1000000000ns\""),
        ("4102444800", "\"4102444800ns\""),
        ("600000000000", "\"600s\""),
        ("1767225600000000001", "\"1767225600.000000001\""),
    ] {
        let text = if text.starts_with('"') { text.to_owned() } else { format!("\"{text}\"") };
        for from in [number.to_owned(), format!("\"{number}\"")] {
            assert_eq!(at(&from), at(&text), "{from}");
        }
    }
    let error = query("99999999999999999999999999999999999999").unwrap_err().to_string();
    assert!(error.contains("a time from 1677 to 2262"), "{error}");
}
