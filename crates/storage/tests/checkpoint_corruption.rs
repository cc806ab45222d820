//! Flipped bits, cut files, files of others: found and named, never served; what is readable is
//! salvaged.
//!
//! A small checkpoint is written once; each trial puts a damaged one in its place, and looks at
//! what loading, verifying and salvage say.

mod support;

use plinth_env::simulated::{Random, Simulation};
use plinth_env::{Env, Open};
use plinth_storage::checkpoint::{self, Identity, Keys, Owner, Pace, Salvage, Salvaged};
use plinth_storage::{MemoryStorage, Reader, StorageResult, Writer};
use plinth_types::{LogPosition, MutationList, MutationType};
use std::path::{Path, PathBuf};
use support::{DIR, IDENTITY, Rows, churn, keys, rows_of};

/// A checkpoint, what is in it, and its bytes.
struct Specimen {
    env: Env,
    keys: Keys,
    rows: Rows,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Specimen {
    async fn new(env: &Env, store: &MemoryStorage) -> Self {
        Self::with(env, store, Keys::none()).await
    }

    async fn with(env: &Env, store: &MemoryStorage, keys: Keys) -> Self {
        let owner = Owner { identity: IDENTITY, keys: keys.clone() };
        env.files().create_dir_all(DIR).await.unwrap();
        let written =
            checkpoint::write(env, Path::new(DIR), owner, &store.snapshot(), Pace::default())
                .await
                .unwrap();
        let bytes = env.files().read(&written.path).await.unwrap();
        assert_eq!(bytes.len() as u64, written.bytes);
        Self { env: env.clone(), keys, rows: rows_of(store), path: written.path, bytes }
    }

    async fn put(&self, bytes: &[u8]) {
        let file = self.env.files().open(&self.path, Open::Truncate).await.unwrap();
        file.write_all_at(0, bytes).await.unwrap();
    }

    /// What loading says, how many problems verifying finds, and what salvage gives.
    async fn examine(&self) -> (StorageResult<Option<Rows>>, usize, Rows) {
        let owner = Owner { identity: IDENTITY, keys: self.keys.clone() };
        let loaded = MemoryStorage::load(&self.env, Path::new(DIR), owner).await;
        let checked = checkpoint::verify(&self.env, Path::new(DIR), None, &self.keys);
        let report = checked.await.unwrap();
        let mut salvage = Salvage::open(&self.env, &self.path, &self.keys).await.unwrap();
        let (mut rows, mut problems) = (Rows::new(), 0);
        while let Some(found) = salvage.next().await.unwrap() {
            match found {
                Salvaged::Rows(found) => {
                    rows.extend(found.iter().map(|(k, v)| (k.to_vec(), v.to_vec())))
                }
                Salvaged::Damage(problem) => {
                    assert!(
                        problem.file.ends_with(".data") && problem.expected != problem.found,
                        "{problem}"
                    );
                    problems += 1;
                }
            }
        }
        assert_eq!(problems, report.problems.len());
        (loaded.map(|loaded| loaded.map(|loaded| rows_of(&loaded.store))), problems, rows)
    }

    fn assert_part(&self, salvaged: &Rows, what: &str) {
        for (key, value) in salvaged {
            assert_eq!(self.rows.get(key), Some(value), "{what}: a row that was never written");
        }
    }
}

fn assert_named(result: StorageResult<Option<Rows>>, what: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{what} was served"));
    assert!(error.is_damage(), "{what}: {error}");
    let detail = error.summary();
    for part in [".data at offset ", "expected ", "found "] {
        assert!(detail.contains(part), "{what}: {detail}");
    }
}

fn flip_everywhere(keys: &Keys) {
    let (front, footer) = if keys.is_none() { (128, 184) } else { (128 + 96, 184 + 96 + 16) };
    let sim = Simulation::new(1);
    let (env, keys) = (sim.process("node"), keys.clone());
    sim.run_until(async move {
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        let (mut random, mut rows) = (Random::new(1), Rows::new());
        churn(&mut store, 1, &mut random, 12, &mut rows);
        let specimen = Specimen::with(&env, &store, keys).await;
        for at in 0..specimen.bytes.len() {
            let bit = 1 << random.index(8);
            let mut bytes = specimen.bytes.clone();
            bytes[at] ^= bit;
            specimen.put(&bytes).await;
            let what = format!("byte {at} of {}", bytes.len());
            let (loaded, problems, salvaged) = specimen.examine().await;
            assert_named(loaded, &what);
            assert!(problems >= 1, "{what}");
            specimen.assert_part(&salvaged, &what);
            let outside_rows = at < front || at >= bytes.len() - footer;
            assert!(!outside_rows || salvaged == specimen.rows, "{what}: rows are lost");
        }
    });
}

#[test]
fn a_bit_flipped_anywhere_is_found() {
    flip_everywhere(&Keys::none());
}

#[test]
fn a_bit_flipped_anywhere_in_a_sealed_checkpoint_is_found() {
    flip_everywhere(&keys(0));
}

/// Whoever can write to the disk makes checksums right; the key tells.
#[test]
fn a_block_that_was_changed_with_its_checksums_is_not_served() {
    let sim = Simulation::new(7);
    let env = sim.process("node");
    sim.run_until(async move {
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        churn(&mut store, 1, &mut Random::new(7), 12, &mut Rows::new());
        let specimen = Specimen::with(&env, &store, keys(0)).await;
        let (mut bytes, block) = (specimen.bytes.clone(), 128 + 96);
        let seed = crc32c::crc32c(&bytes[16..80]);
        let len = u32::from_le_bytes(bytes[block + 12..block + 16].try_into().unwrap()) as usize;
        bytes[block + 40] ^= 1;
        let body = crc32c::crc32c_append(seed, &bytes[block + 32..block + 32 + len]);
        bytes[block + 8..block + 12].copy_from_slice(&body.to_le_bytes());
        let head = crc32c::crc32c_append(seed, &bytes[block + 8..block + 32]);
        bytes[block + 4..block + 8].copy_from_slice(&head.to_le_bytes());
        specimen.put(&bytes).await;
        let (loaded, problems, salvaged) = specimen.examine().await;
        assert!(loaded.as_ref().is_err_and(|error| error.to_string().contains("has sealed")));
        assert_named(loaded, "a changed block");
        assert_eq!((problems, salvaged.len()), (1, 0));
    });
}

#[test]
fn a_sealed_checkpoint_shows_nothing_and_stays_shut_without_its_key() {
    let sim = Simulation::new(8);
    let env = sim.process("node");
    sim.run_until(async move {
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        churn(&mut store, 1, &mut Random::new(8), 200, &mut Rows::new());
        let mut specimen = Specimen::with(&env, &store, keys(1)).await;
        assert!(specimen.examine().await.0.unwrap().unwrap() == specimen.rows);
        let shows = |text: &[u8]| specimen.bytes.windows(text.len()).any(|part| part == text);
        assert!(specimen.rows.keys().all(|key| !shows(key)));
        for other in [Keys::none(), keys(0)] {
            let owner = Owner { identity: IDENTITY, keys: other.clone() };
            let error = MemoryStorage::load(&env, Path::new(DIR), owner).await.err().unwrap();
            assert!(
                error.to_string().contains("checkpoint-0000000000000001.data is encrypted"),
                "{error}"
            );
            assert!(Salvage::open(&env, &specimen.path, &other).await.is_err());
            let report = checkpoint::verify(&env, Path::new(DIR), None, &other).await.unwrap();
            let found = (report.rows, report.problems.len(), report.locked.len());
            assert_eq!(found, (specimen.rows.len() as u64, 0, 1));
        }
        // Checksums hold or not, key or no key.
        specimen.bytes[1000] ^= 1;
        specimen.put(&specimen.bytes).await;
        let report = checkpoint::verify(&env, Path::new(DIR), None, &Keys::none()).await.unwrap();
        assert_eq!(report.problems.len(), 1);
    });
}

#[test]
fn a_file_cut_off_anywhere_is_found() {
    let sim = Simulation::new(2);
    let env = sim.process("node");
    sim.run_until(async move {
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        churn(&mut store, 1, &mut Random::new(2), 12, &mut Rows::new());
        let specimen = Specimen::new(&env, &store).await;
        for len in 0..specimen.bytes.len() {
            specimen.put(&specimen.bytes[..len]).await;
            let what = format!("{len} of {} bytes", specimen.bytes.len());
            let (loaded, problems, salvaged) = specimen.examine().await;
            assert_named(loaded, &what);
            assert!(problems >= 1, "{what}");
            specimen.assert_part(&salvaged, &what);
        }
        specimen.put(&[&specimen.bytes[..], b"more"].concat()).await;
        assert_named(specimen.examine().await.0, "bytes behind the end");
        specimen.put(&specimen.bytes).await;
        assert!(specimen.examine().await.0.unwrap().unwrap() == specimen.rows);
    });
}

#[test]
fn damage_in_one_block_costs_that_block_alone() {
    let sim = Simulation::new(3);
    let env = sim.process("node");
    sim.run_until(async move {
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        let mut list = MutationList::new();
        for number in 0..30_000 {
            list.push(MutationType::Set, format!("key{number:06}").as_bytes(), &[b'v'; 40]);
        }
        let prepared = store.prepare(&mut list.iter()).wait().unwrap();
        store.apply(prepared, LogPosition::without_log(1), &mut list.iter(), None);
        store.publish(1);
        let specimen = Specimen::new(&env, &store).await;
        let heads: Vec<usize> = specimen
            .bytes
            .windows(4)
            .enumerate()
            .filter(|(_, bytes)| *bytes == b"PBLK")
            .map(|(at, _)| at)
            .collect();
        assert!(heads.len() > 10);
        // In a head, in a body, and a block that is gone.
        let (block, behind) = (heads[5], heads[6]);
        for (what, damaged) in [
            ("head", {
                let mut bytes = specimen.bytes.clone();
                bytes[block + 13] ^= 4;
                bytes
            }),
            ("body", {
                let mut bytes = specimen.bytes.clone();
                bytes[block + 1000] ^= 4;
                bytes
            }),
            ("gone", [&specimen.bytes[..block], &specimen.bytes[behind..]].concat()),
            ("zeros", {
                let mut bytes = specimen.bytes.clone();
                bytes[block..behind].fill(0);
                bytes
            }),
        ] {
            specimen.put(&damaged).await;
            let (loaded, problems, salvaged) = specimen.examine().await;
            assert_named(loaded, what);
            assert_eq!(problems, 1, "{what}");
            specimen.assert_part(&salvaged, what);
            let lost = specimen.rows.len() - salvaged.len();
            let in_block = specimen.rows.len() / (heads.len() - 2);
            let blocks = if what == "gone" { 3 } else { 2 };
            assert!(
                lost > in_block / 2 && lost < in_block * blocks,
                "{what}: {lost} rows lost, {in_block} in a block"
            );
        }
    });
}

#[test]
fn a_checkpoint_of_somebody_else_is_refused() {
    let sim = Simulation::new(4);
    let env = sim.process("node");
    sim.run_until(async move {
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        churn(&mut store, 1, &mut Random::new(4), 12, &mut Rows::new());
        let specimen = Specimen::new(&env, &store).await;
        for other in [
            Identity { cluster_id: [9; 16], ..IDENTITY },
            Identity { node_id: [9; 16], ..IDENTITY },
        ] {
            let error = MemoryStorage::load(&env, Path::new(DIR), other).await.err().unwrap();
            assert!(error.is_damage());
            assert!(error.summary().contains(" id: expected 0909"), "{error}");
        }
        // Under another version's name.
        env.files()
            .rename(&specimen.path, Path::new(DIR).join("checkpoint-0000000000000002.data"))
            .await
            .unwrap();
        let error = MemoryStorage::load(&env, Path::new(DIR), IDENTITY).await.err().unwrap();
        assert!(
            error
                .summary()
                .contains("version of the checkpoint: expected 2, as its name says, found 1"),
            "{error}"
        );
        assert_eq!(
            checkpoint::verify(&env, Path::new(DIR), None, &Keys::none())
                .await
                .unwrap()
                .problems
                .len(),
            1
        );
    });
}
