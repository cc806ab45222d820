//! What a simulated power failure may do to files, and what it may not.
//!
//! Synced data is never touched, and unsynced data ends up lost, kept and torn, all three within
//! few seeds; so do names that no directory sync has made durable.

use std::collections::BTreeSet;

use plinth_env::simulated::{FaultPlan, Simulation, Unsynced};
use plinth_env::{Env, IoErrorKind, IoResult, Open, block_on};
use plinth_types::Error;

const SEEDS: u64 = 300;

/// Writes and syncs `old` at the beginning of a file with a durable name.
async fn with_file(env: &Env, old: &[u8]) -> IoResult<plinth_env::File> {
    env.files().create_dir_all("/data").await?;
    let file = env.files().open("/data/file", Open::Create).await?;
    file.write_all_at(0, old).await?;
    file.sync_data().await?;
    env.files().sync_dir("/data").await?;
    Ok(file)
}

/// What a file is after `prepare`, a crash and a restart.
fn after_crash(seed: u64, unsynced: Unsynced, prepare: impl AsyncFn(&Env)) -> Option<Vec<u8>> {
    let sim = Simulation::new(seed);
    let env = sim.process("node");
    sim.run_until(prepare(&env));
    sim.crash_with(&env, unsynced);
    let env = sim.restart(&env);
    sim.run_until(async { env.files().read("/data/file").await.ok() })
}

#[test]
fn what_was_synced_is_never_touched() {
    for seed in 0..SEEDS {
        let bytes = after_crash(seed, Unsynced::Seeded, async |env| {
            let file = with_file(env, &[1; 3000]).await.unwrap();
            file.write_all_at(3000, &[2; 3000]).await.unwrap();
            file.sync_data().await.unwrap();
            file.write_all_at(6000, &[3; 3000]).await.unwrap();
        });
        let bytes = bytes.unwrap();
        assert!(bytes[..3000] == [1; 3000] && bytes[3000..6000] == [2; 3000], "seed {seed}");
    }
}

#[test]
fn unsynced_writes_are_lost_kept_and_torn_by_sector() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let bytes = after_crash(seed, Unsynced::Seeded, async |env| {
            let file = with_file(env, &[1; 8192]).await.unwrap();
            file.write_all_at(100, &[2; 5000]).await.unwrap();
        });
        let bytes = bytes.unwrap();
        assert_eq!(bytes.len(), 8192, "seed {seed}");
        let new = bytes.iter().filter(|byte| **byte == 2).count();
        outcomes.insert(match new {
            0 => "lost",
            5000 => "kept",
            _ => "torn",
        });
        // Within a sector it is one or the other, and outside of the write nothing has changed.
        assert!(bytes[..100].iter().chain(&bytes[5100..]).all(|byte| *byte == 1), "seed {seed}");
        let sectors = bytes[512..4608].chunks(512);
        assert!(
            sectors.clone().all(|sector| sector.iter().all(|byte| byte == &sector[0])),
            "seed {seed}"
        );
    }
    assert_eq!(outcomes, BTreeSet::from(["kept", "lost", "torn"]));
}

#[test]
fn a_file_may_get_its_length_without_its_bytes() {
    let lengths: BTreeSet<usize> = (0..SEEDS)
        .map(|seed| {
            let bytes = after_crash(seed, Unsynced::Seeded, async |env| {
                let file = with_file(env, &[1; 10]).await.unwrap();
                file.write_all_at(10, &[2; 2000]).await.unwrap();
            });
            let bytes = bytes.unwrap();
            assert!(
                bytes[..10] == [1; 10] && bytes[10..].iter().all(|byte| *byte == 2 || *byte == 0)
            );
            bytes.iter().filter(|byte| **byte == 0).count()
        })
        .collect();
    assert!(lengths.len() > 2, "{lengths:?}");
}

#[test]
fn the_test_may_decide_what_a_crash_leaves() {
    let write = async |env: &Env| {
        let file = with_file(env, b"old").await.unwrap();
        file.write_all_at(0, b"new, longer").await.unwrap();
        file.set_len(5).await.unwrap();
    };
    assert_eq!(after_crash(1, Unsynced::Lost, write), Some(b"old".to_vec()));
    assert_eq!(after_crash(1, Unsynced::Kept, write), Some(b"new, ".to_vec()));
}

