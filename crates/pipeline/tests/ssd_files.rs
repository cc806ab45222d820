//! The files of a database on the engine `ssd`: kept, checked, salvaged, let go.
//!
//! What clients see of it: `ssd.rs`.

mod common;

use common::tables::{Rows, all, config, key};
use common::*;
use plinth_client::Endpoint;
use plinth_env::simulated::{Random, Simulation};
use plinth_env::{Env, block_on};
use plinth_pipeline::{EngineKind, InProcess, Node, NodeConfig, check, salvage};
use plinth_types::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DIR: &str = "/db";

async fn open_ssd(env: &Env, dir: &Path) -> plinth_types::Result<InProcess> {
    Ok(Node::open(env, dir, config()).await?.endpoint())
}

#[test]
fn a_database_keeps_the_engine_it_was_made_with() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("ssd").await.unwrap();
        for round in 0u8..3 {
            let config = if round == 0 { config() } else { NodeConfig::default() };
            let node = Node::open(&env, dir.path(), config).await.unwrap().endpoint();
            assert!(node.status_json().await.unwrap().contains("\"storage_engine\":\"ssd\""));
            for earlier in 0..round {
                assert_eq!(get(&node, &[earlier]).await.as_deref(), Some(&[earlier][..]));
            }
            set(&node, &[round], &[round]).await.unwrap();
            node.node().close().await.unwrap();
        }
        let report = check(&env, dir.path()).await.unwrap();
        assert_eq!(report.problems, []);
    });
}

/// A closed database with tables and some log behind them.
fn with_database(seed: u64) -> (Simulation, Env, Rows) {
    let simulation = Simulation::new(seed);
    let machine = simulation.process("node");
    let mut rows = Rows::new();
    simulation.run_until(async {
        let node = open_ssd(&machine, Path::new(DIR)).await.unwrap();
        let mut random = Random::new(seed);
        for n in 0..150 {
            let mut value = vec![0; 600];
            random.fill(&mut value);
            set(&node, &key(n), &value).await.unwrap();
            rows.insert(key(n), value);
        }
        machine.sleep(Duration::from_secs(1)).await;
        version(&node).await;
        machine.sleep(Duration::from_secs(1)).await;
        node.node().checkpoint().await.unwrap();
        for n in 0..5 {
            set(&node, &key(n), b"behind the tables").await.unwrap();
            rows.insert(key(n), b"behind the tables".to_vec());
        }
        node.node().close().await.unwrap();
    });
    (simulation, machine, rows)
}

#[test]
fn check_names_damaged_tables_and_salvage_brings_out_the_rest() {
    for seed in 0..15 {
        let (simulation, machine, rows) = with_database(seed);
        let sound = simulation.run_until(check(&machine, Path::new(DIR))).unwrap();
        assert!(sound.problems.is_empty() && sound.table_rows >= 150, "{sound:?}");
        let files: Vec<(PathBuf, u64)> = simulation.files(&machine).into_iter().collect();
        let mut tables: Vec<_> = files
            .iter()
            .filter(|(path, _)| path.starts_with("/db/gen-1/tables") && !path.ends_with("MANIFEST"))
            .collect();
        tables.sort();
        let mut random = simulation.random();
        let (path, len) = tables[random.index(tables.len())];
        simulation.flip_bit(&machine, path, random.below(*len)).unwrap();
        let report = simulation.run_until(check(&machine, Path::new(DIR))).unwrap();
        let name = path.display().to_string();
        assert!(
            report.problems.iter().any(|problem| problem.file == name),
            "seed {seed}: {report:?}"
        );
        let out = Path::new("/out");
        let report = simulation.run_until(salvage(&machine, Path::new(DIR), out)).unwrap();
        assert!(!report.problems.is_empty(), "seed {seed}");
        let found = simulation.run_until(async {
            let node = open_ssd(&machine, out).await.unwrap();
            all(&node).await
        });
        let right = rows.iter().filter(|(key, value)| found.get(*key) == Some(*value)).count();
        assert!(right > 100, "seed {seed}: {right} of {} rows", rows.len());
    }
}

#[test]
fn a_read_from_the_disk_after_closing_is_refused_as_a_commit_is() {
    let (simulation, machine, rows) = with_database(5);
    let refused = simulation.run_until(async {
        let node = open_ssd(&machine, Path::new(DIR)).await.unwrap();
        let version = version(&node).await;
        node.node().close().await.unwrap();
        let mut refused = 0;
        for (key, value) in &rows {
            match get_at(&node, version, key).await {
                Ok(found) => assert_eq!(found.as_deref(), Some(&value[..])),
                Err(error) => {
                    assert_eq!(error, Error::shutdown_in_progress());
                    refused += 1;
                }
            }
        }
        refused
    });
    assert!(refused > 100, "only {refused} of {} rows were on the disk alone", rows.len());
}

#[test]
fn a_directory_that_could_not_be_opened_is_free_at_once() {
    let (simulation, machine, _) = with_database(6);
    // Not the file of notes, of which there are two: one that is damaged stops no start.
    let is_segment = |path: &Path| path.to_string_lossy().starts_with("/db/gen-1/log/segment-");
    let (log, _) =
        simulation.files(&machine).into_iter().find(|(path, _)| is_segment(path)).unwrap();
    simulation.flip_bit(&machine, &log, 0).unwrap();
    simulation.run_until(async {
        for _ in 0..3 {
            let error = open_ssd(&machine, Path::new(DIR)).await.err().unwrap();
            assert_ne!(error, Error::lock_file_failure(), "the first attempt still holds the lock");
            assert_ne!(check(&machine, Path::new(DIR)).await.unwrap().problems, []);
        }
    });
}

#[test]
fn the_engine_has_a_name() {
    assert_eq!(EngineKind::from_name("ssd").map(EngineKind::name), Ok("ssd"));
    let refused = EngineKind::from_name("ssd-2").map_err(Error::from);
    assert_eq!(refused, Err(Error::invalid_option_value()));
}
