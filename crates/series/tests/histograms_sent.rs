//! Native histograms and exemplars as senders send them, and as clients of Prometheus' interface
//! ask for them. Messages are put together here field by field, by the numbers that Prometheus' and
//! OpenTelemetry's definitions give them.

use super::damage::database;
use plinth_env::block_on;
use plinth_series::ingest::{Clock, Memory, OtlpMetrics, Protocol, RemoteWrite, Session};
use plinth_series::{
    Beside, Exemplar, Histogram, Labels, RemoteRead, SeriesStore, Settings, prometheus,
};

const SECOND: i64 = 1_000_000_000;

fn store() -> SeriesStore {
    block_on(SeriesStore::open(&database())).unwrap()
}

fn session() -> Session {
    Session::new(Protocol::OpenTsdb, 1, &Memory::default())
}

fn number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint(field: u8, value: u64) -> Vec<u8> {
    let mut out = vec![field << 3];
    if field > 15 {
        out = vec![(field << 3) | 0x80, field >> 4];
    }
    number(value, &mut out);
    out
}

fn signed(field: u8, value: i64) -> Vec<u8> {
    varint(field, ((value << 1) ^ (value >> 63)) as u64)
}

fn float(field: u8, value: f64) -> Vec<u8> {
    [&[field << 3 | 1][..], &value.to_le_bytes()].concat()
}

fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    number(content.len() as u64, &mut out);
    [out, content.to_vec()].concat()
}

fn span(field: u8, offset: i64, length: u64) -> Vec<u8> {
    bytes(field, &[signed(1, offset), varint(2, length)].concat())
}

/// Deltas, packed.
fn deltas(field: u8, deltas: &[i64]) -> Vec<u8> {
    let mut packed = Vec::new();
    deltas.iter().for_each(|delta| number(((delta << 1) ^ (delta >> 63)) as u64, &mut packed));
    bytes(field, &packed)
}

/// An integer histogram of schema 0: 3 in the zero bucket, buckets up to 1, 2 and 8.
fn integers(milliseconds: u64, times: u64) -> Vec<u8> {
    let count = |count: u64| count * times;
    [
        varint(1, count(12)),
        float(3, 18.4 * times as f64),
        signed(4, 0),
        float(5, 0.001),
        varint(6, count(3)),
        span(11, 0, 2),
        span(11, 1, 1),
        deltas(12, &[count(2) as i64, count(2) as i64, -(count(1) as i64)]),
        varint(15, milliseconds),
    ]
    .concat()
}

/// One of floats with bounds of its own.
fn custom(milliseconds: u64) -> Vec<u8> {
    let packed = |all: &[f64]| all.iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<u8>>();
    [
        float(2, 5.5),
        float(3, 7.0),
        signed(4, -53),
        span(11, 0, 3),
        bytes(13, &packed(&[1.5, 0.0, 4.0])),
        varint(14, 3),
        varint(15, milliseconds),
        [&[0x82, 0x01][..], &[16], &packed(&[0.5, 2.0])].concat(),
    ]
    .concat()
}

fn stale(milliseconds: u64) -> Vec<u8> {
    [float(3, f64::from_bits(0x7ff0_0000_0000_0002)), varint(15, milliseconds)].concat()
}

