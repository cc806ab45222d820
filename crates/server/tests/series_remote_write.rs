//! Prometheus' remote write over HTTP, in both versions: what is written is said in headers, and
//! what is not kept is never passed over in silence. And its remote read, which gives what was
//! written, as samples and as chunks.

mod common;

use common::taking::{Heard, Taking};
use plinth_series::Point;
use plinth_server::SeriesConfig;

const SECOND: &str = "Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 2.0.0\r\n\
    Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n";

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn sample(number: u8, value: f64, milliseconds: u8) -> Vec<u8> {
    field(number, &[&[1 << 3 | 1][..], &value.to_le_bytes(), &[2 << 3, milliseconds]].concat())
}

/// A block of snappy that is literals alone.
fn block(message: &[u8]) -> Vec<u8> {
    let len = message.len();
    assert!(len < 1 << 14, "its length has two bytes");
    let mut block = vec![len as u8 & 0x7f | 0x80, (len >> 7) as u8];
    for part in message.chunks(60) {
        block.push((part.len() as u8 - 1) << 2);
        block.extend_from_slice(part);
    }
    block
}

const SYMBOLS: [&str; 10] = [
    "",
    "__name__",
    "up",
    "job",
    "a b",
    "Is it there?",
    "took_bucket",
    "le",
    "seconds",
    "quantile",
];

/// A message with these series, each of which names symbols.
fn request(series: &[Vec<u8>]) -> Vec<u8> {
    let symbols = SYMBOLS.iter().flat_map(|text| field(4, text.as_bytes()));
    symbols.chain(series.iter().flat_map(|series| field(5, series))).collect()
}

fn written(heard: &Heard) -> [Option<u64>; 3] {
    ["samples", "histograms", "exemplars"].map(|what| {
        let name = format!("x-prometheus-remote-write-{what}-written: ");
        let line = heard.head.lines().find_map(|line| line.strip_prefix(&name))?;
        line.parse().ok()
    })
}

fn point(time: i64, value: f64) -> Point {
    Point { time: time * 1_000_000, value: value.into() }
}

#[test]
fn version_2_is_taken_and_says_what_was_written() {
    let server = Taking::with(SeriesConfig::default());
    let metadata = field(5, &[1 << 3, 2, 3 << 3, 5]);
    let up = [field(1, &[1, 2, 3, 4]), sample(2, 1.0, 5), sample(2, 0.5, 6), metadata].concat();
    let of_bucket = field(5, &[1 << 3, 3, 4 << 3, 8]);
    let exemplar =
        field(4, &[field(1, &[3, 4]), vec![1 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0]].concat());
    let bucket = [field(1, &[1, 6, 7, 8]), sample(2, 7.0, 5), exemplar, of_bucket].concat();
    let heard = server.post("/api/v1/write", SECOND, &block(&request(&[up, bucket])));
    assert_eq!(
        (heard.status, written(&heard)),
        (204, [Some(3), Some(0), Some(1)]),
        "{}",
        heard.text()
    );
    let known = server.get("/api/v1/metadata").text();
    let expected = r#"{"data":{"took":[{"help":"","type":"histogram","unit":"seconds"}],"up":[{"help":"Is it there?","type":"gauge","unit":""}]},"status":"success"}"#;
    assert_eq!(known, expected);
    let one = server.get("/api/v1/metadata?metric=up&limit=1").text();
    assert!(one.contains("\"up\"") && !one.contains("took"), "{one}");
    let found = server.end(&["up job=a\\ b", "took_bucket le=seconds"]);
    assert_eq!(found[0], [point(5, 1.0), point(6, 0.5)]);
    assert_eq!(found[1], [point(5, 7.0)]);
}

