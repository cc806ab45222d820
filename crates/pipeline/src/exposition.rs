//! The measurements in Prometheus' text format.
//!
//! Names follow its conventions: `plinth_` first, units in base units last, totals end in `_total`.

use crate::backpressure;
use crate::changes::ShownStream;
use crate::metrics::{Count, Histogram, Metrics};
use crate::refusals::Cause;
use crate::shown::{Shown, ShownMember};
use plinth_types::version::VERSIONS_PER_SECOND;
use plinth_types::{Version, printable};
use std::fmt::Write;

/// Quantities of the same name under different labels.
type Labelled<'a> = &'a [(&'a str, f64)];

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn family(&mut self, name: &str, kind: &str, help: &str, values: Labelled<'_>) {
        self.head(name, kind, help);
        for (labels, value) in values {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help, &[("", value as f64)]);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help, &[("", value)]);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let snapshot = histogram.snapshot();
        // The last bucket has no bound.
        let bounded = snapshot.cumulative.len() - 1;
        for (bound, count) in &snapshot.cumulative[..bounded] {
            let _ = writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let (count, sum) = (snapshot.count, snapshot.sum_seconds);
        let _ = writeln!(
            self.0,
            "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}"
        );
    }
}

/// All measurements of a node.
pub(crate) fn render(shown: &Shown) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    transactions(&mut text, shown);
    reads(&mut text, &shown.replica.counters.metrics);
    latencies(&mut text, &shown.replica.counters.metrics);
    queues(&mut text, shown);
    space(&mut text, shown);
    changes(&mut text, shown);
    shown.member.iter().for_each(|shown| member(&mut text, shown));
    if shown.member.is_some() {
        let help = "Bytes of rows that other nodes of the cluster were given.";
        text.counter(
            "plinth_rows_given_bytes_total",
            help,
            shown.replica.counters.rows_given_bytes.get(),
        );
    }
    text.0
}

fn transactions(text: &mut Text, shown: &Shown) {
    let (metrics, counters) = (&shown.replica.counters.metrics, &shown.replica.counters);
    let of = |count| metrics.get(count) as f64;
    text.family(
        "plinth_transactions_started_total",
        "counter",
        "Read versions handed out, by priority.",
        &[
            ("{priority=\"batch\"}", of(Count::StartedBatch)),
            ("{priority=\"default\"}", of(Count::StartedDefault)),
            ("{priority=\"immediate\"}", of(Count::StartedImmediate)),
        ],
    );
    text.family(
        "plinth_commits_total",
        "counter",
        "Transactions that asked to commit, by what became of them.",
        &[
            ("{outcome=\"committed\"}", counters.committed.get() as f64),
            ("{outcome=\"conflicted\"}", counters.conflicted.get() as f64),
            ("{outcome=\"too_old\"}", counters.too_old.get() as f64),
            ("{outcome=\"refused\"}", counters.refused.get() as f64),
        ],
    );
    let refused = |cause: &Cause| {
        (
            format!("{{cause=\"{}\"}}", cause.name()),
            shown.replica.health.refusals.refused(*cause) as f64,
        )
    };
    let refused: Vec<_> = Cause::ALL.iter().map(refused).collect();
    let refused: Vec<_> = refused.iter().map(|(labels, count)| (labels.as_str(), *count)).collect();
    let help = "Commits that were not taken although nothing was wrong with them, by cause.";
    text.family("plinth_commits_refused_total", "counter", help, &refused);
    text.counter("plinth_mutations_total", "Mutations committed.", counters.mutations.get());
    text.counter("plinth_commit_batches_total", "Batches committed.", counters.batches.get());
    text.counter(
        "plinth_log_written_bytes_total",
        "Bytes appended to the log.",
        counters.bytes_written.get(),
    );
    text.counter("plinth_checkpoints_total", "Checkpoints written.", counters.checkpoints.get());
    let help = "Checkpoints, and flushes that make room, that could not be written.";
    text.counter("plinth_checkpoint_failures_total", help, counters.checkpoints_failed.get());
}

