//! Measurements of continuous backups, in Prometheus' text format; nothing where there are none.

use super::TagStatus;
use std::fmt::Write;

/// A measurement: name, type, what it is, and its value.
type Metric = (&'static str, &'static str, &'static str, fn(&TagStatus) -> f64);

const METRICS: [Metric; 6] = [
    ("plinth_backup_behind_seconds", "gauge", "How far what is saved is behind the database.", |tag| {
        if tag.ended.is_some() { 0.0 } else { tag.behind_seconds }
    }),
    ("plinth_backup_restorable", "gauge", "Whether there is a snapshot to restore from.", |tag| {
        f64::from(u8::from(tag.is_restorable))
    }),
    ("plinth_backup_failing", "gauge", "Whether it gets no further.", |tag| {
        f64::from(u8::from(tag.error.is_some()))
    }),
    ("plinth_backup_snapshots_total", "counter", "Whole snapshots.", |tag| tag.snapshots as f64),
    ("plinth_backup_log_bytes_total", "counter", "Bytes of files of the log.", |tag| tag.log_bytes as f64),
    (
        "plinth_backup_broken_total",
        "counter",
        "How often the database let go of what had not been saved.",
        |tag| tag.broken as f64,
    ),
];

pub(super) fn text(tags: &[TagStatus]) -> String {
    let mut out = String::new();
    for (name, kind, help, value) in METRICS.iter().filter(|_| !tags.is_empty()) {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for tag in tags {
            let _ = writeln!(out, "{name}{{tag=\"{}\"}} {}", tag.tag, value(tag));
        }
    }
    out
}
