//! Reads series forward: their last values, the points of windows, and the steps of subqueries as
//! if they were points.
//!
//! Each is read once, and what is held of it is its window (`held.rs`). Marks are no points of a
//! window; a last value that is one is none. A window of too many points is refused while it is
//! read, and of a last value those before it aren't held: a range may be of years.

use super::column::{ABSENT, Cell, Column, SAME_LABELSET};
use super::digests::{Nobody, OthersOf, Work, Worked};
use super::held::{Held, TOO_MANY_POINTS};
use super::native::Tell;
use super::native::window as native;
use super::reading::{Reading, VISITS_AT_ONCE};
use super::window::{Over, Window};
use super::{Boxed, Evaluator, Steps, drop_name};
use crate::ast::{Selector, Subquery};
use crate::digest::Wanted;
use crate::histogram::ResetHint;
use crate::labels::Labels;
use crate::source::{HISTOGRAM, HistogramSample, STALE, Sample, Samples, Source, Value};
use crate::{Error, Row};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Buckets from which on it takes longer to work at a series than to have another thread do so.
const MANY_BUCKETS: u64 = 1000;

/// A series with points.
pub(super) struct Series {
    pub(super) labels: Labels,
    pub(super) drop_name: bool,
    pub(super) samples: Vec<Sample>,
    /// Those of the samples that are histograms.
    pub(super) histograms: Vec<HistogramSample>,
}

impl Series {
    /// How many values it is counted as.
    pub(super) fn weight(&self) -> usize {
        let histograms = self.histograms.iter().map(|(_, histogram)| 2 + histogram.size());
        2 * self.samples.len() + histograms.sum::<usize>()
    }

    /// With each kind of points by itself.
    fn row(mut self, late: bool) -> Row {
        if !self.histograms.is_empty() {
            let is_histogram = |(time, value): &Sample| {
                let found = self.histograms.binary_search_by_key(time, |(time, _)| *time);
                value.to_bits() == HISTOGRAM && found.is_ok()
            };
            self.samples.retain(|sample| !is_histogram(sample));
        }
        let Self { labels, drop_name, samples, histograms } = self;
        let labels = if late && drop_name { labels.without_metric() } else { labels };
        Row { labels, samples, histograms }
    }
}

/// What is asked of the histograms that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Buckets {
    /// All of them, as far as is known.
    Wanted,
    /// Their counts and sums alone.
    Unwanted,
    /// All of them, whatever is asked of what comes of it.
    Needed,
}

/// Series by the labels that they have in the end.
pub(super) fn named<E>(series: Vec<Series>, late: bool) -> Result<Vec<Row>, Error<E>> {
    let rows = series.into_iter().map(|series| series.row(late));
    let mut all: Vec<Row> = rows.filter(|row| !row.is_empty()).collect();
    all.sort_by(|a, b| a.labels.cmp(&b.labels));
    match all.windows(2).any(|pair| pair[0].labels == pair[1].labels) {
        true => Err(Error::Execution(SAME_LABELSET.to_string())),
        false => Ok(all),
    }
}

/// A function of a range with what it takes.
pub(super) struct Asked<'a> {
    pub(super) over: Over,
    /// Its numbers, a list for each of them, with one for each step.
    pub(super) numbers: &'a [Vec<f64>],
    /// The steps of the query.
    pub(super) steps: Steps,
    pub(super) reading: Reading,
    /// Where the range stands in the text.
    pub(super) span: &'a Range<usize>,
}

