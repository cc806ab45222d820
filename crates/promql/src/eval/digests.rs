//! Windows of digests, and of stretches by the column: as those of points (`read.rs`), where what
//! is asked needs no more.
//!
//! A source gives them only of stretches of time that lie in each window as a whole or not at
//! all, so a window has those that begin and end in it.

use super::column::ABSENT;
use super::held::TOO_MANY_POINTS;
use super::reading::{Reading, VISITS_AT_ONCE};
use super::window::{Over, Reach, Window};
use super::{Evaluator, Steps};
use crate::digest::{Digest, Told, Wanted};
use crate::source::{Samples, Source};
use crate::stretches::Stretches;
use crate::{Error, Options};
use std::ops::Range;

/// A function of windows, what it looks at, and how far points reached in the last window.
struct Function {
    over: Over,
    wanted: Wanted,
    reach: Reach,
}

/// What comes next of a series, in columns or one digest after the other.
trait Known: Default + Send {
    fn len(&self) -> usize;

    /// Forgets the first of it.
    fn forget(&mut self, count: usize);

    /// Where what is at a place begins.
    fn first(&self, place: usize) -> Option<i64>;

    /// Where all of it ends.
    fn last(&self) -> Option<i64>;

    /// Appends what comes next; `false` at the end.
    fn more<R: Samples>(
        &mut self,
        source: &mut R,
    ) -> impl Future<Output = Result<bool, R::Error>> + Send;

    /// The value of what lies in a window from a place on, and the place behind, which is no
    /// earlier than the second one.
    fn value(
        &self,
        places: (usize, usize),
        window: Window,
        asked: &mut Function,
    ) -> (usize, Option<f64>);
}

impl Known for Vec<Digest> {
    fn len(&self) -> usize {
        self.len()
    }

    fn forget(&mut self, count: usize) {
        self.drain(..count);
    }

    fn first(&self, place: usize) -> Option<i64> {
        self.get(place).map(|digest| digest.first.0)
    }

    fn last(&self) -> Option<i64> {
        Some(self.as_slice().last()?.last.0)
    }

    async fn more<R: Samples>(&mut self, source: &mut R) -> Result<bool, R::Error> {
        source.more_digests(self).await
    }

    #[inline]
    fn value(
        &self,
        (begin, mut behind): (usize, usize),
        window: Window,
        Function { over, reach, .. }: &mut Function,
    ) -> (usize, Option<f64>) {
        while self.get(behind).is_some_and(|digest| digest.last.0 <= window.end) {
            behind += 1;
        }
        let digests = self.get(begin..behind);
        (behind, digests.and_then(|digests| over.value_of(digests, window, reach)))
    }
}

impl Known for Stretches {
    fn len(&self) -> usize {
        self.len()
    }

    fn forget(&mut self, count: usize) {
        self.forget(count);
    }

    fn first(&self, place: usize) -> Option<i64> {
        self.firsts.get(place).copied()
    }

    fn last(&self) -> Option<i64> {
        self.lasts.last().copied()
    }

    async fn more<R: Samples>(&mut self, source: &mut R) -> Result<bool, R::Error> {
        source.more_stretches(self).await
    }

    #[inline]
    fn value(
        &self,
        (begin, _): (usize, usize),
        window: Window,
        Function { over, wanted, .. }: &mut Function,
    ) -> (usize, Option<f64>) {
        let (behind, found) = self.folded(begin, window.end, *wanted);
        (behind, found.map(|(count, value)| over.value_of_all(count, value)))
    }
}

/// What came of it.
struct Put {
    /// Windows that have their values.
    windows: usize,
    /// Digests, or stretches, that were looked at.
    looked_at: usize,
    /// Whether the next window has some that were not read yet.
    wants_more: bool,
}

/// What is held of a series.
struct Held<R, K> {
    rest: Option<R>,
    known: K,
    /// Where the last window began and ended.
    begin: usize,
    end: usize,
}

