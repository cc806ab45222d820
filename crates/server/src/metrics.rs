//! Everything that `/metrics` shows: the endpoint's measurements, and the server's own.
//!
//! The endpoint gives its part as text; behind it come connections and requests, the cluster's mesh
//! if there is one, and time series if the server takes them in. Nothing is kept here: each answer
//! is made of counters as they stand.
//!
//! Always: each name has its help and its kind, and begins with `plinth_server_`, `plinth_peer_` or
//! `plinth_series_`, which no name of the endpoint's does.

use crate::counters::Figures;
use crate::page::Page;
use crate::series::Hub;
use crate::shared::Shared;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// The text in Prometheus' format, version 0.0.4.
pub(crate) fn text(shared: &Shared) -> String {
    let mut text = shared.config.metrics.as_ref().map(Page::text).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    requests(shared, &mut text);
    if let Some(mesh) = &shared.config.peers {
        crate::nodes::metrics(mesh, &mut text);
    }
    if let Some(hub) = &shared.series.hub {
        series(hub, &mut text);
        if let Some(rules) = &hub.rules {
            rules.metrics(&mut text);
        }
    }
    let cpu = shared.env.cpu_time().as_secs_f64();
    let _ = write!(
        text,
        "# HELP plinth_server_cpu_seconds_total Processor time of the process.\n\
         # TYPE plinth_server_cpu_seconds_total counter\nplinth_server_cpu_seconds_total {cpu}\n"
    );
    text
}

/// What is measured of connections and requests.
fn requests(shared: &Shared, text: &mut String) {
    let Figures { connections, accepted, refused, tls_failures, cut_off, requests, .. } =
        shared.figures();
    let Figures {
        transactions, reads, ranges, rows, commits, failures, bytes_in, bytes_out, ..
    } = shared.figures();
    let held = shared.memory.held() as u64;
    let numbers = [
        ("connections", "gauge", "Connections that are open.", connections),
        (
            "connections_accepted_total",
            "counter",
            "Connections accepted since the start.",
            accepted,
        ),
        ("connections_refused_total", "counter", "Connections refused since the start.", refused),
        (
            "tls_failures_total",
            "counter",
            "Connections with which TLS came to nothing.",
            tls_failures,
        ),
        (
            "connections_cut_off_total",
            "counter",
            "Connections cut off because memory was short.",
            cut_off,
        ),
        (
            "buffered_bytes",
            "gauge",
            "Bytes that connections hold, of those that hold more than a little.",
            held,
        ),
        ("requests_total", "counter", "Requests of all kinds.", requests),
        (
            "transactions_total",
            "counter",
            "Transactions that asked for a read version.",
            transactions,
        ),
        ("keys_read_total", "counter", "Keys of point reads.", reads),
        ("ranges_read_total", "counter", "Range reads.", ranges),
        ("rows_read_total", "counter", "Rows that range reads gave.", rows),
        ("commits_total", "counter", "Commits asked for.", commits),
        ("failures_total", "counter", "Requests answered with an error at once.", failures),
        ("received_bytes_total", "counter", "Bytes received from clients.", bytes_in),
        ("sent_bytes_total", "counter", "Bytes sent to clients.", bytes_out),
    ];
    write_all(text, "server", &numbers);
}

/// What is measured of time series.
fn series(hub: &Hub, text: &mut String) {
    let opened = hub.slot.now();
    let is_owner = f64::from(u8::from(opened.is_ok()));
    let is_open = f64::from(u8::from(opened.is_ok() || hub.slot.holder().is_some()));
    let stats = opened.map(|opened| opened.store.stats()).unwrap_or_default();
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    let numbers = [
        ("open", "gauge", "1 while the series are open; 0 while nobody can write or ask.", is_open),
        (
            "owner",
            "gauge",
            "1 while this server owns the series; 0 while another one does, or none.",
            is_owner,
        ),
        ("points_total", "counter", "Points taken since the start.", count(&hub.counts.points)),
        (
            "refused_total",
            "counter",
            "Messages, lines and series of requests that were refused.",
            count(&hub.counts.refused),
        ),
        (
            "datagrams_total",
            "counter",
            "Datagrams with points of time series.",
            count(&hub.counts.datagrams),
        ),
        (
            "datagrams_refused_total",
            "counter",
            "Messages in them that were refused.",
            count(&hub.counts.datagrams_refused),
        ),
        (
            "connections",
            "gauge",
            "Connections that send points on lines.",
            hub.connections() as f64,
        ),
        (
            "series",
            "gauge",
            "Series in memory: those that were written since the start.",
            stats.series as f64,
        ),
        ("open_points", "gauge", "Points in no leaf yet.", stats.open_points as f64),
        ("query_bytes", "gauge", "Bytes that queries at work hold.", stats.query_bytes as f64),
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

/// Writes quantities, each with its kind, what it is, and its value.
fn write_all(text: &mut String, group: &str, numbers: &[(&str, &str, &str, impl Display)]) {
    for (name, kind, help, number) in numbers {
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "# HELP plinth_{group}_{name} {help}\n# TYPE plinth_{group}_{name} {kind}\nplinth_{group}_{name} {number}\n"
        );
    }
}
