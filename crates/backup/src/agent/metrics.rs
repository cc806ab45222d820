//! What others are told of continuous backups: measurements in Prometheus' text format, and a part
//! of the status document.

use super::{State, TagStatus};
use serde_json::{Value, json};
use std::fmt::Write;

/// A measurement: name, type, what it is, and its value, if there is one.
type Metric = (&'static str, &'static str, &'static str, fn(&TagStatus) -> Option<f64>);

/// A value of a backup that goes on.
fn going(tag: &TagStatus, value: f64) -> Option<f64> {
    tag.ended.is_none().then_some(value)
}

fn flag(is_so: bool) -> Option<f64> {
    Some(f64::from(u8::from(is_so)))
}

const METRICS: [Metric; 9] = [
    (
        "plinth_backup_behind_seconds",
        "gauge",
        "How far what is saved is behind the database.",
        |tag| Some(going(tag, tag.behind_seconds).unwrap_or(0.0)),
    ),
    ("plinth_backup_behind_versions", "gauge", "The same in versions.", |tag| {
        Some(going(tag, tag.behind_versions as f64).unwrap_or(0.0))
    }),
    ("plinth_backup_restorable", "gauge", "Whether there is a snapshot to restore from.", |tag| {
        flag(tag.is_restorable)
    }),
    ("plinth_backup_failing", "gauge", "Whether it gets no further.", |tag| {
        flag(tag.error.is_some())
    }),
    (
        "plinth_backup_snapshot_timestamp_seconds",
        "gauge",
        "When the last whole snapshot was begun, of a backup that goes on.",
        |tag| tag.last_snapshot.and_then(|begun| going(tag, begun as f64)),
    ),
    (
        "plinth_backup_snapshot_interval_seconds",
        "gauge",
        "How often a snapshot is to be begun, of a backup that goes on.",
        |tag| going(tag, tag.wish.snapshot_interval.as_secs_f64()),
    ),
    ("plinth_backup_snapshots_total", "counter", "Whole snapshots.", |tag| {
        Some(tag.snapshots as f64)
    }),
    ("plinth_backup_log_bytes_total", "counter", "Bytes of files of the log.", |tag| {
        Some(tag.log_bytes as f64)
    }),
    (
        "plinth_backup_broken_total",
        "counter",
        "How often the database let go of what had not been saved.",
        |tag| Some(tag.broken as f64),
    ),
];

pub(super) fn text(tags: &[TagStatus]) -> String {
    let mut out = String::new();
    for (name, kind, help, value) in METRICS.iter().filter(|_| !tags.is_empty()) {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (tag, value) in tags.iter().filter_map(|tag| Some((&tag.tag, value(tag)?))) {
            let _ = writeln!(out, "{name}{{tag=\"{tag}\"}} {value}");
        }
    }
    out
}

/// All of them as the status document has them in FoundationDB, below `cluster.layers.backup`.
pub(super) fn layer(tags: &[TagStatus], now: f64) -> Value {
    let going = || tags.iter().filter(|tag| tag.ended.is_none());
    let all: serde_json::Map<_, _> =
        tags.iter().map(|tag| (tag.tag.clone(), tag.to_json())).collect();
    json!({
        "instances_running": 1,
        "total_workers": 1,
        "last_updated": now,
        "paused": going().next().is_some() && going().all(|tag| tag.state == State::Paused),
        "tags": all,
    })
}
