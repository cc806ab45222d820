//! Requests of OpenTelemetry: what each kind of point becomes, and that what is wrong with one
//! costs nothing else. They are written in JSON here, and taken as the messages that those mean;
//! what SDKs send is in `tests/sources`.

use super::super::intake::SAMPLES;
use super::super::protobuf::{put_bytes, put_number};
use super::super::{Clock, Memory, Protocol, Session};
use super::*;

fn session() -> Session {
    Session::new(Protocol::Influx(Clock { unit: 1, now: 5 }), 1, &Memory::default())
}

/// What a message becomes: its points, what is told, how many points it had, how many were refused.
fn taken(message: &mut OtlpMetrics<'_>) -> (Vec<String>, String, u64, u64) {
    let mut session = session();
    let mut points = Vec::new();
    loop {
        let is_done = session.take_otlp(message);
        let shown = session
            .points()
            .map(|(name, point)| format!("{name} {} {:?}", point.time, point.value));
        points.extend(shown);
        session.discard();
        if is_done {
            break;
        }
    }
    let told = String::from_utf8_lossy(session.replies()).into_owned();
    assert_eq!(session.refused(), message.told());
    (points, told, message.points(), message.rejected())
}

fn read(text: &str) -> Result<OtlpMetrics<'static>, NoRequest> {
    OtlpMetrics::of_json(text.as_bytes(), &mut |_| true)
}

fn of_json(text: &str) -> (Vec<String>, String, u64, u64) {
    taken(&mut read(text).unwrap())
}

/// A request with metrics of one resource.
fn request(resource: &str, metrics: &str) -> String {
    format!(
        r#"{{"resourceMetrics": [{{"scopeMetrics": [{{"scope": {{"name": "x"}}, "metrics": [{metrics}]}}],
            "resource": {{"attributes": [{resource}]}}}}]}}"#
    )
}

fn text(key: &str, value: &str) -> String {
    format!(r#"{{"key": "{key}", "value": {{"stringValue": "{value}"}}}}"#)
}

fn gauge(name: &str, points: &str) -> String {
    format!(r#"{{"name": "{name}", "gauge": {{"dataPoints": [{points}]}}}}"#)
}

#[test]
fn each_kind_of_point() {
    let resource = [
        text("service.name", "shop"),
        text("service.namespace", "eu"),
        text("service.instance.id", "a 1"),
        text("host.name", "h"),
    ];
    let metrics = [
        r#"{"name": "cpu.time", "unit": "s", "description": "d", "sum": {"aggregationTemporality": 2,
            "isMonotonic": true, "dataPoints": [
            {"timeUnixNano": "7", "startTimeUnixNano": "1", "asInt": "9007199254740993", "attributes": [
                {"key": "state", "value": {"stringValue": "user"}},
                {"key": "cpu.no", "value": {"intValue": "3"}}], "exemplars": [{"asDouble": 1}]},
            {"timeUnixNano": 8, "asDouble": 0.5},
            {"timeUnixNano": 9, "flags": 1}]}}"#,
        r#"{"name": "used", "unit": "1", "gauge": {"dataPoints": [{"timeUnixNano": 5, "asDouble": "NaN"}]}}"#,
        r#"{"name": "took", "unit": "ms", "histogram": {"aggregationTemporality": 2, "dataPoints": [
            {"timeUnixNano": 5, "count": "6", "sum": 2.5, "bucketCounts": ["1", "2", "3"], "explicitBounds": [0.5, 10]}]}}"#,
        r#"{"name": "old", "summary": {"dataPoints": [
            {"timeUnixNano": 5, "count": 2, "sum": 3, "quantileValues": [{"quantile": 0.5, "value": 1}]}]}}"#,
    ];
    let (points, told, count, rejected) =
        of_json(&request(&resource.join(","), &metrics.join(",")));
    let of = "instance=a\\ 1 job=eu/shop";
    let scope = "otel_scope_name=x";
    assert_eq!(
        points,
        [
            format!(
                "cpu_time_seconds_total cpu_no=3 {of} {scope} state=user 7 Integer(9007199254740993)"
            ),
            format!("cpu_time_seconds_total {of} {scope} 8 Float(0.5)"),
            format!("cpu_time_seconds_total {of} {scope} 9 Float(NaN)"),
            format!("used_ratio {of} {scope} 5 Float(NaN)"),
            format!("took_milliseconds_sum {of} {scope} 5 Float(2.5)"),
            format!("took_milliseconds_count {of} {scope} 5 Integer(6)"),
            format!("took_milliseconds_bucket {of} le=0.5 {scope} 5 Integer(1)"),
            format!("took_milliseconds_bucket {of} le=10 {scope} 5 Integer(3)"),
            format!("took_milliseconds_bucket {of} le=+Inf {scope} 5 Integer(6)"),
            format!("old_sum {of} {scope} 5 Float(3.0)"),
            format!("old_count {of} {scope} 5 Integer(2)"),
            format!("old {of} {scope} quantile=0.5 5 Float(1.0)"),
            format!("target_info host_name=h {of} 9 Integer(1)"),
        ]
    );
    assert_eq!((told.as_str(), count, rejected), ("", 6, 0));
}

