//! Special keys: what `\xff\xff…` shows of the transaction and the database, and the writes it
//! takes.
//!
//! The special key space is divided into *modules*. A read must stay in one (unless relaxed by an
//! option); a module consists of *parts*, each with a source of its rows, some of which take
//! writes. A write waits for commit, which turns it into writes of system keys, or refuses it with
//! a message under `\xff\xff/error_message`.
//!
//! ```text
//!   \xff\xff/management/            module
//!     db_locked                       part: one row from \xff/dbLocked, writable
//!     tenant/                         part: the tenants, writable
//!   \xff\xff/transaction/           module
//!     conflicting_keys/               part
//!     read_conflict_range/            part
//! ```
//!
//! No virtual key is ever part of a conflict range.
//!
//! What a transaction is, this doesn't know: it stands on [`Host`], a try of a transaction as
//! special keys see it.

mod commit;
mod content;
mod members;
mod ranges;
mod read;
mod settings;
pub(crate) mod tenants;
mod written;

pub(crate) use written::{Special, Writer};

use crate::endpoint::Endpoint;
use crate::json::quoted;
use crate::range::{Limits, RangeOptions};
use bytes::Bytes;
use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_types::{
    KeyRange, KeyValue, RangeList, RangeResult, Result, Version, key_after, system,
};
use std::future::Future;
use std::ops::Deref;

/// A try of a transaction, as special keys need it. Clones are the same one; once it is over, what
/// is written or depended on comes to nothing.
pub(crate) trait Host: Clone + Send + Sync + 'static {
    /// Where the database is.
    fn endpoint(&self) -> impl Deref<Target = dyn Endpoint> + Send;

    /// The clock, and random numbers.
    fn env(&self) -> &Env;

    /// The API version whose behaviour the transaction has.
    fn api_version(&self) -> i32;

    /// Looks at what the transaction did to special keys, and at what its options allow.
    fn with_special<R>(&self, f: impl FnOnce(&mut Special, Allowed) -> R) -> R;

    /// The version that the transaction reads at.
    fn read_version(&self) -> Reply<Version>;

    /// The value of a system key at that version, whatever the transaction may read.
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Bytes>>> + Send;

    /// The rows of a range of system keys, likewise.
    fn get_range(
        &self,
        begin: &[u8],
        end: &[u8],
    ) -> impl Future<Output = Result<Vec<KeyValue>>> + Send;

    /// Whether there are rows between two keys at that version, likewise.
    fn has_rows(&self, begin: &[u8], end: &[u8]) -> impl Future<Output = Result<bool>> + Send;

    /// Has the commit conflict if anybody writes between two keys.
    fn depend_on(&self, begin: &[u8], end: &[u8]);

    /// Sets or removes a system key, whatever the transaction may write.
    fn write(&self, key: &[u8], value: Option<&[u8]>);

    /// Removes a range of system keys, likewise.
    fn clear(&self, begin: &[u8], end: &[u8]);

    /// Sets the key that locks the database to a value with a versionstamp, and has everybody
    /// conflict who read anything before that.
    fn lock_database(&self, operand: &[u8]);

    /// Waits until all reads have their answer, and so their conflict ranges.
    fn reads_done(&self) -> impl Future<Output = Result<()>> + Send;

    /// The conflict ranges of a kind.
    fn conflicts(&self, of: ConflictsOf) -> RangeList;
}

/// Which conflict ranges special keys show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConflictsOf {
    /// Those of reads.
    Reads,
    /// Those of writes.
    Writes,
    /// Those of reads that the last commit conflicted on.
    LastCommit,
}

/// What the options of a transaction say about special keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// Whether a read may leave its module.
    pub(crate) relaxed: bool,
    /// Whether they take writes.
    pub(crate) writes: bool,
    /// Whether reads see what the transaction wrote.
    pub(crate) own_writes: bool,
}

/// The special keys of one transaction.
pub(crate) struct SpecialKeys<H> {
    host: H,
}

/// The rows of one prefix, or one row.
pub(crate) struct Part {
    begin: &'static [u8],
    end: &'static [u8],
    source: Source,
    writable: bool,
    /// API versions that have it: from the first, below the second.
    api: (i32, i32),
}

