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

mod commit;
mod content;
mod members;
mod ranges;
mod read;
mod settings;
pub(crate) mod tenants;

use crate::json::quoted;
use crate::range::{Limits, RangeOptions};
use crate::transaction::{Inner, State};
use bytes::Bytes;
use plinth_env::reply::Reply;
use plinth_types::{Error, KeyRange, RangeResult, Result, system};
use ranges::RangeMap;
use std::sync::Arc;

/// What a transaction did to special keys.
pub(crate) struct SpecialState {
    /// Written ranges: a value, or none for what was cleared.
    pub(crate) writes: RangeMap<Option<Bytes>>,
    pub(crate) error_message: Option<String>,
    trace: Trace,
}

/// The span that the transaction is part of, as the tracing module shows it.
#[derive(Clone, Copy)]
struct Trace {
    id: u128,
    token: u64,
    /// Whether a tracing option came too late, so that commit must fail.
    is_late: bool,
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

impl SpecialState {
    fn new(inner: &Inner) -> Self {
        let mut id = [0; 16];
        inner.env().fill_random(&mut id);
        let trace = Trace { id: u128::from_be_bytes(id), token: 0, is_late: false };
        Self { writes: RangeMap::new(), error_message: None, trace }
    }

    /// Whether commit has something to do.
    pub(crate) fn needs_commit(&self) -> bool {
        !self.writes.is_empty() || self.trace.is_late
    }
}

impl State {
    fn special(&mut self, inner: &Inner) -> &mut SpecialState {
        self.special.get_or_insert_with(|| Box::new(SpecialState::new(inner)))
    }
}

/// What `\xff\xff/error_message` says.
fn error_message(command: &str, message: &str) -> String {
    format!(r#"{{"command":{},"message":{},"retriable":false}}"#, quoted(command), quoted(message))
}

impl Inner {
    /// A read of one special key; `None` if the key is none in this API version.
    pub(crate) fn special_get(self: &Arc<Self>, key: &[u8]) -> Option<Reply<Option<Bytes>>> {
        let epoch = {
            let state = self.lock();
            if let Err(error) = state.check_deferred() {
                return Some(Reply::ready(Err(error)));
            }
            state.life.epoch
        };
        if !self.api(630) {
            return self.old_special_get(key, epoch);
        }
        if key >= system::SPECIAL_END {
            return None;
        }
        let (inner, key) = (self.clone(), Bytes::copy_from_slice(key));
        Some(self.launch(epoch, false, async move {
            let end = plinth_types::key_after(&key);
            let range = RangeOptions::from(KeyRange::new(key, end));
            let limits = Limits { rows: None, bytes: None };
            let result = inner.read_special(epoch, &range, limits).await?;
            Ok(result.rows.get(0).map(|row| row.value))
        }))
    }

    /// The three keys that there were before the modules.
    fn old_special_get(self: &Arc<Self>, key: &[u8], epoch: u64) -> Option<Reply<Option<Bytes>>> {
        let source = match bare(key) {
            b"/status/json" => Source::StatusJson,
            b"/cluster_file_path" => Source::ClusterFilePath,
            b"/connection_string" => Source::ConnectionString,
            _ => return None,
        };
        let part = PARTS.iter().find(|part| part.source == source)?;
        let inner = self.clone();
        Some(self.launch(epoch, false, async move {
            let range = part.range();
            let rows = inner.special_rows(epoch, part, &range.begin, &range.end).await?;
            Ok(rows.into_iter().next().map(|row| row.value))
        }))
    }

    /// A read of a range of special keys; `None` if the range is none in this API version.
    pub(crate) fn special_range(
        self: &Arc<Self>,
        range: &RangeOptions,
        limits: Option<Limits>,
    ) -> Option<Reply<RangeResult>> {
        let space = system::SYSTEM_END..=system::SPECIAL_END;
        let is_special = if self.api(630) {
            range.begin.key[..] < *system::SPECIAL_END && space.contains(&&range.end.key[..])
        } else {
            bare(&range.begin.key) == b"/worker_interfaces"
        };
        if !is_special {
            return None;
        }
        let epoch = {
            let state = self.lock();
            if let Err(error) = state.check_deferred() {
                return Some(Reply::ready(Err(error)));
            }
            state.life.epoch
        };
        if !self.api(630) {
            return Some(Reply::ready(Ok(RangeResult::default())));
        }
        let Some(limits) = limits else {
            return Some(Reply::ready(Err(Error::range_limits_invalid())));
        };
        let (inner, range) = (self.clone(), range.clone());
        Some(self.launch(
            epoch,
            false,
            async move { inner.read_special(epoch, &range, limits).await },
        ))
    }

    pub(crate) fn special_set(&self, state: &mut State, key: &[u8], value: &[u8]) -> Result<()> {
        let part = self.writable_part(state, key)?;
        match part.source {
            Source::Tracing => return self.set_trace(state, key, value),
            Source::CommandOptions if !settings::is_command_option(part, key) => return Ok(()),
            _ => {}
        }
        let value = match part.source {
            Source::Nothing("exclude" | "exclude failed") | Source::Places(..) => Bytes::new(),
            _ => Bytes::copy_from_slice(value),
        };
        state.special(self).writes.insert(KeyRange::single(key), Some(value));
        Ok(())
    }

    pub(crate) fn special_clear(&self, state: &mut State, begin: &[u8], end: &[u8]) -> Result<()> {
        if !state.options.special.writes {
            return Err(Error::special_keys_write_disabled());
        }
        if begin >= end {
            return Ok(());
        }
        let part_of = |key: &[u8], is_end: bool| {
            let key = bare(key);
            parts(self.database().api_version()).find(|part| {
                let before_end = if is_end { key <= part.end } else { key < part.end };
                part.writable
                    && (if is_end { key > part.begin } else { key >= part.begin })
                    && before_end
            })
        };
        let (first, last) = (part_of(begin, false), part_of(end, true));
        let part = match (first, last) {
            (None, None) => return Err(Error::special_keys_no_write_module_found()),
            (Some(first), Some(last)) if std::ptr::eq(first, last) => first,
            _ => return Err(Error::special_keys_cross_module_clear()),
        };
        match part.source {
            Source::Tracing => return self.refuse(state, "clear trace", "clear disabled"),
            Source::Profiling => {
                let message =
                    "Profiling is switched off by setting it to default, not by clearing it.";
                return self.refuse(state, "profile", message);
            }
            Source::CommandOptions => state.special(self).writes.forget(begin, end),
            _ => {
                let range =
                    KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
                state.special(self).writes.insert(range, None);
            }
        }
        Ok(())
    }

    fn writable_part(&self, state: &State, key: &[u8]) -> Result<&'static Part> {
        if !state.options.special.writes {
            return Err(Error::special_keys_write_disabled());
        }
        let key = bare(key);
        parts(self.database().api_version())
            .find(|part| part.writable && key >= part.begin && key < part.end)
            .ok_or_else(Error::special_keys_no_write_module_found)
    }

    /// Fails with a message that can be read afterwards.
    fn refuse(&self, state: &mut State, command: &str, message: &str) -> Result<()> {
        state.special(self).error_message = Some(error_message(command, message));
        Err(Error::special_keys_api_failure().with_detail(message))
    }

    fn set_trace(&self, state: &mut State, key: &[u8], value: &[u8]) -> Result<()> {
        if state.writes.size > 0 {
            let special = state.special(self);
            special.error_message =
                Some(error_message("configure trace", "tracing options must be set first"));
            special.trace.is_late = true;
            return Ok(());
        }
        let special = state.special(self);
        if key.ends_with(b"transaction_id") {
            let id =
                std::str::from_utf8(value).ok().and_then(|hex| u128::from_str_radix(hex, 16).ok());
            special.trace.id = id.unwrap_or(0);
        } else if key.ends_with(b"token") {
            special.trace.token = match value {
                b"true" => self.env().random_u64() | 1,
                b"false" => 0,
                _ => {
                    return self.refuse(
                        state,
                        "configure trace token",
                        "token must be set to true/false",
                    );
                }
            };
        }
        Ok(())
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