fn member(text: &mut Text, member: &ShownMember) {
    let standing = &member.standing;
    let leads = if standing.leads.is_some() { 1.0 } else { 0.0 };
    text.gauge("plinth_is_leader", "Whether this node leads its cluster.", leads);
    text.gauge("plinth_term", "The newest term that this node has heard of.", standing.term as f64);
    let help = "Terms that this node has seen begin.";
    text.counter("plinth_elections_total", help, standing.elections);
    let help = "The index up to which entries of the log are committed, as far as this node knows.";
    text.gauge("plinth_committed_index", help, standing.committed_index as f64);
    text.gauge(
        "plinth_last_index",
        "The last entry of this node's log.",
        standing.last_index as f64,
    );
    let taking = f64::from(u8::from(member.catching_up.is_some()));
    let help =
        "Whether this node takes in rows or entries that it lacks, and serves nothing meanwhile.";
    text.gauge("plinth_catching_up", help, taking);
    if let Some(now) = &member.catching_up {
        text.gauge(
            "plinth_rows_taken_bytes",
            "Bytes of rows that it has taken.",
            now.taken_bytes as f64,
        );
        text.gauge("plinth_rows_about_bytes", "Bytes of all rows, about.", now.about_bytes as f64);
    }
    let help = "Whether entries of the log wait because this node's disk is full: it takes no part meanwhile.";
    text.gauge("plinth_log_waits_for_room", help, f64::from(u8::from(standing.full.is_some())));
    // One node tells it, or an alert would come of each.
    let lags = if standing.leads.is_some() { &standing.lags[..] } else { &[] };
    let lags: Vec<_> =
        lags.iter().map(|(node, lag)| (format!("{{node=\"{node}\"}}"), *lag as f64)).collect();
    let lags: Vec<_> = lags.iter().map(|(label, lag)| (label.as_str(), *lag)).collect();
    let help =
        "Entries that another node lacks, as the leader knows; none of a node that doesn't lead.";
    text.family("plinth_follower_lag_entries", "gauge", help, &lags);
}

/// A measurement of each stream of changes, with the newest version given: name, help, value.
type OfStream = (&'static str, &'static str, fn(&ShownStream, Version) -> f64);

const OF_STREAMS: [OfStream; 4] = [
    (
        "plinth_changes_held_bytes",
        "Bytes of the log that a stream of changes holds back on this node, as its bound counts them.",
        |stream, _| stream.held as f64,
    ),
    (
        "plinth_changes_held_versions",
        "Versions that the consumer of a stream has not acknowledged.",
        |stream, newest| stream.lag(newest) as f64,
    ),
    (
        "plinth_changes_unacknowledged_seconds",
        "How old the oldest of them is.",
        |stream, newest| stream.lag(newest) as f64 / VERSIONS_PER_SECOND as f64,
    ),
    (
        "plinth_changes_lost",
        "Whether a stream has lost changes that its consumer did not take in time.",
        |stream, _| f64::from(u8::from(stream.lost.is_some())),
    ),
];

fn changes(text: &mut Text, shown: &Shown) {
    let (newest, streams) = (shown.replica.newest(), shown.replica.streams.shown());
    text.gauge(
        "plinth_changes_streams",
        "Streams of changes that are registered.",
        streams.len() as f64,
    );
    for (name, help, figure) in OF_STREAMS {
        text.head(name, "gauge", help);
        for stream in &streams {
            let label = printable(&stream.name).replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(text.0, "{name}{{stream=\"{label}\"}} {}", figure(stream, newest));
        }
    }
}

fn reads(text: &mut Text, metrics: &Metrics) {
    let help = "Reads: values asked for, selectors, ranges.";
    text.counter("plinth_read_requests_total", help, metrics.get(Count::Reads));
    text.counter("plinth_keys_read_total", "Keys read.", metrics.get(Count::Keys));
    let help = "Bytes of keys and values read; of single values an estimate from a sample.";
    text.counter("plinth_read_bytes_total", help, metrics.get(Count::Bytes));
}

fn latencies(text: &mut Text, metrics: &Metrics) {
    let commit = "From a request to commit to its answer, a sample of them.";
    text.histogram("plinth_commit_seconds", commit, &metrics.commit);
    text.histogram("plinth_log_sync_seconds", "A sync of the log.", &metrics.sync);
    let wait = "How long transactions that were held back waited to begin.";
    text.histogram("plinth_start_wait_seconds", wait, &metrics.start_wait);
    text.histogram(
        "plinth_read_seconds",
        "Reads answered from memory, a sample of them.",
        &metrics.read,
    );
}

