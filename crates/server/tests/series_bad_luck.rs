//! Senders and readers of time series that break off, fight, dawdle, or have no business here; and
//! points that have had their time.
//!
//! They are made of bare bytes. What arrived is read behind the server's back, from its database,
//! when the server has ended.

mod common;

use common::peer::{Peer, ask_at};
use common::*;
use plinth_client::{Database, Endpoint};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_series::{Direction, Point, SeriesStore};
use plinth_server::{SeriesConfig, Server, ServerConfig};
use std::fmt::Write;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LOCAL: &str = "Host: localhost\r\n";

struct Served {
    server: Server,
    endpoint: Arc<dyn Endpoint>,
    at: SeriesConfig,
}

fn start(change: impl FnOnce(&mut SeriesConfig)) -> Served {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let endpoint: Arc<dyn Endpoint> = Arc::new(node.endpoint());
    let mut series =
        SeriesConfig { resp: Some(loopback()), http: Some(loopback()), ..SeriesConfig::default() };
    change(&mut series);
    let config = ServerConfig {
        listen: vec![loopback()],
        http: Some(loopback()),
        series,
        ..ServerConfig::default()
    };
    let server = block_on(Server::start(endpoint.clone(), config)).unwrap();
    let at = server.series_addresses();
    Served { server, endpoint, at }
}

impl Served {
    fn resp(&self) -> Peer {
        Peer::to(self.at.resp.unwrap())
    }

    /// The status of an answer, and what stands behind its head.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u32, String) {
        ask_at(self.at.http.unwrap(), method, path, headers, body)
    }

    /// A number of the store's statistics.
    fn stat(&self, name: &str) -> f64 {
        let (_, text) = self.ask("GET", "/api/stats", "Host: localhost\r\n", "");
        let json: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        let found = json.as_object().unwrap().values().find_map(|part| part.get(name)?.as_str());
        found.unwrap_or_else(|| panic!("no {name} in {json}")).parse().unwrap()
    }

    /// The points of a series, once the server has ended.
    fn end(self, names: &[&str]) -> Vec<Vec<Point>> {
        block_on(self.server.stop());
        let store = block_on(SeriesStore::open(&Database::new(self.endpoint.clone()))).unwrap();
        let points = |name: &&str| {
            block_on(async {
                store.series(name).await?.scan(.., Direction::Forward).await?.collect().await
            })
        };
        names.iter().map(|name| points(name).unwrap()).collect()
    }
}

fn point(time: i64, value: i64) -> Point {
    Point { time, value: value.into() }
}

#[test]
fn a_sender_that_breaks_off_in_a_row_leaves_nothing_of_it_and_disturbs_nobody() {
    let served = start(|_| {});
    let row = "+a|b|c host=x\n:7\n*3\n:7\n:7\n:7\n";
    let mut other = served.resp();
    let cuts: Vec<usize> = (1..row.len()).collect();
    for (number, cut) in (0_i64..).zip(cuts) {
        let mut broken = served.resp();
        broken.send(&row[..cut]);
        // Some give the server the time of an acknowledgement to read it; others vanish at once.
        if cut % 2 == 0 {
            other.send("+SYNC\n");
            other.until("+OK");
        }
        drop(broken);
        other.send(&format!(
            "+a|b|c host=y\n:{number}\n*3\n:{number}\n:{number}\n:{number}\n+SYNC\n"
        ));
        other.until("+OK");
    }
    // One that stays is in nobody's way, neither while the server runs nor when it stops.
    let mut silent = served.resp();
    silent.send("+a|b|c host=x\n:7\n*3\n:7\n");
    let names = ["a host=x", "b host=x", "c host=x", "a host=y", "b host=y", "c host=y"];
    let found = served.end(&names);
    let expected: Vec<Point> =
        (0..row.len() as i64 - 1).map(|number| point(number, number)).collect();
    for (name, found) in names.iter().zip(found) {
        assert_eq!(
            found,
            if name.ends_with('y') { expected.clone() } else { Vec::new() },
            "{name}"
        );
    }
    drop(silent);
}

