//! What is held of a series while it is read: the points of a window, or the last one.
//!
//! Windows of ascending ends share what is held: points come in at the end of the list and go at
//! its begin, where they are counted and moved once in a while. Histograms stand in a list of their
//! own, which is cut at once: each of them may be as large as thousands of points.
//!
//! Where a counter fell is noted as its points come in. Windows of a dashboard overlap twentyfold,
//! so a rate that looked at each of its points would look at each twenty times.

use super::native::window::Points;
use super::window::{Over, Window};
use crate::Error;
use crate::histogram::{Histogram, ResetHint};
use crate::source::{HISTOGRAM, HistogramSample, STALE, Sample, Samples};
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) const TOO_MANY_POINTS: &str =
    "it looks at too many points; take a larger step, a shorter range or fewer series";

/// What is held of a series that is read.
pub(super) struct Held<R> {
    rest: Option<R>,
    samples: Vec<Sample>,
    begin: usize,
    end: usize,
    /// How many points stood before those that are held, and have gone.
    gone: usize,
    /// Points that are lower than those before them, counted from the first there was, and what
    /// stood before each; as far as `looked_at`.
    falls: VecDeque<(usize, f64)>,
    looked_at: usize,
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
        Self {
            rest,
            samples: Vec::new(),
            begin: 0,
            end: 0,
            gone: 0,
            falls: VecDeque::new(),
            looked_at: 0,
            histograms: Vec::new(),
            weight: 0,
            strips,
            last: None,
        }
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
        self.end = behind(&self.samples, self.end, end);
        let samples = &self.samples[self.begin..self.end];
        if self.histograms.is_empty() {
            return Ok(Points { samples, histograms: &[] });
        }
        let upto = self.histograms.partition_point(|(time, _)| *time <= end);
        Ok(Points { samples, histograms: &self.histograms[..upto] })
    }

    /// The value of the last window of a function of how far a value rose.
    pub(super) fn rise(&mut self, over: Over, window: Window) -> Option<f64> {
        let (begin, end) = (self.gone + self.begin, self.gone + self.end);
        // The first point of a window has none before it.
        let from = self.looked_at.max(begin + 1);
        let unseen = self.samples.get(from - 1 - self.gone..).unwrap_or_default();
        for (place, pair) in (from..).zip(unseen.windows(2)) {
            if pair[1].1 < pair[0].1 {
                self.falls.push_back((place, pair[0].1));
            }
        }
        self.looked_at = self.gone + self.samples.len();
        while self.falls.front().is_some_and(|(place, _)| *place <= begin) {
            self.falls.pop_front();
        }
        let falls = self.falls.iter().take_while(|(place, _)| *place < end);
        let falls = falls.map(|(_, value)| *value).sum();
        over.rise(&self.samples[self.begin..self.end], falls, window)
    }

    /// The last point, or mark, up to a time that is no earlier than that before, and not older
    /// than so much.
    pub(super) async fn last(
        &mut self,
        end: i64,
        range: i64,
    ) -> Result<Option<Sample>, Error<R::Error>> {
        loop {
            let upto = behind(&self.samples, self.begin, end) - self.begin;
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
            self.gone += self.begin;
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
        self.begin = behind(&self.samples, self.begin, begin);
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

/// The first place from one on whose point is later than a time. It is mostly near.
fn behind(samples: &[Sample], from: usize, time: i64) -> usize {
    let is_early = |(early, _): &Sample| *early <= time;
    let (mut begin, mut end, mut reach) = (from, from, 1);
    while samples.get(end).is_some_and(is_early) {
        begin = end + 1;
        end += reach;
        reach *= 2;
    }
    begin + samples[begin..end.min(samples.len())].partition_point(is_early)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;
    use crate::random::Random;
    use crate::source::{Memory, Source};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("nothing here waits"),
        }
    }

    #[test]
    fn windows_that_overlap_rise_as_their_points_do() {
        let mut random = Random(1);
        let mut below = |end| random.below(end);
        for _ in 0..200 {
            let (mut memory, labels) = (Memory::default(), Labels::default());
            let mut points = Vec::new();
            let (mut time, mut value) = (0, 0.0);
            for _ in 0..below(60) {
                time += 1 + below(3) as i64 * below(20) as i64;
                value = if below(4) == 0 { below(5) as f64 } else { value + below(9) as f64 };
                let value = if below(12) == 0 { f64::from_bits(STALE) } else { value };
                memory.add(&labels, time, value);
                points.push((time, value));
            }
            points.retain(|(_, value)| value.to_bits() != STALE);
            let samples = now(memory.read(&labels, i64::MIN, time)).unwrap();
            let mut held = Held::new(Some(samples), false);
            let (range, mut end) = (1 + below(40) as i64, 0);
            while end < time + 50 {
                end += 1 + below(25) as i64;
                let window = Window { end, range, step: end };
                let is_in = |(time, _): &&Sample| (end - range + 1..=end).contains(time);
                let expected: Vec<Sample> = points.iter().filter(is_in).copied().collect();
                let found = now(held.window(end, range, 1000)).unwrap_or_else(|_| unreachable!());
                assert_eq!(found.samples, expected);
                // Not each window is asked for.
                if below(3) == 0 || expected.is_empty() {
                    continue;
                }
                for over in [Over::Rate, Over::Increase, Over::Delta] {
                    let expected = over.value(&expected, window, &[]);
                    assert_eq!(held.rise(over, window), expected, "{over:?} of {window:?}");
                }
            }
        }
    }
}
