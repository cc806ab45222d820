//! What senders say of metrics besides their points, as `/api/v1/metadata` gives it.
//!
//! It is in memory, as in a Prometheus: senders say it again. A server has what it was sent itself.

use plinth_series::form_pairs;
use plinth_series::ingest::Metadata;
use plinth_types::MetricSet;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Metrics of which something is known, at most; of others nothing is.
const MAX_METRICS: usize = 20_000;

/// What is known of metrics.
#[derive(Default)]
pub(super) struct Described(Mutex<BTreeMap<String, Metadata>>);

impl Described {
    /// Takes what was said, in place of what was before.
    pub(super) fn take(&self, all: Vec<Metadata>) {
        if all.is_empty() {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for metadata in all {
            if known.len() < MAX_METRICS || known.contains_key(&metadata.metric) {
                known.insert(metadata.metric.clone(), metadata);
            }
        }
    }

    /// Takes what this server says of what it records of itself, but of nothing of which a sender
    /// has said something: `process_*` are other programs' too.
    pub(super) fn take_own(&self, all: Vec<Metadata>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for metadata in all {
            if known.len() < MAX_METRICS {
                known.entry(metadata.metric.clone()).or_insert(metadata);
            }
        }
    }

    /// The answer to a request with these parameters: `metric`, if it is about one, and `limit`;
    /// for somebody for whom there are these metrics, or all.
    pub(super) fn answer(&self, parameters: &[&[u8]], metrics: Option<&MetricSet>) -> String {
        let is_shown = |metric: &str| metrics.is_none_or(|metrics| metrics.has(metric));
        let parameters = || parameters.iter().flat_map(|part| form_pairs(part));
        let of = |wanted: &str| parameters().find(|(name, _)| name == wanted).map(|(_, it)| it);
        let limit = of("limit").and_then(|limit| limit.parse().ok()).unwrap_or(0);
        let limit = if limit == 0 { usize::MAX } else { limit };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |metadata: &Metadata| {
            let Metadata { metric, kind, help, unit } = metadata;
            (metric.clone(), json!([{ "type": kind, "help": help, "unit": unit }]))
        };
        let data: Map<String, Value> = match of("metric").filter(|metric| !metric.is_empty()) {
            Some(metric) => {
                let found = known.get(&metric).filter(|_| is_shown(&metric));
                found.map(one).into_iter().take(limit).collect()
            }
            None => {
                let shown = known.values().filter(|one| is_shown(&one.metric));
                shown.map(one).take(limit).collect()
            }
        };
        json!({ "status": "success", "data": data }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(metric: String) -> Metadata {
        Metadata { metric, kind: "gauge", help: "h".to_owned(), unit: String::new() }
    }

    #[test]
    fn what_is_known_is_bounded_and_renewed() {
        let known = Described::default();
        known.take((0..MAX_METRICS + 5).map(|n| metadata(format!("m{n:06}"))).collect());
        let mut newer = metadata("m000007".to_owned());
        newer.kind = "counter";
        known.take(vec![newer]);
        assert_eq!(known.0.lock().unwrap().len(), MAX_METRICS);
        let answer = known.answer(&[b"metric=m000007"], None);
        let expected =
            r#"{"data":{"m000007":[{"help":"h","type":"counter","unit":""}]},"status":"success"}"#;
        assert_eq!(answer, expected);
        assert!(
            known.answer(&[b"limit=2"], None).contains("m000001")
                && !known.answer(&[b"limit=2"], None).contains("m000002")
        );
        assert_eq!(known.answer(&[b"metric=none"], None), r#"{"data":{},"status":"success"}"#);
    }

    #[test]
    fn what_a_sender_has_said_of_a_metric_stays() {
        let known = Described::default();
        let theirs = metadata("process_cpu_seconds_total".to_owned());
        known.take(vec![theirs.clone()]);
        let ours =
            |metric: &str| Metadata { help: "ours".to_owned(), ..metadata(metric.to_owned()) };
        known.take_own(vec![ours(&theirs.metric), ours("plinth_available")]);
        let told = |metric: &str| known.answer(&[format!("metric={metric}").as_bytes()], None);
        assert!(told(&theirs.metric).contains(r#""help":"h""#));
        assert!(told("plinth_available").contains(r#""help":"ours""#));
    }
}
