//! What a status document tells besides counters, in words: latencies, hot ranges, clients, slow
//! transactions.
//!
//! `plinth top` and the shell's `status details` show them alike. What a document doesn't have
//! (FoundationDB's, an older server's) is left out, so every part is a list that may be empty.

use plinth_bench::Value;
use plinth_bench::words::{bytes, duration, grouped};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many ranges, addresses or transactions of a kind are named.
const NAMED: usize = 3;

/// How long something took.
pub struct Latency {
    /// What.
    pub what: &'static str,
    /// Of half of them, of all but a hundredth, and of the slowest.
    pub median: String,
    /// See `median`.
    pub p99: String,
    /// See `median`.
    pub worst: String,
}

/// Latencies of what was measured: starts, reads, commits, syncs of the log.
pub fn latencies(document: &Value) -> Vec<Latency> {
    let roles =
        document.pointer("/cluster/processes").and_then(Value::as_object).into_iter().flatten();
    let roles: Vec<&Value> =
        roles.filter_map(|(_, process)| process["roles"].as_array()).flatten().collect();
    // Of several processes the one that has most to tell.
    let of = |path: &str| {
        let told = roles.iter().filter_map(|role| role.pointer(path));
        told.max_by_key(|statistics| statistics["count"].as_u64())
    };
    let parts = [
        ("start", of("/grv_latency_statistics/default")),
        ("read", of("/read_latency_statistics")),
        ("commit", of("/commit_latency_statistics")),
        ("sync", document.pointer("/cluster/plinth/log/sync_seconds")),
    ];
    let parts = parts.into_iter().filter_map(|(what, statistics)| Some((what, statistics?)));
    parts
        .filter(|(_, statistics)| statistics["count"].as_u64() > Some(0))
        .map(|(what, statistics)| Latency {
            what,
            median: seconds(&statistics["median"]),
            p99: seconds(&statistics["p99"]),
            worst: seconds(&statistics["max"]),
        })
        .collect()
}

/// The ranges that are read, written and in conflict most, with their share: a line for each kind
/// that has some.
pub fn hot(document: &Value) -> Vec<(&'static str, String)> {
    let of = |kind: &str| {
        let ranges = document.pointer(&format!("/cluster/plinth/hot/{kind}"))?.as_array()?;
        let range = |range: &Value| {
            let share = range["share"].as_f64().unwrap_or_default() * 100.0;
            format!("{} {share:.0} %", range["prefix"].as_str().unwrap_or_default())
        };
        (!ranges.is_empty())
            .then(|| ranges.iter().take(NAMED).map(range).collect::<Vec<_>>().join(", "))
    };
    let kinds = [("reads", "reads"), ("writes", "writes"), ("conflicts", "conflicts")];
    kinds.into_iter().filter_map(|(name, kind)| Some((name, of(kind)?))).collect()
}

/// How many clients there are, and from where most of them come; `None` if that isn't told.
pub fn clients(document: &Value) -> Option<String> {
    let count = document.pointer("/cluster/clients/count")?.as_u64()?;
    let versions =
        document.pointer("/cluster/clients/supported_versions").and_then(Value::as_array);
    let connected =
        versions.into_iter().flatten().filter_map(|known| known["connected_clients"].as_array());
    let mut hosts = BTreeMap::<&str, u64>::new();
    for address in connected.flatten().filter_map(|client| client["address"].as_str()) {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        *hosts.entry(host).or_default() += 1;
    }
    let mut hosts: Vec<(&str, u64)> = hosts.into_iter().collect();
    hosts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = hosts.len().saturating_sub(NAMED);
    let mut named: Vec<String> =
        hosts.iter().take(NAMED).map(|(host, count)| format!("{host} ({count})")).collect();
    if more > 0 {
        named.push(format!("{more} more addresses"));
    }
    let from = if named.is_empty() { String::new() } else { format!(" from {}", named.join(", ")) };
    Some(format!("{}{from}", grouped(count)))
}

/// Transactions that took long, a line each.
pub fn slow(document: &Value) -> Vec<String> {
    let slow = document.pointer("/cluster/plinth/slow_transactions").and_then(Value::as_array);
    let line = |slow: &Value| {
        format!(
            "{} old when it was committed, {} writes, {}, first at {}",
            seconds(&slow["age_seconds"]),
            grouped(slow["mutations"].as_u64().unwrap_or_default()),
            bytes(slow["bytes"].as_u64().unwrap_or_default()),
            slow["first_key"].as_str().unwrap_or_default(),
        )
    };
    slow.into_iter().flatten().take(NAMED).map(line).collect()
}

/// A number of seconds.
pub fn seconds(value: &Value) -> String {
    duration(Duration::try_from_secs_f64(value.as_f64().unwrap_or_default()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_s_parts_are_told_in_words() {
        let statistics =
            |count: u64| json!({ "count": count, "median": 0.001, "p99": 0.02, "max": 1.5 });
        let document = json!({ "cluster": {
            "processes": {
                "a": { "roles": [{ "commit_latency_statistics": statistics(3) }, { "read_latency_statistics": statistics(0) }] },
                "b": { "roles": [{ "commit_latency_statistics": { "count": 1, "median": 9.0 } }] },
            },
            "clients": { "count": 7, "supported_versions": [{ "connected_clients": [
                { "address": "10.0.0.2:50" }, { "address": "10.0.0.1:51" }, { "address": "10.0.0.1:52" },
                { "address": "10.0.0.3:1" }, { "address": "10.0.0.4:1" },
            ] }] },
            "plinth": {
                "hot": { "reads": [{ "prefix": "user/", "share": 0.425 }, { "prefix": "b", "share": 0.1 }], "writes": [] },
                "slow_transactions": [{ "age_seconds": 2.5, "mutations": 1000, "bytes": 2048, "first_key": "k" }],
            },
        } });
        let told = latencies(&document);
        let told: Vec<_> =
            told.iter().map(|l| (l.what, &l.median[..], &l.p99[..], &l.worst[..])).collect();
        assert_eq!(told, [("commit", "1 ms", "20.0 ms", "1.50 s")]);
        assert_eq!(hot(&document), [("reads", "user/ 42 %, b 10 %".to_owned())]);
        let from = "7 from 10.0.0.1 (2), 10.0.0.2 (1), 10.0.0.3 (1), 1 more addresses";
        assert_eq!(clients(&document).as_deref(), Some(from));
        assert_eq!(
            slow(&document),
            ["2.50 s old when it was committed, 1,000 writes, 2 KiB, first at k"]
        );
        let nothing = json!({});
        assert!(
            latencies(&nothing).is_empty() && hot(&nothing).is_empty() && slow(&nothing).is_empty()
        );
        assert_eq!(clients(&nothing), None);
    }
}
