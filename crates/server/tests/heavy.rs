//! A request that takes long holds up nobody but others of its kind.
//!
//! 16 connections that asked for status documents all the time once made a commit take 550 ms
//! instead of 0.7, and four that cut ranges 245 ms: the threads that serve sockets carried them
//! out. Here such a request doesn't end at all until it is told to, so that whoever depends on it
//! hangs.

mod common;

use common::around::{Altered, Around};
use common::beside::Good;
use common::*;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, Endpoint, TransactionOption};
use plinth_env::reply::Reply;
use plinth_env::simulated::Simulation;
use plinth_env::sync::{First, race};
use plinth_env::{Env, block_on};
use plinth_pipeline::{InProcess, Node, NodeConfig};
use plinth_proto::Request;
use plinth_proto::frame::{Kind, NO_ID};
use plinth_server::{Limits, Server, ServerConfig};
use plinth_types::{Bytes, Error, KeyRange, system};
use serde_json::Value;
use std::net::SocketAddr;
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
    let good = Good::alone(with_one_connection(&server));
    let mut askers: Vec<_> = (0..32).map(|_| Raw::greeted(&server)).collect();
    good.beside("requests that don't end", |good| {
        for (number, asker) in askers.iter_mut().enumerate() {
            let request = if number % 2 == 0 { &cut } else { &Request::Status };
            asker.ask(1, request).unwrap();
        }
        good.goes_on(100);
    });
    good.end();
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
    // Ten at once and one each second.
    assert!(made <= 11 + passed / 1000, "{made} were made within {passed} ms");
}

/// Who asks a server on a simulated machine for its status, and what it said.
struct Asker {
    env: Env,
    db: Database,
}

impl Asker {
    fn of(sim: &Simulation, name: &str, address: SocketAddr) -> Self {
        let env = sim.process(name);
        let file = ClusterFile::new("plinth", "memory", address);
        let db = Database::new(Arc::new(RemoteEndpoint::connect(&env, file)));
        Self { env, db }
    }

    /// How old the document is that comes, as of when it was asked for; and whether it says that
    /// the database is locked.
    async fn ask(&self, server: &Env) -> (Duration, bool) {
        let asked = server.now();
        let text = self.db.status_json().await.expect("a status");
        let status: Value = serde_json::from_str(&text).expect("JSON");
        let made = status["cluster"]["plinth"]["server"]["uptime_seconds"].as_f64().unwrap();
        let age = asked.saturating_sub(Duration::from_secs_f64(made));
        (age, status["cluster"]["database_locked"] == true)
    }

    /// Locks the database, or unlocks it.
    async fn lock(&self, locks: bool) {
        let change = self.db.transact(async |tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            tr.set_option(TransactionOption::LockAware)?;
            match locks {
                true => tr.set(system::DATABASE_LOCKED, b"0123456789abcdefghijklmnop"),
                false => tr.clear(system::DATABASE_LOCKED),
            }
            Ok::<_, Error>(())
        });
        change.await.expect("it is changed");
    }
}

/// Twenty were made a second.
#[test]
fn a_status_document_is_made_once_a_second_however_many_ask_and_says_what_was_just_done() {
    const SECONDS: u64 = 30;
    let sim = Simulation::new(21);
    let machine = sim.process("server");
    let address = SocketAddr::new(sim.ip(&machine), 4500);
    let (slow, server) = sim.run_until(async {
        let node = Node::in_memory(&machine, NodeConfig::default()).await.unwrap();
        let slow = Slow::over(&node);
        slow.let_go();
        let config =
            ServerConfig { listen: vec![address], without_tls: true, ..ServerConfig::default() };
        let server = Server::start(Arc::new(Altered(slow.clone())), config).await.unwrap();
        (slow, server)
    });
    let (asked, oldest) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Duration::ZERO)));
    for number in 0..8 {
        let asker = Asker::of(&sim, &format!("asker {number}"), address);
        let (machine, asked, oldest) = (machine.clone(), asked.clone(), oldest.clone());
        drop(asker.env.clone().spawn("asks", async move {
            while machine.now() < Duration::from_secs(SECONDS) {
                let (age, _) = asker.ask(&machine).await;
                let older = |oldest: &mut Duration| *oldest = age.max(*oldest);
                older(&mut oldest.lock().unwrap());
                asked.fetch_add(1, Ordering::Relaxed);
                asker.env.sleep(Duration::from_millis(60)).await;
            }
        }));
    }
    let operator = Asker::of(&sim, "operator", address);
    sim.run_for(Duration::from_secs(5));
    let mut done = 0;
    while machine.now() < Duration::from_secs(SECONDS) {
        sim.run_until(operator.lock(done % 2 == 0));
        let (_, is_locked) = sim.run_until(operator.ask(&machine));
        assert_eq!(is_locked, done % 2 == 0, "it says what was before");
        done += 1;
        sim.run_for(Duration::from_secs(3));
    }
    let (asked, oldest) = (asked.load(Ordering::Relaxed), *oldest.lock().unwrap());
    assert!(asked > 100 * SECONDS as usize / 2, "{asked}");
    assert!(oldest <= Duration::from_secs(1), "{oldest:?}");
    // Ten at once, one a second, and one for each thing that the operator did.
    let made = slow.carried_out.load(Ordering::Relaxed);
    assert!(made <= 11 + SECONDS as usize + done, "{made} of {asked}");
    // Who asks now and then has one of his moment.
    sim.run_for(Duration::from_secs(20));
    for _ in 0..3 {
        assert_eq!(sim.run_until(operator.ask(&machine)).0, Duration::ZERO);
    }
    sim.run_until(server.stop());
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
