//! The store's series, as the evaluator of PromQL reads them.
//!
//! Which series meet conditions is looked up by what has to be equal, and told by comparing labels
//! otherwise. What an expression holds is counted with what all other queries hold; between series
//! the time is looked at, and others get their turn when this one has had its own.

use super::histograms::Histograms;
use super::summed::{Summed, sample};
use crate::name::{Name, plain, written};
use crate::record::Kind;
use crate::rollup::{Joined, Needed};
use crate::store::{
    Fit, Found, Listing, Origin, Parts, Read, SERIES_AT_ONCE, Series, SeriesStore, Share,
};
use crate::tree::{Piece, Span, Summary};
use plinth_env::reply::promise;
use plinth_promql::{
    Digest, Error, HistogramSample, Labels, Matcher, NAME, Sample, Samples, Source, Stretches,
    Told, Windows,
};
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Series that a selector may find; and one of an expression for one time alone, of which each has
/// a value or two.
const MAX_SERIES: usize = 20_000;
const MAX_AT_ONE_TIME: usize = 1_000_000;
/// What a series that was found takes besides its name, which is there three times, about.
const SERIES: usize = 400;
/// Metrics that a condition on names is compared with.
const MAX_METRICS: usize = 10_000;
/// Series that are looked up and compared with conditions without a pause for others.
const AT_ONCE: usize = 1000;
/// Values of a list in a condition that are looked up one by one; more of them are compared.
const MAX_LOOKED_UP: usize = 1000;

/// How long an expression is worked at before others get their turn: a pause after each of a
/// million series would take much longer than they do, where others have something to do at each.
const TURN: Duration = Duration::from_millis(1);

/// Until when a question may be answered.
#[derive(Clone, Copy)]
pub(in crate::query) struct Deadline {
    until: Duration,
    timeout: Duration,
}

impl Deadline {
    /// So long from now on.
    pub(in crate::query) fn within(store: &SeriesStore, timeout: Duration) -> Self {
        Self { until: store.env().now().saturating_add(timeout), timeout }
    }

    /// Lets others go first, and looks at the time.
    ///
    /// # Errors
    /// If it is up.
    pub(in crate::query) async fn pause(
        &self,
        store: &SeriesStore,
    ) -> Result<(), Error<crate::Error>> {
        crate::query::pause().await;
        self.check(store.env().now())
    }

