//! Whatever clients do, the memory that they cost the server stays within its bounds.
//!
//! What is dangerous isn't what clients send but what they are owed: a hundred thousand requests of
//! sixty bytes for ranges of a version that is yet to come once waited together, were all answered
//! when it came, and took gigabytes.

mod common;
#[path = "../../pipeline/tests/common/tools.rs"]
mod tools;

use common::around::{Altered, Around};
use common::*;
use plinth_client::{Database, Endpoint, ReadVersionRequest};
use plinth_env::reply::{Promise, Reply, promise};
use plinth_env::{Env, block_on};
use plinth_pipeline::{InProcess, Node, NodeConfig};
use plinth_proto::frame::{self, Kind, NO_ID};
use plinth_proto::{Hello, ReadVersion, Request, reply};
use plinth_server::{Limits, Server};
use plinth_types::{Bytes, KeyList, KeySelector, KeySpace, RangeRead, RangeResult, Version};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn node() -> Arc<Node> {
    block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap()
}

/// Far beyond what anything here takes: who waits for longer waits for good, and a test that hangs
/// says nothing.
const PATIENCE: Duration = Duration::from_secs(120);

#[track_caller]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let env = Env::real();
    let end = env.now() + PATIENCE;
    while !is_so() {
        assert!(env.now() < end, "what is waited for has not come about in {PATIENCE:?}");
        block_on(env.sleep(Duration::from_millis(2)));
    }
}

/// Writes rows of 116 bytes.
fn fill(db: &Database, rows: u32) {
    db.transact_blocking(|tr| {
        (0..rows).for_each(|number| tr.set(number.to_be_bytes(), [b'v'; 112]));
        Ok(())
    })
    .unwrap();
}

/// A read of all rows.
fn range(version: Version) -> Request {
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(&b""[..]),
        end: KeySelector::first_greater_or_equal(&b"\xff"[..]),
        limit: usize::MAX,
        target_bytes: usize::MAX,
        reverse: false,
    };
    Request::GetRange { version, space: KeySpace::Normal, read }
}

fn frames(request: &Request, count: u32) -> Vec<u8> {
    let mut frames = Vec::new();
    (0..count).for_each(|id| request.encode(&mut frames, id));
    frames
}

/// An endpoint whose ranges are answered when they are told to be, all together.
struct Held {
    inner: InProcess,
    waiting: Mutex<Vec<(Version, RangeRead, Promise<RangeResult>)>>,
}

impl Held {
    fn over(node: &Arc<Node>) -> Arc<Self> {
        Arc::new(Self { inner: node.endpoint(), waiting: Mutex::default() })
    }

    fn waiting(&self) -> usize {
        self.waiting.lock().unwrap().len()
    }

    /// Answers all of them, and has a look after each.
    fn release(&self, mut look: impl FnMut()) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        for (version, read, promise) in waiting {
            promise.send(self.inner.get_range(version, KeySpace::Normal, &read).wait());
            look();
        }
    }
}

impl Around for Held {
    fn inner(&self) -> &InProcess {
        &self.inner
    }

    fn get_range(&self, version: Version, _: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        let (promise, reply) = promise();
        self.waiting.lock().unwrap().push((version, read.clone(), promise));
        reply
    }
}

fn read_version(endpoint: &dyn Endpoint) -> Version {
    endpoint.read_version(ReadVersionRequest::default()).wait().unwrap().version
}

