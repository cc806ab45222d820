//! What survives, and what clients are told: restarts, crashes, a full disk, a failing sync.
//!
//! What a real disk does only once in years happens here on a simulated machine, whose disk forgets
//! what was not synced; the rest runs on real files in a temporary directory. Opening itself:
//! `opening.rs`.

mod common;

use common::reached::Opened;
use common::world::World;
use common::*;
use plinth_client::Database;
use plinth_env::simulated::Unsynced;
use plinth_env::{Env, block_on};
use plinth_pipeline::NodeConfig;
use plinth_types::error::ErrorPredicate;
use plinth_types::{Error, MutationType as M};
use std::time::Duration;

fn world(seed: u64) -> World {
    World::new(seed, NodeConfig::default())
}

fn crash(world: &mut World) {
    world.crash(Unsynced::Seeded, NodeConfig::default());
}

#[test]
fn a_closed_database_opens_again_with_everything_and_newer_versions() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("reopen").await.unwrap();
        let mut last = 0;
        for round in 0u8..4 {
            let db = Opened::new(&env, dir.path()).await;
            assert!(version(&db).await >= last, "round {round}");
            for earlier in 0..round {
                assert_eq!(get(&db, &[earlier]).await.as_deref(), Some(&[earlier][..]));
            }
            last = set(&db, &[round], &[round]).await.unwrap();
            db.end().await;
        }
    });
}

#[test]
fn acknowledged_commits_survive_a_crash_soon_after() {
    let mut whole = 0;
    for seed in 0..40 {
        let mut world = world(seed);
        for n in 0u8..20 {
            world.run(set(&world, &[n], b"acknowledged")).unwrap();
        }
        drop(
            world.endpoint().commit(request(&[
                (M::Set, b"unanswered", b"whole"),
                (M::Set, b"with it", b"whole"),
            ])),
        );
        // At once, and later and later.
        world.sim.run_for(Duration::from_micros(seed * 60));
        crash(&mut world);
        world.run(async {
            let at = version(&world).await;
            for n in 0u8..20 {
                assert_eq!(
                    get_at(&world, at, &[n]).await.unwrap().as_deref(),
                    Some(&b"acknowledged"[..]),
                    "seed {seed}, key {n}"
                );
            }
            let unanswered = get_at(&world, at, b"unanswered").await;
            assert_eq!(unanswered, get_at(&world, at, b"with it").await, "seed {seed}");
            whole += usize::from(unanswered.unwrap().is_some());
        });
    }
    assert!(
        (1..40).contains(&whole),
        "the crash came before the commit, or behind it, in all but {whole} of 40"
    );
}

#[test]
fn a_full_disk_refuses_commits_clearly_and_writing_resumes_when_there_is_room() {
    let mut world = world(1);
    world.run(set(&world, b"before", b"v")).unwrap();
    world.sim.update_faults(&world.machine, |plan| plan.capacity = Some(0));
    let value = vec![7; 90_000];
    let refused = world.run(async {
        // What is allocated already may still be filled.
        for n in 0u32..100 {
            if let Err(error) = set(&world, &n.to_be_bytes(), &value).await {
                return error;
            }
        }
        panic!("nine megabytes went onto a full disk");
    });
    // Behind a socket the number is all that is left of the kind, and the words say what it was.
    assert_eq!(refused, Error::file_not_writable(), "{refused}");
    assert!(
        refused.detail().is_some_and(|detail| detail.contains("no space left on the disk")),
        "{refused}"
    );
    assert!(!refused.is(ErrorPredicate::Retryable));
    assert_eq!(world.run(get(&world, b"before")).as_deref(), Some(&b"v"[..]));
    world.sim.update_faults(&world.machine, |plan| plan.capacity = None);
    world.run(set(&world, b"after", b"v")).unwrap();
    crash(&mut world);
    assert_eq!(world.run(get(&world, b"after")).as_deref(), Some(&b"v"[..]));
}