    fn check(&self, now: Duration) -> Result<(), Error<crate::Error>> {
        match now <= self.until {
            true => Ok(()),
            false => Err(Error::Timeout(timed_out(self.timeout))),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What somebody is told whose time is up.
pub(super) fn timed_out(timeout: Duration) -> String {
    format!("query timed out in expression evaluation, after {} s", timeout.as_secs_f64())
}

/// A store for the time of one query.
pub(in crate::query) struct StoreSource<'a> {
    store: &'a SeriesStore,
    share: Mutex<Held>,
    deadline: Deadline,
    /// Since when nobody else had a turn, in nanoseconds of the store's clock.
    turn: AtomicU64,
    /// Series that a selector may find.
    most: usize,
    /// Whether any series has native histograms, once somebody has looked.
    has_histograms: OnceLock<bool>,
    /// Where what was read comes from.
    origin: Mutex<Origin>,
}

/// What a query holds, in bytes.
struct Held {
    share: Share,
    values: usize,
    /// Of the series of selectors that found very many: those of others are few beside values.
    series: usize,
}

impl Held {
    fn count(&mut self) -> crate::Result<()> {
        self.share.hold(self.values + self.series)
    }
}

impl<'a> StoreSource<'a> {
    pub(in crate::query) fn new(store: &'a SeriesStore, timeout: Duration) -> Self {
        let deadline = Deadline::within(store, timeout);
        let (has_histograms, origin) = (OnceLock::new(), Mutex::default());
        let share = Mutex::new(Held { share: Share::new(store), values: 0, series: 0 });
        let turn = AtomicU64::new(nanoseconds(store.env().now()));
        Self { store, share, deadline, turn, most: MAX_SERIES, has_histograms, origin }
    }

    /// For an expression at one time: how many series there may be is said by what they take.
    pub(in crate::query) fn for_one_time(self) -> Self {
        Self { most: MAX_AT_ONE_TIME, ..self }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where what was read so far comes from.
    pub(in crate::query) fn origin(&self) -> Origin {
        *self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes where points come from that are to be read.
    fn noted(&self, points: Points) -> Points {
        let mut origin = self.origin.lock().unwrap_or_else(PoisonError::into_inner);
        *origin = origin.with(points.parts.origin());
        points
    }

    /// The series of numbers that meet conditions, at most so many.
    pub(in crate::query) async fn find_at_most(
        &self,
        matchers: &[Matcher],
        limit: usize,
    ) -> Result<Vec<Found>, Error<crate::Error>> {
        let (mut count, mut bytes) = (0, 0);
        let found = |found: &[Found]| {
            count += found.len();
            let more = found.iter().map(|one| SERIES + 3 * one.name.as_str().len()).sum::<usize>();
            bytes += more;
            if count <= MAX_SERIES {
                return Ok(());
            }
            let mut held = self.held();
            held.series += std::mem::take(&mut bytes);
            held.count()
        };
        let what = Find { limit, has_events: false, deadline: Some(self.deadline) };
        find_until(self.store, matchers, what, found).await
    }
}

/// A series that was found, and with whom its owner is asked about it, if that is somebody else.
#[derive(Clone)]
pub(in crate::query) struct Selected {
    found: Found,
    together: Option<Arc<Together>>,
    /// Whether any series of the store has native histograms.
    may_have_histograms: bool,
}

/// Series whose owners are asked at once, when the first of them is read in a span of time.
struct Together {
    all: Vec<Found>,
    brought: Mutex<(Span, HashMap<u64, Found>)>,
}

impl Together {
    /// Groups of the series of owners elsewhere, each in the order in which they are read.
    fn groups(store: &SeriesStore, found: &[Found]) -> Vec<Arc<Self>> {
        let foreign: Vec<Found> =
            found.iter().filter(|found| store.is_to_be_brought(found)).cloned().collect();
        let group = |all: &[Found]| {
            Arc::new(Self { all: all.to_vec(), brought: Mutex::new((Span::NONE, HashMap::new())) })
        };
        foreign.chunks(SERIES_AT_ONCE).map(group).collect()
    }

    fn lock(&self) -> MutexGuard<'_, (Span, HashMap<u64, Found>)> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of them as its owner knows it. Each is given away once, so that what is read no more
    /// takes no memory.
    async fn take(&self, store: &SeriesStore, found: &Found, span: Span) -> crate::Result<Found> {
        let take = || {
            let mut brought = self.lock();
            let is_of_span = brought.0 == span;
            is_of_span.then(|| brought.1.remove(&found.id)).flatten()
        };
        if let Some(found) = take() {
            return Ok(found);
        }
        let mut all = self.all.clone();
        store.bring(all.iter_mut(), span).await?;
        *self.lock() = (span, all.into_iter().map(|found| (found.id, found)).collect());
        Ok(take().unwrap_or_else(|| found.clone()))
    }
}

impl Source for StoreSource<'_> {
    type Series = Selected;
    type Samples = Points;
    type Error = crate::Error;

    async fn find(
        &self,
        matchers: &[Matcher],
    ) -> Result<Vec<(Labels, Selected)>, Error<crate::Error>> {
        let found = self.find_at_most(matchers, self.most).await?;
        let may_have_histograms = match self.has_histograms.get() {
            Some(known) => *known,
            None => {
                let found = self.store.has_records(Kind::Histogram).await.map_err(Error::Source)?;
                *self.has_histograms.get_or_init(|| found)
            }
        };
        let groups = Together::groups(self.store, &found);
        let mut foreign = groups.iter().flat_map(|group| group.all.iter().map(move |_| group));
        let selected = found.into_iter().map(|found| {
            let is_foreign = self.store.is_to_be_brought(&found);
            let together = if is_foreign { foreign.next().cloned() } else { None };
            (labels_of(&found.name), Selected { found, together, may_have_histograms })
        });
        Ok(selected.collect())
    }

    async fn read(
        &self,
        series: &Selected,
        after: i64,
        until: i64,
    ) -> Result<Points, crate::Error> {
        let span = Span::new((Bound::Excluded(after), Bound::Included(until)));
        let found = self.series(series, span).await?;
        let histograms = Histograms::begin(&found, span, series.may_have_histograms).await?;
        Ok(self.noted(Points::by_one(found, span, histograms).await?))
    }

    async fn read_windows(
        &self,
        series: &Selected,
        windows: Windows,
    ) -> Result<Points, crate::Error> {
        let (after, until) = windows.bounds();
        let span = Span::new((Bound::Excluded(after), Bound::Included(until)));
        let found = self.series(series, span).await?;
        // Buckets of rollups say nothing of those.
        let histograms = Histograms::begin(&found, span, series.may_have_histograms).await?;
        if histograms.is_some() {
            return Ok(self.noted(Points::by_one(found, span, histograms).await?));
        }
        let summed = Summed::of(windows);
        let fit = |every: i64| match windows.are_aligned(every) {
            // The point at an end is that at the beginning of the next bucket.
            true => Fit::Around,
            false if windows.are_aligned_behind(every) || windows.is_long(every) => Fit::Within,
            false => Fit::Not,
        };
        let parts = found.parts(span, fit, Needed::of(windows.wanted)).await?;
        let windows = parts.every().map(|every| (windows, every));
        Ok(self.noted(Points { parts, have_ended: false, windows, summed, histograms }))
    }

    fn beside(&self) -> usize {
        let env = self.store.env();
        match env.network_threads() {
            1 if !env.is_simulated() => 1,
            // One that waits for each that runs.
            threads => 2 * threads,
        }
    }

    fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, crate::Error>> + Send {
        let (promise, reply) = promise();
        drop(self.store.env().spawn_network_behind(usize::MAX, "series.query", async move {
            if !promise.is_cancelled() {
                promise.send(Ok(work.await));
            }
        }));
        async { Ok(reply.await?) }
    }

    async fn pause(&self) -> Result<(), Error<crate::Error>> {
        let env = self.store.env();
        let now = env.now();
        let begun = Duration::from_nanos(self.turn.load(Ordering::Relaxed));
        // Where time passes between steps alone, each of them is a turn.
        if !env.is_simulated() && now.saturating_sub(begun) < TURN {
            return self.deadline.check(now);
        }
        let paused = self.deadline.pause(self.store).await;
        self.turn.store(nanoseconds(env.now()), Ordering::Relaxed);
        paused
    }

    fn hold(&self, values: usize) -> Result<(), crate::Error> {
        let mut held = self.held();
        held.values = values * size_of::<f64>();
        held.count()
    }
}

impl StoreSource<'_> {
    /// A series to be read, of which its owner was asked.
    async fn series(&self, series: &Selected, span: Span) -> crate::Result<Series> {
        Ok(match &series.together {
            Some(together) => {
                self.store.reading(&together.take(self.store, &series.found, span).await?)
            }
            None => self.store.reading(&series.found),
        })
    }
}

/// The points of a series, or the buckets of it.
pub(in crate::query) struct Points {
    parts: Parts,
    have_ended: bool,
    /// What is asked of the buckets, if there are any, and how long the longest are.
    windows: Option<(Windows, i64)>,
    /// What points come to as far as they lie in the same windows, if that is asked for.
    summed: Option<Summed>,
    /// The native histograms among the points, if there are any.
    histograms: Option<Histograms>,
}

impl Points {
    /// Points and no buckets.
    async fn by_one(
        series: Series,
        span: Span,
        histograms: Option<Histograms>,
    ) -> crate::Result<Self> {
        let parts = series.parts(span, |_| Fit::Not, Needed::COUNTS).await?;
        Ok(Self { parts, have_ended: false, windows: None, summed: None, histograms })
    }

    /// Which neighbours of buckets of a length are in the same windows.
    fn joined(&self, every: i64) -> Joined {
        let are_aligned = |(windows, _): (Windows, i64)| windows.are_aligned(every);
        if self.windows.is_some_and(are_aligned) { Joined::Behind } else { Joined::From }
    }
}

impl Samples for Points {
    type Error = crate::Error;

    async fn more(&mut self, samples: &mut Vec<Sample>) -> Result<bool, crate::Error> {
        let Some(histograms) = &mut self.histograms else {
            let Some(part) = self.parts.next(|_| false).await? else { return Ok(false) };
            if let Read::Piece(Piece::Points(points)) = &part {
                points.put_numbers(samples);
            }
            return Ok(true);
        };
        if histograms.wants_numbers() && !self.have_ended {
            match self.parts.next(|_| false).await? {
                Some(part) => histograms.take_numbers(numbers(&part)),
                None => self.have_ended = true,
            }
        }
        histograms.join(samples, self.have_ended).await
    }

    fn histograms(&mut self, histograms: &mut Vec<HistogramSample>) {
        histograms.extend(self.histograms.iter_mut().flat_map(Histograms::joined));
    }

    async fn more_digests(&mut self, digests: &mut Vec<Digest>) -> Result<bool, crate::Error> {
        let summed = self.summed;
        let whole = |summary: &Summary| summed.is_some_and(|summed| summed.has_all(summary));
        let Some(part) = self.parts.next(whole).await? else { return Ok(false) };
        match (part, summed) {
            (Read::Piece(Piece::Points(points)), Some(summed)) => {
                summed.put_digests(&points, digests);
            }
            (Read::Piece(Piece::Points(points)), None) => {
                digests.extend(points.iter().map(|point| Digest::from(sample(point))));
            }
            (Read::Piece(Piece::Whole(summary)), _) => digests.push(Summed::digest(&summary)),
            (Read::Buckets(buckets, every), _) => {
                buckets.put_digests((every, self.joined(every)), digests);
            }
        }
        Ok(true)
    }

    async fn more_stretches(&mut self, stretches: &mut Stretches) -> Result<bool, crate::Error> {
        let summed = self.summed;
        let whole = |summary: &Summary| summed.is_some_and(|summed| summed.has_all(summary));
        let Some(part) = self.parts.next(whole).await? else { return Ok(false) };
        match (part, self.windows) {
            (Read::Piece(Piece::Points(points)), _) => match summed {
                Some(summed) => summed.put_stretches(&points, stretches),
                None => points.iter().for_each(|point| stretches.push_sample(sample(point))),
            },
            (Read::Piece(Piece::Whole(summary)), _) => {
                summed.iter().for_each(|summed| summed.put_whole(&summary, stretches));
            }
            (Read::Buckets(buckets, every), Some((windows, _))) => {
                buckets.put_stretches(windows.wanted, (every, self.joined(every)), stretches);
            }
            (Read::Buckets(..), None) => {}
        }
        Ok(true)
    }

    fn told(&self) -> Told {
        Told {
            every: self.windows.map(|(_, every)| every),
            are_summed: self.summed.is_some(),
            are_missing: self.parts.are_missing,
        }
    }
}

/// The points of a part.
fn numbers(part: &Read) -> impl Iterator<Item = Sample> + '_ {
    let points = match part {
        Read::Piece(Piece::Points(points)) => Some(points),
        Read::Piece(Piece::Whole(_)) | Read::Buckets(..) => None,
    };
    points.into_iter().flat_map(|points| points.iter()).map(sample)
}

/// Whether series of a metric have events.
pub(in crate::query) fn is_of_events(metric: &str) -> bool {
    metric.starts_with('!')
}

/// The labels of a series, as they were meant.
pub(in crate::query) fn labels_of(name: &Name) -> Labels {
    let tags = name.tags().map(|(tag, value)| (plain(tag).into_owned(), plain(value).into_owned()));
    tags.chain([(NAME.to_string(), plain(name.metric()).into_owned())]).collect()
}

/// The name of the series with these labels.
pub(super) fn name_of(labels: &Labels) -> String {
    let part = |text: &str| text.replace('\\', "\\\\").replace(' ', "\\ ");
    let mut name = part(labels.metric());
    for (label, value) in labels.iter().filter(|(label, _)| *label != NAME) {
        name.extend([" ", &part(label), "=", &part(value)]);
    }
    name
}

/// The series that meet conditions, those of events, too.
pub(in crate::query) async fn find(
    store: &SeriesStore,
    matchers: &[Matcher],
    limit: usize,
) -> Result<Vec<Found>, Error<crate::Error>> {
    let what = Find { limit, has_events: true, deadline: None };
    find_until(store, matchers, what, |_: &[Found]| Ok(())).await
}

/// What is looked for.
struct Find {
    limit: usize,
    /// Whether events, too: they are texts, of which pieces lie where others have numbers.
    has_events: bool,
    deadline: Option<Deadline>,
}

async fn find_until(
    store: &SeriesStore,
    matchers: &[Matcher],
    Find { limit, has_events, deadline }: Find,
    mut seen: impl FnMut(&[Found]) -> crate::Result<()>,
) -> Result<Vec<Found>, Error<crate::Error>> {
    let (names, others): (Vec<&Matcher>, Vec<&Matcher>) =
        matchers.iter().partition(|matcher| matcher.label == NAME);
    let metrics = metrics(store, &names).await?;
    // What a label has to be exactly is looked up in each form that it may have in a name, and
    // compared with what it means like all others.
    let exactly = |matcher: &&Matcher| {
        let values = matcher.only_values().filter(|values| values.len() <= MAX_LOOKED_UP)?;
        let values = values.into_iter().map(|value| (!value.is_empty()).then(|| written(value)));
        let values: Option<Vec<Vec<String>>> = values.collect();
        // One that may be written in several ways is compared.
        let label = written(&matcher.label);
        Some((<[String; 1]>::try_from(label).ok()?.concat(), values?.concat()))
    };
    let tags: Vec<(String, Vec<String>)> = others.iter().filter_map(exactly).collect();
    let fits = |found: &Found| {
        let labels = labels_of(&found.name);
        others.iter().all(|matcher| matcher.matches(labels.get(&matcher.label)))
    };
    let mut all = Vec::new();
    for metric in metrics {
        let is_wanted = has_events || !is_of_events(&metric);
        if !is_wanted || !names.iter().all(|matcher| matcher.matches(&plain(&metric))) {
            continue;
        }
        let mut begin = Some(0);
        while let Some(least) = begin {
            let found;
            (found, begin) =
                store.search(&metric, &tags, least, AT_ONCE).await.map_err(Error::Source)?;
            let before = all.len();
            all.extend(found.into_iter().filter(&fits));
            seen(&all[before..]).map_err(Error::Source)?;
            if all.len() > limit {
                return Err(Error::Asked(format!(
                    "more than {limit} series match; name more labels"
                )));
            }
            match deadline {
                Some(deadline) => deadline.pause(store).await?,
                None => crate::query::pause().await,
            }
        }
    }
    Ok(all)
}

/// The metrics that conditions on names may mean.
async fn metrics(
    store: &SeriesStore,
    names: &[&Matcher],
) -> Result<Vec<String>, Error<crate::Error>> {
    let exactly = |matcher: &&Matcher| {
        let values = matcher.only_values()?;
        let mut metrics: Vec<String> =
            values.into_iter().filter(|v| !v.is_empty()).flat_map(written).collect();
        metrics.sort();
        metrics.dedup();
        Some(metrics)
    };
    let metrics = match names.iter().find_map(exactly) {
        Some(metrics) => metrics,
        None => {
            let listed = store.list(&Listing::Metrics, "", None, MAX_METRICS + 1).await;
            listed.map_err(Error::Source)?
        }
    };
    match metrics.len() > MAX_METRICS {
        true => Err(Error::Asked(format!("there are more than {MAX_METRICS} metrics; name one"))),
        false => Ok(metrics),
    }
}