/// Where a part's rows come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    ReadConflicts,
    WriteConflicts,
    ConflictingKeys,
    StatusJson,
    ClusterFilePath,
    ConnectionString,
    ClusterId,
    ErrorMessage,
    ShardStatistics,
    Health,
    /// How many machines may fail, as the status has it.
    FaultTolerance,
    CommandOptions,
    Coordinators,
    AutoCoordinators,
    Locked,
    ConsistencyCheckSuspended,
    MinRequiredCommitVersion,
    VersionEpoch,
    Maintenance,
    DataDistribution,
    Profiling,
    GlobalConfig,
    Tracing,
    Tenants,
    /// Rows of places below this prefix, written by this command.
    Places(&'static str, &'static [u8]),
    /// Those of whom it is yet to come true.
    InProgress,
    /// The servers of a cluster.
    Workers,
    /// Nothing that a single store has; writes are refused with this command's name.
    Nothing(&'static str),
}

macro_rules! range {
    ($prefix:literal) => {
        (concat!($prefix, "/").as_bytes(), concat!($prefix, "0").as_bytes())
    };
}

macro_rules! single {
    ($key:literal) => {
        ($key.as_bytes(), concat!($key, "\0").as_bytes())
    };
}

type Bounds = (&'static [u8], &'static [u8]);

/// The modules, without the two bytes that every special key begins with.
const MODULES: &[Bounds] = &[
    range!("/actor_lineage"),
    range!("/actor_profiler_conf"),
    single!("/clusterId"),
    single!("/cluster_file_path"),
    single!("/cluster_id"),
    range!("/configuration"),
    single!("/connection_string"),
    single!("/error_message"),
    range!("/global_config"),
    range!("/management"),
    range!("/metrics"),
    single!("/status/json"),
    range!("/tracing"),
    range!("/transaction"),
    range!("/worker_interfaces"),
];

const fn part((begin, end): Bounds, source: Source, writable: bool, api: (i32, i32)) -> Part {
    Part { begin, end, source, writable, api }
}

const OLD: (i32, i32) = (630, i32::MAX);
const NEW: (i32, i32) = (700, i32::MAX);
const NEWEST: (i32, i32) = (740, i32::MAX);

/// The parts in order of their keys.
static PARTS: &[Part] = &[
    part(range!("/actor_lineage"), Source::Nothing("actor_lineage"), false, NEW),
    part(range!("/actor_profiler_conf"), Source::Nothing("actor_profiler_conf"), true, NEW),
    part(single!("/clusterId"), Source::ClusterId, false, OLD),
    part(single!("/cluster_file_path"), Source::ClusterFilePath, false, OLD),
    part(single!("/cluster_id"), Source::ClusterId, false, OLD),
    part(range!("/configuration/coordinators"), Source::Coordinators, true, NEW),
    part(range!("/configuration/process/class_source"), Source::Nothing("setclass"), false, NEW),
    part(range!("/configuration/process/class_type"), Source::Nothing("setclass"), true, NEW),
    part(single!("/connection_string"), Source::ConnectionString, false, OLD),
    part(single!("/error_message"), Source::ErrorMessage, false, NEW),
    part(range!("/global_config"), Source::GlobalConfig, true, NEW),
    part(single!("/management/auto_coordinators"), Source::AutoCoordinators, false, NEW),
    part(
        single!("/management/consistency_check_suspended"),
        Source::ConsistencyCheckSuspended,
        true,
        NEW,
    ),
    part(range!("/management/data_distribution"), Source::DataDistribution, true, NEW),
    part(single!("/management/db_locked"), Source::Locked, true, NEW),
    part(
        range!("/management/excluded"),
        Source::Places("exclude", system::EXCLUDED_PREFIX),
        true,
        NEW,
    ),
    part(range!("/management/excluded_locality"), Source::Nothing("exclude"), true, NEW),
    part(
        range!("/management/failed"),
        Source::Places("exclude failed", system::FAILED_PREFIX),
        true,
        NEW,
    ),
    part(range!("/management/failed_locality"), Source::Nothing("exclude failed"), true, NEW),
    part(range!("/management/in_progress_exclusion"), Source::InProgress, false, NEW),
    part(range!("/management/maintenance"), Source::Maintenance, true, NEW),
    part(
        single!("/management/min_required_commit_version"),
        Source::MinRequiredCommitVersion,
        true,
        NEW,
    ),
    part(range!("/management/options"), Source::CommandOptions, true, NEW),
    part(range!("/management/profiling"), Source::Profiling, true, (700, 720)),
    part(range!("/management/tenant"), Source::Tenants, true, OLD),
    part(single!("/management/version_epoch"), Source::VersionEpoch, true, NEW),
    part(range!("/metrics/data_distribution_stats"), Source::ShardStatistics, false, OLD),
    part(single!("/metrics/fault_tolerance_metrics_json"), Source::FaultTolerance, false, NEWEST),
    part(range!("/metrics/health"), Source::Health, false, OLD),
    part(single!("/status/json"), Source::StatusJson, false, OLD),
    part(range!("/tracing"), Source::Tracing, true, NEW),
    part(range!("/transaction/conflicting_keys"), Source::ConflictingKeys, false, OLD),
    part(range!("/transaction/read_conflict_range"), Source::ReadConflicts, false, OLD),
    part(range!("/transaction/write_conflict_range"), Source::WriteConflicts, false, OLD),
    part(range!("/worker_interfaces"), Source::Workers, false, OLD),
];

