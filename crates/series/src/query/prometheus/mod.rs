//! Prometheus' query interface over the same series, so that Grafana shows them with the data
//! source that it has.
//!
//! A request is a path and parameters; its answer a status and JSON, as Prometheus gives them. What
//! expressions mean is `plinth-promql`'s; here are the requests, the series that they are about,
//! and the form of answers.

mod answer;
mod asked;
mod exemplars;
mod export;
mod histograms;
mod lists;
mod parameters;
mod read;
mod source;
mod summed;
mod tree;
mod tsdb;

pub use export::Export;
pub use parameters::form_pairs;
pub use read::{ChunkStream, RemoteRead};

use super::held::HeldText;
use crate::store::{Found, SeriesStore};
use answer::Reply;
use parameters::{Parameters, label_of};
use plinth_env::sync::{First, race};
use plinth_promql::ast::Node;
use plinth_promql::{Answered, Error, Options, ParseError, Row, parse_selector};
use serde_json::{Value as Json, json};
use source::find;
pub(super) use source::{Deadline, Selected, StoreSource, labels_of};
use std::collections::BTreeMap;
use std::time::Duration;

/// Series, labels or values in one list.
const MAX_LISTED: usize = 100_000;
/// Samples of an answer.
pub(super) const MAX_SAMPLES: usize = 4 << 20;
/// Series in an answer about one time: they are written into one text.
const MAX_ANSWERED: usize = 20_000;
/// How long an expression is evaluated, as in Prometheus.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The longest that a point may be seen for, if a request says how long.
const MAX_LOOKBACK: i64 = 366 * 86_400 * 1_000_000_000;
const TSDB: &str = "status/tsdb";
const EXEMPLARS: &str = "query_exemplars";
/// What Prometheus says of an answer that was cut off because a request asked for it.
const TRUNCATED: &str = "results truncated due to limit";

type Failure = Error<crate::Error>;

/// Whether a path is answered here.
pub fn is_prometheus(path: &str) -> bool {
    let Some(path) = path.strip_prefix("/api/v1/") else { return false };
    let fixed = [
        "query",
        "query_range",
        "format_query",
        "parse_query",
        "labels",
        "series",
        TSDB,
        EXEMPLARS,
    ];
    fixed.contains(&path) || fixed_answer(path).is_some() || label_of(path).is_some()
}

