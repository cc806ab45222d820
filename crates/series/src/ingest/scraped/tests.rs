//! What is read of answers in each format: either gives the same series, and what makes no sense is
//! told by its place. Messages are put together field by field, by the numbers that Prometheus'
//! definition gives them; none of them, whole, cut off or changed, is read without an end.

use super::*;
use crate::ingest::MAX_LINE_BYTES;
use crate::protobuf::{put_bytes, put_number};
use plinth_promql::{Parts, ResetHint, Span};

const TEXT: &str = "text/plain; version=0.0.4";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0";
const MESSAGES: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
const NATIVE: ScrapedHistograms = ScrapedHistograms { native: true, classic_too: false };

fn all<'a>(
    kind: &str,
    bytes: &'a [u8],
    histograms: ScrapedHistograms,
) -> Result<(Vec<String>, ScrapedBody<'a>), String> {
    let (mut body, mut all) = (ScrapedBody::of(kind, bytes, histograms)?, Vec::new());
    while !body.is_at_end() {
        let mut work = 0;
        let sample = body.step(&mut work)?;
        assert!(work > 0, "a step that is none would never end");
        if let Some(ScrapedSample { series, value, time, exemplars }) = sample {
            let value = match value {
                ScrapedValue::Float(value) => value.to_string(),
                ScrapedValue::Histogram(histogram) => histogram.to_string(),
            };
            let mut text = format!("{} {value}", String::from_utf8_lossy(series));
            time.into_iter().for_each(|time| text += &format!(" {time}"));
            for ScrapedExemplar { exemplar, time } in exemplars {
                text += &format!(" # {:?} {} {time:?}", exemplar.labels, exemplar.value);
            }
            all.push(text);
        }
    }
    body.end()?;
    Ok((all, body))
}

fn samples(kind: &str, bytes: &[u8]) -> Result<Vec<String>, String> {
    let (mut all, mut body) = all(kind, bytes, NATIVE)?;
    let told = body.take_metadata();
    all.extend(told.iter().map(|it| format!("{} {} {}", it.metric, it.kind, it.help)));
    Ok(all)
}

#[test]
fn both_formats_of_text_are_read() {
    let text = "# HELP m of m\n# TYPE m counter\n\nm{a=\"b c\"}  1.5 1767225600123\nn NaN";
    let found = samples(TEXT, text.as_bytes()).unwrap();
    assert_eq!(found, ["m{a=\"b c\"} 1.5 1767225600123000000", "n NaN", "m counter of m"]);
    let text = "# TYPE m counter\nm_total 1 1767225600.123 # {id=\"7\"} 0.5\n# EOF\n";
    let found = samples(OPEN_METRICS, text.as_bytes()).unwrap();
    let exemplar = r#"# [("id", "7")] 0.5 None"#;
    assert_eq!(found, [&format!("m_total 1 1767225600123000000 {exemplar}"), "m counter "]);
    for (kind, wrong, words) in [
        ("application/openmetrics-text", "m 1\n", "# EOF"),
        ("application/openmetrics-text", "# EOF\nm 1\n", "line 2: something stands behind"),
        ("text/plain", "a 1\n\nm", "line 3: the value is no number"),
        ("text/plain", "m 1 x", "milliseconds"),
        ("text/plain", "m 1 2 3", "nothing behind them"),
        ("text/plain", "<html>", "no number"),
        ("text/plain", &format!("m{{a=\"{}\"}} 1", "x".repeat(MAX_LINE_BYTES)), "the line has"),
    ] {
        assert!(samples(kind, wrong.as_bytes()).unwrap_err().contains(words), "{wrong}");
    }
}