#[test]
fn names_are_durable_only_with_their_directory() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        sim.run_until(async {
            drop(with_file(&env, b"old").await.unwrap());
            let file = env.files().open("/data/new", Open::Create).await.unwrap();
            file.write_all_at(0, b"new").await.unwrap();
            file.sync_all().await.unwrap();
            env.files().rename("/data/new", "/data/file").await.unwrap();
        });
        sim.crash(&env);
        let env = sim.restart(&env);
        sim.run_until(async {
            let names = env.files().list("/data").await.unwrap();
            assert!(names.contains(&"file".to_string()), "seed {seed}: {names:?}");
            let contents = env.files().read("/data/file").await.unwrap();
            seen.insert((names, String::from_utf8(contents).unwrap()));
        });
    }
    let case = |names: &[&str], contents: &str| {
        (names.iter().map(|n| n.to_string()).collect(), contents.to_string())
    };
    // Neither the new name nor the renaming, only the new name, or all of it. Never a mixture of
    // contents.
    assert_eq!(
        seen,
        BTreeSet::from([
            case(&["file"], "old"),
            case(&["file", "new"], "old"),
            case(&["file"], "new")
        ])
    );
}

#[test]
fn replacing_a_file_is_all_or_nothing_at_every_instant() {
    for seed in 0..SEEDS {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        sim.run_until(async { drop(with_file(&env, &[1; 2000]).await.unwrap()) });
        let theirs = env.clone();
        let replacing = env.spawn("replacing", async move {
            theirs.files().replace("/data/file", &[2; 3000]).await.unwrap();
        });
        let wait = std::time::Duration::from_micros(sim.random().below(3000));
        let done = sim.run_until_within(wait, replacing);
        sim.crash(&env);
        let env = sim.restart(&env);
        let bytes = sim.run_until(env.files().read("/data/file")).unwrap();
        match done {
            Some(_) => assert!(bytes == [2; 3000], "seed {seed}"),
            None => assert!(bytes == [1; 2000] || bytes == [2; 3000], "seed {seed}"),
        }
    }
}

#[test]
fn a_crash_ends_tasks_timers_locks_and_handles() {
    let sim = Simulation::new(3);
    let env = sim.process("node");
    let file = sim.run_until(with_file(&env, b"old")).unwrap();
    let lock = sim.run_until(env.files().lock("/data")).unwrap();
    let forever = env.spawn("forever", std::future::pending());
    let theirs = env.clone();
    let timer =
        env.call_at(env.now(), move || drop(theirs.spawn("never", async { unreachable!() })));
    sim.crash(&env);
    assert!(sim.run_until(forever).is_err());
    assert!(sim.run_until(env.spawn("late", async {})).is_err());
    assert_eq!(sim.run_until(file.write_all_at(0, b"x")), Err(IoErrorKind::Failed.into()));
    assert_eq!(sim.run_until(env.files().list("/data")), Err(IoErrorKind::Failed.into()));
    sim.run_for(std::time::Duration::from_secs(1));
    let again = sim.restart(&env);
    let lock_again = sim.run_until(again.files().lock("/data")).unwrap();
    drop((lock, file, timer));
    assert!(
        sim.run_until(again.files().lock("/data")).is_err(),
        "a dead handle gives nothing back"
    );
    drop(lock_again);
}

#[test]
fn a_task_may_crash_its_own_process() {
    let sim = Simulation::new(3);
    let env = sim.process("node");
    let (theirs, theirs_env) = (sim.clone(), env.clone());
    let task = env.spawn("crashing", async move {
        theirs.crash(&theirs_env);
        // Nothing that it does now has an effect, and it never gets beyond its next wait.
        assert!(theirs_env.files().create_dir_all("/late").await.is_err());
        theirs_env.yield_now().await;
        unreachable!("a dead task was polled");
    });
    assert!(sim.run_until(task).is_err());
    assert_eq!(sim.run_until(sim.restart(&env).files().exists("/late")), Ok(false));
}

#[test]
fn a_killed_process_leaves_what_it_wrote() {
    let sim = Simulation::new(3);
    let env = sim.process("node");
    let file = sim.run_until(with_file(&env, b"old")).unwrap();
    sim.run_until(file.write_all_at(0, b"new")).unwrap();
    assert!(!sim.is_synced(&env));
    sim.kill(&env);
    let env = sim.process("node");
    assert_eq!(sim.run_until(env.files().read("/data/file")).unwrap(), b"new");
}

