//! A database comes to be whole or not at all, and one that lost a file is never taken for one that
//! never was.
//!
//! A directory without `IDENTITY` was once taken for a creation that had been interrupted: opening
//! it removed the log, and with the engine `ssd` the tables, and made an empty database in their
//! place.

mod common;

use common::disk::{calls, contents, restore, write};
use common::*;
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_pipeline::{Creation, EngineKind, InProcess, Node, NodeConfig, check};
use plinth_types::{Error, Result};
use std::path::Path;
use std::time::Duration;

const DIR: &str = "/db";

fn config(engine: EngineKind) -> NodeConfig {
    let mut config = NodeConfig { engine, ..NodeConfig::default() };
    config.log.first_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
    config
}

async fn open_with(machine: &Env, engine: EngineKind) -> Result<InProcess> {
    Ok(Node::open(machine, Path::new(DIR), config(engine)).await?.endpoint())
}

/// Runs the creation of a database until it has made so many file calls. Whether it was still under
/// way.
fn create_until(simulation: &Simulation, machine: &Env, engine: EngineKind, bound: u64) -> bool {
    let before = calls(simulation, machine);
    let (env, done) =
        (machine.clone(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let told = done.clone();
    drop(machine.spawn("creation", async move {
        let _node = open_with(&env, engine).await;
        told.store(true, std::sync::atomic::Ordering::SeqCst);
    }));
    while calls(simulation, machine) - before < bound {
        if done.load(std::sync::atomic::Ordering::SeqCst) {
            return false;
        }
        simulation.run_for(Duration::from_micros(1));
    }
    true
}

#[test]
fn a_crash_at_any_file_call_of_a_creation_leaves_what_is_made_anew_or_opens() {
    let mut crashes = 0;
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        for seed in 0..4 {
            for bound in 1.. {
                let simulation = Simulation::new(seed);
                let mut machine = simulation.process("node");
                // Now and then an attempt has failed before, with either engine.
                if bound % 3 == 0 {
                    let other = if bound % 2 == 0 { EngineKind::Ssd } else { EngineKind::Memory };
                    create_until(&simulation, &machine, other, simulation.random().below(60));
                    simulation.crash(&machine);
                    machine = simulation.restart(&machine);
                }
                let crashed = create_until(&simulation, &machine, engine, bound);
                simulation.crash(&machine);
                machine = simulation.restart(&machine);
                crashes += u32::from(crashed);
                let what = format!("{engine:?}, seed {seed}, crash at call {bound}");
                let report = simulation.run_until(check(&machine, Path::new(DIR)));
                match report {
                    Ok(report) => assert_eq!(report.problems, [], "{what}"),
                    Err(error) => assert_eq!(Error::from(error), Error::file_not_found(), "{what}"),
                }
                for round in 0..2 {
                    let node = simulation.run_until(open_with(&machine, engine));
                    let node = node.unwrap_or_else(|error| panic!("{what}: {error}"));
                    if round == 0 {
                        simulation.run_until(set(&node, b"key", b"value")).unwrap();
                    }
                    let found = simulation.run_until(get(&node, b"key"));
                    assert_eq!(found.as_deref(), Some(&b"value"[..]), "{what}");
                    simulation.run_until(node.node().close()).unwrap();
                }
                let mut names = simulation.run_until(machine.files().list(DIR)).unwrap();
                names.retain(|name| name != "RESERVE");
                assert_eq!(names, ["IDENTITY", "LOCK", "gen-1"], "{what}: nothing is left over");
                if !crashed {
                    break;
                }
            }
        }
    }
    assert!(crashes > 300, "{crashes} crashes");
}

/// A closed database with rows, in the log alone or in checkpoint and tables too.
fn with_rows(engine: EngineKind, is_stored: bool) -> (Simulation, Env) {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let node = open_with(&machine, engine).await.unwrap();
        set(&node, b"key", b"value").await.unwrap();
        if is_stored {
            machine.sleep(Duration::from_secs(10)).await;
            version(&node).await;
            node.node().checkpoint().await.unwrap();
        }
        node.node().close().await.unwrap();
    });
    (simulation, machine)
}

