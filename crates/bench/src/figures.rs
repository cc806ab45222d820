//! The figures to compare with: the seeds' published ones, FoundationDB measured, what we ask of
//! ourselves.
//!
//! "Published" is the benchmarking guide: one process on one core of an E3-1240. "FoundationDB" is
//! the best cell of the row when version 7.3 ran on a machine of two virtual cores, its client on
//! the same two. A requirement is a multiple of that best cell, and in no case less than the
//! published figure.

/// What one figure is held against. All in the unit of the figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Target {
    /// What the seeds publish.
    pub published: Option<f64>,
    /// On how many cores.
    pub published_cores: u32,
    /// The best that FoundationDB gave when measured.
    pub foundationdb: Option<f64>,
    /// What we require of ourselves.
    pub required: Option<f64>,
    /// What we would like.
    pub goal: Option<f64>,
    /// Whether a smaller figure is the better one.
    pub smaller_is_better: bool,
}

impl Target {
    /// Nothing to compare with.
    pub const NONE: Self = Self {
        published: None,
        published_cores: 1,
        foundationdb: None,
        required: None,
        goal: None,
        smaller_is_better: false,
    };

    /// Compared with both, and held to neither.
    pub const fn peers(published: f64, foundationdb: f64) -> Self {
        Self { published: Some(published), foundationdb: Some(foundationdb), ..Self::NONE }
    }

    /// So many times FoundationDB, and never below the published figure.
    pub const fn times(published: f64, foundationdb: f64, required: f64, goal: f64) -> Self {
        Self {
            required: Some((required * foundationdb).max(published)),
            goal: Some((goal * foundationdb).max(published)),
            ..Self::peers(published, foundationdb)
        }
    }

    /// Compared with what the seeds publish for a cluster of so many cores.
    pub const fn cluster(published: f64, cores: u32) -> Self {
        Self { published: Some(published), published_cores: cores, ..Self::NONE }
    }

    /// Compared with a latency that the seeds publish for a cluster of so many cores.
    pub const fn latency(seconds: f64, cores: u32) -> Self {
        Self { smaller_is_better: true, ..Self::cluster(seconds, cores) }
    }

    /// At least so much.
    pub const fn at_least(required: f64, goal: f64) -> Self {
        Self { required: Some(required), goal: Some(goal), ..Self::NONE }
    }

    /// At most so much.
    pub const fn at_most(required: f64, goal: f64) -> Self {
        Self { smaller_is_better: true, ..Self::at_least(required, goal) }
    }

    /// Compared with the same, and held to nothing.
    #[must_use]
    pub const fn beside(self) -> Self {
        Self { required: None, goal: None, ..self }
    }

    /// How many times as good as a peer's figure `value` is.
    pub fn ratio(&self, value: f64, peer: f64) -> f64 {
        if self.smaller_is_better { peer / value } else { value / peer }
    }

    /// Whether `value` is as good as `bound`.
    pub fn reaches(&self, value: f64, bound: f64) -> bool {
        if self.smaller_is_better { value <= bound } else { value >= bound }
    }
}

