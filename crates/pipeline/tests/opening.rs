//! Opening: what is made, what is refused and why, what is cleared away. It happens before there is
//! anything that clients could reach.
//!
//! What a real disk does only once in years happens here on a simulated machine; the rest runs on
//! real files in a temporary directory.

mod common;

use common::heard::heard;
use common::*;
use plinth_env::simulated::Simulation;
use plinth_env::{Env, block_on};
use plinth_pipeline::{Creation, Node, NodeConfig};
use plinth_types::Error;
use std::path::Path;
use std::time::Duration;
use tracing::Level;

const DIR: &str = "/db";

/// The log that creating makes once went on making its next segment while the same log was opened a
/// second time.
#[test]
fn creating_a_database_leaves_nothing_running_behind_opening() {
    for seed in 0..300 {
        let simulation = Simulation::new(seed);
        let machine = simulation.process("node");
        let mut config = NodeConfig::default();
        config.log.first_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
        let node = simulation.run_until(Node::open(&machine, Path::new(DIR), config));
        assert!(node.is_ok(), "seed {seed}: {}", node.err().unwrap());
    }
}

#[test]
fn a_database_that_is_open_cannot_be_opened_again() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("locked").await.unwrap();
        let node = open(&env, dir.path()).await.unwrap();
        let error = open(&env, dir.path()).await.err().unwrap();
        assert_eq!(error, Error::lock_file_failure());
        assert!(error.to_string().contains("LOCK"), "{error}");
        drop(node);
        open(&env, dir.path()).await.unwrap();
    });
}

#[test]
fn a_checkpoint_that_cannot_be_read_at_the_moment_is_not_called_damaged() {
    let simulation = Simulation::new(5);
    let mut machine = simulation.process("node");
    let node = simulation.run_until(open(&machine, Path::new(DIR))).unwrap();
    for n in 0u32..200 {
        simulation.run_until(set(&node, &n.to_be_bytes(), &[1; 1000])).unwrap();
    }
    simulation.run_until(node.node().checkpoint()).unwrap();
    drop(node);
    for _ in 0..100 {
        simulation.crash(&machine);
        machine = simulation.restart(&machine);
        simulation.update_faults(&machine, |plan| plan.read.fail = 0.2);
        if let Err(error) = simulation.run_until(open(&machine, Path::new(DIR))) {
            assert_eq!(error, Error::io_error(), "{error}");
        }
    }
}

/// A start that took long looked like one that hung.
#[test]
fn a_start_that_takes_long_says_what_it_does_and_how_far_it_is() {
    const ROWS: u32 = 300;
    let simulation = Simulation::new(7);
    let mut machine = simulation.process("node");
    let mut config = NodeConfig::default();
    // Many batches, and segments.
    config.ssd.memory = 4 << 20;
    config.log.first_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
    let begin = |machine: &Env| {
        simulation.run_until(Node::open(machine, Path::new(DIR), config.clone())).unwrap()
    };
    let node = begin(&machine).endpoint();
    for n in 0..ROWS {
        simulation.run_until(set(&node, &n.to_be_bytes(), &[7; 50_000])).unwrap();
    }
    drop(node);
    let mut restart = |latency: Duration| {
        simulation.crash(&machine);
        machine = simulation.restart(&machine);
        simulation.update_faults(&machine, |plan| {
            (plan.read.latency_min, plan.read.latency_max) = (latency, latency);
        });
        let began = machine.now();
        let (node, told) = heard(Level::INFO, || begin(&machine));
        let told: Vec<_> =
            told.into_iter().filter(|line| line.contains("the log is applied")).collect();
        (machine.now() - began, simulation.run_until(get(&node.endpoint(), b"\0\0\0\0")), told)
    };
    let (_, value, told) = restart(Duration::from_micros(10));
    assert!(value.is_some() && told.is_empty(), "{told:#?}");
    let (took, value, told) = restart(Duration::from_millis(200));
    assert!(value.is_some() && took > Duration::from_secs(10), "{took:?}");
    let about = took.as_secs() as usize / 2;
    assert!((2..=about).contains(&told.len()), "{took:?}: {told:#?}");
    let number = |line: &str, name: &str| -> u64 {
        line.split(name).nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    for two in told.windows(2) {
        assert!(number(&two[0], "version=") < number(&two[1], "version="), "{told:#?}");
        assert_eq!(number(&two[0], "upto="), number(&two[1], "upto="), "{told:#?}");
        assert!(number(&two[0], "left_bytes=") >= number(&two[1], "left_bytes="), "{told:#?}");
    }
    assert!(number(&told[0], "left_bytes=") > 1 << 20, "{told:#?}");
}

/// What runs before this one had left in the log once did not count: each wrote a little less than
/// a checkpoint takes, and the log grew without bound.
#[test]
fn a_process_that_often_starts_again_writes_checkpoints_too() {
    let simulation = Simulation::new(1);
    let mut machine = simulation.process("node");
    for round in 0u8..12 {
        let config = NodeConfig { checkpoint_bytes: 64 << 10, ..NodeConfig::default() };
        let node = simulation.run_until(Node::open(&machine, Path::new(DIR), config)).unwrap();
        let written = async {
            for n in 0u32..20 {
                set(&node.endpoint(), &n.to_be_bytes(), &[round; 1000]).await.unwrap();
            }
            machine.sleep(Duration::from_secs(1)).await;
        };
        simulation.run_until(written);
        simulation.crash(&machine);
        machine = simulation.restart(&machine);
    }
    let files = machine.files();
    let checkpoints =
        simulation.run_until(files.list(&Path::new(DIR).join("gen-1/checkpoint"))).unwrap();
    assert!(
        checkpoints.iter().any(|name| name.starts_with("checkpoint-")),
        "240 KB were written: {checkpoints:?}"
    );
}

#[test]
fn directories_that_are_no_database_are_refused_by_name() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("stranger").await.unwrap();
        env.files().replace(dir.path().join("letter.txt"), b"dear").await.unwrap();
        let error = open(&env, dir.path()).await.err().unwrap();
        assert!(error.to_string().contains("letter.txt"), "{error}");
        assert_eq!(
            env.files().list(dir.path()).await.unwrap(),
            ["letter.txt"],
            "nothing was left behind"
        );
        let missing = dir.path().join("none");
        let config = NodeConfig { creation: Creation::Never, ..NodeConfig::default() };
        let error = Node::open(&env, &missing, config).await.err().unwrap();
        assert_eq!(Error::from(error), Error::file_not_found());
    });
}

#[test]
fn a_directory_of_a_newer_format_is_refused_with_advice() {
    block_on(async {
        let env = Env::real();
        let dir = env.files().temporary_dir("newer").await.unwrap();
        drop(open(&env, dir.path()).await.unwrap());
        let path = dir.path().join("IDENTITY");
        let mut bytes = env.files().read(&path).await.unwrap();
        bytes[8] = 9;
        env.files().replace(&path, &bytes).await.unwrap();
        let error = open(&env, dir.path()).await.err().unwrap();
        assert_eq!(error, Error::unsupported_operation());
        assert!(error.to_string().contains("newer version of Plinth"), "{error}");
    });
}
