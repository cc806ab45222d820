//! Queries over sockets: what a reader of time series hears, and that a reader who goes away takes his query with him.
//!
//! A reader here is made of bare bytes; points come in through the listener beside.

mod common;

use common::*;
use plinth_env::{Env, Stream, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{SeriesConfig, Server, ServerConfig};
use std::fmt::Write;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

fn start() -> Server {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let series = SeriesConfig { resp: Some(loopback()), http: Some(loopback()), ..SeriesConfig::default() };
    let config = ServerConfig { listen: vec![loopback()], series, ..ServerConfig::default() };
    block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap()
}

struct Peer(Stream);

impl Peer {
    fn to(address: SocketAddr, bytes: &str) -> Self {
        let mut stream = block_on(Env::real().sockets().connect(address)).unwrap();
        let (bytes, mut sent) = (bytes.as_bytes(), 0);
        block_on(poll_fn(|context| {
            while sent < bytes.len() {
                sent += ready!(stream.poll_send(context, &bytes[sent..])).unwrap();
            }
            Poll::Ready(())
        }));
        Self(stream)
    }

    /// What has arrived; nothing at the end.
    fn receive(&mut self) -> String {
        let mut buffer = [0; 4096];
        let len = block_on(poll_fn(|context| self.0.poll_receive(context, &mut buffer))).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }

    fn all(mut self) -> String {
        let mut all = String::new();
        loop {
            match self.receive() {
                more if more.is_empty() => return all,
                more => all += &more,
            }
        }
    }
}

fn request(method: &str, path: &str, body: &str) -> String {
    let len = body.len();
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}")
}

/// The status of an answer, and its body with the chunks put together.
fn ask(server: &Server, method: &str, path: &str, body: &str) -> (u32, String) {
    let answer = Peer::to(server.series_addresses().http.unwrap(), &request(method, path, body)).all();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if !head.contains("transfer-encoding: chunked") {
        return (status, body.to_string());
    }
    let (mut whole, mut rest) = (String::new(), body);
    loop {
        let (len, chunk) = rest.split_once("\r\n").unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        if len == 0 {
            return (status, whole);
        }
        whole += &chunk[..len];
        rest = &chunk[len + 2..];
    }
}

/// Sends points, and hears that they are there.
fn send(server: &Server, points: &str) {
    let resp = server.series_addresses().resp.unwrap();
    let mut peer = Peer::to(resp, &format!("{points}+SYNC\r\n"));
    assert!(peer.receive().starts_with("+OK "));
}

#[test]
fn queries_are_answered_over_http() {
    let server = start();
    send(
        &server,
        "+cpu.user|cpu.sys host=a\r\n+20260101T000000\r\n*2\r\n+0.5\r\n:7\r\n+!deploy host=a\r\n:5\r\n+done\r\n",
    );
    let range = r#""range": {"from": 0, "to": "20300101T000000"}"#;
    for (path, query, expected) in [
        (
            "query",
            r#"{"select": "cpu.user", R}"#,
            "+cpu.user host=a\r\n+20260101T000000.000000000\r\n+0.5\r\n",
        ),
        (
            "query",
            r#"{"join": ["cpu.user", "cpu.sys"], R, "output": {"format": "csv"}}"#,
            "cpu.user|cpu.sys host=a,20260101T000000.000000000,0.5,7\n",
        ),
        (
            "query",
            r#"{"select-events": "!deploy", R, "output": {"timestamp": "raw"}}"#,
            "+!deploy host=a\r\n+ts=5\r\n+done\r\n",
        ),
        ("search", r#"{"select": "cpu.sys"}"#, "+cpu.sys host=a\r\n"),
        ("suggest", r#"{"select": "metric-names", "starts-with": "cpu.u"}"#, "+cpu.user\r\n"),
        ("query", r#"{"select": "cpu.user", "range": {"from": 0, "to": 1}}"#, ""),
    ] {
        let query = query.replace(", R", &format!(", {range}"));
        assert_eq!(
            ask(&server, "POST", &format!("/api/{path}"), &query),
            (200, expected.to_string()),
            "{query}"
        );
    }
    for (query, expected) in [
        ("", "-query parsing error: no JSON"),
        ("{\"select\": \"nothing\", R}", "-not found: "),
        (
            "{\"select\": \"cpu.user\", \"x\": 1, R}",
            "-query parsing error: Query object contains unexpected field `x`",
        ),
    ] {
        let query = query.replace(", R", &format!(", {range}"));
        let (status, told) = ask(&server, "POST", "/api/query", &query);
        assert!(status == 200 && told.starts_with(expected) && told.ends_with("\r\n"), "{told}");
        assert_eq!(told.lines().count(), 1);
    }
    assert_eq!(ask(&server, "GET", "/x", ""), (404, "-Invalid url /x\r\n".to_string()));
    assert_eq!(ask(&server, "GET", "/api/query", "").0, 405);
    assert!(ask(&server, "GET", "/api/version", "").1.starts_with("Plinth "));
    assert!(ask(&server, "GET", "/api/function-names", "").1.contains("\nrate\n"));
    assert!(ask(&server, "GET", "/api/stats", "").1.contains("\"running\":\"0\""));
    let one = (200, r#"{"data":{"result":[5,"2"],"resultType":"scalar"},"status":"success"}"#.to_string());
    assert_eq!(ask(&server, "GET", "/api/v1/query?query=1%2B1&time=5", ""), one);
    assert_eq!(ask(&server, "POST", "/api/v1/query", "query=1%2B1&time=5"), one);
    assert!(ask(&server, "GET", "/api/v1/label/__name__/values", "").1.contains(r#""cpu.user""#));
    assert_eq!(ask(&server, "GET", "/api/v1/query", "").0, 400);
    let bomb = "[".repeat(900_000);
    assert!(ask(&server, "POST", "/api/query", &bomb).1.contains("recursion limit"));
    let long = request("POST", "/api/query", "").replace("Content-Length: 0", "Content-Length: 99999999");
    let mut peer = Peer::to(server.series_addresses().http.unwrap(), &(long + &" ".repeat(2 << 20)));
    assert!(peer.receive().starts_with("HTTP/1.1 413"));
    block_on(server.stop());
}

#[test]
fn a_reader_that_goes_away_ends_its_query() {
    let server = start();
    let mut points = String::new();
    for time in 0..200_000 {
        write!(points, "+load host=a\r\n:{time}\r\n:{time}\r\n").unwrap();
    }
    send(&server, &points);
    let query = r#"{"select": "load", "range": {"from": 0, "to": "20300101T000000"}}"#;
    let running = |server: &Server| {
        let told = ask(server, "GET", "/api/stats", "").1;
        told.split("\"running\":\"").nth(1).unwrap().split('"').next().unwrap().parse::<u32>().unwrap()
    };
    let http = server.series_addresses().http.unwrap();
    let readers: Vec<Peer> = (0..3)
        .map(|_| {
            let mut reader = Peer::to(http, &request("POST", "/api/query", query));
            assert!(reader.receive().starts_with("HTTP/1.1 200 OK"));
            reader
        })
        .collect();
    // They are read no further, so what is left of them waits, and is not made.
    assert_eq!(running(&server), 3);
    drop(readers);
    while running(&server) > 0 {
        block_on(Env::real().sleep(Duration::from_millis(10)));
    }
    let whole = ask(&server, "POST", "/api/query", query).1;
    assert_eq!(whole.lines().count(), 3 * 200_000);
    assert!(whole.ends_with("+load host=a\r\n+19700101T000000.000199999\r\n+199999\r\n"));
    block_on(server.stop());
}