/// One client, one write a transaction: commits a second.
pub const WRITE_1: Target = Target::times(917.0, 885.0, 5.0, 8.0);
/// The same of an engine.
pub fn write_1(engine: &str) -> Target {
    if is_ssd(engine) { WRITE_1.beside() } else { WRITE_1 }
}
/// The mean commit of one client, in times of a synced write of the same bytes.
pub const WRITE_1_SYNCS: Target = Target::at_most(2.0, 1.5);
/// The same of an engine.
pub fn write_1_syncs(engine: &str) -> Target {
    if is_ssd(engine) { WRITE_1_SYNCS.beside() } else { WRITE_1_SYNCS }
}
/// One client, ten writes a transaction.
pub const WRITE_2: Target = Target::peers(8_650.0, 6_300.0);
/// A hundred clients, ten writes a transaction.
pub const WRITE_3: Target = Target::times(46_000.0, 57_000.0, 5.0, 8.0);
/// A thousand clients, against what FoundationDB gives a hundred.
pub const WRITE_1000: Target = Target::times(46_000.0, 57_000.0, 7.0, 10.0);
/// A hundred clients, ten reads a transaction.
pub const READ: Target = Target::times(305_000.0, 68_000.0, 10.0, 20.0);
/// The same of an engine.
pub fn read(engine: &str) -> Target {
    if is_ssd(engine) { READ.beside() } else { READ }
}
/// A hundred clients, nine reads and a write a transaction: operations a second.
pub fn mixed(engine: &str) -> Target {
    Target::times(107_000.0, 48_000.0, if is_ssd(engine) { 4.0 } else { 5.0 }, 8.0)
}
/// A hundred clients, ranges of 1000 keys: keys a second.
pub fn range(engine: &str) -> Target {
    let (required, goal) = if is_ssd(engine) { (2.0, 3.0) } else { (3.0, 7.0) };
    Target::times(3_600_000.0, 3_800_000.0, required, goal)
}
/// From so many rows on, reads on one thread have another bound.
pub const MANY_ROWS: u64 = 10_000_000;
/// Ten reads a transaction on one thread: reads a second. Of `ssd` it is asked of rows in its cache
/// alone, to which `is_cached` says whether they have room in it.
pub fn read_one_thread(engine: &str, rows: u64, is_cached: bool) -> Target {
    match (is_ssd(engine), is_cached) {
        (true, true) => Target::at_least(300_000.0, 700_000.0),
        (true, false) => Target::NONE,
        (false, _) if rows >= MANY_ROWS => Target::at_least(1_000_000.0, 1_000_000.0),
        (false, _) => Target::at_least(1_000_000.0, 1_500_000.0),
    }
}
/// How far reads scale from one thread to two, as a part of how far a read-only map scales: asked
/// of `memory`.
pub fn read_scaling(engine: &str) -> Target {
    let target = Target::at_least(0.9, 1.0);
    if is_ssd(engine) { target.beside() } else { target }
}
/// Writes for minutes on end; FoundationDB's figure is its best over one minute.
pub const SUSTAINED: Target = Target { foundationdb: Some(44_000.0), ..Target::NONE };
/// The slowest slice, as a part of the first minute.
pub const SUSTAINED_LOWEST: Target = Target::at_least(0.7, 0.9);

/// [`READ`] over sockets, client and server sharing the machine.
pub const SERVED_READ: Target = Target::times(305_000.0, 68_000.0, 4.0, 6.0);
/// [`WRITE_1`] over sockets.
pub const SERVED_WRITE_1: Target = Target::times(917.0, 885.0, 3.0, 5.0);
/// [`WRITE_3`] over sockets.
pub const SERVED_WRITE_3: Target = Target::times(46_000.0, 57_000.0, 3.0, 5.0);
/// [`WRITE_1000`] over sockets.
pub const SERVED_WRITE_1000: Target = Target::times(46_000.0, 57_000.0, 5.0, 8.0);
/// [`mixed`] over sockets.
pub const SERVED_MIXED: Target = Target::times(107_000.0, 48_000.0, 4.0, 6.0);
/// [`range`] over sockets.
pub const SERVED_RANGE: Target = Target::times(3_600_000.0, 3_800_000.0, 1.5, 2.5);
/// The slowest tenth of a thousand busy clients, as a part of the median one.
pub const FAIRNESS: Target = Target { required: Some(0.5), ..Target::NONE };
/// Points of time series for a second of the server's processor time: twice and four times the
/// better of Akumuli and VictoriaMetrics.
pub const SERIES_NAMES: Target = Target::at_least(1_380_000.0, 2_760_000.0);
/// [`SERIES_NAMES`] in rows of ten.
pub const SERIES_ROWS: Target = Target::at_least(2_640_000.0, 5_280_000.0);
/// [`SERIES_NAMES`] with a dictionary.
pub const SERIES_DICTIONARY: Target = Target::at_least(3_500_000.0, 7_000_000.0);
/// [`SERIES_NAMES`] in OpenTSDB's protocol.
pub const SERIES_OPENTSDB: Target = Target::at_least(1_860_000.0, 3_720_000.0);
/// Half of the starts, and of the reads, at three quarters of a server's peak, in seconds.
pub const SERVED_LATENCY: Target =
    Target { required: Some(0.5e-3), smaller_is_better: true, ..Target::NONE };
