//! OpenTelemetry's metrics over HTTP: what a sender is told, in the encoding that it speaks, and
//! that a body that is a bomb costs no more than a refusal. What an SDK sends is compared in
//! `tests/sources`; here are the requests that no SDK sends.

mod common;

use common::taking::Taking;
use flate2::Compression;
use flate2::write::GzEncoder;
use plinth_series::{Point, Value};
use plinth_server::{Limits, SeriesConfig};
use std::io::Write;

const JSON: &str = "Content-Type: application/json\r\n";
const PROTOBUF: &str = "Content-Type: application/x-protobuf\r\n";
const GZIP: &str = "Content-Encoding: gzip\r\n";

/// A request with one point of `m`, and what comes behind it.
fn request(time: u64, value: i64, more: &str) -> String {
    format!(
        r#"{{"resourceMetrics": [{{"scopeMetrics": [{{"metrics": [{{"name": "m", "sum":
            {{"aggregationTemporality": 1, "isMonotonic": true, "dataPoints": [
                {{"timeUnixNano": "{time}", "asInt": "{value}"}}{more}]}}}}]}}]}}]}}"#
    )
}

/// The same request as a message: a gauge `g` at 7.
fn message() -> Vec<u8> {
    let field =
        |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let eight = |number: u8, bits: u64| [&[number << 3 | 1][..], &bits.to_le_bytes()].concat();
    let point = field(1, &[eight(3, 7), eight(4, 0.5_f64.to_bits())].concat());
    let metric = field(2, &[field(1, b"g"), field(5, &point)].concat());
    field(1, &field(2, &metric))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn point(time: i64, value: impl Into<Value>) -> Point {
    Point { time, value: value.into() }
}

#[test]
fn metrics_of_opentelemetry_are_taken_in_both_encodings() {
    let server = Taking::with(SeriesConfig::default());
    let heard = server.post("/v1/metrics", JSON, request(5, 3, "").as_bytes());
    assert_eq!((heard.status, heard.text().as_str()), (200, "{}"), "{}", heard.head);
    assert!(heard.head.contains("content-type: application/json"), "{}", heard.head);
    let again = gzip(request(6, 4, "").as_bytes());
    let heard = server.post("/api/v1/otlp/v1/metrics", &[JSON, GZIP].concat(), &again);
    assert_eq!((heard.status, heard.text().as_str()), (200, "{}"));
    let heard = server.post("/v1/metrics", PROTOBUF, &message());
    assert_eq!((heard.status, heard.body), (200, Vec::new()));
    assert!(heard.head.contains("content-type: application/x-protobuf"), "{}", heard.head);
    let heard = server.post("/v1/metrics", &[PROTOBUF, GZIP].concat(), &gzip(&message()));
    assert_eq!(heard.status, 200);
    // Long enough for a thread of its own.
    let more: String = (100..9000)
        .map(|time| format!(r#", {{"timeUnixNano": "{time}", "asInt": "1"}}"#))
        .collect();
    assert_eq!(server.post("/v1/metrics", JSON, request(9, 1, &more).as_bytes()).status, 200);
    let found = server.end(&["m_total", "g"]);
    assert_eq!(found[0][..3], [point(5, 3), point(6, 7), point(9, 8)]);
    assert_eq!((found[0].len(), found[0].last()), (8903, Some(&point(8999, 8908))));
    assert_eq!(found[1], [point(7, 0.5)]);
}

#[test]
fn what_is_not_taken_is_said() {
    let server = Taking::with(SeriesConfig::default());
    let heard = server.post("/v1/metrics", JSON, request(5, 3, r#", {"asInt": 1}"#).as_bytes());
    let partial = r#"{"partialSuccess":{"errorMessage":"it has no time (m_total)","rejectedDataPoints":"1"}}"#;
    assert_eq!((heard.status, heard.text().as_str()), (200, partial));
    // A sum without a word of what its points are.
    let unclear = b"\x0a\x0f\x12\x0d\x12\x0b\x0a\x01m\x3a\x06\x0a\x04\x40\0\x40\0";
    let heard = server.post("/v1/metrics", PROTOBUF, unclear);
    let (reply, why) = (&heard.body[..6], String::from_utf8_lossy(&heard.body[6..]).into_owned());
    assert_eq!((heard.status, &reply[2..5]), (200, &[1 << 3, 1, 2 << 3 | 2][..]));
    assert_eq!(why, "the temporality is neither of the two: m");
    for (headers, body, status, words) in [
        (JSON, &b"nonsense"[..], 400, r#"{"code":3,"message":"the body is no request: "#),
        (JSON, b"[]", 400, "an object"),
        (PROTOBUF, b"\x0a\x7f", 400, "ends in the middle of a field"),
        ("", b"\x0a\x7f", 415, "application/x-protobuf or application/json"),
        ("Content-Type: text/plain\r\n", b"{}", 415, "application/json"),
        ("Content-Type: application/json\r\nContent-Encoding: zstd\r\n", b"{}", 415, "gzip"),
        ("Content-Type: application/json\r\nContent-Encoding: gzip\r\n", b"{}", 400, "no gzip"),
    ] {
        let heard = server.post("/v1/metrics", headers, body);
        assert!(
            heard.status == status && heard.text().contains(words),
            "{headers}: {}",
            heard.text()
        );
    }
    assert_eq!(server.get("/v1/metrics").status, 404);
    assert_eq!(server.end(&["m_total"])[0], [point(5, 3)]);
}

/// Points are counted once as refused, whether their request or their series was wrong.
#[test]
fn a_series_beyond_the_limit_is_a_point_that_was_refused() {
    let mut config = SeriesConfig::default();
    config.limits.series = 1;
    let server = Taking::with(config);
    assert_eq!(server.post("/v1/metrics", JSON, request(5, 3, "").as_bytes()).text(), "{}");
    let heard =
        server.post("/v1/metrics", JSON, request(6, 3, "").replace("\"m\"", "\"n\"").as_bytes());
    let text = heard.text();
    assert!(text.contains(r#""rejectedDataPoints":"1""#) && text.contains("n_total"), "{text}");
}

#[test]
fn bombs_are_refused() {
    let server = Taking::with(SeriesConfig::default());
    for headers in [JSON, PROTOBUF] {
        let bomb = gzip(&vec![b' '; 4 << 20]);
        let heard = server.post("/v1/metrics", &[headers, GZIP].concat(), &bomb);
        assert!(
            heard.status == 413 && heard.text().contains("for each that was sent"),
            "{headers}"
        );
    }
    let brackets = "[{\"resourceMetrics\":".repeat(1 << 18);
    assert_eq!(server.post("/v1/metrics", JSON, brackets.as_bytes()).status, 400);
    let attributes = r#"{"key": "a", "value": {}},"#.repeat(100_000);
    let body =
        format!(r#"{{"resourceMetrics": [{{"resource": {{"attributes": [{attributes}{{}}]}}}}]}}"#);
    let heard = server.post("/v1/metrics", JSON, body.as_bytes());
    assert!(heard.text().contains("a resource has more than 128 attributes"), "{}", heard.text());
    // It still serves.
    assert_eq!(server.post("/v1/metrics", JSON, request(5, 3, "").as_bytes()).text(), "{}");
}

/// A text was counted as if its message had twice as many bytes; of numbers it has five times as
/// many.
#[test]
fn what_json_becomes_is_counted() {
    // What a session has in hand is counted too: two megabytes where another one left its memory.
    let limits = Limits { buffered_bytes: 16 << 20, ..Limits::default() };
    let server = Taking::limited(SeriesConfig::default(), limits);
    let body = |zeros: usize| {
        let zeros = vec!["0"; zeros].join(",");
        format!(
            r#"{{"resourceMetrics": [{{"scopeMetrics": [{{"metrics": [{{"name": "m", "histogram":
                {{"aggregationTemporality": 2, "dataPoints": [{{"bucketCounts": [{zeros}]}}]}}}}]}}]}}]}}"#
        )
    };
    for (zeros, status) in [(1_280_000, 503), (640_000, 200), (1_280_000, 503), (10_000, 200)] {
        let heard = server.post("/v1/metrics", JSON, body(zeros).as_bytes());
        assert_eq!(heard.status, status, "{zeros}: {}", heard.text());
        // A request is let go of behind its answer.
        while !server.get("/api/stats").text().contains(r#""body_bytes":"0""#) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn two_meters_of_a_program_are_counted_both() {
    let server = Taking::with(SeriesConfig::default());
    let scope = |name: &str| {
        format!(
            r#"{{"scope": {{"name": "{name}"}}, "metrics": [{{"name": "m", "sum":
                {{"aggregationTemporality": 1, "isMonotonic": true, "dataPoints":
                    [{{"timeUnixNano": "5", "asInt": "1"}}]}}}}]}}"#
        )
    };
    let body =
        format!(r#"{{"resourceMetrics": [{{"scopeMetrics": [{}, {}]}}]}}"#, scope("a"), scope("b"));
    assert_eq!(server.post("/v1/metrics", JSON, body.as_bytes()).text(), "{}");
    let found = server.end(&["m_total otel_scope_name=a", "m_total otel_scope_name=b"]);
    assert_eq!(found, [[point(5, 1)], [point(5, 1)]]);
}