fn queues(text: &mut Text, shown: &Shown) {
    let (queued, queued_bytes) = shown.queued();
    text.gauge(
        "plinth_commit_queue_transactions",
        "Transactions that wait to be committed.",
        queued as f64,
    );
    text.gauge("plinth_commit_queue_bytes", "Their bytes.", queued_bytes as f64);
    let waiting = shown.waiting() as f64;
    text.gauge("plinth_start_queue_transactions", "Transactions that are held back.", waiting);
    text.gauge("plinth_watches", "Watches outstanding.", shown.replica.watches.len() as f64);
    let limits = shown.limits();
    // Infinite is spelt +Inf, which is how Rust's `inf` is not.
    let limit = |rate: f64| if rate.is_finite() { rate } else { f64::MAX };
    text.family(
        "plinth_transactions_per_second_limit",
        "gauge",
        "How many transactions may begin in a second; the largest number there is: no limit.",
        &[
            ("{priority=\"default\"}", limit(limits.default)),
            ("{priority=\"batch\"}", limit(limits.batch)),
        ],
    );
    let labels = format!("{{cause=\"{}\"}}", limits.reason.name());
    text.family(
        "plinth_limited_by",
        "gauge",
        "What limits the rate of transactions.",
        &[(&labels, 1.0)],
    );
    let (manual, auto) = shown.throttled_tags();
    text.family(
        "plinth_throttled_tags",
        "gauge",
        "Tags that are throttled: by hand, and because they are too busy.",
        &[("{by=\"hand\"}", manual as f64), ("{by=\"load\"}", auto as f64)],
    );
}

fn space(text: &mut Text, shown: &Shown) {
    let memory = shown.replica.storage.memory();
    text.family(
        "plinth_memory_bytes",
        "gauge",
        "Memory of the storage, by what is in it.",
        &[
            ("{part=\"data\"}", memory.data as f64),
            ("{part=\"index\"}", memory.index as f64),
            ("{part=\"window\"}", memory.window as f64),
        ],
    );
    text.gauge(
        "plinth_data_bytes",
        "Keys and values that are stored.",
        shown.replica.storage.data_bytes() as f64,
    );
    let disk = shown.disk_used() as f64;
    text.gauge("plinth_disk_used_bytes", "Disk that the log and the data take.", disk);
    let tables = shown.replica.storage.tables();
    if let Some(tables) = tables {
        let pinned = tables.pinned as f64;
        text.gauge("plinth_pinned_snapshots", "Snapshots that are pinned.", pinned);
    }
    text.gauge("plinth_committed_version", "The newest version.", shown.replica.newest() as f64);
    let now = backpressure::refusal(&shown.replica).map(|(cause, _)| cause);
    let available = f64::from(u8::from(now.is_none()));
    text.gauge("plinth_available", "Whether commits that write rows are taken.", available);
    if shown.replica.log.is_some() {
        let help = "Damaged blocks of tables, and records of the log, that were met with.";
        let times = shown.replica.damage().map_or(0, |(_, times)| times);
        text.counter("plinth_damaged_blocks_total", help, times);
    }
    if tables.is_some() {
        let failing = f64::from(u8::from(shown.replica.tables_trouble().is_some()));
        text.gauge(
            "plinth_flush_failing",
            "Whether flushes or merges fail at this moment, or the disk doesn't answer them.",
            failing,
        );
    }
    let locked = if shown.replica.visible.answer(|| 0).locked { 1.0 } else { 0.0 };
    text.gauge("plinth_locked", "Whether the database is locked.", locked);
    let uptime =
        shown.replica.env.now().saturating_sub(shown.replica.counters.opened).as_secs_f64();
    text.gauge("plinth_uptime_seconds", "Since the node was opened.", uptime);
    let space = &shown.replica.space;
    if let Some((free, kept)) = space.free_and_kept() {
        text.gauge("plinth_disk_free_bytes", "Free space of the disk.", free as f64);
        let help = "Of that, what stays free for checkpoints, flushes and merges: rows are not taken below it.";
        text.gauge("plinth_disk_kept_bytes", help, kept as f64);
        let help = "With less than this beyond what is kept free the disk is low.";
        text.gauge("plinth_disk_low_bytes", help, space.low_bytes() as f64);
        let help = "For how long the call lasts that the disk has not answered for longest, of those that \
             change files of the database; 0: it has answered all.";
        let seconds = shown.replica.silent_for().as_secs_f64();
        text.gauge("plinth_disk_silent_seconds", help, seconds);
    }
    refusing(text, now);
    if let Some(log) = &shown.replica.log {
        text.gauge("plinth_log_disk_bytes", "Disk that the log takes.", log.disk_bytes() as f64);
    }
}

fn refusing(text: &mut Text, now: Option<Cause>) {
    let held: Vec<_> = Cause::ALL
        .iter()
        .map(|cause| {
            let is_now = now == Some(*cause);
            (format!("{{cause=\"{}\"}}", cause.name()), f64::from(u8::from(is_now)))
        })
        .collect();
    let held: Vec<_> = held.iter().map(|(labels, value)| (labels.as_str(), *value)).collect();
    text.family(
        "plinth_refusing",
        "gauge",
        "Whether commits are refused at this moment, by cause.",
        &held,
    );
}
