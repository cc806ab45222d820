//! Functions of the points of a range.
//!
//! A window has its points in the order of time, at least one and without marks; most functions go
//! through it once. All are computed as Prometheus does, to the order of additions.

use super::numbers::{Mean, Sum, line, quantile};
use super::seconds;
use crate::digest::{Digest, Wanted};
use crate::source::Sample;

/// A range that ends at a time, and the step that asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) end: i64,
    pub(crate) range: i64,
    pub(crate) step: i64,
}

/// The functions of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    Rate,
    Increase,
    Delta,
    Irate,
    Idelta,
    Avg,
    Sum,
    Count,
    Min,
    Max,
    First,
    Last,
    Present,
    Absent,
    Stddev,
    Stdvar,
    Quantile,
    Changes,
    Resets,
    Deriv,
    PredictLinear,
    Mad,
    Smoothing,
    TimeOfFirst,
    TimeOfLast,
    TimeOfMin,
    TimeOfMax,
}

/// How far what is seen of a value is taken to go on alike, in seconds. Of it only the times of
/// points tell, so where these come regularly it is the same in window after window.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reach {
    of: Times,
    /// From the first to the last.
    seen: f64,
    /// Before the first and behind the last.
    before: f64,
    after: f64,
}

/// How many points a window has; and nanoseconds from its beginning to the first, to the last, and
/// to its end.
#[derive(Clone, Copy, Default, Debug)]
struct Times {
    count: u64,
    before: u64,
    seen: u64,
    after: u64,
}

impl Times {
    /// One number after the other: of all at once it is waited until they are in memory.
    #[inline]
    fn are(self, others: Self) -> bool {
        let differ = (self.count ^ others.count) | (self.before ^ others.before);
        differ | (self.seen ^ others.seen) | (self.after ^ others.after) == 0
    }
}

impl Reach {
    /// Looks at so many points between two times of a window. `None` if they say nothing.
    #[inline]
    pub(crate) fn look(
        &mut self,
        count: u64,
        (first, last): (i64, i64),
        window: Window,
    ) -> Option<()> {
        if count < 2 || first == last {
            return None;
        }
        let begin = window.end.saturating_sub(window.range);
        // Points lie in their window, so what is too long with a sign is told without one.
        let gap = |from: i64, to: i64| to.wrapping_sub(from) as u64;
        let (before, after) = (gap(begin, first), gap(last, window.end));
        let of = Times { count, before, seen: gap(first, last), after };
        if !of.are(self.of) {
            let seen = seconds(first, last);
            // It is taken to go on alike, but not beyond about one point.
            let each = seen / (count - 1) as f64;
            let reach = |gap: f64| if gap >= each * 1.1 { each / 2.0 } else { gap };
            let (before, after) = (reach(seconds(begin, first)), reach(seconds(last, window.end)));
            *self = Self { of, seen, before, after };
        }
        Some(())
    }
}

