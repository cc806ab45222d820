//! Charts of time series: what there is of them by name, and one of them as a few hundred
//! buckets.
//!
//! A name is found as it is typed: first metrics that begin with the text, then, behind a blank,
//! series of the metric whose tags fit. Metrics that servers record of themselves are named apart,
//! so that they hide nobody's. What is charted is the summaries of buckets, so a year
//! costs what a minute does. Times are milliseconds since 1970, as browsers have them, with
//! nanoseconds behind the point.

use super::own;
use crate::answers::{Answer, Query};
use hyper::http::request::Parts;
use plinth_env::Env;
use plinth_series::{Error, Listing, SeriesStore};
use serde_json::{Value, json};

/// Names of an answer.
const NAMES: usize = 50;
/// Pages of a metric's series that are looked through for a tag that is being typed.
const PAGES: usize = 20;
/// Buckets of a chart, unless it is said how many, and at most.
const BUCKETS: u64 = 300;
const MOST_BUCKETS: u64 = 1000;
/// The longest span of a chart, in seconds: more than there is.
const MOST_SECONDS: u64 = 600 * 365 * 86_400;
const MILLISECOND: i64 = 1_000_000;

/// Whether a request is about series.
pub(crate) fn owns(path: &str) -> bool {
    matches!(path, "/api/series" | "/api/points" | "/api/kept")
}

/// Answers by what this server owns.
pub(crate) async fn here(env: &Env, store: &SeriesStore, head: &Parts) -> Result<Answer, Answer> {
    let query = Query::parse(head.uri.query().unwrap_or_default())?;
    match head.uri.path() {
        "/api/series" => names(store, &query).await,
        "/api/kept" => Ok(kept(store)),
        _ => points(env, store, &query).await,
    }
}

/// For how long points and rollups are kept, as the database says, and how far rollups are with
/// what there was before their rules.
fn kept(store: &SeriesStore) -> Answer {
    let (keeping, progress) = (store.known_keeping(), store.stats().rollups);
    let rules: Vec<String> = keeping.rollups().iter().map(ToString::to_string).collect();
    Answer::value(&json!({
        "rollups": rules,
        "retention": keeping.retention(),
        "rolled": progress.looked_at,
        "left": progress.left,
    }))
}

/// An error of series as an answer.
pub(crate) fn failed(error: Error) -> Answer {
    match error {
        Error::Name { .. } => Answer::bad_request(&error.to_string()),
        Error::Database(error) | Error::Locked(error) => Answer::database(&error),
        other => {
            Answer::database(&plinth_types::Error::internal_error().with_detail(other.to_string()))
        }
    }
}

