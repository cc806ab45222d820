//! Points over sockets: what senders of time series say and hear, and that what they were told is
//! durable is there when the server is not.
//!
//! A sender here is made of bare bytes. What arrived is read behind the server's back, from its
//! database, when the server has ended.

mod common;

use common::*;
use plinth_client::{Database, Endpoint};
use plinth_env::{Env, Stream, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_series::{Direction, Point, SeriesStore, Value};
use plinth_server::{SeriesConfig, Server, ServerConfig};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, ready};

struct Served {
    server: Server,
    endpoint: Arc<dyn Endpoint>,
    at: SeriesConfig,
}

fn start() -> Served {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let endpoint: Arc<dyn Endpoint> = Arc::new(node.endpoint());
    let series = SeriesConfig {
        resp: Some(loopback()),
        udp: Some(loopback()),
        // More than there are is all of them.
        threads: Some(1000),
        opentsdb: Some(loopback()),
        http: Some(loopback()),
        ..SeriesConfig::default()
    };
    let config = ServerConfig { listen: vec![loopback()], series, ..ServerConfig::default() };
    let server = block_on(Server::start(endpoint.clone(), config)).unwrap();
    let at = server.series_addresses();
    Served { server, endpoint, at }
}

impl Served {
    fn resp(&self) -> Sender {
        Sender::to(self.at.resp.unwrap())
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

struct Sender(Stream);

impl Sender {
    fn to(address: SocketAddr) -> Self {
        Self(block_on(Env::real().sockets().connect(address)).unwrap())
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let (bytes, mut sent) = (bytes.as_ref(), 0);
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

    /// One line.
    fn line(&mut self) -> String {
        let mut line = String::new();
        while !line.ends_with('\n') {
            let more = self.receive();
            assert!(!more.is_empty(), "it ends behind {line:?}");
            line += &more;
        }
        line
    }

    /// Says that this is all, and hears the rest.
    fn finish(mut self) -> String {
        block_on(poll_fn(|context| self.0.poll_finish(context))).unwrap();
        let mut all = String::new();
        loop {
            match self.receive() {
                more if more.is_empty() => return all,
                more => all += &more,
            }
        }
    }
}

fn point(time: i64, value: impl Into<Value>) -> Point {
    Point { time, value: value.into() }
}

#[test]
fn what_is_sent_is_there_and_said_to_be() {
    let served = start();
    let mut resp = served.resp();
    resp.send("+cpu.user|cpu.sys host=a os=x\r\n+19700101T000000.000000001\r\n*2\r\n+0.5\r\n:7\r\n+SYNC\r\n");
    assert_eq!(resp.line(), "+OK 2\r\n");
    resp.send("+cpu.user os=x host=a\n:2\n+nan\n");
    assert_eq!(resp.finish(), "");
    let mut opentsdb = Sender::to(served.at.opentsdb.unwrap());
    opentsdb.send("put load 1 1.5 host=b\nput load 2 x host=b\nput load 3 2.5 host=b\nsync\n");
    let told = opentsdb.line() + &opentsdb.finish();
    assert!(
        told.starts_with("put: bad floating point value") && told.ends_with("\nok 2\n"),
        "{told}"
    );
    let found = served.end(&["cpu.user host=a os=x", "cpu.sys host=a os=x", "load host=b"]);
    assert_eq!(found[0], [point(1, 0.5), point(2, f64::NAN)]);
    assert_eq!(found[1], [point(1, 7)]);
    assert_eq!(found[2], [point(1_000_000_000, 1.5), point(3_000_000_000, 2.5)]);
}

#[test]
fn who_sends_nonsense_is_told_and_goes_on_and_others_do_not_notice() {
    let served = start();
    let mut good = served.resp();
    good.send("+m a=1\n:1\n");
    for garbage in
        [&b"\n"[..], b"HELLO there, this is no message\r\n\r\n", b"\xff\xfe\0\x01\n", b"*3\n+x\n"]
    {
        let mut bad = served.resp();
        bad.send(garbage);
        let told = bad.line();
        assert!(told.starts_with("-PARSER ") && told.contains("(line 1)"), "{told}");
        bad.send("+bad a=1\n:5\n:6\n+SYNC\n");
        assert!(bad.line().contains("+OK 1\r\n"), "{garbage:?}");
    }
    let mut endless = served.resp();
    endless.send("x".repeat(1 << 20));
    assert!(endless.line().contains("longer than 16384 bytes"));
    // Nobody reads the answers to this, and the sender is not held up.
    let mut deaf = served.resp();
    deaf.send("+\n+deaf a=1\n:1\n:1\n".repeat(100_000));
    deaf.send("+SYNC\n");
    good.send("+2.5\n+SYNC\n");
    assert_eq!(good.line(), "+OK 1\r\n");
    while !deaf.line().contains("+OK 100000\r\n") {}
    let found = served.end(&["m a=1", "bad a=1"]);
    assert_eq!(found, [[point(1, 2.5)], [point(5, 6)]]);
}

#[test]
fn a_datagram_stands_for_itself_and_what_is_wrong_in_it_spoils_nothing_else() {
    let served = start();
    let env = Env::real();
    let mut sender = env.sockets().datagrams(loopback()).unwrap();
    let to = served.at.udp.unwrap();
    let mut send = |bytes: &[u8]| block_on(sender.send(to, bytes)).unwrap();
    send(b"+u.a|u.b host=a\n:1\n*2\n:1\n:2\n");
    send(b"nonsense\n+u.a host=a\n:2\n:2\n+half host=a\n:3\n");
    send(b"*2\n+u.a host=a\n:7\n:7\n:3\n:3\n");
    // A number of another's dictionary, nothing, garbage, a request that nobody answers, a line
    // without its end.
    for wrong in [&b":7\n:4\n:4\n"[..], b"", &[0xff; 9000], b"+SYNC\n", b"+half host=a\n:5\n:5"] {
        send(wrong);
    }
    // Rows upon rows, as many as a datagram takes.
    let mut many = String::new();
    for time in 100.. {
        let message = format!("+u.a host=a\n:{time}\n:{time}\n");
        if many.len() + message.len() > plinth_env::MAX_DATAGRAM {
            break;
        }
        many += &message;
    }
    send(many.as_bytes());
    let expected = 3 + many.lines().count() / 3;
    let count = || post(&served, "/api/query", "", br#"{"aggregate":{"u.a":"count"}}"#);
    while !count().contains(&format!("+{expected}\r\n")) {}
    let found = served.end(&["u.a host=a", "u.b host=a", "half host=a"]);
    assert_eq!(found[0][..3], [point(1, 1), point(2, 2), point(3, 3)]);
    assert_eq!(
        (found[0].len(), &found[1][..], &found[2][..]),
        (expected, &[point(1, 2)][..], &[][..])
    );
}

#[test]
fn datagrams_are_taken_in_on_loopback_only_unless_the_server_speaks_no_tls_on_purpose() {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let endpoint: Arc<dyn Endpoint> = Arc::new(node.endpoint());
    let config = |without_tls| ServerConfig {
        listen: vec![loopback()],
        series: SeriesConfig { udp: Some(([0, 0, 0, 0], 0).into()), ..SeriesConfig::default() },
        without_tls,
        ..ServerConfig::default()
    };
    let error = block_on(Server::start(endpoint.clone(), config(false))).unwrap_err();
    assert!(error.to_string().contains("datagrams are neither encrypted"), "{error}");
    block_on(block_on(Server::start(endpoint, config(true))).unwrap().stop());
}

#[test]
fn sessions_that_write_one_series_lose_nothing_of_each_other() {
    const EACH: i64 = 20_000;
    let served = start();
    let at = served.at.resp.unwrap();
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let env = Env::real();
            env.spawn("writer", async move {
                let mut sender = Sender::to(at);
                for chunk in 0..EACH / 1000 {
                    let times = (chunk * 1000..(chunk + 1) * 1000).map(|time| time * 3 + writer);
                    sender.send(
                        times
                            .map(|time| format!("+shared a=1\n:{time}\n:{time}\n"))
                            .collect::<String>(),
                    );
                }
                sender.send("+SYNC\n");
                assert_eq!(sender.line(), format!("+OK {EACH}\r\n"));
            })
        })
        .collect();
    for writer in writers {
        writer.wait().unwrap();
    }
    let found = served.end(&["shared a=1"]);
    let expected: Vec<_> = (0..3 * EACH).map(|time| point(time, time)).collect();
    assert!(found[0] == expected, "{} points", found[0].len());
}

#[test]
fn a_stop_keeps_what_was_received_whole() {
    let served = start();
    let mut sender = served.resp();
    sender.send("+m a=1\n:1\n:1\n+SYNC\n");
    assert_eq!(sender.line(), "+OK 1\r\n");
    sender.send("+m|n a=1\n:2\n*2\n:1\n");
    let found = served.end(&["m a=1", "n a=1"]);
    assert_eq!(found, [vec![point(1, 1)], vec![]]);
}

/// What a request with this body is answered.
fn post(served: &Served, path: &str, headers: &str, body: &[u8]) -> String {
    let mut sender = Sender::to(served.at.http.unwrap());
    let len = body.len();
    sender.send(format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {len}\r\n\r\n"
    ));
    sender.send(body);
    let mut all = String::new();
    loop {
        match sender.receive() {
            more if more.is_empty() => return all,
            more => all += &more,
        }
    }
}

#[test]
fn requests_of_influx_and_prometheus_write_points() {
    let served = start();
    let answer = post(
        &served,
        "/write?db=x&precision=s",
        "",
        b"cpu,host=a user=0.5,sys=7i 1\ncpu,host=a user=1 2",
    );
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    let answer = post(
        &served,
        "/api/v2/write?precision=ns",
        "",
        b"cpu,host=a user=1.5 3\ncpu,host=a user=x 4\n",
    );
    let words =
        ["HTTP/1.1 400 ", "application/json", "partial write: 1 points were taken", "(line 2)"];
    assert!(words.iter().all(|word| answer.contains(word)), "{answer}");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, b"gz,host=a v=1i 5\n").unwrap();
    let gzip = gzip.finish().unwrap();
    assert!(
        post(&served, "/write", "Content-Encoding: gzip\r\n", &gzip).starts_with("HTTP/1.1 204 ")
    );
    // A message of one series, as a block of snappy that is one literal.
    let message = b"\x0a\x2a\x0a\x0e\x0a\x08__name__\x12\x02up\x0a\x08\x0a\x03job\x12\x01a\x12\x0e\x09\0\0\0\0\0\0\xf0\x3f\x10\xe8\x07\x18\0";
    let block = [&[message.len() as u8, (message.len() as u8 - 1) << 2], &message[..]].concat();
    let answer = post(&served, "/api/v1/write", "", &block);
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    for (path, headers, body, status) in [
        ("/write", "Origin: http://x\r\n", &b"m,a=1 v=1 1"[..], "403"),
        ("/write", "Content-Encoding: br\r\n", b"x", "415"),
        ("/write", "Content-Encoding: gzip\r\n", b"no gzip", "400"),
        ("/write?precision=year", "", b"m,a=1 v=1 1", "400"),
        ("/api/v1/write", "", b"no snappy", "400"),
        (
            "/api/v1/write",
            "Content-Type: application/x-protobuf;proto=io.prometheus.write.v3.Request\r\n",
            &block,
            "415",
        ),
    ] {
        let answer = post(&served, path, headers, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {headers}: {answer}");
    }
    let names = ["cpu.user host=a", "cpu.sys host=a", "gz.v host=a", "up job=a", "m.v a=1"];
    let found = served.end(&names);
    assert_eq!(found[0], [point(3, 1.5), point(1_000_000_000, 0.5), point(2_000_000_000, 1.0)]);
    assert_eq!(found[1], [point(1_000_000_000, 7)]);
    assert_eq!(
        (&found[2][..], &found[3][..]),
        (&[point(5, 1)][..], &[point(1_000_000_000, 1.0)][..])
    );
    assert_eq!(found[4], []);
}
