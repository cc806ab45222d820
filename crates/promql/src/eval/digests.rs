//! Windows of digests, and of stretches by the column: as those of points (`read.rs`), where what
//! is asked needs no more.
//!
//! A source gives them only of stretches of time that lie in each window as a whole or not at
//! all, so a window has those that begin and end in it.

use super::column::ABSENT;
use super::held::TOO_MANY_POINTS;
use super::reading::{Reading, VISITS_AT_ONCE};
use super::window::{Over, Window};
use super::{Evaluator, Steps};
use crate::digest::{Digest, Told, Wanted};
use crate::source::{Samples, Source};
use crate::stretches::Stretches;
use crate::{Error, Options};
use std::ops::Range;

/// What is held of a series.
struct Held<R> {
    rest: Option<R>,
    digests: Vec<Digest>,
    /// Where the last window began and ended.
    begin: usize,
    end: usize,
}

impl<R: Samples> Held<R> {
    fn new(rest: R) -> Self {
        Self { rest: Some(rest), digests: Vec::new(), begin: 0, end: 0 }
    }

    /// The digests of a window, which begins and ends no earlier than the last one did.
    async fn window(
        &mut self,
        (after, end): (i64, i64),
        most: usize,
    ) -> Result<&[Digest], Error<R::Error>> {
        loop {
            let is_before = |digest: &Digest| digest.first.0 <= after;
            while self.digests.get(self.begin).is_some_and(is_before) {
                self.begin += 1;
            }
            let is_known = self.digests.last().is_some_and(|digest| digest.last.0 > end);
            let Some(source) = self.rest.as_mut().filter(|_| !is_known) else { break };
            if self.begin > self.digests.len() / 2 {
                self.digests.drain(..self.begin);
                self.end = self.end.saturating_sub(self.begin);
                self.begin = 0;
            }
            if self.digests.len() > most {
                return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
            }
            if !source.more_digests(&mut self.digests).await.map_err(Error::Source)? {
                self.rest = None;
            }
        }
        self.end = self.end.max(self.begin);
        while self.digests.get(self.end).is_some_and(|digest| digest.last.0 <= end) {
            self.end += 1;
        }
        Ok(&self.digests[self.begin..self.end])
    }
}

/// What came of stretches.
struct Put {
    /// Windows that have their values.
    windows: usize,
    /// Stretches that were looked at.
    looked_at: usize,
    /// Whether the next window has stretches that were not read yet.
    wants_more: bool,
}

/// What is held of a series whose stretches are read by the column.
struct HeldStretches<R> {
    rest: Option<R>,
    stretches: Stretches,
    begin: usize,
}

impl<R: Samples> HeldStretches<R> {
    /// Puts the values of as many windows as all is there of, unless that takes long.
    fn put(&mut self, over: Over, wanted: Wanted, ends: Ends, cells: &mut [f64]) -> Put {
        let stretches = &self.stretches;
        let known = match self.rest {
            Some(_) => stretches.lasts.last().copied(),
            None => Some(i64::MAX),
        };
        let (mut begin, mut looked_at) = (self.begin, 0);
        for (place, cell) in cells.iter_mut().enumerate() {
            let end = ends.first.saturating_add(ends.step.saturating_mul(place as i64));
            let after = end.saturating_sub(ends.range);
            while stretches.firsts.get(begin).is_some_and(|first| *first <= after) {
                begin += 1;
            }
            if self.rest.is_some() && known.is_none_or(|known| known <= end) {
                self.begin = begin;
                return Put { windows: place, looked_at, wants_more: true };
            }
            let (behind, found) = stretches.folded(begin, end, wanted);
            looked_at += behind - begin;
            if let Some((count, value)) = found {
                *cell = over.value_of_all(count, value);
            }
            if looked_at as u64 >= VISITS_AT_ONCE {
                self.begin = begin;
                return Put { windows: place + 1, looked_at, wants_more: false };
            }
        }
        self.begin = begin;
        Put { windows: cells.len(), looked_at, wants_more: false }
    }

    /// Reads what comes next; how many stretches that is.
    async fn read(&mut self, most: usize) -> Result<usize, Error<R::Error>> {
        let Some(source) = &mut self.rest else { return Ok(0) };
        if self.begin > self.stretches.len() / 2 {
            self.stretches.forget(self.begin);
            self.begin = 0;
        }
        if self.stretches.len() > most {
            return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
        }
        let before = self.stretches.len();
        if !source.more_stretches(&mut self.stretches).await.map_err(Error::Source)? {
            self.rest = None;
        }
        Ok(self.stretches.len() - before)
    }
}

/// Who has a turn while a series is worked at that takes long.
pub(super) trait Others<E>: Send + Sync {
    /// Lets them go first. An error ends the work.
    fn pause(&self) -> impl Future<Output = Result<(), Error<E>>> + Send;
}

/// Those who ask a source.
pub(super) struct OthersOf<'a, S>(pub(super) &'a S);

impl<S: Source> Others<S::Error> for OthersOf<'_, S> {
    fn pause(&self) -> impl Future<Output = Result<(), Error<S::Error>>> + Send {
        self.0.pause()
    }
}

