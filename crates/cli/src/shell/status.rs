//! `status`: the status document in words, or as it is; `hotrange`: a part of it.
//!
//! The words are taken from where FoundationDB's tools look; what a database doesn't tell is left
//! out.

use super::operator;
use super::session::{Refusal, Session};
use super::words::quoted;
use crate::layers;
use crate::told;
use plinth_bench::Value;
use plinth_bench::words::{bytes, grouped};
use std::io::Write;

/// `status [minimal|details|json]`
pub fn status<Out: Write>(
    session: &mut Session<Out>,
    form: Option<&Vec<u8>>,
) -> Result<(), Refusal> {
    let document = document(session)?;
    match form.map(|form| &form[..]) {
        Some(b"json") => writeln!(session.out, "{document:#}")?,
        Some(b"minimal") => writeln!(session.out, "{}", available(&document))?,
        None => write!(session.out, "{}", summary(&document))?,
        Some(b"details") => {
            let clients = operator::clients(session);
            write!(session.out, "{}{}", summary(&document), details(&document, clients))?;
        }
        Some(other) => {
            return Err(Refusal::Usage(format!("minimal, details or json, not {}", quoted(other))));
        }
    }
    Ok(())
}

/// `hotrange`
pub fn hot_ranges<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    let document = document(session)?;
    if document.pointer("/cluster/plinth/hot").is_none() {
        let why = "this database doesn't tell which ranges are hot".to_owned();
        return Err(Refusal::Usage(why));
    }
    let mut lines = Lines::default();
    lines.add_hot(&document);
    if lines.text.is_empty() {
        writeln!(session.out, "No range is used more than the others.")?;
    }
    write!(session.out, "{}", lines.text)?;
    Ok(())
}

fn document<Out: Write>(session: &Session<Out>) -> Result<Value, Refusal> {
    let text = session.answer(session.shown().status_json())?;
    text.parse().map_err(|error| Refusal::Usage(format!("the document is not JSON: {error}")))
}

fn available(document: &Value) -> &'static str {
    match document.pointer("/client/database_status/available").and_then(Value::as_bool) {
        Some(true) => "The database is available.",
        _ => "The database is unavailable; type `status' for more information.",
    }
}

fn summary(document: &Value) -> String {
    let text = |path: &str| document.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let number = |path: &str| document.pointer(path).and_then(Value::as_u64);
    let flag = |path: &str| document.pointer(path).and_then(Value::as_bool);
    let yes = |path: &str| flag(path).map(|yes| if yes { "yes" } else { "no" }.to_owned());
    let mut lines = Lines::default();
    lines.add("Database", text("/client/cluster_file/path"));
    lines.add("Available", yes("/client/database_status/available"));
    lines.add("Redundancy mode", text("/cluster/configuration/redundancy_mode"));
    lines.add("Servers", servers(document));
    lines.add("Storage engine", text("/cluster/configuration/storage_engine"));
    lines.add("Recovery", text("/cluster/recovery_state/name"));
    lines.add("Locked", yes("/cluster/database_lock_state/locked"));
    lines.add("Replication", text("/cluster/data/state/name"));
    lines.add("Keys and values", number("/cluster/data/total_kv_size_bytes").map(bytes));
    lines.add("Disk space", number("/cluster/data/total_disk_used_bytes").map(bytes));
    lines.add("Streams", crate::monitor::streams(document));
    layers::backups(document).into_iter().for_each(|backup| lines.add("Backup", Some(backup)));
    layers::sites(document).into_iter().for_each(|site| lines.add("Second site", Some(site)));
    lines.add("Limited by", text("/cluster/qos/performance_limited_by/name"));
    for message in crate::monitor::messages(document) {
        lines.add("Message", message.get("description").and_then(Value::as_str).map(str::to_owned));
    }
    lines.text
}

/// How many servers there are, who leads, and how many may fail.
fn servers(document: &Value) -> Option<String> {
    let member = document.pointer("/cluster/plinth/member").filter(|member| member.is_object())?;
    let voters = member["voters"].as_array()?;
    let leader = voters.iter().find(|voter| voter["node"] == member["leader"]);
    let leader = leader.and_then(|leader| leader["address"].as_str());
    let spare = document
        .pointer("/cluster/fault_tolerance/max_zone_failures_without_losing_availability")?;
    let leads =
        leader.map_or("none leads at the moment".to_owned(), |leader| format!("{leader} leads"));
    let follow = match member["learners"].as_array().map_or(0, Vec::len) {
        0 => String::new(),
        count => format!(", and {count} without a vote"),
    };
    Some(format!("{}{follow}; {leads}; {spare} may fail", voters.len()))
}