#[test]
fn a_database_without_identity_is_refused_and_stays_as_it_is() {
    for (engine, is_stored) in [
        (EngineKind::Memory, false),
        (EngineKind::Memory, true),
        (EngineKind::Ssd, false),
        (EngineKind::Ssd, true),
    ] {
        let (simulation, machine) = with_rows(engine, is_stored);
        let mut whole = contents(&simulation, &machine, DIR);
        whole.remove(Path::new("IDENTITY")).unwrap();
        // With a lock and without, and as a creation that came to its end would leave it.
        for (has_lock, marker) in [(true, false), (false, false), (false, true)] {
            let mut left = whole.clone();
            if !has_lock {
                left.remove(Path::new("LOCK")).unwrap();
            }
            if marker {
                left.insert("CREATING".into(), marker_bytes());
            }
            restore(&simulation, &machine, DIR, &left);
            let what =
                format!("{engine:?}, stored: {is_stored}, lock: {has_lock}, marker: {marker}");
            for creation in [Creation::IfMissing, Creation::Never, Creation::Always] {
                let config = NodeConfig { creation, ..config(engine) };
                let error = simulation
                    .run_until(Node::open(&machine, Path::new(DIR), config))
                    .err()
                    .unwrap();
                assert_eq!(Error::from(&error), Error::file_corrupt(), "{what}: {error}");
                assert!(error.to_string().contains("/db/IDENTITY"), "{what}: {error}");
            }
            let report = simulation.run_until(check(&machine, Path::new(DIR))).unwrap();
            assert_eq!(report.problems.len(), 1, "{what}: {report:?}");
            assert!(contents(&simulation, &machine, DIR) == left, "{what}: something was changed");
        }
    }
}

/// A server without its cluster file once made a database of its own in the directory of a node to
/// be.
#[test]
fn a_directory_that_a_cluster_has_begun_to_form_gets_no_database_of_its_own() {
    for name in ["CHARTER", "CHARTER.new"] {
        let simulation = Simulation::new(1);
        let machine = simulation.process("node");
        simulation.run_until(write(&machine, &Path::new(DIR).join(name), b"of a cluster"));
        let before = contents(&simulation, &machine, DIR);
        let error = simulation.run_until(open_with(&machine, EngineKind::Memory)).err().unwrap();
        assert_eq!(error, Error::client_invalid_operation());
        assert!(error.detail().unwrap().contains(name), "{error}");
        let after = contents(&simulation, &machine, DIR);
        assert!(
            before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)),
            "what was there is there"
        );
    }
}

fn marker_bytes() -> Vec<u8> {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    for bound in 1.. {
        create_until(&simulation, &machine, EngineKind::Memory, bound);
        if let Some(bytes) = contents(&simulation, &machine, DIR).remove(Path::new("CREATING")) {
            return bytes;
        }
        assert!(bound < 100, "a creation leaves a marker at some time");
    }
    unreachable!()
}

#[test]
fn a_marker_that_no_creation_wrote_is_no_leave_to_remove_anything() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(write(&machine, Path::new("/db/CREATING"), b"dear diary"));
    let before = contents(&simulation, &machine, DIR);
    let error = simulation.run_until(open(&machine, Path::new(DIR))).err().unwrap();
    assert_eq!(error, Error::file_corrupt());
    assert!(error.to_string().contains("/db/CREATING"), "{error}");
    assert!(contents(&simulation, &machine, DIR) == before);
}

/// The layout from before generations, which no release wrote.
#[test]
fn a_directory_of_the_first_format_is_refused_with_advice() {
    let (simulation, machine) = with_rows(EngineKind::Memory, false);
    let mut old = contents(&simulation, &machine, DIR);
    old.get_mut(Path::new("IDENTITY")).unwrap()[8] = 1;
    restore(&simulation, &machine, DIR, &old);
    let error = simulation.run_until(open(&machine, Path::new(DIR))).err().unwrap();
    assert_eq!(error, Error::unsupported_operation());
    assert!(error.to_string().contains("no release"), "{error}");
    assert!(contents(&simulation, &machine, DIR) == old);
}