/// While the disk was full read versions stood still, and when there was room again everybody who
/// read was too old: as long as they tried again, for good. Found by the simulation, where answers
/// get lost (`lost_answers`, seed 12).
#[test]
fn after_a_long_time_of_refused_commits_whoever_reads_can_commit_again() {
    let world = world(1);
    let clients = world.endpoint().env().clone();
    world.run(set(&world, b"before", b"v")).unwrap();
    let one = async || {
        let read_version = version(&world).await;
        let request = request(&[(M::Set, b"k", &[7; 90_000])]);
        commit(&world, having_read(request, read_version, &[b"k"])).await
    };
    world.sim.update_faults(&world.machine, |plan| plan.capacity = Some(0));
    world.run(async {
        for _ in 0..1000 {
            // The first may find room that is allocated already.
            let _ = one().await;
            clients.sleep(Duration::from_millis(10)).await;
        }
    });
    world.sim.update_faults(&world.machine, |plan| plan.capacity = None);
    let committed = world.run(async {
        for _ in 0..100 {
            if one().await.is_ok() {
                return true;
            }
            clients.sleep(Duration::from_millis(5)).await;
        }
        false
    });
    assert!(committed, "with room on the disk");
}

#[test]
fn a_failing_sync_is_never_acknowledged_and_ends_all_commits() {
    let mut world = world(3);
    world.run(set(&world, b"before", b"v")).unwrap();
    world.sim.update_faults(&world.machine, |plan| plan.sync.fail = 1.0);
    let unknown = world.run(set(&world, b"k", b"v")).unwrap_err();
    assert_eq!(unknown, Error::commit_unknown_result());
    world.sim.update_faults(&world.machine, |plan| plan.sync.fail = 0.0);
    let refused = world.run(set(&world, b"k", b"v")).unwrap_err();
    assert_eq!(refused, Error::io_error(), "not retried silently");
    assert_eq!(world.run(get(&world, b"before")).as_deref(), Some(&b"v"[..]), "reads go on");
    world.crash(Unsynced::Lost, NodeConfig::default());
    world.run(set(&world, b"k", b"again")).unwrap();
}

/// A transaction without reads commits with a key that it conflicts with itself on; when its answer
/// is lost the client looks what became of it. That this fails too is no answer: the transaction
/// may be there after a restart.
#[test]
fn a_commit_whose_fate_cannot_be_found_out_stays_unknown() {
    let world = world(4);
    let database = Database::new(world.endpoint().clone());
    world.sim.update_faults(&world.machine, |plan| plan.sync.fail = 1.0);
    let unknown = world.run(async {
        let tr = database.create_transaction();
        tr.get_read_version().await.unwrap();
        tr.set("k", "v");
        tr.commit().await.unwrap_err()
    });
    assert_eq!(unknown, Error::commit_unknown_result(), "{unknown}");
}

/// A batch whose sync failed may be found at a restart, at its version. Nobody may have read at a
/// later one without it.
#[test]
fn read_versions_stay_below_a_commit_of_unknown_fate() {
    let world = world(6);
    let before = world.run(set(&world, b"k", b"before")).unwrap();
    world.sim.update_faults(&world.machine, |plan| plan.sync.fail = 1.0);
    world.run(set(&world, b"k", b"unknown")).unwrap_err();
    world.sim.run_for(Duration::from_secs(10));
    assert_eq!(world.run(version(&world)), before, "read versions go no further");
    assert_eq!(world.run(get(&world, b"k")).as_deref(), Some(&b"before"[..]), "reads go on");
}

#[test]
fn checkpoints_let_the_log_go_and_restarts_begin_from_them() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("checkpoint").await.unwrap();
        let db = Opened::new(&env, dir.path()).await;
        for n in 0u32..500 {
            set(&db, &n.to_be_bytes(), &[1; 100]).await.unwrap();
        }
        let at = db.node.checkpoint().await.unwrap();
        assert!(at <= version(&db).await);
        let cleared = request(&[(M::ClearRange, &[0], &100u32.to_be_bytes())]);
        commit(&db, cleared).await.unwrap();
        db.end().await;
        let db = Opened::new(&env, dir.path()).await;
        assert_eq!(get(&db, &99u32.to_be_bytes()).await, None);
        assert_eq!(get(&db, &100u32.to_be_bytes()).await.as_deref(), Some(&[1; 100][..]));
        db.end().await;
    });
}
