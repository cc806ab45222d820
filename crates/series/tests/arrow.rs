//! Answers as streams of Arrow's, against the same answers as text: every row, every cell, with all
//! of its bits.
//!
//! The text has tests of its own, against a model; here it is what the other form has to agree
//! with. The streams are read by Arrow's own reader.
#![cfg(feature = "arrow")]

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampNanosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use plinth::Local;
use plinth_env::block_on;
use plinth_series::arrow::Sheet;
use plinth_series::dump::{Cell, Cells};
use plinth_series::workload::Random;
use plinth_series::{ARROW_CONTENT_TYPE, Direction, Query, SeriesStore, Value, event};

/// Points of some series, so many that a batch doesn't hold them, of each kind and with every odd
/// value; and events.
fn store() -> SeriesStore {
    let mut random = Random::new(5);
    let db = Local::in_memory().unwrap().into_database();
    let store = block_on(SeriesStore::open(&db)).unwrap();
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 5e-324, f64::MAX];
    for name in ["x host=a", "x host=b", "y host=a", "y host=ä,\"c"] {
        let series = block_on(store.series(name)).unwrap();
        for time in 0..5000 {
            if random.below(3) == 0 {
                continue;
            }
            let value = match random.below(4) {
                0 => Value::Integer(random.next() as i64),
                1 => Value::Float(odd[random.below(odd.len() as u64) as usize]),
                _ => Value::Float(random.unit()),
            };
            series.append(time * 1_000_003, value).unwrap();
        }
    }
    let series = block_on(store.series("!note host=a")).unwrap();
    for number in 0..50_i64 {
        for point in
            event::points(number * 5_000_001, format!("note {number}, é").as_bytes()).unwrap()
        {
            series.append(point.time, point.value).unwrap();
        }
    }
    store
}

fn ask(store: &SeriesStore, query: &str, output: &str) -> (bool, Vec<u8>) {
    let query = query.replace('}', &format!(r#", "output": {output}}}"#));
    let query = Query::parse(query.replace('<', "{").replace('>', "}").as_bytes()).unwrap();
    let answer = block_on(store.query(&query)).unwrap();
    (answer.is_text(), block_on(answer.collect()).unwrap())
}

fn batches(stream: &[u8]) -> (Vec<String>, Vec<RecordBatch>) {
    let reader = StreamReader::try_new(stream, None).unwrap();
    let names = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    (names, reader.map(Result::unwrap).collect())
}

/// A row in the middle between both forms: name, time, and each cell as the value that it is.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    time: i64,
    cells: Vec<Option<Value>>,
    text: Option<String>,
}

/// One value for every float that is not a number: text doesn't tell them apart.
fn plain(value: Value) -> Value {
    if value.is_nan() { Value::Float(f64::NAN) } else { value }
}

fn rows_of(batches: &[RecordBatch]) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in batches {
        let series = batch.column(0).as_dictionary::<Int32Type>();
        let names = series.values().as_string::<i32>();
        let times = batch.column(1).as_primitive::<TimestampNanosecondType>();
        for row in 0..batch.num_rows() {
            let (mut cells, mut text, mut column) = (Vec::new(), None, 2);
            while column < batch.num_columns() {
                if let Some(texts) = batch.column(column).as_string_opt::<i32>() {
                    text = texts.is_valid(row).then(|| texts.value(row).to_owned());
                    column += 1;
                    continue;
                }
                let floats = batch.column(column).as_primitive::<Float64Type>();
                let integers = batch.column(column + 1).as_primitive::<Int64Type>();
                let cell = match (integers.is_valid(row), floats.is_valid(row)) {
                    (true, has_float) => {
                        assert!(has_float && floats.value(row) == integers.value(row) as f64);
                        Some(Value::Integer(integers.value(row)))
                    }
                    (false, true) => Some(plain(Value::Float(floats.value(row)))),
                    (false, false) => None,
                };
                cells.push(cell);
                column += 2;
            }
            let name = names.value(series.keys().value(row) as usize).to_owned();
            rows.push(Row { name, time: times.value(row), cells, text });
        }
    }
    rows
}

