//! A disk that gets full: room is made before it runs out, what makes room goes on, and so does
//! everything once there is some.
//!
//! On 64 MB, ten rows of 90 kB that were overwritten again and again filled the disk with log,
//! because the next checkpoint waited for 256 MiB of it; then nothing helped, not clearing
//! everything and not a restart. Here in simulation; on a real file system of its own:
//! `small_disk.rs`.

mod common;

use common::heard::heard;
use common::world::World;
use common::*;
use plinth_client::Endpoint;
use plinth_env::is_disk_full;
use plinth_env::simulated::Unsynced;
use plinth_pipeline::{Compression, EngineKind, NodeConfig, SsdSettings};
use plinth_types::{CommitReply, MutationType as M, Result};
use serde_json::Value;
use std::time::Duration;
use tracing::Level;

const ENGINES: [EngineKind; 2] = [EngineKind::Memory, EngineKind::Ssd];
const ROW: usize = 90_000;

fn config(engine: EngineKind) -> NodeConfig {
    let ssd = SsdSettings { compression: Compression::None, ..SsdSettings::with_memory(64 << 20) };
    NodeConfig { engine, ssd, ..NodeConfig::default() }
}

/// A database on a disk of so many bytes.
fn on_disk_of(seed: u64, engine: EngineKind, bytes: u64) -> World {
    let mut world = World::new(seed, config(engine));
    limit(&world, bytes);
    // The disk is looked at when it is opened.
    world.restart(config(engine));
    world
}

fn limit(world: &World, bytes: u64) {
    world.sim.update_faults(&world.machine, |plan| plan.capacity = Some(bytes));
}

fn used(world: &World) -> u64 {
    world.sim.files(&world.machine).iter().map(|(_, len)| len.next_multiple_of(4096)).sum()
}

/// Other programs take all that is free.
fn fill_by_others(world: &World) {
    limit(world, used(world));
}

fn put(world: &World, number: u64) -> Result<CommitReply> {
    let key = number.to_be_bytes();
    world.run(world.endpoint().commit(request(&[(M::Set, &key, &[number as u8; ROW])])))
}

fn clear(world: &World, begin: u64, end: u64) -> Result<CommitReply> {
    let (begin, end) = (begin.to_be_bytes(), end.to_be_bytes());
    world.run(world.endpoint().commit(request(&[(M::ClearRange, &begin, &end)])))
}

fn has(world: &World, number: u64) -> bool {
    world
        .run(get(world, &number.to_be_bytes()))
        .is_some_and(|value| value == [number as u8; ROW][..])
}

/// New rows until one is refused; how many there are.
fn fill_with_rows(world: &World) -> u64 {
    for number in 0..2000 {
        if let Err(error) = put(world, number) {
            assert!(is_disk_full(&error) && error.code() == 1514, "{error}");
            return number;
        }
    }
    panic!("180 MB went onto the disk");
}

fn goes_on(world: &World, within: Duration) -> bool {
    let end = world.sim.now() + within;
    while world.sim.now() < end {
        if put(world, 0).is_ok() {
            return true;
        }
        world.sim.run_for(Duration::from_millis(20));
    }
    false
}

#[test]
fn rows_that_are_overwritten_again_and_again_fit_on_a_small_disk() {
    for engine in ENGINES {
        for (seed, disk) in [(1, 64 << 20), (2, 128 << 20), (3, 32 << 20)] {
            let world = on_disk_of(seed, engine, disk);
            for n in 0..2000 {
                put(&world, n % 10)
                    .unwrap_or_else(|error| panic!("{engine:?}, commit {n}: {error}"));
            }
            assert!((0..10).all(|number| has(&world, number)));
        }
    }
}

#[test]
fn a_disk_full_of_rows_takes_clears_and_then_rows_again() {
    for engine in ENGINES {
        let mut world = on_disk_of(3, engine, 64 << 20);
        let rows = fill_with_rows(&world);
        assert!(rows > 150, "{engine:?}: 64 MB took {rows} rows of 90 kB");
        for life in 0..2 {
            assert!(put(&world, rows).is_err(), "{engine:?}, life {life}");
            assert!(
                has(&world, 0) && has(&world, rows - 1),
                "{engine:?}, life {life}: reads go on"
            );
            if life == 0 {
                world.crash(Unsynced::Seeded, config(engine));
            }
        }
        clear(&world, 1, rows).unwrap();
        assert!(
            goes_on(&world, Duration::from_secs(20)),
            "{engine:?}: after everything was cleared"
        );
        assert!(fill_with_rows(&world) > 100, "{engine:?}");
    }
}

