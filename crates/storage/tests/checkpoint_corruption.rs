//! Flipped bits, cut files, files of others: found and named, never served; what is readable is
//! salvaged.
//!
//! A small checkpoint is written once; each trial puts a damaged one in its place, and looks at
//! what loading, verifying and salvage say.

mod support;

use plinth_env::simulated::{Random, Simulation};
use plinth_env::{Env, Open};
use plinth_storage::checkpoint::{self, Identity, Pace, Salvage, Salvaged};
use plinth_storage::{MemoryStorage, Reader, StorageResult, Writer};
use plinth_types::{LogPosition, MutationList, MutationType};
use std::path::{Path, PathBuf};
use support::{DIR, IDENTITY, Rows, churn, rows_of};

/// A checkpoint, what is in it, and its bytes.
struct Specimen {
    env: Env,
    rows: Rows,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Specimen {
    async fn new(env: &Env, store: &MemoryStorage) -> Self {
        env.files().create_dir_all(DIR).await.unwrap();
        let written =
            checkpoint::write(env, Path::new(DIR), IDENTITY, &store.snapshot(), Pace::default())
                .await
                .unwrap();
        let bytes = env.files().read(&written.path).await.unwrap();
        assert_eq!(bytes.len() as u64, written.bytes);
        Self { env: env.clone(), rows: rows_of(store), path: written.path, bytes }
    }

    async fn put(&self, bytes: &[u8]) {
        let file = self.env.files().open(&self.path, Open::Truncate).await.unwrap();
        file.write_all_at(0, bytes).await.unwrap();
    }

    /// What loading says, how many problems verifying finds, and what salvage gives.
    async fn examine(&self) -> (StorageResult<Option<Rows>>, usize, Rows) {
        let loaded = MemoryStorage::load(&self.env, Path::new(DIR), IDENTITY).await;
        let report = checkpoint::verify(&self.env, Path::new(DIR), None).await.unwrap();
        let mut salvage = Salvage::open(&self.env, &self.path).await.unwrap();
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

#[test]
fn a_bit_flipped_anywhere_is_found() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    sim.run_until(async move {
        let mut store = MemoryStorage::new(LogPosition::without_log(0));
        let (mut random, mut rows) = (Random::new(1), Rows::new());
        churn(&mut store, 1, &mut random, 12, &mut rows);
        let specimen = Specimen::new(&env, &store).await;
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
            let outside_rows = at < 128 || at >= bytes.len() - 184;
            assert!(!outside_rows || salvaged == specimen.rows, "{what}: rows are lost");
        }
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
        assert_eq!(checkpoint::verify(&env, Path::new(DIR), None).await.unwrap().problems.len(), 1);
    });
}
