//! Which labels, values of a label, and series there are.
//!
//! Without `match[]` and a time a list is that of the index, which knows of no points. Else series
//! are found, and those without a point from `start` to `end` are left out, as long as they are so
//! few that looking into each of them takes no time: of more all are listed. A list that would be
//! too long is refused, unless `limit` asks for its beginning: a part of it would be taken for all.

use super::answer::{Reply, metric};
use super::parameters::{Parameters, label_of};
use super::source::{is_of_events, labels_of};
use super::{Failure, MAX_LISTED, TRUNCATED, cut, limit, missing, selected};
use crate::name::{Name, plain, written};
use crate::record::Kind;
use crate::store::{Found, Listing, SERIES_AT_ONCE, SeriesStore};
use crate::tree::Span;
use plinth_promql::{Error, Labels, NAME};
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// Series of which it is looked whether they have points.
const MAX_LOOKED_INTO: usize = 1000;

/// Answers `labels`, `series`, and `label/NAME/values`.
pub(super) async fn answer(
    store: &SeriesStore,
    path: &str,
    parameters: &Parameters,
) -> Result<Reply, Failure> {
    let list = match path {
        "labels" => labels(store, parameters).await?,
        "series" => series(store, parameters).await?,
        path => label_values(store, &label_of(path).unwrap_or_default(), parameters).await?,
    };
    limited(list, parameters)
}

/// A list, of which a request may want no more than so many.
fn limited(mut list: Vec<Json>, parameters: &Parameters) -> Result<Reply, Failure> {
    let is_cut = cut(&mut list, parameters)?;
    let warnings = is_cut.then(|| TRUNCATED.to_string()).into_iter().collect();
    Ok(Reply { warnings, ..Reply::of(&Json::from(list)) })
}

