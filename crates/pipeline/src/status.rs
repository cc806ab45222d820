//! The status document, in the form in which FoundationDB's tools and exporters read it.
//!
//! Only what is known is in it, and it is true of this node: one process that has every role. What a process without a
//! network has no word for stands with the value that means "nothing wrong" (one coordinator that is reachable, full
//! replication), or is left out (machines, roughness). What FoundationDB has no field for is under `cluster.plinth`.

mod messages;
mod roles;

use crate::backpressure::{self, Cause};
use crate::gate::{Limits, Reason};
use crate::identity::EngineKind;
use crate::leader::Leader;
use crate::metrics::{Count, Heat, HotRange, Rated, SlowTransaction, Snapshot};
use crate::node::Node;
use crate::replica::Replica;
use plinth_client::Description;
use plinth_storage::SsdFigures;
use plinth_types::version::VERSIONS_PER_SECOND;
use plinth_types::{Version, printable};
use serde_json::{Value, json};

/// What stands for an address where the database is in the process.
pub(crate) const LOCAL_ADDRESS: &str = "127.0.0.1:4500";

/// The protocol version of FoundationDB 7.3, whose behaviour the node has.
const PROTOCOL: &str = "fdb00b073000000";

impl Node {
    /// What the database is called, and where it is.
    pub(crate) fn describe(&self) -> Description {
        let (path, id) = match &self.leader.replica.directory {
            Some(directory) => (directory.root.display().to_string(), hex(&directory.ids.cluster_id)),
            None => (":memory:".to_string(), "memory".to_string()),
        };
        let connection_string = format!("plinth:{id}@{LOCAL_ADDRESS}");
        Description { cluster_file_path: path, connection_string, cluster_id: id }
    }
}

/// The document as text.
pub(crate) fn document(node: &Node) -> String {
    let description = node.describe();
    let document = json!({
        "client": client(node, &description),
        "cluster": cluster(node, &description),
    });
    document.to_string()
}

fn client(node: &Node, description: &Description) -> Value {
    let available = node.leader.replica.health.failure().is_none();
    json!({
        "cluster_file": { "path": description.cluster_file_path, "up_to_date": true },
        "coordinators": {
            "coordinators": [
                { "address": LOCAL_ADDRESS, "protocol": format!("0{PROTOCOL}"), "reachable": true },
            ],
            "quorum_reachable": true,
        },
        "database_status": { "available": available, "healthy": messages::all(&node.leader).is_empty() },
        "messages": [],
        "timestamp": node.leader.replica.wall_clock_seconds(),
    })
}

fn cluster(node: &Node, description: &Description) -> Value {
    let leader = &*node.leader;
    let failure = leader.replica.health.failure();
    let locked = leader.replica.visible.answer(|| 0).locked;
    let messages = messages::all(leader);
    let uptime = leader.replica.env.now().saturating_sub(leader.replica.counters.opened).as_secs_f64();
    json!({
        "active_primary_dc": "",
        "bounce_impact": { "can_clean_bounce": true },
        "clients": { "count": 0, "supported_versions": [] },
        "cluster_controller_timestamp": leader.replica.wall_clock_seconds(),
        "configuration": configuration(leader),
        "connection_string": description.connection_string,
        "data": data(leader),
        "database_available": failure.is_none(),
        "database_lock_state": { "locked": locked },
        "database_locked": locked,
        "datacenter_lag": { "seconds": 0, "versions": 0 },
        "degraded_processes": 0,
        "fault_tolerance": {
            "max_zone_failures_without_losing_availability": 0,
            "max_zone_failures_without_losing_data": 0,
        },
        "full_replication": true,
        "generation": 1,
        "incompatible_connections": [],
        "latency_probe": latency_probe(leader),
        "layers": { "_valid": true },
        "messages": messages,
        "newest_protocol_version": PROTOCOL,
        "plinth": plinth(leader),
        "processes": roles::processes(leader, uptime),
        "protocol_version": PROTOCOL,
        "qos": qos(leader),
        "recovery_state": {
            "active_generations": 1,
            "description": "Recovery complete.",
            "name": "fully_recovered",
            "seconds_since_last_recovered": uptime,
        },
        "version_epoch": { "enabled": false },
        "workload": workload(leader),
    })
}

fn configuration(leader: &Leader) -> Value {
    json!({
        "commit_proxies": 1,
        "coordinators_count": 1,
        "excluded_servers": [],
        "grv_proxies": 1,
        "log_engine": leader.replica.config.engine.name(),
        "logs": 1,
        "redundancy_mode": "single",
        "resolvers": 1,
        "storage_engine": leader.replica.config.engine.name(),
        "tenant_mode": "optional_experimental",
        "usable_regions": 1,
    })
}

