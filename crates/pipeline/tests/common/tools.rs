//! What FoundationDB's tools and exporters read in a status document, whoever gives it: a node, or
//! a server in front of one. And what its tools write to throttle a tag.
#![allow(dead_code, reason = "each test file uses a part")]

use plinth_client::{Database, Transaction, TransactionOption};
use plinth_env::block_on;
use plinth_types::Result;
use serde_json::Value;
use std::time::Duration;

/// What monitoring reads, beside `client`.
const READ_BY_TOOLS: &[&str] = &[
    "/client/cluster_file/path",
    "/client/coordinators/coordinators/0/address",
    "/client/coordinators/quorum_reachable",
    "/client/database_status/available",
    "/client/database_status/healthy",
    "/client/timestamp",
    "/cluster/clients/count",
    "/cluster/clients/supported_versions",
    "/cluster/cluster_controller_timestamp",
    "/cluster/configuration/redundancy_mode",
    "/cluster/configuration/storage_engine",
    "/cluster/configuration/usable_regions",
    "/cluster/connection_string",
    "/cluster/data/average_partition_size_bytes",
    "/cluster/data/moving_data/in_flight_bytes",
    "/cluster/data/moving_data/in_queue_bytes",
    "/cluster/data/moving_data/total_written_bytes",
    "/cluster/data/partitions_count",
    "/cluster/data/state/healthy",
    "/cluster/data/state/name",
    "/cluster/data/system_kv_size_bytes",
    "/cluster/data/total_disk_used_bytes",
    "/cluster/data/total_kv_size_bytes",
    "/cluster/database_available",
    "/cluster/database_lock_state/locked",
    "/cluster/datacenter_lag/seconds",
    "/cluster/degraded_processes",
    "/cluster/fault_tolerance/max_zone_failures_without_losing_data",
    "/cluster/full_replication",
    "/cluster/generation",
    "/cluster/latency_probe/batch_priority_transaction_start_seconds",
    "/cluster/latency_probe/commit_seconds",
    "/cluster/latency_probe/immediate_priority_transaction_start_seconds",
    "/cluster/latency_probe/read_seconds",
    "/cluster/latency_probe/transaction_start_seconds",
    "/cluster/layers/_valid",
    "/cluster/protocol_version",
    "/cluster/qos/batch_performance_limited_by/description",
    "/cluster/qos/batch_performance_limited_by/name",
    "/cluster/qos/batch_released_transactions_per_second",
    "/cluster/qos/batch_transactions_per_second_limit",
    "/cluster/qos/limiting_data_lag_storage_server/seconds",
    "/cluster/qos/limiting_durability_lag_storage_server/seconds",
    "/cluster/qos/limiting_queue_bytes_storage_server",
    "/cluster/qos/performance_limited_by/name",
    "/cluster/qos/released_transactions_per_second",
    "/cluster/qos/throttled_tags/manual/count",
    "/cluster/qos/transactions_per_second_limit",
    "/cluster/qos/worst_data_lag_storage_server/seconds",
    "/cluster/qos/worst_durability_lag_storage_server/seconds",
    "/cluster/qos/worst_queue_bytes_log_server",
    "/cluster/qos/worst_queue_bytes_storage_server",
    "/cluster/recovery_state/name",
    "/cluster/workload/bytes/read/counter",
    "/cluster/workload/bytes/written/hz",
    "/cluster/workload/keys/read/counter",
    "/cluster/workload/keys/read/hz",
    "/cluster/workload/operations/read_requests/counter",
    "/cluster/workload/operations/read_requests/hz",
    "/cluster/workload/operations/reads/counter",
    "/cluster/workload/operations/reads/hz",
    "/cluster/workload/operations/writes/counter",
    "/cluster/workload/transactions/committed/hz",
    "/cluster/workload/transactions/conflicted/counter",
    "/cluster/workload/transactions/started/counter",
    "/cluster/workload/transactions/started/hz",
    "/cluster/workload/transactions/started_batch_priority/counter",
];

/// Fails if anything is missing that tools read.
pub fn assert_complete(status: &Value) {
    for field in READ_BY_TOOLS {
        assert!(status.pointer(field).is_some(), "{field} is missing");
    }
    let processes = status["cluster"]["processes"].as_object().unwrap();
    let (_, process) = processes.iter().next().unwrap();
    for field in [
        "address",
        "class_type",
        "excluded",
        "machine_id",
        "memory",
        "roles",
        "uptime_seconds",
        "version",
    ] {
        assert!(process.get(field).is_some(), "{field} is missing");
    }
    let roles: Vec<_> =
        process["roles"].as_array().unwrap().iter().map(|role| role["role"].as_str()).collect();
    assert!(roles.contains(&Some("storage")) && roles.contains(&Some("log")), "{roles:?}");
}

/// A rule for a tag: so many transactions a second.
fn throttle(tr: &Transaction, tag: &str, rate: f64) -> Result<()> {
    tr.set_option(TransactionOption::AccessSystemKeys)?;
    let key =
        [b"\xff\x02/throttledTags/tag/\x00\x01", &[tag.len() as u8][..], tag.as_bytes()].concat();
    let until = tr.env().wall_clock().as_secs_f64() + 3600.0;
    let mut value = 0x0fdb_00b0_7300_0000_u64.to_le_bytes().to_vec();
    [rate, until, 3600.0].iter().for_each(|number| value.extend(number.to_le_bytes()));
    value.push(0);
    tr.set(key, value);
    Ok(())
}

/// The status document.
pub fn status(db: &Database) -> Value {
    serde_json::from_str(&db.status_json().wait().unwrap()).unwrap()
}

/// Lets no transaction begin any more that has this tag; returns once that holds.
pub fn stop_tag(db: &Database, tag: &str) {
    db.transact_blocking(|tr| throttle(tr, tag, 0.0)).unwrap();
    while status(db)["cluster"]["qos"]["throttled_tags"]["manual"]["count"] != 1 {
        block_on(db.endpoint().env().sleep(Duration::from_millis(20)));
    }
}

/// How many transactions wait to begin.
pub fn waiting_to_begin(db: &Database) -> u64 {
    status(db)["cluster"]["plinth"]["start_queue"]["transactions"].as_u64().unwrap()
}
