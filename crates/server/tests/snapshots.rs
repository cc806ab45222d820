//! Pinned snapshots over the network: leases that are kept, that lapse, that a server forgets when
//! it is started anew; and what older clients and servers are told.
//!
//! A server that loses sight of a client mustn't keep files for it for ever, and a client whose
//! snapshot has gone mustn't read anything else in its place.

mod common;

use common::*;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_client::{Database, PinnedSnapshot, TransactionOption};
use plinth_env::simulated::Simulation;
use plinth_env::{Env, block_on};
use plinth_pipeline::{EngineKind, Node, NodeConfig, SsdSettings};
use plinth_proto::frame::{Kind, RANGE_LOCKS};
use plinth_proto::hello::NEWEST;
use plinth_proto::{Hello, ReadVersion, Request, Welcome, reply};
use plinth_server::{Limits, Server, ServerConfig};
use plinth_types::{
    Bytes, Error, KeyList, KeyRange, KeySpace, RangeLock, RangeLocks, Result, system,
};
use serde_json::Value;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::ready;
use std::time::Duration;

/// Longer than the lease that clients ask for, and shorter.
const TOO_LONG: Duration = Duration::from_secs(45);
const BEARABLE: Duration = Duration::from_secs(10);
/// Snapshots that the server holds at most.
const MOST: usize = 3;

/// A server of a database on the engine `ssd`, and a machine for its client.
struct World {
    sim: Simulation,
    server: Env,
    client: Env,
    address: SocketAddr,
}

impl World {
    fn new(seed: u64) -> Self {
        let sim = Simulation::new(seed);
        let (server, client) = (sim.process("server"), sim.process("client"));
        let address = SocketAddr::new(sim.ip(&server), 4500);
        let world = Self { sim, server, client, address };
        world.serve();
        world
    }

    /// Serves the database of the server's machine until its process ends.
    fn serve(&self) {
        let (env, address) = (self.server.clone(), self.address);
        drop(self.server.spawn("server", async move {
            let config = NodeConfig {
                engine: EngineKind::Ssd,
                ssd: SsdSettings::with_memory(2 << 20),
                window: 50_000,
                ..NodeConfig::default()
            };
            let node =
                Node::open(&env, Path::new("/data"), config).await.expect("the disk has no faults");
            // The server keeps its name, whatever the random identity of its database.
            let (file, path) =
                (ClusterFile::new("plinth", "any", address), Path::new("/fdb.cluster"));
            env.files()
                .replace(path, file.connection_string().as_bytes())
                .await
                .expect("the disk has no faults");
            let config = ServerConfig {
                listen: vec![address],
                cluster_file: Some(path.to_path_buf()),
                limits: Limits { snapshots: MOST, ..Limits::default() },
                ..ServerConfig::default()
            };
            let server = Server::start(Arc::new(node.endpoint()), config)
                .await
                .expect("the address is free");
            std::future::pending::<()>().await;
            drop(server);
        }));
    }

    fn restart(&mut self) {
        self.sim.kill(&self.server);
        self.server = self.sim.restart(&self.server);
        self.serve();
    }

    fn connect(&self, env: &Env) -> Database {
        let file = ClusterFile::new("plinth", "any", self.address);
        Database::new(Arc::new(RemoteEndpoint::connect(env, file)))
    }

    fn write(&self, db: &Database, value: &'static str) {
        let write = db.transact(|tr| async move {
            tr.set("k", value);
            Ok(())
        });
        self.sim.run_until(write).unwrap();
    }

    /// A snapshot that has what is written now.
    fn pin(&self, db: &Database, value: &str) -> PinnedSnapshot {
        loop {
            self.sim.run_for(Duration::from_millis(100));
            self.sim
                .run_until(db.transact(|tr| async move { tr.get_read_version().await }))
                .unwrap();
            let snapshot = self.sim.run_until(db.pin_snapshot()).unwrap();
            if self.read(&snapshot).unwrap().as_deref() == Some(value.as_bytes()) {
                return snapshot;
            }
            drop(snapshot);
        }
    }

    fn read(&self, snapshot: &PinnedSnapshot) -> Result<Option<Bytes>> {
        self.sim.run_until(snapshot.read(async |tr| tr.get("k").await))
    }