impl<R: Samples, K: Known> Held<R, K> {
    fn new(rest: R) -> Self {
        Self { rest: Some(rest), known: K::default(), begin: 0, end: 0 }
    }

    /// Puts the values of as many windows as all is there of, unless that takes long.
    fn put(&mut self, function: &mut Function, ends: Ends, cells: &mut [f64]) -> Put {
        let known = &self.known;
        let (is_all, last) = (self.rest.is_none(), known.last());
        let (mut begin, mut behind) = (self.begin, self.end);
        let mut put = Put { windows: 0, looked_at: 0, wants_more: false };
        for (place, cell) in cells.iter_mut().enumerate() {
            let end = ends.first.saturating_add(ends.step.saturating_mul(place as i64));
            let after = end.saturating_sub(ends.range);
            while known.first(begin).is_some_and(|first| first <= after) {
                begin += 1;
            }
            put.wants_more = !is_all && last.is_none_or(|last| last <= end);
            if put.wants_more || put.looked_at as u64 >= VISITS_AT_ONCE {
                break;
            }
            let window = Window { end, range: ends.range, step: end };
            let found;
            (behind, found) = known.value((begin, behind.max(begin)), window, function);
            put.windows += 1;
            put.looked_at += behind - begin;
            if let Some(value) = found {
                *cell = value;
            }
        }
        (self.begin, self.end) = (begin, behind);
        put
    }

    /// Reads what comes next; how much that is.
    async fn read(&mut self, most: usize) -> Result<usize, Error<R::Error>> {
        let Some(source) = &mut self.rest else { return Ok(0) };
        if self.begin > self.known.len() / 2 {
            self.known.forget(self.begin);
            self.end = self.end.saturating_sub(self.begin);
            self.begin = 0;
        }
        if self.known.len() > most {
            return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
        }
        let before = self.known.len();
        if !self.known.more(source).await.map_err(Error::Source)? {
            self.rest = None;
        }
        Ok(self.known.len() - before)
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
                let held = Held::<R, Vec<Digest>>::new(samples);
                self.over(held, cells, &mut worked, others).await?;
            }
            _ => {
                let held = Held::<R, Stretches>::new(samples);
                self.over(held, cells, &mut worked, others).await?;
            }
        }
        if self.reading.is_fixed
            && let Some(first) = worked.cells.first().copied()
        {
            worked.cells.fill(first);
        }
        Ok(worked)
    }

    /// The function over the first windows.
    async fn over<R: Samples, K: Known>(
        self,
        mut held: Held<R, K>,
        count: usize,
        worked: &mut Worked,
        others: impl Others<R::Error>,
    ) -> Result<(), Error<R::Error>> {
        let Self { over, wanted, reading, .. } = self;
        let mut function = Function { over, wanted, reach: Reach::default() };
        let (mut place, mut read, mut paused_at) = (0, 0, 0);
        loop {
            let Steps { step, .. } = reading.steps;
            let ends = Ends { first: reading.steps.time(place), step, range: reading.range };
            let cells = &mut worked.cells[place..count];
            let put = held.put(&mut function, ends, cells);
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
        let mut held = Held::<S::Samples, Vec<Digest>>::new(samples);
        let mut cells = Vec::with_capacity(reading.steps.count);
        // The last digest may begin before the window, whose last point lies in it nevertheless.
        let mut last: Option<Digest> = None;
        for place in 0..reading.steps.count {
            let end = reading.steps.time(place);
            let after = end.saturating_sub(reading.range);
            loop {
                let next = held.known.get(held.begin).copied();
                match next.filter(|next| next.last.0 <= end) {
                    Some(next) => {
                        last = Some(next);
                        held.begin += 1;
                    }
                    None if next.is_some() || held.rest.is_none() => break,
                    None => {
                        held.read(self.options.max_window).await?;
                    }
                }
            }
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
            let every = crate::format_duration(every);
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
