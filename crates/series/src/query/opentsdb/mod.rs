//! OpenTSDB's questions over HTTP, as Grafana's data source for it asks them: points a step at a
//! time (`/api/query`), and which names there are (`/api/suggest`, `/api/aggregators`).
//!
//! A query becomes an expression of PromQL: the points of each step become one, by the function of
//! its `downsample`, then series with the same tags become one, by the aggregator.
//!
//! ```text
//!   sum:1m-avg:cpu{host=*}  -->  sum by ("host") (avg_over_time({__name__="cpu","host"=~".+"}[60000ms]))
//! ```
//!
//! A step has its first nanosecond and not that of the next one, and its beginning for its time, as
//! OpenTSDB's have. Where a series has no point in a step it has no part in it: nothing is
//! interpolated, so the answers are those of OpenTSDB where all series have points in all steps.
//! Without a downsample there would be only interpolation, so one is asked for.

mod asked;

use super::prometheus::{StoreSource, find, form_pairs, labels_of};
use crate::store::{Listing, SeriesStore};
use asked::{Asked, One, Operator, Rate, quoted};
use plinth_promql::{Answered, Labels, NAME, Options, Sample, parse_selector};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Series of one query.
const MAX_SERIES: usize = 20_000;
/// How long a query may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Names that are suggested, if it isn't said how many, and at most; and lists that are looked
/// through for them.
const SUGGESTED: usize = 25;
const MAX_SUGGESTED: usize = 10_000;
const MAX_LISTS: usize = 10_000;
const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// Aggregators, by their names.
const AGGREGATORS: [&str; 14] = [
    "avg", "count", "dev", "max", "mimmax", "mimmin", "min", "none", "p50", "p75", "p95", "p99",
    "sum", "zimsum",
];

/// Whether the body of a question is OpenTSDB's: Akumuli's have another form at the same paths.
pub fn is_opentsdb(path: &str, body: &[u8]) -> bool {
    let field = match path {
        "/api/query" => "queries",
        "/api/suggest" => "type",
        _ => return false,
    };
    let body = serde_json::from_slice::<Json>(body);
    body.is_ok_and(|body| body.get(field).is_some())
}

/// What is the same whatever series there are: the aggregators, and the filters of tags.
pub fn opentsdb_fixed(path: &str) -> Option<String> {
    const FILTERS: [&str; 7] = [
        "literal_or",
        "iliteral_or",
        "not_literal_or",
        "wildcard",
        "iwildcard",
        "regexp",
        "not_key",
    ];
    match path {
        "/api/aggregators" => Some(json!(AGGREGATORS).to_string()),
        "/api/config/filters" => {
            let filters: Map<_, _> =
                FILTERS.iter().map(|name| (name.to_string(), json!({}))).collect();
            Some(Json::from(filters).to_string())
        }
        _ => None,
    }
}

/// Answers a question: the status and JSON. Parameters stand in the URL, or all of it in the body;
/// `now` is nanoseconds since 1970.
pub async fn opentsdb(
    store: &SeriesStore,
    path: &str,
    (url, body): (&[u8], &[u8]),
    now: i64,
) -> (u16, String) {
    let body = if body.is_empty() { Ok(Json::Null) } else { serde_json::from_slice(body) };
    let answered = match body {
        Err(why) => Err(format!("no JSON: {why}")),
        Ok(body) if path == "/api/suggest" => suggest(store, &form_pairs(url), &body).await,
        Ok(body) => match asked(url, &body, now) {
            Ok(asked) => query(store, &asked).await,
            Err(why) => Err(why),
        },
    };
    match answered {
        Ok(answer) => (200, answer.to_string()),
        Err(why) => (400, json!({ "error": { "code": 400, "message": why } }).to_string()),
    }
}

/// What is asked for, in the body, or in the address if there is none.
fn asked(url: &[u8], body: &Json, now: i64) -> Result<Asked, String> {
    match body {
        Json::Null => Asked::of_parameters(&form_pairs(url), now),
        body => Asked::of_json(body, now),
    }
}

/// The expressions of PromQL that a question is answered by.
///
/// # Errors
/// What is wrong with it.
pub fn opentsdb_expressions((url, body): (&[u8], &[u8]), now: i64) -> Result<Vec<String>, String> {
    let body = if body.is_empty() { Ok(Json::Null) } else { serde_json::from_slice(body) };
    let asked = asked(url, &body.map_err(|why| why.to_string())?, now)?;
    Ok(asked.queries.iter().map(|one| one.expression(&one.selector())).collect())
}

async fn query(store: &SeriesStore, asked: &Asked) -> Result<Json, String> {
    let mut answers = Vec::new();
    for one in &asked.queries {
        answers.extend(answer(store, asked, one).await?);
    }
    Ok(Json::Array(answers))
}