#[test]
fn each_process_has_its_own_disk() {
    let sim = Simulation::new(3);
    let (one, two) = (sim.process("one"), sim.process("two"));
    sim.run_until(async { drop(with_file(&one, b"old").await.unwrap()) });
    assert_eq!(sim.run_until(two.files().read("/data/file")), Err(IoErrorKind::NotFound.into()));
    sim.crash(&two);
    assert_eq!(sim.run_until(one.files().read("/data/file")).unwrap(), b"old");
}

#[test]
fn a_failed_sync_leaves_an_unknown_state_which_the_next_one_does_not_mend() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let file = sim.run_until(with_file(&env, &[1; 1024])).unwrap();
        sim.update_faults(&env, |plan| plan.sync.fail = 1.0);
        sim.run_until(async {
            file.write_all_at(0, &[2; 1024]).await.unwrap();
            assert_eq!(file.sync_data().await, Err(IoErrorKind::Failed.into()));
        });
        sim.set_faults(&env, FaultPlan::default());
        sim.run_until(file.sync_data()).unwrap();
        let seen = sim.run_until(env.files().read("/data/file")).unwrap();
        sim.crash_with(&env, Unsynced::Lost);
        let stored = sim.run_until(sim.restart(&env).files().read("/data/file")).unwrap();
        outcomes.insert(match (stored[0], stored[1023]) {
            (1, 1) => "lost",
            (2, 2) => "kept",
            _ => "torn",
        });
        outcomes.insert(if seen == stored { "seen as stored" } else { "seen from the cache" });
    }
    assert_eq!(
        outcomes,
        BTreeSet::from(["kept", "lost", "seen as stored", "seen from the cache", "torn"])
    );
}

#[test]
fn a_skipped_sync_is_one_that_lies() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    let file = sim.run_until(with_file(&env, b"old")).unwrap();
    sim.update_faults(&env, |plan| plan.skip_sync = true);
    sim.run_until(async {
        file.write_all_at(0, b"new").await.unwrap();
        file.sync_data().await.unwrap();
    });
    sim.crash_with(&env, Unsynced::Lost);
    let env = sim.restart(&env);
    assert_eq!(sim.run_until(env.files().read("/data/file")).unwrap(), b"old");
}

#[test]
fn a_full_disk_takes_what_fits_and_more_when_there_is_room() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    let file = sim.run_until(with_file(&env, &[1; 4096])).unwrap();
    sim.set_faults(&env, FaultPlan { capacity: Some(3 * 4096), ..FaultPlan::default() });
    sim.run_until(async {
        assert_eq!(env.files().room("/data").await.unwrap().free, 2 * 4096);
        let error = file.write_all_at(4096, &[2; 20_000]).await.unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        assert!(error.to_string().contains("/data/file"), "{error}");
        assert_eq!(file.len().await, Ok(3 * 4096));
        file.write_all_at(0, &[3; 3 * 4096]).await.unwrap();
        file.sync_data().await.unwrap();
        let other = env.files().open("/data/other", Open::Create).await.unwrap();
        assert!(other.allocate(1).await.unwrap_err().is_disk_full());
        assert!(!env.files().open("/data/no", Open::Read).await.unwrap_err().is_disk_full());
    });
    sim.update_faults(&env, |plan| plan.capacity = Some(1 << 20));
    sim.run_until(async {
        file.write_all_at(4096, &[2; 20_000]).await.unwrap();
        env.files().remove("/data/file").await.unwrap();
        let kept = env.files().room("/data").await.unwrap().free;
        drop(file);
        assert!(
            env.files().room("/data").await.unwrap().free > kept,
            "an open file keeps its room"
        );
    });
}

#[test]
fn a_real_world_wait_is_refused_in_simulation() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    let (kept, reply) = plinth_env::reply::promise::<()>();
    let waited = sim.run_until(async move { reply.wait() });
    assert_eq!(waited, Err(Error::blocked_from_network_thread()));
    drop(kept);
    let blocked = std::panic::catch_unwind(|| block_on(env.files().exists("/")));
    assert!(blocked.is_err());
}
