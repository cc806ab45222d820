//! How many batches are in flight is a number, and not a number of threads: over a log that takes
//! long to commit, clients that follow one another closely have a batch each on its way.

mod common;

use common::world::World;
use common::*;
use plinth_env::simulated::FaultPlan;
use plinth_pipeline::NodeConfig;
use plinth_types::MutationType as M;
use serde_json::Value;
use std::time::Duration;

/// The most batches that were seen in flight, and the commits that came to their end, with so many
/// allowed.
fn most_in_flight(commit_depth: usize, seed: u64) -> (u64, u64) {
    let config = NodeConfig { commit_depth, ..NodeConfig::default() };
    let world = World::new(seed, config);
    let mut plan = FaultPlan::default();
    (plan.sync.latency_min, plan.sync.latency_max) =
        (Duration::from_millis(200), Duration::from_millis(300));
    world.sim.set_faults(&world.machine, plan);
    let clients = world.endpoint().env().clone();
    for client in 0u64..100 {
        let endpoint = world.endpoint().clone();
        let env = clients.clone();
        clients.spawn("client", async move {
            env.sleep(Duration::from_millis(3 * client)).await;
            endpoint.commit(request(&[(M::Set, &client.to_be_bytes(), b"v")])).await.unwrap();
        });
    }
    let mut most = 0;
    for _ in 0..400 {
        world.sim.run_for(Duration::from_millis(2));
        let status: Value =
            serde_json::from_str(&world.run(world.endpoint().status_json()).unwrap()).unwrap();
        most = most.max(status["cluster"]["plinth"]["commit_batches_in_flight"].as_u64().unwrap());
        world.node().check_invariants();
    }
    world.sim.run_for(Duration::from_secs(60));
    let status: Value =
        serde_json::from_str(&world.run(world.endpoint().status_json()).unwrap()).unwrap();
    let committed =
        status["cluster"]["workload"]["transactions"]["committed"]["counter"].as_u64().unwrap();
    (most, committed)
}

#[test]
fn as_many_batches_are_in_flight_over_a_slow_log_as_are_allowed() {
    for depth in [1, 3, 32] {
        for seed in 0..2 {
            let (most, committed) = most_in_flight(depth, seed);
            // Besides those that wait for the log, one may be taking effect.
            let expected = depth as u64..=depth as u64 + 1;
            assert!(expected.contains(&most), "depth {depth}, seed {seed}: {most} in flight");
            assert!(committed >= 100, "depth {depth}, seed {seed}: {committed} committed");
        }
    }
}
