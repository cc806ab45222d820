//! A flipped bit anywhere in the engine's files is found, named with its file, and never served;
//! what other blocks hold can be salvaged.
//!
//! Each seed makes the same small engine of several levels, and harms one place of one of its
//! files.

#[path = "support/rows.rs"]
mod rows;
#[path = "support/salvage.rs"]
mod salvage;

use plinth_env::simulated::{Random, Simulation};
use plinth_env::{Env, Open};
use plinth_storage::checkpoint::Identity;
use plinth_storage::ssd::verify_ssd;
use plinth_storage::{Reader, SsdSettings, SsdStorage, StorageResult, Writer};
use plinth_types::{LogPosition, MutationList, MutationType, Version};
use rows::{Rows, rows_of};
use salvage::salvage;
use std::path::{Path, PathBuf};

const IDENTITY: Identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
const DIR: &str = "/data/ssd";

fn settings() -> SsdSettings {
    SsdSettings {
        block_bytes: 256,
        table_bytes: 2 << 10,
        level_bytes: 4 << 10,
        background: false,
        ..SsdSettings::with_memory(4 << 20)
    }
}

/// An engine with some levels; gives the rows.
async fn fill(env: &Env) -> Rows {
    env.files().create_dir_all(DIR).await.unwrap();
    SsdStorage::create(env, Path::new(DIR), IDENTITY).await.unwrap();
    let mut store = SsdStorage::open(env, Path::new(DIR), IDENTITY, settings()).await.unwrap();
    let (mut random, mut rows) = (Random::new(5), Rows::new());
    for version in 1..=12 as Version {
        let mut list = MutationList::new();
        for _ in 0..60 {
            let key = format!("key{:04}", random.index(400)).into_bytes();
            list.push(MutationType::Set, &key, &[version as u8; 20]);
            rows.insert(key, vec![version as u8; 20]);
        }
        if version % 4 == 0 {
            list.push(MutationType::ClearRange, b"key0100", b"key0200");
            rows.retain(|key, _| key[..] < b"key0100"[..] || key[..] >= b"key0200"[..]);
        }
        let prepared = store.prepare(&mut list.iter()).wait().unwrap();
        store.apply(prepared, LogPosition::without_log(version), &mut list.iter(), None);
        store.publish(version);
        store.forget_before(version, 0);
        store.flush_now().await.unwrap();
        if version < 11 {
            while store.compact().await.unwrap() {}
        }
    }
    store.close().await;
    // The next start removes the files that nobody needs any more.
    let store = SsdStorage::open(env, Path::new(DIR), IDENTITY, settings()).await.unwrap();
    store.close().await;
    rows
}

/// Reads everything; an error if any of it can't be read.
async fn read(env: &Env) -> StorageResult<Rows> {
    let store = SsdStorage::open(env, Path::new(DIR), IDENTITY, settings()).await?;
    let rows = rows_of(&*store).await;
    store.close().await;
    rows
}

#[test]
fn an_undamaged_engine_is_read_checked_and_salvaged_whole() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    sim.run_until(async {
        let rows = fill(&env).await;
        assert!(read(&env).await.unwrap() == rows);
        let report = verify_ssd(&env, Path::new(DIR), Some(IDENTITY)).await.unwrap();
        assert!(
            report.problems.is_empty() && report.tables > 4 && report.rows >= rows.len() as u64
        );
        assert!(salvage(&env, DIR).await == (rows, 0));
    });
}

#[test]
fn a_flipped_bit_is_found_and_named_and_not_served() {
    let (mut served_not, mut unharmed) = (0, 0);
    for seed in 0..400 {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let mut random = Random::new(seed);
        let (rows, path) = sim.run_until(async {
            let rows = fill(&env).await;
            let names = env.files().list(DIR).await.unwrap();
            (rows, PathBuf::from(DIR).join(&names[random.index(names.len())]))
        });
        sim.run_until(async {
            let file = env.files().open(&path, Open::Write).await.unwrap();
            let bit = random.below(file.len().await.unwrap() * 8);
            let mut byte = [0];
            file.read_exact_at(bit / 8, &mut byte).await.unwrap();
            byte[0] ^= 1 << (bit % 8);
            file.write_all_at(bit / 8, &byte).await.unwrap();
        });
        sim.run_until(async {
            let report = verify_ssd(&env, Path::new(DIR), Some(IDENTITY)).await.unwrap();
            let name = path.display().to_string();
            assert!(
                report.problems.iter().any(|problem| problem.file == name),
                "seed {seed}: {name}"
            );
            match read(&env).await {
                Ok(found) => {
                    // Rows in a damaged block that newer clears hide are not read.
                    unharmed += 1;
                    assert!(found == rows, "seed {seed}: wrong rows were served");
                }
                Err(error) => {
                    served_not += 1;
                    assert!(error.is_damage(), "seed {seed}: {error}");
                    let detail = error.summary();
                    assert!(detail.contains(&name), "seed {seed}: {detail} does not name {name}");
                }
            }
            let (found, problems) = salvage(&env, DIR).await;
            assert!(problems > 0, "seed {seed}");
            let right = found.iter().filter(|(key, value)| rows.get(*key) == Some(*value)).count();
            assert!(right * 2 > rows.len(), "seed {seed}: {right} of {} rows salvaged", rows.len());
        });
    }
    assert!(served_not > 300, "{served_not}, {unharmed}");
}

#[test]
fn a_file_that_was_cut_or_is_missing_is_named() {
    for seed in 0..60 {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let mut random = Random::new(seed);
        sim.run_until(async {
            fill(&env).await;
            let names = env.files().list(DIR).await.unwrap();
            let path = PathBuf::from(DIR).join(&names[random.index(names.len())]);
            if random.index(2) == 0 {
                env.files().remove(&path).await.unwrap();
            } else {
                let file = env.files().open(&path, Open::Write).await.unwrap();
                file.set_len(random.below(file.len().await.unwrap())).await.unwrap();
            }
            let report = verify_ssd(&env, Path::new(DIR), Some(IDENTITY)).await.unwrap();
            let name = path.display().to_string();
            assert!(
                report.problems.iter().any(|problem| problem.file == name),
                "seed {seed}: {name}"
            );
            let error = read(&env).await.err().unwrap();
            assert!(error.to_string().contains(&name), "seed {seed}: {error} does not name {name}");
        });
    }
}