/// The labels of the series that a list is about, by `match[]` and by the time; `None` if these are
/// all of the index.
async fn meant(
    store: &SeriesStore,
    parameters: &Parameters,
) -> Result<Option<Vec<Labels>>, Failure> {
    let span = parameters.span()?;
    let found: Vec<Found> = match (selected(store, parameters).await?, span) {
        (Some(found), _) => found.into_values().collect(),
        (None, None) => return Ok(None),
        (None, Some(_)) => match few(store).await? {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    let names = match span.filter(|_| found.len() <= MAX_LOOKED_INTO) {
        Some(span) => with_points(store, found, span).await?,
        None => found.into_iter().map(|found| found.name).collect(),
    };
    let labels: BTreeSet<Labels> = names.iter().map(labels_of).collect();
    Ok(Some(labels.into_iter().collect()))
}

/// All series there are, if they are so few that it can be looked into each. They are looked for by
/// their metrics, so that those of others cost whoever has a right to few of them nothing.
async fn few(store: &SeriesStore) -> Result<Option<Vec<Found>>, Failure> {
    let all = async {
        let metrics = store.list(&Listing::Metrics, "", None, MAX_LOOKED_INTO + 1).await?;
        let mut all = Vec::new();
        for metric in metrics {
            let mut next = Some(0);
            while let Some(least) = next {
                let found;
                (found, next) = store.search(&metric, &[], least, MAX_LOOKED_INTO + 1).await?;
                all.extend(found);
                if all.len() > MAX_LOOKED_INTO {
                    return Ok(None);
                }
            }
            crate::query::pause().await;
        }
        Ok(Some(all))
    };
    match all.await {
        // The index names them nevertheless.
        Err(crate::Error::Damaged { .. }) => Ok(None),
        found => found.map_err(Error::Source),
    }
}

/// The names of those that have a point in a span. Owners elsewhere are asked about some at a time,
/// so that what they say takes little memory.
async fn with_points(
    store: &SeriesStore,
    mut all: Vec<Found>,
    span: Span,
) -> Result<Vec<Name>, Failure> {
    let may_have_histograms = store.has_records(Kind::Histogram).await.map_err(Error::Source)?;
    let mut with = Vec::new();
    while !all.is_empty() {
        let rest = all.split_off(all.len().min(SERIES_AT_ONCE));
        let mut some = std::mem::replace(&mut all, rest);
        store.bring(some.iter_mut(), span).await.map_err(Error::Source)?;
        for found in some {
            match has_points(store, &found, span, may_have_histograms).await {
                // What is damaged is there, and whoever asks for its points is told.
                Ok(true) | Err(crate::Error::Damaged { .. }) => with.push(found.name),
                Ok(false) | Err(crate::Error::Deleted) => {}
                Err(error) => return Err(Error::Source(error)),
            }
            crate::query::pause().await;
        }
    }
    Ok(with)
}

/// Whether a series has a number in a span, a native histogram, or where points have gone a bucket
/// of a rollup.
async fn has_points(
    store: &SeriesStore,
    found: &Found,
    span: Span,
    may_have_histograms: bool,
) -> crate::Result<bool> {
    // Events are texts, of which there are no sums.
    if is_of_events(found.name.metric()) {
        return Ok(true);
    }
    let series = store.reading(found);
    if series.aggregate(span.first..=span.last).await?.is_some() {
        return Ok(true);
    }
    if may_have_histograms {
        let mut records = series.records(Kind::Histogram, span);
        while let Some(some) = records.next().await? {
            if !some.is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

async fn series(store: &SeriesStore, parameters: &Parameters) -> Result<Vec<Json>, Failure> {
    if parameters.get("match[]").is_none() {
        return Err(missing("match[]"));
    }
    let series = meant(store, parameters).await?.unwrap_or_default();
    Ok(series.iter().map(metric).collect())
}

async fn labels(store: &SeriesStore, parameters: &Parameters) -> Result<Vec<Json>, Failure> {
    let mut labels = BTreeSet::new();
    match meant(store, parameters).await? {
        Some(series) => {
            let names = series.iter().flat_map(Labels::iter).map(|(name, _)| name.to_string());
            labels.extend(names);
        }
        None => {
            for metric in listed(store, Listing::Metrics).await? {
                labels.insert(NAME.to_string());
                let tags = listed(store, Listing::Tags { metric }).await?;
                labels.extend(tags.iter().map(|tag| plain(tag).into_owned()));
                crate::query::pause().await;
            }
        }
    }
    Ok(labels.into_iter().map(Json::from).collect())
}

async fn label_values(
    store: &SeriesStore,
    label: &str,
    parameters: &Parameters,
) -> Result<Vec<Json>, Failure> {
    if let Some(series) = meant(store, parameters).await? {
        let values: BTreeSet<&str> = series.iter().map(|labels| labels.get(label)).collect();
        return Ok(values.into_iter().filter(|value| !value.is_empty()).map(Json::from).collect());
    }
    // One more than are wanted, so that it is known that there are more.
    let enough = limit(parameters)?.map(|limit| limit.saturating_add(1));
    let enough = enough.filter(|enough| *enough <= MAX_LISTED + 1);
    if label == NAME {
        let metrics = meanings(store, &Listing::Metrics, enough).await?;
        return Ok(metrics.into_iter().map(Json::from).collect());
    }
    let metrics = listed(store, Listing::Metrics).await?;
    let (mut values, tags) = (BTreeSet::new(), written(label));
    for metric in metrics {
        for tag in &tags {
            let (metric, tag) = (metric.clone(), tag.clone());
            let found = meanings(store, &Listing::Values { metric, tag }, enough).await?;
            values.extend(found);
            match enough {
                Some(enough) => while values.len() > enough && values.pop_last().is_some() {},
                None => bounded(values.len())?,
            }
        }
        crate::query::pause().await;
    }
    Ok(values.into_iter().map(Json::from).collect())
}

/// All there is in a list.
async fn listed(store: &SeriesStore, listing: Listing) -> Result<Vec<String>, Failure> {
    let found = store.list(&listing, "", None, MAX_LISTED + 1).await.map_err(Error::Source)?;
    bounded(found.len())?;
    Ok(found)
}

/// What is in a list, as it is meant; where so many are enough, those that are written first.
async fn meanings(
    store: &SeriesStore,
    listing: &Listing,
    enough: Option<usize>,
) -> Result<BTreeSet<String>, Failure> {
    let (mut meanings, mut after) = (BTreeSet::new(), None::<String>);
    let most = enough.unwrap_or(MAX_LISTED + 1);
    loop {
        let found = store.list(listing, "", after.as_deref(), most).await.map_err(Error::Source)?;
        meanings.extend(found.iter().map(|item| plain(item).into_owned()));
        if enough.is_none() {
            bounded(found.len())?;
        }
        // Two that are written may mean the same.
        if found.len() < most || enough.is_none_or(|enough| meanings.len() >= enough) {
            return Ok(meanings);
        }
        after = found.into_iter().next_back();
    }
}

/// Refuses a list that is too long: a part of it would be taken for all.
fn bounded(count: usize) -> Result<(), Failure> {
    if count <= MAX_LISTED {
        return Ok(());
    }
    Err(Failure::Asked(format!("there are more than {MAX_LISTED}; name series by match[]")))
}
