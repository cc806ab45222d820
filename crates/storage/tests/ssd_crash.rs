//! Whatever instant the power fails at, and whatever the disk refuses: the engine opens at exactly
//! one version, which is at least the last one it called durable, with all of its rows and no
//! others.
//!
//! On the simulated disk, which forgets what was not synced; each life begins with what the one
//! before left.

#[path = "support/keys.rs"]
mod keys;
#[path = "support/rows.rs"]
mod rows;

use keys::keys_of_life;
use plinth_env::Env;
use plinth_env::simulated::{FaultPlan, Random, Simulation, Unsynced};
use plinth_storage::checkpoint::{Identity, Keys};
use plinth_storage::{Reader, SsdSettings, SsdStorage, Writer};
use plinth_types::{LogPosition, MutationList, MutationType, Version};
use rows::{Rows, rows_of};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const IDENTITY: Identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
const DIR: &str = "/data/ssd";

fn settings() -> SsdSettings {
    SsdSettings {
        block_bytes: 256,
        table_bytes: 6 << 10,
        level_bytes: 16 << 10,
        flush_bytes: 2000,
        background: false,
        ..SsdSettings::with_memory(4 << 20)
    }
}

fn key(n: usize) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// A batch of random changes, in the rows too.
fn churn(random: &mut Random, rows: &mut Rows) -> MutationList {
    let mut list = MutationList::new();
    for _ in 0..1 + random.index(60) {
        let at = key(random.index(900));
        match random.index(10) {
            0 => {
                let end = key(random.index(900));
                list.push(MutationType::ClearRange, &at, &end);
                rows.retain(|key, _| *key < at || *key >= end);
            }
            1 | 2 => {
                list.push(MutationType::ClearRange, &at, &plinth_types::key_after(&at));
                rows.remove(&at);
            }
            3 => {
                list.push(MutationType::AppendIfFits, &at, b"+");
                rows.entry(at).or_default().push(b'+');
            }
            _ => {
                let mut value = vec![0; random.index(60)];
                random.fill(&mut value);
                list.push(MutationType::Set, &at, &value);
                rows.insert(at, value);
            }
        }
    }
    list
}

/// What a life of the engine has come to, as those know it who survive its crash.
#[derive(Default)]
struct Known {
    /// The rows of each version.
    versions: BTreeMap<Version, Rows>,
    /// The newest version that was called durable.
    durable: Version,
    switches: u64,
}

impl Known {
    fn rows_at(&self, version: Version) -> &Rows {
        self.versions.range(..=version).next_back().expect("version 0 has rows: none").1
    }
}

/// Writes, flushes and compacts until it is stopped. Faults make calls fail; then they are tried
/// again.
async fn live(env: Env, known: Arc<Mutex<Known>>, seed: u64, keys: Keys) {
    let mut random = Random::new(seed);
    let settings = SsdSettings { keys, ..settings() };
    let Ok(mut store) = SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings).await else {
        return;
    };
    let mut version = store.durable().version;
    let mut rows = known.lock().unwrap().rows_at(version).clone();
    loop {
        for _ in 0..1 + random.index(4) {
            version += 1 + random.index(10) as Version;
            let list = churn(&mut random, &mut rows);
            let Ok(prepared) = store.prepare(&mut list.iter()).await else { return };
            store.apply(prepared, LogPosition::without_log(version), &mut list.iter(), None);
            store.publish(version);
            known.lock().unwrap().versions.insert(version, rows.clone());
        }
        store.forget_before(version - random.index(8) as Version, 0);
        let flushed = store.flush_now().await;
        let compacted = match random.index(3) {
            0 => store.compact().await,
            _ => Ok(false),
        };
        let mut known = known.lock().unwrap();
        known.durable = known.durable.max(store.durable().version);
        known.switches += u64::from(flushed == Ok(true)) + u64::from(compacted == Ok(true));
    }
}

async fn create(env: &Env) {
    env.files().create_dir_all(DIR).await.unwrap();
    SsdStorage::create(env, Path::new(DIR), IDENTITY).await.unwrap();
}

