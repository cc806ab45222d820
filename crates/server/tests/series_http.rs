//! Queries over sockets: what a reader of time series hears, and that a reader who goes away takes
//! his query with him.
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
    let series =
        SeriesConfig { resp: Some(loopback()), http: Some(loopback()), ..SeriesConfig::default() };
    let config = ServerConfig { listen: vec![loopback()], series, ..ServerConfig::default() };
    block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap()
}

/// Of its own metrics, which are series as well, it said nothing.
#[test]
fn a_server_says_of_what_it_records_of_itself_what_it_is() {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let series = SeriesConfig { http: Some(loopback()), metrics: true, ..SeriesConfig::default() };
    let config = ServerConfig { listen: vec![loopback()], series, ..ServerConfig::default() };
    let server = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap();
    let asked =
        |metric: &str| ask(&server, "GET", &format!("/api/v1/metadata?metric={metric}"), "").1;
    let is_known = || asked("plinth_series_points_total").contains("counter");
    for _ in 0..500 {
        if is_known() {
            break;
        }
        block_on(Env::real().sleep(Duration::from_millis(10)));
    }
    let help = "Points taken since the start.";
    let told = asked("plinth_series_points_total");
    assert!(told.contains(help) && told.contains(r#""unit":"""#), "{told}");
    let told = asked("plinth_series_unsaved_seconds");
    assert!(told.contains(r#""type":"gauge","unit":"seconds""#), "{told}");
    let told = asked("plinth_series_query_bytes");
    assert!(told.contains(r#""type":"gauge","unit":"bytes""#), "{told}");
}

struct Peer(Stream);

impl Peer {
    fn to(address: SocketAddr, bytes: &str) -> Self {
        let mut peer = Self(block_on(Env::real().sockets().connect(address)).unwrap());
        peer.send(bytes);
        peer
    }

    fn send(&mut self, bytes: &str) {
        let (bytes, mut sent) = (bytes.as_bytes(), 0);
        block_on(poll_fn(|context| {
            while sent < bytes.len() {
                sent += ready!(self.0.poll_send(context, &bytes[sent..])).unwrap();
            }
            Poll::Ready(())
        }));
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
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}"
    )
}

/// The status of an answer, and its body with the chunks put together.
fn ask(server: &Server, method: &str, path: &str, body: &str) -> (u32, String) {
    let answer =
        Peer::to(server.series_addresses().http.unwrap(), &request(method, path, body)).all();
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

/// Who asks for what Prometheus may have, and isn't here, reads JSON.
#[test]
fn what_is_not_there_is_said_as_prometheus_would() {
    let server = start();
    let (status, told) = ask(&server, "GET", "/api/v1/status/walreplay", "");
    assert!(status == 404 && told.contains(r#""status":"error""#), "{told}");
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
    let one = (
        200,
        r#"{"data":{"result":[5,"2"],"resultType":"scalar"},"status":"success"}"#.to_string(),
    );
    assert_eq!(ask(&server, "GET", "/api/v1/query?query=1%2B1&time=5", ""), one);
    assert_eq!(ask(&server, "POST", "/api/v1/query", "query=1%2B1&time=5"), one);
    assert!(ask(&server, "GET", "/api/v1/label/__name__/values", "").1.contains(r#""cpu.user""#));
    assert_eq!(ask(&server, "GET", "/api/v1/query", "").0, 400);
    let bomb = "[".repeat(900_000);
    assert!(ask(&server, "POST", "/api/query", &bomb).1.contains("recursion limit"));
    let long =
        request("POST", "/api/query", "").replace("Content-Length: 0", "Content-Length: 99999999");
    let mut peer =
        Peer::to(server.series_addresses().http.unwrap(), &(long + &" ".repeat(2 << 20)));
    assert!(peer.receive().starts_with("HTTP/1.1 413"));
    block_on(server.stop());
}

/// What clients of Prometheus and InfluxDB ask before anything else: whether it is there, which
/// version it is, and that a database be made. They gave up on the answer 404, and on a missing
/// header.
#[test]
fn clients_are_told_what_they_ask_at_first() {
    let server = start();
    for path in ["/", "/-/healthy", "/-/ready", "/ready", "/health"] {
        assert_eq!(ask(&server, "GET", path, "").0, 200, "{path}");
    }
    let head = |method: &str, path: &str| {
        Peer::to(server.series_addresses().http.unwrap(), &request(method, path, ""))
            .all()
            .to_lowercase()
    };
    for (method, path) in
        [("GET", "/ping"), ("HEAD", "/ping"), ("GET", "/health"), ("POST", "/write")]
    {
        assert!(head(method, path).contains("\r\nx-influxdb-version: 1.8.0-plinth\r\n"), "{path}");
    }
    assert!(!head("GET", "/-/ready").contains("influxdb"));
    let made = (200, "{\"results\":[{\"statement_id\":0}]}\n".to_string());
    assert_eq!(ask(&server, "POST", "/query?q=CREATE+DATABASE+%22db%22", ""), made);
    assert_eq!(ask(&server, "POST", "/query", "q=create%20database%20db"), made);
    let (status, listed) = ask(&server, "GET", "/query?q=SHOW%20DATABASES", "");
    assert!(status == 200 && listed.contains("\"columns\":[\"name\"]"), "{listed}");
    for query in ["/query", "/query?q=SELECT+*+FROM+cpu", "/query?q=DROP+DATABASE+db"] {
        let (status, told) = ask(&server, "POST", query, "");
        assert!(status == 400 && told.contains("InfluxQL is not answered"), "{told}");
    }
    assert_eq!(ask(&server, "POST", "/-/ready", "").0, 404);
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
        told.split("\"running\":\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .parse::<u32>()
            .unwrap()
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

/// A query of PromQL that nobody waits for any more would be at work to its end, and so would each
/// that an impatient dashboard asks in its place. How long that is depends on the machine, so it is
/// counted in looks.
#[test]
fn a_dashboard_that_goes_away_ends_its_query_and_others_are_answered() {
    let server = start();
    let mut points = String::new();
    for host in 0..400 {
        for minute in 0..60_u64 {
            let time = minute * 60_000_000_000;
            write!(points, "+load host=h{host}\r\n:{time}\r\n:{minute}\r\n").unwrap();
        }
    }
    send(&server, &points);
    let held = || {
        let told: serde_json::Value =
            serde_json::from_str(&ask(&server, "GET", "/api/stats", "").1).unwrap();
        told["memory"]["query_bytes"].as_str().unwrap().parse::<u64>().unwrap()
    };
    // Each step of each series sorts an hour of seconds, until these are too many points.
    let query =
        "/api/v1/query_range?query=quantile_over_time(0.9,load[1h:1s])&start=0&end=10999&step=1";
    let http = server.series_addresses().http.unwrap();
    let one = "/api/v1/query?query=count(load)&time=60";
    let begin = || {
        let reader = Peer::to(http, &request("GET", query, ""));
        while held() == 0 {
            block_on(Env::real().sleep(Duration::from_millis(1)));
        }
        assert!(ask(&server, "GET", one, "").1.contains(r#"[60,"400"]"#));
        reader
    };
    let looks_until_its_end = || {
        let mut looks = 0;
        while held() > 0 {
            looks += 1;
            block_on(Env::real().sleep(Duration::from_millis(10)));
        }
        looks
    };
    let reader = begin();
    let whole = looks_until_its_end();
    assert!(reader.all().contains("too many points"));
    for _ in 0..3 {
        drop(begin());
        let rest = looks_until_its_end();
        assert!(rest < whole / 4, "{rest} looks without anybody who waits, {whole} with him");
    }
    assert!(ask(&server, "GET", one, "").1.contains(r#"[60,"400"]"#));
    block_on(server.stop());
}

/// What a query is answered with this header: the head, and the body with the chunks put together.
fn ask_with(server: &Server, header: &str, path: &str, body: &str) -> (String, Vec<u8>) {
    let request = request("POST", path, body)
        .replace("Host: localhost", &format!("Host: localhost\r\n{header}"));
    let mut peer = Peer::to(server.series_addresses().http.unwrap(), &request);
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while let len @ 1.. =
        block_on(poll_fn(|context| peer.0.poll_receive(context, &mut buffer))).unwrap()
    {
        all.extend_from_slice(&buffer[..len]);
    }
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let (head, mut rest) = (String::from_utf8(all[..end].to_vec()).unwrap(), &all[end + 4..]);
    if !head.contains("transfer-encoding: chunked") {
        return (head, rest.to_vec());
    }
    let mut whole = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if len == 0 {
            return (head, whole);
        }
        whole.extend_from_slice(&rest[line + 2..line + 2 + len]);
        rest = &rest[line + 4 + len..];
    }
}

/// A client that takes streams of Arrow's gets one, by its header or by what it asks, or is told
/// what the program lacks.
#[test]
fn arrow_is_chosen_by_a_header_or_in_the_query() {
    let server = start();
    send(&server, "+cpu.user host=a\r\n+20260101T000000\r\n+0.5\r\n");
    let query = r#"{"select": "cpu.user", "range": {"from": 0, "to": "20300101T000000"}OUTPUT}"#;
    let (plain, arrow, csv) = (
        query.replace("OUTPUT", ""),
        query.replace("OUTPUT", r#", "output": {"format": "arrow"}"#),
        query.replace("OUTPUT", r#", "output": {"format": "csv"}"#),
    );
    let accept = "Accept: text/x, Application/VND.apache.arrow.stream;q=0.9";
    let row = "cpu.user host=a,20260101T000000.000000000,0.5\n";
    for (header, query) in [(accept, &csv), ("Accept: */*", &csv)] {
        let (head, body) = ask_with(&server, header, "/api/query", query);
        assert!(head.contains("text/plain") && body == row.as_bytes(), "{head}");
    }
    let (head, body) = ask_with(&server, "Accept: */*", "/api/query", &plain);
    assert!(head.contains("text/plain") && body.starts_with(b"+cpu.user"), "{head}");
    let search = r#"{"select": "cpu.user"}"#;
    let asked = [
        (accept, "/api/query", &plain[..]),
        ("Accept: */*", "/api/query", &arrow),
        (accept, "/api/search", search),
    ];
    for (header, path, query) in asked {
        let (head, body) = ask_with(&server, header, path, query);
        if cfg!(feature = "arrow") {
            assert!(
                head.starts_with("HTTP/1.1 200")
                    && head.contains("application/vnd.apache.arrow.stream"),
                "{head}"
            );
            assert!(
                body.starts_with(&[255; 4]) && body.ends_with(&[255, 255, 255, 255, 0, 0, 0, 0])
            );
        } else {
            let told = String::from_utf8(body).unwrap();
            assert!(told.contains("feature `arrow`"), "{head}\n{told}");
            assert_eq!(head.starts_with("HTTP/1.1 400"), header == accept, "{head}");
        }
    }
    let (head, body) = ask_with(&server, &format!("{accept}, */*;q=0.1"), "/api/query", &plain);
    assert_eq!(body.starts_with(b"+cpu.user"), !cfg!(feature = "arrow"), "{head}");
    let (head, body) =
        ask_with(&server, accept, "/api/query", &plain.replace("cpu.user", "nothing"));
    assert!(head.starts_with("HTTP/1.1 400") && body.starts_with(b"-"), "{head}");
    block_on(server.stop());
}

/// hyper refused quotes in an address with 400, which Go's servers take as they are.
#[test]
fn selectors_in_an_address_may_stand_there_as_they_are() {
    let server = start();
    send(&server, "+up job=a\r\n:5\r\n:7\r\n+up job=b\r\n:5\r\n:9\r\n");
    let at = server.series_addresses().http.unwrap();
    let (status, told) = ask(&server, "GET", r#"/api/v1/export?match[]={job="a"}"#, "");
    assert!(status == 200 && told.contains(r#""job":"a""#) && !told.contains(r#""job":"b""#));
    let (status, told) = ask(&server, "GET", r#"/api/v1/series?match[]=up{job!~"b|<>`é"}"#, "");
    assert!(status == 200 && told.contains(r#""job":"a""#), "{status} {told}");
    // Each of a connection, and what is in a body stays as it is.
    let label = r#"/api/v1/label/job/values?match[]={job="b"}"#;
    let get = format!("GET {label} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut peer = Peer::to(at, "");
    let mut told = String::new();
    let mut until = |peer: &mut Peer, count: usize| {
        while told.matches(r#""data":["b"]"#).count() < count {
            let more = peer.receive();
            assert!(!more.is_empty(), "{told}");
            told += &more;
        }
    };
    for count in 1..=3 {
        peer.send(&get);
        until(&mut peer, count);
    }
    let body = r#"match[]={job="b"}"#;
    let path = r#"/api/v1/label/job/values?x="""#;
    peer.send(&format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    until(&mut peer, 4);
    block_on(server.stop());
}
