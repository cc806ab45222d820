//! The status document, in the form in which FoundationDB's tools and exporters read it.
//!
//! Only what is known is in it, and it is true of this node: one process that has every role. What
//! a process without a network has no word for stands with the value that means "nothing wrong"
//! (one coordinator that is reachable, full replication), or is left out (machines, roughness).
//! What FoundationDB has no field for is under `cluster.plinth`.

mod messages;
mod roles;

use crate::backpressure;
use crate::changes::ShownStream;
use crate::cluster::{CatchingUp, MemberNode, RowsTaken};
use crate::failure::NodeError;
use crate::gate::{Limits, Reason};
use crate::identity::EngineKind;
use crate::metrics::{Count, Heat, HotRange, Rated, SlowTransaction, Snapshot};
use crate::node::Node;
use crate::refusals::Cause;
use crate::renewal;
use crate::replica::Replica;
use crate::shown::{Shown, ShownMember};
use plinth_client::Description;
use plinth_storage::SsdFigures;
use plinth_types::version::VERSIONS_PER_SECOND;
use plinth_types::{RangeLock, RangeLocks, Version, printable};
use serde_json::{Value, json};

/// What stands for an address where the database is in the process.
pub(crate) const LOCAL_ADDRESS: &str = "127.0.0.1:4500";

/// The protocol version of FoundationDB 7.3, whose behaviour the node has.
const PROTOCOL: &str = "fdb00b073000000";

impl Node {
    /// What the database is called, and where it is.
    pub(crate) fn describe(&self) -> Description {
        let (path, id) = match &self.replica.directory {
            Some(directory) => {
                (directory.root.display().to_string(), hex(&directory.ids.cluster_id))
            }
            None => (":memory:".to_string(), "memory".to_string()),
        };
        let connection_string = format!("plinth:{id}@{LOCAL_ADDRESS}");
        Description { cluster_file_path: path, connection_string, cluster_id: id }
    }
}

/// The document as text.
pub(crate) fn document(node: &Node) -> String {
    let (description, shown) = (node.describe(), node.shown());
    let document = json!({
        "client": client(&shown, &description),
        "cluster": cluster(&shown, &description),
    });
    document.to_string()
}

fn client(shown: &Shown, description: &Description) -> Value {
    let available = shown.replica.health.failure().is_none();
    json!({
        "cluster_file": { "path": description.cluster_file_path, "up_to_date": true },
        "coordinators": {
            "coordinators": [
                { "address": LOCAL_ADDRESS, "protocol": format!("0{PROTOCOL}"), "reachable": true },
            ],
            "quorum_reachable": true,
        },
        "database_status": { "available": available, "healthy": messages::all(shown).is_empty() },
        "messages": [],
        "timestamp": shown.replica.wall_clock_seconds(),
    })
}

fn cluster(shown: &Shown, description: &Description) -> Value {
    let failure = shown.replica.health.failure();
    let locked = shown.replica.visible.answer(|| 0).locked;
    let mut messages = messages::all(shown);
    messages.extend(messages::noted(shown));
    let uptime =
        shown.replica.env.now().saturating_sub(shown.replica.counters.opened).as_secs_f64();
    json!({
        "active_primary_dc": "",
        "bounce_impact": { "can_clean_bounce": true },
        "clients": { "count": 0, "supported_versions": [] },
        "cluster_controller_timestamp": shown.replica.wall_clock_seconds(),
        "configuration": configuration(shown),
        "connection_string": description.connection_string,
        "data": data(shown),
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
        "latency_probe": latency_probe(shown),
        "layers": { "_valid": true },
        "messages": messages,
        "newest_protocol_version": PROTOCOL,
        "plinth": plinth(shown),
        "processes": roles::processes(shown, uptime),
        "protocol_version": PROTOCOL,
        "qos": qos(shown),
        "recovery_state": recovery(failure.as_ref(), uptime),
        "version_epoch": { "enabled": false },
        "workload": workload(shown),
    })
}

