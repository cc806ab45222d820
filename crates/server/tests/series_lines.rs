//! Graphite's lines over a socket, and OpenTSDB's points over HTTP: what is taken, and what a
//! sender hears of the rest. One who is answered nothing hears by the end of the connection whether
//! all of it is durable.

mod common;

use common::taking::Taking;
use common::{Raw, loopback};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, Stream};
use plinth_pipeline::{Node, NodeConfig};
use plinth_series::Point;
use plinth_server::{SeriesConfig, Server, ServerConfig};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

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
        servers.a.load x 7\nservers.a.load 1 -2\nservers.a.load 1 2 3\n!e 1 5\na|b 1 5\n;a=b 1 5\n\
        m;a 1 5\nm 1 99999999999\ng.now 1 -1\nm 1 8",
    );
    raw.finish();
    assert_eq!(raw.all(), b"");
    let names = ["servers.a.load", "disk.used host=a mount=/", "m", "g.now"];
    let mut found = server.end(&names);
    // Without a time, or of the one that stands for it, they are of now: in our days.
    let now = found.pop().unwrap();
    assert!(now.len() == 1 && now[0].time > 1_767_225_600_000_000_000, "{now:?}");
    let quarter = Point { time: 6_250_000_000, value: 0.75.into() };
    assert_eq!(found, [vec![point(5, 0.5), quarter], vec![point(5, 7.0)], Vec::new()]);
}

/// Sends all of it, and says whether this is all.
async fn send(stream: &mut Stream, text: &str, is_all: bool) {
    let (bytes, mut sent) = (text.as_bytes(), 0);
    poll_fn(|context| {
        while sent < bytes.len() {
            sent += ready!(stream.poll_send(context, &bytes[sent..])).unwrap();
        }
        if is_all { stream.poll_finish(context) } else { Poll::Ready(Ok(())) }
    })
    .await
    .unwrap();
}

/// What there is to be heard, up to an end in order.
async fn heard(stream: &mut Stream) -> io::Result<String> {
    let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
    loop {
        match poll_fn(|context| stream.poll_receive(context, &mut buffer)).await? {
            0 => return Ok(String::from_utf8_lossy(&all).into_owned()),
            len => all.extend_from_slice(&buffer[..len]),
        }
    }
}

/// What a sender hears that has sent `first`, then `rest` and the end while the server stops.
async fn heard_at_a_stop(
    (server, client): (&Env, &Env),
    (listen, series): (SocketAddr, SeriesConfig),
    (first, rest): (&str, &str),
) -> io::Result<String> {
    let node = Node::in_memory(server, NodeConfig::default()).await.unwrap();
    let to = series.graphite.or(series.resp).unwrap();
    let config = ServerConfig { listen: vec![listen], series, ..ServerConfig::default() };
    let running = Server::start(Arc::new(node.endpoint()), config).await.unwrap();
    let mut stream = client.sockets().connect(to).await.unwrap();
    send(&mut stream, first, false).await;
    client.sleep(Duration::from_millis(100)).await;
    send(&mut stream, rest, true).await;
    running.stop().await;
    heard(&mut stream).await
}

/// Whoever sends Graphite's lines, closes his direction and reads to the end takes all as durable.
/// A server that stopped before it had read all said that this was the end, too.
#[test]
fn who_is_not_read_to_the_end_because_the_server_stops_is_told() {
    for seed in 0..20 {
        let sim = Simulation::new(seed);
        let (server, client) = (sim.process("server"), sim.process("client"));
        let [listen, at] = [4500, 2003].map(|port| SocketAddr::new(sim.ip(&server), port));
        let series = match seed % 2 {
            0 => SeriesConfig { graphite: Some(at), ..SeriesConfig::default() },
            _ => SeriesConfig { resp: Some(at), ..SeriesConfig::default() },
        };
        let lines = match seed % 2 {
            0 => ["a 1 1\n".to_owned(), "a 1 2\n".repeat(3000)],
            _ => ["+a b=c\r\n:1\r\n:1\r\n".to_owned(), "+a b=c\r\n:2\r\n:1\r\n".repeat(1000)],
        };
        let parties = (&server, &client);
        let heard = heard_at_a_stop(parties, (listen, series), (&lines[0], &lines[1]));
        match sim.run_until(heard) {
            Ok(words) => {
                assert!(seed % 2 == 1 && words.starts_with("-DB the server stops"), "{words:?}")
            }
            Err(why) => assert_eq!((seed % 2, why.kind()), (0, io::ErrorKind::ConnectionReset)),
        }
    }
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
    let now = r#"{"metric": "now", "timestamp": "now-1h", "value": 1}"#;
    assert_eq!(server.post("/api/put", "", now.as_bytes()).status, 204);
    assert!(server.get("/api/v1/query?query=now%20offset%201h").text().contains("\"1\""));
    let later = Point { time: 6_000_000_000_000_000_000, value: 0.5.into() };
    assert_eq!(server.end(&["cpu host=a\\ b"])[0], [point(5, 0.5), later]);
}
