//! What survives: restarts, crashes, a full disk, a failing sync, directories that are something else.
//!
//! What a real disk does only once in years happens here on a simulated machine, whose disk forgets what
//! was not synced; the rest runs on real files in a temporary directory.

mod common;

use common::*;
use plinth_client::{Database, Endpoint};
use plinth_env::simulated::{Simulation, Unsynced};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Creation, Node, NodeConfig};
use plinth_types::error::ErrorPredicate;
use plinth_types::{Error, MutationType as M};
use std::path::Path;
use std::time::Duration;

const DIR: &str = "/db";

#[test]
fn a_closed_database_opens_again_with_everything_and_newer_versions() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("reopen").await.unwrap();
        let mut last = 0;
        for round in 0u8..4 {
            let node = open(&env, dir.path()).await.unwrap();
            assert!(version(&node).await >= last, "round {round}");
            for earlier in 0..round {
                assert_eq!(get(&node, &[earlier]).await.as_deref(), Some(&[earlier][..]));
            }
            last = set(&node, &[round], &[round]).await.unwrap();
        }
    });
}

/// The log that creating makes once went on making its next segment while the same log was opened a second time.
#[test]
fn creating_a_database_leaves_nothing_running_behind_opening() {
    for seed in 0..300 {
        let simulation = Simulation::new(seed);
        let machine = simulation.process("node");
        let mut config = NodeConfig::default();
        config.log.first_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
        let node = simulation.run_until(Node::open(&machine, Path::new(DIR), config));
        assert!(node.is_ok(), "seed {seed}: {}", node.err().unwrap());
    }
}

#[test]
fn a_database_that_is_open_cannot_be_opened_again() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("locked").await.unwrap();
        let node = open(&env, dir.path()).await.unwrap();
        let error = open(&env, dir.path()).await.err().unwrap();
        assert_eq!(error, Error::lock_file_failure());
        assert!(error.to_string().contains("LOCK"), "{error}");
        drop(node);
        open(&env, dir.path()).await.unwrap();
    });
}

#[test]
fn acknowledged_commits_survive_a_crash_at_once_after() {
    for seed in 0..40 {
        let simulation = Simulation::new(seed);
        let machine = simulation.process("node");
        let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
        for n in 0u8..20 {
            simulation.run_until(set(&node, &[n], b"acknowledged")).unwrap();
        }
        drop(node.commit(request(&[(M::Set, b"unanswered", b"whole"), (M::Set, b"with it", b"whole")])));
        simulation.crash(&machine);
        drop(node);
        let machine = simulation.restart(&machine);
        let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
        simulation.run_until(async {
            for n in 0u8..20 {
                assert_eq!(
                    get(&node, &[n]).await.as_deref(),
                    Some(&b"acknowledged"[..]),
                    "seed {seed}, key {n}"
                );
            }
            assert_eq!(get(&node, b"unanswered").await, get(&node, b"with it").await, "seed {seed}");
        });
    }
}

#[test]
fn a_full_disk_refuses_commits_clearly_and_writing_resumes_when_there_is_room() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    simulation.run_until(set(&node, b"before", b"v")).unwrap();
    simulation.update_faults(&machine, |plan| plan.capacity = Some(0));
    let value = vec![7; 90_000];
    let refused = simulation.run_until(async {
        // What is allocated already may still be filled.
        for n in 0u32..100 {
            if let Err(error) = set(&node, &n.to_be_bytes(), &value).await {
                return error;
            }
        }
        panic!("nine megabytes went onto a full disk");
    });
    assert!(plinth_env::is_disk_full(&refused), "{refused}");
    assert!(!refused.is(ErrorPredicate::Retryable));
    assert_eq!(simulation.run_until(get(&node, b"before")).as_deref(), Some(&b"v"[..]));
    simulation.update_faults(&machine, |plan| plan.capacity = None);
    simulation.run_until(set(&node, b"after", b"v")).unwrap();
    simulation.crash(&machine);
    drop(node);
    let machine = simulation.restart(&machine);
    let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    assert_eq!(simulation.run_until(get(&node, b"after")).as_deref(), Some(&b"v"[..]));
}