/// A node whose log or storage has failed is where FoundationDB is without its logs: it gets no
/// further until it is started anew.
fn recovery(failure: Option<&NodeError>, uptime: f64) -> Value {
    let (name, description, recovered) = match failure {
        None => ("fully_recovered", "Recovery complete.".to_owned(), uptime),
        Some(why) => {
            let why = format!("No commit is taken until this server is started anew: {why}.");
            ("locking_old_transaction_servers", why, -1.0)
        }
    };
    json!({
        "active_generations": 1,
        "description": description,
        "name": name,
        "seconds_since_last_recovered": recovered,
    })
}

fn configuration(shown: &Shown) -> Value {
    json!({
        "commit_proxies": 1,
        "coordinators_count": 1,
        "excluded_servers": [],
        "grv_proxies": 1,
        "log_engine": shown.replica.config.engine.name(),
        "logs": 1,
        "redundancy_mode": "single",
        "resolvers": 1,
        "storage_engine": shown.replica.config.engine.name(),
        "tenant_mode": "optional_experimental",
        "usable_regions": 1,
    })
}

fn data(shown: &Shown) -> Value {
    let stored = shown.replica.storage.data_bytes();
    let free = shown.replica.space.free_and_kept().map(|(free, _)| free);
    let mut data = json!({
        "average_partition_size_bytes": stored,
        "moving_data": { "in_flight_bytes": 0, "in_queue_bytes": 0, "total_written_bytes": 0 },
        "partitions_count": 1,
        "state": { "healthy": true, "min_replicas_remaining": 1, "name": "healthy" },
        "system_kv_size_bytes": 0,
        "total_disk_used_bytes": shown.disk_used(),
        "total_kv_size_bytes": stored,
    });
    if let Some(free) = free {
        data["least_operating_space_bytes_log_server"] = json!(free);
        data["least_operating_space_bytes_storage_server"] = json!(free);
    }
    data
}

/// A count, and how much of it happens in a second.
fn counted(shown: &Shown, total: u64, rated: Rated) -> Value {
    json!({ "counter": total, "hz": shown.replica.counters.metrics.rates.hz(rated) })
}

fn never() -> Value {
    json!({ "counter": 0, "hz": 0 })
}