/// What the rows of CSV say, as the cells of Arrow's rows say it: which of them are integers is
/// known from there.
fn same(row: &Row, line: &str) -> bool {
    let Some(rest) = line.strip_prefix(&row.name).and_then(|rest| rest.strip_prefix(",ts=")) else {
        return false;
    };
    let (time, rest) = rest.split_once(',').unwrap();
    if time != row.time.to_string() {
        return false;
    }
    if let Some(text) = &row.text {
        return rest == text;
    }
    let cells: Vec<&str> = rest.split(',').collect();
    cells.len() == row.cells.len()
        && cells.iter().zip(&row.cells).all(|(text, cell)| match cell {
            None => text.is_empty(),
            Some(Value::Integer(integer)) => *text == integer.to_string(),
            Some(float) => Value::Float(text.parse().unwrap()) == *float,
        })
}

/// Queries, the columns that their answers have, and the least number of rows.
fn every_kind_of_query() -> [(String, &'static str, usize); 12] {
    let range = r#""range": <"from": 0, "to": "4000000000ns">"#;
    [
        (format!(r#"{{"select": "x", {range}}}"#), "series time value integer", 5000),
        (
            format!(r#"{{"select": "x", {range}, "order-by": "series"}}"#),
            "series time value integer",
            5000,
        ),
        (
            format!(r#"{{"select": "x", {range}, "limit": 4097, "offset": 5}}"#),
            "series time value integer",
            4097,
        ),
        (format!(r#"{{"select": "x", {range}, "limit": 0}}"#), "series time value integer", 0),
        (
            format!(r#"{{"select": "x", {range}, "filter": <"gt": 9223372036854775807>}}"#),
            "series time value integer",
            0,
        ),
        (
            format!(r#"{{"join": ["x", "y"], {range}}}"#),
            "series time x x.integer y y.integer",
            3000,
        ),
        (
            format!(
                r#"{{"join": ["x", "y"], {range}, "apply": [<"name": "eval", "expr": "x + y">]}}"#
            ),
            "series time value integer",
            3000,
        ),
        (
            format!(
                r#"{{"group-aggregate": <"metric": "x", "step": "7ms", "func": ["min", "count"]>, {range}}}"#
            ),
            "series time min min.integer count count.integer",
            1000,
        ),
        (
            format!(
                r#"{{"group-aggregate-join": <"metric": ["x", "y"], "step": "1s", "func": "last">, {range}}}"#
            ),
            "series time x x.integer y y.integer",
            4,
        ),
        (
            r#"{"aggregate": <"x": "last", "y": ["count", "max"]>}"#.to_owned(),
            "series time value integer",
            6,
        ),
        (
            format!(r#"{{"select": "x", {range}, "apply": [<"name": "top", "N": 1>]}}"#),
            "series time value integer",
            0,
        ),
        (format!(r#"{{"select-events": "!note", {range}}}"#), "series time text", 50),
    ]
}

#[test]
fn every_kind_of_query_has_the_rows_that_it_has_as_text() {
    let store = store();
    for (query, columns, least) in every_kind_of_query() {
        let (is_text, text) = ask(&store, &query, r#"<"format": "csv", "timestamp": "raw">"#);
        assert!(is_text);
        let (is_text, stream) = ask(&store, &query, r#"<"format": "arrow">"#);
        assert!(!is_text);
        let (names, batches) = batches(&stream);
        assert_eq!(names.join(" "), columns, "{query}");
        let (text, rows) = (String::from_utf8(text).unwrap(), rows_of(&batches));
        assert!(rows.len() >= least, "{query}: {} rows", rows.len());
        assert_eq!(rows.len(), text.lines().count(), "{query}");
        for (row, line) in rows.iter().zip(text.lines()) {
            assert!(same(row, line), "{query}: {row:?} is not {line}");
        }
    }
}

#[test]
fn names_are_a_column_of_text() {
    let store = store();
    let (_, stream) = ask(&store, r#"{"select": "meta:names:y"}"#, r#"<"format": "arrow">"#);
    let (columns, found) = batches(&stream);
    assert_eq!(columns, ["series"]);
    let names: Vec<&str> = found[0].column(0).as_string::<i32>().iter().flatten().collect();
    assert_eq!(names, ["y host=a", "y host=ä,\"c"]);
    let answer =
        store.suggest(br#"{"select": "metric-names", "output": {"format": "arrow"}}"#).unwrap();
    let (columns, found) = batches(&block_on(answer.collect()).unwrap());
    assert_eq!((&columns[0][..], found[0].num_rows()), ("name", 3));
}

#[test]
fn whoever_prefers_arrow_gets_it_unless_the_query_says_otherwise() {
    let store = store();
    for (output, is_text) in [("", false), (r#", "output": {"format": "csv"}"#, true)] {
        let json = format!(r#"{{"select": "x", "range": {{"from": 0, "to": 9}}{output}}}"#);
        let mut query = Query::parse(json.as_bytes()).unwrap();
        query.prefer_arrow().unwrap();
        assert_eq!(block_on(store.query(&query)).unwrap().is_text(), is_text);
    }
    assert!(ARROW_CONTENT_TYPE.ends_with(".stream"));
}

#[test]
fn an_answer_comes_in_pieces_of_bounded_size() {
    let store = store();
    let json =
        r#"{"select": "x", "range": {"from": 0, "to": 9000000000}, "output": {"format": "arrow"}}"#;
    let mut answer = block_on(store.query(&Query::parse(json.as_bytes()).unwrap())).unwrap();
    let (mut pieces, mut stream) = (0, Vec::new());
    while let Some(piece) = block_on(answer.next()).unwrap() {
        assert!(piece.len() < 1 << 20, "{}", piece.len());
        pieces += 1;
        stream.extend(piece);
    }
    assert!(block_on(answer.next()).unwrap().is_none());
    assert!(pieces > 1 && batches(&stream).1.len() > 1, "{pieces}");
    // Without its end, or with less, it is no stream, or one with fewer rows; nothing else.
    let whole = rows_of(&batches(&stream).1);
    for len in (0..stream.len()).step_by(997) {
        if let Ok(reader) = StreamReader::try_new(&stream[..len], None) {
            let rows = rows_of(&reader.map_while(Result::ok).collect::<Vec<_>>());
            assert!(rows.len() <= whole.len() && rows[..] == whole[..rows.len()]);
        }
    }
}

/// What `plinth series export` does.
#[test]
fn points_and_events_of_all_series_are_one_table() {
    let store = store();
    let (mut sheet, mut out, mut expected) = (Sheet::of_points().unwrap(), Vec::new(), Vec::new());
    for (number, name) in ["x host=a", "!note host=a", "y host=a"].iter().enumerate() {
        let series = block_on(store.existing(name)).unwrap().unwrap();
        let mut cells = Cells::new(series.name());
        let mut stream = block_on(series.scan(.., Direction::Forward)).unwrap();
        while let Some(points) = block_on(stream.next()).unwrap() {
            for (time, cell) in points.iter().filter_map(|point| cells.push(point)) {
                sheet.row(number as u32, name, time, cell.clone(), &mut out).unwrap();
                let (cells, text) = match cell {
                    Cell::Value(value) => (vec![Some(plain(value))], None),
                    Cell::Text(text) => (vec![None], Some(String::from_utf8(text).unwrap())),
                };
                expected.push(Row { name: (*name).to_owned(), time, cells, text });
            }
        }
    }
    sheet.finish(&mut out).unwrap();
    sheet.finish(&mut out).unwrap();
    let (columns, batches) = batches(&out);
    assert_eq!(columns.join(" "), "series time value integer text");
    assert!(batches.len() > 1);
    assert!(rows_of(&batches) == expected);
}
