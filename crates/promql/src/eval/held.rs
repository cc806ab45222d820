//! What is held of a series while it is read: the points of a window, or the last one.
//!
//! Windows of ascending ends share what is held: points come in at the end of the list and go at
//! its begin, where they are counted and moved once in a while. Histograms stand in a list of their
//! own, which is cut at once: each of them may be as large as thousands of points.

use super::native::window::Points;
use crate::Error;
use crate::histogram::{Histogram, ResetHint};
use crate::source::{HISTOGRAM, HistogramSample, STALE, Sample, Samples};
use std::sync::Arc;

pub(super) const TOO_MANY_POINTS: &str =
    "it looks at too many points; take a larger step, a shorter range or fewer series";

/// What is held of a series that is read.
pub(super) struct Held<R> {
    rest: Option<R>,
    samples: Vec<Sample>,
    begin: usize,
    end: usize,
    histograms: Vec<HistogramSample>,
    /// How many values the histograms are counted as.
    weight: usize,
    /// Whether histograms are held without their buckets.
    strips: bool,
    /// The last one, with its buckets, if they are.
    last: Option<Arc<Histogram>>,
}

impl<R: Samples> Held<R> {
    /// Nothing yet of a series; `strips` leaves the buckets of histograms out.
    pub(super) fn new(rest: Option<R>, strips: bool) -> Self {
        let (samples, histograms) = (Vec::new(), Vec::new());
        Self { rest, samples, begin: 0, end: 0, histograms, weight: 0, strips, last: None }
    }

    /// Points that are all there is.
    pub(super) fn of(samples: Vec<Sample>, histograms: Vec<HistogramSample>) -> Self {
        // They were counted where they came from, and are held whatever the windows are.
        Self { samples, histograms, ..Self::new(None, false) }
    }

    /// The points of a window, which ends no earlier than the last one did: `most` of them, a
    /// histogram counted as what it holds.
    pub(super) async fn window(
        &mut self,
        end: i64,
        range: i64,
        most: usize,
    ) -> Result<Points<'_>, Error<R::Error>> {
        self.skip(end.saturating_sub(range));
        while self.may_go_on(end) {
            let before = self.more().await?;
            let is_stale = |(_, value): &Sample| value.to_bits() == STALE;
            if self.samples[before..].iter().any(is_stale) {
                let more = self.samples.split_off(before);
                self.samples.extend(more.into_iter().filter(|sample| !is_stale(sample)));
            }
            self.skip(end.saturating_sub(range));
            let points = self.samples[self.begin..].partition_point(|(time, _)| *time <= end);
            let is_heavy = points.saturating_add(self.weight) > most;
            if points > most || is_heavy && points.saturating_add(self.weight_until(end)) > most {
                return Err(Error::Asked(TOO_MANY_POINTS.to_string()));
            }
        }
        while self.samples.get(self.end).is_some_and(|(time, _)| *time <= end) {
            self.end += 1;
        }
        let samples = &self.samples[self.begin..self.end];
        if self.histograms.is_empty() {
            return Ok(Points { samples, histograms: &[] });
        }
        let upto = self.histograms.partition_point(|(time, _)| *time <= end);
        Ok(Points { samples, histograms: &self.histograms[..upto] })
    }

    /// The last point, or mark, up to a time that is no earlier than that before, and not older
    /// than so much.
    pub(super) async fn last(
        &mut self,
        end: i64,
        range: i64,
    ) -> Result<Option<Sample>, Error<R::Error>> {
        loop {
            let upto = self.samples[self.begin..].partition_point(|(time, _)| *time <= end);
            // Of those that come before it nobody asks any more.
            self.begin += upto.saturating_sub(1);
            if let Some((first, _)) = self.samples.get(self.begin) {
                self.cut(*first);
            }
            if !self.may_go_on(end) {
                let found = self.samples.get(self.begin).filter(|_| upto > 0).copied();
                return Ok(found.filter(|(time, _)| *time > end.saturating_sub(range)));
            }
            self.more().await?;
        }
    }

    /// The histogram that a point is, if it is one.
    pub(super) fn histogram(&self, (time, value): Sample) -> Option<&Arc<Histogram>> {
        if value.to_bits() != HISTOGRAM {
            return None;
        }
        let place = self.histograms.binary_search_by_key(&time, |(time, _)| *time).ok()?;
        Some(&self.histograms[place].1)
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
            return Ok(before);
        }
        let known = self.histograms.len();
        rest.histograms(&mut self.histograms);
        for (_, histogram) in &mut self.histograms[known..] {
            if self.strips {
                let whole = Arc::clone(histogram);
                *histogram = Arc::new(stripped(&whole, self.last.as_deref()));
                self.last = Some(whole);
            }
            self.weight = self.weight.saturating_add(histogram.size());
        }
        Ok(before)
    }

    /// Leaves out what is too old.
    fn skip(&mut self, begin: i64) {
        while self.samples.get(self.begin).is_some_and(|(time, _)| *time <= begin) {
            self.begin += 1;
        }
        self.end = self.end.max(self.begin);
        self.cut(begin.saturating_add(1));
    }

    /// How many values the histograms up to a time are counted as.
    fn weight_until(&self, end: i64) -> usize {
        let until = self.histograms.iter().take_while(|(time, _)| *time <= end);
        until.map(|(_, histogram)| histogram.size()).sum()
    }

    /// Leaves out the histograms before a time.
    fn cut(&mut self, time: i64) {
        if self.histograms.first().is_some_and(|(first, _)| *first < time) {
            let old = self.histograms.partition_point(|(then, _)| *then < time);
            let weight = self.histograms.drain(..old).map(|(_, one)| one.size()).sum();
            self.weight = self.weight.saturating_sub(weight);
        }
    }
}

/// A histogram without its buckets. What these say of whether a counter began again is noted.
fn stripped(whole: &Histogram, before: Option<&Histogram>) -> Histogram {
    let hint = match (whole.hint(), before) {
        (ResetHint::Unknown, Some(before)) => match whole.is_reset_after(before) {
            true => ResetHint::Reset,
            false => ResetHint::NotReset,
        },
        (hint, _) => hint,
    };
    whole.without_buckets().with_hint(hint)
}