impl Over {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "rate" => Self::Rate,
            "increase" => Self::Increase,
            "delta" => Self::Delta,
            "irate" => Self::Irate,
            "idelta" => Self::Idelta,
            "avg_over_time" => Self::Avg,
            "sum_over_time" => Self::Sum,
            "count_over_time" => Self::Count,
            "min_over_time" => Self::Min,
            "max_over_time" => Self::Max,
            "first_over_time" => Self::First,
            "last_over_time" => Self::Last,
            "present_over_time" => Self::Present,
            "absent_over_time" => Self::Absent,
            "stddev_over_time" => Self::Stddev,
            "stdvar_over_time" => Self::Stdvar,
            "quantile_over_time" => Self::Quantile,
            "changes" => Self::Changes,
            "resets" => Self::Resets,
            "deriv" => Self::Deriv,
            "predict_linear" => Self::PredictLinear,
            "mad_over_time" => Self::Mad,
            "double_exponential_smoothing" => Self::Smoothing,
            "ts_of_first_over_time" => Self::TimeOfFirst,
            "ts_of_last_over_time" => Self::TimeOfLast,
            "ts_of_min_over_time" => Self::TimeOfMin,
            "ts_of_max_over_time" => Self::TimeOfMax,
            _ => return None,
        })
    }

    /// Whether it asks no more of points than how many there are, the ends, and where they fall.
    pub(crate) fn is_a_rise(self) -> bool {
        matches!(self, Self::Rate | Self::Increase | Self::Delta)
    }

    /// Whether it makes sense of counters alone.
    pub(crate) fn is_of_counters(self) -> bool {
        matches!(self, Self::Rate | Self::Increase)
    }

    /// Whether the value is still one of the metric.
    pub(crate) fn keeps_name(self) -> bool {
        matches!(self, Self::First | Self::Last)
    }

    /// What it looks at, if digests of the points or stretches of them say enough.
    pub(crate) fn wanted(self) -> Option<Wanted> {
        Some(match self {
            Self::Rate | Self::Increase | Self::Delta => Wanted::Ends,
            Self::First | Self::Last | Self::TimeOfFirst | Self::TimeOfLast => Wanted::FirstAndLast,
            Self::Avg | Self::Sum => Wanted::Sum,
            Self::Count | Self::Present | Self::Absent => Wanted::Count,
            Self::Min => Wanted::Least,
            Self::Max => Wanted::Greatest,
            _ => return None,
        })
    }

    /// The value of a window of which there are digests, for functions of the ends of points. The
    /// reach is that of the window before, and becomes this one's.
    #[inline]
    pub(crate) fn value_of(
        self,
        digests: &[Digest],
        window: Window,
        reach: &mut Reach,
    ) -> Option<f64> {
        let mut points = digests.iter().filter(|digest| digest.count > 0);
        match self {
            Self::First => return Some(points.next()?.first.1),
            Self::Last => return Some(points.next_back()?.last.1),
            Self::TimeOfFirst => return Some(seconds(0, points.next()?.first.0)),
            Self::TimeOfLast => return Some(seconds(0, points.next_back()?.last.0)),
            _ => {}
        }
        let mut all = *points.next()?;
        points.for_each(|digest| all.add(digest));
        self.extrapolated(&all, window, reach)
    }

    /// The value of so many points, of whom it is known what the function wants of them; for
    /// functions that want no ends.
    pub(crate) fn value_of_all(self, count: u64, value: f64) -> f64 {
        match self {
            Self::Avg => value / count as f64,
            Self::Sum | Self::Min | Self::Max => value,
            Self::Count => count as f64,
            _ => 1.0,
        }
    }

    /// The value of the points of a window; `args` are the numbers that the function takes.
    pub(crate) fn value(self, points: &[Sample], window: Window, args: &[f64]) -> Option<f64> {
        let (first, last) = (points.first()?, points.last()?);
        let values = || points.iter().map(|(_, value)| *value);
        let pairs = || points.windows(2).map(|pair| (pair[0].1, pair[1].1));
        let arg = |place: usize| args.get(place).copied().unwrap_or(f64::NAN);
        let value = match self {
            Self::Rate | Self::Increase | Self::Delta => {
                let falls = points.windows(2).filter(|pair| pair[1].1 < pair[0].1);
                let falls = falls.map(|pair| pair[0].1).sum::<f64>();
                self.rise(points, falls, window)?
            }
            Self::Irate | Self::Idelta => self.of_the_last_two(points)?,
            Self::Avg => {
                let mut mean = Mean::new(first.1);
                points[1..].iter().for_each(|(_, value)| mean.add(*value));
                mean.value()
            }
            Self::Sum => total(values()),
            Self::Count => points.len() as f64,
            Self::Min | Self::Max | Self::TimeOfMin | Self::TimeOfMax => self.extreme(points),
            Self::First => first.1,
            Self::Last => last.1,
            Self::Present | Self::Absent => 1.0,
            Self::Stdvar => variance(values()),
            Self::Stddev => variance(values()).sqrt(),
            Self::Quantile => quantile(arg(0), &mut values().collect::<Vec<f64>>()),
            Self::Changes => {
                pairs().filter(|(a, b)| a != b && !(a.is_nan() && b.is_nan())).count() as f64
            }
            Self::Resets => pairs().filter(|(a, b)| b < a).count() as f64,
            Self::Deriv => (points.len() > 1).then(|| line(points, first.0).0)?,
            Self::PredictLinear => {
                let (slope, value) = (points.len() > 1).then(|| line(points, window.step))?;
                slope * arg(0) + value
            }
            Self::Mad => deviation(values())?,
            Self::Smoothing => smoothed(points, arg(0), arg(1))?,
            Self::TimeOfFirst => seconds(0, first.0),
            Self::TimeOfLast => seconds(0, last.0),
        };
        Some(value)
    }

    /// The value of points with what the sum of those is that are followed by lower ones, of
    /// functions of how far a value rose.
    pub(crate) fn rise(self, points: &[Sample], falls: f64, window: Window) -> Option<f64> {
        let (first, last) = (points.first()?, points.last()?);
        let count = points.len() as u64;
        let all = Digest { count, first: *first, last: *last, falls, ..(*last).into() };
        self.extrapolated(&all, window, &mut Reach::default())
    }

    /// How far a value rose, with what lies between the window's ends and its points.
    #[inline]
    fn extrapolated(self, points: &Digest, window: Window, reach: &mut Reach) -> Option<f64> {
        let (first, last) = (points.first, points.last);
        let mut rise = last.1 - first.1;
        if self != Self::Delta {
            rise += points.falls;
        }
        reach.look(points.count, (first.0, last.0), window)?;
        Some(rise * self.factor(reach, (first.1, rise), window.range))
    }

    /// By what a rise is multiplied; `from` is where it began.
    #[inline]
    pub(crate) fn factor(self, reach: &Reach, (from, rise): (f64, f64), range: i64) -> f64 {
        let Reach { seen, mut before, after, .. } = *reach;
        // Beyond twice the rise, zero is further away than the reach: a division less.
        if self != Self::Delta && rise > 0.0 && (0.0..2.0 * rise).contains(&from) {
            before = before.min(seen * (from / rise));
        }
        let factor = (seen + before + after) / seen;
        if self == Self::Rate { factor / (range as f64 / 1e9) } else { factor }
    }

    pub(crate) fn of_the_last_two(self, points: &[Sample]) -> Option<f64> {
        let [.., before, last] = points else { return None };
        if before.0 == last.0 {
            return None;
        }
        match self {
            Self::Irate if last.1 < before.1 => Some(last.1 / seconds(before.0, last.0)),
            Self::Irate => Some((last.1 - before.1) / seconds(before.0, last.0)),
            _ => Some(last.1 - before.1),
        }
    }

    /// The least or the greatest value, or when it was last; what is no number gives way to what
    /// is.
    fn extreme(self, points: &[Sample]) -> f64 {
        let is_least = matches!(self, Self::Min | Self::TimeOfMin);
        let is_time = matches!(self, Self::TimeOfMin | Self::TimeOfMax);
        let Some((mut found, rest)) = points.split_first().map(|(first, rest)| (*first, rest))
        else {
            return f64::NAN;
        };
        for (time, value) in rest {
            let is_better = match is_least {
                true => *value < found.1 || (is_time && *value == found.1),
                false => *value > found.1 || (is_time && *value == found.1),
            };
            if is_better || found.1.is_nan() {
                found = (*time, *value);
            }
        }
        if is_time { seconds(0, found.0) } else { found.1 }
    }
}

