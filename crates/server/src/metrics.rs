//! Everything that `/metrics` shows: the endpoint's measurements, and the server's own.
//!
//! The endpoint gives its part as text; behind it come connections and requests, the cluster's mesh
//! if there is one, and time series if the server takes them in. Nothing is kept here: each answer
//! is made of counters as they stand.
//!
//! Always: each name has its help and its kind, and begins with `plinth_server_`, `plinth_peer_` or
//! `plinth_series_`, which no name of the endpoint's does.

use crate::counters::Figures;
use crate::exposition::write_all;
use crate::page::Page;
use crate::shared::Shared;
use std::fmt::Write;

/// The text in Prometheus' format, version 0.0.4.
pub(crate) fn text(shared: &Shared) -> String {
    let mut text = shared.config.pages.metrics.as_ref().map(Page::text).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    requests(shared, &mut text);
    shared.doors.quotas.metrics(&mut text);
    if let Some(mesh) = &shared.config.peers {
        crate::nodes::metrics(mesh, &mut text);
    }
    shared.series.metrics(&mut text);
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