#[test]
fn of_sessions_that_write_the_same_points_one_wins_each() {
    const EACH: i64 = 10_000;
    let served = start(|_| {});
    let at = served.at.resp.unwrap();
    let fighters: Vec<_> = (1..=3)
        .map(|fighter| {
            Env::real().spawn("fighter", async move {
                let mut peer = Peer::to(at);
                for first in (0..EACH).step_by(500) {
                    let mut text = String::new();
                    for time in first..first + 500 {
                        let value = time * 10 + fighter;
                        write!(text, "+a|b host=x\n:{time}\n*2\n:{value}\n:{value}\n").unwrap();
                    }
                    peer.send(&(text + "+SYNC\n"));
                    peer.until(&format!("+OK {}\r\n", 2 * (first + 500)));
                }
            })
        })
        .collect();
    for fighter in fighters {
        fighter.wait().unwrap();
    }
    for found in served.end(&["a host=x", "b host=x"]) {
        assert!(found.iter().map(|point| point.time).eq(0..EACH), "{} points", found.len());
        for point in found {
            let value = point.value.as_f64() as i64;
            assert!(
                value / 10 == point.time && (1..=3).contains(&(value % 10)),
                "{value} at {}",
                point.time
            );
        }
    }
}

#[test]
fn readers_that_are_slower_than_the_data_cost_what_they_are_sent_and_no_more() {
    // More than sockets take by themselves.
    const POINTS: i64 = 600_000;
    const READERS: usize = 8;
    let served = start(|_| {});
    let send = |times: std::ops::Range<i64>| {
        let mut text = String::new();
        for time in times {
            write!(text, "+load host=a\n:{time}\n:{time}\n").unwrap();
        }
        let mut peer = served.resp();
        peer.send(&(text + "+SYNC\n"));
        peer.until("+OK");
    };
    send(0..POINTS);
    let query = r#"{"select": "load", "range": {"from": 0, "to": 1000000000}, "output": {"format": "csv", "timestamp": "raw"}}"#;
    let len = query.len();
    let request = format!(
        "POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n{query}"
    );
    let mut readers: Vec<Peer> = (0..READERS)
        .map(|_| {
            let mut reader = Peer::to(served.at.http.unwrap());
            reader.send(&request);
            reader.until("HTTP/1.1 200 OK");
            reader
        })
        .collect();
    let held = || (served.stat("running"), served.stat("query_bytes"));
    let bounded = |(running, bytes): (f64, f64)| {
        assert!(
            running == READERS as f64 && bytes < READERS as f64 * 200_000.0,
            "{running} hold {bytes} bytes"
        );
        assert!(bytes > 0.0, "what they hold is counted");
    };
    bounded(held());
    // More points come than any of them has seen; none of them holds more for that.
    for round in 0..3 {
        send(POINTS + round * 50_000..POINTS + (round + 1) * 50_000);
        bounded(held());
    }
    // One of them takes its time and gets all that there was when it asked; the others go, and what
    // they held with them.
    let mut slow = readers.pop().unwrap();
    drop(readers);
    let (last, mut tail, mut rows) = (format!("load host=a,ts={},", POINTS - 1), String::new(), 0);
    while !tail.contains(&last) {
        let more = slow.receive();
        assert!(!more.is_empty(), "it ends behind {rows} rows");
        rows += more.matches(",ts=").count();
        tail = tail.split_off(tail.len().saturating_sub(100)) + &more;
    }
    assert!(rows as i64 > POINTS * 99 / 100, "{rows} rows");
    drop(slow);
    while held() != (0.0, 0.0) {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
    block_on(served.server.stop());
}

#[test]
fn series_are_deleted_over_http_by_programs_alone() {
    const PATH: &str = "/api/v1/admin/tsdb/delete_series";
    let served = start(|_| {});
    let mut peer = served.resp();
    peer.send(
        "+a|b host=x\n:1000000000\n*2\n:1\n:1\n+a|b host=x\n:2000000000\n*2\n:2\n:2\n+SYNC\n",
    );
    peer.until("+OK 4");
    let page = format!("{LOCAL}Origin: http://localhost\r\n");
    assert_eq!(served.ask("POST", PATH, &page, "match[]=a").0, 403);
    assert_eq!(served.ask("GET", &format!("{PATH}?match[]=a"), LOCAL, "").0, 405);
    assert_eq!(served.ask("POST", PATH, LOCAL, "").0, 400);
    assert_eq!(served.ask("PUT", &format!("{PATH}?match[]=b"), LOCAL, "end=1").0, 204);
    assert_eq!(served.ask("POST", &format!("{PATH}?match[]=a"), LOCAL, ""), (204, String::new()));
    // Who has it open goes on with a new one.
    peer.send("+a host=x\n:3000000000\n:3\n+SYNC\n");
    peer.until("+OK 5");
    let found = served.end(&["a host=x", "b host=x"]);
    assert_eq!(found, [vec![point(3_000_000_000, 3)], vec![point(2_000_000_000, 2)]]);
}

#[test]
fn points_that_had_their_time_go_and_what_is_durable_is_shown() {
    let served = start(|series| series.retention = "a=1s,b=forever".parse().unwrap());
    let far = 9_000_000_000_000_000_000_i64;
    let mut peer = served.resp();
    peer.send(&format!(
        "+a|b|c host=x\n:5\n*3\n:1\n:1\n:1\n+a host=x\n:{far}\n:2\nnonsense\n+SYNC\n"
    ));
    peer.until("+OK 4");
    let (_, metrics) =
        ask_at(served.server.http_address().unwrap(), "GET", "/metrics", "Host: localhost\r\n", "");
    for line in [
        "plinth_series_points_total 4",
        "plinth_series_refused_total 1",
        "plinth_series_connections 1",
        "plinth_series_series 3",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in {metrics}");
    }
    assert!(metrics.contains("\nplinth_series_unsaved_seconds 0\n"), "{metrics}");
    let longest = served.stat("longest_unsaved_seconds");
    assert!(
        longest > 0.0 && metrics.contains("\nplinth_series_longest_unsaved_seconds "),
        "{longest}"
    );
    let count = || {
        let query = r#"{"aggregate": {"a": "count", "b": "count", "c": "count"}, "output": {"format": "csv"}}"#;
        let (_, text) = served.ask("POST", "/api/query", "Host: localhost\r\n", query);
        text.lines()
            .filter(|line| line.contains(","))
            .map(|line| line.rsplit(',').next().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    while count() != ["1", "1", "1"] {
        block_on(Env::real().sleep(Duration::from_millis(50)));
    }
    let found = served.end(&["a host=x", "b host=x", "c host=x"]);
    assert_eq!(found, [vec![point(far, 2)], vec![point(5, 1)], vec![point(5, 1)]]);
}

#[test]
fn who_may_ask_is_told_by_the_host_or_by_a_token() {
    const QUERY: &str = r#"{"select": "meta:names"}"#;
    let served = start(|_| {});
    for (host, status) in [
        ("localhost", 200),
        ("127.0.0.1:8181", 200),
        ("[::1]", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ] {
        let header = format!("Host: {host}\r\n");
        assert_eq!(served.ask("POST", "/api/query", &header, QUERY).0, status, "{host}");
        assert_eq!(served.ask("GET", "/api/v1/labels", &header, "").0, status, "{host}");
        let written = served.ask("POST", "/write", &header, "m,a=1 v=1 1").0;
        assert_eq!(written, if status == 200 { 204 } else { 403 }, "{host}");
    }
    block_on(served.server.stop());

    let place = block_on(Env::real().files().temporary_dir("plinth-series-token")).unwrap();
    let file = place.path().join("token");
    let served = start(|series| series.token_file = Some(file.clone()));
    let token = String::from_utf8(block_on(Env::real().files().read(&file)).unwrap()).unwrap();
    let token = token.trim();
    for (header, status) in [
        (String::new(), 401),
        ("Authorization: Bearer x\r\n".to_string(), 401),
        (format!("Authorization: Basic {token}\r\n"), 401),
        (format!("Authorization: Bearer {token}x\r\n"), 401),
        (format!("Authorization: Bearer {token}\r\n"), 200),
        (format!("authorization: Token {token}\r\n"), 200),
    ] {
        // With a token the name by which it is asked says nothing.
        let header = format!("Host: evil.example\r\n{header}");
        assert_eq!(served.ask("POST", "/api/query", &header, QUERY).0, status, "{header}");
        let written = served.ask("POST", "/write", &header, "m,a=1 v=1 1").0;
        assert_eq!(written, if status == 200 { 204 } else { 401 }, "{header}");
    }
    block_on(served.server.stop());
}

/// Grafana said nothing but a status of what it may not ask: the answer had a line of Akumuli's.
#[test]
fn who_may_not_ask_is_told_in_the_form_that_his_client_reads() {
    let place = block_on(Env::real().files().temporary_dir("plinth-series-token")).unwrap();
    let served = start(|series| series.token_file = Some(place.path().join("token")));
    let open = start(|_| {});
    let ours = "Host: localhost\r\nAuthorization: Bearer x\r\n";
    let elsewhere = "Host: evil.example\r\n";
    for (method, path) in [
        ("GET", "/api/v1/query?query=1"),
        ("POST", "/api/v1/query_range"),
        ("GET", "/api/v1/labels"),
        ("GET", "/api/v1/metadata"),
        ("GET", "/api/v1/rules"),
        ("GET", "/api/v1/status/buildinfo"),
        ("GET", "/api/v1/export?match[]=a"),
        ("POST", "/api/v1/admin/tsdb/delete_series?match[]=a"),
    ] {
        for (served, header, status, kind) in
            [(&served, ours, 401, "unauthorized"), (&open, elsewhere, 403, "forbidden")]
        {
            let (found, told) = served.ask(method, path, header, "");
            assert_eq!(found, status, "{path}: {told}");
            let told: serde_json::Value = told.parse().unwrap_or_else(|_| panic!("{path}: {told}"));
            assert_eq!((&told["status"], &told["errorType"]), (&"error".into(), &kind.into()));
            assert!(told["error"].as_str().is_some_and(|why| why.len() > 10), "{told}");
        }
    }
    let (_, told) = served.ask("POST", "/write", ours, "m,a=1 v=1 1");
    assert!(told.starts_with(r#"{"code":"unauthorized","#), "{told}");
    for (method, path) in [
        ("POST", "/api/query"),
        ("GET", "/api/stats"),
        ("POST", "/api/put"),
        ("POST", "/api/v1/write"),
        ("POST", "/api/v1/read"),
    ] {
        let (status, told) = served.ask(method, path, ours, "");
        assert!(status == 401 && told == "-the token is wrong\r\n", "{path}: {status} {told}");
    }
    [served, open].into_iter().for_each(|served| block_on(served.server.stop()));
}

/// Any page in a browser could write points by a form: its body was taken for lines.
#[test]
fn a_request_of_http_on_a_port_of_lines_is_closed_and_nothing_of_it_is_taken() {
    let served = start(|series| {
        series.opentsdb = Some(loopback());
        series.graphite = Some(loopback());
    });
    let points = "put m 1 1 a=1\n+m a=1\r\n:1\r\n:1\r\nm;a=1 1 1\n";
    let ports = [served.at.resp, served.at.opentsdb, served.at.graphite];
    for address in ports {
        for verb in ["POST", "GET", "OPTIONS"] {
            let mut peer = Peer::to(address.unwrap());
            // The verb in two parts: what may become one is waited for.
            peer.send(&verb[..2]);
            block_on(Env::real().sleep(Duration::from_millis(20)));
            peer.send(&format!("{} / HTTP/1.1\r\nHost: x\r\n\r\n{points}", &verb[2..]));
            assert_eq!(peer.all(), "", "nothing is said to who speaks another language");
        }
        // Whatever the verb is, it says for which host.
        for head in ["QUERY / HTTP/1.1\r\nHost: x\r\n\r\n", "host:x\r\n"] {
            let mut peer = Peer::to(address.unwrap());
            peer.send(&format!("{head}{points}"));
            // Whoever takes it for lines has all of them, and answers.
            let _ = block_on(poll_fn(|context| peer.0.poll_finish(context)));
            assert_eq!(peer.all(), "", "{head}");
        }
        // In two parts, of which the first is a line that makes no sense.
        let mut peer = Peer::to(address.unwrap());
        peer.send("QUERY / HTTP/1.1\r\nHo");
        block_on(Env::real().sleep(Duration::from_millis(20)));
        peer.send(&format!("st: x\r\n\r\n{points}"));
        let _ = block_on(poll_fn(|context| peer.0.poll_finish(context)));
        let told = peer.all();
        assert!(!told.contains("OK"), "{told}");
    }
    // A line that only begins like one is a line that makes no sense.
    let mut peer = Peer::to(served.at.opentsdb.unwrap());
    peer.send("PO");
    peer.send("RT 1\n");
    assert!(peer.until("\n").contains("PORT"), "it is told");
    drop(peer);
    let (_, rows) = served.ask("POST", "/api/search", LOCAL, r#"{"select":"m"}"#);
    assert!(!rows.contains("a=1"), "{rows}");
    // Those who send points that name hosts go on.
    let mut peer = Peer::to(served.at.graphite.unwrap());
    peer.send("hosts;Host=x 1 1\nhost 1 1\n");
    let has = |name: &str| {
        let body = format!(r#"{{"select":"{name}"}}"#);
        !served.ask("POST", "/api/search", LOCAL, &body).1.trim().is_empty()
    };
    while !(has("hosts") && has("host")) {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
}

/// What a page in a browser might do with an answer, or ask for: it is told to take none for
/// something else than it says it is, and asks for nothing.
#[test]
fn answers_forbid_to_guess_and_pages_are_answered_nothing() {
    const QUERY: &str = r#"{"select": "meta:names"}"#;
    let served = start(|_| {});
    let address = served.at.http.unwrap();
    for (method, path, body, status) in [
        ("GET", "/api/v1/labels", "", 200),
        ("GET", "/api/v1/query?query=1", "", 200),
        ("GET", "/api/stats", "", 200),
        ("POST", "/api/query", QUERY, 200),
        ("POST", "/write", "m,a=1 v=1 1", 204),
        ("POST", "/write", "<script>", 400),
        ("GET", "/nowhere", "", 404),
    ] {
        let ask = |origin: &str| {
            let len = body.len();
            let mut peer = Peer::to(address);
            peer.send(&format!(
                "{method} {path} HTTP/1.1\r\n{LOCAL}{origin}Connection: close\r\nContent-Length: {len}\r\n\r\n{body}"
            ));
            let answer = peer.all();
            let (head, _) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains("\r\nx-content-type-options: nosniff"), "{path}: {head}");
            head.split(' ').nth(1).unwrap().parse::<u32>().unwrap()
        };
        assert_eq!(ask(""), status, "{path}");
        for origin in ["http://evil.example", "http://localhost", "null"] {
            assert_eq!(ask(&format!("Origin: {origin}\r\n")), 403, "{path} of {origin}");
        }
    }
}

/// 65 kB of gzip that held 32 million lines which make no sense kept a client of keys from its
/// answers for seconds.
#[test]
fn lines_that_make_no_sense_leave_others_their_turns() {
    const SENDERS: usize = 4;
    let served = start(|_| {});
    let lines = "x\n".repeat(4 << 20);
    let address = served.at.http.unwrap();
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let mut peer = Peer::to(address);
            peer.send(&format!(
                "POST /write HTTP/1.1\r\n{LOCAL}Connection: close\r\nContent-Length: {}\r\n\r\n",
                lines.len()
            ));
            peer.send(&lines);
            peer
        })
        .collect();
    // All of it has arrived; until it is answered, clients have their turns many times over.
    let env = Env::real();
    let answered = Arc::new(AtomicBool::new(false));
    let theirs = answered.clone();
    let waiting = env.spawn("senders", async move {
        for sender in senders {
            let told = sender.everything().await;
            assert!(told.starts_with("HTTP/1.1 400"), "{told}");
        }
        theirs.store(true, Ordering::Relaxed);
    });
    let dbs: Vec<_> = (0..4).map(|_| database(&served.server)).collect();
    let mut rounds = 0;
    while !answered.load(Ordering::Relaxed) {
        for db in &dbs {
            db.transact_blocking(|tr| tr.get("k").wait()).unwrap();
        }
        rounds += 1;
    }
    block_on(waiting).unwrap();
    assert!(rounds > 5, "{rounds} rounds of reads while {SENDERS} bodies were read");
}
