//! Clients that ask for more than a slow disk bears: transactions are held back before they begin,
//! the queue stays bounded, the status names the cause, and when it is over nothing is limited any
//! more.

mod common;

use common::world::World;
use common::*;
use plinth_client::ReadVersionRequest;
use plinth_env::simulated::FaultPlan;
use plinth_pipeline::{EngineKind, LoadTargets, NodeConfig, SsdSettings};
use plinth_types::MutationType as M;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const CLIENTS: u64 = 300;
const BYTES: usize = 10_000;
const QUEUE: u64 = 800_000;
/// For how long the status is looked at, and how often: often enough to see the queue fill and
/// empty. Every 50 ms, which is about a batch, sees it full each time, or empty each time; and in
/// two seconds alone its mean is as much chance as control.
const LOOKED_AT: Duration = Duration::from_secs(4);
const LOOKS: u32 = 600;

fn status(world: &World) -> Value {
    let document = world.run(world.endpoint().status_json()).unwrap();
    serde_json::from_str(&document).unwrap()
}

/// What was seen of the queue while the clients ran.
#[derive(Debug, Default)]
struct Seen {
    mean_queue: f64,
    causes: Vec<String>,
    commits: u64,
    /// The most that older versions took, in bytes, and how far tables were behind, in seconds.
    window: u64,
    behind: f64,
}

fn run(seed: u64, load: LoadTargets) -> (Seen, Value) {
    let config = NodeConfig { load, checkpoint_bytes: u64::MAX, ..NodeConfig::default() };
    let mut plan = FaultPlan::default();
    (plan.sync.latency_min, plan.sync.latency_max) =
        (Duration::from_millis(20), Duration::from_millis(40));
    run_on(seed, config, plan)
}

fn run_on(seed: u64, config: NodeConfig, plan: FaultPlan) -> (Seen, Value) {
    let world = World::new(seed, config);
    let clients = world.endpoint().env().clone();
    world.sim.set_faults(&world.machine, plan);
    let (stop, commits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    for client in 0..CLIENTS {
        let (endpoint, stop, commits) = (world.endpoint().clone(), stop.clone(), commits.clone());
        clients.spawn("client", async move {
            while !stop.load(Ordering::Relaxed) {
                endpoint.read_version(ReadVersionRequest::default()).await.unwrap();
                let key = client.to_be_bytes();
                if endpoint.commit(request(&[(M::Set, &key, &[0; BYTES])])).await.is_ok() {
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let mut seen = Seen::default();
    world.sim.run_for(Duration::from_secs(2));
    for look in 0..LOOKS {
        world.sim.run_for(LOOKED_AT / LOOKS);
        let status = status(&world);
        let queue = status["cluster"]["qos"]["worst_queue_bytes_log_server"].as_u64().unwrap();
        seen.mean_queue += queue as f64 / f64::from(LOOKS);
        let qos = &status["cluster"]["qos"];
        seen.window = seen.window.max(qos["worst_queue_bytes_storage_server"].as_u64().unwrap());
        let behind = &qos["worst_durability_lag_storage_server"]["seconds"];
        seen.behind = seen.behind.max(behind.as_f64().unwrap());
        let cause =
            status["cluster"]["qos"]["performance_limited_by"]["name"].as_str().unwrap().to_owned();
        if !seen.causes.contains(&cause) {
            seen.causes.push(cause);
        }
        if look == LOOKS / 2 {
            seen.commits = commits.load(Ordering::Relaxed);
        }
    }
    stop.store(true, Ordering::Relaxed);
    world.sim.run_for(Duration::from_secs(10));
    let after = status(&world);
    (seen, after)
}

#[test]
fn a_slow_disk_holds_transactions_back_and_the_status_says_so() {
    for seed in 0..6 {
        let unlimited = LoadTargets { queue_bytes: u64::MAX, window_bytes: u64::MAX };
        let (without, _) = run(seed, unlimited);
        let (with, after) = run(seed, LoadTargets { queue_bytes: QUEUE, window_bytes: u64::MAX });
        println!("seed {seed}: without {without:?}, with {with:?}");
        assert_eq!(without.causes, ["workload"], "seed {seed}");
        assert!(
            with.causes.iter().any(|cause| cause == "log_server_write_queue"),
            "seed {seed}: {with:?}"
        );
        assert!(with.mean_queue < QUEUE as f64, "seed {seed}");
        assert!(with.commits * 2 > without.commits, "seed {seed}: the disk stays busy");
        let qos = &after["cluster"]["qos"];
        assert_eq!(qos["performance_limited_by"]["name"], "workload", "seed {seed}: {qos}");
        assert_eq!(after["cluster"]["plinth"]["start_queue"]["transactions"], 0, "seed {seed}");
    }
}

/// Memory for the window of the engine `ssd`: half of this.
const MEMORY: u64 = 8 << 20;

#[test]
fn tables_that_are_written_slowly_hold_transactions_back_before_the_window_is_full() {
    for seed in 0..3 {
        let config = NodeConfig {
            engine: EngineKind::Ssd,
            ssd: SsdSettings::with_memory(MEMORY),
            window: 100_000,
            ..NodeConfig::default()
        };
        let mut plan = FaultPlan::default();
        (plan.write.latency_min, plan.write.latency_max) =
            (Duration::from_millis(4), Duration::from_millis(8));
        let (seen, after) = run_on(seed, config, plan);
        println!("seed {seed}: {seen:?}");
        let named = ["storage_server_write_queue_size", "storage_server_durability_lag"];
        assert!(
            seen.causes.iter().any(|cause| named.contains(&cause.as_str())),
            "seed {seed}: {seen:?}"
        );
        assert!(seen.window < MEMORY / 2, "seed {seed}: commits had to wait for room: {seen:?}");
        assert!(
            seen.behind > 0.05,
            "seed {seed}: tables are behind by the window, at least: {seen:?}"
        );
        let qos = &after["cluster"]["qos"];
        assert_eq!(qos["performance_limited_by"]["name"], "workload", "seed {seed}: {qos}");
        assert_eq!(after["cluster"]["plinth"]["start_queue"]["transactions"], 0, "seed {seed}");
    }
}