/// They were kept, and shown, as they stand in the text.
#[test]
fn what_a_metric_is_about_may_have_line_ends_and_backslashes() {
    let text = r"# HELP m one\\nline\nanother \\ \x \\".to_owned() + "\n# TYPE m gauge\n# EOF\n";
    for kind in [TEXT, OPEN_METRICS] {
        let found = samples(kind, text.as_bytes()).unwrap();
        assert_eq!(found, ["m gauge one\\nline\nanother \\ \\x \\"]);
    }
    // Quotes have one in OpenMetrics alone.
    let text = r#"# HELP m of \"it\""#.to_owned() + "\n# TYPE m gauge\n# EOF\n";
    assert_eq!(samples(OPEN_METRICS, text.as_bytes()).unwrap(), [r#"m gauge of "it""#]);
    assert_eq!(samples(TEXT, text.as_bytes()).unwrap(), [r#"m gauge of \"it\""#]);
}

#[test]
fn an_exemplar_that_is_none_costs_its_sample_nothing() {
    let exemplar = |behind: &str| {
        let text = format!("m{{a=\"#\"}} 1 {behind}");
        let found = samples(TEXT, text.as_bytes()).unwrap().remove(0);
        let value = "m{a=\"#\"} 1";
        assert!(found.starts_with(value), "{found}");
        found[value.len()..].to_owned()
    };
    let trace = r#" # [("trace_id", "x y"), ("é", "\"")] 0.67 "#;
    let text = r##"{trace_id="x y",é="\""}"##;
    let timed = format!("{trace}Some(1520879607789000000)");
    assert_eq!(exemplar(&format!("# {text} 0.67 1520879607.789")), timed);
    assert_eq!(exemplar(&format!("#{text}0.67 1520879607.789")), timed);
    assert_eq!(exemplar(&format!("7 # {text} 0.67")), format!(" 7000000{trace}None"));
    assert_eq!(exemplar("# {} 1"), " # [] 1 None");
    let long = format!("# {{a=\"{}\"}} 1", "x".repeat(2048));
    let many = format!("# {{{}}} 1", "a=\"\",".repeat(65));
    for none in [
        "#",
        "# a comment",
        "# {a=\"b\"}",
        "# {a=\"b\"} x",
        "# {a=\"b\"} 1 x",
        "# {a=\"b\"} 1 1e300",
        "# {a=\"b\"} 1 2 3",
        "# {a=b} 1",
        "# {a=\"b} 1",
        "# {\"a\"} 1",
        "# {__name__=\"a\"} 1",
        &long,
        &many,
    ] {
        assert_eq!(exemplar(none), "", "{none}");
    }
}

#[test]
fn labels_are_what_was_meant() {
    let labels = |series: &str| scraped_labels(series.as_bytes());
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let found = labels(r#"m { a="b\"\\\n", empty="" }"#).unwrap();
    assert_eq!(found, [pair("__name__", "m"), pair("a", "b\"\\\n"), pair("empty", "")]);
    assert_eq!(labels(r#"{"m.n", a="b"}"#).unwrap()[0], pair("__name__", "m.n"));
    assert!(labels("m{a=b}").is_err());
}

fn bytes(field: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(field, content, &mut out);
    out
}

fn number(field: u64, number: i64) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(field << 3, &mut out);
    put_number(number as u64, &mut out);
    out
}

fn signed(field: u64, value: i64) -> Vec<u8> {
    number(field, (value << 1) ^ (value >> 63))
}

fn float(field: u64, value: f64) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(field << 3 | 1, &mut out);
    [&out[..], &value.to_le_bytes()].concat()
}

fn label(name: &str, value: &str) -> Vec<u8> {
    bytes(1, &[bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat())
}

fn span(field: u32, offset: i64, length: i64) -> Vec<u8> {
    bytes(field, &[signed(1, offset), number(2, length)].concat())
}

fn exemplar_of(field: u32, trace: &str, value: f64, time: Option<(i64, i64)>) -> Vec<u8> {
    let time =
        time.map(|(seconds, nanos)| bytes(3, &[number(1, seconds), number(2, nanos)].concat()));
    bytes(field, &[label("trace_id", trace), float(2, value), time.unwrap_or_default()].concat())
}

fn metric(labels: &[(&str, &str)], field: u32, said: &[Vec<u8>], time: i64) -> Vec<u8> {
    let labels = labels.iter().flat_map(|(name, value)| label(name, value));
    let time = if time == 0 { Vec::new() } else { number(6, time) };
    [labels.collect(), bytes(field, &said.concat()), time].concat()
}

/// What is said of the family stands behind its metrics, as it may.
fn family(name: &str, kind: i64, metrics: &[Vec<u8>]) -> Vec<u8> {
    let metrics: Vec<u8> = metrics.iter().flat_map(|metric| bytes(4, metric)).collect();
    let head = [bytes(1, name.as_bytes()), bytes(2, b"of it"), number(3, kind)].concat();
    let message = [metrics, head].concat();
    let mut out = Vec::new();
    put_number(message.len() as u64, &mut out);
    [out, message].concat()
}

fn bucket(count: i64, bound: f64, exemplar: &[u8]) -> Vec<u8> {
    bytes(3, &[number(1, count), float(2, bound), exemplar.to_vec()].concat())
}

fn classic() -> Vec<Vec<u8>> {
    vec![
        number(1, 7),
        float(2, 9.5),
        bucket(2, 0.00001, b""),
        bucket(3, 1.0, &exemplar_of(3, "b", 0.9, Some((1, 500_000_000)))),
        bucket(5, 2_000_000.0, &exemplar_of(3, "c", 3.0, None)),
    ]
}

/// 4 in the zero bucket, 1, 3, none and 2 above, and 1 below.
fn native() -> Vec<Vec<u8>> {
    let deltas = [1, 2, -1].map(|delta: i64| ((delta << 1) ^ (delta >> 63)) as u8);
    vec![
        signed(5, -1),
        float(6, 0.25),
        number(7, 4),
        span(12, -2, 2),
        span(12, 1, 1),
        bytes(13, &deltas),
        span(9, 0, 1),
        signed(10, 1),
    ]
}

#[test]
fn messages_give_the_series_of_the_text() {
    let text = r#"# HELP c of it
# TYPE c counter
c{a="x\"\\\ny"} 1.5 1767225600.123 # {trace_id="a"} 0.5
c 2
# HELP g of it
# TYPE g gauge
g NaN
# HELP s of it
# TYPE s summary
s{a="b",quantile="0.5"} 3
s{a="b",quantile="1.0"} 4
s_sum{a="b"} 7
s_count{a="b"} 2
# HELP u.x of it
# TYPE u.x unknown
{"u.x","l m"="n"} -1
# HELP h of it
# TYPE h histogram
h_bucket{a="b",le="1e-05"} 2
h_bucket{a="b",le="1.0"} 3 # {trace_id="b"} 0.9 1.5
h_bucket{a="b",le="2e+06"} 5 # {trace_id="c"} 3
h_bucket{a="b",le="+Inf"} 7
h_sum{a="b"} 9.5
h_count{a="b"} 7
# EOF
"#;
    let quantile = |quantile, value| bytes(3, &[float(1, quantile), float(2, value)].concat());
    let summary = [number(1, 2), float(2, 7.0), quantile(0.5, 3.0), quantile(1.0, 4.0)];
    let counter = [float(1, 1.5), exemplar_of(2, "a", 0.5, None)];
    let messages = [
        family(
            "c",
            0,
            &[
                metric(&[("a", "x\"\\\ny")], 3, &counter, 1_767_225_600_123),
                metric(&[], 3, &[float(1, 2.0)], 0),
            ],
        ),
        family("g", 1, &[metric(&[], 2, &[float(1, f64::NAN)], 0)]),
        family("s", 2, &[metric(&[("a", "b")], 4, &summary, 0)]),
        family("u.x", 3, &[metric(&[("l m", "n")], 5, &[float(1, -1.0)], 0)]),
        family("h", 4, &[metric(&[("a", "b")], 7, &classic(), 0)]),
    ];
    let of_text = samples(OPEN_METRICS, text.as_bytes()).unwrap();
    let of_messages = samples(MESSAGES, &messages.concat()).unwrap();
    assert_eq!(of_messages, of_text);
    for series in ["{\"u.x\",\"l m\"=\"n\"}", "c{a=\"x\\\"\\\\\\ny\"}"] {
        assert!(scraped_labels(series.as_bytes()).is_ok());
    }
}

#[test]
fn native_histograms_are_taken_as_asked() {
    let of = |kind: i64, said: &[Vec<u8>], histograms| {
        let body = family("h", kind, &[metric(&[("a", "b")], 7, said, 5)]);
        all(MESSAGES, &body, histograms).unwrap().0
    };
    let expected = Histogram::new(Parts {
        schema: -1,
        zero_threshold: 0.25,
        zero_count: 4.0,
        count: 7.0,
        sum: 9.5,
        positive_spans: vec![Span { offset: -2, length: 2 }, Span { offset: 1, length: 1 }],
        positive: vec![1.0, 3.0, 2.0],
        negative_spans: vec![Span { offset: 0, length: 1 }],
        negative: vec![1.0],
        ..Parts::default()
    })
    .unwrap();
    let both = [classic(), native()].concat();
    // Of exemplars of buckets it has those that say of when they are.
    let of_buckets = r#"# [("trace_id", "b")] 0.9 Some(1500000000)"#;
    let line = format!("h{{a=\"b\"}} {expected} 5000000");
    assert_eq!(of(4, &both, NATIVE), [format!("{line} {of_buckets}")]);
    let classic_too = ScrapedHistograms { classic_too: true, ..NATIVE };
    let found = of(4, &both, classic_too);
    assert_eq!((found.len(), &found[6]), (7, &format!("{line} {of_buckets}")));
    assert!(found[2].contains("h_bucket{a=\"b\",le=\"2e+06\"} 5 5000000 # "), "{found:?}");
    assert_eq!(of(4, &both, ScrapedHistograms::default()), found[..6]);
    let own = [exemplar_of(16, "d", 1.0, Some((2, 0))), exemplar_of(16, "e", 1.0, None)];
    let own = [both, own.to_vec()].concat();
    assert_eq!(
        of(4, &own, NATIVE),
        [format!("{line} # [(\"trace_id\", \"d\")] 1 Some(2000000000)")]
    );
    // One with nothing but native buckets has no classic ones to be taken beside.
    let alone = [vec![number(1, 7), float(2, 9.5)], native()].concat();
    assert_eq!(of(4, &alone, classic_too), [line]);
    assert_eq!(of(4, &alone, ScrapedHistograms::default()).len(), 3, "+Inf, _sum and _count");
    // A span of no buckets says that one without observations is native.
    assert_eq!(
        of(4, &[span(12, 0, 0)], NATIVE),
        [format!("h{{a=\"b\"}} {} 5000000", Histogram::default())]
    );
    assert_eq!(of(4, &[], NATIVE).len(), 3);
}

#[test]
fn counts_of_histograms_may_be_floats() {
    let said = [
        [number(1, 9), float(4, 2.5), float(2, 1.0), float(8, 0.5), float(6, 0.1)].concat(),
        [span(12, 0, 2), float(14, 1.5), float(14, 0.5), signed(13, 7)].concat(),
    ];
    for (kind, hint) in [(4, ResetHint::Unknown), (5, ResetHint::Gauge)] {
        let body = family("h", kind, &[metric(&[], 7, &said, 0)]);
        let mut body = ScrapedBody::of(MESSAGES, &body, NATIVE).unwrap();
        let value = |sample: ScrapedSample<'_>| sample.value;
        let values = std::iter::from_fn(|| {
            (!body.is_at_end()).then(|| body.step(&mut 0).unwrap().map(value))
        });
        let Some(ScrapedValue::Histogram(histogram)) = values.flatten().next() else {
            panic!("there is no histogram")
        };
        let parts = histogram.parts();
        assert_eq!((parts.hint, parts.count, parts.zero_count), (hint, 2.5, 0.5));
        assert_eq!(parts.positive, [1.5, 0.5]);
    }
}

#[test]
fn messages_that_are_none_are_told() {
    let wrong = |body: &[u8]| samples(MESSAGES, body).unwrap_err();
    let counter = |labels: &[(&str, &str)], said: &[Vec<u8>], time| {
        family("c", 0, &[metric(&[], 3, &[], 0), metric(labels, 3, said, time)])
    };
    let many = bucket(1, 1.0, b"").repeat(4097);
    let quantiles = bytes(3, b"").repeat(4097);
    let long = "x".repeat(MAX_LINE_BYTES);
    for (body, words) in [
        (b"<html>".to_vec(), "a family of metrics is cut off"),
        (vec![0x80; 11], "a family of metrics is cut off"),
        (vec![1, 7], "the message ends in the middle"),
        (family("c", 6, &[]), "metric 0 (c): a metric has no type 6"),
        (family("c", 1, &[metric(&[], 3, &[], 0)]), "metric 1 (c): it is no gauge"),
        (counter(&[], &[], i64::MAX), "metric 2 (c): the time is not between"),
        (counter(&[("a", &long)], &[], 0), "have more than 16384 bytes"),
        (counter(&[], &[bytes(9, &vec![0; 1 << 20])], 0), "the metric has more than 1048576 bytes"),
        (family("h", 4, &[metric(&[], 7, &[many], 0)]), "a histogram has more than 4096 buckets"),
        (family("s", 2, &[metric(&[], 4, &[quantiles], 0)]), "more than 4096 quantiles"),
        (family("h", 4, &[metric(&[], 7, &[span(12, 0, 3)], 0)]), "metric 1 (h): "),
        (family("h", 4, &[metric(&[], 7, &[span(12, 0, 1 << 33)], 0)]), "more than 4096 buckets"),
        (family("h", 4, &[metric(&[], 7, &[signed(5, 9), float(6, 1.0)], 0)]), "not 9"),
    ] {
        let why = wrong(&body);
        assert!(why.contains(words), "{words}: {why}");
    }
    for (kind, words) in [
        ("application/vnd.google.protobuf; encoding=text", "encoding=delimited"),
        ("application/vnd.google.protobuf; proto=other", "proto=io.prometheus.client.MetricFamily"),
    ] {
        assert!(samples(kind, b"").unwrap_err().contains(words));
    }
    assert_eq!(samples(MESSAGES, b"").unwrap(), [""; 0]);
}

#[test]
fn whatever_comes_is_read_to_an_end_in_bounded_steps() {
    let both = [classic(), native(), vec![exemplar_of(16, "d", 1.0, Some((2, 7)))]].concat();
    let whole = [
        family("c", 0, &[metric(&[("a", "b")], 3, &[exemplar_of(2, "a", 0.5, None)], 5)]),
        family("h", 4, &[metric(&[], 7, &both, 5)]),
    ]
    .concat();
    let classic_too = ScrapedHistograms { classic_too: true, ..NATIVE };
    let is_read = |bytes: &[u8]| all(MESSAGES, bytes, classic_too).is_ok();
    assert!(is_read(&whole));
    let first = family("c", 0, &[metric(&[("a", "b")], 3, &[exemplar_of(2, "a", 0.5, None)], 5)]);
    for len in 0..whole.len() {
        let is_between = len == 0 || len == first.len();
        assert_eq!(is_read(&whole[..len]), is_between, "{len}");
        for bit in 0..8 {
            let mut other = whole.clone();
            other[len] ^= 1 << bit;
            let _ = is_read(&other);
        }
    }
    // So many fields that others would wait for them take many steps, and so do metrics of nothing.
    let fields = number(9, 0).repeat(100_000);
    let mut body = Vec::new();
    put_number(fields.len() as u64, &mut body);
    body.extend(fields);
    body.extend([0; 1000]);
    let mut read = ScrapedBody::of(MESSAGES, &body, NATIVE).unwrap();
    let mut most = 0;
    while !read.is_at_end() {
        let mut work = 0;
        assert_eq!(read.step(&mut work).unwrap(), None);
        most = most.max(work);
    }
    assert!((1..8192).contains(&most), "{most}");
}
