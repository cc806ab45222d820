//! Prometheus' query interface over the same series, so that Grafana shows them with the data source that it has: a documented part of PromQL.
//!
//! A request is a path and parameters; its answer a status and JSON, as Prometheus gives them. A metric may have points in its name, since
//! those of Akumuli do; everything else is as Prometheus' manual has it, or an error that says what is understood.

mod evaluate;
mod parse;

use crate::name::plain;
use crate::store::{Listing, SeriesStore};
use crate::time::{duration, parse_iso};
use evaluate::{Evaluator, Failure, Steps, Values, find, labels_of};
use parse::NAME;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;

/// Steps of a range at most, as in Prometheus.
const MAX_STEPS: i64 = 11_000;
/// Series, labels or values in one list.
const MAX_LISTED: usize = 100_000;
const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// Whether a path is answered here.
pub fn is_prometheus(path: &str) -> bool {
    let Some(path) = path.strip_prefix("/api/v1/") else { return false };
    let fixed = ["query", "query_range", "labels", "series"];
    fixed.contains(&path) || fixed_answer(path).is_some() || label_of(path).is_some()
}

/// What is always the same: there are no rules, no alerts, no exemplars, and nothing is known of metrics but their points. Clients ask nevertheless, and
/// take an error for a fault of the server.
fn fixed_answer(path: &str) -> Option<Json> {
    match path {
        "metadata" => Some(json!({})),
        "query_exemplars" => Some(json!([])),
        "rules" => Some(json!({ "groups": [] })),
        "alerts" => Some(json!({ "alerts": [] })),
        // The version by which clients decide what to ask: from this one on label values are asked for with `match[]`.
        "status/buildinfo" => Some(json!({ "version": "2.24.0", "application": "plinth" })),
        _ => None,
    }
}

fn label_of(path: &str) -> Option<&str> {
    path.strip_prefix("label/")?.strip_suffix("/values")
}

/// Answers a request whose path is Prometheus': the status and JSON. `encoded` are the URL's parameters and the body's, `now` is
/// nanoseconds since 1970.
pub async fn prometheus(store: &SeriesStore, path: &str, encoded: &[&[u8]], now: i64) -> (u16, String) {
    let parameters = Parameters(encoded.iter().flat_map(|part| form_pairs(part)).collect());
    let path = path.strip_prefix("/api/v1/").unwrap_or_default();
    let data = match path {
        "query" | "query_range" => query(store, path == "query_range", &parameters, now).await,
        "labels" => labels(store, &parameters).await,
        "series" => series(store, &parameters).await,
        path => match fixed_answer(path) {
            Some(data) => Ok(data),
            None => label_values(store, label_of(path).unwrap_or_default(), &parameters).await,
        },
    };
    match data {
        Ok(data) => (200, json!({ "status": "success", "data": data }).to_string()),
        Err(failure) => failed(failure),
    }
}

/// The status and JSON of what came to nothing.
fn failed(failure: Failure) -> (u16, String) {
    let (status, kind, text) = match failure {
        Failure::Asked(text) => (400, "bad_data", text),
        Failure::Store(error) => (503, "unavailable", error.to_string()),
    };
    (status, json!({ "status": "error", "errorType": kind, "error": text }).to_string())
}

/// What was sent, decoded.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn time(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let wrong = || Failure::Asked(format!("parameter `{name}`: seconds since 1970 or RFC 3339 expected"));
        time(text).map(Some).ok_or_else(wrong)
    }
}

