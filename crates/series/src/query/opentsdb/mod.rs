//! OpenTSDB's questions over HTTP, as Grafana's data source for it asks them: points a step at a
//! time (`/api/query`), and which names there are (`/api/suggest`, `/api/search/lookup`,
//! `/api/aggregators`).
//!
//! The points of a step become one by an expression of PromQL, then series of a group become one
//! (`stepped`). Without a downsample points are put together as they are (`raw`).

mod asked;
mod lookup;
mod merge;
mod raw;
mod stepped;

use super::held::HeldText;
use super::prometheus::{Deadline, MAX_SAMPLES, StoreSource, form_pairs, labels_of};
use super::remarks::Remarks;
use crate::name::{plain, written};
use crate::store::{Found, Listing, SeriesStore, Share};
use asked::{Asked, Fill, One, Rate};
use plinth_promql::{Error, Labels, NAME, Options, Sample, Source, parse_selector};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Series of one request.
const MAX_SERIES: usize = 20_000;
/// How long a request may take, and one for suggestions.
const TIMEOUT: Duration = Duration::from_secs(120);
const SUGGESTING: Duration = Duration::from_secs(10);
/// Names that are suggested, if it isn't said how many, and at most; and lists that are looked
/// through for them.
const SUGGESTED: usize = 25;
const MAX_SUGGESTED: usize = 10_000;
const MAX_LISTS: usize = 10_000;
const SECOND: i64 = 1_000_000_000;
const MILLISECOND: i64 = 1_000_000;

type Failure = Error<crate::Error>;

/// Aggregators, by their names.
const AGGREGATORS: [&str; 17] = [
    "avg", "count", "dev", "max", "median", "mimmax", "mimmin", "min", "none", "p50", "p75", "p90",
    "p95", "p99", "p999", "sum", "zimsum",
];

/// Where OpenTSDB is asked which series there are.
pub const LOOKUP: &str = "/api/search/lookup";

/// Whether the body of a question is OpenTSDB's: Akumuli's have another form at the same paths.
pub fn is_opentsdb(path: &str, body: &[u8]) -> bool {
    let field = match path {
        "/api/query" => "queries",
        "/api/suggest" => "type",
        LOOKUP => return true,
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

/// What is said beside an answer that lacks points of which there are only rollups.
const GONE: &str = "points have gone, of which there are only rollups: those answer avg, sum, min, \
                    max, count, first and last at intervals that are multiples of theirs";

/// Answers a question: the status, JSON, and what is to be said beside it, for which JSON of
/// OpenTSDB's has no place. Parameters stand in the URL, or all of it in the body; `now` is
/// nanoseconds since 1970.
pub async fn opentsdb(
    store: &SeriesStore,
    path: &str,
    (url, body): (&[u8], &[u8]),
    now: i64,
) -> (u16, HeldText, Remarks) {
    let body = if body.is_empty() { Ok(Json::Null) } else { serde_json::from_slice(body) };
    let answered = match body {
        Err(why) => Err(Failure::Asked(format!("no JSON: {why}"))),
        Ok(body) if path == "/api/suggest" => {
            suggest(store, &form_pairs(url), &body).await.map(unremarked)
        }
        Ok(body) if path == LOOKUP => {
            lookup::lookup(store, &form_pairs(url), &body).await.map(unremarked)
        }
        Ok(body) => match asked(url, &body, now) {
            Ok(asked) => query(store, asked).await,
            Err(why) => Err(Failure::Asked(why)),
        },
    };
    let held = answered.and_then(|(answer, remarks)| {
        HeldText::count(store, answer).map(|held| (held, remarks)).map_err(Failure::Source)
    });
    match held {
        Ok((answer, remarks)) => (200, answer, remarks),
        Err(why) => {
            let status = match why {
                Failure::Timeout(_) | Failure::Source(_) => 503,
                _ => 400,
            };
            let why = why.to_string();
            let text = json!({ "error": { "code": status, "message": why } }).to_string();
            (status, HeldText::short(store, text), Remarks::default())
        }
    }
}

/// A text of which there is nothing to be said.
fn unremarked(text: String) -> (String, Remarks) {
    (text, Remarks::default())
}

/// What is asked for, in the body, or in the address if there is none.
fn asked(url: &[u8], body: &Json, now: i64) -> Result<Asked, String> {
    match body {
        Json::Null => Asked::of_parameters(&form_pairs(url), now),
        body => Asked::of_json(body, &form_pairs(url), now),
    }
}

/// The expressions of PromQL that a question is answered by.
///
/// # Errors
/// What is wrong with it.
pub fn opentsdb_expressions((url, body): (&[u8], &[u8]), now: i64) -> Result<Vec<String>, String> {
    let body = if body.is_empty() { Ok(Json::Null) } else { serde_json::from_slice(body) };
    let asked = asked(url, &body.map_err(|why| why.to_string())?, now)?;
    Ok(asked.queries.iter().map(|one| one.expression(&asked)).collect())
}

/// Answers all queries of a request, which have one time and one budget together.
async fn query(store: &SeriesStore, mut asked: Asked) -> Result<(String, Remarks), Failure> {
    let options = Options::default();
    let max_visits = options.max_visits / asked.queries.len().max(1) as u64;
    let mut answer = Answering {
        source: StoreSource::new(store, TIMEOUT),
        options: Options { max_visits, ..options },
        share: Share::new(store),
        series: 0,
        samples: 0,
        text: String::from("["),
    };
    for (index, mut one) in std::mem::take(&mut asked.queries).into_iter().enumerate() {
        let mut matchers = parse_selector(&one.selector()).map_err(Error::Parse)?;
        if one.is_explicit {
            let found = answer.source.find_at_most(&matchers, MAX_SERIES).await?;
            let labels: BTreeSet<String> = found.iter().flat_map(tags_of).collect();
            one.without_others(labels.iter().map(String::as_str));
            matchers = parse_selector(&one.selector()).map_err(Error::Parse)?;
        }
        one.told.insert("index".to_owned(), index.into());
        match &one.downsample {
            Some(downsample) => answer.one_stepped(&asked, (&one, downsample), &matchers).await?,
            None => answer.one_raw(&asked, &one, &matchers).await?,
        }
    }
    answer.text.push(']');
    Ok((answer.text, Remarks::of(answer.source.origin(), GONE)))
}

/// The keys of a series' tags.
fn tags_of(found: &Found) -> Vec<String> {
    let labels = labels_of(&found.name);
    labels
        .iter()
        .map(|(label, _)| label)
        .filter(|label| *label != NAME)
        .map(str::to_owned)
        .collect()
}

/// An answer that is being made.
struct Answering<'a> {
    source: StoreSource<'a>,
    options: Options,
    share: Share,
    /// Series that were found, and samples that stand in the text, of all queries.
    series: usize,
    samples: usize,
    text: String,
}

impl Answering<'_> {
    /// Appends a series, within the bounds.
    async fn append(
        &mut self,
        asked: &Asked,
        one: &One,
        (group, samples): (&Group, &[Sample]),
    ) -> Result<(), Failure> {
        self.samples += samples.len();
        if self.samples > MAX_SAMPLES {
            return Err(too_many());
        }
        write(&mut self.text, asked, one, (group, samples));
        self.share.hold(self.text.capacity()).map_err(Failure::Source)?;
        self.source.pause().await
    }

    /// What the series of each group have in common.
    async fn groups(
        &mut self,
        one: &One,
        matchers: &[plinth_promql::Matcher],
    ) -> Result<BTreeMap<Labels, Group>, Failure> {
        let left = MAX_SERIES.saturating_sub(self.series);
        let found = self.source.find_at_most(matchers, left).await.map_err(|why| match why {
            Failure::Asked(why) if left < MAX_SERIES => Failure::Asked(format!(
                "{why}: a request's queries may have {MAX_SERIES} series together"
            )),
            why => why,
        })?;
        self.series += found.len();
        let mut groups: BTreeMap<Labels, Group> = BTreeMap::new();
        for found in &found {
            let labels = labels_of(&found.name);
            groups.entry(one.group(&labels)).or_default().add(&labels);
        }
        Ok(groups)
    }
}