#[test]
fn a_crash_leaves_exactly_one_version_whole() {
    let (mut switches, mut newer) = (0, 0);
    for seed in 0..60 {
        let sim = Simulation::new(seed);
        let mut env = sim.process("node");
        let mut random = Random::new(seed);
        sim.run_until(create(&env));
        let known = Arc::new(Mutex::new(Known::default()));
        known.lock().unwrap().versions.insert(0, Rows::new());
        for life in 0..4 {
            if random.index(3) == 0 {
                sim.set_faults(&env, FaultPlan::failing(0.02, 0.0));
            }
            // Every third seed begins in the clear, and has another key in each life.
            let keys = if seed % 3 == 0 { keys_of_life(life) } else { Keys::none() };
            let living = live(env.clone(), known.clone(), seed * 10 + life, keys.clone());
            drop(env.spawn("life", living));
            sim.run_for(Duration::from_micros(random.below(200_000)));
            sim.crash(&env);
            env = sim.restart(&env);
            sim.set_faults(&env, FaultPlan::default());
            let (version, rows) = sim.run_until({
                let env = env.clone();
                async move {
                    let settings = SsdSettings { keys, ..settings() };
                    let store =
                        SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings).await.unwrap();
                    (store.durable().version, rows_of(&*store).await.unwrap())
                }
            });
            let mut known = known.lock().unwrap();
            assert!(version >= known.durable, "seed {seed}: {version} after {}", known.durable);
            assert!(*known.rows_at(version) == rows, "seed {seed}: other rows at {version}");
            newer += u64::from(version > known.durable);
            switches += std::mem::take(&mut known.switches);
            known.durable = version;
            known.versions = [(version, rows)].into();
        }
    }
    assert!(
        switches > 500 && newer > 0,
        "{switches} switches, {newer} found that nobody was told of"
    );
}

#[test]
fn a_full_disk_is_waited_out() {
    for seed in 0..20 {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let mut random = Random::new(seed);
        sim.run_until(create(&env));
        let mut store = sim.run_until(async {
            SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings()).await.unwrap()
        });
        let (mut rows, mut version, mut refused) = (Rows::new(), 0, 0);
        for round in 0..40 {
            version += 10;
            let list = churn(&mut random, &mut rows);
            let prepared = sim.run_until(async { store.prepare(&mut list.iter()).await.unwrap() });
            store.apply(prepared, LogPosition::without_log(version), &mut list.iter(), None);
            store.publish(version);
            store.forget_before(version, 0);
            let capacity = if round % 20 < 10 { None } else { Some(3000 + random.below(20_000)) };
            sim.set_faults(&env, FaultPlan { capacity, ..FaultPlan::default() });
            for result in sim.run_until(async { [store.flush_now().await, store.compact().await] })
            {
                if let Err(error) = result {
                    assert!(error.is_disk_full(), "seed {seed}: {error}");
                    refused += 1;
                }
            }
            let found = sim.run_until(async { rows_of(&*store).await.unwrap() });
            assert!(found == rows, "seed {seed}: round {round}");
        }
        sim.set_faults(&env, FaultPlan::default());
        sim.run_until(async { store.flush_now().await.unwrap() });
        assert!(
            refused > 0 && store.durable().version == version,
            "seed {seed}: {refused} refused"
        );
        drop(store);
        let files = sim.run_until(async {
            let store = SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings()).await.unwrap();
            assert!(rows_of(&*store).await.unwrap() == rows, "seed {seed}");
            (store.figures().tables as usize, env.files().list(DIR).await.unwrap().len())
        });
        assert_eq!(files.0 + 1, files.1, "seed {seed}: what was given up left nothing behind");
    }
}

#[test]
fn a_directory_of_another_node_is_refused() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    sim.run_until(async {
        create(&env).await;
        let other = Identity { cluster_id: [1; 16], node_id: [3; 16] };
        let opened = SsdStorage::open(&env, Path::new(DIR), other, settings()).await;
        assert!(opened.is_err_and(|error| error.is_damage()));
    });
}

/// A manifest that had got its name, and whose directory could then not be synced, is read by the
/// next process out of the operating system's memory. On the strength of it the log was let go of,
/// and files that the one before it names were removed; with the power it was gone.
#[test]
fn what_an_opening_found_is_found_again_when_the_power_fails_next() {
    let mut newer = 0;
    for seed in 0..60 {
        let sim = Simulation::new(seed);
        let mut env = sim.process("node");
        sim.run_until(create(&env));
        let known = Arc::new(Mutex::new(Known::default()));
        known.lock().unwrap().versions.insert(0, Rows::new());
        sim.update_faults(&env, |plan| plan.sync.fail = 0.2);
        drop(env.spawn("life", live(env.clone(), known.clone(), seed, Keys::none())));
        sim.run_for(Duration::from_millis(100));
        sim.kill(&env);
        env = sim.restart(&env);
        sim.set_faults(&env, FaultPlan::default());
        let open = |env: Env| async move {
            let store = SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings()).await;
            let store = store.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            (store.durable().version, rows_of(&*store).await.unwrap())
        };
        let found = sim.run_until(open(env.clone()));
        sim.crash_with(&env, Unsynced::Lost);
        env = sim.restart(&env);
        let again = sim.run_until(open(env.clone()));
        assert!(again == found, "seed {seed}: {} behind {}", again.0, found.0);
        newer += u64::from(found.0 > known.lock().unwrap().durable);
    }
    assert!(newer > 0, "no life ended with a manifest that it didn't know durable");
}