#[test]
fn twenty_thousand_ranges_of_a_version_to_come_are_answered_as_the_client_takes_them() {
    const ASKED: u32 = 20_000;
    let node = node();
    let near = Arc::new(node.endpoint());
    let server = serve_endpoint(near.clone(), Limits::default());
    let db = Database::new(near.clone());
    fill(&db, 100);
    let version = read_version(&*near) + 400_000;
    let mut raw = Raw::greeted(&server);
    raw.send_along(&frames(&range(version), ASKED));
    // As many as may be owed at a time.
    wait_until(|| server.figures().ranges >= 300);
    while read_version(&*near) < version {
        db.transact_blocking(|tr| {
            tr.set("other", "x");
            Ok(())
        })
        .unwrap();
    }
    let mut most = 0;
    for _ in 0..100 {
        block_on(Env::real().sleep(Duration::from_millis(2)));
        most = most.max(server.buffered_bytes());
    }
    let carried_out = server.figures().ranges;
    assert!(
        carried_out < 3_000,
        "{carried_out} were carried out although nobody takes the answers"
    );
    assert!(most < 16 << 20, "{most} bytes were held");
    let (mut missing, mut rows) = (vec![true; ASKED as usize], 0);
    for _ in 0..ASKED {
        let (id, kind, body) = raw.next().expect("the connection lives");
        assert!(std::mem::take(&mut missing[id as usize]), "{id} is answered twice");
        if kind == Kind::GetRangeReply as u8 {
            rows += reply::get_range(&Bytes::from(body)).unwrap().rows.len();
        } else {
            // On a slow machine the version may be too old in the end.
            assert_eq!(reply::failure(&body).code(), 1007);
        }
    }
    assert!(rows >= 300 * 100, "{rows} rows");
    wait_until(|| server.buffered_bytes() == 0);
}

#[test]
fn what_all_are_owed_together_is_bounded_and_who_holds_the_most_is_cut_off() {
    const CLIENTS: usize = 20;
    const EACH: u32 = 60;
    const BOUND: usize = 8 << 20;
    let node = node();
    let held = Held::over(&node);
    let server = serve_endpoint(
        Arc::new(Altered(held.clone())),
        Limits { buffered_bytes: BOUND, ..Limits::default() },
    );
    fill(&Database::new(Arc::new(node.endpoint())), 2000);
    let request = frames(&range(read_version(&held.inner)), EACH);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Raw::greeted(&server)).collect();
    clients.iter_mut().for_each(|client| client.send(&request).unwrap());
    wait_until(|| held.waiting() == CLIENTS * EACH as usize);
    let mut most = 0;
    held.release(|| most = most.max(server.buffered_bytes()));
    assert!(most <= 3 * BOUND, "{most} bytes were held of {BOUND}");
    wait_until(|| server.figures().cut_off > 0 && server.buffered_bytes() <= BOUND);
    // Somebody who comes now is served as if nothing had been.
    let mut other = Raw::greeted(&server);
    other.ask(1, &Request::Ping).unwrap();
    assert_eq!(other.next().map(|(id, ..)| id), Some(1));
    let mut whole = 0;
    for mut client in clients {
        let mut answers = 0;
        while answers < EACH {
            match client.next() {
                Some((id, kind, _)) if id < EACH && kind == Kind::GetRangeReply as u8 => {
                    answers += 1
                }
                // On a slow machine the version may be too old in the end.
                Some((_, _, body)) if reply::failure(&body).code() == 1007 => answers += 1,
                _ => break,
            }
        }
        whole += usize::from(answers == EACH);
    }
    // Somebody's answers may all have left before he was cut off, and somebody hears that he is
    // before he is counted.
    wait_until(|| whole + server.figures().cut_off as usize >= CLIENTS);
    let cut_off = server.figures().cut_off as usize;
    assert!(cut_off < CLIENTS, "{whole} were answered, {cut_off} cut off");
}

#[test]
fn a_client_that_vanishes_is_forgotten_and_what_it_asked_is_counted_until_it_is_answered() {
    const ASKED: u32 = 100;
    let node = node();
    let held = Held::over(&node);
    let server = serve_endpoint(Arc::new(Altered(held.clone())), Limits::default());
    fill(&Database::new(Arc::new(node.endpoint())), 2000);
    let mut client = Raw::greeted(&server);
    client.send(&frames(&range(read_version(&held.inner)), ASKED)).unwrap();
    wait_until(|| held.waiting() == ASKED as usize);
    drop(client);
    wait_until(|| server.figures().connections == 0);
    let requests = server.buffered_bytes();
    assert!((1..ASKED as usize * 1000).contains(&requests), "{requests} bytes");
    held.release(|| {
        assert!(server.buffered_bytes() <= requests, "answers that nobody takes are kept")
    });
    assert_eq!(server.buffered_bytes(), 0);
}