/// Half of its commits there, beyond three synced writes.
pub const SERVED_COMMIT_LATENCY: Target = Target { required: Some(1e-3), ..SERVED_LATENCY };
/// What a read costs the server, in seconds of a processor, from its own accounts; FoundationDB's
/// ten microseconds.
pub const SERVED_READ_CPU: Target =
    Target { foundationdb: Some(10e-6), ..Target::at_most(3e-6, 1.5e-6) };

/// The start after a crash: bytes of checkpoint and log loaded a second, where all data is loaded;
/// seconds where it isn't.
pub fn restart(engine: &str) -> (Target, Target) {
    let bytes = Target { required: Some(200e6), ..Target::NONE };
    let seconds = Target { required: Some(2.0), smaller_is_better: true, ..Target::NONE };
    if is_ssd(engine) { (Target::NONE, seconds) } else { (bytes, Target::NONE) }
}

/// How long a checkpoint may stop commits, in seconds.
pub const CHECKPOINT_STOP: Target =
    Target { required: Some(0.010), smaller_is_better: true, ..Target::NONE };

/// A snapshot of an idle database into local files: bytes of rows a second. FoundationDB took 35 s
/// for 116 MB.
pub const SNAPSHOT: Target = Target { foundationdb: Some(3.5e6), ..Target::at_least(150e6, 300e6) };
/// A restore from local files into a new directory: bytes of rows a second. FoundationDB took 16.6
/// s for 116 MB.
pub const RESTORE: Target = Target { foundationdb: Some(7e6), ..Target::at_least(150e6, 300e6) };
/// The same into a server that is running.
pub const RESTORE_SERVED: Target = Target::at_least(40e6, 100e6);
/// What a continuous backup may leave of the writes.
pub const BACKUP_COST: Target = Target::at_least(0.85, 0.95);
/// Bytes of its log, before compression, for each byte of keys and values.
pub const BACKUP_LOG: Target = Target::at_most(1.1, 1.03);
/// How far a second site may be behind at half of the first one's peak, in seconds.
pub const DR_LAG: Target = Target::at_most(0.200, 0.050);

/// The longest pause of a client when the server that leads is killed, in seconds; FoundationDB's
/// was 5.2 in the median.
pub const FAILOVER: Target = Target { foundationdb: Some(5.2), ..Target::at_most(1.0, 0.4) };
/// When it is stopped or cut off; FoundationDB's were 3.6 to 18.6.
pub const FAILOVER_SILENT: Target = Target { foundationdb: Some(3.6), ..Target::at_most(2.0, 1.0) };
/// When it ends cleanly.
pub const HAND_OVER: Target = Target { foundationdb: Some(3.6), ..Target::at_most(0.1, 0.02) };
/// What three servers write, of what one does on the same processors.
pub const THREE_NODES_WRITE: Target = Target::at_least(0.3, 0.45);
/// What they read.
pub const THREE_NODES_READ: Target = Target::at_least(0.85, 1.0);
/// How long a commit of one client takes with them, of what it takes with one.
pub const THREE_NODES_COMMIT: Target = Target::at_most(2.5, 1.8);
/// Bytes of rows a second that a new member takes.
pub const CATCH_UP: Target = Target::at_least(100e6, 200e6);
/// What is left of the others' commits meanwhile.
pub const CATCH_UP_COST: Target = Target::at_least(0.8, 0.95);

/// How long after its commit's answer a change may come to the consumer of a stream, in seconds on
/// average; FoundationDB's design says a tenth of a second.
pub const CHANGES_DELAY: Target =
    Target { foundationdb: Some(0.1), ..Target::at_most(0.050, 0.005) };
