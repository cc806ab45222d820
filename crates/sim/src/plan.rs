//! What a seed decides before a run begins: the settings of the node, and how large the run is.
//!
//! Settings are drawn anew for each life of the node: a directory must open whatever the settings
//! were that wrote it. They are small where small ones lead to rare paths: checkpoints every few
//! kilobytes, segments of a few records.

use crate::bugs::{self, Bug};
use crate::spec::Spec;
use plinth_env::simulated::Random;
use plinth_log::LogConfig;
use plinth_pipeline::{Compression, EngineKind, Key, Keys, NodeConfig, SsdSettings};
use std::sync::Arc;
use std::time::Duration;

/// The environment's variable with the seed that a test shall run, instead of those that it names.
pub(crate) const SEED: &str = "PLINTH_SIM_SEED";
/// The environment's variable with how many seeds a test shall run.
pub(crate) const COUNT: &str = "PLINTH_SIM_COUNT";

/// Where the database lies on its disk.
pub(crate) const DIR: &str = "/db";

/// How long opening may take when nothing interrupts it; far more than the worst stalls add up to.
pub(crate) const OPEN_LIMIT: Duration = Duration::from_secs(600);

/// How the simulation was started, and so how people start it again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Caller {
    /// In the repository: `make sim`, or a test.
    #[default]
    Make,
    /// By the program: `plinth sim`.
    Plinth,
    /// By a test of somebody else's layer: see [`Seeds`](crate::Seeds).
    Test,
    /// By a program of somebody else's, with these words before the options: `cargo run --`.
    Program(&'static str),
}

impl Caller {
    /// The command with these options.
    pub fn command(self, options: &str) -> String {
        match self {
            Self::Make => format!("make sim ARGS='{options}'"),
            Self::Plinth => format!("plinth sim {options}"),
            Self::Test => format!("cargo test, with {options}"),
            Self::Program(words) => format!("{words} {options}"),
        }
    }
}

/// A run to be: everything it needs is here, so that equal plans give equal runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What runs.
    pub spec: Arc<Spec>,
    /// The seed.
    pub seed: u64,
    /// A bug to have, if any. Only with the feature `planted-bugs`; without it a bug is refused.
    pub bug: Option<Bug>,
    /// Whether anything goes wrong, if the spec has it so.
    pub faults: bool,
    /// Who wants it.
    pub caller: Caller,
}

impl Plan {
    /// The run of a spec with a seed.
    pub fn new(spec: Arc<Spec>, seed: u64) -> Self {
        Self { spec, seed, bug: None, faults: true, caller: Caller::default() }
    }

    /// The run of the built-in spec of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn of(spec: &str, seed: u64) -> Self {
        Self::new(Arc::new(Spec::find(spec).unwrap_or_else(|what| panic!("{what}"))), seed)
    }

    /// The same with a bug.
    #[must_use]
    pub fn with_bug(mut self, bug: Bug) -> Self {
        self.bug = Some(bug);
        self
    }

    /// Whether the nemesis is at work in this run.
    pub(crate) fn is_faulty(&self) -> bool {
        self.faults && !self.spec.faults.is_nothing()
    }

    /// The command that runs it again.
    pub fn reproduction(&self) -> String {
        if self.caller == Caller::Test {
            return format!("{SEED}={} cargo test {}", self.seed, self.spec.name);
        }
        let faults = if self.faults { "" } else { " --no-faults" };
        let bug = self.bug.map(|bug| format!(" --bug \"{}\"", bug.name())).unwrap_or_default();
        let nodes = self.spec.wanted.map(|nodes| format!(" --nodes {nodes}")).unwrap_or_default();
        self.caller
            .command(&format!("--spec {} --seed {}{nodes}{faults}{bug}", self.spec.name, self.seed))
    }
}

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Clients of each workload.
    pub clients: usize,
    /// For how long clients work, of simulated time.
    pub duration: Duration,
}

impl Size {
    pub fn draw(spec: &Spec, random: &mut Random) -> Self {
        let clients = spec.clients.draw(random).max(1) as usize;
        Self { clients, duration: Duration::from_millis(spec.milliseconds.draw(random)) }
    }
}

/// The storage engines that runs are drawn from.
const ENGINES: [EngineKind; 2] = [EngineKind::Memory, EngineKind::Ssd];

/// The compressions that lives of `ssd` are drawn from.
const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

/// What stays the same in all of a run's lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// The window, in versions.
    pub window: i64,
    pub engine: EngineKind,
    /// Whether what is written to disks is encrypted.
    pub sealed: bool,
}

impl Setting {
    /// Draws one. The window is mostly the usual one, sometimes so short that transactions grow too
    /// old.
    pub fn draw(random: &mut Random, needs_long_window: bool) -> Self {
        let is_short = random.chance(0.3) && !needs_long_window;
        let short = random.in_range(20_000..500_000) as i64;
        let window = if is_short { short } else { plinth_types::limits::WINDOW_VERSIONS };
        Self { window, engine: ENGINES[random.index(ENGINES.len())], sealed: false }
    }
}

/// The settings of one life of a node.
pub(crate) fn draw_config(random: &mut Random, setting: Setting, bug: Option<Bug>) -> NodeConfig {
    let first_segment_bytes = LogConfig::MIN_SEGMENT_BYTES << random.below(5);
    let log = LogConfig {
        first_segment_bytes,
        max_segment_bytes: first_segment_bytes << random.below(4),
        spare_bytes: random.below(3) * (64 << 10),
        syncs_in_flight: random.in_range(1..5) as usize,
        ..LogConfig::default()
    };
    let mut config = NodeConfig {
        engine: setting.engine,
        window: setting.window,
        commit_workers: random.in_range(1..6) as usize,
        commit_depth: random.in_range(1..33) as usize,
        checkpoint_bytes: 1 << random.in_range(10..20),
        ssd: draw_tables(random),
        log,
        ..NodeConfig::default()
    };
    if setting.sealed {
        // Each life has another newest key. Nothing is drawn for it: the
        // seed decides all else as it does without.
        config.set_keys(keys_of(config.commit_depth));
    }
    bugs::configure(&mut config, bug);
    config
}

/// Of so many seeds one has its files encrypted.
const SEALED: u64 = 4;
/// How many keys the lives of a run have between them.
const KEYS: usize = 3;

/// Whether the run of this seed has its files encrypted.
pub(crate) fn is_sealed(seed: u64) -> bool {
    seed % SEALED == SEALED - 1
}

/// All keys of a run, in an order that a number decides.
pub(crate) fn keys_of(number: usize) -> Keys {
    let key = |at: usize| Key::of_file(&[(number + at).rem_euclid(KEYS) as u8; Key::LEN]);
    let keys = (0..KEYS).map(|at| key(at).expect("the simulation is built with encryption"));
    Keys::new(&keys.collect::<Vec<_>>())
}

/// Tables of some rows in blocks of a few, flushed and merged all the time; a cache that holds all
/// of them or next to none.
fn draw_tables(random: &mut Random) -> SsdSettings {
    let compression = COMPRESSIONS[random.index(COMPRESSIONS.len())];
    let table_bytes = 1 << random.in_range(11..17);
    SsdSettings {
        // Where it isn't built in the seed still decides the same for all else.
        compression: if compression.is_built_in() { compression } else { Compression::Lz4 },
        block_bytes: 1 << random.in_range(6..13),
        table_bytes,
        level_bytes: table_bytes << random.below(4),
        flush_bytes: 1 << random.in_range(8..17),
        flush_after: Duration::from_millis(random.in_range(1..3000)),
        ..SsdSettings::with_memory(1 << random.in_range(20..26))
    }
}