/// The series that one query comes to.
async fn answer(store: &SeriesStore, asked: &Asked, one: &One) -> Result<Vec<Json>, String> {
    let selector = one.selector();
    let matchers = parse_selector(&selector).map_err(|why| why.to_string())?;
    let found = find(store, &matchers, MAX_SERIES).await.map_err(|why| why.to_string())?;
    let mut groups: BTreeMap<Labels, Group> = BTreeMap::new();
    for found in &found {
        let labels = labels_of(&found.name);
        groups.entry(one.group(&labels)).or_default().add(&labels);
    }
    let bucket = |time: i64| time.div_euclid(one.step).saturating_mul(one.step);
    let last = |bucket: i64| bucket.saturating_add(one.step - 1);
    let steps = (last(bucket(asked.start)), last(bucket(asked.end)), one.step);
    let source = StoreSource::new(store, TIMEOUT);
    let text = one.expression(&selector);
    let value = plinth_promql::range(&source, &text, steps, &Options::default()).await;
    let Answered::Matrix(series) = value.map_err(|why| why.to_string())?.value else {
        return Err("the query came to no series".to_owned());
    };
    let series = series.into_iter().map(|(labels, samples)| {
        let group = groups.get(&one.group(&labels)).cloned().unwrap_or_default();
        let samples = match &one.rate {
            Some(rate) => rated(rate, &samples),
            None => samples,
        };
        let unit = if asked.is_fine { MILLISECOND } else { SECOND };
        let point = |(time, value): &Sample| {
            ((time - (one.step - 1)).div_euclid(unit).to_string(), Json::from(*value))
        };
        let points: Map<_, _> =
            samples.iter().filter(|sample| sample.1.is_finite()).map(point).collect();
        json!({
            "metric": one.metric,
            "tags": group.same,
            "aggregateTags": group.different,
            "dps": points,
        })
    });
    Ok(series.collect())
}

/// What the series of a group have in common, and what they don't.
#[derive(Clone, Default)]
struct Group {
    same: BTreeMap<String, String>,
    different: BTreeSet<String>,
    count: usize,
}

impl Group {
    fn add(&mut self, labels: &Labels) {
        let tags = labels.iter().filter(|(label, _)| *label != NAME);
        let tags: BTreeMap<String, String> =
            tags.map(|(label, value)| (label.to_string(), value.to_string())).collect();
        if self.count == 0 {
            self.same = tags;
        } else {
            let differs = |(label, value): &(&String, &String)| tags.get(*label) != Some(value);
            let gone: Vec<String> =
                self.same.iter().filter(differs).map(|(label, _)| label.clone()).collect();
            self.same.retain(|label, _| !gone.contains(label));
            self.different.extend(gone);
            let new = tags.into_keys().filter(|label| !self.same.contains_key(label));
            self.different.extend(new);
        }
        self.count += 1;
    }
}

impl One {
    /// The expression for all of its steps.
    fn expression(&self, selector: &str) -> String {
        let step = self.step / MILLISECOND;
        let sampled = format!("{selector}[{step}ms]");
        let sampled = self.sample.of(&sampled, "");
        let by: Vec<String> = self.by.iter().map(|label| quoted(label)).collect();
        match &self.aggregate {
            Some(aggregate) => aggregate.of(&sampled, &format!(" by ({}) ", by.join(","))),
            None => sampled,
        }
    }

    /// The labels of the group that a series is in.
    fn group(&self, labels: &Labels) -> Labels {
        let is_kept = |label: &str| match self.aggregate {
            Some(_) => self.by.iter().any(|by| by == label),
            None => label != NAME,
        };
        labels.iter().filter(|(label, _)| is_kept(label)).collect()
    }
}

impl Operator {
    fn of(&self, what: &str, by: &str) -> String {
        match self.number {
            Some(number) => format!("{}{by}({number}, {what})", self.name),
            None => format!("{}{by}({what})", self.name),
        }
    }
}

/// The change a second from each sample to the next.
fn rated(rate: &Rate, samples: &[Sample]) -> Vec<Sample> {
    let one = |pair: &[Sample]| {
        let ((before, from), (time, to)) = (pair[0], pair[1]);
        let change = match to - from {
            change if change >= 0.0 || !rate.is_counter => change,
            // It went round, or nobody knows how far it was when it began again.
            change => change + rate.counter_max?,
        };
        Some((time, change / ((time - before) as f64 / SECOND as f64)))
    };
    samples.windows(2).filter_map(one).collect()
}

/// Names that begin with a text: metrics, keys or values of tags.
async fn suggest(
    store: &SeriesStore,
    pairs: &[(String, String)],
    body: &Json,
) -> Result<Json, String> {
    let get = |name: &str| {
        let pair = pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
        pair.or_else(|| match &body[name] {
            Json::String(text) => Some(text.clone()),
            Json::Number(number) => Some(number.to_string()),
            _ => None,
        })
    };
    let prefix = get("q").unwrap_or_default();
    let max = get("max").and_then(|max| max.parse().ok()).unwrap_or(SUGGESTED);
    let max = max.min(MAX_SUGGESTED);
    let list = async |listing: Listing, prefix: &str, limit: usize| {
        store.list(&listing, prefix, None, limit).await.map_err(|why| why.to_string())
    };
    let kind = get("type").unwrap_or_default();
    if kind == "metrics" {
        return list(Listing::Metrics, &prefix, max).await.map(Json::from);
    }
    if kind != "tagk" && kind != "tagv" {
        return Err("type is none of metrics, tagk, tagv".to_owned());
    }
    let mut found = BTreeSet::new();
    for metric in list(Listing::Metrics, "", MAX_LISTS).await? {
        if kind == "tagk" {
            found.extend(list(Listing::Tags { metric }, &prefix, max).await?);
        } else {
            for tag in list(Listing::Tags { metric: metric.clone() }, "", MAX_LISTS).await? {
                let values = Listing::Values { metric: metric.clone(), tag };
                found.extend(list(values, &prefix, max).await?);
            }
        }
        if found.len() >= max {
            break;
        }
        super::pause().await;
    }
    Ok(found.into_iter().take(max).collect::<Vec<_>>().into())
}
