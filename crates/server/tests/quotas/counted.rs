//! What is counted: connections, watches and snapshots beyond a quota are refused with a word, and
//! whoever is over a rate holds a bounded part of the server's memory.
//!
//! Two users share a machine and come by two addresses of it, 127.0.0.1, which has quotas, and ::1,
//! which has none and is served whatever the other one does.

use super::common::quotas::{quota, write_quotas};
use super::common::*;
use plinth_client::Database;
use plinth_client::remote::{ClusterFile, RemoteEndpoint, RemoteOptions};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_proto::frame::{Kind, NO_ID};
use plinth_proto::hello::NEWEST;
use plinth_proto::{Hello, Request};
use plinth_server::{Limits, RightsConfig, Server, ServerConfig};
use plinth_types::quotas::Bounds;
use plinth_types::{CommitRequest, Error, KeyList, KeySpace, MutationList, MutationType, codes};
use serde_json::Value;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// A server at two addresses of the machine, so that there are two users of it.
pub struct Place {
    _node: Arc<Node>,
    pub inside: Database,
    pub server: Server,
}

impl Place {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self::of(ServerConfig { limits, ..ServerConfig::default() })
    }

    pub fn of(config: ServerConfig) -> Self {
        let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
        let endpoint = Arc::new(node.endpoint());
        let other = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let config = ServerConfig { listen: vec![loopback(), other], ..config };
        let server = block_on(Server::start(endpoint.clone(), config)).unwrap();
        Self { _node: node, inside: Database::new(endpoint), server }
    }

    /// Sets a quota, and waits until it is heeded.
    pub fn set(&self, text: &str) {
        let quota = quota(text);
        let bounds = quota.change(Bounds::default());
        write_quotas(&self.inside, &[text]);
        let (of, bound) = bounds.iter().last().unwrap();
        let max = if of.is_rate() { "bytes_per_second_max" } else { "max" };
        self.wait_until(|status| {
            let budgets = status["budgets"].as_array().unwrap();
            let mine = budgets.iter().find(|budget| budget["whose"] == quota.whom.to_string());
            mine.is_some_and(|budget| budget[of.name()][max] == bound)
        });
    }

    fn client(&self, number: usize) -> Database {
        let env = Env::real();
        let (name, _) = self.server.connection_string().split_once('@').unwrap();
        let file =
            ClusterFile::parse(&format!("{name}@{}", self.server.addresses()[number])).unwrap();
        let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&env) };
        Database::new(Arc::new(RemoteEndpoint::with_options(&env, file, &options)))
    }

    /// Waits until the server says so of quotas; whoever asks for that comes by ::1.
    pub fn wait_until(&self, is_so: impl Fn(&Value) -> bool) {
        let asks = self.client(1);
        let env = Env::real();
        let began = env.now();
        loop {
            assert!(env.now() - began < PATIENCE, "it never comes");
            let status = asks.status_json().wait().unwrap();
            let status: Value = serde_json::from_str(&status).unwrap();
            if is_so(&status["cluster"]["plinth"]["server"]["quotas"]) {
                return;
            }
            block_on(Env::real().sleep(Duration::from_millis(5)));
        }
    }
}

/// Whoever waits for longer waits for good.
const PATIENCE: Duration = Duration::from_secs(60);

const HERE: &str = "address 127.0.0.1";

fn of_here(status: &Value, what: &str) -> Value {
    let budgets = status["budgets"].as_array().unwrap();
    let mine = budgets.iter().find(|budget| budget["whose"] == HERE);
    mine.map_or(Value::Null, |budget| budget[what]["count"].clone())
}

/// Why a connection is refused, or that it isn't.
fn refusal(place: &Place, number: usize) -> Result<Raw, Error> {
    let mut raw = Raw::to(place.server.addresses()[number]);
    let mut hello = Vec::new();
    Hello { newest: NEWEST, ..Hello::new("", "raw") }.encode(&mut hello);
    raw.send(&hello).unwrap();
    match raw.welcome().unwrap().refused {
        Some(why) => Err(why),
        None => Ok(raw),
    }
}

#[test]
fn connections_beyond_a_quota_are_refused_and_those_that_are_open_stay() {
    let place = Place::new();
    let mut open: Vec<_> = (0..3).map(|_| refusal(&place, 0).unwrap()).collect();
    place.set("address 127.0.0.1 connections=2");
    place.wait_until(|status| of_here(status, "connections") == 3);
    let why = refusal(&place, 0).err().expect("there are three already");
    assert_eq!(why.code(), 1026);
    let told = why.to_string();
    assert!(told.contains("connections=2") && !told.contains("127.0.0"), "{told}");
    open[0].ask(9, &Request::Ping).unwrap();
    assert_eq!(open[0].next().map(|(id, ..)| id), Some(9), "who is in stays in");
    assert!(refusal(&place, 1).is_ok(), "it is nobody else's quota");
    open.truncate(1);
    place.wait_until(|status| of_here(status, "connections") == 1);
    let another = refusal(&place, 0).unwrap();
    assert!(refusal(&place, 0).is_err());
    drop((open, another));
    place.wait_until(|status| of_here(status, "connections") == 0);
    place.wait_until(|status| status["connections_refused"] == 2);
}