fn label(name: &str, value: &str) -> Vec<u8> {
    bytes(1, &[bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat())
}

fn exemplar(value: f64, milliseconds: u64) -> Vec<u8> {
    [label("trace_id", "0af7"), float(2, value), varint(3, milliseconds)].concat()
}

fn send(store: &SeriesStore, message: &[u8], is_second: bool) -> (Session, String) {
    let body = snap::raw::Encoder::new().compress_vec(message).unwrap();
    let decode = if is_second { RemoteWrite::decode_second } else { RemoteWrite::decode };
    let (mut message, mut session) = (decode(&body).unwrap(), session());
    while !session.take_remote_write(&mut message) {
        block_on(session.save(store)).unwrap();
    }
    block_on(session.end(b"", store)).unwrap();
    let told = String::from_utf8(session.replies().to_vec()).unwrap();
    (session, told)
}

fn of(store: &SeriesStore, name: &str) -> Vec<(i64, Histogram)> {
    block_on(async {
        let series = store.existing(name).await.unwrap().expect("it was sent");
        series.histograms(..).await.unwrap().collect().await.unwrap()
    })
}

fn ask(store: &SeriesStore, path: &str, query: &str, rest: &str) -> String {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let parameters = format!("query={encoded}&{rest}");
    let path = format!("/api/v1/{path}");
    let (status, text) = block_on(prometheus(store, &path, &[parameters.as_bytes()], 60 * SECOND));
    assert_eq!(status, 200, "{text}");
    text.to_string()
}

/// The values of an expression at a time in seconds.
fn values(store: &SeriesStore, query: &str, time: i64) -> Vec<String> {
    let text = ask(store, "query", query, &format!("time={time}"));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let result = json["data"]["result"].as_array().unwrap();
    result.iter().map(|one| one["value"][1].as_str().unwrap_or("none").to_owned()).collect()
}

fn both_versions() -> [(Vec<u8>, bool); 2] {
    let first = [
        label("__name__", "took"),
        label("path", "/"),
        bytes(3, &exemplar(1.5, 14_000)),
        bytes(4, &integers(10_000, 1)),
        bytes(4, &integers(20_000, 3)),
        bytes(4, &stale(30_000)),
    ];
    let of_custom = [label("__name__", "own"), bytes(4, &custom(10_000))].concat();
    let first = [bytes(1, &first.concat()), bytes(1, &of_custom)].concat();
    let symbols = ["", "__name__", "took", "path", "/", "own", "trace_id", "0af7"];
    let symbols = symbols.iter().flat_map(|text| bytes(4, text.as_bytes()));
    let exemplar = [bytes(1, &[6, 7]), float(2, 1.5), varint(3, 14_000)].concat();
    let second = [
        bytes(1, &[1, 2, 3, 4]),
        bytes(3, &integers(10_000, 1)),
        bytes(3, &integers(20_000, 3)),
        bytes(3, &stale(30_000)),
        bytes(4, &exemplar),
    ];
    let of_custom = [bytes(1, &[1, 5]), bytes(3, &custom(10_000))].concat();
    let series = [bytes(5, &second.concat()), bytes(5, &of_custom)].concat();
    [(first, false), (symbols.chain(series).collect(), true)]
}

#[test]
fn both_versions_of_remote_write_bring_them() {
    for (message, is_second) in both_versions() {
        let store = store();
        let (session, told) = send(&store, &message, is_second);
        assert_eq!((session.saved(), session.saved_records()), (4, (3, 1)), "{told}");
        let found = of(&store, "took path=/");
        assert_eq!(found.iter().map(|one| one.0).collect::<Vec<_>>(), [10 * SECOND, 20 * SECOND]);
        let parts = found[0].1.parts();
        assert_eq!(
            (parts.count, parts.zero_count, parts.positive),
            (12.0, 3.0, vec![2.0, 4.0, 3.0])
        );
        assert_eq!(values(&store, "histogram_count(took)", 15), ["12"]);
        assert_eq!(values(&store, "histogram_sum(own)", 15), ["7"]);
        assert_eq!(values(&store, "histogram_quantile(1, took)", 15), ["8"]);
        assert_eq!(values(&store, "histogram_count(increase(took[20s]))", 20).len(), 1);
        assert!(values(&store, "histogram_count(took)", 31).is_empty(), "it has ended");
        let told = ask(&store, "query_exemplars", "rate(took{path=\"/\"}[5m])", "start=0&end=60");
        let expected = r#"{"data":[{"exemplars":[{"labels":{"trace_id":"0af7"},"timestamp":14,"value":"1.5"}],"seriesLabels":{"__name__":"took","path":"/"}}],"status":"success"}"#;
        assert_eq!(told, expected);
        for all in [
            "start=-62135596800&end=253402300799",
            "start=0001-01-01T00:00:00Z&end=9999-12-31T23:59:59Z",
        ] {
            let told = ask(&store, "query_exemplars", "rate(took{path=\"/\"}[5m])", all);
            assert_eq!(told, expected, "{all}");
        }
        let none = ask(&store, "query_exemplars", "took", "start=0&end=13");
        assert_eq!(none, r#"{"data":[],"status":"success"}"#);
    }
}

/// What remote read answers with samples is what remote write takes.
#[test]
fn what_was_sent_is_read_by_remote_read() {
    let (from, to) = (store(), store());
    for (message, is_second) in both_versions() {
        send(&from, &message, is_second);
    }
    let any = [varint(1, 2), bytes(2, b"__name__"), bytes(3, b".+")].concat();
    let query = [varint(1, 0), varint(2, 60_000), bytes(3, &any)].concat();
    let read = |kind: u64| {
        let request = [bytes(1, &query), varint(2, kind)].concat();
        let body = snap::raw::Encoder::new().compress_vec(&request).unwrap();
        block_on(RemoteRead::begin(&from, &body)).map_err(|(_, why)| why).unwrap()
    };
    let RemoteRead::Whole(answer) = read(0) else { panic!("samples are one message") };
    let answer = snap::raw::Decoder::new().decompress_vec(&answer).unwrap();
    // The one field of an answer is a list of series, as a message to write has it.
    let mut at = 1;
    while answer[at] >= 0x80 {
        at += 1;
    }
    let (_, told) = send(&to, &answer[at + 1..], false);
    assert_eq!(told, "");
    for name in ["took path=/", "own"] {
        assert_eq!(of(&to, name), of(&from, name), "{name}");
    }
    assert!(values(&to, "histogram_count(took)", 31).is_empty(), "it has ended");
    let RemoteRead::Stream(mut stream) = read(1) else { panic!("chunks are a stream") };
    let frames = block_on(stream.next()).unwrap().unwrap();
    // Three chunks of histograms, and one of the mark that ends a series.
    let kinds =
        |kind: u8| frames.windows(3).filter(|at| **at == [3 << 3, kind, 4 << 3 | 2]).count();
    assert_eq!((kinds(3), kinds(1)), (3, 1));
}

#[test]
fn what_is_no_histogram_is_refused_by_its_series_and_others_are_taken() {
    let store = store();
    let good = bytes(1, &[label("__name__", "good"), bytes(4, &integers(1, 1))].concat());
    let long = label("trace_id", &"x".repeat(5000));
    for (wrong, words) in [
        (bytes(4, &signed(4, 9)), "a schema of a native histogram is"),
        (bytes(4, &[integers(1, 1), span(11, 0, 5)].concat()), "(series 1)"),
        (bytes(4, &[0x08]), "middle of a field"),
        (bytes(4, &span(11, 0, 1 << 31)), "(series 1)"),
        // These cost an exemplar alone.
        ([bytes(4, &integers(1, 1)), bytes(3, &[0x08])].concat(), ""),
        ([bytes(4, &integers(1, 1)), bytes(3, &long)].concat(), ""),
    ] {
        let series = bytes(1, &[label("__name__", "wrong"), wrong].concat());
        let (session, told) = send(&store, &[series, good.clone()].concat(), false);
        assert!(told.contains(words) && told.is_empty() == words.is_empty(), "{words}: {told}");
        let expected = if words.is_empty() { 2 } else { 1 };
        assert_eq!(session.saved_records(), (expected, 0), "{words}");
        assert_eq!(session.exemplars_not_kept(), expected - 1, "{words}");
    }
    assert_eq!(of(&store, "good").len(), 1);
}

fn otlp(store: &SeriesStore, metric: &str) -> (Session, String) {
    let text =
        format!(r#"{{"resourceMetrics": [{{"scopeMetrics": [{{"metrics": [{metric}]}}]}}]}}"#);
    let mut message = OtlpMetrics::of_json(text.as_bytes(), &mut |_| true).unwrap();
    let mut session = session();
    while !session.take_otlp(&mut message) {
        block_on(session.save(store)).unwrap();
    }
    block_on(session.end(b"", store)).unwrap();
    let told = String::from_utf8(session.replies().to_vec()).unwrap();
    (session, told)
}

fn exponential(temporality: u8, seconds: i64, scale: i32, more: &str) -> String {
    format!(
        r#"{{"name": "took", "exponentialHistogram": {{"aggregationTemporality": {temporality}, "dataPoints": [{{
            "timeUnixNano": "{seconds}000000000", "count": "9", "sum": 20.5, "scale": {scale}, "zeroCount": 1,
            "positive": {{"offset": -1, "bucketCounts": ["2", "0", 3, 1]}},
            "negative": {{"offset": 2, "bucketCounts": [2]}}{more}}}]}}}}"#
    )
}

