//! `query_exemplars`: the exemplars of the series that an expression is about.

use super::answer::{metric, seconds};
use super::source::{Deadline, StoreSource, labels_of, timed_out};
use super::{Failure, MAX_SAMPLES, Parameters, Reply, TIMEOUT};
use crate::exemplar::Exemplar;
use crate::record::Kind;
use crate::store::{Found, SeriesStore};
use crate::tree::Span;
use plinth_env::sync::{First, race};
use plinth_promql::{Error, Labels, format_value};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// Series that are looked at, at most.
const MAX_SERIES: usize = 20_000;

/// Answers with the exemplars from `start` to `end`, both included, by series.
pub(super) async fn query(
    store: &SeriesStore,
    parameters: &Parameters,
    now: i64,
) -> Result<Reply, Failure> {
    let node = plinth_promql::parse(parameters.needed("query")?).map_err(Failure::Parse)?;
    let start = parameters.bound("start")?.unwrap_or(i64::MIN);
    let end = parameters.bound("end")?.unwrap_or(now);
    if end < start {
        return Err(Failure::Asked("end timestamp must not be before start timestamp".into()));
    }
    let span = Span { first: start, last: end };
    let answered = async {
        let source = StoreSource::new(store, TIMEOUT);
        let mut all: BTreeMap<Labels, Found> = BTreeMap::new();
        for selector in node.selectors() {
            for found in source.find_at_most(selector, MAX_SERIES).await? {
                all.insert(labels_of(&found.name), found);
            }
        }
        exemplars(store, &all, span).await
    };
    match race(answered, store.env().sleep(TIMEOUT)).await {
        First::Left(answer) => Ok(Reply::of(&Json::from(answer?))),
        First::Right(()) => Err(Failure::Timeout(timed_out(TIMEOUT))),
    }
}

async fn exemplars(
    store: &SeriesStore,
    all: &BTreeMap<Labels, Found>,
    span: Span,
) -> Result<Vec<Json>, Failure> {
    let (mut list, mut count) = (Vec::new(), 0);
    if all.is_empty() || !store.has_records(Kind::Exemplar).await.map_err(Error::Source)? {
        return Ok(list);
    }
    let deadline = Deadline::within(store, TIMEOUT);
    for (labels, found) in all {
        let mut records = store.reading(found).records(Kind::Exemplar, span);
        let mut its = Vec::new();
        while let Some(some) = records.next().await.map_err(Error::Source)? {
            count += some.len();
            if count > MAX_SAMPLES {
                let why = format!("more than {MAX_SAMPLES} exemplars; narrow start and end");
                return Err(Failure::Asked(why));
            }
            for (time, bytes) in some {
                let exemplar = Exemplar::decode(&bytes).map_err(Error::Source)?;
                its.push(told(time, &exemplar));
            }
        }
        if !its.is_empty() {
            list.push(json!({ "seriesLabels": metric(labels), "exemplars": its }));
        }
        deadline.pause(store).await?;
    }
    Ok(list)
}

fn told(time: i64, exemplar: &Exemplar) -> Json {
    let labels = exemplar.labels.iter();
    let labels = labels.map(|(name, value)| (name.clone(), Json::from(value.as_str())));
    json!({
        "labels": labels.collect::<serde_json::Map<_, _>>(),
        "value": format_value(exemplar.value),
        "timestamp": seconds(time),
    })
}
