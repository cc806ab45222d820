//! How the server does at this moment, in one document: what the page shows besides its charts.
//!
//! Made from the status document, which is the endpoint's own word, and the registry of
//! connections. Lists are short: the page is for a person.

use super::Console;
use crate::answers::Answer;
use crate::shared::Shared;
use crate::{heavy, status};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Addresses of clients that are listed.
const ADDRESSES: usize = 50;

/// The status document as FoundationDB's tools want it.
pub(super) async fn status(shared: &Arc<Shared>) -> Result<Answer, Answer> {
    match status::document(shared, heavy::HTTP, false).await {
        Ok(document) => Ok(Answer::json(document.to_string())),
        Err(error) => Err(Answer::database(&error)),
    }
}

/// The console's own document.
pub(super) async fn overview(console: &Console) -> Result<Answer, Answer> {
    let shared = &console.shared;
    let document = status::document(shared, heavy::HTTP, false)
        .await
        .map_err(|error| Answer::database(&error))?;
    let document: Value = serde_json::from_str(&document).unwrap_or(Value::Null);
    let cluster = &document["cluster"];
    let (qos, plinth, data) = (&cluster["qos"], &cluster["plinth"], &cluster["data"]);
    let limited = &qos["performance_limited_by"];
    let overview = json!({
        "boot": console.boot,
        "time": shared.env.wall_clock().as_secs_f64(),
        "version": env!("CARGO_PKG_VERSION"),
        "database": shared.place.cluster,
        "addresses": shared.place.addresses,
        "uptime_seconds": plinth["server"]["uptime_seconds"],
        "write": console.write,
        "token": console.access.token_file().is_some(),
        "series": shared.series.is_some(),
        "series_parts": plinth["server"]["series"]["parts"],
        "health": health(cluster),
        "limit": {
            "cause": limited["name"],
            "description": limited["description"],
            "transactions_per_second": qos["transactions_per_second_limit"],
            "batch_cause": qos["batch_performance_limited_by"]["name"],
            "batch_transactions_per_second": qos["batch_transactions_per_second_limit"],
            "throttled_tags": {
                "by_hand": qos["throttled_tags"]["manual"]["count"],
                "by_load": qos["throttled_tags"]["auto"]["count"],
            },
        },
        "queues": { "commit": plinth["commit_queue"], "start": plinth["start_queue"] },
        "storage": {
            "engine": cluster["configuration"]["storage_engine"],
            "data_bytes": data["total_kv_size_bytes"],
            "disk_bytes": data["total_disk_used_bytes"],
            "free_bytes": data["least_operating_space_bytes_storage_server"],
            "log_bytes": plinth["log"]["disk_bytes"],
            "memory": plinth["memory"],
            "checkpoints": plinth["checkpoints"],
            "pinned_snapshots": plinth["ssd"]["pinned_snapshots"],
            "newest_version": plinth["newest_version"],
            "watches": plinth["watches"],
        },
        "servers": crate::members::servers(&document),
        "hot": plinth["hot"],
        "slow_transactions": plinth["slow_transactions"],
        "changes": plinth["changes"],
        "backups": cluster["layers"]["backup"]["tags"],
        "followers": cluster["layers"]["dr_backup"]["tags"],
        "follows": cluster["layers"]["dr_backup_dest"]["tags"],
        "clients": clients(shared),
        "audit": plinth["server"]["audit"],
    });
    Ok(Answer::value(&overview))
}