#[test]
fn what_is_not_kept_is_said_and_the_rest_is_written() {
    let server = Taking::with(SeriesConfig::default());
    let good = [field(1, &[1, 2]), sample(2, 1.0, 5)].concat();
    for (wrong, words) in [
        (
            [field(1, &[1, 6]), field(3, &[4 << 3, 18])].concat(),
            "a schema of a native histogram is -4 to 8, or -53 with bounds of its own, not 9 (series 1)",
        ),
        (
            [field(1, &[1, 99]), sample(2, 1.0, 5)].concat(),
            "there is no symbol 99, but 10 (series 1)",
        ),
        ([field(1, &[1]), sample(2, 1.0, 5)].concat(), "a label has no value (series 1)"),
        ([field(1, &[3, 4]), sample(2, 1.0, 5)].concat(), "it has no label __name__"),
        ([field(1, &[1, 0x80]), sample(2, 1.0, 5)].concat(), "a number is cut off (series 1)"),
    ] {
        let heard = server.post("/api/v1/write", SECOND, &block(&request(&[wrong, good.clone()])));
        let text = heard.text();
        assert!(heard.status == 400 && text.contains(words), "{words}: {text}");
        assert_eq!(written(&heard), [Some(1), Some(0), Some(0)], "{words}");
    }
    // Version 1 has no such headers.
    let label = field(1, &[field(1, b"__name__"), field(2, b"first")].concat());
    let series = field(1, &[label, sample(2, 3.0, 5), field(4, b"")].concat());
    let metadata = [vec![1 << 3, 1], field(2, b"first"), field(4, b"words")].concat();
    let message = [series, field(3, &metadata)].concat();
    let heard = server.post("/api/v1/write", "Content-Encoding: snappy\r\n", &block(&message));
    assert_eq!((heard.status, written(&heard)), (204, [None; 3]), "{}", heard.text());
    let known = server.get("/api/v1/metadata?metric=first").text();
    assert!(known.contains(r#"{"help":"words","type":"counter","unit":""}"#), "{known}");
    assert_eq!(server.end(&["up", "first"]), [vec![point(5, 1.0)], vec![point(5, 3.0)]]);
}

#[test]
fn native_histograms_and_exemplars_are_kept_and_counted() {
    let server = Taking::with(SeriesConfig::default());
    // Two observations of which nothing else is known, of schema 0, at 5 ms; and one at 7 ms.
    let histogram = |count: u8, time: u8| field(3, &[1 << 3, count, 15 << 3, time]);
    let exemplar =
        field(4, &[&field(1, &[3, 4])[..], &[1 << 3 | 1], &[0; 8], &[3 << 3, 6]].concat());
    let series = [field(1, &[1, 2]), histogram(2, 5), histogram(3, 7), exemplar].concat();
    let heard = server.post("/api/v1/write", SECOND, &block(&request(&[series])));
    assert_eq!((heard.status, written(&heard)), (204, [Some(0), Some(2), Some(1)]));
    let told = server.get("/api/v1/query?query=histogram_count(up)&time=0.006").text();
    assert!(told.contains(r#""value":[0.006,"2"]"#), "{told}");
    let told = server.get("/api/v1/query?query=up&time=0.008").text();
    assert!(told.contains(r#""histogram":[0.008,{"count":"3","sum":"0""#), "{told}");
    let told = server.get("/api/v1/query_exemplars?query=up&start=0&end=1").text();
    let expected = r#"[{"exemplars":[{"labels":{"job":"a b"},"timestamp":0.006,"value":"0"}],"seriesLabels":{"__name__":"up"}}]"#;
    assert!(told.contains(expected), "{told}");
}

/// A sample that says when what it counts began.
fn started(value: f64, milliseconds: u8, start: u8) -> Vec<u8> {
    let value = value.to_le_bytes();
    field(2, &[&[1 << 3 | 1][..], &value, &[2 << 3, milliseconds, 3 << 3, start]].concat())
}

/// Sends these samples of `up`, with a type and a label; says how many were written.
fn send_started(server: &Taking, symbols: &[u8], parts: &[Vec<u8>]) {
    let series = [field(1, symbols), parts.concat()].concat();
    let heard = server.post("/api/v1/write", SECOND, &block(&request(&[series])));
    let count = parts.iter().filter(|part| part[0] == 2 << 3 | 2).count() as u64;
    assert_eq!((heard.status, written(&heard)[0]), (204, Some(count)), "{}", heard.text());
}

/// A counter's first sample is an increase since its start, and so is the first one behind a
/// restart, however often the starts are told.
#[test]
fn what_was_counted_before_the_first_sample_is_an_increase() {
    let server = Taking::with(SeriesConfig::default());
    for _ in 0..2 {
        send_started(&server, &[1, 2], &[started(7.0, 20, 10)]);
        send_started(&server, &[1, 2], &[started(9.0, 30, 10)]);
    }
    // It began again, was never seen below 9, and once more between two samples of a message.
    send_started(&server, &[1, 2], &[started(9.5, 50, 40), started(20.0, 70, 60)]);
    // What is no older than a sample, or than what there is, says nothing.
    let told = [started(21.0, 80, 80), started(22.0, 90, 91), started(23.0, 100, 75)];
    send_started(&server, &[1, 2], &told);
    send_started(&server, &[1, 2], &[started(24.0, 110, 85)]);
    let query = "/api/v1/query?query=resets(up[1m])&time=1";
    let resets = server.get(query).text();
    assert!(resets.contains(r#""value":[1,"2"]"#), "{resets}");
    let found = server.end(&["up"]);
    let expected = [
        (10, 0.0),
        (20, 7.0),
        (30, 9.0),
        (40, 0.0),
        (50, 9.5),
        (60, 0.0),
        (70, 20.0),
        (80, 21.0),
        (90, 22.0),
        (100, 23.0),
        (110, 24.0),
    ];
    assert_eq!(found[0], expected.map(|(time, value)| point(time, value)));
}

/// Drafts of version 2 had one start for a series, behind its samples.
#[test]
fn the_start_of_a_whole_series_is_taken() {
    let server = Taking::with(SeriesConfig::default());
    let samples = [sample(2, 7.0, 20), sample(2, 8.0, 30), vec![6 << 3, 10]];
    send_started(&server, &[1, 2], &samples);
    // Of its samples the first is older than its start.
    let samples = [sample(2, 9.0, 40), sample(2, 1.0, 50), vec![6 << 3, 45]];
    send_started(&server, &[1, 2], &samples);
    let expected = [(10, 0.0), (20, 7.0), (30, 8.0), (40, 9.0), (45, 0.0), (50, 1.0)];
    assert_eq!(server.end(&["up"])[0], expected.map(|(time, value)| point(time, value)));
}

/// Nothing counts in a gauge, or in a quantile of a summary, whatever its sender says.
#[test]
fn what_counts_nothing_has_no_start() {
    let server = Taking::with(SeriesConfig::default());
    let kind = |number: u8| field(5, &[1 << 3, number]);
    let job = [1, 2, 3, 4];
    for (number, symbols) in [(2, &job[..]), (5, &[1, 2, 9, 4])] {
        send_started(&server, symbols, &[started(7.0, 20, 10), kind(number)]);
        send_started(&server, symbols, &[sample(2, 8.0, 30), kind(number), vec![6 << 3, 25]]);
    }
    send_started(&server, &[1, 6], &[started(7.0, 20, 10), kind(5)]);
    let found = server.end(&["up job=a\\ b", "up quantile=a\\ b", "took_bucket"]);
    assert_eq!(found[0], [point(20, 7.0), point(30, 8.0)]);
    assert_eq!(found[1], [point(20, 7.0), point(30, 8.0)]);
    assert_eq!(found[2], [point(10, 0.0), point(20, 7.0)]);
}

/// The same of native histograms, which begin with the same buckets and nothing in them.
#[test]
fn a_native_histogram_begins_with_nothing() {
    let server = Taking::with(SeriesConfig::default());
    let histogram = |count: u8, time: u8, start: u8| {
        field(3, &[1 << 3, count, 4 << 3, 4, 15 << 3, time, 0x88, 1, start])
    };
    let old = |count: u8, time: u8| field(3, &[1 << 3, count, 4 << 3, 4, 15 << 3, time]);
    for (parts, count) in [
        (vec![histogram(5, 20, 10)], 1),
        (vec![histogram(6, 30, 10), histogram(9, 50, 40)], 2),
        (vec![old(2, 70), vec![6 << 3, 60]], 1),
    ] {
        let series = [field(1, &[1, 2]), parts.concat()].concat();
        let heard = server.post("/api/v1/write", SECOND, &block(&request(&[series])));
        assert_eq!((heard.status, written(&heard)[1]), (204, Some(count)), "{}", heard.text());
    }
    for (time, count) in [(10, 0), (20, 5), (30, 6), (40, 0), (50, 9), (60, 0), (70, 2)] {
        let query = format!("/api/v1/query?query=histogram_count(up)&time=0.0{time}");
        let told = server.get(&query).text();
        assert!(told.contains(&format!(r#","{count}"]"#)), "{time}: {told}");
    }
    let told = server.get("/api/v1/query?query=resets(up[1m])&time=1").text();
    assert!(told.contains(r#""value":[1,"2"]"#), "{told}");
}

#[test]
fn bodies_that_are_no_message_are_refused() {
    let server = Taking::with(SeriesConfig::default());
    let symbols = block(&request(&[]));
    // A block that says that it has four gigabytes.
    for body in [&b"no snappy"[..], b"\xff\xff\xff\xff\x0f\0", &symbols[..symbols.len() - 9]] {
        assert_eq!(server.post("/api/v1/write", SECOND, body).status, 400);
    }
    let unknown = "Content-Type: application/x-protobuf;proto=io.prometheus.write.v9.Request\r\n";
    assert_eq!(server.post("/api/v1/write", unknown, &symbols).status, 415);
    assert_eq!(server.post("/api/v1/write", SECOND, &symbols).status, 204);
}

/// A block of snappy that says how many bytes it has, and comes to so many: a byte that is repeated
/// by copies of 64 bytes, of which each takes three.
fn bomb(said: usize, copies: usize) -> Vec<u8> {
    let mut block = Vec::new();
    let mut left = said;
    while left >= 0x80 {
        block.push(left as u8 | 0x80);
        left >>= 7;
    }
    block.extend([left as u8, 0, b'x']);
    block.extend([63 << 2 | 2, 1, 0].repeat(copies));
    block
}

/// Bodies of some megabytes that come to hundreds of them, those that say so and those that don't.
#[test]
fn bombs_of_snappy_are_refused_by_what_they_say_and_by_what_they_are() {
    const COPIES: usize = 10 << 20;
    const REAL: usize = 1 + COPIES * 64;
    let server = Taking::with(SeriesConfig::default());
    let (real, small) = (bomb(REAL, COPIES), bomb(900_000, 300_000));
    assert!(real.len() < 32 << 20 && small.len() < 1 << 20 && 300_000 * 64 > 16 << 20);
    for headers in [SECOND, "Content-Encoding: snappy\r\n"] {
        let too_much = server.post("/api/v1/write", headers, &real);
        let told = too_much.text();
        assert!(too_much.status == 400 && told.contains(&format!("has {REAL} bytes")), "{told}");
        let liar = server.post("/api/v1/write", headers, &bomb(1000, COPIES));
        let told = liar.text();
        assert!(liar.status == 400 && told.contains("no block of snappy"), "{told}");
    }
    // InfluxDB's senders have no snappy.
    let lines = server.post("/write", "Content-Encoding: snappy\r\n", &real);
    assert!((400..500).contains(&lines.status), "{}", lines.text());
    let read = |body: &[u8]| server.post("/api/v1/read", "Content-Encoding: snappy\r\n", body);
    let too_long = read(&real);
    assert!(too_long.status == 413 && too_long.text().contains("longer than 1 MiB"));
    let too_much = read(&bomb(300_000 * 64 + 1, 300_000));
    assert!(too_much.status == 400 && too_much.text().contains("may be"), "{}", too_much.text());
    let liar = read(&small);
    assert!(liar.status == 400 && liar.text().contains("no block of snappy"), "{}", liar.text());
    // It goes on as if nothing had been, and holds nothing of them.
    assert_eq!(server.post("/api/v1/write", SECOND, &block(&request(&[]))).status, 204);
    assert!(server.get("/api/stats").text().contains(r#""body_bytes":"0""#));
}

/// The way back: both kinds of answers, each with its type, and what is no request.
#[test]
fn what_was_written_is_read_by_remote_read() {
    let server = Taking::with(SeriesConfig::default());
    let up = [field(1, &[1, 2, 3, 4]), sample(2, 1.0, 5), sample(2, 0.5, 6)].concat();
    assert_eq!(server.post("/api/v1/write", SECOND, &block(&request(&[up]))).status, 204);
    let condition = [field(2, b"__name__"), field(3, b"up")].concat();
    let query = [vec![1 << 3, 0, 2 << 3, 9], field(3, &condition)].concat();
    let asked = |kind: u8| block(&[field(1, &query), vec![2 << 3, kind]].concat());
    let read = |body: &[u8]| server.post("/api/v1/read", "Content-Encoding: snappy\r\n", body);
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|found| found == part);

    let samples = read(&asked(0));
    assert!(samples.status == 200 && has(&samples.body, b"a b"), "{}", samples.text());
    for line in ["content-type: application/x-protobuf\r", "content-encoding: snappy\r"] {
        assert!(samples.head.contains(line), "{}", samples.head);
    }
    let chunks = read(&asked(1));
    // Two samples, the first of them 1 at 5 ms.
    assert!(has(&chunks.body, &[0, 2, 10, 0x3f, 0xf0]), "{:?}", chunks.body);
    let stream = "content-type: application/x-streamed-protobuf; proto=prometheus.ChunkedRead";
    assert!(chunks.head.contains(stream), "{}", chunks.head);
    assert!(!chunks.head.contains("content-encoding"), "{}", chunks.head);

    let refused = read(b"no snappy");
    assert!(refused.status == 400 && refused.text().contains("no block of snappy"));
    assert!(!refused.head.contains("content-encoding"), "{}", refused.head);
    assert_eq!(server.get("/api/v1/read").status, 405);
}