impl<S: Source> Evaluator<'_, S> {
    /// The last value of each series at each step, or when it was taken.
    pub(super) fn last_values<'b>(
        &'b mut self,
        (selector, span): (&'b Selector, &'b Range<usize>),
        reading: Reading,
        steps: Steps,
        asks_time: bool,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let mut columns = Vec::new();
            for (labels, series) in self.source.find(&selector.matchers).await? {
                self.source.pause().await?;
                let windows = reading.windows(Wanted::Last);
                let rest =
                    self.source.read_windows(&series, windows).await.map_err(Error::Source)?;
                self.tell_source(rest.told(), span);
                let mut column = match rest.told().every {
                    Some(_) => {
                        let found = self.last_of_digests(rest, reading, asks_time).await?;
                        let cells = found.into_iter().map(|value| value.unwrap_or(ABSENT));
                        Column::of(labels, cells.collect())
                    }
                    None => self.last_of_points(labels, rest, reading, asks_time).await?,
                };
                let is_there = |cell: &&f64| cell.to_bits() != ABSENT.to_bits();
                self.visits += column.cells.iter().filter(is_there).count() as u64;
                if !column.is_empty() {
                    if reading.is_fixed {
                        column.cells.resize(steps.count, ABSENT);
                        column.fill();
                    }
                    self.hold(column.cells.len())?;
                    columns.push(column);
                }
            }
            Ok(columns)
        })
    }

    /// The last values of a series at each step, of its points, or when they were taken.
    async fn last_of_points(
        &mut self,
        labels: Labels,
        rest: S::Samples,
        reading: Reading,
        asks_time: bool,
    ) -> Result<Column, Error<S::Error>> {
        let mut held = Held::new(Some(rest), self.buckets == Buckets::Unwanted);
        let mut column = Column::new(labels, reading.steps.count);
        for place in 0..reading.steps.count {
            let found = held.last(reading.steps.time(place), reading.range).await?;
            let Some((time, value)) = found.filter(|(_, value)| value.to_bits() != STALE) else {
                continue;
            };
            match held.histogram((time, value)).filter(|_| !asks_time) {
                Some(histogram) => {
                    let before = place.checked_sub(1).and_then(|before| column.get(before));
                    let is_held = matches!(before, Some(Cell::Histogram(before)) if Arc::ptr_eq(before, histogram));
                    let histogram = Arc::clone(histogram);
                    if !is_held {
                        self.hold(histogram.size())?;
                    }
                    column.put(place, Value::Histogram(histogram));
                }
                None => {
                    column.cells[place] = if asks_time { super::seconds(0, time) } else { value };
                }
            }
        }
        Ok(column)
    }

    /// The points of each series in a range, without marks.
    pub(super) fn points<'b>(
        &'b mut self,
        (selector, span): (&'b Selector, &'b Range<usize>),
        reading: Reading,
    ) -> Boxed<'b, Vec<Series>, S::Error> {
        Box::pin(async move {
            let mut all = Vec::new();
            let (after, until) = reading.bounds();
            for (labels, series) in self.source.find(&selector.matchers).await? {
                self.source.pause().await?;
                let mut rest =
                    self.source.read(&series, after, until).await.map_err(Error::Source)?;
                self.tell_source(rest.told(), span);
                let (mut samples, mut histograms) = (Vec::new(), Vec::new());
                let (mut counted, mut weighed) = (0, 0);
                while rest.more(&mut samples).await.map_err(Error::Source)? {
                    rest.histograms(&mut histograms);
                    let new = histograms[weighed..].iter().map(|(_, one)| 2 + one.size());
                    self.hold(2 * (samples.len() - counted) + new.sum::<usize>())?;
                    (counted, weighed) = (samples.len(), histograms.len());
                }
                samples.retain(|(_, value)| value.to_bits() != STALE);
                if !samples.is_empty() {
                    all.push(Series { labels, drop_name: false, samples, histograms });
                }
            }
            Ok(all)
        })
    }

    /// The values of a subquery as points.
    pub(super) fn subquery<'b>(
        &'b mut self,
        subquery: &'b Subquery,
        reading: Reading,
    ) -> Boxed<'b, Vec<Series>, S::Error> {
        Box::pin(async move {
            let step = subquery.step.unwrap_or(self.options.subquery_step).max(1);
            let (after, until) = reading.bounds();
            // The steps lie where they would lie for any query: at multiples.
            let mut first = (after / step).saturating_mul(step);
            if first <= after {
                first = first.saturating_add(step);
            }
            if first > until {
                return Ok(Vec::new());
            }
            let count = (i128::from(until) - i128::from(first)) / i128::from(step) + 1;
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count > self.options.max_values {
                self.hold(count)?;
            }
            let steps = Steps { first, count, step };
            let before = std::mem::replace(&mut self.buckets, Buckets::Needed);
            let columns = self.columns(&subquery.inner, steps).await;
            self.buckets = before;
            Ok(columns?.into_iter().map(|column| series(column, steps)).collect())
        })
    }

    /// A function over a selector's ranges. Where much is known of each of the series without a
    /// look at its points, several are worked at beside each other.
    pub(super) fn over_selector<'b>(
        &'b mut self,
        selector: &'b Selector,
        asked: &'b Asked<'b>,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let source = self.source;
            let (mut columns, mut begun) = (Vec::new(), VecDeque::new());
            let (after, until) = asked.reading.bounds();
            for (labels, series) in source.find(&selector.matchers).await? {
                source.pause().await?;
                let wanted = asked.over.wanted();
                let rest = match wanted {
                    Some(wanted) => {
                        source.read_windows(&series, asked.reading.windows(wanted)).await
                    }
                    None => source.read(&series, after, until).await,
                };
                let rest = rest.map_err(Error::Source)?;
                let told = rest.told();
                self.tell_source(told, asked.span);
                let wanted = wanted.filter(|_| told.every.is_some() || told.are_summed);
                let work = wanted.map(|wanted| {
                    let reading = (asked.reading, asked.steps);
                    let work = Work::new((asked.over, wanted), reading, self.options);
                    let is_much = |every| work.buckets(every) >= MANY_BUCKETS;
                    (work, told.every.is_some_and(is_much))
                });
                let beside = if let Some((_, true)) = work { source.beside() } else { 1 };
                // What comes of series stays in their order.
                while begun.len() >= beside {
                    let Some((labels, worked)) = begun.pop_front() else { break };
                    columns.extend(self.ended(labels, worked, asked).await?);
                }
                columns.extend(match work {
                    Some((work, _)) if beside > 1 => {
                        begun.push_back((labels, source.begin(work.run(rest, Nobody))));
                        None
                    }
                    Some((work, _)) => {
                        let worked = work.run(rest, OthersOf(source)).await?;
                        self.worked(labels, worked, asked)?
                    }
                    None => {
                        let held = Held::new(Some(rest), self.buckets == Buckets::Unwanted);
                        self.over(labels, false, held, asked).await?
                    }
                });
            }
            for (labels, worked) in begun {
                columns.extend(self.ended(labels, worked, asked).await?);
            }
            Ok(columns)
        })
    }

    /// The column of a series that was worked at beside others, once it is.
    async fn ended(
        &mut self,
        labels: Labels,
        worked: impl Future<Output = Result<Result<Worked, Error<S::Error>>, S::Error>>,
        asked: &Asked<'_>,
    ) -> Result<Option<Column>, Error<S::Error>> {
        let worked = worked.await.map_err(Error::Source)??;
        self.worked(labels, worked, asked)
    }

    /// The column of a series of which a function was worked out.
    pub(super) fn worked(
        &mut self,
        labels: Labels,
        Worked { cells, visits }: Worked,
        asked: &Asked<'_>,
    ) -> Result<Option<Column>, Error<S::Error>> {
        self.visited(visits)?;
        let column = Column::of(labels, cells);
        if column.is_empty() {
            return Ok(None);
        }
        if asked.over.is_of_counters() {
            self.tell_of_counter(column.labels.metric(), asked.span);
        }
        self.named(column, asked).map(Some)
    }

    /// Counts points that were looked at.
    fn visited(&mut self, visits: u64) -> Result<(), Error<S::Error>> {
        self.visits += visits;
        if self.visits > self.options.max_visits {
            return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
        }
        Ok(())
    }

    /// What came of a function, with the labels that it has then.
    fn named(&mut self, mut column: Column, asked: &Asked<'_>) -> Result<Column, Error<S::Error>> {
        self.hold(column.cells.len())?;
        if !asked.over.keeps_name() {
            drop_name(&mut column, self.options.late_names);
        }
        Ok(column)
    }

    /// A function over a subquery's ranges.
    pub(super) fn over_subquery<'b>(
        &'b mut self,
        series: Vec<Series>,
        asked: &'b Asked<'b>,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let mut columns = Vec::new();
            for Series { labels, drop_name, samples, histograms } in series {
                self.source.pause().await?;
                let held: Held<S::Samples> = Held::of(samples, histograms);
                columns.extend(self.over(labels, drop_name, held, asked).await?);
            }
            Ok(columns)
        })
    }

    async fn over<R: Samples<Error = S::Error>>(
        &mut self,
        labels: Labels,
        dropped: bool,
        mut held: Held<R>,
        asked: &Asked<'_>,
    ) -> Result<Option<Column>, Error<S::Error>> {
        let (reading, steps) = (asked.reading, asked.steps);
        let mut column = Column::new(labels, steps.count);
        let mut numbers = vec![0.0; asked.numbers.len()];
        let (mut is_any, mut is_any_float) = (false, false);
        // With a fixed window and nothing that differs from step to step, one value is all.
        let is_same = asked.numbers.is_empty();
        let mut paused_at = self.visits;
        for place in 0..steps.count {
            if self.visits - paused_at >= VISITS_AT_ONCE {
                self.source.pause().await?;
                paused_at = self.visits;
            }
            let end = reading.steps.time(if reading.is_fixed { 0 } else { place });
            let window = held.window(end, reading.range, self.options.max_window).await?;
            if window.samples.is_empty() {
                if reading.is_fixed { break } else { continue }
            }
            self.visited(window.weight() as u64)?;
            if window.samples.len() > self.options.max_window {
                return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
            }
            for (number, all) in numbers.iter_mut().zip(asked.numbers) {
                *number = all[place];
            }
            let span = Window { end, range: reading.range, step: steps.time(place) };
            if window.histograms.is_empty() {
                let value = match asked.over.is_a_rise() {
                    true => held.rise(asked.over, span),
                    false => asked.over.value(window.samples, span, &numbers),
                };
                if let Some(value) = value {
                    (column.cells[place], is_any, is_any_float) = (value, true, true);
                }
            } else {
                let metric = column.labels.metric();
                let mut tell = Tell { told: &mut self.told, span: asked.span, metric };
                let found = native::value(asked.over, window, span, &numbers, &mut tell);
                if let Some(value) = found {
                    (is_any, is_any_float) = (true, is_any_float || value.float().is_some());
                    if let Value::Histogram(histogram) = &value {
                        self.hold(histogram.size())?;
                    }
                    column.put(place, value);
                }
            }
            if reading.is_fixed && is_same {
                column.fill();
                break;
            }
        }
        if !is_any {
            return Ok(None);
        }
        if asked.over.is_of_counters() && is_any_float {
            self.tell_of_counter(column.labels.metric(), asked.span);
        }
        self.hold(column.cells.len())?;
        column.drop_name = dropped;
        if !asked.over.keeps_name() {
            drop_name(&mut column, self.options.late_names);
        }
        Ok(Some(column))
    }
}

/// The values of a column as points. Whether a counter began again between those that a subquery
/// looks at their hints don't say, which are about the points between.
fn series(column: Column, steps: Steps) -> Series {
    let (mut samples, mut histograms) = (Vec::new(), Vec::new());
    for place in 0..column.cells.len() {
        let time = steps.time(place);
        match column.get(place) {
            Some(Cell::Float(value)) => samples.push((time, value)),
            Some(Cell::Histogram(histogram)) => {
                let histogram = match histogram.hint() {
                    ResetHint::Unknown | ResetHint::Gauge => Arc::clone(histogram),
                    _ => Arc::new((**histogram).clone().with_hint(ResetHint::Unknown)),
                };
                samples.push((time, f64::from_bits(HISTOGRAM)));
                histograms.push((time, histogram));
            }
            None => {}
        }
    }
    let Column { labels, drop_name, .. } = column;
    Series { labels, drop_name, samples, histograms }
}