#[test]
fn a_disk_that_others_fill_is_left_and_come_back_to() {
    for engine in ENGINES {
        let mut world = on_disk_of(4, engine, 1 << 30);
        (0..100).for_each(|number| drop(put(&world, number).unwrap()));
        world.sim.run_for(Duration::from_secs(2));
        fill_by_others(&world);
        world.sim.run_for(Duration::from_secs(1));
        assert!(is_disk_full(&put(&world, 0).unwrap_err()), "{engine:?}");
        // Clears go on as long as anybody likes, through restarts.
        for number in 1000..3000u64 {
            let key = number.to_be_bytes();
            let cleared = request(&[(M::ClearRange, &key, &[&key[..], &[0; 500]].concat())]);
            world
                .run(world.endpoint().commit(cleared))
                .unwrap_or_else(|error| panic!("{engine:?}: {error}"));
            if number % 700 == 0 {
                world.crash(Unsynced::Seeded, config(engine));
            }
        }
        assert!(put(&world, 0).is_err(), "{engine:?}");
        limit(&world, 1 << 30);
        assert!(
            goes_on(&world, Duration::from_secs(1)),
            "{engine:?}: within a second after there was room"
        );
    }
}

/// The log's files are the database's own: it has them once what is in them was cleared, though
/// others leave nothing.
#[test]
fn clearing_everything_makes_room_though_others_leave_none() {
    for engine in ENGINES {
        let world = on_disk_of(5, engine, 1 << 30);
        (0..200).for_each(|number| drop(put(&world, number).unwrap()));
        world.sim.run_for(Duration::from_secs(20));
        fill_by_others(&world);
        world.sim.run_for(Duration::from_secs(1));
        assert!(put(&world, 0).is_err(), "{engine:?}");
        clear(&world, 0, u64::MAX).unwrap();
        assert!(goes_on(&world, Duration::from_secs(40)), "{engine:?}");
    }
}

/// The checkpoint that is there has what was cleared behind it. A start right behind the clear took
/// the data for as long as it was by then, and saw no room to be made: nothing was taken for good.
#[test]
fn clearing_everything_right_before_a_crash_makes_room_behind_it() {
    for engine in ENGINES {
        let mut world = on_disk_of(6, engine, 1 << 30);
        (0..200).for_each(|number| drop(put(&world, number).unwrap()));
        world.sim.run_for(Duration::from_secs(20));
        world.run(world.node().checkpoint()).unwrap();
        fill_by_others(&world);
        world.sim.run_for(Duration::from_secs(1));
        assert!(put(&world, 0).is_err(), "{engine:?}");
        clear(&world, 0, u64::MAX).unwrap();
        world.crash(Unsynced::Seeded, config(engine));
        assert!(goes_on(&world, Duration::from_secs(40)), "{engine:?}");
    }
}

fn status(world: &World) -> Value {
    serde_json::from_str(&world.run(world.endpoint().status_json()).unwrap()).unwrap()
}

fn names_of_messages(status: &Value) -> Vec<String> {
    let messages = status["cluster"]["messages"].as_array().unwrap();
    messages.iter().map(|message| message["name"].as_str().unwrap().to_owned()).collect()
}

