//! Where the series are, `/api/v1/status/tsdb`: which metrics and labels make how many of them.
//!
//! All names are read, a page at a time, so this is for people who look for what is too much. What
//! Prometheus says of its own memory has no counterpart here, and is left out or zero.

use super::source::labels_of;
use super::{Failure, Parameters, Reply};
use crate::store::{SeriesStore, Share};
use plinth_promql::{Error, NAME};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Series that are looked at, and different labels with their values among them.
const MAX_LOOKED_AT: usize = 1_000_000;
/// Entries of each list, if a request doesn't say how many.
const LISTED: usize = 10;

/// What a text takes besides its bytes, about.
const OVERHEAD: usize = 200;

/// How many series have what.
#[derive(Default)]
struct Counts {
    series: usize,
    is_cut: bool,
    /// What the texts here take, about.
    bytes: usize,
    metrics: BTreeMap<String, usize>,
    /// By label: its values, and the bytes of them in all series.
    values: BTreeMap<String, (HashSet<String>, usize)>,
    pairs: BTreeMap<String, usize>,
}

pub(super) async fn status(store: &SeriesStore, parameters: &Parameters) -> Result<Reply, Failure> {
    let limit = match parameters.get("limit").map(str::parse) {
        None => LISTED,
        Some(Ok(limit)) if limit > 0 => limit,
        Some(_) => return Err(Failure::Asked("limit must be a positive number".to_owned())),
    };
    let counts = count(store).await?;
    let by_values = counts.values.iter().map(|(label, (values, _))| (label, values.len()));
    let by_bytes = counts.values.iter().map(|(label, (_, bytes))| (label, *bytes));
    let owned = |(name, count): (&String, &usize)| (name.clone(), *count);
    let data = json!({
        "headStats": {
            "numSeries": counts.series,
            "numLabelPairs": counts.pairs.len(),
            "chunkCount": 0,
            "minTime": 0,
            "maxTime": 0,
        },
        "seriesCountByMetricName": largest(counts.metrics.iter().map(owned), limit),
        "labelValueCountByLabelName":
            largest(by_values.map(|(name, count)| (name.clone(), count)), limit),
        "memoryInBytesByLabelName":
            largest(by_bytes.map(|(name, count)| (name.clone(), count)), limit),
        "seriesCountByLabelValuePair": largest(counts.pairs.iter().map(owned), limit),
    });
    let why = format!("more than {MAX_LOOKED_AT} series or labels: the others were not looked at");
    let warnings = counts.is_cut.then_some(why).into_iter().collect();
    Ok(Reply { warnings, ..Reply::of(&data) })
}

async fn count(store: &SeriesStore) -> Result<Counts, Failure> {
    let (mut counts, mut from) = (Counts::default(), 0);
    let mut share = Share::new(store);
    loop {
        let (page, is_end) = store.page_of_all(from).await.map_err(Error::Source)?;
        for found in &page {
            counts.series += 1;
            for (label, value) in labels_of(&found.name).iter() {
                counts.add(label, value);
            }
        }
        share.hold(counts.bytes).map_err(Error::Source)?;
        counts.is_cut = counts.series.max(counts.pairs.len()) > MAX_LOOKED_AT;
        match page.last() {
            Some(last) if !is_end && !counts.is_cut => from = last.id + 1,
            _ => return Ok(counts),
        }
        crate::query::pause().await;
    }
}

impl Counts {
    fn add(&mut self, label: &str, value: &str) {
        if label == NAME {
            *self.metrics.entry(value.to_owned()).or_default() += 1;
        }
        let (values, bytes) = self.values.entry(label.to_owned()).or_default();
        *bytes += value.len();
        if !values.contains(value) {
            values.insert(value.to_owned());
            // It stands here, in its pair, and, if it is a metric, once more.
            self.bytes += 3 * value.len() + label.len() + OVERHEAD;
        }
        *self.pairs.entry(format!("{label}={value}")).or_default() += 1;
    }
}

/// The entries with the largest counts.
fn largest(all: impl Iterator<Item = (String, usize)>, limit: usize) -> Vec<Json> {
    let mut largest = BTreeSet::new();
    for (name, count) in all {
        largest.insert((std::cmp::Reverse(count), name));
        if largest.len() > limit {
            largest.pop_last();
        }
    }
    largest.into_iter().map(|(count, name)| json!({ "name": name, "value": count.0 })).collect()
}
