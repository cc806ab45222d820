//! Graphite's lines over a socket, and OpenTSDB's points over HTTP: what is taken, and what a
//! sender hears of the rest.

mod common;

use common::taking::Taking;
use common::{Raw, loopback};
use plinth_series::Point;
use plinth_server::SeriesConfig;

fn point(seconds: i64, value: f64) -> Point {
    Point { time: seconds * 1_000_000_000, value: value.into() }
}

#[test]
fn graphites_lines_are_taken_without_a_word() {
    let server =
        Taking::with(SeriesConfig { graphite: Some(loopback()), ..SeriesConfig::default() });
    let mut raw = Raw::to(server.at.graphite.unwrap());
    // More that is wrong than there is room to say so: nobody would hear it.
    raw.send_along("nonsense\n".repeat(100_000).as_bytes());
    raw.send_along(
        b"servers.a.load 0.5 5\nservers.a.load 0.75\t6.25\r\ndisk.used;host=a;mount=/ 7 5\n\
        servers.a.load x 7\nservers.a.load 1 -1\nservers.a.load 1 2 3\n!e 1 5\na|b 1 5\n;a=b 1 5\n\
        m;a 1 5\nm 1 99999999999\nm 1 8",
    );
    raw.finish();
    assert_eq!(raw.all(), b"");
    let names = ["servers.a.load", "disk.used host=a mount=/", "m"];
    let found = server.end(&names);
    let quarter = Point { time: 6_250_000_000, value: 0.75.into() };
    assert_eq!(found, [vec![point(5, 0.5), quarter], vec![point(5, 7.0)], Vec::new()]);
}

#[test]
fn opentsdbs_points_are_taken_over_http() {
    let server = Taking::with(SeriesConfig::default());
    let one = r#"{"metric": "cpu", "timestamp": 5, "value": 0.5, "tags": {"host": "a b"}}"#;
    let heard = server.post("/api/put", "", one.as_bytes());
    assert_eq!((heard.status, heard.text().as_str()), (204, ""));
    let wrong = r#"{"metric": "cpu", "timestamp": "x", "value": 1, "tags": {"host": "a b"}}"#;
    let both =
        format!("[{}, {wrong}]", one.replace("\"timestamp\": 5", "\"timestamp\": 6000000000000"));
    for (address, words) in [
        (
            "/api/put",
            r#"{"error":{"code":400,"message":"1 of 2 points were refused (invalid timestamp format"#,
        ),
        ("/api/put?summary", r#"{"failed":1,"success":1}"#),
        (
            "/api/put?sync=true&details",
            r#"{"errors":[{"datapoint":{"metric":"cpu","tags":{"host":"a b"},"timestamp":"x","value":"1"},"error":"invalid timestamp format"#,
        ),
    ] {
        let heard = server.post(address, "", both.as_bytes());
        let text = heard.text();
        assert!(heard.status == 400 && text.starts_with(words), "{address}: {text}");
        assert!(heard.head.contains("content-type: application/json"), "{}", heard.head);
    }
    assert_eq!(server.post("/api/put?summary", "", b"[]").text(), r#"{"failed":0,"success":0}"#);
    for (body, words) in [
        (&b"nonsense"[..], "no points: "),
        (b"[[[7]]]", "a point is an object"),
        (br#"{"metric": "a\nput b 1 1"}"#, "control characters"),
    ] {
        let heard = server.post("/api/put?details", "", body);
        assert!(heard.status == 400 && heard.text().contains(words), "{}", heard.text());
    }
    assert_eq!(server.post("/api/put", "Content-Encoding: br\r\n", b"[]").status, 415);
    assert_eq!(server.post("/api/put", "", &b"[".repeat(5 << 20)).status, 413);
    let later = Point { time: 6_000_000_000_000_000_000, value: 0.5.into() };
    assert_eq!(server.end(&["cpu host=a\\ b"])[0], [point(5, 0.5), later]);
}