/// The names and values of a form, or of what stands in a URL behind the question mark.
pub fn form_pairs(text: &[u8]) -> Vec<(String, String)> {
    let plain = |text: &[u8]| {
        let (mut bytes, mut rest) = (Vec::new(), text);
        while let [first, tail @ ..] = rest {
            rest = tail;
            let hex = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
            bytes.push(match (first, tail) {
                (b'+', _) => b' ',
                (b'%', [high, low, after @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                    rest = after;
                    hex(high).unwrap_or(0) * 16 + hex(low).unwrap_or(0)
                }
                _ => *first,
            });
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let pair = |pair: &[u8]| {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        (plain(parts.next().unwrap_or_default()), plain(parts.next().unwrap_or_default()))
    };
    pairs.map(pair).collect()
}

/// Nanoseconds of seconds since 1970 or of RFC 3339 in UTC, to the millisecond.
fn time(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        let milliseconds = (seconds * 1000.0).round();
        return (milliseconds.abs() < 9.2e12).then_some(milliseconds as i64 * 1_000_000);
    }
    let basic: Vec<u8> = text.strip_suffix('Z')?.bytes().filter(|byte| !b"-:".contains(byte)).collect();
    parse_iso(&basic)
}

async fn query(
    store: &SeriesStore,
    is_range: bool,
    parameters: &Parameters,
    now: i64,
) -> Result<Json, Failure> {
    let Some(text) = parameters.get("query") else {
        return Err(Failure::Asked("parameter `query` is missing".into()));
    };
    let steps = if is_range {
        range(parameters)?
    } else {
        Steps { first: parameters.time("time")?.unwrap_or(now), count: 1, step: 1 }
    };
    let mut evaluator = Evaluator::new(store, steps);
    if !is_range && let Some((selector, range)) = parse::points(text).map_err(Failure::Asked)? {
        let series = evaluator.points(&selector, range).await?;
        let samples = |points: Vec<(i64, f64)>| -> Vec<Json> {
            points.into_iter().map(|(time, value)| json!([seconds(time), number(value)])).collect()
        };
        let series =
            series.into_iter().map(|(labels, points)| json!({ "metric": labels, "values": samples(points) }));
        return Ok(json!({ "resultType": "matrix", "result": series.collect::<Vec<Json>>() }));
    }
    let expression = parse::expression(text).map_err(Failure::Asked)?;
    let values = evaluator.value(&expression).await?;
    let sample = |place: usize, value: f64| json!([seconds(steps.time(place)), number(value)]);
    let vector = match values {
        Values::Scalar(value) if !is_range => {
            return Ok(json!({ "resultType": "scalar", "result": sample(0, value) }));
        }
        Values::Scalar(value) => vec![(evaluate::Labels::new(), vec![Some(value); steps.count])],
        Values::Vector(vector) => vector,
    };
    let series = |(labels, column): (evaluate::Labels, evaluate::Column)| {
        let metric: Map<String, Json> =
            labels.into_iter().map(|(label, value)| (label, Json::from(value))).collect();
        let samples = column.into_iter().enumerate().filter_map(|(place, cell)| Some(sample(place, cell?)));
        let mut samples: Vec<Json> = samples.collect();
        match is_range {
            _ if samples.is_empty() => None,
            true => Some(json!({ "metric": metric, "values": samples })),
            false => Some(json!({ "metric": metric, "value": samples.swap_remove(0) })),
        }
    };
    let result: Vec<Json> = vector.into_iter().filter_map(series).collect();
    Ok(json!({ "resultType": if is_range { "matrix" } else { "vector" }, "result": result }))
}

fn range(parameters: &Parameters) -> Result<Steps, Failure> {
    let missing = |name: &str| Failure::Asked(format!("parameter `{name}` is missing"));
    let start = parameters.time("start")?.ok_or_else(|| missing("start"))?;
    let end = parameters.time("end")?.ok_or_else(|| missing("end"))?;
    let text = parameters.get("step").ok_or_else(|| missing("step"))?;
    let step = time(text).or_else(|| duration(text)).filter(|step| *step > 0);
    let step = step.ok_or_else(|| {
        Failure::Asked("parameter `step`: seconds or a duration such as 15s expected, more than 0".into())
    })?;
    let count = (i128::from(end) - i128::from(start)) / i128::from(step) + 1;
    if end < start || count > i128::from(MAX_STEPS) {
        return Err(Failure::Asked(format!(
            "from `start` to `end` there have to be 1 to {MAX_STEPS} steps, not {count}"
        )));
    }
    Ok(Steps { first: start, count: count as usize, step })
}

/// Seconds with milliseconds, as a number of JSON.
fn seconds(time: i64) -> Json {
    match time {
        time if time % SECOND == 0 => json!(time / SECOND),
        // Rounded once, by the division: nanoseconds since 1970 are more than a float holds.
        time if time % MILLISECOND == 0 => json!((time / MILLISECOND) as f64 / 1e3),
        time => json!(time as f64 / 1e9),
    }
}

/// A value as Prometheus prints it.
fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".into(),
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        value if value == 0.0 || (1e-6..1e21).contains(&value.abs()) => value.to_string(),
        // Go's form: the exponent has a sign, and two digits at least.
        value => {
            let text = format!("{value:e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            match exponent.strip_prefix('-') {
                Some(exponent) => format!("{digits}e-{exponent:0>2}"),
                None => format!("{digits}e+{exponent:0>2}"),
            }
        }
    }
}