fn data(leader: &Leader) -> Value {
    let stored = leader.replica.storage.data_bytes();
    let free = leader.replica.space.free_and_kept().map(|(free, _)| free);
    let mut data = json!({
        "average_partition_size_bytes": stored,
        "moving_data": { "in_flight_bytes": 0, "in_queue_bytes": 0, "total_written_bytes": 0 },
        "partitions_count": 1,
        "state": { "healthy": true, "min_replicas_remaining": 1, "name": "healthy" },
        "system_kv_size_bytes": 0,
        "total_disk_used_bytes": disk_used(leader),
        "total_kv_size_bytes": stored,
    });
    if let Some(free) = free {
        data["least_operating_space_bytes_log_server"] = json!(free);
        data["least_operating_space_bytes_storage_server"] = json!(free);
    }
    data
}

/// The log, and what the newest checkpoint takes, which is about what it holds.
pub(crate) fn disk_used(leader: &Leader) -> u64 {
    let log = leader.replica.log.as_ref().map_or(0, |log| log.disk_bytes());
    if let Some(tables) = leader.replica.storage.tables() {
        return log + tables.disk_bytes;
    }
    let has_checkpoint = leader.replica.counters.checkpoints.get() > 0;
    log + if has_checkpoint { leader.replica.storage.memory().data } else { 0 }
}

/// A count, and how much of it happens in a second.
fn counted(leader: &Leader, total: u64, rated: Rated) -> Value {
    json!({ "counter": total, "hz": leader.replica.counters.metrics.rates.hz(rated) })
}

fn never() -> Value {
    json!({ "counter": 0, "hz": 0 })
}

fn workload(leader: &Leader) -> Value {
    let (counters, metrics) = (&leader.replica.counters, &leader.replica.counters.metrics);
    let read = |count, rated| counted(leader, metrics.get(count), rated);
    let rates = [Rated::StartedBatch, Rated::StartedDefault, Rated::StartedImmediate];
    let started: f64 = rates.iter().map(|rated| metrics.rates.hz(*rated)).sum();
    json!({
        "bytes": {
            "read": read(Count::Bytes, Rated::BytesRead),
            "written": counted(leader, counters.bytes_written.get(), Rated::BytesWritten),
        },
        "keys": { "read": read(Count::Keys, Rated::Keys) },
        "operations": {
            "location_requests": never(),
            "low_priority_reads": never(),
            "memory_errors": never(),
            "read_requests": read(Count::Reads, Rated::Reads),
            "reads": read(Count::Reads, Rated::Reads),
            "writes": counted(leader, counters.mutations.get(), Rated::Mutations),
        },
        "transactions": {
            "committed": counted(leader, counters.committed.get(), Rated::Committed),
            "conflicted": counted(leader, counters.conflicted.get(), Rated::Conflicted),
            "refused": { "counter": counters.refused.get() },
            "rejected_for_queued_too_long": never(),
            "rejected_too_old": { "counter": counters.too_old.get() },
            "started": { "counter": metrics.started_all(), "hz": started },
            "started_batch_priority": read(Count::StartedBatch, Rated::StartedBatch),
            "started_default_priority": read(Count::StartedDefault, Rated::StartedDefault),
            "started_immediate_priority": read(Count::StartedImmediate, Rated::StartedImmediate),
        },
    })
}

/// Medians of what transactions really met with, since the node was opened. FoundationDB has one transaction of its own
/// measured now and then; a read version costs no time here unless it has to wait.
fn latency_probe(leader: &Leader) -> Value {
    let metrics = &leader.replica.counters.metrics;
    let start = metrics.start_wait.snapshot();
    let waited = if leader.gate.is_open() { 0.0 } else { start.percentile(0.5) };
    json!({
        "batch_priority_transaction_start_seconds": waited,
        "commit_seconds": metrics.commit.snapshot().percentile(0.5),
        "immediate_priority_transaction_start_seconds": 0.0,
        "read_seconds": metrics.read.snapshot().percentile(0.5),
        "transaction_start_seconds": waited,
    })
}

/// A rate as JSON can have it: no number stands for none.
fn limit(rate: f64) -> Value {
    if rate.is_finite() { json!(rate) } else { json!(UNLIMITED) }
}

/// More than any node begins.
const UNLIMITED: u64 = 1_000_000_000;

fn limited_by(reason: Reason) -> Value {
    json!({ "description": reason.description(), "name": reason.name(), "reason_id": reason.id() })
}

/// How far what is in tables lies behind what can be read. With `memory` the log alone is the durable place.
fn durability_lag(leader: &Leader) -> Version {
    let Replica { storage, config, .. } = &*leader.replica;
    if config.engine == EngineKind::Memory {
        return 0;
    }
    storage.newest().saturating_sub(storage.durable().version).max(0)
}

