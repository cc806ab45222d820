//! Rows that fill the memory that they may take: commits that write are refused with the cause, whatever else helps goes on, and once room was made
//! everything does.
//!
//! Memory used to grow until the system ended the process. In simulation, on the real structures in memory.

mod common;

use common::*;
use plinth_client::{Endpoint, Priority, ReadVersionRequest};
use plinth_env::simulated::Simulation;
use plinth_pipeline::{EngineKind, InProcess, Node, NodeConfig, SsdSettings};
use plinth_types::{Error, KeyList, KeySpace, MutationType as M};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const BOUND: u64 = 24 << 20;
const VALUE: [u8; 1000] = [7; 1000];

struct World {
    sim: Simulation,
    node: InProcess,
}

fn config() -> NodeConfig {
    NodeConfig { memory_bytes: Some(BOUND), checkpoint_bytes: 1 << 20, ..NodeConfig::default() }
}

impl World {
    fn new(seed: u64, config: NodeConfig) -> Self {
        let sim = Simulation::new(seed);
        let machine = sim.process("node");
        let node = sim.run_until(Node::open(&machine, Path::new("/db"), config)).unwrap().endpoint();
        Self { sim, node }
    }

    fn begin(&self, priority: Priority) -> i64 {
        let request = ReadVersionRequest { priority, ..ReadVersionRequest::default() };
        self.sim.run_until(self.node.read_version(request)).unwrap().version
    }

    fn commit(&self, mutations: &[(M, &[u8], &[u8])]) -> plinth_types::Result<plinth_types::CommitReply> {
        self.sim.run_until(self.node.commit(request(mutations)))
    }

    /// A commit of a hundred rows.
    fn fill(&self, number: u64) -> plinth_types::Result<plinth_types::CommitReply> {
        let keys: Vec<_> = (0..100).map(|row| (number * 100 + row).to_be_bytes()).collect();
        let mutations: Vec<_> = keys.iter().map(|key| (M::Set, &key[..], &VALUE[..])).collect();
        self.commit(&mutations)
    }

    fn read(&self, key: &[u8]) -> bool {
        let version = self.begin(Priority::Default);
        let mut keys = KeyList::new();
        keys.push(key);
        self.sim.run_until(self.node.get_many(version, KeySpace::System, &keys)).unwrap()[0].is_some()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.sim.run_until(self.node.status_json()).unwrap()).unwrap()
    }

    /// Keys, values and older versions, in bytes.
    fn taken(&self) -> u64 {
        let memory = &self.status()["cluster"]["plinth"]["memory"];
        memory["data_bytes"].as_u64().unwrap() + memory["window_bytes"].as_u64().unwrap()
    }

    fn cause(&self) -> String {
        self.status()["cluster"]["qos"]["performance_limited_by"]["name"].as_str().unwrap().to_owned()
    }

    /// Writes until no more is taken, as clients do that begin a transaction each time: how many commits were, and why no more.
    fn fill_up(&self) -> (u64, Error) {
        for number in 0.. {
            self.begin(Priority::Default);
            if let Err(error) = self.fill(number) {
                return (number, error);
            }
            assert!(self.taken() < BOUND + (2 << 20), "the bound is exceeded by far: {}", self.taken());
            self.sim.run_for(Duration::from_millis(5));
        }
        unreachable!("it is full some time");
    }
}

#[test]
fn at_the_bound_writes_are_refused_and_clears_make_room() {
    for seed in 1..4 {
        let world = World::new(seed, config());
        assert_eq!(world.status()["cluster"]["plinth"]["memory"]["bound_bytes"], BOUND);
        let (written, error) = world.fill_up();
        assert!(error == Error::operation_failed() && !error.is_retryable(), "{error}");
        let told = error.detail().unwrap_or_default();
        assert!(told.contains("25165824 bytes") && told.contains("--memory"), "{told}");
        assert!(world.taken() > BOUND * 8 / 10, "seed {seed}: there was room after {written} commits");
        // The cause is looked at ten times a second.
        world.sim.run_for(Duration::from_millis(200));
        assert_eq!(world.cause(), "storage_server_min_free_space");
        // Reads, the system's keys, and what only clears.
        assert!(world.read(&0_u64.to_be_bytes()));
        world.commit(&[(M::Set, b"\xff/conf/x", b"y")]).unwrap();
        assert!(world.fill(written).is_err(), "it still is full");
        assert!(world.commit(&[(M::Add, b"count", &[1])]).is_err());
        world.commit(&[(M::CompareAndClear, &0_u64.to_be_bytes(), &VALUE)]).unwrap();
        assert!(!world.read(&0_u64.to_be_bytes()));
        let half = (written * 50).to_be_bytes();
        world.commit(&[(M::ClearRange, b"", &half)]).unwrap();
        world.sim.run_for(Duration::from_secs(10));
        assert_eq!(world.cause(), "workload", "seed {seed}");
        world.fill(0).unwrap();
        assert!(world.read(&0_u64.to_be_bytes()));
    }
}

#[test]
fn near_the_bound_transactions_begin_more_slowly_batch_first() {
    let world = World::new(5, config());
    let mut named = [false; 2];
    for number in 0.. {
        world.begin(Priority::Default);
        if world.fill(number).is_err() {
            break;
        }
        let qos = &world.status()["cluster"]["qos"];
        let names = ["batch_performance_limited_by", "performance_limited_by"];
        let now = names.map(|name| qos[name]["name"] == "storage_server_min_free_space");
        assert!(now[0] || !now[1], "batch transactions give way first");
        named = [named[0] || now[0], named[1] || now[1]];
        world.sim.run_for(Duration::from_millis(20));
    }
    assert_eq!(named, [true; 2]);
    // Nobody who only reads waits for long.
    let began = world.sim.now();
    (0..200).for_each(|_| _ = world.begin(Priority::Default));
    let took = world.sim.now() - began;
    assert!(took < Duration::from_secs(2), "200 transactions took {took:?} to begin");
}

#[test]
fn a_database_that_is_full_when_it_is_opened_can_be_read_and_cleared() {
    let sim = Simulation::new(9);
    let machine = sim.process("node");
    let open = |bound| {
        let config = NodeConfig { memory_bytes: bound, ..config() };
        let node = sim.run_until(Node::open(&machine, Path::new("/db"), config)).unwrap();
        (World { sim: sim.clone(), node: node.endpoint() }, node)
    };
    let (world, node) = open(None);
    (0..300).for_each(|number| drop(world.fill(number).unwrap()));
    sim.run_until(node.close()).unwrap();
    drop((world, node));
    let (world, _node) = open(Some(BOUND));
    sim.run_for(Duration::from_secs(1));
    assert!(world.read(&0_u64.to_be_bytes()) && world.fill(0).is_err());
    world.commit(&[(M::ClearRange, b"", b"\xff")]).unwrap();
    sim.run_for(Duration::from_secs(10));
    world.fill(0).unwrap();
}

#[test]
fn the_engine_ssd_has_no_such_bound() {
    let ssd = SsdSettings::with_memory(8 << 20);
    let world =
        World::new(3, NodeConfig { engine: EngineKind::Ssd, ssd, memory_bytes: Some(1 << 20), ..config() });
    (0..30).for_each(|number| drop(world.fill(number).unwrap()));
    world.sim.run_for(Duration::from_secs(1));
    world.fill(30).unwrap();
    assert_eq!(world.status()["cluster"]["plinth"]["memory"]["bound_bytes"], Value::Null);
}
