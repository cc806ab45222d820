//! What a seed decides before a run begins, and the bugs that can be planted into one.
//!
//! Settings are drawn anew for each life of the node: a directory must open whatever the settings were that wrote it.
//! They are small where small ones lead to rare paths: checkpoints every few kilobytes, segments of a few records.

use plinth_env::simulated::Random;
use plinth_log::LogConfig;
use plinth_pipeline::NodeConfig;
use std::time::Duration;

/// A bug to have on purpose, to show that the simulation finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The resolver lets every transaction commit whatever it has read.
    IgnoreReads,
    /// The log says that it has synced, and hasn't.
    SkipSync,
    /// Recovery believes log records whose bodies never arrived.
    ReplayTornTail,
}

/// A run to be: everything it needs is here, so that equal plans give equal runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the workload.
    pub workload: String,
    /// The seed.
    pub seed: u64,
    /// A bug to have, if any. Only with the feature `planted-bugs`; without it a bug is refused.
    pub bug: Option<Bug>,
    /// Whether the nemesis is at work.
    pub faults: bool,
}

impl Plan {
    /// The run of a workload with a seed, under faults.
    pub fn new(workload: &str, seed: u64) -> Self {
        Self { workload: workload.to_string(), seed, bug: None, faults: true }
    }

    /// The same with a bug.
    #[must_use]
    pub fn with_bug(mut self, bug: Bug) -> Self {
        self.bug = Some(bug);
        self
    }

    /// Without a nemesis.
    #[must_use]
    pub fn without_faults(mut self) -> Self {
        self.faults = false;
        self
    }

    /// The command that runs it again.
    pub fn reproduction(&self) -> String {
        let faults = if self.faults { "" } else { " --no-faults" };
        format!(
            "cargo run --profile checked -p plinth-sim -- --workload {} --seed {}{faults}",
            self.workload, self.seed
        )
    }
}

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub clients: usize,
    /// For how long clients work, of simulated time.
    pub duration: Duration,
}

impl Size {
    pub fn draw(random: &mut Random) -> Self {
        let clients = random.in_range(2..8) as usize;
        Self { clients, duration: Duration::from_millis(random.in_range(1_500..6_000)) }
    }
}

/// The settings of one life of a node. The window is the same in all of a run's lives.
pub(crate) fn draw_config(random: &mut Random, window: i64, bug: Option<Bug>) -> NodeConfig {
    let first_segment_bytes = LogConfig::MIN_SEGMENT_BYTES << random.below(5);
    let log = LogConfig {
        first_segment_bytes,
        max_segment_bytes: first_segment_bytes << random.below(4),
        spare_bytes: random.below(3) * (64 << 10),
        syncs_in_flight: random.in_range(1..5) as usize,
        ..LogConfig::default()
    };
    let mut config = NodeConfig {
        window,
        commit_workers: random.in_range(1..6) as usize,
        checkpoint_bytes: 1 << random.in_range(10..20),
        log,
        ..NodeConfig::default()
    };
    plant(&mut config, bug);
    config
}

/// The window of a run: mostly the usual one, sometimes so short that transactions grow too old.
pub(crate) fn draw_window(random: &mut Random) -> i64 {
    if random.chance(0.3) { random.in_range(20_000..500_000) as i64 } else { NodeConfig::default().window }
}

#[cfg(feature = "planted-bugs")]
fn plant(config: &mut NodeConfig, bug: Option<Bug>) {
    match bug {
        Some(Bug::IgnoreReads) => config.planted = Some(plinth_resolver::Planted::IgnoreReads),
        Some(Bug::SkipSync) => config.log.planted = plinth_log::planted::Planted::SkipSync,
        Some(Bug::ReplayTornTail) => config.log.planted = plinth_log::planted::Planted::ReplayTornTail,
        None => {}
    }
}

#[cfg(not(feature = "planted-bugs"))]
fn plant(_config: &mut NodeConfig, bug: Option<Bug>) {
    assert!(bug.is_none(), "bugs can be planted only with the feature planted-bugs");
}
