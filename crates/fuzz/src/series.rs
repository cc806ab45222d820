//! What senders and readers of time series send: lines of each protocol, remote write, queries.
//!
//! A session is fed twice, in one piece and in pieces: the points and the answers have to be the
//! same, since the pieces in which bytes arrive mean nothing. What it holds of an unfinished line
//! stays within the longest line.

use plinth_env::block_on;
use plinth_promql::{Answered, Histogram, Labels, Options, Parts, Span};
use plinth_series::ingest::otlp::NoRequest;
use plinth_series::ingest::{
    Clock, ImportLines, MAX_LINE_BYTES, Memory, OtlpMetrics, Protocol, PutPoints, RemoteWrite,
    ScrapedBody, ScrapedHistograms, Session, scraped_labels,
};
use plinth_series::{Name, Query, RemoteRead, opentsdb_expressions};
use std::sync::Arc;

/// What a session made of its bytes.
#[derive(PartialEq, Eq, Debug, Default)]
struct Taken {
    points: Vec<String>,
    replies: Vec<u8>,
    refused: u64,
}

impl Taken {
    /// Takes what the session has, as a save would.
    fn take(&mut self, session: &mut Session) {
        for (name, point) in session.points() {
            let parsed = Name::parse(name.as_str()).expect("a name that was taken is one");
            assert_eq!(parsed.as_str(), name.as_str(), "a name is canonical once it was taken");
            self.points.push(format!("{name} {point:?}"));
        }
        self.replies.extend_from_slice(session.replies());
        session.sent(session.replies().len());
        self.refused = session.refused();
        session.discard();
    }
}

fn fed(protocol: Protocol, bytes: &[u8], piece: usize) -> Taken {
    let mut session = Session::new(protocol, 7, &Memory::default());
    let (mut held, mut taken) = (Vec::new(), Taken::default());
    for piece in bytes.chunks(piece) {
        held.extend_from_slice(piece);
        loop {
            let len = session.feed(&held);
            held.drain(..len);
            let goes_on = session.wants_save();
            taken.take(&mut session);
            if !goes_on {
                break;
            }
        }
        assert!(held.len() <= MAX_LINE_BYTES + 1, "more than a line is held");
    }
    session.finish(&held);
    taken.take(&mut session);
    taken
}

/// Lines: the first byte says which protocol they are in, the second into which pieces they are
/// cut. OpenTSDB's JSON becomes lines first.
pub(crate) fn lines(bytes: &[u8]) {
    let [which, piece, stream @ ..] = bytes else { return };
    if *which & 7 == 5 {
        return put(stream);
    }
    let protocol = match which & 7 {
        0 => Protocol::Resp,
        1 => Protocol::OpenTsdb,
        2 => Protocol::Influx(Clock { unit: 1_000, now: 5 }),
        4 => Protocol::Graphite,
        6 => Protocol::Exposition(Clock { unit: 1_000_000, now: 5 }),
        _ => Protocol::Csv(0),
    };
    if *which & 7 == 6 {
        scraped("text/plain", stream);
        scraped("application/openmetrics-text", stream);
    }
    let whole = fed(protocol, stream, stream.len().max(1));
    let pieces = fed(protocol, stream, usize::from(piece % 32) + 1);
    assert_eq!(whole.points, pieces.points, "the pieces make a difference");
    assert_eq!(whole.refused, pieces.refused, "the pieces make a difference to what is refused");
    // More than that is counted instead of told, if nobody takes it in between.
    if pieces.replies.len() < 32 << 10 {
        assert_eq!(whole.replies, pieces.replies, "the pieces make a difference to what is told");
    }
}

/// Points of OpenTSDB's in JSON.
fn put(bytes: &[u8]) {
    let Ok(mut points) = PutPoints::of(bytes) else { return };
    let mut session = Session::new(Protocol::OpenTsdb, 7, &Memory::default());
    let mut taken = Taken::default();
    while !session.take_put(&mut points) {
        taken.take(&mut session);
    }
    taken.take(&mut session);
    assert!(points.refused() <= points.points(), "more is refused than there is");
}

/// What a target answers, in each format.
fn scraped(kind: &str, bytes: &[u8]) {
    let histograms = ScrapedHistograms { native: true, classic_too: true };
    let mut body = ScrapedBody::of(kind, bytes, histograms).expect("it is of a type that is read");
    while !body.is_at_end() {
        let mut work = 0;
        match body.step(&mut work) {
            Ok(Some(sample)) => drop(scraped_labels(sample.series)),
            Ok(None) => {}
            Err(why) => {
                assert!(!why.is_empty(), "it is refused without a word why");
                break;
            }
        }
        assert!(work > 0, "a step that takes nothing would never end");
    }
    let _ = body.end();
    let _ = body.take_metadata();
}