#[test]
fn half_requests_of_a_few_bytes_cost_next_to_nothing() {
    let server = serve(Limits::default());
    let mut key = KeyList::new();
    key.push(&[b'k'; 200]);
    let mut frame = Vec::new();
    Request::GetMany { version: 1, space: KeySpace::Normal, keys: key }.encode(&mut frame, 1);
    let (first, second) = frame.split_at(100);
    let mut clients: Vec<_> = (0..500).map(|_| Raw::greeted(&server)).collect();
    clients.iter_mut().for_each(|client| client.send(first).unwrap());
    let mut hello = Vec::new();
    Hello::new("", "raw").encode(&mut hello);
    let each = hello.len() + first.len();
    wait_until(|| server.figures().bytes_in == 500 * each as u64);
    assert_eq!(server.buffered_bytes(), 0);
    for client in &mut clients {
        client.send(second).unwrap();
        assert_eq!(client.next().map(|(id, ..)| id), Some(1));
    }
    assert_eq!(server.figures().cut_off, 0);
}

#[test]
fn large_half_requests_are_bounded_together_and_those_cut_off_are_told_why() {
    const CLIENTS: usize = 64;
    const BOUND: usize = 8 << 20;
    const SENT: usize = 512 << 10;
    let server = serve(Limits { buffered_bytes: BOUND, ..Limits::default() });
    let mut frame = Vec::new();
    Request::Ping.encode(&mut frame, 5);
    frame.resize(700 << 10, 0);
    frame[frame::KIND] = 99;
    frame::finish(&mut frame, 0);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Raw::greeted(&server)).collect();
    clients.iter_mut().for_each(|client| client.send(&frame[..SENT]).unwrap());
    // No more than these fit.
    let fit = BOUND / SENT;
    wait_until(|| {
        server.figures().cut_off as usize >= CLIENTS - fit && server.buffered_bytes() <= BOUND
    });
    let mut served = 0;
    for client in &mut clients {
        // To who was cut off a while ago this may fail.
        let _ = client.send(&frame[SENT..]);
        let (id, error) = client.failure();
        if id == NO_ID {
            assert_eq!(error.code(), 1026);
            assert!(error.detail().unwrap().contains("short of memory"), "{error}");
            assert_eq!(client.next(), None);
        } else {
            assert!(id == 5 && error.detail().unwrap().contains("kind 99"), "{error}");
            served += 1;
        }
    }
    assert!((1..=fit).contains(&served), "{served} were served");
    assert_eq!(server.figures().cut_off as usize, CLIENTS - served);
    wait_until(|| server.buffered_bytes() == 0);
    assert!(status_of(&server).contains(&format!("\"connections_cut_off\":{}", CLIENTS - served)));
}

/// The status document as a client gets it.
fn status_of(server: &Server) -> String {
    remote(server).status_json().wait().unwrap()
}

/// What a row has that is watched.
static VALUE: [u8; 60_000] = [b'w'; 60_000];

fn write_watched(node: &Arc<Node>) {
    let write = |tr: &plinth_client::Transaction| {
        tr.set("watched", &VALUE[..]);
        Ok(())
    };
    Database::new(Arc::new(node.endpoint())).transact_blocking(write).unwrap();
}

/// A watch of that row, which holds a copy of the value and never fires.
fn watch() -> Request {
    let value = Some(Bytes::from_static(&VALUE));
    Request::Watch { key: Bytes::from_static(b"watched"), value, version: 1 }
}

/// Returns once what this client has asked for is carried out, and what it holds is counted: which
/// is done when the connection has had its turns, so many at most.
fn see_counted(client: &mut Raw) {
    const TURNS: u32 = 16;
    for id in 1_000_000..=1_000_000 + TURNS {
        client.ask(id, &Request::Ping).unwrap();
        assert_eq!(client.next().map(|(id, kind, _)| (id, kind)), Some((id, Kind::Pong as u8)));
    }
}

