//! The last minutes: one sample a second, so that a page just opened shows more than a moment.
//!
//! A sample is a row of numbers, each column made from the text of `/metrics` by the table of
//! [`COLUMNS`]: a rate from two totals, a gauge as it is, a percentile from what histograms gained
//! in the last seconds. What can't be known is not a number, and `null` in JSON: there it was not
//! measured. Memory is bounded: [`SAMPLES`] rows of single-precision numbers.

use super::exposition::{Buckets, Exposition, percentile};
use crate::answers::Answer;
use crate::answers::Query;
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many samples are kept: ten minutes of them.
const SAMPLES: usize = 600;
/// Seconds over which percentiles are taken: single ones have too few of what is measured by a
/// sample.
const SMOOTH: usize = 5;

/// How a column is made.
#[derive(Clone, Copy)]
enum Column {
    /// How much a number, or the sum of all numbers whose names begin so, grows in a second.
    Rate(&'static str),
    /// A number as it is.
    Gauge(&'static str),
    /// A share of what a histogram gained: which histogram, and the share.
    Percentile(&'static str, f64),
    /// 1 while something limits transactions, else 0.
    Limited,
}

use Column::{Gauge, Limited, Percentile, Rate};

/// The columns, by the names they have in JSON.
const COLUMNS: [(&str, Column); 31] = [
    ("started", Rate("plinth_transactions_started_total{")),
    ("committed", Rate("plinth_commits_total{outcome=\"committed\"}")),
    ("conflicted", Rate("plinth_commits_total{outcome=\"conflicted\"}")),
    ("too_old", Rate("plinth_commits_total{outcome=\"too_old\"}")),
    ("refused", Rate("plinth_commits_total{outcome=\"refused\"}")),
    ("keys_read", Rate("plinth_keys_read_total")),
    ("bytes_read", Rate("plinth_read_bytes_total")),
    ("mutations", Rate("plinth_mutations_total")),
    ("bytes_written", Rate("plinth_log_written_bytes_total")),
    ("requests", Rate("plinth_server_requests_total")),
    ("bytes_received", Rate("plinth_server_received_bytes_total")),
    ("bytes_sent", Rate("plinth_server_sent_bytes_total")),
    ("cores", Rate("plinth_server_cpu_seconds_total")),
    ("read_p50", Percentile("plinth_read_seconds", 0.5)),
    ("read_p99", Percentile("plinth_read_seconds", 0.99)),
    ("commit_p50", Percentile("plinth_commit_seconds", 0.5)),
    ("commit_p99", Percentile("plinth_commit_seconds", 0.99)),
    ("sync_p50", Percentile("plinth_log_sync_seconds", 0.5)),
    ("sync_p99", Percentile("plinth_log_sync_seconds", 0.99)),
    ("start_p50", Percentile("plinth_start_wait_seconds", 0.5)),
    ("start_p99", Percentile("plinth_start_wait_seconds", 0.99)),
    ("commit_queue", Gauge("plinth_commit_queue_transactions")),
    ("commit_queue_bytes", Gauge("plinth_commit_queue_bytes")),
    ("start_queue", Gauge("plinth_start_queue_transactions")),
    ("watches", Gauge("plinth_watches")),
    ("connections", Gauge("plinth_server_connections")),
    ("data_bytes", Gauge("plinth_data_bytes")),
    ("disk_bytes", Gauge("plinth_disk_used_bytes")),
    ("log_bytes", Gauge("plinth_log_disk_bytes")),
    ("window_bytes", Gauge("plinth_memory_bytes{part=\"window\"}")),
    ("limited", Limited),
];

/// Not limited: what `plinth_limited_by` says while the clients alone set the pace.
const UNLIMITED: &str = "plinth_limited_by{cause=\"workload\"}";

type Row = [f32; COLUMNS.len()];

/// The samples, from the oldest.
#[derive(Default)]
pub(super) struct History(Mutex<Samples>);

#[derive(Default)]
struct Samples {
    rows: VecDeque<(Duration, Row)>,
    /// The number of the first row.
    first: u64,
    /// The totals of the moment before, a place for each column, and when that was.
    totals: Option<(Duration, [f64; COLUMNS.len()])>,
    /// What the histograms were in the last seconds, a place for each column that is a percentile.
    histograms: VecDeque<Vec<Buckets>>,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the measurements of this moment, which clocks are given with, in.
    pub(super) fn take(&self, now: Duration, wall_clock: Duration, text: &str) {
        let read = Exposition::read(text);
        let mut samples = self.lock();
        let histograms = histograms(&read);
        let totals = COLUMNS.map(|(_, column)| match column {
            Rate(name) if name.ends_with('{') => read.sum(name).unwrap_or(f64::NAN),
            Rate(name) => read.number(name).unwrap_or(f64::NAN),
            _ => f64::NAN,
        });
        // The first moment has nothing to compare with, so it is no sample.
        if let Some((then, before)) = samples.totals.replace((now, totals)) {
            let seconds = now.saturating_sub(then).as_secs_f64().max(1e-3);
            let oldest = samples.histograms.front();
            let mut next_histogram = 0;
            let mut row = [f32::NAN; COLUMNS.len()];
            for (at, (_, column)) in COLUMNS.iter().enumerate() {
                let value = match column {
                    Rate(_) => ((totals[at] - before[at]) / seconds).max(0.0),
                    Gauge(name) => read.number(name).unwrap_or(f64::NAN),
                    Limited => f64::from(u8::from(read.number(UNLIMITED).is_none())),
                    Percentile(_, share) => {
                        let place = next_histogram;
                        next_histogram += 1;
                        let found = oldest.and_then(|oldest| {
                            percentile(&oldest[place], &histograms[place], *share)
                        });
                        found.unwrap_or(f64::NAN)
                    }
                };
                // Not clamped where it is not known: `max` would make a zero of it.
                row[at] = if totals[at].is_nan() && matches!(column, Rate(_)) {
                    f32::NAN
                } else {
                    value as f32
                };
            }
            samples.push(wall_clock, row);
        }
        samples.histograms.push_back(histograms);
        if samples.histograms.len() > SMOOTH {
            samples.histograms.pop_front();
        }
    }

    /// The samples from number `since` on, and what their columns are called.
    ///
    /// # Errors
    /// `400` if `since` is no number.
    pub(super) fn document(&self, query: &Query, boot: &str) -> Result<String, Answer> {
        let since = query.number("since")?.unwrap_or(0);
        let samples = self.lock();
        let next = samples.first + samples.rows.len() as u64;
        // A number that isn't given yet is of another start of the server.
        let from = if since > next { samples.first } else { since.max(samples.first) };
        let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let mut text = String::with_capacity(1024);
        // Writing to a string can't fail, here and below.
        let _ = write!(
            text,
            "{{\"boot\":\"{boot}\",\"interval_seconds\":1,\"capacity\":{SAMPLES},\"from\":{from},\"next\":{next},\
             \"columns\":[\"time\",\"{}\"],\"samples\":[",
            names.join("\",\"")
        );
        let skipped = usize::try_from(from - samples.first).unwrap_or(usize::MAX);
        for (at, (time, row)) in samples.rows.iter().skip(skipped).enumerate() {
            let _ = write!(text, "{}[{}", if at > 0 { "," } else { "" }, time.as_secs());
            row.iter().for_each(|value| put(&mut text, *value));
            text.push(']');
        }
        text.push_str("]}");
        Ok(text)
    }
}

impl Samples {
    fn push(&mut self, time: Duration, row: Row) {
        if self.rows.len() == SAMPLES {
            self.rows.pop_front();
            self.first += 1;
        }
        self.rows.push_back((time, row));
    }
}

fn histograms(read: &Exposition<'_>) -> Vec<Buckets> {
    let of = |column: &(&str, Column)| match column.1 {
        Percentile(name, _) => Some(read.buckets(name)),
        _ => None,
    };
    COLUMNS.iter().filter_map(of).collect()
}

/// A number with the digits that a chart can show.
fn put(text: &mut String, value: f32) {
    text.push(',');
    if !value.is_finite() {
        text.push_str("null");
        return;
    }
    let value = f64::from(value);
    let places =
        if value == 0.0 { 0 } else { (4 - value.abs().log10().floor() as i32).clamp(0, 12) };
    let scale = 10_f64.powi(places);
    let _ = write!(text, "{}", (value * scale).round() / scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn text(second: u64) -> String {
        let limited = if second.is_multiple_of(2) { "workload" } else { "log_server_write_queue" };
        format!(
            "plinth_commits_total{{outcome=\"committed\"}} {}\nplinth_transactions_started_total{{p=\"a\"}} {}\n\
             plinth_transactions_started_total{{p=\"b\"}} {second}\nplinth_watches 7\n\
             plinth_limited_by{{cause=\"{limited}\"}} 1\n\
             plinth_commit_seconds_bucket{{le=\"0.001\"}} {}\nplinth_commit_seconds_bucket{{le=\"+Inf\"}} {}\n",
            100 * second,
            2 * second,
            10 * second,
            10 * second,
        )
    }

    fn document(history: &History, query: &str) -> Value {
        let query = Query::parse(query).ok().unwrap();
        serde_json::from_str(&history.document(&query, "b").ok().unwrap()).unwrap()
    }

    fn at(document: &Value, row: usize, name: &str) -> Value {
        let columns = document["columns"].as_array().unwrap();
        let place = columns.iter().position(|column| column == name).unwrap();
        document["samples"][row][place].clone()
    }

    #[test]
    fn rates_gauges_and_percentiles_have_their_columns() {
        let history = History::default();
        (0..4).for_each(|second| {
            history.take(
                Duration::from_secs(second),
                Duration::from_secs(1000 + second),
                &text(second),
            );
        });
        let all = document(&history, "");
        assert_eq!(all["samples"].as_array().unwrap().len(), 3, "the first moment is no sample");
        assert_eq!(at(&all, 0, "time"), 1001);
        assert_eq!(at(&all, 0, "committed"), 100);
        assert_eq!(at(&all, 2, "started"), 3);
        assert_eq!(at(&all, 2, "watches"), 7);
        assert_eq!(at(&all, 1, "commit_p50"), 0.0005);
        assert_eq!((at(&all, 0, "limited"), at(&all, 1, "limited")), (1.into(), 0.into()));
        assert_eq!(at(&all, 0, "keys_read"), Value::Null, "what isn't said is not zero");
        assert_eq!(at(&all, 0, "read_p50"), Value::Null);
    }

    #[test]
    fn a_page_asks_for_what_it_lacks_and_memory_is_bounded() {
        let history = History::default();
        (0..=SAMPLES as u64 + 50).for_each(|second| {
            history.take(Duration::from_secs(second), Duration::from_secs(second), &text(second));
        });
        let all = document(&history, "");
        assert_eq!((all["from"].as_u64(), all["next"].as_u64()), (Some(50), Some(650)));
        assert_eq!(all["samples"].as_array().unwrap().len(), SAMPLES);
        let news = document(&history, "since=648");
        assert_eq!(
            (news["from"].as_u64(), news["samples"].as_array().unwrap().len()),
            (Some(648), 2)
        );
        assert_eq!(document(&history, "since=650")["samples"].as_array().unwrap().len(), 0);
        let stranger = document(&history, "since=99999999999");
        assert_eq!(stranger["samples"].as_array().unwrap().len(), SAMPLES, "of another start");
        assert!(history.lock().histograms.len() <= SMOOTH);
        assert!(
            Query::parse("since=x")
                .ok()
                .is_some_and(|query| history.document(&query, "b").is_err())
        );
    }

    #[test]
    fn numbers_have_the_digits_that_a_chart_shows() {
        let said = |value: f32| {
            let mut text = String::new();
            put(&mut text, value);
            text
        };
        assert_eq!(said(0.0), ",0");
        assert_eq!(said(1234.5678), ",1234.6");
        assert_eq!(said(0.000_123_456_7), ",0.00012346");
        assert_eq!(said(9_876_543_200.0), ",9876543488");
        assert_eq!((said(f32::NAN), said(f32::INFINITY)), (",null".to_owned(), ",null".to_owned()));
    }
}