/// Lines of an import.
pub(crate) fn import(bytes: &[u8]) {
    let mut session = Session::new(Protocol::Csv(0), 7, &Memory::default());
    let (mut lines, mut taken) = (ImportLines::of(bytes), Taken::default());
    while !session.take_import(&mut lines) {
        taken.take(&mut session);
    }
    taken.take(&mut session);
}

/// A message of remote write, or of remote read: as it comes, compressed or not; and as the content
/// of a block that is compressed well. Also what a target answers in messages.
pub(crate) fn remote_write(bytes: &[u8]) {
    scraped("application/vnd.google.protobuf", bytes);
    let versions = [RemoteWrite::decode, RemoteWrite::decode_second];
    let bodies = [bytes.to_vec(), block(bytes)];
    for body in &bodies {
        let _ = RemoteRead::check(body);
    }
    for (body, decode) in bodies.iter().flat_map(|body| versions.map(|decode| (body, decode))) {
        let mut session = Session::new(Protocol::Csv(0), 7, &Memory::default());
        match decode(body) {
            Ok(mut message) => {
                let mut taken = Taken::default();
                while !session.take_remote_write(&mut message) {
                    taken.take(&mut session);
                }
                taken.take(&mut session);
            }
            Err(why) => assert!(!why.is_empty(), "it is refused without a word why"),
        }
    }
}

/// A request with OpenTelemetry's metrics: as a message, and as JSON, which has to mean a message.
pub(crate) fn otlp(bytes: &[u8]) {
    let of_json = match OtlpMetrics::of_json(bytes, &mut |_| true) {
        Ok(message) => Some(message),
        Err(NoRequest::Wrong(why)) => {
            assert!(!why.is_empty(), "it is refused without a word why");
            None
        }
        Err(NoRequest::NoRoom) => panic!("there is room"),
    };
    for (is_json, message) in [(false, Some(OtlpMetrics::of(bytes))), (true, of_json)] {
        let Some(mut message) = message else { continue };
        let mut session = Session::new(Protocol::Csv(0), 7, &Memory::default());
        let mut taken = Taken::default();
        while !session.take_otlp(&mut message) {
            taken.take(&mut session);
        }
        taken.take(&mut session);
        assert!(message.rejected() <= message.points(), "more is refused than there is");
        assert!(!is_json || message.broken().is_none(), "what JSON became is no message");
    }
}

/// Requests with every kind of point, as messages and in JSON.
pub(crate) fn otlp_requests() -> Vec<(String, Vec<u8>)> {
    let field =
        |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let eight = |number: u8, bits: u64| [&[number << 3 | 1][..], &bits.to_le_bytes()].concat();
    let attribute = |number: u8, key: &str, value: &[u8]| {
        field(number, &[field(1, key.as_bytes()), field(2, value)].concat())
    };
    let sum = [
        field(1, &[eight(3, 7), eight(6, 5), attribute(7, "a.b", &[2 << 3, 1])].concat()),
        vec![2 << 3, 1, 3 << 3, 1],
    ];
    let buckets = [eight(4, 3), eight(5, 9), eight(6, 1), eight(6, 2), eight(7, 0)].concat();
    let histogram = [field(1, &[eight(3, 7), buckets].concat()), vec![2 << 3, 2]];
    let metric = |name: &str, number: u8, data: &[Vec<u8>]| {
        let parts = [field(1, name.as_bytes()), field(3, b"ms"), field(number, &data.concat())];
        field(2, &parts.concat())
    };
    let one = field(2, &metric("s", 7, &sum));
    let other = field(2, &metric("h", 9, &histogram));
    let resource = field(1, &attribute(1, "service.name", &field(1, b"x")));
    let messages = [[resource.clone(), one].concat(), [resource, other].concat()];
    let messages = messages.map(|message| field(1, &message));
    let json = OTLP_JSON.map(|text| text.as_bytes().to_vec());
    let all = messages.into_iter().chain(json).enumerate();
    all.map(|(at, bytes)| (format!("seed-{at:02}"), bytes)).collect()
}