#[test]
fn watches_are_held_and_only_who_holds_the_most_is_cut_off() {
    const BOUND: usize = 8 << 20;
    let node = node();
    write_watched(&node);
    let limits = Limits { buffered_bytes: BOUND, ..Limits::default() };
    let server = serve_endpoint(Arc::new(node.endpoint()), limits);
    let mut modest: Vec<_> = (0..10).map(|_| Raw::greeted(&server)).collect();
    for client in &mut modest {
        client.ask(0, &watch()).unwrap();
        see_counted(client);
    }
    let theirs = server.buffered_bytes();
    assert!((10 * VALUE.len()..11 * VALUE.len()).contains(&theirs), "{theirs} bytes");
    let mut greedy = Raw::greeted(&server);
    // To who was cut off a while ago this may fail.
    let _ = greedy.send(&frames(&watch(), 200));
    let (id, error) = greedy.failure();
    assert_eq!((id, error.code()), (NO_ID, 1026), "{error}");
    for client in &mut modest {
        see_counted(client);
    }
    assert_eq!(server.figures().cut_off, 1);
    wait_until(|| server.buffered_bytes() == theirs);
    drop(modest);
    wait_until(|| server.buffered_bytes() == 0);
}

#[test]
fn while_memory_is_tight_a_connection_has_one_request_under_way() {
    const BOUND: usize = 2 << 20;
    // All answers together have room.
    const ASKED: usize = 20;
    let node = node();
    write_watched(&node);
    let held = Held::over(&node);
    let server = serve_endpoint(
        Arc::new(Altered(held.clone())),
        Limits { buffered_bytes: BOUND, ..Limits::default() },
    );
    let mut holder = Raw::greeted(&server);
    holder.send(&frames(&watch(), 20)).unwrap();
    see_counted(&mut holder);
    let before = server.buffered_bytes();
    assert!((BOUND / 2 + 1..BOUND).contains(&before), "{before} bytes");
    let mut client = Raw::greeted(&server);
    client.send(&frames(&range(read_version(&held.inner)), ASKED as u32)).unwrap();
    wait_until(|| held.waiting() > 0);
    // Time for the others.
    see_counted(&mut holder);
    block_on(Env::real().sleep(Duration::from_millis(20)));
    assert_eq!(held.waiting(), 1);
    drop(holder);
    wait_until(|| server.buffered_bytes() < BOUND / 2);
    held.release(|| {});
    wait_until(|| held.waiting() == ASKED - 1);
    held.release(|| {});
    (0..ASKED).for_each(|_| assert!(client.next().is_some_and(|(id, ..)| (id as usize) < ASKED)));
}

/// A request of forty bytes may ask for a thousand of them, each of which waits by itself.
#[test]
fn starts_that_are_asked_for_together_are_each_charged_while_they_are_held_back() {
    let node = node();
    let near = Database::new(Arc::new(node.endpoint()));
    tools::stop_tag(&near, "slow");
    let limits = Limits { in_flight_bytes: 1 << 20, ..Limits::default() };
    let server = serve_endpoint(Arc::new(node.endpoint()), limits);
    let mut client = Raw::greeted(&server);
    let tags = vec![Bytes::from_static(b"slow")];
    let request =
        Request::ReadVersion(ReadVersion { priority: 1, count: 1000, tags, ..Default::default() });
    client.send(&frames(&request, 20)).unwrap();
    wait_until(|| tools::waiting_to_begin(&near) > 0);
    // Time for the others.
    block_on(Env::real().sleep(Duration::from_millis(20)));
    let waiting = tools::waiting_to_begin(&near);
    assert!((1000..=3000).contains(&waiting), "{waiting} wait");
}

#[test]
fn one_watch_too_many_is_told_the_limit() {
    let server = serve(Limits { watches: 10, ..Limits::default() });
    let mut client = Raw::greeted(&server);
    let watch = |id: u32| Request::Watch {
        key: Bytes::from(id.to_be_bytes().to_vec()),
        value: None,
        version: 1,
    };
    (0..11).for_each(|id| client.ask(id, &watch(id)).unwrap());
    let (id, error) = client.failure();
    assert_eq!((id, error.code()), (10, 1032));
    assert!(error.detail().unwrap().contains("at most 10"), "{error}");
    // One that is taken back makes room for another.
    client.ask(3, &Request::Cancel).unwrap();
    assert_eq!(client.failure().1.code(), 1101);
    client.ask(10, &watch(10)).unwrap();
    client.ask(11, &Request::Ping).unwrap();
    assert_eq!(client.next().map(|(id, kind, _)| (id, kind)), Some((11, Kind::Pong as u8)));
}