/// What a stream of everything may leave of the writes.
pub const CHANGES_COST: Target = Target::at_least(0.9, 0.97);

/// The 12-machine tests' cores: four in each.
const TWELVE_MACHINES: u32 = 48;
/// The KPI page's cores: 24 machines of four.
const KPI_CORES: u32 = 96;
/// The guide's 12-machine write test: writes a second.
pub const CLUSTER_WRITE: Target = Target::cluster(720_000.0, TWELVE_MACHINES);
/// The guide's 12-machine read test: reads a second.
pub const CLUSTER_READ: Target = Target::cluster(5_540_000.0, TWELVE_MACHINES);
/// The guide's 12-machine 90/10 test: operations a second.
pub const CLUSTER_MIXED: Target = Target::cluster(2_390_000.0, TWELVE_MACHINES);
/// The part of the peak that 200 operations outstanding give.
pub const CONCURRENCY: Target = Target { required: Some(0.9), ..Target::NONE };
/// Below 75% load, to a read version, in seconds: the upper end of what the performance page gives.
pub const LATENCY_START: Target = Target::latency(0.001, TWELVE_MACHINES);
/// The same of a read.
pub const LATENCY_READ: Target = Target::latency(0.001, TWELVE_MACHINES);
/// The same of a commit.
pub const LATENCY_COMMIT: Target = Target::latency(0.0025, TWELVE_MACHINES);
/// Random 90/10 on the KPI page: operations a second once steady.
pub const RANDOM_90_10_STEADY: Target = Target::cluster(890_000.0, KPI_CORES);
/// The same in the first burst.
pub const RANDOM_90_10_BURST: Target = Target::cluster(1_450_000.0, KPI_CORES);
/// Random 50/50 on the KPI page: operations a second once steady.
pub const RANDOM_50_50_STEADY: Target = Target::cluster(235_000.0, KPI_CORES);
/// The same in the first burst.
pub const RANDOM_50_50_BURST: Target = Target::cluster(380_000.0, KPI_CORES);
/// Cached reads a second.
pub const CACHED_READS: Target = Target::cluster(3_750_000.0, KPI_CORES);
/// Keys a second in ranges of 63.
pub const RANGE_READS: Target = Target::cluster(26_000_000.0, KPI_CORES);
/// Writes a second in blocks of 140 adjacent keys.
pub const ADJACENT_WRITES: Target = Target::cluster(1_500_000.0, KPI_CORES);
/// Rows a second of a bulk load: almost five billion an hour.
pub const BULK_LOAD_ROWS: Target = Target::cluster(5e9 / 3600.0, KPI_CORES);
/// Bytes a second of a bulk load.
pub const BULK_LOAD_BYTES: Target = Target::cluster(85e6, KPI_CORES);
/// The last tenth of a bulk load, as a part of the first.
pub const BULK_LOAD_LAST: Target = Target::at_least(0.5, 0.8);
/// Sub-millisecond, the KPI page says of a single read.
pub const KPI_READ_LATENCY: Target = Target::latency(0.001, KPI_CORES);
/// About ten milliseconds, it says of a commit of five reads and five writes.
pub const KPI_COMMIT_LATENCY: Target = Target::latency(0.010, KPI_CORES);
/// About ten milliseconds, it says of a transaction of its blend.
pub const KPI_TRANSACTION_LATENCY: Target = Target::latency(0.010, KPI_CORES);

/// Reads alone and writes alone by one process on one core, which the performance page gives for
/// each engine.
pub fn unmixed(engine: &str) -> (Target, Target) {
    match engine {
        "memory" => (Target::cluster(90_000.0, 1), Target::cluster(35_000.0, 1)),
        "ssd" => (Target::cluster(55_000.0, 1), Target::cluster(20_000.0, 1)),
        _ => (Target::NONE, Target::NONE),
    }
}

/// Writes of adjacent keys in times of writes of random keys.
pub fn adjacent_times(engine: &str) -> Target {
    if is_ssd(engine) { Target::at_least(3.0, 5.0) } else { Target::NONE }
}

