//! The same seed gives the same run: in one process, and in two.
//!
//! The second process is this test binary again, told by an environment variable to run only the
//! world and print its trace. Two processes have different addresses, hash seeds and times, which
//! is what a leak of the real world into the simulated one would show.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use plinth_env::simulated::{FaultPlan, Random, Simulation};
use plinth_env::sync::Signal;
use plinth_env::{Env, IoResult, Open};

const CHILD: &str = "PLINTH_ENV_TRACE_OF";

/// A busy little world: tasks that sleep, wait for one another, use files and fail, and crashes.
fn world(seed: u64) -> (u64, u64) {
    let sim = Simulation::new(seed);
    let mut random = sim.random();
    for _ in 0..4 {
        let env = sim.process("node");
        sim.set_faults(&env, FaultPlan { flip_on_read: 0.01, ..FaultPlan::failing(0.02, 0.01) });
        let signal = Arc::new(Signal::new());
        for worker in 0..4 {
            let (env2, signal) = (env.clone(), signal.clone());
            drop(env.spawn("worker", async move {
                let _ = work(&env2, worker, &signal).await;
            }));
        }
        sim.run_for(Duration::from_micros(random.below(20_000)));
        sim.crash(&env);
    }
    (sim.trace_hash(), sim.event_count())
}

async fn work(env: &Env, worker: u64, signal: &Signal) -> IoResult<()> {
    let files = env.files();
    files.create_dir_all("/data").await?;
    let file = files.open(format!("/data/{}", worker % 2), Open::Create).await?;
    loop {
        let mut bytes = vec![0; (env.random_u64() % 3000) as usize];
        env.fill_random(&mut bytes);
        let offset = env.random_u64() % 10_000;
        // Faults are expected; what matters is that they are the same ones.
        let _ = file.write_all_at(offset, &bytes).await;
        let _ = file.read_at(offset, &mut bytes).await;
        let _ = file.sync_data().await;
        signal.notify();
        signal.wait().await;
        env.sleep(Duration::from_nanos(env.random_u64() % 1_000_000)).await;
        signal.notify();
    }
}

#[test]
fn the_same_seed_gives_the_same_run_in_two_processes() {
    let traces = || (0..20).map(|seed| format!("{:?}", world(seed))).collect::<Vec<_>>().join(" ");
    if std::env::var_os(CHILD).is_some() {
        println!("trace: {}", traces());
        return;
    }
    let child = |marker: &str| {
        let name = "the_same_seed_gives_the_same_run_in_two_processes";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output =
            command.args(["--exact", name, "--nocapture"]).env(CHILD, marker).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let trace = text
            .lines()
            .find_map(|line| line.split_once("trace: "))
            .map(|(_, trace)| trace.to_string());
        trace.unwrap_or_else(|| panic!("no trace in {text}"))
    };
    let (one, two) = (child("one"), child("the second one has a longer environment"));
    assert_eq!(one, two);
    assert_eq!(one, traces());
}

#[test]
fn different_seeds_give_different_runs() {
    let mut hashes: Vec<_> = (0..50).map(|seed| world(seed).0).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 50);
}

#[test]
fn every_order_of_ready_tasks_is_tried() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        for task in 0..4 {
            let order = order.clone();
            drop(env.spawn("task", async move { order.lock().unwrap().push(task) }));
        }
        sim.run_for(Duration::from_secs(1));
        orders.insert(order.lock().unwrap().clone());
    }
    assert_eq!(orders.len(), 24);
}

#[test]
fn time_jumps_when_nothing_is_ready() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    let century = Duration::from_secs(100 * 365 * 86_400);
    assert!(sim.run_until_within(2 * century, env.sleep(century)).is_some());
    assert!(sim.now() >= century);
    assert!(sim.run_until_within(century, env.sleep(2 * century)).is_none());
    sim.run_for(century);
    assert!(sim.now() >= 3 * century);
}

#[test]
fn a_world_that_stands_still_says_who_waits() {
    let sim = Simulation::new(11);
    let env = sim.process("node");
    drop(env.spawn("patient", std::future::pending()));
    let waited = std::panic::catch_unwind(|| sim.run_until(std::future::pending::<()>()));
    let message = *waited.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("seed 11") && message.contains("node/patient"), "{message}");
}

#[test]
fn a_panic_in_a_task_ends_the_run_unless_it_is_tolerated() {
    let sim = Simulation::new(1);
    let env = sim.process("node");
    let task = env.spawn("bad", async { panic!("on purpose") });
    assert!(std::panic::catch_unwind(|| sim.run_for(Duration::from_secs(1))).is_err());
    assert!(task.is_finished());
    sim.tolerate_panics(true);
    drop(env.spawn("bad", async { panic!("on purpose") }));
    sim.run_for(Duration::from_secs(1));
}

#[test]
fn a_simulation_that_ends_drops_its_tasks() {
    let (kept, reply) = plinth_env::reply::promise::<()>();
    let sim = Simulation::new(1);
    let env = sim.process("node");
    drop(env.spawn("holding", async move {
        std::future::pending::<()>().await;
        drop(kept);
    }));
    sim.run_for(Duration::from_secs(1));
    drop((sim, env));
    assert!(reply.is_ready());
}

#[test]
fn random_numbers_of_a_process_are_given_by_the_seed() {
    let numbers = |seed| {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let mut bytes = [0; 20];
        env.fill_random(&mut bytes);
        (env.random_u64(), bytes, Random::new(seed).next_u64())
    };
    assert_eq!(numbers(5), numbers(5));
    assert_ne!(numbers(5).0, numbers(6).0);
}