fn too_many() -> Failure {
    Failure::Asked(format!(
        "more than {MAX_SAMPLES} points in one request; take a longer interval or fewer series"
    ))
}

/// Appends a series to an answer. It is written as it goes: a tree of it would take ten times the
/// room.
fn write(out: &mut String, asked: &Asked, one: &One, (group, samples): (&Group, &[Sample])) {
    if out.len() > 1 {
        out.push(',');
    }
    let unit = if asked.is_fine { MILLISECOND } else { SECOND };
    let [open, before_time, behind_time, behind_value, close] = match asked.are_arrays {
        true => ["[", "[", ",", "]", "]"],
        false => ["{", "\"", "\":", "", "}"],
    };
    out.extend([r#"{"aggregateTags":"#, &json!(group.different).to_string(), r#","dps":"#, open]);
    // Of points that would have one time in this unit the last one counts.
    let mut before = None;
    for (time, value) in samples {
        let value = match one.downsample.as_ref().map(|downsample| downsample.fill) {
            _ if value.is_finite() => Json::from(*value).to_string(),
            Some(Fill::Nan) if value.is_nan() => r#""NaN""#.to_owned(),
            Some(Fill::Null) if value.is_nan() => "null".to_owned(),
            _ => continue,
        };
        let time = time.div_euclid(unit);
        match before {
            Some((known, place)) if known == time => out.truncate(place),
            Some(_) => out.push(','),
            None => {}
        }
        before = Some((time, out.len()));
        out.extend([before_time, &time.to_string(), behind_time, &value, behind_value]);
    }
    let (metric, tags) = (json!(one.metric).to_string(), json!(group.same).to_string());
    out.extend([close, r#","metric":"#, &metric, r#","tags":"#, &tags]);
    if asked.shows_query {
        out.extend([r#","query":"#, &json!(one.told).to_string()]);
    }
    out.push('}');
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
    /// The labels of the group that a series is in.
    fn group(&self, labels: &Labels) -> Labels {
        let is_kept = |label: &str| match self.aggregate {
            Some(_) => self.by.iter().any(|by| by == label),
            None => label != NAME,
        };
        labels.iter().filter(|(label, _)| is_kept(label)).collect()
    }
}

/// The change a second from each sample to the next. Where a counter falls it went round, if it is
/// known at what; a change that is too fast then, or of which nothing is known, is a new beginning:
/// 0 if it is said when one is too fast, else left out.
fn rated(rate: &Rate, samples: &[Sample]) -> Vec<Sample> {
    let one = |pair: &[Sample]| {
        let ((before, from), (time, to)) = (pair[0], pair[1]);
        let a_second = |change: f64| change / (time.abs_diff(before) as f64 / SECOND as f64);
        let change = to - from;
        if change >= 0.0 || !rate.is_counter {
            return Some((time, a_second(change)));
        }
        let round = rate.counter_max.map(|max| a_second(change + max));
        let change = match rate.reset_value {
            Some(reset) => round.filter(|change| *change <= reset).unwrap_or(0.0),
            None => round?,
        };
        Some((time, change))
    };
    samples.windows(2).filter_map(one).collect()
}

/// Names that begin with a text: metrics, keys or values of tags. Each is named once, as it is
/// meant, however it is written in names of series.
async fn suggest(
    store: &SeriesStore,
    pairs: &[(String, String)],
    body: &Json,
) -> Result<String, Failure> {
    let get = |name: &str| {
        let pair = pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
        pair.or_else(|| match &body[name] {
            Json::String(text) => Some(text.clone()),
            Json::Number(number) => Some(number.to_string()),
            _ => None,
        })
    };
    let prefix = get("q").unwrap_or_default();
    let max = match get("max") {
        None => SUGGESTED,
        Some(text) => match text.parse::<usize>() {
            Ok(max) if max > 0 => max.min(MAX_SUGGESTED),
            _ => return Err(Failure::Asked(format!("max={text} is no number above 0"))),
        },
    };
    let kind = get("type").unwrap_or_default();
    let suggesting =
        Suggesting { store, deadline: Deadline::within(store, SUGGESTING), prefix, max };
    let found = match kind.as_str() {
        "metrics" => suggesting.metrics().await?,
        "tagk" => suggesting.tags(false).await?,
        "tagv" => suggesting.tags(true).await?,
        _ => return Err(Failure::Asked("type is none of metrics, tagk, tagv".to_owned())),
    };
    Ok(json!(found).to_string())
}

/// What is behind the names of events, which are no metrics here.
const BEHIND_EVENTS: &str = "!\u{10ffff}\u{10ffff}";

/// What is wanted of names.
struct Suggesting<'a> {
    store: &'a SeriesStore,
    deadline: Deadline,
    prefix: String,
    max: usize,
}

impl Suggesting<'_> {
    /// What is in a list and begins with the text, however that is written.
    async fn list(&self, listing: &Listing, into: &mut BTreeSet<String>) -> Result<(), Failure> {
        for prefix in written(&self.prefix) {
            let found = self.store.list(listing, &prefix, None, self.max).await;
            let found = found.map_err(Failure::Source)?;
            into.extend(found.iter().map(|item| plain(item).into_owned()));
        }
        self.deadline.pause(self.store).await
    }

    /// The metrics that begin with a text, as they are written.
    async fn written_metrics(&self, prefix: &str, limit: usize) -> Result<Vec<String>, Failure> {
        let list = async |after| {
            self.store.list(&Listing::Metrics, prefix, after, limit).await.map_err(Failure::Source)
        };
        let found = list(None).await?;
        // Those of events come first, and took the room of others.
        if prefix.is_empty() && found.iter().any(|metric| metric.starts_with('!')) {
            return list(Some(BEHIND_EVENTS)).await;
        }
        Ok(found.into_iter().filter(|metric| !metric.starts_with('!')).collect())
    }

    async fn metrics(&self) -> Result<Vec<String>, Failure> {
        let mut found = BTreeSet::new();
        for prefix in written(&self.prefix) {
            let metrics = self.written_metrics(&prefix, self.max).await?;
            found.extend(metrics.iter().map(|metric| plain(metric).into_owned()));
        }
        Ok(found.into_iter().take(self.max).collect())
    }

    /// Keys of tags, or their values, of all metrics.
    async fn tags(&self, are_values: bool) -> Result<Vec<String>, Failure> {
        let mut found = BTreeSet::new();
        for metric in self.written_metrics("", MAX_LISTS).await? {
            if !are_values {
                self.list(&Listing::Tags { metric }, &mut found).await?;
            } else {
                let tags = Listing::Tags { metric: metric.clone() };
                let tags = self.store.list(&tags, "", None, MAX_LISTS).await;
                for tag in tags.map_err(Failure::Source)? {
                    let values = Listing::Values { metric: metric.clone(), tag };
                    self.list(&values, &mut found).await?;
                    if found.len() >= self.max {
                        break;
                    }
                }
            }
            if found.len() >= self.max {
                break;
            }
        }
        Ok(found.into_iter().take(self.max).collect())
    }
}