/// The marks of ends are Prometheus' own bits.
#[test]
fn a_point_without_a_recorded_value_ends_its_series() {
    let text = request("", &gauge("m", r#"{"timeUnixNano": 9, "flags": 1, "asDouble": 3}"#));
    let mut message = read(&text).unwrap();
    let mut session = session();
    assert!(session.take_otlp(&mut message));
    let values: Vec<_> =
        session.points().map(|(_, point)| point.value.as_f64().to_bits()).collect();
    assert_eq!(values, [plinth_promql::STALE]);
}

/// The same request in bytes that were written down by hand.
#[test]
fn protocol_buffers_are_read_by_their_numbers() {
    let message = |field: u32, parts: &[&[u8]]| {
        let mut out = Vec::new();
        put_bytes(field, &parts.concat(), &mut out);
        out
    };
    let key_value = |field: u32, key: &[u8], value: &[u8]| {
        message(field, &[&message(1, &[key]), &message(2, &[&message(1, &[value])])])
    };
    let mut time = vec![3 << 3 | 1];
    time.extend_from_slice(&7_u64.to_le_bytes());
    let mut value = vec![6 << 3 | 1];
    value.extend_from_slice(&(-2_i64).to_le_bytes());
    let mut temporality = vec![2 << 3];
    put_number(2, &mut temporality);
    let unknown = message(15, &[b"whatever"]);
    let point = message(1, &[&key_value(7, b"a", b"b"), &value, &unknown, &time]);
    let metric = message(2, &[&message(1, &[b"m"]), &message(7, &[&point, &temporality])]);
    let resource = message(1, &[&key_value(1, b"service.name", b"s")]);
    let request = message(1, &[&message(2, &[&metric]), &resource]);
    let (points, told, ..) = taken(&mut OtlpMetrics::of(&request[..]));
    assert_eq!((points, told.as_str()), (vec!["m a=b job=s 7 Integer(-2)".to_owned()], ""));
    // Cut off anywhere, and damaged anywhere: an error or less points, never a panic.
    for cut in 0..request.len() {
        let mut short = OtlpMetrics::of(&request[..cut]);
        taken(&mut short);
        assert_eq!(short.broken().is_some(), cut > 0, "{cut}");
        for bit in 0..8 {
            let mut damaged = request.clone();
            damaged[cut] ^= 1 << bit;
            taken(&mut OtlpMetrics::of(damaged));
        }
    }
}

#[test]
fn what_is_wrong_with_a_point_is_told_and_the_others_are_taken() {
    let good = r#"{"timeUnixNano": 5, "asInt": 1}"#;
    let many: Vec<String> = (0..200).map(|n| text(&format!("k{n}"), "v")).collect();
    let with = |attributes: &str| {
        format!(r#"{{"timeUnixNano": 5, "asInt": 1, "attributes": [{attributes}]}}"#)
    };
    let buckets = vec!["1"; 1500].join(",");
    for (wrong, words) in [
        (gauge("m", r#"{"asInt": 1}"#), "it has no time (m)"),
        (gauge("m", r#"{"timeUnixNano": 5}"#), "it has no value (m)"),
        (gauge("m", r#"{"timeUnixNano": "18446744073709551615", "asInt": 1}"#), "beyond 2262"),
        (gauge("..", good), "nothing is left of the name"),
        (gauge(&"n".repeat(5000), good), "a name of more than 4096 bytes"),
        (gauge("!e", good), ""),
        (gauge("m", &with(&many.join(","))), "more than 128 attributes (m)"),
        (
            gauge("m", &with(&text("a", &"x".repeat(20_000)))),
            "attributes of more than 16384 bytes (m)",
        ),
        (
            gauge("m", &with(&text("a", &"x".repeat(9000)))),
            "attributes of more than 8192 bytes (m)",
        ),
        (
            format!(r#"{{"name": "m", "sum": {{"dataPoints": [{good}]}}}}"#),
            "the temporality is neither of the two: m",
        ),
        (
            r#"{"name": "m", "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": [
                {"timeUnixNano": 5, "scale": -5}]}}"#
                .to_owned(),
            "its scale is -5, and -4 is the least (m)",
        ),
        (
            format!(
                r#"{{"name": "m", "histogram": {{"aggregationTemporality": 2, "dataPoints": [
                    {{"timeUnixNano": 5, "count": 1500, "bucketCounts": [{buckets}], "explicitBounds": [{buckets}]}}]}}}}"#
            ),
            "more than 1000 buckets (m)",
        ),
    ] {
        let metrics = [wrong, gauge("good", good)].join(",");
        let (points, told, count, rejected) = of_json(&request("", &metrics));
        let is_wrong = !words.is_empty();
        assert!(told.contains(words) && is_wrong == (told.lines().count() == 1), "{words}: {told}");
        assert_eq!((count, rejected), (2, u64::from(is_wrong)), "{words}");
        assert_eq!(
            points.last().map(String::as_str),
            Some("good otel_scope_name=x 5 Integer(1)"),
            "{words}"
        );
    }
}

/// Bytes in fields in fields, the innermost number first.
fn nested(fields: &[u32], mut bytes: Vec<u8>) -> Vec<u8> {
    for field in fields {
        let inner = std::mem::take(&mut bytes);
        put_bytes(*field, &inner, &mut bytes);
    }
    bytes
}

/// Metrics of a resource: a point of the gauge `m`.
fn metrics(point: Vec<u8>) -> Vec<u8> {
    let mut metric = nested(&[1, 5], point);
    put_bytes(1, b"m", &mut metric);
    nested(&[2, 2], metric)
}

/// Of a million attributes the first are looked at, on a point and on a resource, whose points are
/// all counted as refused.
#[test]
fn a_million_attributes_are_refused_early() {
    let attributes = |field: u32, count| nested(&[field], b"\x0a\x01a".to_vec()).repeat(count);
    let refused = |metrics: Vec<u8>| {
        let (points, told, count, rejected) = taken(&mut OtlpMetrics::of(nested(&[1], metrics)));
        assert_eq!((points, count, rejected), (Vec::new(), 1, 1));
        told
    };
    let time = [&[3 << 3 | 1][..], &5_u64.to_le_bytes(), &[6 << 3 | 1], &5_u64.to_le_bytes()];
    for (count, why) in [
        (150_000, "more than 128 attributes (m)\n"),
        (1_000_000, "a point has more than 1048576 bytes (m)\n"),
    ] {
        let mut point = attributes(7, count);
        point.extend_from_slice(&time.concat());
        assert_eq!(refused(metrics(point)), why);
    }
    let mut of_resource = metrics(time.concat());
    put_bytes(1, &attributes(1, 1_000_000), &mut of_resource);
    assert_eq!(refused(of_resource), "a resource has more than 128 attributes\n");
}

#[test]
fn a_long_request_is_taken_in_pieces() {
    let points: Vec<String> = (1..=40_000)
        .map(|time| format!(r#"{{"timeUnixNano": {time}, "asInt": {time}}}"#))
        .collect();
    let text = request("", &gauge("m", &points.join(",")));
    let mut message = read(&text).unwrap();
    let mut session = session();
    let mut pieces = Vec::new();
    loop {
        let is_done = session.take_otlp(&mut message);
        assert!(session.points().count() <= SAMPLES);
        pieces.push(session.points().map(|(_, point)| point.time).sum::<i64>());
        session.discard();
        if is_done {
            break;
        }
    }
    assert!(pieces.len() >= 3 && pieces.iter().sum::<i64>() == 40_000 * 40_001 / 2, "{pieces:?}");
}

#[test]
fn what_is_no_request_in_json_is_refused_with_the_reason() {
    let deep = r#"{"resourceMetrics": [{"resource": {"attributes": [{"value": "#;
    let nested = r#"{"arrayValue": {"values": ["#;
    for (text, words) in [
        ("", "EOF"),
        ("[]", "an object"),
        ("{} x", "trailing"),
        (r#"{"resourceMetrics": {}}"#, "a list as `resourceMetrics`"),
        (r#"{"resourceMetrics": [7]}"#, "an object"),
        (r#"{"resourceMetrics": [{"resource": []}]}"#, "an object"),
        (&request("", r#"{"name": 5}"#), "`name` has a value of another type"),
        (&request("", &gauge("m", r#"{"timeUnixNano": "x"}"#)), "`timeUnixNano` has"),
        (
            &request("", &gauge("m", r#"{"timeUnixNano": 36893488147419103232}"#)),
            "`timeUnixNano` has",
        ),
        (&request("", &gauge("m", r#"{"asDouble": true}"#)), "`asDouble` has"),
        (&"[".repeat(1 << 19), "an object"),
        (&format!("{deep}{}", nested.repeat(1 << 12)), "recursion limit"),
    ] {
        let Err(NoRequest::Wrong(why)) = read(text) else { panic!("{:.80}", text) };
        assert!(why.contains(words), "{:.80}: {why}", text);
    }
    let (points, told, ..) = of_json(r#"{"resourceMetrics": null, "more": {"than": ["that"]}}"#);
    assert!(points.is_empty() && told.is_empty());
}

/// Two meters that had a counter of one name were one series, of which one counted.
#[test]
fn metrics_of_two_scopes_are_two_series() {
    let scope = |scope: &str, value: u32| {
        format!(
            r#"{{"scope": {scope}, "schemaUrl": "u/1", "metrics": [{{"name": "m", "sum": {{
                "aggregationTemporality": 1, "isMonotonic": true,
                "dataPoints": [{{"timeUnixNano": 5, "asInt": {value}}}]}}}}]}}"#
        )
    };
    let with = format!(
        r#"{{"name": "a b", "version": "2", "attributes": [{}, {}]}}"#,
        [text("k.l", "v"), text("name", "not it")].join(","),
        text("empty", "")
    );
    let scopes = [scope(&with, 1), scope(r#"{"name": "b"}"#, 2), scope("null", 3)].join(",");
    let (points, told, ..) =
        of_json(&format!(r#"{{"resourceMetrics": [{{"scopeMetrics": [{scopes}]}}]}}"#));
    let schema = "otel_scope_schema_url=u/1";
    assert_eq!(
        points,
        [
            format!(
                "m_total otel_scope_k_l=v otel_scope_name=a\\ b {schema} otel_scope_version=2 5 Integer(1)"
            ),
            format!("m_total otel_scope_name=b {schema} 5 Integer(2)"),
            format!("m_total {schema} 5 Integer(3)"),
        ]
    );
    assert_eq!(told, "");
    let many: Vec<String> = (0..200).map(|n| text(&format!("k{n}"), "v")).collect();
    let many = scope(&format!(r#"{{"attributes": [{}]}}"#, many.join(",")), 1);
    let (points, told, count, rejected) =
        of_json(&format!(r#"{{"resourceMetrics": [{{"scopeMetrics": [{many}]}}]}}"#));
    assert_eq!((points.len(), count, rejected), (0, 1, 1));
    assert_eq!(told, "a scope has more than 128 attributes\n");
}

/// How often others have their turn while a message is taken, and the most that it had in hand.
fn turns(message: &mut OtlpMetrics<'_>) -> (usize, usize) {
    let (mut session, mut turns, mut most) = (session(), 1, 0);
    while !session.take_otlp(message) {
        turns += 1;
        most = most.max(session.in_hand());
        if session.wants_save() {
            session.discard();
        }
    }
    (turns, most)
}

/// Of points that were refused sixteen thousand were read at once, whatever was in them; and heads
/// of any number of fields.
#[test]
fn a_turn_is_bounded_by_bytes() {
    let attributes = nested(&[7], vec![b'x'; 20_000]);
    let points = nested(&[1], attributes).repeat(500);
    let mut metric = nested(&[5], points);
    put_bytes(1, b"m", &mut metric);
    let message = nested(&[2, 2, 1], metric);
    let most = |len: usize| len / TURN * 2 + 2;
    let mut bodies = vec![message];
    // Fields in the message of a resource, of a scope, of a metric, and of what it measured.
    for fields in [&[1][..], &[1, 2], &[1, 2, 2], &[1, 2, 2, 5]] {
        bodies.push(nested(
            &fields.iter().rev().copied().collect::<Vec<_>>(),
            b"\x7a\0".repeat(1 << 20),
        ));
    }
    for body in bodies {
        let len = body.len();
        let (turns, _) = turns(&mut OtlpMetrics::of(body));
        assert!(turns > len / TURN / 2, "{turns} turns for {len} bytes");
        assert!(turns < 40 * most(len), "{turns} turns for {len} bytes");
    }
}

/// What series are called took hundreds of megabytes before anybody counted it: each bucket of a
/// histogram is looked up by all of its attributes, also by those that don't become labels.
#[test]
fn names_that_nobody_has_counted_are_bounded() {
    let empty: Vec<String> =
        (0..100).map(|n| text(&format!("k{n:03}{}", "x".repeat(60)), "")).collect();
    let buckets = vec!["1"; 999].join(",");
    let bounds: Vec<String> = (0..999).map(|bound| bound.to_string()).collect();
    let point = |time: usize| {
        format!(
            r#"{{"timeUnixNano": 5, "count": 9, "bucketCounts": [{buckets}], "explicitBounds": [{}],
                "attributes": [{}, {}]}}"#,
            bounds.join(","),
            empty.join(","),
            text("n", &time.to_string())
        )
    };
    let points: Vec<String> = (0..15).map(point).collect();
    let metric = format!(
        r#"{{"name": "m", "histogram": {{"aggregationTemporality": 2, "dataPoints": [{}]}}}}"#,
        points.join(",")
    );
    let mut message = read(&request("", &metric)).unwrap();
    let (turns, most) = turns(&mut message);
    assert_eq!((message.points(), message.rejected()), (15, 0));
    assert!(turns >= 15 && most < 20 << 20, "{turns} turns, {most} bytes");
}

/// `0,` is nine bytes of a message, and twice the text was what was charged.
#[test]
fn what_json_becomes_is_charged_before_it_is_there() {
    let zeros = vec!["0"; 200_000].join(",");
    let metric = format!(
        r#"{{"name": "m", "histogram": {{"dataPoints": [{{"bucketCounts": [{zeros}]}}]}}}}"#
    );
    let body = request("", &metric);
    let mut charged = 0;
    let mut charge = |more| {
        charged += more;
        true
    };
    let bytes = OtlpMetrics::of_json(body.as_bytes(), &mut charge).unwrap().bytes();
    assert!(bytes > 4 * body.len() && (bytes..2 * bytes).contains(&charged), "{charged}");
    let mut left = charged / 2;
    let mut charge = |more| {
        let has_room = left >= more;
        left = left.saturating_sub(more);
        has_room
    };
    let refused = OtlpMetrics::of_json(body.as_bytes(), &mut charge);
    assert_eq!(refused.err(), Some(NoRequest::NoRoom));
}