    /// What the server says of the snapshots that it holds, asked from another machine.
    fn held(&self) -> Value {
        let db = self.connect(&self.sim.process("operator"));
        let status: Value =
            serde_json::from_str(&self.sim.run_until(db.status_json()).unwrap()).unwrap();
        let plinth = &status["cluster"]["plinth"];
        let server = plinth["server"]["pinned_snapshots"].clone();
        assert_eq!(
            server["count"], plinth["ssd"]["pinned_snapshots"]["count"],
            "each is one of the engine's"
        );
        server
    }
}

#[track_caller]
fn is_gone(read: Result<Option<Bytes>>, why: &str) {
    let error = read.unwrap_err();
    assert_eq!(error, Error::version_invalid());
    assert!(error.detail().is_some_and(|detail| detail.contains(why)), "{error}");
    assert!(!error.is_retryable(), "trying again would not help");
}

#[test]
fn a_snapshot_is_kept_for_as_long_as_its_client_is_there() {
    for seed in 1..4 {
        let world = World::new(seed);
        let db = world.connect(&world.client);
        world.write(&db, "before");
        let snapshot = world.pin(&db, "before");
        world.write(&db, "after");
        // Nothing is asked for meanwhile: that the client lives is enough.
        world.sim.run_for(Duration::from_secs(600));
        let held = world.held();
        assert_eq!(
            (&held["count"], &held["lapsed"]),
            (&1.into(), &0.into()),
            "seed {seed}: {held}"
        );
        let lease = &held["leases"][0];
        assert_eq!(lease["version"], snapshot.version());
        assert!(
            lease["client"].as_str().unwrap().starts_with(&world.sim.ip(&world.client).to_string())
        );
        assert!(lease["age_seconds"].as_f64().unwrap() >= 600.0, "{lease}");
        assert_eq!(world.read(&snapshot).unwrap().as_deref(), Some(&b"before"[..]));
        // The database it was pinned through is not needed for it.
        drop(db);
        world.sim.run_for(TOO_LONG);
        assert_eq!(world.read(&snapshot).unwrap().as_deref(), Some(&b"before"[..]));
        drop(snapshot);
        world.sim.run_for(Duration::from_secs(1));
        let held = world.held();
        assert_eq!(
            (&held["count"], &held["lapsed"]),
            (&0.into(), &0.into()),
            "given back, seed {seed}: {held}"
        );
    }
}

#[test]
fn a_connection_that_is_lost_for_less_than_the_lease_costs_nothing() {
    for seed in 1..6 {
        let world = World::new(seed);
        let db = world.connect(&world.client);
        world.write(&db, "before");
        let snapshot = world.pin(&db, "before");
        world.write(&db, "after");
        for _ in 0..4 {
            world.sim.partition(&world.client, &world.server);
            world.sim.run_for(BEARABLE);
            world.sim.heal(&world.client, &world.server);
            world.sim.close_connections(&world.client, &world.server);
            assert_eq!(
                world.read(&snapshot).unwrap().as_deref(),
                Some(&b"before"[..]),
                "seed {seed}"
            );
            world.sim.run_for(BEARABLE);
        }
    }
}

#[test]
fn a_lease_that_lapses_is_told_to_every_read() {
    for seed in 1..6 {
        let world = World::new(seed);
        let db = world.connect(&world.client);
        world.write(&db, "before");
        let snapshot = world.pin(&db, "before");
        world.sim.partition(&world.client, &world.server);
        world.sim.run_for(TOO_LONG);
        let held = world.held();
        assert_eq!(
            (&held["count"], &held["lapsed"]),
            (&0.into(), &1.into()),
            "seed {seed}: {held}"
        );
        world.sim.heal(&world.client, &world.server);
        is_gone(world.read(&snapshot), "its lease has lapsed");
        is_gone(world.read(&snapshot), "its lease has lapsed");
        // Another one can be had, over the same connections.
        assert_eq!(world.read(&world.pin(&db, "before")).unwrap().as_deref(), Some(&b"before"[..]));
    }
}

