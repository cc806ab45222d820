//! Rows that fill the memory that they may take: commits that write are refused with the cause,
//! whatever else helps goes on, and once room was made everything does.
//!
//! Memory used to grow until the system ended the process. In simulation, on the real structures in
//! memory.

mod common;

use common::world::World;
use common::*;
use plinth_client::{Priority, ReadVersionRequest};
use plinth_pipeline::{EngineKind, NodeConfig, SsdSettings};
use plinth_types::{Error, KeyList, KeySpace, MutationType as M};
use serde_json::Value;
use std::time::Duration;

const BOUND: u64 = 24 << 20;
const VALUE: [u8; 1000] = [7; 1000];

/// A database with so much room, and a client that fills it.
struct Room {
    world: World,
}

fn config() -> NodeConfig {
    NodeConfig { memory_bytes: Some(BOUND), checkpoint_bytes: 1 << 20, ..NodeConfig::default() }
}

impl Room {
    fn new(seed: u64, config: NodeConfig) -> Self {
        Self { world: World::new(seed, config) }
    }

    fn run_for(&self, duration: Duration) {
        self.world.sim.run_for(duration);
    }

    fn begin(&self, priority: Priority) -> i64 {
        let request = ReadVersionRequest { priority, ..ReadVersionRequest::default() };
        self.world.run(self.world.endpoint().read_version(request)).unwrap().version
    }

    fn commit(
        &self,
        mutations: &[(M, &[u8], &[u8])],
    ) -> plinth_types::Result<plinth_types::CommitReply> {
        self.world.run(self.world.endpoint().commit(request(mutations)))
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
        let values = self.world.endpoint().get_many(version, KeySpace::System, &keys);
        self.world.run(values).unwrap()[0].is_some()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.world.run(self.world.endpoint().status_json()).unwrap()).unwrap()
    }

    /// Keys, values and older versions, in bytes.
    fn taken(&self) -> u64 {
        let memory = &self.status()["cluster"]["plinth"]["memory"];
        memory["data_bytes"].as_u64().unwrap() + memory["window_bytes"].as_u64().unwrap()
    }

    fn cause(&self) -> String {
        self.status()["cluster"]["qos"]["performance_limited_by"]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Writes until no more is taken, as clients do that begin a transaction each time: how many
    /// commits were, and why no more.
    fn fill_up(&self) -> (u64, Error) {
        for number in 0.. {
            self.begin(Priority::Default);
            let filled = self.fill(number);
            // At the end, and now and then: a server that is asked all the time tells of a second
            // before.
            if filled.is_err() || number % 64 == 63 {
                let taken = self.taken();
                assert!(taken < BOUND + (2 << 20), "the bound is exceeded by far: {taken}");
            }
            if let Err(error) = filled {
                return (number, error);
            }
            self.run_for(Duration::from_millis(5));
        }
        unreachable!("it is full some time");
    }
}

#[test]
fn at_the_bound_writes_are_refused_and_clears_make_room() {
    for seed in 1..4 {
        let room = Room::new(seed, config());
        assert_eq!(room.status()["cluster"]["plinth"]["memory"]["bound_bytes"], BOUND);
        let (written, error) = room.fill_up();
        assert!(error == Error::operation_failed() && !error.is_retryable(), "{error}");
        let told = error.detail().unwrap_or_default();
        assert!(told.contains("25165824 bytes") && told.contains("--memory"), "{told}");
        assert!(
            room.taken() > BOUND * 8 / 10,
            "seed {seed}: there was room after {written} commits"
        );
        // The cause is looked at ten times a second.
        room.run_for(Duration::from_millis(200));
        assert_eq!(room.cause(), "storage_server_min_free_space");
        // Reads, the system's keys, and what only clears.
        assert!(room.read(&0_u64.to_be_bytes()));
        room.commit(&[(M::Set, b"\xff/conf/x", b"y")]).unwrap();
        assert!(room.fill(written).is_err(), "it still is full");
        assert!(room.commit(&[(M::Add, b"count", &[1])]).is_err());
        room.commit(&[(M::CompareAndClear, &0_u64.to_be_bytes(), &VALUE)]).unwrap();
        assert!(!room.read(&0_u64.to_be_bytes()));
        let half = (written * 50).to_be_bytes();
        room.commit(&[(M::ClearRange, b"", &half)]).unwrap();
        room.run_for(Duration::from_secs(10));
        assert_eq!(room.cause(), "workload", "seed {seed}");
        room.fill(0).unwrap();
        assert!(room.read(&0_u64.to_be_bytes()));
    }
}

