//! Reads series forward: their last values, the points of windows, and the steps of subqueries as
//! if they were points.
//!
//! Windows of ascending ends share what is held: points come in at the end of the list and go at
//! its begin, where they are counted and moved once in a while. Marks are no points of a window; a
//! last value that is one is none. A window of too many points is refused while it is read, and of
//! a last value those before it aren't held: a range may be of years.

use super::column::{ABSENT, Column, SAME_LABELSET};
use super::window::{Over, Window};
use super::{Boxed, Evaluator, Steps, drop_name};
use crate::Error;
use crate::ast::{Selector, Subquery};
use crate::labels::Labels;
use crate::source::{STALE, Sample, Samples, Source};
use std::ops::Range;

pub(super) const TOO_MANY_POINTS: &str =
    "it looks at too many points; take a larger step, a shorter range or fewer series";

/// When a selector looks, and how many nanoseconds back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Its own steps: the query's, moved, or one.
    pub(super) steps: Steps,
    pub(super) range: i64,
    /// Whether it looks at the same time at every step.
    pub(super) is_fixed: bool,
}

impl Reading {
    /// Where points begin, that of the bound not among them, and where they end.
    fn bounds(&self) -> (i64, i64) {
        (self.steps.first.saturating_sub(self.range), self.steps.last())
    }
}

/// A series with points.
pub(super) struct Series {
    pub(super) labels: Labels,
    pub(super) drop_name: bool,
    pub(super) samples: Vec<Sample>,
}

/// Series by the labels that they have in the end.
pub(super) fn named<E>(
    series: Vec<Series>,
    late: bool,
) -> Result<Vec<(Labels, Vec<Sample>)>, Error<E>> {
    let named = |series: Series| match late && series.drop_name {
        true => (series.labels.without_metric(), series.samples),
        false => (series.labels, series.samples),
    };
    let mut all: Vec<_> =
        series.into_iter().map(named).filter(|(_, samples)| !samples.is_empty()).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    match all.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        true => Err(Error::Execution(SAME_LABELSET.to_string())),
        false => Ok(all),
    }
}

/// What is held of a series that is read.
struct Held<R> {
    rest: Option<R>,
    samples: Vec<Sample>,
    begin: usize,
    end: usize,
}

impl<R: Samples> Held<R> {
    fn new(rest: Option<R>, samples: Vec<Sample>) -> Self {
        Self { rest, samples, begin: 0, end: 0 }
    }

    /// The points of a window, which ends no earlier than the last one did: `most` of them.
    async fn window(
        &mut self,
        end: i64,
        range: i64,
        most: usize,
    ) -> Result<&[Sample], Error<R::Error>> {
        self.skip(end.saturating_sub(range));
        while self.may_go_on(end) {
            let before = self.more().await?;
            let is_stale = |(_, value): &Sample| value.to_bits() == STALE;
            if self.samples[before..].iter().any(is_stale) {
                let more = self.samples.split_off(before);
                self.samples.extend(more.into_iter().filter(|sample| !is_stale(sample)));
            }
            self.skip(end.saturating_sub(range));
            if self.samples[self.begin..].partition_point(|(time, _)| *time <= end) > most {
                return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
            }
        }
        while self.samples.get(self.end).is_some_and(|(time, _)| *time <= end) {
            self.end += 1;
        }
        Ok(&self.samples[self.begin..self.end])
    }

    /// The last point, or mark, up to a time that is no earlier than that before, and not older
    /// than so much.
    async fn last(&mut self, end: i64, range: i64) -> Result<Option<Sample>, Error<R::Error>> {
        loop {
            let upto = self.samples[self.begin..].partition_point(|(time, _)| *time <= end);
            // Of those that come before it nobody asks any more.
            self.begin += upto.saturating_sub(1);
            if !self.may_go_on(end) {
                let found = self.samples.get(self.begin).filter(|_| upto > 0).copied();
                return Ok(found.filter(|(time, _)| *time > end.saturating_sub(range)));
            }
            self.more().await?;
        }
    }

    /// Whether there may be more points up to a time.
    fn may_go_on(&self, end: i64) -> bool {
        self.rest.is_some() && self.samples.last().is_none_or(|(time, _)| *time <= end)
    }

    /// Reads on; gives where that begins.
    async fn more(&mut self) -> Result<usize, Error<R::Error>> {
        if self.begin > self.samples.len() / 2 {
            self.samples.drain(..self.begin);
            self.end = self.end.saturating_sub(self.begin);
            self.begin = 0;
        }
        let before = self.samples.len();
        let Some(rest) = &mut self.rest else { return Ok(before) };
        if !rest.more(&mut self.samples).await.map_err(Error::Source)? {
            self.rest = None;
        }
        Ok(before)
    }

    /// Leaves out what is too old.
    fn skip(&mut self, begin: i64) {
        while self.samples.get(self.begin).is_some_and(|(time, _)| *time <= begin) {
            self.begin += 1;
        }
        self.end = self.end.max(self.begin);
    }
}