fn qos(leader: &Leader) -> Value {
    let Limits { default, batch, reason, batch_reason, released } = leader.gate.limits();
    let (_, queue_bytes) = leader.queue.depth();
    let window = leader.replica.storage.memory().window;
    let (manual, auto) = leader.gate.throttled_tags();
    let in_step = json!({ "seconds": 0, "versions": 0 });
    let behind = durability_lag(leader);
    let behind = json!({ "seconds": behind as f64 / VERSIONS_PER_SECOND as f64, "versions": behind });
    json!({
        "batch_performance_limited_by": limited_by(batch_reason),
        "batch_released_transactions_per_second": leader.replica.counters.metrics.rates.hz(Rated::StartedBatch),
        "batch_transactions_per_second_limit": limit(batch),
        // Storage has what is committed, always, and the log what is acknowledged. Tables have it later.
        "limiting_data_lag_storage_server": in_step,
        "limiting_durability_lag_storage_server": behind,
        "limiting_queue_bytes_storage_server": window,
        "performance_limited_by": limited_by(reason),
        "released_transactions_per_second": released,
        "throttled_tags": {
            "auto": { "busy_read": 0, "busy_write": auto, "count": auto, "recommended_only": 0 },
            "manual": { "count": manual },
        },
        "transactions_per_second_limit": limit(default),
        "worst_data_lag_storage_server": in_step,
        "worst_durability_lag_storage_server": behind,
        "worst_queue_bytes_log_server": queue_bytes,
        "worst_queue_bytes_storage_server": window,
    })
}

/// A histogram as FoundationDB shows latencies.
fn statistics(snapshot: &Snapshot) -> Value {
    let at = |share| snapshot.percentile(share);
    json!({
        "count": snapshot.count,
        "max": at(1.0),
        "mean": snapshot.mean(),
        "median": at(0.5),
        "p25": at(0.25),
        "p90": at(0.9),
        "p95": at(0.95),
        "p99": at(0.99),
        "p99.9": at(0.999),
    })
}

fn plinth(leader: &Leader) -> Value {
    let memory = leader.replica.storage.memory();
    let counters = &leader.replica.counters;
    let (queued, queued_bytes) = leader.queue.depth();
    let refusal = backpressure::refusal(&leader.replica);
    let refused =
        |cause: &Cause| (cause.name().to_owned(), json!(leader.replica.backpressure.refused(*cause)));
    json!({
        "checkpoints": counters.checkpoints.get(),
        "checkpoints_failed": counters.checkpoints_failed.get(),
        "commits_refused": {
            "by_cause": Cause::ALL.iter().map(refused).collect::<serde_json::Map<_, _>>(),
            "now": refusal.map(|(cause, _)| cause.name()),
        },
        "disk": leader.replica.space.free_and_kept().map(|(free, kept)| {
            json!({ "free_bytes": free, "kept_bytes": kept })
        }),
        "commit_batches": counters.batches.get(),
        "commit_batches_in_flight": leader.in_flight.len(),
        "commit_queue": { "bytes": queued_bytes, "transactions": queued },
        "log": {
            "disk_bytes": leader.replica.log.as_ref().map_or(0, |log| log.disk_bytes()),
            "sync_seconds": statistics(&counters.metrics.sync.snapshot()),
        },
        "hot": {
            "conflicts": hot(leader, Heat::Conflicts),
            "reads": hot(leader, Heat::Reads),
            "writes": hot(leader, Heat::Writes),
        },
        "memory": {
            "bound_bytes": leader.replica.config.rows_bound(),
            "data_bytes": memory.data,
            "index_bytes": memory.index,
            "pinned_bytes": memory.pinned,
            "window_bytes": memory.window,
        },
        "slow_transactions": slow(leader),
        "newest_version": leader.replica.newest(),
        "ssd": leader.replica.storage.tables().map(|figures| ssd(leader, &figures)),
        "start_queue": { "transactions": leader.gate.waiting() },
        "watches": leader.replica.watches.len(),
        "window_seconds": leader.replica.config.window as f64 / VERSIONS_PER_SECOND as f64,
    })
}

/// The ranges under which many samples lie.
fn hot(leader: &Leader, heat: Heat) -> Value {
    let ranges = leader.replica.counters.metrics.hot.ranges(heat);
    let range =
        |range: HotRange| json!({ "prefix": printable(&range.prefix).to_string(), "share": range.share });
    ranges.into_iter().map(range).collect()
}

fn slow(leader: &Leader) -> Value {
    let slow = |slow: SlowTransaction| {
        json!({
            "age_seconds": slow.age as f64 / VERSIONS_PER_SECOND as f64,
            "bytes": slow.bytes,
            "first_key": printable(&slow.first_key).to_string(),
            "mutations": slow.mutations,
            "version": slow.version,
        })
    };
    leader.replica.counters.metrics.hot.slow().into_iter().map(slow).collect()
}

fn ssd(leader: &Leader, figures: &SsdFigures) -> Value {
    json!({
        "device_reads": figures.device_reads,
        "disk_bytes": figures.disk_bytes,
        "flushed_bytes": figures.flushed_bytes,
        "flushed_runs": figures.flushed_runs,
        "pinned_snapshots": { "bytes": figures.pinned_bytes, "count": figures.pinned },
        "tables": figures.tables,
        "trouble": leader.replica.storage.trouble().map(|error| error.to_string()),
        "uncached_reads": figures.uncached_reads,
        "version": figures.version,
        "written_bytes": figures.written_bytes,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