/// The series that `match[]` names; `None` if it names none.
async fn matched(
    store: &SeriesStore,
    parameters: &Parameters,
) -> Result<Option<Vec<evaluate::Labels>>, Failure> {
    let mut found = BTreeSet::new();
    let mut is_any = false;
    for text in parameters.all("match[]") {
        is_any = true;
        let selector = parse::selector(text).map_err(Failure::Asked)?;
        found.extend(find(store, &selector, MAX_LISTED).await?.iter().map(|found| labels_of(&found.name)));
    }
    Ok(is_any.then(|| found.into_iter().collect()))
}

async fn series(store: &SeriesStore, parameters: &Parameters) -> Result<Json, Failure> {
    match matched(store, parameters).await? {
        Some(series) => Ok(json!(series)),
        None => Err(Failure::Asked("parameter `match[]` is missing".into())),
    }
}

async fn labels(store: &SeriesStore, parameters: &Parameters) -> Result<Json, Failure> {
    let mut labels = BTreeSet::new();
    match matched(store, parameters).await? {
        Some(series) => labels.extend(series.into_iter().flat_map(|labels| labels.into_keys())),
        None => {
            for metric in listed(store, Listing::Metrics).await? {
                labels.insert(NAME.to_string());
                let tags = listed(store, Listing::Tags { metric }).await?;
                labels.extend(tags.iter().map(|tag| plain(tag).into_owned()));
                super::pause().await;
            }
        }
    }
    Ok(json!(labels))
}

async fn label_values(store: &SeriesStore, label: &str, parameters: &Parameters) -> Result<Json, Failure> {
    if let Some(series) = matched(store, parameters).await? {
        let values: BTreeSet<String> =
            series.into_iter().filter_map(|mut labels| labels.remove(label)).collect();
        return Ok(json!(values));
    }
    let metrics = listed(store, Listing::Metrics).await?;
    if label == NAME {
        let metrics: BTreeSet<_> = metrics.iter().map(|metric| plain(metric)).collect();
        return Ok(json!(metrics));
    }
    let mut values = BTreeSet::new();
    for metric in metrics {
        let found = listed(store, Listing::Values { metric, tag: label.to_string() }).await?;
        values.extend(found.iter().map(|value| plain(value).into_owned()));
        bounded(values.len())?;
        super::pause().await;
    }
    Ok(json!(values))
}

/// All there is in a list.
async fn listed(store: &SeriesStore, listing: Listing) -> Result<Vec<String>, Failure> {
    let found = store.list(&listing, "", None, MAX_LISTED + 1).await?;
    bounded(found.len())?;
    Ok(found)
}

/// Refuses a list that is too long: a part of it would be taken for all.
fn bounded(count: usize) -> Result<(), Failure> {
    if count <= MAX_LISTED {
        return Ok(());
    }
    Err(Failure::Asked(format!("there are more than {MAX_LISTED}; name series by match[]")))
}

/// Deletes series as Prometheus' administrators do: those that `match[]` names, from `start` to `end`, both included, or whole without either. Gives a status, and
/// JSON if something is wrong.
pub async fn delete_series(store: &SeriesStore, encoded: &[&[u8]]) -> (u16, String) {
    let parameters = Parameters(encoded.iter().flat_map(|part| form_pairs(part)).collect());
    match try_delete(store, &parameters).await {
        Ok(()) => (204, String::new()),
        Err(failure) => failed(failure),
    }
}

async fn try_delete(store: &SeriesStore, parameters: &Parameters) -> Result<(), Failure> {
    let (start, end) = (parameters.time("start")?, parameters.time("end")?);
    let selectors = parameters.all("match[]").map(parse::selector).collect::<Result<Vec<_>, _>>();
    let selectors = selectors.map_err(Failure::Asked)?;
    if selectors.is_empty() {
        return Err(Failure::Asked("parameter `match[]` is missing".into()));
    }
    for selector in selectors {
        for found in find(store, &selector, MAX_LISTED).await? {
            let series = store.reading(&found);
            let deleted = match (start, end) {
                (None, None) => store.delete(&series).await,
                (start, end) => {
                    series.delete_range(start.unwrap_or(i64::MIN)..=end.unwrap_or(i64::MAX)).await
                }
            };
            match deleted {
                // Somebody else did so.
                Ok(()) | Err(crate::Error::Deleted) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