/// While the disk was full read versions stood still, and when there was room again everybody who read was too old: as
/// long as they tried again, for good. Found by the simulation, where answers get lost (`lost_answers`, seed 12).
#[test]
fn after_a_long_time_of_refused_commits_whoever_reads_can_commit_again() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    simulation.run_until(set(&node, b"before", b"v")).unwrap();
    let one = async || {
        let read_version = version(&node).await;
        let request = request(&[(M::Set, b"k", &[7; 90_000])]);
        commit(&node, having_read(request, read_version, &[b"k"])).await
    };
    simulation.update_faults(&machine, |plan| plan.capacity = Some(0));
    simulation.run_until(async {
        for _ in 0..1000 {
            // The first may find room that is allocated already.
            let _ = one().await;
            machine.sleep(Duration::from_millis(10)).await;
        }
    });
    simulation.update_faults(&machine, |plan| plan.capacity = None);
    let committed = simulation.run_until(async {
        for _ in 0..100 {
            if one().await.is_ok() {
                return true;
            }
            machine.sleep(Duration::from_millis(5)).await;
        }
        false
    });
    assert!(committed, "with room on the disk");
}

#[test]
fn a_failing_sync_is_never_acknowledged_and_ends_all_commits() {
    let simulation = Simulation::new(3);
    let machine = simulation.process("node");
    let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    simulation.run_until(set(&node, b"before", b"v")).unwrap();
    simulation.update_faults(&machine, |plan| plan.sync.fail = 1.0);
    let unknown = simulation.run_until(set(&node, b"k", b"v")).unwrap_err();
    assert_eq!(unknown, Error::commit_unknown_result());
    simulation.update_faults(&machine, |plan| plan.sync.fail = 0.0);
    let refused = simulation.run_until(set(&node, b"k", b"v")).unwrap_err();
    assert_eq!(refused, Error::io_error(), "not retried silently");
    assert_eq!(simulation.run_until(get(&node, b"before")).as_deref(), Some(&b"v"[..]), "reads go on");
    simulation.crash_with(&machine, Unsynced::Lost);
    drop(node);
    let machine = simulation.restart(&machine);
    let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    simulation.run_until(set(&node, b"k", b"again")).unwrap();
}

/// A transaction without reads commits with a key that it conflicts with itself on; when its answer is lost the client
/// looks what became of it. That this fails too is no answer: the transaction may be there after a restart.
#[test]
fn a_commit_whose_fate_cannot_be_found_out_stays_unknown() {
    let simulation = Simulation::new(4);
    let machine = simulation.process("node");
    let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    let database = Database::new(std::sync::Arc::new(node));
    simulation.update_faults(&machine, |plan| plan.sync.fail = 1.0);
    let unknown = simulation.run_until(async {
        let tr = database.create_transaction();
        tr.get_read_version().await.unwrap();
        tr.set("k", "v");
        tr.commit().await.unwrap_err()
    });
    assert_eq!(unknown, Error::commit_unknown_result(), "{unknown}");
}

/// A batch whose sync failed may be found at a restart, at its version. Nobody may have read at a later one without it.
#[test]
fn read_versions_stay_below_a_commit_of_unknown_fate() {
    let simulation = Simulation::new(6);
    let machine = simulation.process("node");
    let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    let before = simulation.run_until(set(&node, b"k", b"before")).unwrap();
    simulation.update_faults(&machine, |plan| plan.sync.fail = 1.0);
    simulation.run_until(set(&node, b"k", b"unknown")).unwrap_err();
    simulation.run_for(std::time::Duration::from_secs(10));
    assert_eq!(simulation.run_until(version(&node)), before, "read versions go no further");
    assert_eq!(simulation.run_until(get(&node, b"k")).as_deref(), Some(&b"before"[..]), "reads go on");
}

