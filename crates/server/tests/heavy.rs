//! A request that takes long holds up nobody but others of its kind.
//!
//! 16 connections that asked for status documents all the time once made a commit take 550 ms
//! instead of 0.7, and four that cut ranges 245 ms: the threads that serve sockets carried them
//! out. Here such a request doesn't end at all until it is told to, so that whoever depends on it
//! hangs.

mod common;

use common::around::{Altered, Around};
use common::*;
use plinth_client::{Database, Endpoint};
use plinth_env::reply::Reply;
use plinth_env::sync::{First, race};
use plinth_env::{Env, block_on};
use plinth_pipeline::{InProcess, Node, NodeConfig};
use plinth_proto::Request;
use plinth_proto::frame::{Kind, NO_ID};
use plinth_server::Limits;
use plinth_types::{Bytes, KeyRange};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Whoever waits for longer waits for good.
const PATIENCE: Duration = Duration::from_secs(60);

/// An endpoint whose long requests block their thread until they are let go.
struct Slow {
    inner: InProcess,
    holds: Mutex<bool>,
    let_go: Condvar,
    carried_out: AtomicUsize,
}

impl Slow {
    fn over(node: &Arc<Node>) -> Arc<Self> {
        let (holds, let_go, carried_out) = (Mutex::new(true), Condvar::new(), AtomicUsize::new(0));
        Arc::new(Self { inner: node.endpoint(), holds, let_go, carried_out })
    }

    fn block(&self) {
        self.carried_out.fetch_add(1, Ordering::Relaxed);
        drop(self.let_go.wait_while(self.holds.lock().unwrap(), |holds| *holds).unwrap());
    }

    fn let_go(&self) {
        *self.holds.lock().unwrap() = false;
        self.let_go.notify_all();
    }
}

impl Around for Slow {
    fn inner(&self) -> &InProcess {
        &self.inner
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.block();
        self.inner.split_points(range, chunk)
    }

    fn status_json(&self) -> Reply<String> {
        self.block();
        self.inner.status_json()
    }
}

fn node() -> Arc<Node> {
    block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap()
}

fn fill(db: &Database) {
    db.transact_blocking(|tr| {
        (0..5000_u32).for_each(|number| tr.set(number.to_be_bytes(), [b'v'; 100]));
        Ok(())
    })
    .unwrap();
}

fn within_patience(what: &str, work: impl Future) {
    let patience = Env::real();
    let ended = block_on(race(work, patience.sleep(PATIENCE)));
    assert!(matches!(ended, First::Left(_)), "{what} waits for requests of others");
}

#[test]
fn whoever_reads_and_commits_does_not_wait_for_status_documents_and_cuts_of_ranges() {
    let node = node();
    let slow = Slow::over(&node);
    let server = serve_endpoint(Arc::new(Altered(slow.clone())), Limits::default());
    fill(&Database::new(Arc::new(node.endpoint())));
    let cut = Request::SplitPoints { range: KeyRange::new(&b""[..], &b"\xff"[..]), chunk: 1 };
    let mut askers: Vec<_> = (0..32).map(|_| Raw::greeted(&server)).collect();
    for (number, asker) in askers.iter_mut().enumerate() {
        let request = if number % 2 == 0 { &cut } else { &Request::Status };
        asker.ask(1, request).unwrap();
    }
    let db = database(&server);
    within_patience("whoever commits", async {
        for number in 0..100_u32 {
            db.transact(async |tr| {
                tr.get(number.to_be_bytes()).await?;
                tr.set(b"good", number.to_be_bytes());
                Ok(())
            })
            .await
            .unwrap();
        }
    });
    // One at a time, however many threads there are.
    assert!(slow.carried_out.load(Ordering::Relaxed) <= 1);
    slow.let_go();
    for (number, asker) in askers.iter_mut().enumerate() {
        let expected = if number % 2 == 0 { Kind::SplitPointsReply } else { Kind::StatusReply };
        let (id, kind, _) = asker.next().unwrap();
        assert_eq!((id, kind), (1, expected as u8));
    }
}

#[test]
fn status_documents_are_shared_by_those_who_ask_for_them_all_the_time() {
    const ASKED: u32 = 500;
    let node = node();
    let slow = Slow::over(&node);
    slow.let_go();
    let server = serve_endpoint(Arc::new(Altered(slow.clone())), Limits::default());
    let env = Env::real();
    let began = env.now();
    let mut askers: Vec<_> = (0..4).map(|_| Raw::greeted(&server)).collect();
    for asker in &mut askers {
        let mut requests = Vec::new();
        (0..ASKED).for_each(|id| Request::Status.encode(&mut requests, id));
        asker.send_along(&requests);
    }
    for asker in &mut askers {
        for _ in 0..ASKED {
            let (id, kind, body) = asker.next().unwrap();
            assert!(id != NO_ID && kind == Kind::StatusReply as u8);
            assert!(body.starts_with(b"{"));
        }
    }
    let passed = (env.now() - began).as_millis() as usize;
    let made = slow.carried_out.load(Ordering::Relaxed);
    // Ten at once and one each 50 ms, of which each may find one that is being made and begun too
    // early.
    assert!(made <= 2 * (11 + passed / 50), "{made} were made within {passed} ms");
}

#[test]
fn what_a_client_that_has_gone_asked_for_is_not_carried_out() {
    let node = node();
    let slow = Slow::over(&node);
    let server = serve_endpoint(Arc::new(Altered(slow.clone())), Limits::default());
    fill(&Database::new(Arc::new(node.endpoint())));
    let cut = Request::SplitPoints { range: KeyRange::new(&b""[..], &b"\xff"[..]), chunk: 1 };
    let mut gone = Raw::greeted(&server);
    (0..50).for_each(|id| gone.ask(id, &cut).unwrap());
    let env = Env::real();
    within_patience("the first", async {
        while slow.carried_out.load(Ordering::Relaxed) == 0 {
            env.sleep(Duration::from_millis(1)).await;
        }
    });
    drop(gone);
    within_patience("its end", async {
        while server.figures().connections > 0 {
            env.sleep(Duration::from_millis(1)).await;
        }
    });
    slow.let_go();
    let mut other = Raw::greeted(&server);
    other.ask(1, &cut).unwrap();
    assert_eq!(other.next().map(|(_, kind, _)| kind), Some(Kind::SplitPointsReply as u8));
    assert_eq!(slow.carried_out.load(Ordering::Relaxed), 2);
}