#[test]
fn near_the_bound_transactions_begin_more_slowly_batch_first() {
    let room = Room::new(5, config());
    let mut named = [false; 2];
    for number in 0.. {
        room.begin(Priority::Default);
        if room.fill(number).is_err() {
            break;
        }
        let qos = &room.status()["cluster"]["qos"];
        let names = ["batch_performance_limited_by", "performance_limited_by"];
        let now = names.map(|name| qos[name]["name"] == "storage_server_min_free_space");
        assert!(now[0] || !now[1], "batch transactions give way first");
        named = [named[0] || now[0], named[1] || now[1]];
        room.run_for(Duration::from_millis(20));
    }
    assert_eq!(named, [true; 2]);
    // Nobody who only reads waits for long.
    let began = room.world.sim.now();
    (0..200).for_each(|_| _ = room.begin(Priority::Default));
    let took = room.world.sim.now() - began;
    assert!(took < Duration::from_secs(2), "200 transactions took {took:?} to begin");
}

#[test]
fn a_database_that_is_full_when_it_is_opened_can_be_read_and_cleared() {
    let mut room = Room::new(9, NodeConfig { memory_bytes: None, ..config() });
    (0..300).for_each(|number| drop(room.fill(number).unwrap()));
    room.world.restart(config());
    room.run_for(Duration::from_secs(1));
    assert!(room.read(&0_u64.to_be_bytes()) && room.fill(0).is_err());
    room.commit(&[(M::ClearRange, b"", b"\xff")]).unwrap();
    room.run_for(Duration::from_secs(10));
    room.fill(0).unwrap();
}

/// Rows that are overwritten again and again take no more room than they have; what was overwritten
/// lately does, for as long as the window. Everybody's commits were refused for that.
#[test]
fn what_is_overwritten_leaves_by_itself_and_is_waited_for() {
    let room = Room::new(11, config());
    for number in 0..200 {
        // A megabyte of ten in turns, without a begin that would be held back.
        let keys: Vec<_> = (0..12).map(|row: u64| (number % 10 * 12 + row).to_be_bytes()).collect();
        let value = vec![number as u8; 90_000];
        let rows: Vec<_> = keys.iter().map(|key| (M::Set, &key[..], &value[..])).collect();
        room.commit(&rows).unwrap_or_else(|error| panic!("commit {number}: {error}"));
        if number % 16 == 0 {
            let taken = room.taken();
            assert!(taken < BOUND + (6 << 20), "the bound is exceeded by far: {taken}");
        }
    }
    assert!(room.world.sim.now() > Duration::from_secs(30), "it was waited for");
    room.run_for(Duration::from_secs(10));
    assert_eq!(room.cause(), "workload");
}