/// Reads of the device for each read, where data is larger than memory.
pub const DEVICE_READS: Target = Target::at_most(1.2, 1.05);
/// Reads of the device a second where no cache answers, as a part of what the device gives to 32
/// readers at once.
pub const UNCACHED: Target = Target::at_least(0.8, 0.95);
/// Bytes written to the device for each byte flushed to it.
pub const WRITE_AMPLIFICATION: Target =
    Target { goal: Some(12.0), smaller_is_better: true, ..Target::NONE };

/// The memory of the process beyond what it had before there were data, as a part of the setting.
pub const BUDGET: Target = Target::at_most(1.2, 1.05);

/// How much more an operation may cost with more rows: as the logarithm of their number grows.
pub fn growth(few: f64, many: f64) -> Target {
    let times = many.max(3.0).ln() / few.max(2.0).ln();
    Target { required: Some(times), smaller_is_better: true, ..Target::NONE }
}

/// Memory at rest, in bytes a key, for so many bytes of key and value a key. What `ssd` keeps in
/// memory is bounded by its setting, whatever the data: see [`BUDGET`].
pub fn memory_at_rest(engine: &str, data: f64) -> Target {
    let target = Target::at_most(1.6 * data + 64.0, 1.3 * data + 48.0);
    if is_ssd(engine) { target.beside() } else { target }
}

/// Whether what is asked of the engine on a disk holds. Bounds that aren't named for it are those
/// of `memory`.
fn is_ssd(engine: &str) -> bool {
    engine == "ssd"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_is_a_multiple_of_the_best_and_never_below_the_published_figure() {
        assert_eq!((WRITE_1.required, WRITE_1.goal), (Some(4_425.0), Some(7_080.0)));
        assert_eq!((READ.required, READ.goal), (Some(680_000.0), Some(1_360_000.0)));
        assert_eq!(Target::times(100.0, 1.0, 2.0, 200.0).required, Some(100.0));
        assert!(WRITE_1.reaches(4_425.0, 4_425.0) && !WRITE_1.reaches(4_424.0, 4_425.0));
        assert_eq!((WRITE_1.ratio(20.0, 10.0), LATENCY_READ.ratio(0.5, 1.0)), (2.0, 2.0));
        assert!(WRITE_1_SYNCS.reaches(1.9, 2.0) && !WRITE_1_SYNCS.reaches(2.1, 2.0));
    }

    /// Reports of `ssd` were held against what is asked of `memory`.
    #[test]
    fn each_engine_has_its_own_bounds() {
        type Case = (fn(&str) -> Target, (f64, f64), Option<(f64, f64)>);
        let bounds = |target: Target| (target.required, target.goal);
        let cases: [Case; 10] = [
            (mixed, (240e3, 384e3), Some((192e3, 384e3))),
            (range, (11.4e6, 26.6e6), Some((7.6e6, 11.4e6))),
            (read, (680e3, 1.36e6), None),
            (write_1, (4_425.0, 7_080.0), None),
            (write_1_syncs, (2.0, 1.5), None),
            (read_scaling, (0.9, 1.0), None),
            (|engine| memory_at_rest(engine, 100.0), (224.0, 178.0), None),
            (|engine| read_one_thread(engine, 1_000_000, true), (1e6, 1.5e6), Some((300e3, 700e3))),
            (|engine| read_one_thread(engine, MANY_ROWS, true), (1e6, 1e6), Some((300e3, 700e3))),
            (|engine| read_one_thread(engine, MANY_ROWS, false), (1e6, 1e6), None),
        ];
        for (target, memory, ssd) in cases {
            assert_eq!(bounds(target("memory")), (Some(memory.0), Some(memory.1)));
            assert_eq!(bounds(target("ssd")), (ssd.map(|ssd| ssd.0), ssd.map(|ssd| ssd.1)));
        }
        assert_eq!(read("ssd").published, READ.published);
        assert_eq!(
            (bounds(WRITE_3), bounds(WRITE_1000)),
            ((Some(285e3), Some(456e3)), (Some(399e3), Some(570e3)))
        );
    }
}
