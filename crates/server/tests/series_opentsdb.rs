//! OpenTSDB's points and questions over HTTP: what senders are told of points that are refused,
//! what Grafana's data source asks, and what is answered. Of two hosts one has twice what the other
//! has, so each way to put series together has a value of its own.

mod common;

use common::taking::{Heard, Taking};
use plinth_env::{Env, block_on};
use plinth_series::{Metrics, Rollup, SeriesStore, Settings};
use plinth_server::SeriesConfig;
use serde_json::Value as Json;
use std::fmt::Write;
use std::time::Duration;

const START: i64 = 1_767_225_600;

/// Ten minutes of two hosts, a point every ten seconds: b has twice what a has.
fn start() -> Taking {
    let server = Taking::with(SeriesConfig::default());
    let mut points = String::new();
    for step in 0..60 {
        for (host, factor) in [("a", 1), ("b", 2)] {
            let (time, value) = (START + step * 10, step * factor);
            let _ = write!(
                points,
                r#",{{"metric": "cpu.user", "timestamp": {time}, "value": {value}, "tags": {{"host": "{host}", "dc": "x"}}}}"#
            );
        }
    }
    let heard = server.post("/api/put", "", format!("[{}]", &points[1..]).as_bytes());
    assert_eq!(heard.status, 204, "{}", heard.text());
    server
}

/// The points of each series that a query of the first so many seconds comes to, at times that are
/// counted from the beginning.
fn answered(server: &Taking, query: &str, seconds: i64) -> Vec<Vec<(i64, Json)>> {
    let end = START + seconds;
    let heard = server.get(&format!("/api/query?start={START}&end={end}&m={query}"));
    assert_eq!(heard.status, 200, "{}", heard.text());
    let json: Json = serde_json::from_slice(&heard.body).unwrap();
    let since =
        |(time, value): (&String, &Json)| (time.parse::<i64>().unwrap() - START, value.clone());
    let of = |one: &Json| one["dps"].as_object().unwrap().iter().map(since).collect();
    json.as_array().unwrap().iter().map(of).collect()
}

