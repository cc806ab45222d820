//! A database on the engine `ssd`: what it promises its clients holds while data move from the log
//! through the window into tables, and a crash may come at any moment of it.
//!
//! Memory is tiny and the window short, so that flushes happen all the time; a model says what must
//! be there. Its files: `ssd_files.rs`.

mod common;

use common::tables::{KEYS, Rows, all, config, key};
use common::world::World;
use common::*;
use plinth_env::simulated::{Random, Unsynced};
use plinth_env::{Env, block_on};
use plinth_pipeline::Node;
use plinth_types::{Bytes, MutationType as M};
use std::sync::Arc;
use std::time::Duration;

/// A random transaction, done to the rows as well.
fn change(random: &mut Random, rows: &mut Rows) -> plinth_types::CommitRequest {
    let at = key(random.index(KEYS));
    match random.index(10) {
        0 => {
            let other = key(random.index(KEYS));
            let (begin, end) = if at <= other { (at, other) } else { (other, at) };
            rows.retain(|key, _| *key < begin || *key >= end);
            request(&[(M::ClearRange, &begin, &end)])
        }
        1 | 2 => {
            rows.entry(at.clone()).or_default().push(b'+');
            request(&[(M::AppendIfFits, &at, b"+")])
        }
        _ => {
            let value = vec![random.below(256) as u8; 6000 + random.index(6000)];
            rows.insert(at.clone(), value.clone());
            request(&[(M::Set, &at, &value)])
        }
    }
}

/// Bytes that went into tables since the database was opened.
fn flushed_bytes(world: &World) -> u64 {
    let status = world.run(world.endpoint().status_json()).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["cluster"]["plinth"]["ssd"]["flushed_bytes"].as_u64().unwrap()
}

#[test]
fn what_was_acknowledged_survives_crashes_amid_flushes() {
    let mut flushed = 0;
    for seed in 0..12 {
        let mut world = World::new(seed, config());
        let mut random = Random::new(seed);
        let mut rows = Rows::new();
        for life in 0..4 {
            let found = world.run(all(&world));
            assert!(found == rows, "seed {seed}, life {life}: other rows than were acknowledged");
            for _ in 0..60 + random.index(60) {
                let request = change(&mut random, &mut rows);
                world.run(commit(&world, request)).unwrap();
            }
            let found = world.run(all(&world));
            assert!(found == rows, "seed {seed}, life {life}");
            flushed += u64::from(flushed_bytes(&world) > 0);
            world.sim.run_for(Duration::from_micros(random.below(300_000)));
            world.crash(Unsynced::Seeded, config());
        }
    }
    assert!(flushed > 30, "only {flushed} of 48 lives flushed");
}

#[test]
fn watches_fire_for_single_keys_and_for_cleared_ranges() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("ssd").await.unwrap();
        let node = Node::open(&env, dir.path(), config()).await.unwrap();
        let db = provided(Arc::new(node.endpoint()));
        let at = set(&db, b"a", b"1").await.unwrap();
        set(&db, b"b", b"1").await.unwrap();
        let value = Some(Bytes::from_static(b"1"));
        let (a, b) =
            (db.watch("a".into(), value.clone(), at), db.watch("b".into(), value.clone(), at));
        assert!(!a.is_ready() && !b.is_ready());
        let version = set(&db, b"a", b"2").await.unwrap();
        assert_eq!(a.await, Ok(version));
        let (version, _) = commit(&db, request(&[(M::ClearRange, b"a", b"c")])).await.unwrap();
        assert_eq!(b.await, Ok(version));
        assert!(
            db.watch("b".into(), value, version).await.unwrap() >= version,
            "it was changed before"
        );
    });
}
