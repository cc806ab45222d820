//! A whole new state in the place of the old one: whatever instant the power fails at, one of both
//! is there, whole.
//!
//! The last test kills the process before the power fails: what the next one finds, it may rely on.

mod common;

use common::disk::calls;
use common::*;
use plinth_env::Env;
use plinth_env::simulated::{Simulation, Unsynced};
use plinth_pipeline::{EngineKind, Incoming, Node, NodeConfig, check};
use plinth_types::{Result, Version};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DIR: &str = "/db";
const ROWS: u8 = 5;

fn config(engine: EngineKind) -> NodeConfig {
    let mut config = NodeConfig { engine, ..tables::config() };
    config.log.first_segment_bytes = plinth_log::LogConfig::MIN_SEGMENT_BYTES;
    config
}

async fn fill(endpoint: &impl Reach, value: &[u8]) -> Result<Version> {
    let mut version = 0;
    for n in 0..ROWS {
        version = set(endpoint, &[n], value).await?;
    }
    Ok(version)
}

/// The one value that all rows have.
async fn value_of(machine: &Env, engine: EngineKind) -> (Vec<u8>, Version) {
    let node = Node::open(machine, Path::new(DIR), config(engine)).await.unwrap().endpoint();
    let first = get(&node, &[0]).await.expect("a row").to_vec();
    for n in 1..ROWS {
        assert_eq!(get(&node, &[n]).await.as_deref(), Some(&first[..]), "rows of one state");
    }
    let version = version(&node).await;
    node.node().close().await.unwrap();
    (first, version)
}

async fn replace(machine: &Env, engine: EngineKind) -> Result<()> {
    let incoming = Incoming::begin(machine, Path::new(DIR), config(engine)).await?;
    fill(&incoming.endpoint(), b"new").await?;
    Ok(incoming.put_in_place().await?)
}

fn with_old_state(engine: EngineKind, seed: u64) -> (Simulation, Env, Version) {
    let simulation = Simulation::new(seed);
    let machine = simulation.process("node");
    let written = simulation.run_until(async {
        let node = Node::open(&machine, Path::new(DIR), config(engine)).await.unwrap().endpoint();
        let written = fill(&node, b"old").await.unwrap();
        node.node().close().await.unwrap();
        written
    });
    (simulation, machine, written)
}

#[test]
fn a_new_state_takes_the_place_of_the_old_one() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        let (simulation, machine, written) = with_old_state(engine, 1);
        simulation.run_until(async {
            for generation in 2..5 {
                replace(&machine, engine).await.unwrap();
                let mut names = machine.files().list(DIR).await.unwrap();
                names.retain(|name| name != "RESERVE");
                assert_eq!(names, ["IDENTITY".into(), "LOCK".into(), format!("gen-{generation}")]);
                assert_eq!(check(&machine, Path::new(DIR)).await.unwrap().problems, []);
                let (value, version) = value_of(&machine, engine).await;
                assert_eq!(value, b"new");
                assert!(version > written, "versions go on");
            }
        });
    }
}

#[test]
fn a_new_state_that_is_given_up_leaves_the_old_one() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        let (simulation, machine, _) = with_old_state(engine, 1);
        simulation.run_until(async {
            let incoming = Incoming::begin(&machine, Path::new(DIR), config(engine)).await.unwrap();
            fill(&incoming.endpoint(), b"new").await.unwrap();
            incoming.abandon().await.unwrap();
            assert!(!machine.files().exists("/db/gen-2").await.unwrap());
            assert_eq!(value_of(&machine, engine).await.0, b"old");
        });
    }
}

