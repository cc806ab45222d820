//! Whatever instant the power fails at, and whatever the disk refuses: the last durable checkpoint
//! is there, whole.

mod support;

use plinth_env::Env;
use plinth_env::simulated::{CallKind, FaultPlan, Random, Simulation};
use plinth_storage::checkpoint::{self, Pace};
use plinth_storage::{MemoryStorage, PinnedVersion, Reader, Snapshot, Writer};
use plinth_types::{LogPosition, Version};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{DIR, IDENTITY, Rows, churn, rows_of};

/// Writes checkpoints one after the other, and notes the version of the last that was begun, and of
/// the last that is durable.
async fn write_each(
    env: Env,
    snapshots: Vec<Snapshot>,
    durable: Arc<Mutex<Option<Version>>>,
    begun: Arc<Mutex<Version>>,
) {
    let dir = Path::new(DIR);
    for snapshot in snapshots {
        let version = snapshot.position().version;
        *begun.lock().unwrap() = version;
        let pace = Pace { bytes_per_second: None, sync_every: 4096 };
        checkpoint::write(&env, dir, IDENTITY, &snapshot, pace).await.unwrap();
        *durable.lock().unwrap() = Some(version);
        checkpoint::remove_others(&env, dir, version).await.unwrap();
    }
}

#[test]
fn a_crash_leaves_the_last_durable_checkpoint() {
    let (mut crashed_while_writing, mut older, mut newer) = (0, 0, 0);
    for seed in 0..60 {
        let sim = Simulation::new(seed);
        let mut env = sim.process("node");
        let mut random = Random::new(seed);
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        let mut rows = Rows::new();
        let mut versions: BTreeMap<Version, Rows> = BTreeMap::new();
        let mut version = 0;
        for _ in 0..4 {
            let durable = Arc::new(Mutex::new(None));
            let begun = Arc::new(Mutex::new(0));
            let mut written = Vec::new();
            for _ in 0..3 {
                version += 10;
                churn(&mut store, version, &mut random, 200, &mut rows);
                versions.insert(version, rows.clone());
                written.push(store.snapshot());
            }
            let before = sim.run_until({
                let env = env.clone();
                async move {
                    env.files().create_dir_all(DIR).await.unwrap();
                    MemoryStorage::load(&env, Path::new(DIR), IDENTITY)
                        .await
                        .unwrap()
                        .map(|loaded| loaded.at.version)
                }
            });
            let task = write_each(env.clone(), written, durable.clone(), begun.clone());
            drop(env.spawn("writer", task));
            sim.run_for(Duration::from_micros(random.below(8000)));
            sim.crash(&env);
            env = sim.restart(&env);
            let (durable, begun) = (*durable.lock().unwrap(), *begun.lock().unwrap());
            let loaded = sim.run_until({
                let env = env.clone();
                async move { MemoryStorage::load(&env, Path::new(DIR), IDENTITY).await.unwrap() }
            });
            let found = loaded.as_ref().map(|loaded| loaded.at.version);
            assert!(
                found >= durable.or(before),
                "seed {seed}: {found:?} after {durable:?} or {before:?}"
            );
            assert!(found <= Some(begun).max(before), "seed {seed}");
            if let Some(loaded) = &loaded {
                assert!(rows_of(&loaded.store) == versions[&loaded.at.version], "seed {seed}");
            }
            let in_between = durable < Some(begun);
            crashed_while_writing += u32::from(in_between);
            older += u32::from(in_between && found == durable.or(before));
            newer += u32::from(in_between && found == Some(begun));
        }
    }
    assert!(
        crashed_while_writing > 30 && older > 10 && newer > 0,
        "{crashed_while_writing} {older} {newer}"
    );
}

#[test]
fn a_full_disk_and_failing_calls_leave_the_old_checkpoint() {
    let mut failures = 0;
    for seed in 0..40 {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let mut random = Random::new(seed);
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        let mut rows = Rows::new();
        churn(&mut store, 10, &mut random, 500, &mut rows);
        let old = rows.clone();
        let dir = Path::new(DIR);
        sim.run_until(async {
            env.files().create_dir_all(DIR).await.unwrap();
            checkpoint::write(&env, dir, IDENTITY, &store.snapshot(), Pace::default())
                .await
                .unwrap();
        });
        churn(&mut store, 20, &mut random, 500, &mut rows);
        let full = random.index(2) == 0;
        let plan = match full {
            true => FaultPlan { capacity: Some(40_000), ..FaultPlan::default() },
            false => FaultPlan::failing(0.1, 0.0),
        };
        sim.set_faults(&env, plan);
        let result = sim.run_until(async {
            checkpoint::write(&env, dir, IDENTITY, &store.snapshot(), Pace::default()).await
        });
        sim.set_faults(&env, FaultPlan::default());
        let loaded = sim.run_until(async {
            MemoryStorage::load(&env, dir, IDENTITY).await.unwrap().expect("the old one")
        });
        match result {
            Ok(_) => {
                assert!(loaded.at.version == 20 && rows_of(&loaded.store) == rows, "seed {seed}")
            }
            Err(error) => {
                failures += 1;
                assert!(!full || error.is_disk_full(), "seed {seed}: {error}");
                // The last step, syncing the directory, may fail after the file has its name.
                let expected = if loaded.at.version == 10 { &old } else { &rows };
                assert!(rows_of(&loaded.store) == *expected, "seed {seed}");
            }
        }
        while store.forget_before(20, 1000) {}
        assert!(store.memory().window < 1000, "a failed checkpoint lets go of its version");
        assert!(sim.call_count(&env, CallKind::Sync) > 0);
    }
    assert!(failures > 10, "{failures}");
}