fn workload(shown: &Shown) -> Value {
    let (counters, metrics) = (&shown.replica.counters, &shown.replica.counters.metrics);
    let read = |count, rated| counted(shown, metrics.get(count), rated);
    let rates = [Rated::StartedBatch, Rated::StartedDefault, Rated::StartedImmediate];
    let started: f64 = rates.iter().map(|rated| metrics.rates.hz(*rated)).sum();
    json!({
        "bytes": {
            "read": read(Count::Bytes, Rated::BytesRead),
            "written": counted(shown, counters.bytes_written.get(), Rated::BytesWritten),
        },
        "keys": { "read": read(Count::Keys, Rated::Keys) },
        "operations": {
            "location_requests": never(),
            "low_priority_reads": never(),
            "memory_errors": never(),
            "read_requests": read(Count::Reads, Rated::Reads),
            "reads": read(Count::Reads, Rated::Reads),
            "writes": counted(shown, counters.mutations.get(), Rated::Mutations),
        },
        "transactions": {
            "committed": counted(shown, counters.committed.get(), Rated::Committed),
            "conflicted": counted(shown, counters.conflicted.get(), Rated::Conflicted),
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

/// Medians of what transactions really met with, since the node was opened. FoundationDB has one
/// transaction of its own measured now and then; a read version costs no time here unless it has to
/// wait.
fn latency_probe(shown: &Shown) -> Value {
    let metrics = &shown.replica.counters.metrics;
    let start = metrics.start_wait.snapshot();
    let waited = if shown.is_open() { 0.0 } else { start.percentile(0.5) };
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

/// How far what is in tables lies behind what can be read. With `memory` the log alone is the
/// durable place.
fn durability_lag(shown: &Shown) -> Version {
    let Replica { storage, config, .. } = &*shown.replica;
    if config.engine == EngineKind::Memory {
        return 0;
    }
    storage.newest().saturating_sub(storage.durable().version).max(0)
}

fn qos(shown: &Shown) -> Value {
    let Limits { default, batch, reason, batch_reason, released } = shown.limits();
    let (_, queue_bytes) = shown.queued();
    let window = shown.replica.storage.memory().window;
    let (manual, auto) = shown.throttled_tags();
    let in_step = json!({ "seconds": 0, "versions": 0 });
    let behind = durability_lag(shown);
    let behind =
        json!({ "seconds": behind as f64 / VERSIONS_PER_SECOND as f64, "versions": behind });
    json!({
        "batch_performance_limited_by": limited_by(batch_reason),
        "batch_released_transactions_per_second": shown.replica.counters.metrics.rates.hz(Rated::StartedBatch),
        "batch_transactions_per_second_limit": limit(batch),
        // Storage has what is committed, always, and the log what is acknowledged. Tables have it
        // later.
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

fn plinth(shown: &Shown) -> Value {
    let memory = shown.replica.storage.memory();
    let counters = &shown.replica.counters;
    let (queued, queued_bytes) = shown.queued();
    let refusal = backpressure::refusal(&shown.replica);
    let locks = shown.replica.visible.answer(|| 0).range_locks;
    let locked = locks.iter().flat_map(RangeLocks::locks).map(
        |RangeLock { range, .. }| json!({ "begin": printable(&range.begin), "end": printable(&range.end) }),
    );
    let refused = |cause: &Cause| {
        (cause.name().to_owned(), json!(shown.replica.health.refusals.refused(*cause)))
    };
    json!({
        "changes": changes(shown),
        "checkpoints": counters.checkpoints.get(),
        "checkpoints_failed": counters.checkpoints_failed.get(),
        "commits_refused": {
            "by_cause": Cause::ALL.iter().map(refused).collect::<serde_json::Map<_, _>>(),
            "now": refusal.map(|(cause, _)| cause.name()),
        },
        "disk": shown.replica.space.free_and_kept().map(|(free, kept)| {
            json!({ "free_bytes": free, "kept_bytes": kept })
        }),
        "commit_batches": counters.batches.get(),
        "commit_batches_in_flight": shown.in_flight(),
        "commit_queue": { "bytes": queued_bytes, "transactions": queued },
        "encryption": renewal::shown(&shown.replica),
        "locked_ranges": locked.collect::<Vec<_>>(),
        "log": {
            "disk_bytes": shown.replica.log.as_ref().map_or(0, |log| log.disk_bytes()),
            "sync_seconds": statistics(&counters.metrics.sync.snapshot()),
        },
        "hot": {
            "conflicts": hot(shown, Heat::Conflicts),
            "reads": hot(shown, Heat::Reads),
            "writes": hot(shown, Heat::Writes),
        },
        "member": shown.member.as_ref().map(member),
        "memory": {
            "bound_bytes": shown.replica.config.rows_bound(),
            "data_bytes": memory.data,
            "index_bytes": memory.index,
            "pinned_bytes": memory.pinned,
            "window_bytes": memory.window,
        },
        "slow_transactions": slow(shown),
        "newest_version": shown.replica.newest(),
        "ssd": shown.replica.storage.tables().map(|figures| ssd(shown, &figures)),
        "start_queue": { "transactions": shown.waiting() },
        "watches": shown.replica.watches.len(),
        "window_seconds": shown.replica.config.window as f64 / VERSIONS_PER_SECOND as f64,
    })
}

/// Streams of changes, and how far their consumers are.
fn changes(shown: &Shown) -> Value {
    let newest = shown.replica.newest();
    let stream = |stream: ShownStream| {
        let lag = stream.lag(newest);
        json!({
            "acknowledged_version": stream.acknowledged,
            "bound_bytes": stream.bound,
            "held_bytes": stream.held,
            "id": stream.id,
            "lag": { "seconds": lag as f64 / VERSIONS_PER_SECOND as f64, "versions": lag },
            "lost": stream.lost.map(|error| error.summary()),
            "name": printable(&stream.name).to_string(),
            "registered_version": stream.registered,
        })
    };
    shown.replica.streams.shown().into_iter().map(stream).collect()
}

/// How far a member is that takes in what it lacks.
fn catching_up(now: &CatchingUp) -> Value {
    json!({
        "about_bytes": now.about_bytes,
        "entries_behind": now.entries_behind,
        "source": now.source,
        "stage": now.stage(),
        "taken_bytes": now.taken_bytes,
        "trouble": now.trouble.as_ref().map(ToString::to_string),
        "version": now.version,
    })
}

/// How a member took all rows.
fn rows_taken(taken: &RowsTaken) -> Value {
    json!({
        "began": taken.began.as_secs_f64(),
        "bytes": taken.bytes,
        "seconds": taken.took.as_secs_f64(),
        "source": taken.source,
    })
}

/// How a node stands in its cluster.
fn member(member: &ShownMember) -> Value {
    let ShownMember { standing, membership, .. } = member;
    let shown = |node: &MemberNode| {
        let lag = standing.lags.iter().find(|(id, _)| *id == node.id).map(|(_, lag)| *lag);
        let stalled = member.stalled.contains(&node.id);
        json!({
            "address": node.address,
            "lag_entries": lag,
            "node": node.id,
            "stalled": stalled,
        })
    };
    let those = |votes: bool| {
        let nodes = membership.members.nodes.iter().filter(|node| node.part.votes() == votes);
        nodes.map(shown).collect::<Value>()
    };
    json!({
        "catching_up": member.catching_up.as_ref().map(catching_up),
        "committed_index": standing.committed_index,
        "disk_full": standing.full.is_some(),
        "elections": standing.elections,
        "last_index": standing.last_index,
        "leader": standing.leader,
        "learners": those(false),
        "node": membership.node,
        "protocol": membership.members.protocol,
        "role": member.role(),
        "rows_taken": member.rows_taken.as_ref().map(rows_taken),
        "term": standing.term,
        "voters": those(true),
    })
}

/// The ranges under which many samples lie.
fn hot(shown: &Shown, heat: Heat) -> Value {
    let ranges = shown.replica.counters.metrics.hot.ranges(heat);
    let range = |range: HotRange| json!({ "prefix": printable(&range.prefix).to_string(), "share": range.share });
    ranges.into_iter().map(range).collect()
}

fn slow(shown: &Shown) -> Value {
    let slow = |slow: SlowTransaction| {
        json!({
            "age_seconds": slow.age as f64 / VERSIONS_PER_SECOND as f64,
            "bytes": slow.bytes,
            "first_key": printable(&slow.first_key).to_string(),
            "mutations": slow.mutations,
            "version": slow.version,
        })
    };
    shown.replica.counters.metrics.hot.slow().into_iter().map(slow).collect()
}

fn ssd(shown: &Shown, figures: &SsdFigures) -> Value {
    json!({
        "device_reads": figures.device_reads,
        "disk_bytes": figures.disk_bytes,
        "flushed_bytes": figures.flushed_bytes,
        "flushed_runs": figures.flushed_runs,
        "pinned_snapshots": { "bytes": figures.pinned_bytes, "count": figures.pinned },
        "tables": figures.tables,
        "trouble": shown.replica.tables_trouble().map(|error| error.to_string()),
        "uncached_reads": figures.uncached_reads,
        "version": figures.version,
        "written_bytes": figures.written_bytes,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
