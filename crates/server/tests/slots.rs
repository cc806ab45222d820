//! Connections that say nothing don't keep others out, however many there are and however often
//! they are made anew.
//!
//! 10,000 connections that never greeted once locked new clients out, 128 half requests made
//! `/health` unanswerable, so that a probe would have killed a healthy server, and half a line was
//! waited for until its sender went away.

mod common;

use common::around::{Altered, Around};
use common::beside::Good;
use common::peer::{Peer, ask_at};
use common::*;
use plinth_client::{Database, Endpoint, TransactionOption};
use plinth_env::reply::{Promise, Reply, promise};
use plinth_env::simulated::Simulation;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Stream, block_on};
use plinth_pipeline::{InProcess, Node, NodeConfig};
use plinth_proto::Request;
use plinth_proto::frame::Kind;
use plinth_server::{Limits, SeriesConfig, Server, ServerConfig};
use plinth_types::quotas::{Bounds, Of, Whom};
use plinth_types::rights::Subject;
use plinth_types::{CommitReply, CommitRequest, Error};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};
use std::time::Duration;

/// How long somebody who is refused waits for that, in a test that goes on if not.
const MOMENT: Duration = Duration::from_millis(100);

#[test]
fn connections_that_never_greet_make_room_for_those_who_do() {
    const MOST: usize = 16;
    let server = serve(Limits { connections: MOST, ..Limits::default() });
    let good = Good::alone(with_one_connection(&server));
    let mut half_open = Vec::new();
    let mut others = Vec::new();
    good.beside("connections that never greet", |good| {
        // More of them come between any two that say what they want.
        for number in 0..10 {
            half_open.extend((0..50).map(|_| Raw::connect(&server)));
            let mut client = Raw::greeted(&server);
            client.ask(number, &Request::Ping).unwrap();
            assert_eq!(client.next().map(|(id, ..)| id), Some(number));
            others.push(client);
        }
        half_open.extend((0..50).map(|_| Raw::connect(&server)));
        good.goes_on(100);
    });
    for (number, client) in (100..).zip(&mut others) {
        client.ask(number, &Request::Ping).unwrap();
        assert_eq!(client.next().map(|(id, ..)| id), Some(number), "who has greeted stays");
    }
    good.end();
    assert!(server.figures().connections <= 2 * MOST as u64, "{:?}", server.figures());
}

/// Whoever had greeted kept its place, and an operator at the same address found none.
#[test]
fn connections_that_only_hold_on_make_room_for_those_who_ask() {
    const MOST: usize = 16;
    let silence = Duration::from_secs(6);
    let server = serve(Limits { connections: MOST, silence, ..Limits::default() });
    let good = Good::alone(with_one_connection(&server));
    let mut watching = Raw::greeted(&server);
    let (key, value) = (b"held".as_slice().into(), None);
    watching.ask(1, &Request::Watch { key, value, version: 0 }).unwrap();
    let mut idle = Vec::new();
    while server.figures().connections < MOST as u64 {
        idle.push(Raw::greeted(&server));
    }
    assert!(idle.len() > MOST / 2);
    let mut others = Vec::new();
    block_on(Env::real().sleep(Duration::from_millis(1500)));
    good.beside("connections that only hold on", |good| {
        for number in 0..idle.len() as u32 {
            let mut client = Raw::greeted(&server);
            client.ask(number, &Request::Ping).unwrap();
            assert_eq!(client.next().map(|(id, ..)| id), Some(number));
            others.push(client);
        }
        good.goes_on(100);
    });
    watching.ask(2, &Request::Ping).unwrap();
    assert_eq!(watching.next().map(|(id, ..)| id), Some(2), "who waits for something stays");
    for told in &mut idle {
        let (_, kind, why) = told.next().expect("last words");
        assert_eq!(kind, Kind::Failure as u8, "{why:?}");
    }
    good.end();
}

#[test]
fn a_probe_is_answered_however_many_half_requests_there_are() {
    let (server, address) = serve_http();
    let good = Good::alone(with_one_connection(&server));
    let mut half = Vec::new();
    good.beside("half requests of HTTP", |good| {
        for path in ["/health", "/metrics", "/health"] {
            for _ in 0..200 {
                let mut raw = Raw::to(address);
                // One that had to make room already can't be written to.
                drop(raw.send(b"GET /health HTTP/1.1\r\nHost: "));
                half.push(raw);
            }
            let mut probe = Raw::to(address);
            probe.send(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
            let answer = String::from_utf8(probe.all()).unwrap();
            assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer:?}");
        }
        good.goes_on(100);
    });
    good.end();
}

