//! What `/metrics` shows of time series: what was taken and refused, what is open, and how long
//! points wait to be durable.

use super::Hub;
use crate::exposition::write_all;
use plinth_series::StoreStats;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes what is measured of time series in Prometheus' format.
pub(super) fn write(hub: &Hub, text: &mut String) {
    let opened = hub.slot.own();
    let is_owner = f64::from(u8::from(opened.is_ok()));
    let is_open = f64::from(u8::from(!hub.slot.is_closed()));
    let (parts, owned) = hub.slot.count();
    let stats = opened.map(|opened| opened.store.stats()).unwrap_or_default();
    let senders = hub.connections() as f64;
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    let numbers = [
        ("open", "gauge", "1 while the series are open; 0 while nobody can write or ask.", is_open),
        (
            "owner",
            "gauge",
            "1 while this server owns the series, or a part of them; 0 while others do, or none.",
            is_owner,
        ),
        ("parts", "gauge", "Parts into which the series are divided.", parts as f64),
        ("parts_owned", "gauge", "Parts of the series that this server owns.", owned as f64),
        ("points_total", "counter", "Points taken since the start.", count(&hub.counts.points)),
        (
            "refused_total",
            "counter",
            "Messages, lines and series of requests that were refused.",
            count(&hub.counts.refused),
        ),
        ("datagrams_total", "counter", "Datagrams with points.", count(&hub.counts.datagrams)),
        (
            "datagrams_refused_total",
            "counter",
            "Messages in them that were refused.",
            count(&hub.counts.datagrams_refused),
        ),
        ("connections", "gauge", "Connections that send points on lines.", senders),
    ];
    write_all(text, "series", &numbers);
    write_store(hub, &stats, text);
}

/// Writes what is measured of the store of those that are this server's.
fn write_store(hub: &Hub, stats: &StoreStats, text: &mut String) {
    let ahead = hub.duties.retention.ahead.load(Ordering::Relaxed) as f64;
    let numbers = [
        (
            "series",
            "gauge",
            "Series in memory: those that were written since the start.",
            stats.series as f64,
        ),
        ("open_points", "gauge", "Points in no leaf yet.", stats.open_points as f64),
        (
            "damaged",
            "gauge",
            "Series that rows are damaged of: no points of them are taken.",
            stats.damaged as f64,
        ),
        (
            "points_aside_total",
            "counter",
            "Points of such that were set aside since the series were opened.",
            stats.points_aside as f64,
        ),
        ("query_bytes", "gauge", "Bytes that queries at work hold.", stats.query_bytes as f64),
        (
            "clock_ahead_seconds",
            "gauge",
            "How far this server's clock is ahead of the time by which points are too old.",
            ahead,
        ),
        (
            "rollups_left",
            "gauge",
            "Series that are still to be rolled up.",
            stats.rollups.left as f64,
        ),
        (
            "rollups_failed_total",
            "counter",
            "How often a series could not be rolled up since the series were opened.",
            stats.rollups.failed as f64,
        ),
        (
            "points_too_late_total",
            "counter",
            "Points in no bucket, since those that theirs was made of had gone before they came; \
             points that are only sent again are among them.",
            stats.rollups.too_late as f64,
        ),
        (
            "unsaved_seconds",
            "gauge",
            "How long the oldest point waits that is not durable yet.",
            stats.unsaved_for.as_secs_f64(),
        ),
        (
            "longest_unsaved_seconds",
            "gauge",
            "The longest that a point waited to be durable since the start.",
            stats.longest_unsaved.as_secs_f64(),
        ),
    ];
    write_all(text, "series", &numbers);
}

/// What the store has in memory.
pub(super) fn stats(hub: &Hub) -> String {
    let stats = hub.slot.own().map(|opened| opened.store.stats()).unwrap_or_default();
    let (parts, owned) = hub.slot.count();
    let numbers = serde_json::json!({
        "memory": {
            "series": stats.series.to_string(),
            "open_points": stats.open_points.to_string(),
            "unsaved_points": stats.unsaved_points.to_string(),
            "query_bytes": stats.query_bytes.to_string(),
            "body_bytes": hub.bodies.held().to_string(),
        },
        "durability": {
            "unsaved_seconds": stats.unsaved_for.as_secs_f64().to_string(),
            "longest_unsaved_seconds": stats.longest_unsaved.as_secs_f64().to_string(),
        },
        "parts": { "all": parts.to_string(), "owned": owned.to_string() },
        "queries": { "running": hub.asking.queries.load(Ordering::Relaxed).to_string() },
    });
    numbers.to_string() + "\n"
}