/// A key without the two bytes that every special key begins with; what lies beyond them all is cut
/// to their end.
fn bare(key: &[u8]) -> &[u8] {
    key.strip_prefix(system::SYSTEM_END).unwrap_or(b"")
}

/// The whole special key.
fn whole(bare: &[u8]) -> Bytes {
    [system::SYSTEM_END, bare].concat().into()
}

/// The parts of an API version.
fn parts(api: i32) -> impl DoubleEndedIterator<Item = &'static Part> {
    PARTS.iter().filter(move |part| (part.api.0..part.api.1).contains(&api))
}

impl Part {
    fn range(&self) -> KeyRange {
        KeyRange::new(whole(self.begin), whole(self.end))
    }

    /// A key of the part, whole, by what stands after the part's begin.
    fn key(&self, rest: &[u8]) -> Bytes {
        [system::SYSTEM_END, self.begin, rest].concat().into()
    }
}

/// What `\xff\xff/error_message` says.
fn error_message(command: &str, message: &str) -> String {
    format!(r#"{{"command":{},"message":{},"retriable":false}}"#, quoted(command), quoted(message))
}

/// Whether a read of this key, `\xff\xff` or above, is one of a special key.
pub(crate) fn is_read(api: i32, key: &[u8]) -> bool {
    if api < 630 { old_part(key).is_some() } else { key < system::SPECIAL_END }
}

/// Whether a range read is one of special keys.
pub(crate) fn is_range_read(api: i32, range: &RangeOptions) -> bool {
    if api < 630 {
        return bare(&range.begin.key) == b"/worker_interfaces";
    }
    let (begin, end) = (&range.begin.key[..], &range.end.key[..]);
    (system::SYSTEM_END..system::SPECIAL_END).contains(&begin)
        && (system::SYSTEM_END..=system::SPECIAL_END).contains(&end)
}

/// Whether a write of this key is one of a special key.
pub(crate) fn is_write(api: i32, key: &[u8]) -> bool {
    key >= system::SYSTEM_END && key < system::SPECIAL_END && api >= 700
}

/// The part of one of the three keys that there were before the modules.
fn old_part(key: &[u8]) -> Option<&'static Part> {
    let source = match bare(key) {
        b"/status/json" => Source::StatusJson,
        b"/cluster_file_path" => Source::ClusterFilePath,
        b"/connection_string" => Source::ConnectionString,
        _ => return None,
    };
    PARTS.iter().find(|part| part.source == source)
}

impl<H: Host> SpecialKeys<H> {
    pub(crate) fn new(host: H) -> Self {
        Self { host }
    }

    /// The value of one key that [`is_read`] says is special.
    pub(crate) async fn get(self, key: Bytes) -> Result<Option<Bytes>> {
        if self.host.api_version() < 630 {
            let Some(part) = old_part(&key) else { return Ok(None) };
            let range = part.range();
            let rows = self.special_rows(part, &range.begin, &range.end).await?;
            return Ok(rows.into_iter().next().map(|row| row.value));
        }
        let end = key_after(&key);
        let range = RangeOptions::from(KeyRange::new(key, end));
        let limits = Limits { rows: None, bytes: None };
        let result = self.read_special(&range, limits).await?;
        Ok(result.rows.get(0).map(|row| row.value))
    }

    /// The rows of a range that [`is_range_read`] says is special.
    pub(crate) async fn get_range(
        self,
        range: RangeOptions,
        limits: Limits,
    ) -> Result<RangeResult> {
        self.read_special(&range, limits).await
    }

    /// The value of a system key, of which the commit conflicts if it changes.
    async fn get_seriously(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.host.get(key).await?;
        self.host.depend_on(key, &key_after(key));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_order_and_lie_in_modules() {
        for pair in PARTS.windows(2) {
            assert!(pair[0].end <= pair[1].begin, "{:?}", pair[1].begin);
        }
        for part in PARTS {
            assert!(MODULES.iter().any(|(begin, end)| *begin <= part.begin && part.end <= *end));
        }
        assert!(MODULES.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
}
