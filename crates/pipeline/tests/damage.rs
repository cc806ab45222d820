//! Damaged files: found by `check`, never served, and what is readable comes out by `salvage`.
//!
//! What an open database tells of damage that it meets with: `unwell.rs` of the server; here of one
//! that only another member would have met with.

mod common;
mod machines;

use common::*;
use machines::Machines;
use plinth_client::Endpoint;
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_pipeline::{NodeConfig, check, salvage};
use plinth_types::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DIR: &str = "/db";

/// A machine with a closed database of a checkpoint and some log behind it.
fn with_database(seed: u64) -> (Simulation, Env) {
    let simulation = Simulation::new(seed);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let node = open(&machine, Path::new(DIR)).await.unwrap();
        for n in 0u16..300 {
            set(&node, &n.to_be_bytes(), &[n as u8; 50]).await.unwrap();
        }
        node.node().checkpoint().await.unwrap();
        for n in 300u16..330 {
            set(&node, &n.to_be_bytes(), &[n as u8; 50]).await.unwrap();
        }
        node.node().close().await.unwrap();
    });
    (simulation, machine)
}

fn files_of(simulation: &Simulation, machine: &Env) -> Vec<(PathBuf, u64)> {
    let files = simulation.files(machine).into_iter();
    files.filter(|(path, len)| *len > 0 && path.starts_with(DIR)).collect()
}

#[test]
fn a_sound_database_checks_clean_and_counts_what_it_has() {
    let (simulation, machine) = with_database(1);
    let report = simulation.run_until(check(&machine, Path::new(DIR))).unwrap();
    assert_eq!(report.problems, []);
    assert!(report.checkpoint_rows >= 300 && report.log_records >= 30, "{report:?}");
}

#[test]
fn a_flipped_bit_in_any_file_is_found_and_named_or_was_never_data() {
    let mut found = 0;
    for seed in 0..60 {
        let (simulation, machine) = with_database(seed);
        let mut random = simulation.random();
        let files = files_of(&simulation, &machine);
        let (path, len) = &files[random.index(files.len())];
        let offset = random.below((*len).min(20_000));
        simulation.flip_bit(&machine, path, offset).unwrap();
        let report = simulation.run_until(check(&machine, Path::new(DIR))).unwrap();
        let opened = simulation.run_until(open(&machine, Path::new(DIR)));
        let name = path.display().to_string();
        match opened {
            Ok(node) => simulation.run_until(async {
                for n in 0u16..330 {
                    let value = get(&node, &n.to_be_bytes()).await;
                    assert_eq!(
                        value.as_deref(),
                        Some(&[n as u8; 50][..]),
                        "seed {seed}: {name} at {offset}"
                    );
                }
            }),
            Err(error) => {
                found += 1;
                assert!(!report.problems.is_empty(), "seed {seed}: {name} at {offset}: {error}");
                let file = path.file_name().unwrap().to_str().unwrap();
                assert!(
                    error.to_string().contains(file),
                    "seed {seed}: {error} does not name {file}"
                );
            }
        }
    }
    assert!(found > 20, "only {found} of 60 flips hit data");
}

#[test]
fn salvage_brings_out_all_that_is_readable_and_says_what_is_not() {
    for seed in 0..20 {
        let (simulation, machine) = with_database(seed);
        let checkpoint = files_of(&simulation, &machine);
        let (path, len) =
            checkpoint.iter().find(|(path, _)| path.starts_with("/db/gen-1/checkpoint")).unwrap();
        simulation.flip_bit(&machine, path, simulation.random().in_range(200..*len)).unwrap();
        let error = simulation.run_until(open(&machine, Path::new(DIR))).err().unwrap();
        assert_eq!(error, Error::file_corrupt(), "{error}");
        let out = Path::new("/out");
        let report = simulation.run_until(salvage(&machine, Path::new(DIR), out)).unwrap();
        assert_eq!(report.problems.len(), 1, "seed {seed}: {report:?}");
        simulation.run_until(async {
            let node = open(&machine, out).await.unwrap();
            for n in 0u16..330 {
                let value = get(&node, &n.to_be_bytes()).await;
                let sound = value.as_deref() == Some(&[n as u8; 50][..]);
                assert!(sound || (value.is_none() && n < 300), "seed {seed}, row {n}: {value:?}");
            }
            let lost = report.rows;
            assert!(lost >= 30, "what the log has is all there");
        });
    }
}

#[test]
fn what_is_no_database_and_what_is_open_is_not_checked() {
    let simulation = Simulation::new(5);
    let machine = simulation.process("node");
    let missing = simulation.run_until(check(&machine, Path::new("/nothing"))).err().unwrap();
    assert_eq!(Error::from(missing), Error::file_not_found());
    let _node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    let busy = simulation.run_until(check(&machine, Path::new(DIR))).err().unwrap();
    assert_eq!(Error::from(busy), Error::lock_file_failure());
}

/// A leader asked its log for the entries again and again, sent none, and nobody was told why the
/// other member stayed behind.
#[test]
fn a_leader_whose_log_is_damaged_where_a_member_needs_it_says_so() {
    let mut config = NodeConfig::default();
    (config.log.first_segment_bytes, config.log.max_segment_bytes) = (64 << 10, 64 << 10);
    config.log.tail_bytes = 4 << 10;
    let machines = Machines::new(7, 3, config);
    let leader = machines.await_leader(|_| true);
    let behind = (leader + 1) % 3;
    machines.isolate(behind);
    for n in 0..100 {
        machines.set(leader, &format!("row{n}"), &"x".repeat(4000)).unwrap();
    }
    let files = files_of(&machines.sim, &machines.envs[leader]).into_iter();
    let mut segments: Vec<_> =
        files.filter(|(path, _)| path.to_string_lossy().contains("/log/segment-")).collect();
    segments.sort();
    assert!(segments.len() > 4, "{segments:?}");
    let (path, len) = &segments[2];
    machines.sim.flip_bit(&machines.envs[leader], path, len / 2).unwrap();
    machines.heal();
    machines.sim.run_for(Duration::from_secs(5));
    let leader = machines.await_leader(|at| at == leader);
    let status = machines.sim.run_until(machines.host(leader).endpoint().status_json()).unwrap();
    assert!(status.contains("\"file_damaged\""), "{status}");
    assert!(status.contains(&path.display().to_string()), "{status}");
    machines.set(leader, "after", "1").unwrap();
}