/// What may be meant by `q`: metrics, or series once there is a whole metric.
async fn names(store: &SeriesStore, query: &Query) -> Result<Answer, Answer> {
    let typed = query.text("q").unwrap_or_default().trim_start();
    let Some((metric, tags)) = divide(typed) else {
        return metrics(store, typed).await.map_err(failed);
    };
    let (whole, begun) = tags.rsplit_once(' ').unwrap_or(("", tags));
    let whole = whole.split(' ').filter_map(|tag| tag.split_once('='));
    let whole: Vec<(String, Vec<String>)> =
        whole.map(|(key, value)| (key.to_owned(), vec![value.to_owned()])).collect();
    let begun = format!(" {begun}");
    let (mut names, mut next, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(from) = next.filter(|_| names.len() <= NAMES && pages < PAGES) {
        let (found, behind) = store.browse(Some(metric), &whole, from).await.map_err(failed)?;
        let found = found.iter().map(|series| series.name().to_string());
        names.extend(found.filter(|name| name[metric.len()..].contains(&begun)));
        (next, pages) = (behind, pages + 1);
    }
    Ok(listed("series", names, Vec::new(), next.is_some()))
}

/// Metrics that begin with what was typed.
async fn metrics(store: &SeriesStore, typed: &str) -> Result<Answer, Error> {
    let mut own = Vec::new();
    for begin in own::METRICS {
        // Those that begin with both, which is with the longer one.
        let prefix = if typed.starts_with(begin) { typed } else { begin };
        if !prefix.starts_with(typed) {
            continue;
        }
        for metric in store.list(&Listing::Metrics, prefix, None, NAMES + 1).await? {
            if own::has_own_alone(store, &metric).await? {
                own.push(metric);
            }
        }
    }
    let (mut names, mut after) = (Vec::<String>::new(), None::<String>);
    loop {
        let page = store.list(&Listing::Metrics, typed, after.as_deref(), NAMES + 1).await?;
        let is_end = page.len() <= NAMES;
        for metric in &page {
            if !own::has_own_alone(store, metric).await? {
                names.push(metric.clone());
            }
        }
        if is_end || names.len() > NAMES {
            return Ok(listed("metrics", names, own, false));
        }
        after = page.last().map(|last| own::behind(last));
    }
}

/// A metric and what is behind it, if it is followed by a blank that does not belong to it.
fn divide(typed: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let blank = typed.find(|character| {
        let found = character == ' ' && !escaped;
        escaped = character == '\\' && !escaped;
        found
    });
    blank.map(|blank| (&typed[..blank], typed[blank..].trim_start()))
}

/// The first of some names, and of servers' own, and whether there are more of each, some of which
/// may not have been looked at.
fn listed(kind: &str, mut names: Vec<String>, mut own: Vec<String>, are_more: bool) -> Answer {
    let (more, more_own) = (are_more || names.len() > NAMES, own.len() > NAMES);
    names.truncate(NAMES);
    own.truncate(NAMES);
    Answer::value(
        &json!({ "kind": kind, "names": names, "own": own, "more": more, "more_own": more_own }),
    )
}

/// The series `name` over the last `span` seconds before `to` (now), or all of it, in so many
/// `buckets`.
async fn points(env: &Env, store: &SeriesStore, query: &Query) -> Result<Answer, Answer> {
    let name = query.text("name").ok_or_else(|| Answer::bad_request("name says which series"))?;
    if name.starts_with('!') {
        return Err(Answer::bad_request(
            "this is a series of events, which are texts: there is nothing to chart",
        ));
    }
    let found = store.existing(name).await.map_err(failed)?;
    let series = found.ok_or_else(|| Answer::missing(&format!("there is no series {name}")))?;
    let buckets = query.number("buckets")?.unwrap_or(BUCKETS).clamp(1, MOST_BUCKETS);
    let now = i64::try_from(env.wall_clock().as_nanos()).unwrap_or(i64::MAX);
    let (from, to) = match query.number("span")? {
        Some(seconds) => {
            let to = query
                .number("to")?
                .map_or(Some(now), |to| i64::try_from(to).ok()?.checked_mul(MILLISECOND));
            let to =
                to.ok_or_else(|| Answer::bad_request("to is a time in milliseconds before 2262"))?;
            let nanos = i64::try_from(seconds.clamp(1, MOST_SECONDS).saturating_mul(1_000_000_000));
            (to.saturating_sub(nanos.unwrap_or(i64::MAX)), to)
        }
        None => {
            let all = series.aggregate(..).await.map_err(failed)?;
            all.map_or((now - 1, now), |all| (all.first.time, all.last.time))
        }
    };
    let step = (to.abs_diff(from) / buckets).saturating_add(1);
    // Where there are rollups buckets are such as these answer for, also when points have gone.
    let (from, step) = series.rolled_grid(from, step);
    let mut groups = series.group_aggregate(from..=to, step).await.map_err(failed)?;
    let mut rows = Vec::new();
    while let Some((begin, summary)) = groups.next().await.map_err(failed)? {
        // A lone point stands where it is.
        let time = if summary.count == 1 { summary.first.time } else { begin };
        let number = |point: Option<plinth_series::Point>| point.map(|point| point.value.as_f64());
        rows.push(json!([
            milliseconds(time),
            summary.count,
            summary.mean(),
            number(summary.min),
            number(summary.max),
            summary.last.value.as_f64(),
        ]));
    }
    Ok(Answer::value(&json!({
        "name": series.name().as_str(),
        "from": milliseconds(from),
        "to": milliseconds(to),
        "step": step as f64 / MILLISECOND as f64,
        "columns": ["time", "count", "mean", "min", "max", "last"],
        "points": Value::Array(rows),
    })))
}

fn milliseconds(time: i64) -> f64 {
    time as f64 / MILLISECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_ends_with_a_blank_that_is_not_its_own() {
        assert_eq!(divide("cpu.us"), None);
        assert_eq!(divide("cpu.user "), Some(("cpu.user", "")));
        assert_eq!(divide("cpu.user host=a o"), Some(("cpu.user", "host=a o")));
        assert_eq!(divide("a\\ b"), None);
        assert_eq!(divide("a\\ b  x"), Some(("a\\ b", "x")));
    }
}