fn measured(world: &World, name: &str) -> f64 {
    let text = world.node().metrics_text();
    let line =
        text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {name}")).rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// `status` said "available", `plinth_available` was 1, and nothing else said a word.
#[test]
fn a_full_disk_is_told_while_it_is_full_and_no_longer() {
    for engine in ENGINES {
        let world = on_disk_of(6, engine, 1 << 30);
        (0..100).for_each(|number| drop(put(&world, number).unwrap()));
        world.sim.run_for(Duration::from_secs(2));
        assert_eq!(
            (world.node().endpoint().refusal(), measured(&world, "plinth_available")),
            (None, 1.0)
        );
        let well = status(&world);
        assert_eq!(well["cluster"]["messages"], Value::Array(Vec::new()));
        assert_eq!(well["client"]["database_status"]["healthy"], true);

        fill_by_others(&world);
        assert!(is_disk_full(&put(&world, 0).unwrap_err()));
        world.sim.run_for(Duration::from_secs(1));
        let full = status(&world);
        assert_eq!(
            full["cluster"]["qos"]["performance_limited_by"]["name"],
            "storage_server_min_free_space"
        );
        assert_eq!(full["client"]["database_status"]["healthy"], false);
        assert_eq!(full["cluster"]["plinth"]["commits_refused"]["now"], "disk_full");
        let told = names_of_messages(&full);
        assert!(
            ["commits_refused", "low_disk_space"]
                .iter()
                .all(|name| told.contains(&(*name).to_owned())),
            "{told:?}"
        );
        assert!(is_disk_full(&world.node().endpoint().refusal().unwrap()));
        assert_eq!(measured(&world, "plinth_available"), 0.0);
        assert_eq!(measured(&world, "plinth_refusing{cause=\"disk_full\"}"), 1.0);
        assert!(measured(&world, "plinth_commits_refused_total{cause=\"disk_full\"}") >= 1.0);
        let free = measured(&world, "plinth_disk_free_bytes");
        assert!(free < measured(&world, "plinth_disk_kept_bytes"), "{free}");

        limit(&world, 1 << 30);
        world.sim.run_for(Duration::from_secs(12));
        put(&world, 0).unwrap();
        assert_eq!(status(&world)["cluster"]["messages"], Value::Array(Vec::new()), "{engine:?}");
        assert_eq!(measured(&world, "plinth_available"), 1.0);
    }
}

/// A disk that has room for a small row and none for a large one: the large ones were refused while
/// all else said that rows are taken, and in words that contradicted themselves.
#[test]
fn a_disk_that_is_full_for_what_comes_is_told_until_something_is_taken() {
    for engine in ENGINES {
        let world = on_disk_of(8, engine, 1 << 30);
        (0..100).for_each(|number| drop(put(&world, number).unwrap()));
        world.sim.run_for(Duration::from_secs(2));
        let refused = || world.node().endpoint().refusal();
        let is_told =
            || status(&world)["cluster"]["plinth"]["commits_refused"]["now"] != Value::Null;
        let mut told = None;
        // What is kept depends on what is there, and that on what was done.
        for room in (0..40).map(|step| step * 20_000) {
            let kept = measured(&world, "plinth_disk_kept_bytes") as u64;
            limit(&world, used(&world) + kept + room);
            world.sim.run_for(Duration::from_secs(12));
            if refused().is_some() {
                continue;
            }
            let Err(error) = put(&world, 0) else { break };
            told = Some(error);
            break;
        }
        let error =
            told.unwrap_or_else(|| panic!("{engine:?}: no room is too small for a row alone"));
        assert!(is_disk_full(&error), "{error}");
        assert!(error.to_string().contains("and those that came may take 18"), "{error}");
        assert!(is_disk_full(&refused().unwrap()) && is_told(), "{engine:?}");
        assert_eq!(measured(&world, "plinth_available"), 0.0);
        let small = request(&[(M::Set, b"small", b"row")]);
        world.run(world.endpoint().commit(small)).unwrap();
        assert!(refused().is_none() && !is_told(), "{engine:?}: rows are taken");
        assert!(is_disk_full(&put(&world, 0).unwrap_err()));
        assert!(refused().is_some());
        world.sim.run_for(Duration::from_secs(11));
        assert_eq!(refused(), None, "nobody has tried for a while");
    }
}

#[test]
fn a_failed_sync_is_told() {
    let world = on_disk_of(7, EngineKind::Memory, 1 << 30);
    world.sim.update_faults(&world.machine, |plan| plan.sync.fail = 1.0);
    put(&world, 0).unwrap_err();
    let status = status(&world);
    assert_eq!(names_of_messages(&status)[0], "storage_failure");
    assert_eq!(status["client"]["database_status"]["available"], false);
    let recovery = &status["cluster"]["recovery_state"];
    assert_eq!(recovery["name"], "locking_old_transaction_servers", "{recovery}");
    assert!(recovery["description"].as_str().unwrap().contains("started anew"), "{recovery}");
    assert_eq!(measured(&world, "plinth_refusing{cause=\"failed\"}"), 1.0);
    assert!(world.node().endpoint().refusal().is_some());
}

/// It was told by nothing but errors of commits.
#[test]
fn a_full_disk_is_told_and_refusals_of_a_burst_in_two_lines() {
    const REFUSED: usize = 300;
    for engine in ENGINES {
        let world = on_disk_of(6, engine, 1 << 30);
        (0..20).for_each(|number| drop(put(&world, number).unwrap()));
        let (disk, others) = (1 << 30, used(&world));
        let ((), told) = heard(Level::INFO, || {
            limit(&world, others);
            world.sim.run_for(Duration::from_secs(2));
            for _ in 0..REFUSED {
                assert!(is_disk_full(&put(&world, 0).unwrap_err()), "{engine:?}");
            }
            limit(&world, disk);
            assert!(goes_on(&world, Duration::from_secs(20)), "{engine:?}");
            world.sim.run_for(Duration::from_secs(30));
        });
        let with = |what: &str| told.iter().filter(|line| line.contains(what)).count();
        for what in [
            "the disk is full: commits that write rows wait or are refused",
            "commits are refused",
            "commits are not refused any more",
            "the disk has room again",
        ] {
            assert_eq!(with(what), 1, "{engine:?}: {what}: {told:#?}");
        }
        let count = |line: &String| {
            let rest = line.split("commits=").nth(1)?;
            rest.split(' ').next()?.parse::<usize>().ok()
        };
        let counted = told.iter().find_map(count);
        assert!(counted.is_some_and(|count| count >= REFUSED), "{engine:?}: {told:#?}");
        assert!(told.len() < 20, "{engine:?}: {told:#?}");
    }
}