fn details(document: &Value, clients: Vec<String>) -> String {
    let mut lines = Lines::default();
    clients.into_iter().for_each(|client| lines.add("Clients", Some(client)));
    for (name, path) in [
        ("Committed", "/cluster/workload/transactions/committed/counter"),
        ("Conflicted", "/cluster/workload/transactions/conflicted/counter"),
        ("Too old", "/cluster/workload/transactions/rejected_too_old/counter"),
        ("Writes", "/cluster/workload/operations/writes/counter"),
    ] {
        lines.add(name, document.pointer(path).and_then(Value::as_u64).map(grouped));
    }
    for told::Latency { what, median, p99, worst } in told::latencies(document) {
        let name = format!("Latency, {what}");
        lines.add(
            &name,
            Some(format!("{median} median, {p99} but for one in a hundred, {worst} the slowest")),
        );
    }
    lines.add_hot(document);
    told::slow(document).into_iter().for_each(|slow| lines.add("Slow transaction", Some(slow)));
    own(document, &mut lines);
    lines.text
}

/// What only Plinth tells.
fn own(document: &Value, lines: &mut Lines) {
    let number =
        |path: &str| document.pointer(&format!("/cluster/plinth/{path}")).and_then(Value::as_u64);
    let size = |path: &str| number(path).map(bytes);
    let seconds =
        |path: &str| document.pointer(&format!("/cluster/plinth/{path}")).map(told::seconds);
    lines.add("Memory, rows", size("memory/data_bytes"));
    lines.add("Memory, index", size("memory/index_bytes"));
    lines.add("Memory, window", size("memory/window_bytes"));
    lines.add(
        "Memory, snapshots",
        size("memory/pinned_bytes").filter(|_| number("memory/pinned_bytes") > Some(0)),
    );
    lines.add("Memory, at most", size("memory/bound_bytes"));
    lines.add("Log", size("log/disk_bytes"));
    lines.add("Tables", size("ssd/disk_bytes"));
    lines.add("Free disk", size("disk/free_bytes"));
    lines.add(
        "Checkpoints",
        number("checkpoints").map(|made| {
            let failed = number("checkpoints_failed").unwrap_or_default();
            let failed =
                if failed > 0 { format!(", {} FAILED", grouped(failed)) } else { String::new() };
            format!("{} since the start{failed}", grouped(made))
        }),
    );
    lines.add("Waiting to start", number("start_queue/transactions").map(grouped));
    lines.add("Waiting to commit", number("commit_queue/transactions").map(grouped));
    let refused =
        document.pointer("/cluster/plinth/commits_refused/by_cause").and_then(Value::as_object);
    for (cause, count) in refused.into_iter().flatten() {
        let count = count.as_u64().filter(|count| *count > 0);
        lines.add(
            "Refused",
            count.map(|count| format!("{} commits: {}", grouped(count), cause.replace('_', " "))),
        );
    }
    lines.add("Watches", number("watches").map(grouped));
    lines.add("Window", seconds("window_seconds"));
    lines.add("Version", number("newest_version").map(grouped));
    lines.add("Up for", seconds("server/uptime_seconds"));
    lines.add(
        "Connections",
        number("server/connections").map(|now| {
            let ever = number("server/connections_accepted").map(grouped).unwrap_or_default();
            format!("{}, {ever} since the start", grouped(now))
        }),
    );
    lines.add("Sent", size("server/bytes_sent"));
    lines.add("Received", size("server/bytes_received"));
    lines.add(
        "Pinned snapshots",
        number("server/pinned_snapshots/count").filter(|count| *count > 0).map(grouped),
    );
    let budgets = document.pointer("/cluster/plinth/server/quotas/budgets");
    let budgets = budgets.and_then(Value::as_array).into_iter().flatten();
    budgets.for_each(|budget| lines.add("Quota", quota(budget)));
}

/// Whose quota it is, what of it is used, and since when somebody waits for it.
fn quota(budget: &Value) -> Option<String> {
    let mut parts = Vec::new();
    for name in ["read", "write"] {
        let of = |what: &str| budget[name][what].as_u64();
        let Some(most) = of("bytes_per_second_max") else { continue };
        let used = of("bytes_per_second").unwrap_or_default();
        let mut part = format!("{name} {} of {} a second", bytes(used), bytes(most));
        if let Some(waiting) = of("waiting").filter(|waiting| *waiting > 0) {
            let since = told::seconds(&budget[name]["waiting_for_seconds"]);
            part.push_str(&format!(" ({} wait, for {since} now)", grouped(waiting)));
        }
        parts.push(part);
    }
    for name in ["connections", "watches", "snapshots"] {
        let of = |what: &str| budget[name][what].as_u64();
        let Some(most) = of("max") else { continue };
        let used = of("count").unwrap_or_default();
        parts.push(format!("{} of {} {name}", grouped(used), grouped(most)));
    }
    Some(format!("{}: {}", budget["whose"].as_str()?, parts.join(", ")))
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn add(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.text.push_str(&format!("  {name:18} {value}\n"));
        }
    }

    fn add_hot(&mut self, document: &Value) {
        for (kind, ranges) in told::hot(document) {
            self.add(&format!("Hot {kind}"), Some(ranges));
        }
    }
}