const OTLP_JSON: [&str; 2] = [
    r#"{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"x"}},
{"key":"l","value":{"arrayValue":{"values":[{"intValue":"1"},{"kvlistValue":{"values":[{"key":"k","value":{"bytesValue":"AP8="}}]}}]}}}]},
"scopeMetrics":[{"metrics":[{"name":"g","unit":"1","gauge":{"dataPoints":[{"timeUnixNano":"7","asDouble":"NaN"},{"timeUnixNano":8,"flags":1}]}}]}]}]}"#,
    r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
{"name":"q","summary":{"dataPoints":[{"timeUnixNano":5,"count":2,"sum":3,"quantileValues":[{"quantile":0.5,"value":1}]}]}},
{"name":"e","exponentialHistogram":{"aggregationTemporality":2,"dataPoints":[{"timeUnixNano":5,"count":"1","scale":3}]}},
{"name":"h","histogram":{"aggregationTemporality":1,"dataPoints":[{"timeUnixNano":5,"count":"3","bucketCounts":["1","2"],"explicitBounds":[1.5]}]}}]}]}]}"#,
];

/// A query, as the body of a request for rows and as one for names.
pub(crate) fn query(bytes: &[u8]) {
    for error in [Query::parse(bytes).err(), Query::parse_search(bytes).err()].into_iter().flatten()
    {
        assert!(!error.to_string().is_empty(), "it is refused without a word why");
    }
    // As OpenTSDB's, in a body and in an address: what is made of it has to come back, too.
    for asked in [(&b""[..], bytes), (bytes, &b""[..])] {
        match opentsdb_expressions(asked, 1_767_225_600_000_000_000) {
            Ok(all) => all.iter().for_each(|text| drop(plinth_promql::parse(text))),
            Err(why) => assert!(!why.is_empty(), "it is refused without a word why"),
        }
    }
}

/// An expression of PromQL: parsed, and if it is one evaluated over a few series, at one time and
/// at some.
pub(crate) fn promql(bytes: &[u8]) {
    const SECOND: i64 = 1_000_000_000;
    let text = String::from_utf8_lossy(bytes);
    let mut memory = plinth_promql::Memory::default();
    for (metric, a, b) in
        [("x_total", "1", ""), ("x_total", "2", "p"), ("y", "1", "q"), ("h_bucket", "1", "")]
    {
        for (le, factor) in [("1", 1.0), ("+Inf", 2.0)] {
            let le = if metric == "h_bucket" { le } else { "" };
            let pairs = [(plinth_promql::NAME, metric), ("a", a), ("b", b), ("le", le)];
            let labels: Labels = pairs.into_iter().collect();
            for (time, value) in
                [1.0, 3.0, f64::NAN, 2.0, f64::INFINITY, -1.0, 7.0].into_iter().enumerate()
            {
                memory.add(&labels, time as i64 * 30 * SECOND, value * factor);
            }
            memory.add(&labels, 240 * SECOND, f64::from_bits(plinth_promql::STALE));
        }
    }
    add_histograms(&mut memory);
    let options =
        Options { max_values: 20_000, max_window: 1000, max_visits: 50_000, ..Options::default() };
    let one = block_on(plinth_promql::instant(&memory, &text, 200 * SECOND, &options));
    let steps = (0, 300 * SECOND, 20 * SECOND);
    let some = block_on(plinth_promql::range(&memory, &text, steps, &options));
    for answer in [one, some] {
        match answer.map(|answer| answer.value) {
            Ok(Answered::Vector(series)) => are_different(series.iter().map(|(labels, _)| labels)),
            Ok(Answered::Matrix(rows)) => are_different(rows.iter().map(|row| &row.labels)),
            Ok(Answered::Scalar(_) | Answered::String(_)) => {}
            Err(error) => {
                assert!(!error.to_string().is_empty(), "it is refused without a word why")
            }
        }
    }
}