/// What a backup's snapshot keeps besides rows is part of the window, and doesn't leave it: commits
/// would have waited for ever, and those that clear with them.
#[test]
fn what_does_not_leave_is_waited_for_once_and_then_told() {
    let room = Room::new(13, NodeConfig { checkpoint_bytes: 1 << 30, ..config() });
    let key = |number: u64| [&number.to_be_bytes()[..], &[b'k'; 1000]].concat();
    for first in (0..10_000).step_by(1000) {
        let keys: Vec<_> = (first..first + 1000).map(key).collect();
        let rows: Vec<_> = keys.iter().map(|key| (M::Set, &key[..], &b""[..])).collect();
        room.commit(&rows).unwrap();
    }
    let pinned = room.world.run(room.world.node().pin()).unwrap();
    room.commit(&[(M::ClearRange, b"", b"\xff")]).unwrap();
    room.run_for(Duration::from_secs(10));
    let took = |mutations: &[(M, &[u8], &[u8])]| {
        let began = room.world.sim.now();
        let committed = room.commit(mutations);
        (committed.map(drop), room.world.sim.now() - began)
    };
    let value = vec![7; 90_000];
    let longest = (0..200_u64).find_map(|number| {
        let (committed, took) = took(&[(M::Set, &number.to_be_bytes(), &value)]);
        committed.is_err().then_some((committed, took))
    });
    let (committed, longest) = longest.expect("it is full some time");
    assert_eq!(committed, Err(Error::operation_failed()));
    let wanted = Duration::from_secs(9)..Duration::from_secs(12);
    assert!(wanted.contains(&longest), "it was waited for: {longest:?}");
    // Those behind it don't wait, and whoever clears goes on.
    let (committed, at_once) = took(&[(M::Set, b"a", &value)]);
    assert_eq!(committed, Err(Error::operation_failed()));
    assert!(at_once < Duration::from_secs(1), "{at_once:?}");
    room.run_for(Duration::from_millis(200));
    assert_eq!(room.cause(), "storage_server_min_free_space");
    let (committed, at_once) = took(&[(M::ClearRange, b"nothing", b"nowhere")]);
    assert_eq!(committed, Ok(()));
    assert!(at_once < Duration::from_secs(1), "{at_once:?}");
    drop(pinned);
    room.commit(&[(M::ClearRange, b"nothing", b"nowhere")]).unwrap();
    room.run_for(Duration::from_secs(10));
    assert_eq!(took(&[(M::Set, b"a", &value)]).0, Ok(()));
}

/// With 32 of them a client had everybody else's commits refused.
#[test]
fn snapshots_that_would_leave_no_room_are_ended_the_oldest_first() {
    let room = Room::new(12, config());
    let overwrite = |value: u8| {
        for first in (0..80).step_by(8) {
            let keys: Vec<_> = (first..first + 8_u64).map(u64::to_be_bytes).collect();
            let value = vec![value; 50_000];
            let rows: Vec<_> = keys.iter().map(|key| (M::Set, &key[..], &value[..])).collect();
            room.commit(&rows).unwrap_or_else(|error| panic!("{error}"));
        }
    };
    let read = |snapshot: &plinth_client::Pinned| {
        let mut keys = KeyList::new();
        keys.push(&7_u64.to_be_bytes());
        let values = snapshot.endpoint.get_many(snapshot.version, KeySpace::System, &keys);
        room.world.run(values).map(|values| values[0].as_ref().map(|value| value[0]))
    };
    overwrite(0);
    let mut snapshots = Vec::new();
    for value in 1..=12 {
        snapshots.push(room.world.run(room.world.endpoint().pin_snapshot()).unwrap());
        overwrite(value);
        room.run_for(Duration::from_secs(6));
    }
    let alive: Vec<_> = snapshots.iter().map(read).collect();
    let ended = alive.iter().take_while(|read| read.is_err()).count();
    assert!((1..12).contains(&ended), "{alive:?}");
    let error = alive[0].as_ref().unwrap_err();
    assert!(*error == Error::version_invalid(), "{error}");
    assert!(error.detail().is_some_and(|told| told.contains("pin another one")), "{error}");
    // Those that are there have what they had.
    for (at, read) in alive.iter().enumerate().skip(ended) {
        assert_eq!(*read, Ok(Some(at as u8)));
    }
    drop(snapshots);
    overwrite(20);
}

#[test]
fn the_engine_ssd_has_no_such_bound() {
    let ssd = SsdSettings::with_memory(8 << 20);
    let room = Room::new(
        3,
        NodeConfig { engine: EngineKind::Ssd, ssd, memory_bytes: Some(1 << 20), ..config() },
    );
    (0..30).for_each(|number| drop(room.fill(number).unwrap()));
    room.run_for(Duration::from_secs(1));
    room.fill(30).unwrap();
    assert_eq!(room.status()["cluster"]["plinth"]["memory"]["bound_bytes"], Value::Null);
}
