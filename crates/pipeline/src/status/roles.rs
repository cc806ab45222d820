//! The one process in the status document, and its roles: all of them. A server of a cluster takes
//! those away that only whoever leads has.

use super::LOCAL_ADDRESS;
use super::{counted, hex, never, statistics};
use crate::metrics::{Count, Rated};
use crate::shown::Shown;
use plinth_types::version::VERSIONS_PER_SECOND;
use serde_json::{Value, json};

/// The processes by id.
pub(super) fn processes(shown: &Shown, uptime: f64) -> Value {
    let id = shown
        .replica
        .directory
        .as_ref()
        .map_or_else(|| "0".repeat(32), |directory| hex(&directory.ids.node_id));
    let memory = shown.replica.storage.memory();
    let mut disk = json!({ "busy": 0 });
    if let Some(free) = shown.replica.space.free_and_kept().map(|(free, _)| free) {
        disk["free_bytes"] = json!(free);
    }
    let role = |name: &str, more: Value| {
        let mut role = json!({ "id": id.get(..16).unwrap_or_default(), "role": name });
        if let (Some(role), Value::Object(more)) = (role.as_object_mut(), more) {
            role.extend(more);
        }
        role
    };
    let process = json!({
        "address": LOCAL_ADDRESS,
        "class_source": "command_line",
        "class_type": "unset",
        "disk": disk,
        "excluded": false,
        "fault_domain": id,
        "locality": { "machineid": id, "processid": id, "zoneid": id },
        "machine_id": id,
        "memory": { "used_bytes": memory.total() },
        "messages": [],
        "roles": [
            role("master", json!({})),
            role("cluster_controller", json!({})),
            role("grv_proxy", json!({
                "grv_latency_statistics": {
                    "default": statistics(&shown.replica.counters.metrics.start_wait.snapshot()),
                },
            })),
            role("commit_proxy", json!({
                "commit_latency_statistics": statistics(&shown.replica.counters.metrics.commit.snapshot()),
            })),
            role("resolver", json!({})),
            role("log", log(shown)),
            role("storage", storage(shown)),
        ],
        "uptime_seconds": uptime,
        "version": "7.3.0",
    });
    json!({ id: process })
}

fn log(shown: &Shown) -> Value {
    let written = counted(shown, shown.replica.counters.bytes_written.get(), Rated::BytesWritten);
    json!({
        "data_version": shown.replica.newest(),
        "durable_bytes": written,
        "input_bytes": written,
        "queue_disk_used_bytes": shown.replica.log.as_ref().map_or(0, |log| log.disk_bytes()),
    })
}

/// How old the rows can be. Whoever doesn't lead has what was committed up to the last entry that
/// it was told is committed: one comes each 0.6 s where nothing is written, and word of it with the
/// next message. Nobody knows it of one that takes what it lacks.
fn data_lag(shown: &Shown) -> Value {
    let behind = match &shown.member {
        Some(member) if member.catching_up.is_some() => return Value::Null,
        Some(member) if member.standing.leads.is_none() => {
            shown.replica.visible.applied_ago(shown.replica.env.now()).as_secs_f64()
        }
        _ => 0.0,
    };
    let versions = (behind * VERSIONS_PER_SECOND as f64) as u64;
    json!({ "seconds": behind, "versions": versions })
}

fn storage(shown: &Shown) -> Value {
    let (memory, counters) = (shown.replica.storage.memory(), &shown.replica.counters);
    let read = |count, rated| counted(shown, counters.metrics.get(count), rated);
    let none = json!({ "seconds": 0, "versions": 0 });
    let mut storage = json!({
        "bytes_queried": read(Count::Bytes, Rated::BytesRead),
        "data_lag": data_lag(shown),
        "data_version": shown.replica.newest(),
        "durability_lag": none,
        "finished_queries": read(Count::Reads, Rated::Reads),
        "keys_queried": read(Count::Keys, Rated::Keys),
        "kvstore_used_bytes": shown.disk_used(),
        "low_priority_queries": never(),
        "mutation_bytes": counted(shown, counters.bytes_written.get(), Rated::BytesWritten),
        "mutations": counted(shown, counters.mutations.get(), Rated::Mutations),
        "query_queue_max": 0,
        "read_latency_statistics": statistics(&counters.metrics.read.snapshot()),
        "stored_bytes": memory.data,
        "total_queries": read(Count::Reads, Rated::Reads),
    });
    if let Some(free) = shown.replica.space.free_and_kept().map(|(free, _)| free) {
        storage["kvstore_available_bytes"] = json!(free);
        storage["kvstore_free_bytes"] = json!(free);
    }
    storage
}