/// Native histograms of both kinds, coarser ones behind finer ones, and a float among them.
fn add_histograms(memory: &mut plinth_promql::Memory) {
    for (a, schema) in [("1", 1), ("2", 0), ("3", plinth_promql::CUSTOM)] {
        let labels: Labels = [(plinth_promql::NAME, "n"), ("a", a)].into_iter().collect();
        for (place, count) in
            [1.0, 5.0, 3.0, f64::NAN, -1.0, 1e308, 1.5e308].into_iter().enumerate()
        {
            let is_custom = schema == plinth_promql::CUSTOM;
            let counts = vec![count, 1.0, count * 2.0];
            let spans = vec![Span { offset: if is_custom { 0 } else { -1 }, length: 3 }];
            let (negative_spans, negative) = match is_custom {
                true => (Vec::new(), Vec::new()),
                false => (spans.clone(), counts.clone()),
            };
            let histogram = Histogram::new(Parts {
                schema: if is_custom { schema } else { schema - place as i32 / 3 },
                count: count * 6.0 + 2.0,
                sum: count,
                zero_threshold: if is_custom { 0.0 } else { place as f64 / 8.0 },
                positive_spans: spans,
                positive: counts,
                negative_spans,
                negative,
                bounds: if is_custom { vec![-1.0, 0.5 + (place / 2) as f64] } else { Vec::new() },
                ..Parts::default()
            });
            let histogram = histogram.expect("its buckets are those of its schema");
            memory.add_histogram(&labels, place as i64 * 30_000_000_000, Arc::new(histogram));
        }
        if a == "2" {
            memory.add(&labels, 75_000_000_000, 1.0);
        }
    }
}

fn are_different<'a>(all: impl Iterator<Item = &'a Labels>) {
    let mut seen = std::collections::BTreeSet::new();
    for labels in all {
        assert!(seen.insert(labels), "two series of an answer are {labels}");
    }
}

/// A block of snappy that holds these bytes as they are.
fn block(bytes: &[u8]) -> Vec<u8> {
    /// The longest literal whose length stands in its tag.
    const LITERAL: usize = 60;
    let mut block = Vec::new();
    let mut len = bytes.len();
    while len >= 0x80 {
        block.push(len as u8 | 0x80);
        len >>= 7;
    }
    block.push(len as u8);
    for part in bytes.chunks(LITERAL) {
        block.push((part.len() as u8 - 1) << 2);
        block.extend_from_slice(part);
    }
    block
}

/// A message of version 2: symbols, and a series with two samples, a histogram, an exemplar and
/// metadata.
pub(crate) fn remote_write_second() -> Vec<u8> {
    let field =
        |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let sample = [&[1 << 3 | 1][..], &1.5_f64.to_le_bytes(), &[2 << 3, 5]].concat();
    let series = [
        field(1, &[1, 2, 3, 4]),
        field(2, &sample),
        field(2, &sample),
        field(3, b""),
        field(4, &[1 << 3, 3]),
        field(5, &[1 << 3, 2, 3 << 3, 5, 4 << 3, 0]),
    ];
    let symbols = ["", "__name__", "up", "job", "a b", "help"];
    let symbols = symbols.iter().flat_map(|text| field(4, text.as_bytes()));
    symbols.chain(field(5, &series.concat())).collect()
}

/// A message of two series.
pub(crate) fn remote_write_message() -> Vec<u8> {
    let field =
        |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let label = |name: &str, value: &str| {
        field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat())
    };
    let sample = |value: f64, milliseconds: u8| {
        field(2, &[&[1 << 3 | 1], &value.to_le_bytes()[..], &[2 << 3, milliseconds]].concat())
    };
    let one = [label("__name__", "up"), label("job", "a"), sample(1.0, 5), sample(0.5, 6)].concat();
    let two = [label("__name__", "load"), label("host", "b"), sample(f64::NAN, 5)].concat();
    [field(1, &one), field(1, &two)].concat()
}

/// Families of metrics, as a target answers: a histogram with buckets of both kinds, and a counter,
/// each with an exemplar.
pub(crate) fn scraped_families() -> Vec<u8> {
    let field =
        |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let float = |number: u8, value: f64| [&[number << 3 | 1][..], &value.to_le_bytes()].concat();
    let label = field(1, &[field(1, b"path"), field(2, b"/")].concat());
    let exemplar = [label.clone(), float(2, 0.5), field(3, &[1 << 3, 2, 2 << 3, 1])].concat();
    let bucket = field(3, &[vec![1 << 3, 2], float(2, 1.0), field(3, &exemplar)].concat());
    let native = [field(12, &[1 << 3, 0, 2 << 3, 2]), field(13, &[4, 1])].concat();
    let histogram = [vec![1 << 3, 3], float(2, 3.5), bucket, native].concat();
    let counter = [float(1, 7.0), field(2, &exemplar)].concat();
    let family = |name: &[u8], kind: u8, number: u8, said: &[u8]| {
        let metric = [&label[..], &field(number, said), &[6 << 3, 5]].concat();
        let parts = [field(1, name), field(2, b"help"), vec![3 << 3, kind], field(4, &metric)];
        field(0, &parts.concat())[1..].to_vec()
    };
    [family(b"took", 4, 7, &histogram), family(b"seen", 0, 3, &counter)].concat()
}