#[test]
fn a_checkpoint_that_cannot_be_read_at_the_moment_is_not_called_damaged() {
    let simulation = Simulation::new(5);
    let mut machine = simulation.process("node");
    let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    for n in 0u32..200 {
        simulation.run_until(set(&node, &n.to_be_bytes(), &[1; 1000])).unwrap();
    }
    simulation.run_until(node.node().checkpoint()).unwrap();
    drop(node);
    for _ in 0..100 {
        simulation.crash(&machine);
        machine = simulation.restart(&machine);
        simulation.update_faults(&machine, |plan| plan.read.fail = 0.2);
        if let Err(error) = simulation.run_until(open(&machine, Path::new(DIR))) {
            assert_eq!(error, Error::io_error(), "{error}");
        }
    }
}

#[test]
fn checkpoints_let_the_log_go_and_restarts_begin_from_them() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("checkpoint").await.unwrap();
        let node = open(&env, dir.path()).await.unwrap();
        for n in 0u32..500 {
            set(&node, &n.to_be_bytes(), &[1; 100]).await.unwrap();
        }
        let at = node.node().checkpoint().await.unwrap();
        assert!(at <= version(&node).await);
        let cleared = request(&[(M::ClearRange, &[0], &100u32.to_be_bytes())]);
        commit(&node, cleared).await.unwrap();
        drop(node);
        let node = open(&env, dir.path()).await.unwrap();
        assert_eq!(get(&node, &99u32.to_be_bytes()).await, None);
        assert_eq!(get(&node, &100u32.to_be_bytes()).await.as_deref(), Some(&[1; 100][..]));
    });
}

/// What runs before this one had left in the log once did not count: each wrote a little less than a checkpoint takes, and
/// the log grew without bound.
#[test]
fn a_process_that_often_starts_again_writes_checkpoints_too() {
    let simulation = Simulation::new(1);
    let mut machine = simulation.process("node");
    for round in 0u8..12 {
        let config = NodeConfig { checkpoint_bytes: 64 << 10, ..NodeConfig::default() };
        let node = simulation.run_until(Node::open(&machine, Path::new(DIR), config)).unwrap();
        let written = async {
            for n in 0u32..20 {
                set(&node.endpoint(), &n.to_be_bytes(), &[round; 1000]).await.unwrap();
            }
            machine.sleep(Duration::from_secs(1)).await;
        };
        simulation.run_until(written);
        simulation.crash(&machine);
        machine = simulation.restart(&machine);
    }
    let files = machine.files();
    let checkpoints = simulation.run_until(files.list(&Path::new(DIR).join("checkpoint"))).unwrap();
    assert!(
        checkpoints.iter().any(|name| name.starts_with("checkpoint-")),
        "240 KB were written: {checkpoints:?}"
    );
}

#[test]
fn directories_that_are_no_database_are_refused_by_name() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("stranger").await.unwrap();
        env.files().replace(dir.path().join("letter.txt"), b"dear").await.unwrap();
        let error = open(&env, dir.path()).await.err().unwrap();
        assert!(error.to_string().contains("letter.txt"), "{error}");
        assert_eq!(env.files().list(dir.path()).await.unwrap(), ["letter.txt"], "nothing was left behind");
        let missing = dir.path().join("none");
        let config = NodeConfig { creation: Creation::Never, ..NodeConfig::default() };
        let error = Node::open(&env, &missing, config).await.err().unwrap();
        assert_eq!(error, Error::file_not_found());
    });
}

#[test]
fn a_directory_of_a_newer_format_is_refused_with_advice() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("newer").await.unwrap();
        drop(open(&env, dir.path()).await.unwrap());
        let path = dir.path().join("IDENTITY");
        let mut bytes = env.files().read(&path).await.unwrap();
        bytes[8] = 9;
        env.files().replace(&path, &bytes).await.unwrap();
        let error = open(&env, dir.path()).await.err().unwrap();
        assert_eq!(error, Error::unsupported_operation());
        assert!(error.to_string().contains("newer version of Plinth"), "{error}");
    });
}