/// What is always the same: there are no targets; what is said of metrics a server
/// keeps, if anybody does, and one without rules has no alerts. Clients ask nevertheless, and take
/// an error for a fault of the server.
fn fixed_answer(path: &str) -> Option<Json> {
    match path {
        "metadata" => Some(json!({})),
        "rules" => Some(json!({ "groups": [] })),
        "alerts" => Some(json!({ "alerts": [] })),
        "alertmanagers" => Some(json!({ "activeAlertmanagers": [], "droppedAlertmanagers": [] })),
        // A server that scrapes says whom.
        "targets" => {
            Some(json!({ "activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {} }))
        }
        "targets/metadata" => Some(json!([])),
        "status/config" => Some(json!({ "yaml": "" })),
        "status/flags" => Some(json!({})),
        // The version by which clients decide what to ask: from this one on label values are asked
        // for with `match[]`.
        "status/buildinfo" => Some(json!({ "version": "2.24.0", "application": "plinth" })),
        _ => None,
    }
}

/// Answers a request whose path is Prometheus': the status and JSON, which counts among what
/// queries hold until it is dropped. `encoded` are the URL's
/// parameters and the body's, `now` is nanoseconds since 1970.
pub async fn prometheus(
    store: &SeriesStore,
    path: &str,
    encoded: &[&[u8]],
    now: i64,
) -> (u16, HeldText) {
    let parameters = Parameters::of(encoded, now);
    let path = path.strip_prefix("/api/v1/").unwrap_or_default();
    let reply = match path {
        "query" | "query_range" => query(store, path == "query_range", &parameters, now).await,
        "format_query" => {
            parsed(&parameters).map(|node| Json::from(node.to_string())).map(|it| Reply::of(&it))
        }
        "parse_query" => parsed(&parameters).map(|node| Reply::of(&tree::tree(&node))),
        TSDB => tsdb::status(store, &parameters).await,
        EXEMPLARS => exemplars::query(store, &parameters, now).await,
        path => match fixed_answer(path) {
            Some(data) => Ok(Reply::of(&data)),
            None => lists::answer(store, path, &parameters).await,
        },
    };
    let told =
        reply.and_then(|reply| HeldText::count(store, reply.told()).map_err(Failure::Source));
    match told {
        Ok(text) => (200, text),
        Err(failure) => {
            let (status, text) = failed(failure);
            (status, HeldText::short(store, text))
        }
    }
}

/// How many a request wants at most, if it says so.
fn limit(parameters: &Parameters) -> Result<Option<usize>, Failure> {
    let Some(text) = parameters.get("limit") else { return Ok(None) };
    let limit = text.parse().map_err(|_| {
        Failure::Asked("invalid parameter \"limit\": a number, or 0 for none, expected".into())
    })?;
    Ok(Some(limit).filter(|limit| *limit > 0))
}

/// Cuts off what a request doesn't want; whether something was.
fn cut<T>(list: &mut Vec<T>, parameters: &Parameters) -> Result<bool, Failure> {
    let Some(limit) = limit(parameters)? else { return Ok(false) };
    let is_cut = list.len() > limit;
    list.truncate(limit);
    Ok(is_cut)
}

/// The status and JSON of what came to nothing.
fn failed(failure: Failure) -> (u16, String) {
    let (status, kind, text) = match failure {
        Failure::Parse(error) => (400, "bad_data", format!("invalid parameter \"query\": {error}")),
        Failure::Asked(text) => (400, "bad_data", text),
        Failure::Execution(text) => (422, "execution", text),
        Failure::Timeout(text) => (503, "timeout", text),
        Failure::Source(error) => (503, "unavailable", error.to_string()),
    };
    (status, json!({ "status": "error", "errorType": kind, "error": text }).to_string())
}

fn missing(name: &str) -> Failure {
    Failure::Asked(format!("parameter `{name}` is missing"))
}

/// An expression that is asked about, not evaluated.
fn parsed(parameters: &Parameters) -> Result<Node, Failure> {
    plinth_promql::parse(parameters.needed("query")?).map_err(Failure::Parse)
}

async fn query(
    store: &SeriesStore,
    is_range: bool,
    parameters: &Parameters,
    now: i64,
) -> Result<Reply, Failure> {
    let text = parameters.needed("query")?;
    let mut options = Options::default();
    if let Some(lookback) = parameters.duration("lookback_delta")? {
        options.lookback = lookback.min(MAX_LOOKBACK);
    }
    let timeout = parameters.duration("timeout")?.and_then(|timeout| u64::try_from(timeout).ok());
    let timeout = timeout.map_or(TIMEOUT, |timeout| Duration::from_nanos(timeout).min(TIMEOUT));
    let source = StoreSource::new(store, timeout);
    let source = if is_range { source } else { source.for_one_time() };
    let begun = store.env().now();
    let time = parameters.time("time")?.unwrap_or(now);
    let evaluated = async {
        match is_range {
            true => Ok(plinth_promql::range(&source, text, range(parameters)?, &options).await?),
            false => Ok(plinth_promql::instant(&source, text, time, &options).await?),
        }
    };
    // Whoever evaluates looks at the time when rows have come, and they may not.
    let mut answer = match race(evaluated, store.env().sleep(timeout)).await {
        First::Left(answer) => answer?,
        First::Right(()) => return Err(Failure::Timeout(source::timed_out(timeout))),
    };
    if let Answered::Vector(series) = &answer.value
        && series.len() > MAX_ANSWERED
    {
        let count = series.len();
        let why = format!(
            "an answer of {count} series, and {MAX_ANSWERED} are the most; add some of them up, or \
             name more labels"
        );
        return Err(Failure::Asked(why));
    }
    let is_cut = match &mut answer.value {
        Answered::Vector(series) => cut(series, parameters)?,
        Answered::Matrix(series) => cut(series, parameters)?,
        Answered::Scalar(_) | Answered::String(_) => false,
    };
    answer.warnings.extend(is_cut.then(|| TRUNCATED.to_string()));
    if let Answered::Matrix(series) = &answer.value {
        let histograms =
            |row: &Row| row.histograms.iter().map(|(_, one)| one.size()).sum::<usize>();
        let samples: usize = series.iter().map(|row| row.samples.len() + histograms(row)).sum();
        if samples > MAX_SAMPLES {
            let why = format!(
                "more than {MAX_SAMPLES} points; take a larger step, a shorter range or fewer series"
            );
            return Err(Failure::Asked(why));
        }
    }
    let mut data = answer::data(&answer.value, time);
    if parameters.get("stats").is_some_and(|stats| !stats.is_empty()) {
        answer::put_stats(&mut data, answer.took, store.env().now().saturating_sub(begun));
    }
    Ok(Reply { data, warnings: answer.warnings, infos: answer.infos })
}

/// The first step, the end, and from one step to the next.
fn range(parameters: &Parameters) -> Result<(i64, i64, i64), Failure> {
    let start = parameters.time("start")?.ok_or_else(|| missing("start"))?;
    let end = parameters.time("end")?.ok_or_else(|| missing("end"))?;
    let step = parameters.duration("step")?.ok_or_else(|| missing("step"))?;
    if end < start {
        return Err(Failure::Asked(
            "invalid parameter \"end\": end timestamp must not be before start time".into(),
        ));
    }
    Ok((start, end, step))
}

/// The series that `match[]` names, all of its selectors together, by their numbers; `None` if it
/// names none.
async fn selected(
    store: &SeriesStore,
    parameters: &Parameters,
) -> Result<Option<BTreeMap<u64, Found>>, Failure> {
    let mut all = BTreeMap::new();
    let mut is_any = false;
    for text in parameters.all("match[]") {
        is_any = true;
        let matchers = parse_selector(text).map_err(|error| wrong_match(&error))?;
        let found = find(store, &matchers, MAX_LISTED).await?;
        all.extend(found.into_iter().map(|found| (found.id, found)));
        if all.len() > MAX_LISTED {
            let why = format!("more than {MAX_LISTED} series match; name more labels");
            return Err(Failure::Asked(why));
        }
    }
    Ok(is_any.then_some(all))
}

fn wrong_match(error: &ParseError) -> Failure {
    Failure::Asked(format!("invalid parameter \"match[]\": {error}"))
}

/// Nanoseconds since 1970.
fn wall_clock(store: &SeriesStore) -> i64 {
    i64::try_from(store.env().wall_clock().as_nanos()).unwrap_or(i64::MAX)
}

/// Deletes series as Prometheus' administrators do: those that `match[]` names, from `start` to
/// `end`, both included, or whole without either. Gives a status, and JSON if something is wrong.
pub async fn delete_series(store: &SeriesStore, encoded: &[&[u8]]) -> (u16, String) {
    let parameters = Parameters::of(encoded, wall_clock(store));
    match try_delete(store, &parameters).await {
        Ok(()) => (204, String::new()),
        Err(failure) => failed(failure),
    }
}

async fn try_delete(store: &SeriesStore, parameters: &Parameters) -> Result<(), Failure> {
    let (start, end) = (parameters.bound("start")?, parameters.bound("end")?);
    let selectors = parameters.all("match[]").map(parse_selector).collect::<Result<Vec<_>, _>>();
    let selectors = selectors.map_err(|error| wrong_match(&error))?;
    if selectors.is_empty() {
        return Err(missing("match[]"));
    }
    // All are found first: what is refused has deleted nothing.
    let mut all = Vec::new();
    for selector in selectors {
        all.push(find(store, &selector, MAX_LISTED).await?);
    }
    let mut failed = Ok(());
    for found in all.into_iter().flatten() {
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
            // It keeps none of the others.
            Err(error @ crate::Error::Damaged { .. }) => failed = failed.and(Err(error)),
            Err(error) => return Err(Error::Source(error)),
        }
    }
    failed.map_err(Error::Source)
}
