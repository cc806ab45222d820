//! A log on three nodes does what every commit log must do.
//!
//! Each node has its own simulated machine, whose syncs take longer than a frame to another node
//! now and then. Crashes take all three at once. What happens when links fail is the business of
//! `cluster.rs` and `failover.rs`.

mod machines;

use machines::{Cluster, NODES};
use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_log::conformance::{Site, test_all};
use plinth_log::{CommitLog, LogResult};
use plinth_replication::planted::Planted;
use plinth_types::Version;

impl Site for Cluster {
    fn world(&self) -> &Simulation {
        &self.sim
    }

    fn process(&self) -> Env {
        self.envs[self.leader].clone()
    }

    fn create(&mut self, beginning: (u64, u64, Version)) -> Box<dyn CommitLog> {
        Box::new(self.form(beginning))
    }

    fn crash_and_open(&mut self) -> Box<dyn CommitLog> {
        self.envs.iter().for_each(|env| self.sim.crash(env));
        self.restart();
        // Any of them may be first to want to lead.
        self.leader = self.sim.random().index(NODES);
        Box::new(self.open_all().expect("logs open after every crash"))
    }

    fn open(&mut self) -> LogResult<Box<dyn CommitLog>> {
        // The leader has closed its log; the others are simply killed.
        self.envs.iter().for_each(|env| self.sim.kill(env));
        self.restart();
        Ok(Box::new(self.open_all()?))
    }
}

#[test]
fn a_log_on_three_nodes_conforms() {
    let make =
        |seed, bytes| -> Box<dyn Site> { Box::new(Cluster::new(seed, bytes, Planted::None)) };
    test_all(&make, 50);
}

/// The suite notices when followers acknowledge what they have not synced.
#[test]
#[should_panic(expected = "seed")]
fn an_append_acknowledged_before_its_sync_does_not_conform() {
    let make = |seed, bytes| -> Box<dyn Site> {
        Box::new(Cluster::new(seed, bytes, Planted::AppendBeforeSync))
    };
    test_all(&make, 50);
}
