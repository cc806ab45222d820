//! A flipped bit anywhere in the engine's files is found, named with its file, and never served;
//! what other blocks hold can be salvaged.
//!
//! Each seed makes the same small engine of several levels, and harms one place of one of its
//! files.

#[path = "support/keys.rs"]
mod keys;
#[path = "support/rows.rs"]
mod rows;
#[path = "support/salvage.rs"]
mod salvage;

use keys::keys;
use plinth_env::simulated::{Random, Simulation};
use plinth_env::{Env, Open};
use plinth_storage::checkpoint::{Identity, Keys};
use plinth_storage::ssd::{SsdSalvage, verify_ssd};
use plinth_storage::{Reader, SsdSettings, SsdStorage, StorageError, StorageResult, Writer};
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
async fn fill(env: &Env, keys: &Keys) -> Rows {
    let settings = || SsdSettings { keys: keys.clone(), ..settings() };
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
async fn read(env: &Env, keys: &Keys) -> StorageResult<Rows> {
    let settings = SsdSettings { keys: keys.clone(), ..settings() };
    let store = SsdStorage::open(env, Path::new(DIR), IDENTITY, settings).await?;
    let rows = rows_of(&*store).await;
    store.close().await;
    rows
}

#[test]
fn an_undamaged_engine_is_read_checked_and_salvaged_whole() {
    let keys = &Keys::none();
    let sim = Simulation::new(1);
    let env = sim.process("node");
    sim.run_until(async {
        let rows = fill(&env, keys).await;
        assert!(read(&env, keys).await.unwrap() == rows);
        let report = verify_ssd(&env, Path::new(DIR), Some(IDENTITY), keys).await.unwrap();
        assert!(
            report.problems.is_empty() && report.tables > 4 && report.rows >= rows.len() as u64
        );
        assert!(salvage(&env, DIR, keys).await == (rows, 0));
    });
}

#[test]
fn a_flipped_bit_is_found_and_named_and_not_served() {
    flip_bits(0..400, &Keys::none());
}

#[test]
fn a_flipped_bit_in_sealed_tables_is_found_and_named_and_not_served() {
    flip_bits(0..120, &keys(0));
}

/// Whoever can write to the disk makes checksums right; the key tells.
#[test]
fn a_block_that_was_changed_with_its_checksum_is_not_served() {
    let (sim, keys) = (Simulation::new(7), &keys(0));
    let env = sim.process("node");
    sim.run_until(async {
        let rows = fill(&env, keys).await;
        let names = env.files().list(DIR).await.unwrap();
        let name = names.iter().find(|name| name.starts_with("table-")).unwrap();
        let file = env.files().open(Path::new(DIR).join(name), Open::Write).await.unwrap();
        let mut bytes = env.files().read(Path::new(DIR).join(name)).await.unwrap();
        let (seed, block) = (crc32c::crc32c(&bytes[16..76]), 128 + 96);
        let len = u32::from_le_bytes(bytes[block + 8..block + 12].try_into().unwrap()) as usize;
        let padding = u16::from_le_bytes(bytes[block + 22..block + 24].try_into().unwrap());
        bytes[block + 30] ^= 1;
        let covered = block + 8..block + 24 + len + usize::from(padding);
        let checksum = crc32c::crc32c_append(seed, &bytes[covered]);
        bytes[block + 4..block + 8].copy_from_slice(&checksum.to_le_bytes());
        file.write_all_at(0, &bytes).await.unwrap();
        let error = read(&env, keys).await.err().unwrap();
        assert!(error.is_damage() && error.to_string().contains("has sealed"), "{error}");
        let report = verify_ssd(&env, Path::new(DIR), Some(IDENTITY), keys).await.unwrap();
        assert_eq!(report.problems.len(), 1, "{report:?}");
        let (found, problems) = salvage(&env, DIR, keys).await;
        assert!(problems == 1 && found.len() > rows.len() / 2);
    });
}

#[test]
fn sealed_tables_show_nothing_and_stay_shut_without_their_key() {
    let (sim, given) = (Simulation::new(8), &keys(1));
    let env = sim.process("node");
    sim.run_until(async {
        let rows = fill(&env, given).await;
        assert!(read(&env, given).await.unwrap() == rows);
        assert!(salvage(&env, DIR, given).await == (rows.clone(), 0));
        for name in env.files().list(DIR).await.unwrap() {
            let bytes = env.files().read(Path::new(DIR).join(&name)).await.unwrap();
            assert!(!bytes.windows(4).any(|part| part == b"key0"), "{name}");
        }
        for other in [Keys::none(), keys(0)] {
            let error = read(&env, &other).await.err().unwrap();
            assert!(matches!(error, StorageError::Locked(_)), "{error}");
            let report = verify_ssd(&env, Path::new(DIR), Some(IDENTITY), &other).await.unwrap();
            assert!(report.problems.is_empty() && report.rows >= rows.len() as u64, "{report:?}");
            assert_eq!(report.locked.len() as u64, report.tables);
            assert!(SsdSalvage::open(&env, Path::new(DIR), &other).await.is_err());
        }
    });
}

/// From the clear to one key, to the next: tables are written anew until none needs what was
/// before.
#[test]
fn tables_take_each_new_key_and_need_no_older_one_afterwards() {
    let sim = Simulation::new(9);
    let env = sim.process("node");
    sim.run_until(async {
        let rows = fill(&env, &Keys::none()).await;
        for newest in 0..3 {
            let settings = SsdSettings { keys: keys(newest), ..settings() };
            let store = SsdStorage::open(&env, Path::new(DIR), IDENTITY, settings).await.unwrap();
            assert_eq!(store.outdated().0, store.figures().tables);
            while store.compact().await.unwrap() {}
            // Their files go at the leisure of those who remove them: with the next start.
            assert!(store.outdated().0 > 0);
            assert!(rows_of(&*store).await.unwrap() == rows);
            store.close().await;
        }
        let last = Keys::new(&[plinth_format::crypt::Key::of_file(&[2; 32]).unwrap()]);
        assert!(read(&env, &last).await.unwrap() == rows);
    });
}

fn flip_bits(seeds: std::ops::Range<u64>, keys: &Keys) {
    let (mut served_not, mut unharmed, all) = (0, 0, seeds.end);
    for seed in seeds {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let mut random = Random::new(seed);
        let (rows, path) = sim.run_until(async {
            let rows = fill(&env, keys).await;
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
            let report = verify_ssd(&env, Path::new(DIR), Some(IDENTITY), keys).await.unwrap();
            let name = path.display().to_string();
            assert!(
                report.problems.iter().any(|problem| problem.file == name),
                "seed {seed}: {name}"
            );
            match read(&env, keys).await {
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
            let (found, problems) = salvage(&env, DIR, keys).await;
            assert!(problems > 0, "seed {seed}");
            let right = found.iter().filter(|(key, value)| rows.get(*key) == Some(*value)).count();
            assert!(right * 2 > rows.len(), "seed {seed}: {right} of {} rows salvaged", rows.len());
        });
    }
    assert!(served_not * 4 > all * 3, "{served_not}, {unharmed}");
}

#[test]
fn a_file_that_was_cut_or_is_missing_is_named() {
    let keys = &Keys::none();
    for seed in 0..60 {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let mut random = Random::new(seed);
        sim.run_until(async {
            fill(&env, keys).await;
            let names = env.files().list(DIR).await.unwrap();
            let path = PathBuf::from(DIR).join(&names[random.index(names.len())]);
            if random.index(2) == 0 {
                env.files().remove(&path).await.unwrap();
            } else {
                let file = env.files().open(&path, Open::Write).await.unwrap();
                file.set_len(random.below(file.len().await.unwrap())).await.unwrap();
            }
            let report = verify_ssd(&env, Path::new(DIR), Some(IDENTITY), keys).await.unwrap();
            let name = path.display().to_string();
            assert!(
                report.problems.iter().any(|problem| problem.file == name),
                "seed {seed}: {name}"
            );
            let error = read(&env, keys).await.err().unwrap();
            assert!(error.to_string().contains(&name), "seed {seed}: {error} does not name {name}");
        });
    }
}