#[test]
fn queries_are_answered_step_by_step() {
    let server = start();
    let end = START + 119;
    let query = |more: &str| {
        format!(
            r#"{{"start": {START}, "end": "{end}", "queries": [{{"metric": "cpu.user", "downsample": "1m-avg", {more}}}]}}"#
        )
    };
    let grouped = r#""aggregator": "sum", "filters": [{"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true}]"#;
    let of = |tags: &str, first: f64, second: f64| {
        let next = START + 60;
        format!(
            r#"{{"aggregateTags":[],"dps":{{"{START}":{first:?},"{next}":{second:?}}},"metric":"cpu.user","tags":{tags}}}"#
        )
    };
    let (a, b) = (r#"{"dc":"x","host":"a"}"#, r#"{"dc":"x","host":"b"}"#);
    let both = format!("[{},{}]", of(a, 2.5, 8.5), of(b, 5.0, 17.0));
    assert_eq!(server.post("/api/query", "", query(grouped).as_bytes()).text(), both);
    let none = query(r#""aggregator": "none""#);
    assert_eq!(server.post("/api/query", "", none.as_bytes()).text(), both);
    let one = query(r#""aggregator": "sum", "tags": {"host": "b"}"#);
    assert_eq!(
        server.post("/api/query", "", one.as_bytes()).text(),
        format!("[{}]", of(b, 5.0, 17.0))
    );
    let all = query(r#""aggregator": "max""#);
    let expected = of(r#"{"dc":"x"}"#, 5.0, 17.0).replace("[]", r#"["host"]"#);
    assert_eq!(server.post("/api/query", "", all.as_bytes()).text(), format!("[{expected}]"));
    let rate = query(r#""aggregator": "sum", "rate": true, "tags": {"host": "a"}"#);
    let rate = server.post("/api/query", "", rate.as_bytes()).text();
    assert!(rate.contains(&format!(r#""dps":{{"{}":0.1}}"#, START + 60)), "{rate}");
    let address =
        format!("/api/query?start={START}&end={end}&ms&m=sum:1m-avg:cpu.user%7Bhost=a%7D");
    let fine = server.get(&address).text();
    assert!(fine.contains(&format!(r#""dps":{{"{START}000":2.5,"#)), "{fine}");
    // Akumuli's queries are answered at the same path.
    let akumuli = r#"{"select": "cpu.user", "where": {"host": "a"}, "range": {"from": 0, "to": "22000101T000000"}, "limit": 1}"#;
    assert!(
        server
            .post("/api/query", "", akumuli.as_bytes())
            .text()
            .starts_with("+cpu.user dc=x host=a\r\n")
    );
    // A `*` in a value stands for anything.
    let glob = server
        .get(&format!("/api/query?start={START}&end={end}&m=sum:1m-avg:cpu.user%7Bhost=*B*%7D"));
    assert!(glob.text().contains(r#""host":"b""#), "{}", glob.text());
    let glob = server.get("/api/query?start=5&m=sum:1m-avg:cpu.*");
    assert!(glob.status == 400 && glob.text().contains("named whole"), "{}", glob.text());
    for (body, words) in [
        (r#"{"queries": []}"#, "start is missing"),
        (r#"{"start": 5, "queries": []}"#, "1 to 20 queries"),
        (r#"{"start": 5, "queries": [{"metric": "m"}]}"#, "no aggregator"),
        (r#"{"start": 5, "queries": [{"metric": "m", "aggregator": "sun"}]}"#, "no such agg"),
    ] {
        let heard = server.post("/api/query", "", body.as_bytes());
        assert!(heard.status == 400 && heard.text().contains(words), "{body}: {}", heard.text());
    }
    assert_eq!(server.get("/api/query").status, 405);
}

/// Each was refused: Grafana's editor has a switch that leaves the downsample out.
#[test]
fn points_are_put_together_as_they_are_without_a_downsample() {
    let server = start();
    // Two of b's lie between points of a.
    let more = format!(
        r#"[{{"metric": "cpu.user", "timestamp": {}, "value": 4, "tags": {{"host": "b", "dc": "x"}}}},
            {{"metric": "cpu.user", "timestamp": {}500, "value": 8, "tags": {{"host": "b", "dc": "x"}}}}]"#,
        START + 15,
        START + 25
    );
    assert_eq!(server.post("/api/put", "", more.as_bytes()).status, 204);
    let dps = |query: &str| {
        let number = |(time, value): (i64, Json)| (time, value.as_f64().unwrap());
        let all = answered(&server, query, 30).into_iter();
        all.map(|one| one.into_iter().map(number).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let sum = [(0, 0.0), (10, 3.0), (15, 5.5), (20, 6.0), (25, 10.55), (30, 9.0)];
    assert_eq!(dps("sum:cpu.user"), [sum]);
    let points = [(0, 0.0), (10, 3.0), (15, 4.0), (20, 6.0), (25, 8.0), (30, 9.0)];
    assert_eq!(dps("zimsum:cpu.user"), [points]);
    let a = vec![(0, 0.0), (10, 1.0), (20, 2.0), (30, 3.0)];
    let b = vec![(0, 0.0), (10, 2.0), (15, 4.0), (20, 4.0), (25, 8.0), (30, 6.0)];
    for query in ["none:cpu.user", "sum:cpu.user%7Bhost=*%7D"] {
        assert_eq!(dps(query), [a.clone(), b.clone()], "{query}");
    }
    assert_eq!(dps("sum:rate:cpu.user%7Bhost=a%7D"), [[(10, 0.1), (20, 0.1), (30, 0.1)]]);
    // Of each series, which have points at times of their own: 0.4 from 10 to 15 s is b's.
    let both = [(10, 0.3), (15, 0.5), (20, 0.1), (25, 0.1 + 4.0 / 5.5), (30, 0.1 - 2.0 / 4.5)];
    let near = |(found, wanted): (&(i64, f64), &(i64, f64))| {
        found.0 == wanted.0 && (found.1 - wanted.1).abs() < 1e-9
    };
    let found = dps("sum:rate:cpu.user");
    assert!(found[0].len() == 5 && found[0].iter().zip(&both).all(near), "{found:?}");
    assert!(dps("sum:memory").is_empty());
}

/// Grafana's editor offers each of them, and they were refused; a series without a point in a step
/// was missing from its sum, and rates were taken of sums.
#[test]
fn steps_without_points_are_filled() {
    let server = Taking::with(SeriesConfig::default());
    // a has points in the minutes 0, 2 and 3, b in 0 and 1; it begins again in between.
    let points = [("a", 0, 10), ("a", 2, 30), ("a", 3, 40), ("b", 0, 100), ("b", 1, 40)];
    let points = points.map(|(host, minute, value)| {
        let time = START + 60 * minute;
        format!(
            r#"{{"metric": "m", "timestamp": {time}, "value": {value}, "tags": {{"host": "{host}"}}}}"#
        )
    });
    let body = format!("[{}]", points.join(","));
    assert_eq!(server.post("/api/put", "", body.as_bytes()).status, 204);
    let dps = |query: &str| {
        let minute = |(time, value): &(i64, Json)| format!("{}:{value}", time / 60);
        let all = answered(&server, query, 299).into_iter();
        all.map(|one| one.iter().map(minute).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    for (query, expected) in [
        ("sum:1m-sum:m", "0:110.0 1:60.0 2:30.0 3:40.0"),
        ("zimsum:1m-sum:m", "0:110.0 1:40.0 2:30.0 3:40.0"),
        ("avg:1m-sum-none:m", "0:55.0 1:30.0 2:30.0 3:40.0"),
        ("avg:1m-sum-null:m", "0:55.0 1:40.0 2:30.0 3:40.0"),
        ("avg:1m-sum-zero:m", "0:55.0 1:20.0 2:15.0 3:20.0"),
        ("min:1m-sum-zero:m", "0:10.0 1:0.0 2:0.0 3:0.0"),
        ("sum:1m-sum-nan:m%7Bhost=b%7D", r#"0:100.0 1:40.0 2:"NaN" 3:"NaN""#),
        ("sum:1m-sum-null:m%7Bhost=b%7D", "0:100.0 1:40.0 2:null 3:null"),
        ("sum:1m-sum-zero:m%7Bhost=b%7D", "0:100.0 1:40.0 2:0.0 3:0.0"),
        ("none:1m-sum-null:m%7B%7D%7Bhost=a%7D", "0:10.0 1:null 2:30.0 3:40.0"),
        (
            "sum:1m-sum-zero:rate:m%7Bhost=a%7D",
            "0:0.0 1:0.0 2:0.16666666666666666 3:0.16666666666666666",
        ),
        // b's fall isn't one of the sum.
        ("zimsum:1m-sum:rate%7Bcounter%7D:m", "2:0.16666666666666666 3:0.16666666666666666"),
        ("sum:0all-sum:m", "0:220.0"),
        ("sum:0all-max-null:m%7Bhost=b%7D", "0:100.0"),
    ] {
        assert_eq!(dps(query), [expected], "{query}");
    }
    let none: [&str; 0] = [];
    assert_eq!(dps("sum:1m-sum-zero:m%7Bhost=c%7D"), none);
    let heard = server.get("/api/query?start=1&m=sum:1m-avg-five:m");
    assert!(heard.status == 400 && heard.text().contains("null or zero"), "{}", heard.text());
}

#[test]
fn names_are_suggested() {
    let server = start();
    for (address, expected) in [
        ("/api/suggest?type=metrics&q=cpu&max=10", r#"["cpu.user"]"#),
        ("/api/suggest?type=metrics&q=x", "[]"),
        ("/api/suggest?type=tagk", r#"["dc","host"]"#),
        ("/api/suggest?type=tagv&max=2", r#"["a","b"]"#),
    ] {
        assert_eq!(server.get(address).text(), expected, "{address}");
    }
    let heard = server.post("/api/suggest", "", br#"{"type": "tagv", "q": "x"}"#);
    assert_eq!(heard.text(), r#"["x"]"#);
    assert_eq!(server.get("/api/suggest?type=what").status, 400);
    assert!(server.get("/api/aggregators").text().contains(r#""sum""#));
    assert!(server.get("/api/config/filters").text().contains(r#""wildcard":{}"#));
    let akumuli = server.post("/api/suggest", "", br#"{"select": "metric-names"}"#);
    assert_eq!(akumuli.text(), "+cpu.user\r\n");
}

#[test]
fn series_are_looked_up_by_metric_and_tags() {
    let server = start();
    let lines = "error_rate,host=a v=1\nnote,host=a text=\"x\"\ny,zone=a v=1\n";
    assert_eq!(server.post("/write", "", lines.as_bytes()).status, 204);
    let found = |answer: &str| {
        let json: serde_json::Value = serde_json::from_str(answer).unwrap();
        let of = |one: &serde_json::Value| {
            format!("{} {}", one["metric"].as_str().unwrap(), one["tags"])
        };
        let all: Vec<String> = json["results"].as_array().unwrap().iter().map(of).collect();
        (json["totalResults"].as_u64().unwrap(), all)
    };
    let (a, b) = (r#"cpu.user {"dc":"x","host":"a"}"#, r#"cpu.user {"dc":"x","host":"b"}"#);
    let (rate, zone) = (r#"error_rate.v {"host":"a"}"#, r#"y.v {"zone":"a"}"#);
    for (asked, expected) in [
        ("m=cpu.user", &[a, b][..]),
        ("m=cpu.user%7Bhost=*%7D&limit=1000", &[a, b]),
        ("m=cpu.user%7Bhost=*,dc=x%7D", &[a, b]),
        ("m=cpu.user%7Bhost=b%7D", &[b]),
        ("m=error_rate.v%7Bhost=*%7D", &[rate]),
        ("m=%7Bhost=a%7D", &[a, rate]),
        ("m=*%7B*=a%7D", &[a, rate, zone]),
        ("m=cpu.user%7Bhost=c%7D", &[]),
        ("m=cpu", &[]),
    ] {
        let heard = server.get(&format!("/api/search/lookup?{asked}"));
        let expected =
            (expected.len() as u64, expected.iter().map(|one| one.to_string()).collect());
        assert_eq!(found(&heard.text()), expected, "{asked}");
    }
    let heard = server.get("/api/search/lookup?m=cpu.user&limit=1&start_index=1");
    assert_eq!(found(&heard.text()), (2, vec![b.to_owned()]));
    let body = br#"{"metric": "cpu.user", "tags": [{"key": "host", "value": "*"}], "limit": 1}"#;
    let heard = server.post("/api/search/lookup", "", body);
    assert_eq!(found(&heard.text()), (2, vec![a.to_owned()]));
    for (wrong, why) in [
        ("", "a lookup names a metric"),
        ("m=*", "a lookup names a metric"),
        ("m=cpu%7Bhost%7D", "is no KEY=VALUE"),
        ("m=cpu&limit=x", "limit=x is no number"),
    ] {
        let heard = server.get(&format!("/api/search/lookup?{wrong}&x="));
        assert!(heard.status == 400 && heard.text().contains(why), "{wrong}: {}", heard.text());
    }
    let heard = server.post("/api/search/lookup", "", br#"{"tags": 7}"#);
    assert!(heard.status == 400 && heard.text().contains("tags is a list"), "{}", heard.text());
}

/// One bad point refused all points of its request.
#[test]
fn a_point_that_is_refused_keeps_none_of_the_others_back() {
    let mut config = SeriesConfig::default();
    config.limits.series = 1;
    let server = Taking::with(config);
    let of = |time: i64, value: &str| {
        format!(r#"{{"metric": "m", "timestamp": {time}, "value": {value}, "tags": {{"a": "b"}}}}"#)
    };
    let both = |time: i64| format!("[{}, {}]", of(time, "1"), of(time + 1, "{}"));
    let heard = server.post("/api/put", "", both(5).as_bytes());
    let why = "1 of 2 points were refused (value is a number), the others are stored: ?details says which";
    let error = format!(r#"{{"error":{{"code":400,"message":"{why}"}}}}"#);
    assert_eq!((heard.status, heard.text()), (400, error));
    let heard = server.post("/api/put?summary", "", both(15).as_bytes());
    assert_eq!((heard.status, heard.text().as_str()), (400, r#"{"failed":1,"success":1}"#));
    let heard = server.post("/api/put?summary&details", "", both(25).as_bytes());
    let errors = r#"[{"datapoint":{"metric":"m","tags":{"a":"b"},"timestamp":26},"error":"value is a number"}]"#;
    let details = format!(r#"{{"errors":{errors},"failed":1,"success":1}}"#);
    assert_eq!((heard.status, heard.text()), (400, details));
    // Of a series that there may not be.
    let other = format!("[{}, {}]", of(35, "2").replace("\"m\"", "\"n\""), of(36, "2"));
    let heard = server.post("/api/put?details", "", other.as_bytes());
    let text = heard.text();
    assert!(heard.status == 400 && text.contains(r#""failed":1,"success":1"#), "{text}");
    assert!(text.contains("n a=b"), "{text}");
    let heard = server.post("/api/put?details", "", of(45, "3").as_bytes());
    let all = r#"{"errors":[],"failed":0,"success":1}"#;
    assert_eq!((heard.status, heard.text().as_str()), (200, all));
    // More than is read at once, and what is no JSON.
    let many: Vec<String> = (100..2100).map(|time| of(time, "4")).collect();
    let many = format!("[{}]", many.join(","));
    assert_eq!(server.post("/api/put", "", many.as_bytes()).status, 204);
    let heard = server.post("/api/put?details", "", &many.as_bytes()[1..]);
    assert!(heard.status == 400 && heard.text().contains("no points"), "{}", heard.text());
    let times: Vec<i64> = server.end(&["m a=b"])[0].iter().map(|point| point.time).collect();
    let expected = [5, 15, 25, 36, 45].into_iter().chain(100..2100);
    assert!(times.into_iter().eq(expected.map(|time| time * 1_000_000_000)));
}

/// Names were suggested as they are written in names of series, and events among metrics.
#[test]
fn names_are_suggested_as_they_are_meant_and_once() {
    let server = Taking::with(SeriesConfig::default());
    let lines: String = (0..30).map(|n| format!("note,n={n} text=\"x\"\n")).collect();
    let lines = lines + "a\\ b,host=x\\ y v=1\na\\ b,host=z v=1\na\\ b,host=z w=1\n";
    assert_eq!(server.post("/write", "", lines.as_bytes()).status, 204);
    for (address, expected) in [
        ("/api/suggest?type=metrics", r#"["a b.v","a b.w"]"#),
        ("/api/suggest?type=metrics&max=1", r#"["a b.v"]"#),
        ("/api/suggest?type=metrics&max=2", r#"["a b.v","a b.w"]"#),
        ("/api/suggest?type=metrics&q=a%20b.", r#"["a b.v","a b.w"]"#),
        ("/api/suggest?type=metrics&q=!", "[]"),
        ("/api/suggest?type=tagk", r#"["host"]"#),
        ("/api/suggest?type=tagv", r#"["x y","z"]"#),
    ] {
        assert_eq!(server.get(address).text(), expected, "{address}");
    }
    let heard = server.get("/api/suggest?type=metrics&max=many");
    assert!(heard.status == 400 && heard.text().contains("no number above 0"), "{}", heard.text());
}

/// An answer without a row was all that there was, and nothing said that there had been points.
#[test]
fn a_header_says_that_points_have_gone_that_no_rollup_has() {
    const OLD: i64 = 1_600_000_200;
    const WARNING: &str = "x-plinth-warning: points have gone, of which there are only rollups";
    let server = Taking::with(SeriesConfig::default());
    let points: String = (0..9000).map(|n| format!("old v={n} {}\n", OLD + n)).collect();
    assert_eq!(server.post("/write?precision=s", "", points.as_bytes()).status, 204);
    let (end, range) = (OLD + 7200, format!(r#""from": "{OLD}s", "to": "{}s""#, OLD + 7200));
    let select = format!(r#"{{"select": "old.v", "range": {{{range}}}}}"#);
    let group = |step: &str| {
        format!(
            r#"{{"group-aggregate": {{"metric": "old.v", "step": "{step}", "func": "max"}}, "range": {{{range}}}}}"#
        )
    };
    let akumuli = |query: &str| server.post("/api/query", "", query.as_bytes());
    let opentsdb = |of: &str| server.get(&format!("/api/query?start={OLD}&end={end}&m={of}:old.v"));
    let is_warned = |heard: &Heard| {
        assert_eq!(heard.status, 200, "{}", heard.text());
        heard.head.contains(WARNING)
    };
    assert!(!is_warned(&akumuli(&select)) && !is_warned(&opentsdb("sum:1m-dev")));
    let metrics = Metrics::parse("old.*").unwrap();
    let raw = Some(Duration::from_mins(10));
    let rule = Rollup { raw, ..Rollup::new(metrics, Duration::from_mins(5)) };
    let (db, settings) = (common::database(&server.server), Settings::default());
    let change = SeriesStore::change_keeping(&db, &settings, |keeping| keeping.add(rule.clone()));
    block_on(change).unwrap();
    let env = Env::real();
    let until = env.now() + Duration::from_secs(120);
    while !is_warned(&akumuli(&select)) {
        assert!(env.now() < until, "the points are still there");
        block_on(env.sleep(Duration::from_millis(100)));
    }
    assert!(is_warned(&akumuli(&group("7s"))) && is_warned(&opentsdb("sum:1m-dev")));
    assert!(is_warned(&opentsdb("sum:1m-avg")), "shorter than the buckets");
    let there = [akumuli(&group("5m")), opentsdb("sum:5m-max")];
    for heard in there {
        assert!(!is_warned(&heard) && heard.text().contains("299"), "{}", heard.text());
        let info = "x-plinth-info: answered from rollups of 5m\r\n";
        assert!(heard.head.contains(info), "{}", heard.head);
    }
    assert!(!akumuli(&select).head.contains("x-plinth-info"));
}

/// What Grafana's source asks of versions 2.3 and 2.4, and its switch for series that have no other
/// tags than those that a query names.
#[test]
fn queries_are_told_with_their_series_and_others_tags_left_out() {
    let server = start();
    let more = format!(
        r#"[{{"metric": "cpu.user", "timestamp": {START}, "value": 100, "tags": {{"host": "a"}}}}]"#
    );
    assert_eq!(server.post("/api/put", "", more.as_bytes()).status, 204);
    let ask = |address: &str, more: &str, query: &str| {
        let body = format!(
            r#"{{"start": {START}, "end": {}{more}, "queries": [
                {{"metric": "none", "aggregator": "sum"}},
                {{"metric": "cpu.user", "aggregator": "sum"{query}}}]}}"#,
            START + 10
        );
        let heard = server.post(address, "", body.as_bytes());
        (heard.status, serde_json::from_slice::<Json>(&heard.body).unwrap())
    };
    let (_, told) = ask("/api/query", r#", "showQuery": true"#, "");
    assert_eq!(told[0]["query"]["index"], 1);
    assert_eq!(told[0]["query"]["metric"], "cpu.user");
    let (_, told) = ask("/api/query?arrays=true", "", "");
    assert_eq!(told[0]["dps"], serde_json::json!([[START, 100.0], [START + 10, 3.0]]));
    assert_eq!(told[0].get("query"), None);
    let first = |told: &Json| told[0]["dps"][START.to_string()].as_f64();
    for downsample in ["", r#", "downsample": "1m-first""#] {
        let filters = r#", "filters": [{"type": "wildcard", "tagk": "host", "filter": "*"}]"#;
        let of = |more: &str| ask("/api/query", "", &format!("{downsample}{filters}{more}")).1;
        assert_eq!(first(&of("")), Some(100.0), "{downsample}");
        assert_eq!(first(&of(r#", "explicitTags": true"#)), Some(100.0), "{downsample}");
        let both = r#", "tags": {"dc": "x"}, "explicitTags": true"#;
        assert_eq!(first(&of(both)), Some(0.0), "{downsample}");
    }
    let explicit = answered(&server, "sum:explicit_tags:cpu.user%7Bhost=*%7D", 10);
    assert_eq!(explicit, [[(0, Json::from(100.0))]]);
    let falls = format!(
        r#"[{{"metric": "c", "timestamp": {START}, "value": 7}},
            {{"metric": "c", "timestamp": {}, "value": 57}},
            {{"metric": "c", "timestamp": {}, "value": 7}}]"#,
        START + 10,
        START + 20
    );
    assert_eq!(server.post("/api/put", "", falls.as_bytes()).status, 204);
    for (options, expected) in [
        ("counter", vec![(10, 5.0)]),
        ("counter,60", vec![(10, 5.0), (20, 1.0)]),
        // What rises is never too fast.
        ("counter,,2", vec![(10, 5.0), (20, 0.0)]),
        ("counter,60,2", vec![(10, 5.0), (20, 1.0)]),
        ("counter,600,2", vec![(10, 5.0), (20, 0.0)]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|(at, v)| (at, Json::from(v))).collect();
        let rated = answered(&server, &format!("sum:rate%7B{options}%7D:c"), 20);
        assert_eq!(rated, [expected], "{options}");
    }
    for (more, query, words) in [
        (r#", "delete": true"#, "", "delete"),
        (r#", "useCalendar": true"#, "", "useCalendar"),
        ("", r#", "downsample": "1m-what""#, "there are avg, count"),
    ] {
        let (status, told) = ask("/api/query", more, query);
        let why = told["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && why.contains(words), "{told}");
    }
}
