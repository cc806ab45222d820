//! Windows of digests: as those of points (`read.rs`), where what is asked needs no more.
//!
//! A source gives digests only of stretches of time that lie in each window as a whole or not at
//! all, so a window has those that begin and end in it.

use super::column::{ABSENT, Column};
use super::held::TOO_MANY_POINTS;
use super::read::{Asked, Reading};
use super::window::Window;
use super::{Evaluator, Steps, drop_name};
use crate::Error;
use crate::digest::{Digest, Told, Windows};
use crate::labels::Labels;
use crate::source::{Samples, Source};
use std::ops::Range;

/// What is held of a series.
struct Held<R> {
    rest: Option<R>,
    digests: Vec<Digest>,
    begin: usize,
}

impl<R: Samples> Held<R> {
    /// The digests of a window, which ends no earlier than the last one did.
    async fn window(
        &mut self,
        (after, end): (i64, i64),
        most: usize,
    ) -> Result<&[Digest], Error<R::Error>> {
        loop {
            let rest = &self.digests[self.begin..];
            self.begin += rest.partition_point(|digest| digest.first.0 <= after);
            let is_known = self.digests.last().is_some_and(|digest| digest.last.0 > end);
            let Some(source) = self.rest.as_mut().filter(|_| !is_known) else { break };
            if self.begin > self.digests.len() / 2 {
                self.digests.drain(..self.begin);
                self.begin = 0;
            }
            if self.digests.len() > most {
                return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
            }
            if !source.more_digests(&mut self.digests).await.map_err(Error::Source)? {
                self.rest = None;
            }
        }
        let window = &self.digests[self.begin..];
        Ok(&window[..window.partition_point(|digest| digest.last.0 <= end)])
    }
}

impl Reading {
    /// The windows of it.
    pub(super) fn windows(&self, is_last: bool) -> Windows {
        let Steps { first, count, step } = self.steps;
        Windows { first, step, count, range: self.range, is_last }
    }
}

impl<S: Source> Evaluator<'_, S> {
    /// A function over the digests of a series' windows.
    pub(super) async fn over_digests(
        &mut self,
        labels: Labels,
        samples: S::Samples,
        asked: &Asked<'_>,
    ) -> Result<Option<Column>, Error<S::Error>> {
        let (reading, steps) = (asked.reading, asked.steps);
        let mut held = Held { rest: Some(samples), digests: Vec::new(), begin: 0 };
        let mut cells = vec![ABSENT; steps.count];
        let mut is_any = false;
        for (place, cell) in cells.iter_mut().enumerate() {
            let end = reading.steps.time(if reading.is_fixed { 0 } else { place });
            let after = end.saturating_sub(reading.range);
            let window = held.window((after, end), self.options.max_window).await?;
            self.visits += window.len() as u64;
            if self.visits > self.options.max_visits {
                return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
            }
            let span = Window { end, range: reading.range, step: steps.time(place) };
            if let Some(value) = asked.over.value_of(window, span) {
                (*cell, is_any) = (value, true);
            }
            if reading.is_fixed {
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
        let mut column = Column::of(labels, cells);
        if !asked.over.keeps_name() {
            drop_name(&mut column, self.options.late_names);
        }
        Ok(Some(column))
    }

    /// The last values of a series at each step, of its digests.
    pub(super) async fn last_of_digests(
        &mut self,
        samples: S::Samples,
        reading: Reading,
        asks_time: bool,
    ) -> Result<Vec<Option<f64>>, Error<S::Error>> {
        let mut held = Held { rest: Some(samples), digests: Vec::new(), begin: 0 };
        let mut cells = Vec::with_capacity(reading.steps.count);
        // The last digest may begin before the window, whose last point lies in it nevertheless.
        let mut last: Option<Digest> = None;
        for place in 0..reading.steps.count {
            let end = reading.steps.time(place);
            let after = end.saturating_sub(reading.range);
            let begin = last.map_or(i64::MIN, |last| last.last.0);
            let window = held.window((begin, end), self.options.max_window).await?;
            last = window.last().copied().or(last);
            let found = last.filter(|last| !last.is_ended && last.last.0 > after);
            cells.push(found.map(|found| match asks_time {
                true => super::seconds(0, found.last.0),
                false => found.last.1,
            }));
        }
        Ok(cells)
    }

    /// Says once of each selector where its points come from.
    pub(super) fn tell_source(&mut self, told: Told, span: &Range<usize>) {
        if let Some(every) = told.every {
            let every = crate::format::Duration(every);
            self.told.inform(format!("answered from rollups of {every}"), span);
        }
        if told.are_missing {
            let why = "points have gone, of which there are only rollups: those answer avg, sum, \
                       min, max, count, first, last and present _over_time, rate, increase, delta \
                       and plain selectors, at times, steps and ranges that are multiples of theirs";
            self.told.warn(why.to_string(), span);
        }
    }
}
