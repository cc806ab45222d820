//! The status document, in the form in which FoundationDB's tools read it.
//!
//! Only what is known is in it; what a process without a network has no word for stands with the
//! value that means "nothing wrong" (one coordinator that is reachable, full replication).

use crate::endpoint::LOCAL_ADDRESS;
use crate::node::Node;
use plinth_client::Description;
use plinth_storage::Storage;
use serde_json::{Value, json};

impl Node {
    /// What the database is called, and where it is.
    pub(crate) fn describe(&self) -> Description {
        let (path, id) = match &self.shared.directory {
            Some(directory) => (directory.path.display().to_string(), hex(&directory.ids.cluster_id)),
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
    let available = node.shared.health.failure().is_none();
    json!({
        "cluster_file": { "path": description.cluster_file_path, "up_to_date": true },
        "coordinators": {
            "coordinators": [{ "address": LOCAL_ADDRESS, "protocol": "0fdb00b073000000", "reachable": true }],
            "quorum_reachable": true,
        },
        "database_status": { "available": available, "healthy": available },
        "messages": [],
        "timestamp": node.shared.wall_clock_seconds(),
    })
}

fn cluster(node: &Node, description: &Description) -> Value {
    let shared = &node.shared;
    let memory = shared.storage.memory();
    let counters = &shared.counters;
    let (queued, queued_bytes) = shared.queue.depth();
    let failure = shared.health.failure();
    let locked = shared.visible.answer(|| 0).locked;
    let counter = |total: u64| json!({ "counter": total });
    let messages: Vec<_> = failure
        .iter()
        .map(|error| json!({ "name": "storage_failure", "description": error.to_string() }))
        .collect();
    json!({
        "database_available": failure.is_none(),
        "database_lock_state": { "locked": locked },
        "connection_string": description.connection_string,
        "protocol_version": "fdb00b073000000",
        "full_replication": true,
        "cluster_controller_timestamp": shared.wall_clock_seconds(),
        "recovery_state": { "name": "fully_recovered", "description": "Recovery complete." },
        "configuration": {
            "redundancy_mode": "single",
            "storage_engine": shared.config.engine.name(),
            "coordinators_count": 1,
            "tenant_mode": "optional_experimental",
        },
        "data": {
            "state": { "healthy": true, "name": "healthy", "min_replicas_remaining": 1 },
            "total_kv_size_bytes": memory.data,
            "partitions_count": 1,
        },
        "workload": {
            "operations": { "writes": counter(counters.mutations.get()) },
            "bytes": { "written": counter(counters.bytes_written.get()) },
            "transactions": {
                "committed": counter(counters.committed.get()),
                "conflicted": counter(counters.conflicted.get()),
                "rejected_too_old": counter(counters.too_old.get()),
                "refused": counter(counters.refused.get()),
            },
        },
        "qos": { "performance_limited_by": { "name": "workload", "reason_id": 2 } },
        "plinth": {
            "commit_batches": counters.batches.get(),
            "commit_queue": { "transactions": queued, "bytes": queued_bytes },
            "checkpoints": counters.checkpoints.get(),
            "memory": {
                "data_bytes": memory.data,
                "index_bytes": memory.index,
                "window_bytes": memory.window,
            },
            "watches": shared.watches.len(),
            "newest_version": shared.versions.committed(),
        },
        "messages": messages,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
