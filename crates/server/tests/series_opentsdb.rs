//! OpenTSDB's questions over HTTP: what Grafana's data source asks, and what is answered.

mod common;

use common::taking::Taking;
use plinth_server::SeriesConfig;
use std::fmt::Write;

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
    for (body, words) in [
        (r#"{"queries": []}"#, "start is missing"),
        (r#"{"start": 5, "queries": []}"#, "1 to 20 queries"),
        (r#"{"start": 5, "queries": [{"metric": "m"}]}"#, "no aggregator"),
        (r#"{"start": 5, "queries": [{"metric": "m", "aggregator": "sum"}]}"#, "a downsample"),
    ] {
        let heard = server.post("/api/query", "", body.as_bytes());
        assert!(heard.status == 400 && heard.text().contains(words), "{body}: {}", heard.text());
    }
    assert_eq!(server.get("/api/query").status, 405);
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