fn total(values: impl Iterator<Item = f64>) -> f64 {
    let mut sum = Sum::default();
    values.for_each(|value| sum.add(value));
    sum.total()
}

fn variance(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut mean, mut squares) = (0.0, Sum::default(), Sum::default());
    for value in values {
        count += 1.0;
        let delta = value - (mean.sum + mean.lost);
        mean.add(delta / count);
        squares.add(delta * (value - (mean.sum + mean.lost)));
    }
    (squares.sum + squares.lost) / count
}

/// The median of how far values are from their median.
fn deviation(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    if values.iter().any(|value| value.is_nan()) {
        return Some(f64::NAN);
    }
    let median = quantile(0.5, &mut values);
    values.iter_mut().for_each(|value| *value = (*value - median).abs());
    Some(quantile(0.5, &mut values))
}

fn smoothed(points: &[Sample], smoothing: f64, trend: f64) -> Option<f64> {
    let [first, second, ..] = points else { return None };
    let (mut before, mut value, mut slope) = (0.0, first.1, second.1 - first.1);
    for (place, (_, point)) in points[1..].iter().enumerate() {
        if place > 0 {
            slope = trend * (value - before) + (1.0 - trend) * slope;
        }
        (before, value) = (value, smoothing * point + (1.0 - smoothing) * (value + slope));
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Windows that are hardly different one after the other, so that those which are not are told.
    #[test]
    fn a_window_reaches_as_far_whatever_the_one_before_was() {
        let (mut random, mut last) = (Random(3), Reach::default());
        let (mut before, mut same) = (None, 0);
        for _ in 0..5000 {
            let (count, first) = (2 + random.below(2), random.below(3) as i64);
            let seen = 1 + random.below(3) as i64;
            let end = first + seen + random.below(3) as i64;
            let window = Window { end, range: end + 1 + random.below(2) as i64, step: end };
            let mut fresh = Reach::default();
            let ends = (first, first + seen);
            assert!(last.look(count, ends, window) == fresh.look(count, ends, window));
            for over in [Over::Rate, Over::Increase, Over::Delta] {
                let of = |reach: &Reach| over.factor(reach, (1.0, 2.0), window.range).to_bits();
                assert_eq!(of(&last), of(&fresh), "{over:?} of {count} at {ends:?} in {window:?}");
            }
            same += usize::from(before.replace((count, ends, window.range)) == before);
        }
        assert!(same > 20, "windows that are as the one before: {same}");
        assert_eq!(last.look(1, (1, 2), Window { end: 3, range: 3, step: 3 }), None);
        assert_eq!(last.look(2, (1, 1), Window { end: 3, range: 3, step: 3 }), None);
    }
}