/// The same on the port of series: there a question may take as long as it has to, so that nobody
/// makes room who is being answered.
#[test]
fn a_probe_of_series_is_answered_however_many_requests_there_are() {
    let (stuck, server) = serve_series(Limits::default());
    let address = server.series_addresses().http.unwrap();
    let ask = |request: &str| {
        let mut asker = Peer::to(address);
        asker.send(request);
        asker
    };
    let probe = |path: &str| {
        let mut probe = Raw::to(address);
        probe.send(format!("GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        String::from_utf8(probe.all()).unwrap()
    };
    let points = |host: &str| {
        let line = format!("cpu,host={host} value=1 1000000000\n");
        format!("POST /write HTTP/1.1\r\nContent-Length: {}\r\n\r\n{line}", line.len())
    };
    assert!(ask(&points("a")).until("\r\n").starts_with("HTTP/1.1 204"));
    let half: Vec<_> = (0..300).map(|_| ask("GET /api/query HTTP/1.1\r\nHost: ")).collect();
    for path in ["/health", "/-/healthy", "/-/ready", "/ready"] {
        assert!(probe(path).starts_with("HTTP/1.1 200 OK\r\n"), "{path}");
    }
    drop(half);
    stuck.is_stuck.store(true, Ordering::Relaxed);
    // Nothing is saved any more, and as many wait for that as there are connections.
    let mut waiting: Vec<_> = (0..300).map(|_| ask(&points("a"))).collect();
    for path in ["/health", "/-/healthy", "/-/ready", "/ready"] {
        let told = probe(path);
        assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {told}");
    }
    // One whose request had not been read yet may have made room, so there come more of them.
    let told = loop {
        waiting.push(ask(&points("a")));
        match ask_at(address, "GET", "/api/v1/query?query=cpu", "", "") {
            (503, told) => break told,
            _ => assert!(waiting.len() < 1000, "there is always a place"),
        }
    };
    assert!(told.contains("there is room for probes alone"), "{told}");
    // Probes that never end make room for each other.
    let half: Vec<_> = (0..50).map(|_| ask("GET /health HTTP/1.1\r\nHost: ")).collect();
    assert!(probe("/health").starts_with("HTTP/1.1 200 OK\r\n"));
    drop(half);
    stuck.let_go();
    drop(waiting);
    block_on(server.stop());
}

async fn send(stream: &mut Stream, bytes: &[u8]) {
    let mut sent = 0;
    let all = poll_fn(|context| {
        while sent < bytes.len() {
            sent += ready!(stream.poll_send(context, &bytes[sent..]))?;
        }
        Poll::Ready(Ok::<_, std::io::Error>(()))
    });
    all.await.unwrap();
}

/// Waits for the end, and says whether it was one in order.
async fn is_at_end(stream: &mut Stream) -> bool {
    let mut buffer = [0; 100];
    loop {
        match poll_fn(|context| stream.poll_receive(context, &mut buffer)).await {
            Ok(len) if len > 0 => {}
            end => return end.is_ok(),
        }
    }
}

#[test]
fn half_a_line_is_not_waited_for_for_ever_and_silence_between_lines_is() {
    let sim = Simulation::new(1);
    let env = sim.process("server");
    let [listen, resp] = [4500, 8282].map(|port| SocketAddr::new(sim.ip(&env), port));
    let server = sim.run_until(async {
        let node = Node::in_memory(&env, NodeConfig::default()).await.unwrap();
        let series = SeriesConfig { resp: Some(resp), ..SeriesConfig::default() };
        let config = ServerConfig { listen: vec![listen], series, ..ServerConfig::default() };
        Server::start(Arc::new(node.endpoint()), config).await.unwrap()
    });
    let client = sim.process("client");
    sim.run_until(async {
        let connect = || async { client.sockets().connect(resp).await.unwrap() };
        let (mut half, mut whole) = (connect().await, connect().await);
        send(&mut half, b"+cpu host=a\r\n:1000\r").await;
        send(&mut whole, b"+cpu host=b\r\n:1000\r\n+1\r\n").await;
        is_at_end(&mut half).await;
        assert!((50..90).contains(&client.now().as_secs()), "{:?}", client.now());
        client.sleep(Duration::from_secs(3600)).await;
        send(&mut whole, b"+SYNC\r\n").await;
        let mut buffer = [0; 100];
        let len = poll_fn(|context| whole.poll_receive(context, &mut buffer)).await.unwrap();
        assert!(len > 0, "whoever sends whole lines may be silent between them");
    });
    sim.run_until(server.stop());
}

/// Whoever waited for his quota counted as one who had just said something, for as long as he owed:
/// had he gone, others made room for newcomers in his place.
#[test]
fn a_sender_that_waits_for_its_quota_makes_room_before_one_that_spoke_later() {
    let sim = Simulation::new(1);
    let env = sim.process("server");
    let [listen, resp] = [4500, 8282].map(|port| SocketAddr::new(sim.ip(&env), port));
    let [over, calm, newcomer] = ["over", "calm", "newcomer"].map(|name| sim.process(name));
    let (node, server) = sim.run_until(async {
        let node = Node::in_memory(&env, NodeConfig::default()).await.unwrap();
        let series = SeriesConfig { resp: Some(resp), ..SeriesConfig::default() };
        let limits = Limits { connections: 2, ..Limits::default() };
        let listen = vec![listen];
        let config = ServerConfig { listen, series, limits, ..ServerConfig::default() };
        (node.clone(), Server::start(Arc::new(node.endpoint()), config).await.unwrap())
    });
    let quota = Whom::User(Subject::parse("address", &sim.ip(&over).to_string()).unwrap());
    let mut bounds = Bounds::default();
    bounds.set(Of::Write, Some(1_000));
    sim.run_until(Database::new(Arc::new(node.endpoint())).transact(async |tr| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.set(quota.key(), bounds.value(0));
        Ok::<_, Error>(())
    }))
    .unwrap();
    sim.run_for(Duration::from_secs(1));
    sim.run_until(async {
        let mut waits = over.sockets().connect(resp).await.unwrap();
        let lines = "+cpu host=a\r\n:1000\r\n+1\r\n".repeat(2_000);
        send(&mut waits, lines.as_bytes()).await;
        over.sleep(Duration::from_secs(1)).await;
        let mut spoke = calm.sockets().connect(resp).await.unwrap();
        send(&mut spoke, b"+cpu host=b\r\n:1000\r\n+1\r\n").await;
        calm.sleep(Duration::from_secs(20)).await;
        let mut buffer = [0; 100];
        let _newcomer = newcomer.sockets().connect(resp).await.unwrap();
        let gone = race(is_at_end(&mut waits), over.sleep(Duration::from_secs(5)));
        assert!(matches!(gone.await, First::Left(_)), "the other one made room");
        send(&mut spoke, b"+SYNC\r\n").await;
        let len = poll_fn(|context| spoke.poll_receive(context, &mut buffer)).await.unwrap();
        assert!(len > 0);
    });
    sim.run_until(server.stop());
}

/// An endpoint whose commits are not answered once it is told so.
struct Stuck {
    inner: InProcess,
    is_stuck: AtomicBool,
    unanswered: Mutex<Vec<Promise<CommitReply>>>,
}

impl Around for Stuck {
    fn inner(&self) -> &InProcess {
        &self.inner
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        if !self.is_stuck.load(Ordering::Relaxed) {
            return self.inner.commit(request);
        }
        let (unkept, reply) = promise();
        self.unanswered.lock().unwrap().push(unkept);
        reply
    }
}

impl Stuck {
    /// What was not answered never is; what comes is.
    fn let_go(&self) {
        self.is_stuck.store(false, Ordering::Relaxed);
        self.unanswered.lock().unwrap().clear();
    }
}

/// A server that takes points on lines, and what keeps it from saving them.
fn serve_series(limits: Limits) -> (Arc<Stuck>, Server) {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let (is_stuck, unanswered) = (AtomicBool::new(false), Mutex::default());
    let stuck = Arc::new(Stuck { inner: node.endpoint(), is_stuck, unanswered });
    let [resp, http] = [Some(loopback()), Some(loopback())];
    let series = SeriesConfig { resp, http, ..SeriesConfig::default() };
    let config =
        ServerConfig { listen: vec![loopback()], series, limits, ..ServerConfig::default() };
    let server = block_on(Server::start(Arc::new(Altered(stuck.clone())), config)).unwrap();
    (stuck, server)
}

/// Two whose first points are saved.
fn two_senders(resp: SocketAddr) -> Vec<Peer> {
    let mut senders: Vec<_> = (0..2).map(|_| Peer::to(resp)).collect();
    for (number, sender) in senders.iter_mut().enumerate() {
        sender.send(&format!("+cpu host={number}\r\n:1000\r\n+1\r\n+SYNC\r\n"));
        assert!(sender.until("\r\n").starts_with("+OK"));
    }
    senders
}

/// While nothing could be saved, those who had made room stayed until their points were: there were
/// more of them than there may be connections, until the memory ended.
#[test]
fn a_sender_that_makes_room_goes_at_once_whatever_it_waits_for() {
    let (stuck, server) = serve_series(Limits { connections: 2, ..Limits::default() });
    let resp = server.series_addresses().resp.unwrap();
    let mut senders = two_senders(resp);
    stuck.is_stuck.store(true, Ordering::Relaxed);
    let first = &mut senders[0];
    first.send("+cpu host=0\r\n:2000\r\n+1\r\n+SYNC\r\n");
    while stuck.unanswered.lock().unwrap().is_empty() {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
    senders[1].send("+cpu host=1\r\n:2000\r\n+1\r\n");
    let _newcomer = Peer::to(resp);
    let gone = race(is_at_end(&mut senders[0].0), Env::real().sleep(Duration::from_secs(60)));
    assert!(matches!(block_on(gone), First::Left(_)), "it waits for what cannot be saved");
    stuck.let_go();
    block_on(server.stop());
}

/// Whoever has said all takes an end in order for the word that all is durable. One that made room
/// for another heard it though nothing of it was.
#[test]
fn a_sender_that_makes_room_is_not_told_that_all_is_durable() {
    let (stuck, server) = serve_series(Limits { connections: 2, ..Limits::default() });
    let resp = server.series_addresses().resp.unwrap();
    let mut senders = two_senders(resp);
    stuck.is_stuck.store(true, Ordering::Relaxed);
    senders[0].send("+cpu host=0\r\n:2000\r\n+1\r\n");
    block_on(poll_fn(|context| senders[0].0.poll_finish(context))).unwrap();
    while stuck.unanswered.lock().unwrap().is_empty() {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
    senders[1].send("+cpu host=1\r\n:2000\r\n+1\r\n");
    block_on(Env::real().sleep(MOMENT));
    let _newcomer = Peer::to(resp);
    assert!(!block_on(is_at_end(&mut senders[0].0)), "what it sent last is not durable");
    stuck.let_go();
    block_on(server.stop());
}

/// What senders have in hand while nothing can be saved was counted nowhere.
#[test]
fn senders_that_cannot_be_saved_are_refused_before_they_take_all_memory() {
    let limits = Limits { buffered_bytes: 4 << 20, ..Limits::default() };
    let (stuck, server) = serve_series(limits);
    let resp = server.series_addresses().resp.unwrap();
    let mut first = Peer::to(resp);
    first.send("+cpu host=0\r\n:1000\r\n+1\r\n+SYNC\r\n");
    assert!(first.until("\r\n").starts_with("+OK"));
    stuck.is_stuck.store(true, Ordering::Relaxed);
    let mut senders = Vec::new();
    let refused = loop {
        let mut sender = Peer::to(resp);
        let number = senders.len();
        let points = (1..=8000).map(|time| format!("+cpu host={number}\r\n:{time}\r\n+1\r\n"));
        sender.send(&(points.collect::<String>() + "+SYNC\r\n"));
        senders.push(sender);
        assert!(number < 500, "nobody is refused");
        let told = race(async { senders[number].answer().await }, Env::real().sleep(MOMENT));
        if let First::Left(told) = block_on(told) {
            break told;
        }
    };
    assert_eq!(refused, "-DB too many points wait to be saved\r\n");
    stuck.let_go();
    drop(senders);
    block_on(server.stop());
}