/// The last values of a series at each step, of its points.
async fn last_of_points<R: Samples>(
    rest: R,
    reading: Reading,
    asks_time: bool,
) -> Result<Vec<Option<f64>>, Error<R::Error>> {
    let mut held = Held::new(Some(rest), Vec::new());
    let mut cells = Vec::with_capacity(reading.steps.count);
    for place in 0..reading.steps.count {
        let found = held.last(reading.steps.time(place), reading.range).await?;
        let found = found.filter(|(_, value)| value.to_bits() != STALE);
        cells.push(
            found.map(|(time, value)| if asks_time { super::seconds(0, time) } else { value }),
        );
    }
    Ok(cells)
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
                let windows = reading.windows(true);
                let rest =
                    self.source.read_windows(&series, windows).await.map_err(Error::Source)?;
                self.tell_source(rest.told(), span);
                let found = match rest.told().every {
                    Some(_) => self.last_of_digests(rest, reading, asks_time).await?,
                    None => last_of_points(rest, reading, asks_time).await?,
                };
                let is_any = found.iter().any(Option::is_some);
                let mut cells: Vec<f64> =
                    found.into_iter().map(|value| value.unwrap_or(ABSENT)).collect();
                if is_any {
                    if reading.is_fixed {
                        cells = vec![cells[0]; steps.count];
                    }
                    self.hold(cells.len())?;
                    columns.push(Column { labels, drop_name: false, cells });
                }
            }
            Ok(columns)
        })
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
                let mut samples = Vec::new();
                let mut counted = 0;
                while rest.more(&mut samples).await.map_err(Error::Source)? {
                    self.hold(2 * (samples.len() - counted))?;
                    counted = samples.len();
                }
                samples.retain(|(_, value)| value.to_bits() != STALE);
                if !samples.is_empty() {
                    all.push(Series { labels, drop_name: false, samples });
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
            let columns = self.columns(&subquery.inner, steps).await?;
            let series = |column: Column| {
                let cells = column.cells.into_iter().enumerate();
                let cells = cells.filter(|(_, cell)| !super::column::is_absent(*cell));
                let samples = cells.map(|(place, cell)| (steps.time(place), cell)).collect();
                Series { labels: column.labels, drop_name: column.drop_name, samples }
            };
            Ok(columns.into_iter().map(series).collect())
        })
    }

    /// A function over a selector's ranges.
    pub(super) fn over_selector<'b>(
        &'b mut self,
        selector: &'b Selector,
        asked: &'b Asked<'b>,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let mut columns = Vec::new();
            let (after, until) = asked.reading.bounds();
            for (labels, series) in self.source.find(&selector.matchers).await? {
                self.source.pause().await?;
                let rest = match asked.over.takes_digests() {
                    true => self.source.read_windows(&series, asked.reading.windows(false)).await,
                    false => self.source.read(&series, after, until).await,
                };
                let rest = rest.map_err(Error::Source)?;
                self.tell_source(rest.told(), asked.span);
                columns.extend(match rest.told().every {
                    Some(_) => self.over_digests(labels, rest, asked).await?,
                    None => {
                        let held = Held::new(Some(rest), Vec::new());
                        self.over(labels, false, held, asked).await?
                    }
                });
            }
            Ok(columns)
        })
    }

    /// A function over a subquery's ranges.
    pub(super) fn over_subquery<'b>(
        &'b mut self,
        series: Vec<Series>,
        asked: &'b Asked<'b>,
    ) -> Boxed<'b, Vec<Column>, S::Error> {
        Box::pin(async move {
            let mut columns = Vec::new();
            for Series { labels, drop_name, samples } in series {
                let held: Held<S::Samples> = Held::new(None, samples);
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
        let mut cells = vec![ABSENT; steps.count];
        let mut numbers = vec![0.0; asked.numbers.len()];
        let mut is_any = false;
        // With a fixed window and nothing that differs from step to step, one value is all.
        let is_same = asked.numbers.is_empty();
        for (place, cell) in cells.iter_mut().enumerate() {
            let end = reading.steps.time(if reading.is_fixed { 0 } else { place });
            let window = held.window(end, reading.range, self.options.max_window).await?;
            if window.is_empty() {
                if reading.is_fixed { break } else { continue }
            }
            self.visits += window.len() as u64;
            if window.len() > self.options.max_window || self.visits > self.options.max_visits {
                return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
            }
            for (number, all) in numbers.iter_mut().zip(asked.numbers) {
                *number = all[place];
            }
            let span = Window { end, range: reading.range, step: steps.time(place) };
            if let Some(value) = asked.over.value(window, span, &numbers) {
                (*cell, is_any) = (value, true);
            }
            if reading.is_fixed && is_same {
                let first = *cell;
                cells.fill(first);
                break;
            }
        }
        if !is_any {
            return Ok(None);
        }
        if asked.over.is_of_counters() {
            self.tell_of_counter(labels.metric(), asked.span);
        }
        self.hold(cells.len())?;
        let mut column = Column { labels, drop_name: dropped, cells };
        if !asked.over.keeps_name() {
            drop_name(&mut column, self.options.late_names);
        }
        Ok(Some(column))
    }
}
