//! Who reads and commits keys hardly notices what others have the server do, however dear that is.
//!
//! Each test is a way by which one client once had all others wait, by requests that were as they
//! should be: 30 MB of empty gzip members, or 65 kB of gzip that held 32 million bad lines, for 3.7
//! seconds; 16 connections that asked for status documents one upon the other, for 550 ms in the
//! median instead of 0.7; four that cut ranges, for 245 ms. A million new series had keys refused
//! for good. Strangers who speak another language were each told of in the log, and taken for
//! senders of points. Beside each is a good client with a clock ([`Good`]).
//!
//! A program of its own, since tests beside each other are what others have a machine do, too.

mod common;

use common::beside::Good;
use common::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use plinth_env::{Env, Task, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_proto::Request;
use plinth_proto::frame::Kind;
use plinth_series::SeriesLimits;
use plinth_server::{Limits, SeriesConfig, Server, ServerConfig};
use plinth_types::{Bytes, KeyRange};
use std::fmt::Write;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Transactions of the good client's during an attack that goes on.
const MEANWHILE: usize = 300;

/// Who takes longer to go stays for good.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many times as long as alone a probe may take, and what it takes alone, at least.
const TIMES: u32 = 10;
const FLOOR: Duration = Duration::from_micros(500);

/// Attackers, which go on until the value goes.
struct Attackers {
    stop: Arc<AtomicBool>,
    tasks: Vec<Task>,
}

impl Attackers {
    /// So many that do this over and over.
    fn start(count: usize, attack: impl FnMut() + Clone + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let one = |_| {
            let (stop, mut attack) = (stop.clone(), attack.clone());
            Env::real().spawn("attacker", async move {
                while !stop.load(Ordering::Relaxed) {
                    attack();
                }
            })
        };
        let tasks = (0..count).map(one).collect();
        Self { stop, tasks }
    }
}

impl Attackers {
    /// Waits until they have ended. A failure of one is a failure.
    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.tasks).into_iter().for_each(|task| task.wait().unwrap());
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Has so many do this over and over while a good client is judged. A failure of one is a failure.
fn attacked(good: &Good, what: &str, count: usize, attack: impl FnMut() + Clone + Send + 'static) {
    let attackers = good.beside(what, |good| {
        let attackers = Attackers::start(count, attack);
        good.goes_on(MEANWHILE);
        attackers
    });
    // Whoever is waited for is no part of what is judged.
    attackers.end();
}

/// Whoever looks after servers ends one that doesn't answer a probe within a second. It took two,
/// beside a thousand, of whom thirty asked the console for everything; beside those thirty alone it
/// takes fifty times as long as undisturbed where it shares their threads.
#[test]
fn a_probe_waits_for_nobody_who_asks_for_documents() {
    let (server, http) = serve_http();
    let ask =
        move |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: {http}\r\n{more}\r\n");
    let documents = move || {
        let mut raw = Raw::to(http);
        let all = ["/status", "/metrics", "/", "/nowhere"].map(|path| ask(path, "").repeat(8));
        // Who has to make room for another one is closed.
        let _ = raw.send((all.concat() + &ask("/", "Connection: close\r\n")).as_bytes());
        raw.all();
    };
    let env = Env::real();
    let probe = || {
        let begin = env.now();
        let mut raw = Raw::to(http);
        raw.send(ask("/health", "Connection: close\r\n").as_bytes()).unwrap();
        let told = String::from_utf8_lossy(&raw.all()).into_owned();
        assert!(told.starts_with("HTTP/1.1 200") && told.ends_with("serving\n"), "{told}");
        env.now() - begin
    };
    let median = || {
        let mut times: Vec<Duration> = (0..31).map(|_| probe()).collect();
        times.sort_unstable();
        times[15]
    };
    let good = Good::alone(with_one_connection(&server));
    let alone = median();
    let attackers = good.beside("documents of the console", |good| {
        let attackers = Attackers::start(30, documents);
        good.goes_on(MEANWHILE);
        let beside = median();
        println!("a probe took {beside:?}, alone {alone:?} (medians)");
        assert!(beside <= alone.max(FLOOR) * TIMES, "{beside:?}, alone {alone:?}");
        attackers
    });
    attackers.end();
    good.end();
    block_on(server.stop());
}

/// On a connection of its own, asks so often for the same at a time.
fn ask_at_once(server: &Server, request: &Request, count: u32, answer: Kind) {
    let (mut raw, mut requests) = (Raw::greeted(server), Vec::new());
    (0..count).for_each(|id| request.encode(&mut requests, id));
    raw.send_along(&requests);
    for _ in 0..count {
        assert_eq!(raw.next().unwrap().1, answer as u8);
    }
}

fn gzip(pieces: usize, piece: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    (0..pieces).for_each(|_| packed.write_all(piece).unwrap());
    packed.finish().unwrap()
}

/// What a sender of points hears who sends this body by gzip.
fn post(to: SocketAddr, body: &[u8]) -> String {
    let mut raw = Raw::to(to);
    let len = body.len();
    let head = format!(
        "POST /write HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: {len}\r\n\r\n"
    );
    raw.send(head.as_bytes()).unwrap();
    // Who is refused early is told so without having been read to the end.
    let _ = raw.send(body);
    String::from_utf8_lossy(&raw.all()).into_owned()
}

fn with_series(node: NodeConfig, limits: SeriesLimits) -> (Server, SocketAddr) {
    let node = block_on(Node::in_memory(&Env::real(), node)).unwrap();
    let series = SeriesConfig { http: Some(loopback()), limits, ..SeriesConfig::default() };
    let config = ServerConfig { listen: vec![loopback()], series, ..ServerConfig::default() };
    let server = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap();
    let http = server.series_addresses().http.unwrap();
    (server, http)
}

#[test]
fn bodies_that_are_small_and_become_large_hold_nobody_up() {
    let (server, http) = with_series(NodeConfig::default(), SeriesLimits::default());
    let good = Good::alone(with_one_connection(&server));
    let empty = gzip(0, b"");
    let members = empty.repeat((30 << 20) / empty.len());
    let lines = gzip(32, &b"\n".repeat(1 << 20));
    assert!(lines.len() < 65_000, "{} bytes", lines.len());
    for (what, body) in [("empty members of gzip", members), ("millions of bad lines", lines)] {
        let body = Arc::new(body);
        let sent = body.clone();
        attacked(&good, what, 8, move || drop(post(http, &sent)));
        assert!(post(http, &body).starts_with("HTTP/1.1 413"), "{what}");
    }
    good.end();
    block_on(server.stop());
}

/// Lines that are read, each of which is wrong in its own way.
#[test]
fn bodies_of_lines_that_are_all_wrong_hold_nobody_up() {
    let (server, http) = with_series(NodeConfig::default(), SeriesLimits::default());
    let good = Good::alone(with_one_connection(&server));
    let mut text = String::new();
    (0..500_000).for_each(|number| writeln!(text, "cpu,host=a value=x{number} {number}").unwrap());
    let body = Arc::new(gzip(1, text.as_bytes()));
    let attack = move || assert!(post(http, &body).starts_with("HTTP/1.1 4"));
    attacked(&good, "lines that are all wrong", 4, attack);
    good.end();
    block_on(server.stop());
}

#[test]
fn status_documents_one_upon_the_other_hold_nobody_up() {
    let server = Arc::new(serve(Limits::default()));
    let good = Good::alone(with_one_connection(&server));
    let theirs = server.clone();
    attacked(&good, "status documents one upon the other", 64, move || {
        ask_at_once(&theirs, &Request::Status, 200, Kind::StatusReply);
    });
    good.end();
}

#[test]
fn cuts_of_ranges_hold_nobody_up() {
    const ROWS: u32 = 100_000;
    let server = Arc::new(serve(Limits::default()));
    let db = database(&server);
    for first in (0..ROWS).step_by(10_000) {
        db.transact_blocking(|tr| {
            (first..first + 10_000).for_each(|number| tr.set(number.to_be_bytes(), [b'v'; 100]));
            Ok(())
        })
        .unwrap();
    }
    let good = Good::alone(with_one_connection(&server));
    let theirs = server.clone();
    let cut = Request::SplitPoints { range: KeyRange::new(&b""[..], &b"\xff"[..]), chunk: 1 };
    attacked(&good, "cuts of ranges", 4, move || {
        ask_at_once(&theirs, &cut, 32, Kind::SplitPointsReply);
    });
    good.end();
}

/// The table of all watches had them wait while it grew, while it was searched for those of clients
/// that had gone, and for each range that was cleared: two seconds, beside a thousand such clients.
#[test]
fn watches_without_number_hold_nobody_up() {
    const EACH: u32 = 20_000;
    let server = Arc::new(serve(Limits::default()));
    let db = database(&server);
    let version = db.create_transaction().get_read_version().wait().unwrap();
    let good = Good::alone(with_one_connection(&server));
    let next = Arc::new(AtomicU64::new(0));
    let theirs = server.clone();
    let before = server.figures().connections;
    attacked(&good, "watches without number", 8, move || {
        let (mut raw, mut requests) = (Raw::greeted(&theirs), Vec::new());
        for id in 0..EACH {
            let key = next.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let key = Bytes::copy_from_slice(&key.to_be_bytes());
            Request::Watch { key, value: None, version }.encode(&mut requests, id);
        }
        // What is answered stands behind all of them.
        Request::Status.encode(&mut requests, EACH);
        raw.send_along(&requests);
        assert_eq!(raw.next().unwrap().1, Kind::StatusReply as u8);
        db.transact_blocking(|tr| {
            tr.clear_range(b"\xf0", b"\xf0\x01");
            Ok(())
        })
        .unwrap();
    });
    // Nobody stays for what it watched.
    let env = Env::real();
    let ended = env.now();
    while server.figures().connections > before + 2 {
        assert!(env.now() - ended < PATIENCE, "{:?}", server.figures());
        block_on(env.sleep(Duration::from_millis(10)));
    }
    good.end();
}

/// As any web page may send them to every port of lines.
#[test]
fn forms_of_web_pages_hold_nobody_up() {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let (resp, opentsdb, graphite) = (Some(loopback()), Some(loopback()), Some(loopback()));
    let series = SeriesConfig { resp, opentsdb, graphite, ..SeriesConfig::default() };
    let config = ServerConfig { listen: vec![loopback()], series, ..ServerConfig::default() };
    let server = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap();
    let at = server.series_addresses();
    let ports = [at.resp, at.opentsdb, at.graphite].map(Option::unwrap);
    let good = Good::alone(with_one_connection(&server));
    let lines = "put m 1 1 a=1\n+m a=1\r\n:1\r\n:1\r\nm;a=1 1 1\n".repeat(2_000);
    let form = Arc::new(format!("POST / HTTP/1.1\r\nHost: x\r\n\r\n{lines}"));
    attacked(&good, "forms of web pages", 16, move || {
        for port in ports {
            let mut raw = Raw::to(port);
            // Who is closed at the verb can't send the rest.
            let _ = raw.send(form.as_bytes());
            assert!(raw.all().is_empty(), "nothing is said to who speaks another language");
        }
    });
    good.end();
    block_on(server.stop());
}

#[test]
fn greetings_that_make_no_sense_hold_nobody_up() {
    let server = Arc::new(serve(Limits::default()));
    let good = Good::alone(with_one_connection(&server));
    let theirs = server.clone();
    attacked(&good, "greetings that make no sense", 16, move || {
        let mut raw = Raw::connect(&theirs);
        let _ = raw.send(&[b'x'; 64]);
        raw.all();
    });
    good.end();
}

/// They filled the memory of rows, and then nobody could write.
#[test]
fn series_without_number_leave_keys_room() {
    const ROOM: u64 = 48 << 20;
    let node = NodeConfig { memory_bytes: Some(ROOM), ..NodeConfig::default() };
    let limits =
        SeriesLimits { memory: 4 << 20, stored: Some(ROOM / 2), ..SeriesLimits::default() };
    let (server, http) = with_series(node, limits);
    let good = Good::alone(with_one_connection(&server));
    let mut told = String::new();
    good.beside("series without number", |_| {
        for part in 0..6 {
            let mut text = String::new();
            for number in 0..30_000 {
                writeln!(text, "cpu,host=h{part}x{number} value=1 1").unwrap();
            }
            told = post(http, &gzip(1, text.as_bytes()));
        }
    });
    assert!(told.starts_with("HTTP/1.1 4") && told.contains("series"), "{told}");
    good.end();
    block_on(server.stop());
}

/// What rows of series take besides keys and values was not counted: they had more than all.
#[test]
fn rows_of_series_without_number_leave_keys_room() {
    const ROOM: u64 = 48 << 20;
    let node = NodeConfig { memory_bytes: Some(ROOM), ..NodeConfig::default() };
    let limits = SeriesLimits { stored: Some(ROOM / 2), ..SeriesLimits::default() };
    let (server, http) = with_series(node, limits);
    let good = Good::alone(with_one_connection(&server));
    let env = Env::real();
    let mut told = String::new();
    good.beside("rows of series without number", |_| {
        for part in 0..40 {
            let mut text = String::new();
            for number in 0..2_000 {
                writeln!(text, "cpu,host=h{part}x{number} value=1 1").unwrap();
            }
            told = post(http, &gzip(1, text.as_bytes()));
            if !told.starts_with("HTTP/1.1 204") {
                break;
            }
            // It is looked at once a second, and a sender makes no more than so many in one.
            block_on(env.sleep(Duration::from_millis(200)));
        }
    });
    assert!(told.starts_with("HTTP/1.1 503") && told.contains("bytes of series"), "{told}");
    good.end();
    block_on(server.stop());
}