/// Nobody, since it has a task of its own.
pub(super) struct Nobody;

impl<E: Send> Others<E> for Nobody {
    async fn pause(&self) -> Result<(), Error<E>> {
        Ok(())
    }
}

/// Where windows end, and how far they look back.
#[derive(Clone, Copy)]
struct Ends {
    first: i64,
    step: i64,
    range: i64,
}

/// A function of what is known of a series, to be worked out by whoever has time: of the series and
/// the query it has all that it needs.
#[derive(Clone, Copy)]
pub(super) struct Work {
    over: Over,
    wanted: Wanted,
    reading: Reading,
    steps: Steps,
    /// Digests, or stretches, of a window, and visits of them, at most.
    most: (usize, u64),
}

/// What comes of it.
pub(super) struct Worked {
    /// A value for each step.
    pub(super) cells: Vec<f64>,
    pub(super) visits: u64,
}

impl Work {
    pub(super) fn new(
        (over, wanted): (Over, Wanted),
        (reading, steps): (Reading, Steps),
        options: &Options,
    ) -> Self {
        Self { over, wanted, reading, steps, most: (options.max_window, options.max_visits) }
    }

    /// How many buckets of such a length lie in all of it, about.
    pub(super) fn buckets(&self, every: i64) -> u64 {
        let (after, until) = self.reading.bounds();
        until.abs_diff(after) / every.unsigned_abs().max(1)
    }

    /// Does it, with pauses for others.
    pub(super) async fn run<R: Samples>(
        self,
        samples: R,
        others: impl Others<R::Error>,
    ) -> Result<Worked, Error<R::Error>> {
        let mut worked = Worked { cells: vec![ABSENT; self.steps.count], visits: 0 };
        let cells = if self.reading.is_fixed { 1 } else { usize::MAX }.min(self.steps.count);
        match self.wanted {
            Wanted::FirstAndLast | Wanted::Ends | Wanted::Last => {
                self.over_digests(samples, cells, &mut worked, others).await?;
            }
            _ => self.over_stretches(samples, cells, &mut worked, others).await?,
        }
        if self.reading.is_fixed
            && let Some(first) = worked.cells.first().copied()
        {
            worked.cells.fill(first);
        }
        Ok(worked)
    }

    /// A function of the ends of points, over the digests of the first windows.
    async fn over_digests<R: Samples>(
        self,
        samples: R,
        count: usize,
        worked: &mut Worked,
        others: impl Others<R::Error>,
    ) -> Result<(), Error<R::Error>> {
        let Self { over, reading, steps, .. } = self;
        let mut held = Held::new(samples);
        let mut paused_at = 0;
        for (place, cell) in worked.cells[..count].iter_mut().enumerate() {
            let end = reading.steps.time(place);
            let after = end.saturating_sub(reading.range);
            let window = held.window((after, end), self.most.0).await?;
            worked.visits += window.len() as u64;
            self.bound(worked.visits)?;
            if worked.visits - paused_at >= VISITS_AT_ONCE {
                others.pause().await?;
                paused_at = worked.visits;
            }
            let span = Window { end, range: reading.range, step: steps.time(place) };
            if let Some(value) = over.value_of(window, span) {
                *cell = value;
            }
        }
        Ok(())
    }

    /// A function of how many points there are, and of one number of all of them, over the
    /// stretches of the first windows.
    async fn over_stretches<R: Samples>(
        self,
        samples: R,
        count: usize,
        worked: &mut Worked,
        others: impl Others<R::Error>,
    ) -> Result<(), Error<R::Error>> {
        let Self { over, wanted, reading, .. } = self;
        let mut held =
            HeldStretches { rest: Some(samples), stretches: Stretches::default(), begin: 0 };
        let (mut place, mut read, mut paused_at) = (0, 0, 0);
        loop {
            let Steps { step, .. } = reading.steps;
            let ends = Ends { first: reading.steps.time(place), step, range: reading.range };
            let cells = &mut worked.cells[place..count];
            let put = held.put(over, wanted, ends, cells);
            place += put.windows;
            worked.visits += put.looked_at as u64;
            self.bound(worked.visits)?;
            if place == count {
                return Ok(());
            }
            if worked.visits + read - paused_at >= VISITS_AT_ONCE {
                others.pause().await?;
                paused_at = worked.visits + read;
            }
            if put.wants_more {
                read += held.read(self.most.0).await? as u64;
            }
        }
    }

    fn bound<E>(self, visits: u64) -> Result<(), Error<E>> {
        match visits > self.most.1 {
            true => Err(Error::Asked(TOO_MANY_POINTS.to_string())),
            false => Ok(()),
        }
    }
}

impl<S: Source> Evaluator<'_, S> {
    /// The last values of a series at each step, of its digests.
    pub(super) async fn last_of_digests(
        &mut self,
        samples: S::Samples,
        reading: Reading,
        asks_time: bool,
    ) -> Result<Vec<Option<f64>>, Error<S::Error>> {
        let mut held = Held::new(samples);
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