/// Only a grant made one of them before, and there are none yet.
#[test]
fn operators_by_a_setting_are_not_everybody() {
    let rights = RightsConfig { operators: vec![HERE.to_owned()], ..RightsConfig::default() };
    let place = Place::of(ServerConfig { rights, ..ServerConfig::default() });
    write_quotas(&place.inside, &["* connections=1"]);
    place.wait_until(|status| status["each"] == "connections=1");
    let _operators: Vec<_> = (0..3).map(|_| refusal(&place, 0).unwrap()).collect();
    let env = Env::real();
    let began = env.now();
    // The one by which the status was asked for may have yet to go.
    let one = loop {
        match refusal(&place, 1) {
            Ok(one) => break one,
            Err(why) => assert!(env.now() - began < PATIENCE, "{why}"),
        }
    };
    assert_eq!(refusal(&place, 1).err().map(|why| why.code()), Some(1026));
    drop(one);
}

#[test]
fn watches_beyond_a_quota_are_refused_over_all_connections() {
    let place = Place::new();
    let [one, two] = [0, 0].map(|number| place.client(number));
    let watch = |db: &Database, key: &'static str| {
        db.transact_blocking(|tr| Ok::<_, Error>(tr.watch(key))).unwrap()
    };
    let first = watch(&one, "a");
    place.set("address 127.0.0.1 watches=2");
    place.wait_until(|status| of_here(status, "watches") == 1);
    let second = watch(&two, "b");
    place.wait_until(|status| of_here(status, "watches") == 2);
    let refused = watch(&two, "c").wait().unwrap_err();
    assert_eq!(refused.code(), codes::TOO_MANY_WATCHES);
    assert!(refused.to_string().contains("watches=2"), "{refused}");
    let others = watch(&place.client(1), "c");
    place
        .inside
        .transact_blocking(|tr| {
            ["a", "c"].iter().for_each(|key| tr.set(key, "x"));
            Ok::<_, Error>(())
        })
        .unwrap();
    assert!(first.wait().is_ok() && others.wait().is_ok());
    place.wait_until(|status| of_here(status, "watches") == 1);
    let third = watch(&one, "d");
    place.wait_until(|status| of_here(status, "watches") == 2);
    drop((second, third));
    place.wait_until(|status| of_here(status, "watches") == 0);
}

#[test]
fn snapshots_beyond_a_quota_are_refused_be_they_older_than_it() {
    let place = Place::new();
    let here = place.client(0);
    let first = here.pin_snapshot().wait().unwrap();
    place.set("address 127.0.0.1 snapshots=1");
    place.wait_until(|status| of_here(status, "snapshots") == 1);
    let refused = here.pin_snapshot().wait().expect_err("there is one already");
    assert!(refused.to_string().contains("snapshots=1"), "{refused}");
    assert!(place.client(1).pin_snapshot().wait().is_ok(), "it is nobody else's quota");
    drop(first);
    place.wait_until(|status| of_here(status, "snapshots") == 0);
    assert!(here.pin_snapshot().wait().is_ok());
}

/// Whoever sends more than may wait isn't read, and others are served meanwhile.
#[test]
fn what_waits_for_a_quota_takes_a_bounded_part_of_memory() {
    const SENT: usize = 60;
    // Whoever isn't read isn't seen to go, but by his silence.
    let place = Place::with(Limits { silence: Duration::from_secs(5), ..Limits::default() });
    place.set("address 127.0.0.1 write=1kB/s read=1kB/s");
    let commit = |keys: u8, len: usize| {
        let mut mutations = MutationList::new();
        (0..keys).for_each(|key| mutations.push(MutationType::Set, &[key], &vec![7; len]));
        Request::Commit(Box::new(CommitRequest { mutations, ..Default::default() }))
    };
    let large = commit(10, 100_000);
    let mut flood: Vec<_> = (0..4).map(|_| refusal(&place, 0).unwrap()).collect();
    for raw in &mut flood {
        let mut sent = Vec::new();
        (0..SENT as u32).for_each(|id| large.encode(&mut sent, id));
        raw.send_along(&sent);
    }
    let good = place.client(1);
    for number in 0..200_u32 {
        flood.iter_mut().for_each(|raw| raw.send_along(b""));
        good.transact_blocking(|tr| {
            tr.set(b"good", number.to_be_bytes());
            Ok::<_, Error>(())
        })
        .unwrap();
        assert!(place.server.buffered_bytes() < 40 << 20, "{}", place.server.buffered_bytes());
    }
    place.wait_until(|status| status["commits_delayed"].as_u64() > Some(10));
    // Commits wait, and neither pings do nor the first read.
    let mut keys = KeyList::new();
    keys.push(b"good");
    let mut calm = refusal(&place, 0).unwrap();
    calm.ask(1, &commit(1, 100)).unwrap();
    assert_eq!(calm.next(), Some((1, Kind::Waits as u8, vec![0])));
    calm.ask(2, &Request::Ping).unwrap();
    let read = Request::GetNewest { lock_aware: false, space: KeySpace::Normal, keys };
    calm.ask(3, &read).unwrap();
    assert_eq!(calm.next().map(|(id, kind, _)| (id, kind)), Some((2, Kind::Pong as u8)));
    assert_eq!(calm.next().map(|(id, ..)| id), Some(3));
    // Whoever isn't read is told so.
    while flood[0].next().unwrap() != (NO_ID, Kind::Waits as u8, vec![1]) {}
    drop((flood, calm));
    while place.server.buffered_bytes() > 0 {
        block_on(Env::real().sleep(Duration::from_millis(5)));
    }
}