#[test]
fn a_crash_at_any_file_call_of_a_switch_leaves_one_state_whole() {
    for engine in [EngineKind::Memory, EngineKind::Ssd] {
        let (mut olds, mut news) = (0, 0);
        for bound in 1.. {
            let (simulation, mut machine, written) = with_old_state(engine, bound);
            let (env, done) = (machine.clone(), Arc::new(AtomicBool::new(false)));
            let told = done.clone();
            let before = calls(&simulation, &machine);
            drop(machine.spawn("switch", async move {
                replace(&env, engine).await.unwrap();
                told.store(true, Ordering::SeqCst);
            }));
            let is_done = || done.load(Ordering::SeqCst);
            while calls(&simulation, &machine) - before < bound && !is_done() {
                simulation.run_for(Duration::from_micros(2));
            }
            simulation.crash(&machine);
            machine = simulation.restart(&machine);
            let report = simulation.run_until(check(&machine, Path::new(DIR))).unwrap();
            assert_eq!(report.problems, [], "{engine:?}, crash at call {bound}");
            let (value, version) = simulation.run_until(value_of(&machine, engine));
            assert!(version > written, "{engine:?}, crash at call {bound}: versions go on");
            let is_new = value == b"new";
            assert!(
                is_new || value == b"old" && !is_done(),
                "{engine:?}, crash at call {bound}: {value:?}"
            );
            olds += u32::from(!is_new);
            news += u32::from(is_new);
            let mut names = simulation.run_until(machine.files().list(DIR)).unwrap();
            names.retain(|name| name.starts_with("gen-") || name.starts_with("old-"));
            assert_eq!(
                names,
                [if is_new { "gen-2" } else { "gen-1" }],
                "{engine:?}, crash at call {bound}"
            );
            if is_done() {
                break;
            }
        }
        assert!(olds > 50 && news > 3, "{engine:?}: {olds} old, {news} new");
    }
}

/// Work that ends with an acknowledged state, or at any call before.
#[derive(Clone, Copy, Debug)]
enum Work {
    Switch,
    Checkpoint,
}

impl Work {
    async fn run(self, machine: &Env, engine: EngineKind) -> Result<()> {
        match self {
            Self::Switch => replace(machine, engine).await,
            Self::Checkpoint => {
                let node = Node::open(machine, Path::new(DIR), config(engine)).await?.endpoint();
                fill(&node, b"new").await?;
                // So that the rows have left the window, which tables are made of.
                machine.sleep(Duration::from_millis(100)).await;
                set(&node, b"later", b"").await?;
                node.node().checkpoint().await?;
                Ok(node.node().close().await?)
            }
        }
    }
}

/// What the process before gave a name, and couldn't make durable, is there for as long as the
/// machine runs. A process that opens it must not let anything go on the strength of that.
#[test]
fn what_an_opening_found_is_found_again_when_the_power_fails() {
    for (engine, work) in [
        (EngineKind::Memory, Work::Switch),
        (EngineKind::Ssd, Work::Switch),
        (EngineKind::Memory, Work::Checkpoint),
        (EngineKind::Ssd, Work::Checkpoint),
    ] {
        for bound in 1.. {
            let (simulation, mut machine, _) = with_old_state(engine, bound);
            let (env, done) = (machine.clone(), Arc::new(AtomicBool::new(false)));
            let told = done.clone();
            let before = calls(&simulation, &machine);
            drop(machine.spawn("work", async move {
                work.run(&env, engine).await.unwrap();
                told.store(true, Ordering::SeqCst);
            }));
            let is_done = || done.load(Ordering::SeqCst);
            while calls(&simulation, &machine) - before < bound && !is_done() {
                simulation.run_for(Duration::from_micros(2));
            }
            simulation.kill(&machine);
            machine = simulation.restart(&machine);
            let found = simulation.run_until(rows_and_one_more(&machine, engine));
            simulation.crash_with(&machine, Unsynced::Lost);
            machine = simulation.restart(&machine);
            let report = simulation.run_until(check(&machine, Path::new(DIR))).unwrap();
            assert_eq!(report.problems, [], "{engine:?}, {work:?}, killed at call {bound}");
            let again = simulation.run_until(rows_and_one_more(&machine, engine));
            assert_eq!(again.0, found.0, "{engine:?}, {work:?}, killed at call {bound}");
            assert!(again.1 && !found.1, "{engine:?}, {work:?}, killed at call {bound}");
            if is_done() {
                break;
            }
        }
    }
}

/// The values of the rows, and whether an earlier call has left one more; it leaves one.
async fn rows_and_one_more(machine: &Env, engine: EngineKind) -> (Vec<Vec<u8>>, bool) {
    let node = Node::open(machine, Path::new(DIR), config(engine)).await.unwrap().endpoint();
    let mut values = Vec::new();
    for n in 0..ROWS {
        values.push(get(&node, &[n]).await.expect("a row").to_vec());
    }
    let was_there = get(&node, b"one more").await.is_some();
    // The log lets go of what it need not keep, and says so where it goes on in another file.
    machine.sleep(Duration::from_secs(1)).await;
    for _ in 0..3 {
        let value = vec![1; plinth_log::LogConfig::MIN_SEGMENT_BYTES as usize / 3];
        set(&node, b"one more", &value).await.unwrap();
    }
    (values, was_there)
}