#[test]
fn what_a_client_that_vanished_had_pinned_is_let_go() {
    let world = World::new(1);
    let db = world.connect(&world.client);
    world.write(&db, "v");
    let (_one, _two) = (world.pin(&db, "v"), world.pin(&db, "v"));
    assert_eq!(world.held()["count"], 2);
    world.sim.kill(&world.client);
    world.sim.run_for(TOO_LONG);
    let held = world.held();
    assert_eq!((&held["count"], &held["lapsed"]), (&0.into(), &2.into()), "{held}");
}

#[test]
fn a_server_that_was_started_anew_says_so() {
    let mut world = World::new(2);
    let db = world.connect(&world.client);
    world.write(&db, "before");
    let snapshot = world.pin(&db, "before");
    world.restart();
    is_gone(world.read(&snapshot), "started anew");
    world.sim.run_for(TOO_LONG);
    is_gone(world.read(&snapshot), "started anew");
    assert_eq!(world.held()["taken"], 0);
    assert_eq!(world.read(&world.pin(&db, "before")).unwrap().as_deref(), Some(&b"before"[..]));
}

#[test]
fn there_are_so_many_at_most_and_one_that_is_dropped_makes_room() {
    let world = World::new(3);
    let db = world.connect(&world.client);
    let mut all: Vec<_> =
        (0..MOST).map(|_| world.sim.run_until(db.pin_snapshot()).unwrap()).collect();
    let error = world.sim.run_until(db.pin_snapshot()).unwrap_err();
    assert_eq!(error, Error::operation_failed());
    assert!(
        error.detail().is_some_and(|detail| detail.contains("holds 3 pinned snapshots")),
        "{error}"
    );
    drop(all.pop());
    world.sim.run_for(Duration::from_secs(1));
    world.sim.run_until(db.pin_snapshot()).unwrap();
}

/// A connection to a server that speaks no newer version than this.
#[test]
fn an_older_client_is_served_and_told_what_it_cannot_ask() {
    let server = serve(Limits::default());
    let mut raw = Raw::greeted_in(&server, 1);
    raw.ask(1, &Request::Pin { lease_ms: 1000 }).unwrap();
    let (id, error) = raw.failure();
    assert_eq!((id, &error), (1, &Error::unsupported_operation()));
    let detail = error.detail().unwrap();
    assert!(detail.contains("version 2") && detail.contains("speaks 1"), "{detail}");
    raw.ask(2, &Request::Ping).unwrap();
    assert_eq!(raw.next().map(|(id, kind, _)| (id, kind)), Some((2, Kind::Pong as u8)));
}

/// It would read what is half there.
#[test]
fn a_client_that_knows_no_locked_ranges_is_kept_out_while_there_are_any() {
    let server = serve(Limits::default());
    let db = Database::new(remote(&server));
    let range = KeyRange::new(&b"d"[..], &b"g"[..]);
    let locks = RangeLocks::new(vec![RangeLock { range, owner: [1; 16] }]);
    let set_locks = |locks: Option<&[u8]>| {
        db.transact_blocking(|tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            tr.set_option(TransactionOption::LockAware)?;
            match locks {
                Some(locks) => tr.set(system::RANGE_LOCKS, locks),
                None => tr.clear(system::RANGE_LOCKS),
            }
            Ok(())
        })
        .unwrap();
    };
    let mut raw = Raw::greeted_in(&server, RANGE_LOCKS - 1);
    let asks = |lock_aware| {
        Request::ReadVersion(ReadVersion {
            priority: 1,
            lock_aware,
            count: 1,
            ..Default::default()
        })
    };
    set_locks(Some(locks.value()));
    for request in [asks(false), Request::Pin { lease_ms: 1000 }] {
        raw.ask(1, &request).unwrap();
        let (id, error) = raw.failure();
        assert_eq!((id, &error), (1, &Error::database_locked()));
        assert!(error.detail().is_some_and(|detail| detail.contains("too old")), "{error}");
    }
    raw.ask(2, &asks(true)).unwrap();
    assert_eq!(raw.next().map(|(id, kind, _)| (id, kind)), Some((2, Kind::ReadVersionReply as u8)));
    set_locks(None);
    raw.ask(3, &asks(false)).unwrap();
    assert_eq!(raw.next().map(|(id, kind, _)| (id, kind)), Some((3, Kind::ReadVersionReply as u8)));
}