#[test]
fn exponential_histograms_are_native_ones() {
    let store = store();
    let more = r#", "exemplars": [{"timeUnixNano": 5000000000, "asDouble": 1.25, "traceId": "0AF7", "spanId": "01",
        "filteredAttributes": [{"key": "user", "value": {"stringValue": "u"}}]}]"#;
    let (session, told) = otlp(&store, &exponential(2, 5, 0, more));
    assert_eq!((session.saved_records(), &*told), ((1, 1), ""));
    // Buckets up to 1, 4 and 8, whose indexes are 0, 2 and 3; below 0 one to -8.
    let parts = of(&store, "took")[0].1.parts();
    assert_eq!(parts.positive, [2.0, 3.0, 1.0]);
    let spans: Vec<_> = parts.positive_spans.iter().map(|one| (one.offset, one.length)).collect();
    assert_eq!(spans, [(0, 1), (1, 2)]);
    assert_eq!((parts.negative_spans[0].offset, parts.zero_threshold), (3, 1e-128));
    // Two steps too fine: four buckets become one.
    let (_, told) = otlp(&store, &exponential(2, 6, 10, ""));
    let parts = of(&store, "took")[1].1.parts();
    assert_eq!((parts.schema, parts.positive, &*told), (8, vec![2.0, 4.0], ""));
    let told = ask(&store, "query_exemplars", "took", "start=0&end=60");
    let labels = r#""labels":{"span_id":"01","trace_id":"0af7","user":"u"}"#;
    assert!(told.contains(labels), "{told}");
    // One without a value ends it.
    let (_, told) = otlp(&store, &exponential(2, 7, 0, r#", "flags": 1"#));
    assert!(told.is_empty() && values(&store, "histogram_count(took)", 8).is_empty(), "{told}");
}

#[test]
fn what_was_added_is_added_to_the_newest() {
    let db = database();
    for (at, expected) in [(1, 9.0), (2, 18.0), (3, 27.0)] {
        // What is summed up is known behind a restart.
        let store = block_on(SeriesStore::open(&db)).unwrap();
        let (session, told) = otlp(&store, &exponential(1, 10 * at, 0, ""));
        assert_eq!((session.saved(), &*told), (1, ""));
        // Sent again, and an older one.
        assert_eq!(otlp(&store, &exponential(1, 10 * at, 0, "")).0.saved(), 0);
        let (_, told) = otlp(&store, &exponential(1, 10 * at - 1, 0, ""));
        assert_eq!(told.contains("older than the newest histogram"), at > 0, "{told}");
        let found = of(&store, "took");
        assert_eq!(found.len() as i64, at);
        assert_eq!(found.last().unwrap().1.count(), expected);
    }
}

/// A server that passes points on refused them.
#[test]
fn what_was_added_is_summed_up_whichever_server_it_was_sent_to() {
    let db = database();
    let owner = block_on(SeriesStore::open(&db)).unwrap();
    let poster = SeriesStore::post_undivided(&db, Settings::default());
    for at in 1..=6 {
        let store = if at % 2 == 0 { &owner } else { &poster };
        let (session, told) = otlp(store, &exponential(1, 10 * at, 0, ""));
        assert_eq!((session.saved(), &*told), (1, ""));
        // Sent again, to somebody who can't know.
        otlp(&poster, &exponential(1, 10 * at, 0, ""));
    }
    block_on(owner.take_in()).unwrap();
    let counts: Vec<f64> = of(&owner, "took").iter().map(|(_, one)| one.count()).collect();
    assert_eq!(counts, [9.0, 18.0, 27.0, 36.0, 45.0, 54.0]);
    // Several of a letter, one behind the other.
    for at in 7..=9 {
        otlp(&poster, &exponential(1, 10 * at, 0, ""));
    }
    let viewed = block_on(SeriesStore::view(&db, Settings::default())).unwrap();
    for store in [&viewed, &owner] {
        block_on(async { if store.take_in().await.is_err() {} });
        let found = of(store, "took");
        assert_eq!((found.len(), found[8].1.count()), (9, 81.0));
    }
}

/// The sum began again with each increment, since the session had the series that was deleted.
#[test]
fn what_is_added_after_a_deletion_goes_on_from_there() {
    let store = store();
    let mut session = session();
    let mut send = |seconds: i64| {
        let metric = exponential(1, seconds, 0, "");
        let text =
            format!(r#"{{"resourceMetrics": [{{"scopeMetrics": [{{"metrics": [{metric}]}}]}}]}}"#);
        let mut message = OtlpMetrics::of_json(text.as_bytes(), &mut |_| true).unwrap();
        session.restart(Protocol::OpenTsdb);
        while !session.take_otlp(&mut message) {
            block_on(session.save(&store)).unwrap();
        }
        block_on(session.end(b"", &store)).unwrap();
        assert_eq!(session.saved(), 1);
        of(&store, "took").last().unwrap().1.count()
    };
    assert_eq!([send(1), send(2)], [9.0, 18.0]);
    let series = block_on(store.existing("took")).unwrap().unwrap();
    block_on(store.delete(&series)).unwrap();
    assert_eq!([send(3), send(4), send(5)], [9.0, 18.0, 27.0]);
}

/// What was refused was counted as records that wait, and the message was never taken to its end.
#[test]
fn a_series_that_is_refused_leaves_nothing_that_waits() {
    let store = store();
    let wide = |milliseconds: u64| {
        let high: Vec<i64> =
            (0..4000).map(|at| if at % 2 == 0 { 1 << 60 } else { -(1 << 60) }).collect();
        let count = varint(1, 1 << 62);
        let of = [count, span(11, 0, 4000), deltas(12, &high), varint(15, milliseconds)];
        bytes(4, &of.concat())
    };
    let nameless: Vec<u8> = (0..20).flat_map(wide).collect();
    let good = [label("__name__", "good"), wide(1)].concat();
    let (session, told) = send(&store, &[bytes(1, &nameless), bytes(1, &good)].concat(), false);
    assert_eq!(session.saved(), 1, "{told}");
    assert!(told.contains("no label __name__"), "{told}");
}

/// All histograms up to the next number were read at once.
#[test]
fn histograms_lie_among_marks_and_numbers_however_many_there_are() {
    let store = store();
    let mut series = label("__name__", "took");
    for at in 0..3000_u64 {
        series.extend(bytes(4, &integers(1000 * at, at + 1)));
        if at % 1000 == 500 {
            series.extend(bytes(4, &stale(1000 * at + 500)));
        }
    }
    let (_, told) = send(&store, &bytes(1, &series), false);
    assert_eq!(told, "");
    let series = block_on(store.series("took")).unwrap();
    series.append(700 * SECOND + 1, 7.0).unwrap();
    assert_eq!(values(&store, "count_over_time(took[3000s])", 2999), ["3001"]);
    assert_eq!(values(&store, "histogram_count(took)", 2999), ["36000"]);
    assert!(values(&store, "histogram_count(took)", 500).len() == 1);
    assert!(ask(&store, "query", "took", "time=500.6").contains(r#""result":[]"#));
    assert_eq!(values(&store, "took", 700).len(), 1);
    assert!(ask(&store, "query", "took", "time=700.5").contains(r#""7"]"#));
    let whole = ask(&store, "query", "took[3000s]", "time=2999");
    assert_eq!(whole.matches(r#""count":"#).count(), 3000);
}

/// Behind a sample of the text, and by whoever has the store.
#[test]
fn exemplars_come_in_text_and_by_name() {
    let store = store();
    let clock = Clock { unit: 1_000_000, now: 5 * SECOND };
    let mut session = Session::new(Protocol::Exposition(clock), 1, &Memory::default());
    let text = "took{path=\"/\"} 1 7.0 # {trace_id=\"a\"} 0.5\n\
                took{path=\"/\"} 2 # {trace_id=\"b\"} 0.25 14.5\nleft 3 # {a=b} 1\n";
    assert_eq!(session.feed(text.as_bytes()), text.len());
    block_on(session.end(b"", &store)).unwrap();
    assert_eq!(session.replies(), b"", "what is no exemplar costs its sample nothing");
    let labels = vec![("trace_id".to_owned(), "c".to_owned())];
    let long = Exemplar { labels: vec![("a".to_owned(), "x".repeat(2048))], value: 1.0 };
    let own = Exemplar { labels, value: -1.0 };
    block_on(store.append_exemplars(&[("took path=/", 20 * SECOND, &own)])).unwrap();
    let refused = block_on(store.append_exemplars(&[("took path=/", 21 * SECOND, &long)]));
    assert!(refused.unwrap_err().to_string().contains("don't fit into 2048 bytes: took path=/"));
    let told = ask(&store, "query_exemplars", "{__name__=~'took|left'}", "start=0&end=60");
    let expected = r#"{"data":[{"exemplars":[{"labels":{"trace_id":"a"},"timestamp":7,"value":"0.5"},{"labels":{"trace_id":"b"},"timestamp":14.5,"value":"0.25"},{"labels":{"trace_id":"c"},"timestamp":20,"value":"-1"}],"seriesLabels":{"__name__":"took","path":"/"}}],"status":"success"}"#;
    assert_eq!(told, expected);
}

/// A server that has no way to ask the owner of the series what is newest in them refused all
/// samples that said when what they count began, each time they were sent; then it left out the
/// zeros.
#[test]
fn starts_are_zeros_where_nobody_can_be_asked_what_is_newest() {
    let db = database();
    let owner = block_on(SeriesStore::open(&db)).unwrap();
    let poster = SeriesStore::post_undivided(&db, Settings::default());
    let symbols = ["", "__name__", "hits", "took"];
    let symbols = symbols.iter().flat_map(|text| bytes(4, text.as_bytes()));
    let sample = [float(1, 7.0), varint(2, 20_000), varint(3, 10_000)].concat();
    let histogram = [integers(20_000, 1), varint(17, 10_000)].concat();
    let series = [
        bytes(5, &[bytes(1, &[1, 2]), bytes(2, &sample)].concat()),
        bytes(5, &[bytes(1, &[1, 3]), bytes(3, &histogram)].concat()),
    ];
    let message = symbols.chain(series.concat()).collect::<Vec<u8>>();
    for _ in 0..2 {
        let (session, told) = send(&poster, &message, true);
        assert_eq!((session.saved(), &*told), (2, ""));
    }
    block_on(owner.take_in()).unwrap();
    let points = block_on(async {
        let hits = owner.existing("hits").await.unwrap().expect("it was sent");
        hits.aggregate(..).await.unwrap().map(|all| (all.count, all.sum))
    });
    let took = of(&owner, "took");
    assert_eq!((points, took.len(), took[0].1.count()), (Some((2, 7.0)), 2, 0.0));
    send(&owner, &message, true);
    assert_eq!(of(&owner, "took").len(), 2, "there is something as new");
}

/// By labels some may be refused, which keeps none of the others back.
#[test]
fn what_a_store_refuses_by_labels_is_told_by_its_place() {
    let store = store();
    let labels = |metric: &str| [("__name__", metric)].into_iter().collect::<Labels>();
    let exemplar = |len| Exemplar { labels: vec![("a".to_owned(), "x".repeat(len))], value: 1.0 };
    let all = [
        (labels("a b"), 1, Beside::Histogram(Histogram::default())),
        (labels(""), 1, Beside::Histogram(Histogram::default())),
        (labels("took"), 1, Beside::Exemplar(exemplar(2048))),
        (labels("took"), SECOND, Beside::Exemplar(exemplar(1))),
        (labels("took"), 3, Beside::Histogram(Histogram::default())),
    ];
    let refused = block_on(store.append_labelled_beside(&all)).unwrap();
    let mut places: Vec<usize> = refused.iter().map(|(place, _)| *place).collect();
    places.sort_unstable();
    assert_eq!(places, [1, 2], "{refused:?}");
    assert_eq!(of(&store, "took"), [(3, Histogram::default())]);
    assert!(ask(&store, "query_exemplars", "took", "start=0&end=60").contains("timestamp"));
}