/// One word for a lamp, and a sentence for who reads it.
fn health(cluster: &Value) -> Value {
    let limited = &cluster["qos"]["performance_limited_by"];
    let worst = cluster["messages"].as_array().and_then(|messages| messages.first());
    let told = worst.and_then(|message| message["description"].as_str());
    let recovery = cluster["recovery_state"]["name"].as_str().unwrap_or_default();
    let (state, words) =
        if let Some(waits) = told.filter(|_| recovery.ends_with("coordinated_state")) {
            ("failed", waits.to_owned())
        } else if cluster["database_available"] != true {
            let why = told.unwrap_or("the database does not say why");
            ("failed", format!("No commit is taken any more: {why}"))
        } else if cluster["database_locked"] == true {
            ("locked", "The database is locked: only lock-aware transactions run".to_owned())
        } else if let Some(range) = cluster["plinth"]["locked_ranges"].get(0) {
            let (begin, end) = (range["begin"].as_str(), range["end"].as_str());
            let range = format!("{} to {}", begin.unwrap_or_default(), end.unwrap_or_default());
            (
                "locked",
                format!("A range of keys is locked, {range}: only lock-aware transactions use it"),
            )
        } else if let Some(refused) =
            told.filter(|_| cluster["plinth"]["commits_refused"]["now"].is_string())
        {
            ("refusing", refused.to_owned())
        } else if limited["name"] != "workload" {
            let why = limited["description"].as_str().unwrap_or("for a cause that is not told");
            ("limited", format!("Transactions are held back: {why}"))
        } else if let Some(unwell) = told {
            ("unwell", unwell.to_owned())
        } else {
            ("serving", "Serving, and nothing holds transactions back".to_owned())
        };
    json!({ "state": state, "words": words })
}

/// The connections, summed up by the address they come from, the most first.
fn clients(shared: &Shared) -> Value {
    let mut addresses = BTreeMap::<IpAddr, (u64, u64)>::new();
    shared.connections.visit(|outbox| {
        let (connections, bytes) = addresses.entry(outbox.peer.ip()).or_default();
        *connections += 1;
        *bytes += outbox.under_way() as u64;
    });
    let count = addresses.len();
    let mut addresses: Vec<_> = addresses.into_iter().collect();
    addresses.sort_by_key(|(_, (connections, _))| std::cmp::Reverse(*connections));
    addresses.truncate(ADDRESSES);
    let listed = |(address, (connections, bytes)): &(IpAddr, (u64, u64))| json!({ "address": address.to_string(), "connections": connections, "bytes_in_flight": bytes });
    let figures = shared.figures();
    json!({
        "connections": figures.connections,
        "most": shared.config.limits.connections,
        "accepted": figures.accepted,
        "refused": figures.refused,
        "bytes_buffered": shared.memory.held(),
        "addresses_all": count,
        "addresses": addresses.iter().map(listed).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document of a database that is well, with these fields in their place.
    fn told(fields: &[(&str, Value)]) -> (String, String) {
        let mut cluster = json!({
            "database_available": true,
            "database_locked": false,
            "messages": [],
            "plinth": { "commits_refused": { "now": null }, "locked_ranges": [] },
            "qos": { "performance_limited_by": { "name": "workload", "description": "" } },
            "recovery_state": { "name": "fully_recovered" },
        });
        for (place, value) in fields {
            *cluster.pointer_mut(place).expect("a field") = value.clone();
        }
        let told = health(&cluster);
        let word = |name: &str| told[name].as_str().expect("a word").to_owned();
        (word("state"), word("words"))
    }

    /// What is worse hides what is not so bad.
    #[test]
    fn the_lamp_shows_the_worst_of_what_the_document_says() {
        let message = ("/messages", json!([{ "name": "any", "description": "the first" }, {}]));
        let limited =
            ("/qos/performance_limited_by", json!({ "name": "x", "description": "busy" }));
        let refused = ("/plinth/commits_refused/now", json!("disk_full"));
        let range = ("/plinth/locked_ranges", json!([{ "begin": "a", "end": "b" }]));
        let locked = ("/database_locked", json!(true));
        let failed = ("/database_available", json!(false));
        let mut so_far = Vec::new();
        for (field, state, words) in [
            (message, "unwell", "the first"),
            (limited, "limited", "held back: busy"),
            (refused, "refusing", "the first"),
            (range, "locked", "a to b"),
            (locked, "locked", "database is locked"),
            (failed, "failed", "more: the first"),
        ] {
            so_far.push(field);
            let told = told(&so_far);
            assert!(told.0 == state && told.1.contains(words), "{told:?}, not {state}: {words}");
        }
        let waits = ("/recovery_state", json!({ "name": "reading_coordinated_state" }));
        so_far.push(waits);
        assert_eq!(told(&so_far), ("failed".to_owned(), "the first".to_owned()));
        assert_eq!(told(&[]).0, "serving");
        assert_eq!(told(&so_far[1..2]).0, "limited", "without a message");
    }
}
