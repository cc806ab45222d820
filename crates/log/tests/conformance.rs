//! The log of one node does what every commit log must do.

mod support;

use std::path::Path;

use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_format::Keys;
use plinth_log::conformance::{Site, test_all};
use plinth_log::{CommitLog, LocalLog, LogConfig, LogResult};
use plinth_types::Version;
use support::{DIR, IDENTITY, keys, small};

struct OneNode {
    sim: Simulation,
    env: Env,
    config: LogConfig,
}

impl Site for OneNode {
    fn world(&self) -> &Simulation {
        &self.sim
    }

    fn process(&self) -> Env {
        self.env.clone()
    }

    fn create(&mut self, beginning: (u64, u64, Version)) -> Box<dyn CommitLog> {
        let made = LocalLog::create_at(
            &self.env,
            Path::new(DIR),
            IDENTITY,
            self.config.clone(),
            beginning,
        );
        Box::new(self.sim.run_until(made).expect("a new log").0)
    }

    fn crash_and_open(&mut self) -> Box<dyn CommitLog> {
        self.sim.crash(&self.env);
        self.env = self.sim.restart(&self.env);
        self.open().expect("a log opens after every crash")
    }

    fn open(&mut self) -> LogResult<Box<dyn CommitLog>> {
        let opened = self.sim.run_until(support::open(&self.env, self.config.clone()));
        opened.map(|(log, _)| -> Box<dyn CommitLog> { Box::new(log) })
    }
}

fn test(keys: &Keys, seeds: u64) {
    let make = |seed, segment_bytes| -> Box<dyn Site> {
        let sim = Simulation::new(seed);
        let env = sim.process("node");
        let small = small(segment_bytes, segment_bytes);
        let config = LogConfig { tail_bytes: 20_000, keys: keys.clone(), ..small };
        Box::new(OneNode { sim, env, config })
    };
    test_all(&make, seeds);
}

#[test]
fn the_log_of_one_node_conforms() {
    test(&Keys::none(), 50);
}

#[test]
fn a_sealed_log_of_one_node_conforms() {
    test(&keys(1), 20);
}