#[test]
fn requests_about_snapshots_that_make_no_sense_are_answered_with_why() {
    let server = serve(Limits::default());
    let mut raw = Raw::greeted_in(&server, 2);
    let read =
        || Box::new(Request::GetMany { version: 1, space: KeySpace::Normal, keys: KeyList::new() });
    raw.ask(1, &Request::InSnapshot { snapshot: [7; 16], read: read() }).unwrap();
    let (id, error) = raw.failure();
    assert_eq!((id, &error), (1, &Error::version_invalid()));
    raw.ask(2, &Request::Renew { snapshot: [7; 16], lease_ms: 5 }).unwrap();
    assert_eq!(raw.failure(), (2, Error::version_invalid()));
    raw.ask(3, &Request::Release([7; 16])).unwrap();
    assert_eq!(raw.next().map(|(id, kind, _)| (id, kind)), Some((3, Kind::ReleaseReply as u8)));
    // Only reads, and no snapshot in a snapshot.
    for inner in [Request::Status, Request::InSnapshot { snapshot: [7; 16], read: read() }] {
        raw.ask(4, &Request::InSnapshot { snapshot: [7; 16], read: Box::new(inner) }).unwrap();
        let (id, error) = raw.failure();
        assert_eq!((id, &error), (4, &Error::client_invalid_operation()), "{error}");
    }
    // What came before does no harm: a snapshot is pinned as if nothing had been.
    raw.ask(5, &Request::Pin { lease_ms: 1000 }).unwrap();
    assert_eq!(raw.next().map(|(id, kind, _)| (id, kind)), Some((5, Kind::PinReply as u8)));
}

/// What a server of the first version of the protocol does: it greets, and answers pings.
async fn old_server(listener: plinth_env::Listener) {
    let mut stream = listener.accept().await.unwrap();
    let (mut received, mut buffer) = (Vec::new(), vec![0; 4096]);
    let mut greeted = false;
    loop {
        let len = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await.unwrap_or(0);
        if len == 0 {
            return;
        }
        received.extend_from_slice(&buffer[..len]);
        let mut out = Vec::new();
        if !greeted && let Some((hello, len)) = Hello::decode(&received).unwrap() {
            assert_eq!((hello.oldest, hello.newest), (1, NEWEST));
            received.drain(..len);
            Welcome { newest: 1, ..Welcome::accept(&hello, 1, "0".repeat(32)) }.encode(&mut out);
            greeted = true;
        }
        while greeted && let Some(frame) = plinth_proto::frame::split(&received, 1 << 20).unwrap() {
            assert_eq!(frame.kind, Kind::Status as u8, "it knows nothing that is newer");
            reply::put_status(&mut out, frame.id, "{}");
            let len = frame.len();
            received.drain(..len);
        }
        let mut sent = 0;
        poll_fn(|context| {
            while sent < out.len() {
                sent += ready!(stream.poll_send(context, &out[sent..])).unwrap();
            }
            std::task::Poll::Ready(())
        })
        .await;
    }
}

#[test]
fn an_older_server_is_asked_nothing_that_it_does_not_know() {
    let env = Env::real();
    let listener = block_on(env.sockets().listen(loopback())).unwrap();
    let file = ClusterFile::new("plinth", "old", listener.local_address());
    drop(env.spawn("old server", old_server(listener)));
    let options = plinth_client::remote::RemoteOptions {
        connections: 1,
        ..plinth_client::remote::RemoteOptions::new(&env)
    };
    let db = Database::new(Arc::new(RemoteEndpoint::with_options(&env, file, &options)));
    // Once before it is known what the server speaks, and once after.
    for _ in 0..2 {
        let error = db.pin_snapshot().wait().unwrap_err();
        assert_eq!(error, Error::unsupported_operation());
        let detail = error.detail().unwrap();
        assert!(detail.contains("speaks version 1") && detail.contains("version 2"), "{detail}");
        assert_eq!(db.status_json().wait().as_deref(), Ok("{}"));
    }
}
