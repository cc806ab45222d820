//! What is known of points that are not looked at one by one, where their ends count: enough for
//! what rates and first and last values ask, to the point.
//!
//! Digests of neighbours add up to that of both. What Prometheus computes of an increase (how far
//! it goes on beyond the first and the last point, and where a counter began again) is all in one:
//! so a rate that comes from digests is that which comes from their points. Of
//! counts, sums, least and greatest values there are columns instead (`stretches.rs`).

use crate::sample::{STALE, Sample};

/// What is known of some points, in the order of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Digest {
    /// Points that are no marks.
    pub count: u64,
    /// The first of them, or the first mark if there are only marks.
    pub first: Sample,
    /// The last of them, or the last mark.
    pub last: Sample,
    /// The sum of the values behind which a lower one follows.
    pub falls: f64,
    /// Whether a mark is the very last: the series has ended there.
    pub is_ended: bool,
}

impl From<Sample> for Digest {
    fn from((time, value): Sample) -> Self {
        let is_ended = value.to_bits() == STALE;
        Self {
            count: u64::from(!is_ended),
            first: (time, value),
            last: (time, value),
            falls: 0.0,
            is_ended,
        }
    }
}

impl Digest {
    /// Adds the digest of later points.
    pub fn add(&mut self, later: &Self) {
        if self.count == 0 || later.count == 0 {
            let is_ended = later.is_ended;
            *self = Self { is_ended, ..if later.count == 0 { *self } else { *later } };
            return;
        }
        let (before, next) = (self.last.1, later.first.1);
        self.falls += later.falls + if next < before { before } else { 0.0 };
        self.count += later.count;
        self.last = later.last;
        self.is_ended = later.is_ended;
    }
}

/// What is looked at of the points of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// How many there are.
    Count,
    /// That, and their sum.
    Sum,
    /// How many there are, and the least number.
    Least,
    /// How many there are, and the greatest number.
    Greatest,
    /// How many there are, the first and the last.
    FirstAndLast,
    /// All that a [`Digest`] has: how many there are, the first and the last, and where they fall.
    Ends,
    /// The last of them alone, with its time.
    Last,
}

/// Which windows of time are looked at: ends, so far apart, and how far each looks back; what is
/// exactly as old as that is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// The end of the first.
    pub first: i64,
    /// From one end to the next.
    pub step: i64,
    /// How many.
    pub count: usize,
    /// How far each looks back.
    pub range: i64,
    /// What is asked of the points of each.
    pub wanted: Wanted,
}

impl Windows {
    /// Whether only the last point of each is asked for.
    fn is_last(&self) -> bool {
        self.wanted == Wanted::Last
    }

    /// Whether all that lies from one multiple of `every` to the next, without the first and with
    /// the second, lies in each window as a whole or not at all.
    pub fn are_aligned(&self, every: i64) -> bool {
        let is_multiple = |time: i64| time.rem_euclid(every) == 0;
        let are_ends = is_multiple(self.first) && (self.count == 1 || is_multiple(self.step));
        are_ends && (self.is_last() || is_multiple(self.range))
    }

    /// Whether all that lies from one multiple of `every` to the next, with the first and without
    /// the second, lies in each window as a whole or not at all.
    pub fn are_aligned_behind(&self, every: i64) -> bool {
        let first = self.first.saturating_add(1);
        !self.is_last() && Self { first, ..*self }.are_aligned(every)
    }

    /// Whether this is one window that is much longer than `every`: so points are read at its ends
    /// alone, wherever these are.
    pub fn is_long(&self, every: i64) -> bool {
        self.count == 1 && !self.is_last() && self.range / 4 >= every
    }

    /// The last time that lies in each window in which this one lies, and in no other, as all times
    /// between them do. Windows behind the last and before the first are looked at, too.
    pub fn alike_until(&self, time: i64) -> i64 {
        let (first, step) = (i128::from(self.first), i128::from(self.step.max(0)));
        let next = |bound: i128| {
            let before = i128::from(time) - bound;
            match self.count {
                0 | 1 if before <= 0 => bound,
                0 | 1 => i128::MAX,
                _ if step == 0 => i128::from(time),
                // Rounded up: the first bound that isn't before it.
                _ => bound - (-before).div_euclid(step) * step,
            }
        };
        let bound = next(first).min(next(first - i128::from(self.range)));
        i64::try_from(bound).unwrap_or(i64::MAX)
    }

    /// The longest time that lies in some windows as a whole.
    pub fn longest_alike(&self) -> i64 {
        if self.count < 2 || self.step <= 0 {
            return self.range;
        }
        match self.range % self.step {
            0 => self.step,
            rest => rest.max(self.step - rest),
        }
    }

    /// The time behind which points are looked at, and the last one.
    pub fn bounds(&self) -> (i64, i64) {
        let last = self.step.saturating_mul(self.count.saturating_sub(1) as i64);
        (self.first.saturating_sub(self.range), self.first.saturating_add(last))
    }
}

/// What a source says of how it answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Told {
    /// The length of the stretches that digests were of, if there were any.
    pub every: Option<i64>,
    /// Whether stretches or digests are of several points as it is best, if no such length is
    /// told: functions of windows are to ask for these.
    pub are_summed: bool,
    /// Points have gone that were asked for, and nothing is in their place.
    pub are_missing: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(samples: &[Sample]) -> Digest {
        let mut all = samples.iter().map(|sample| Digest::from(*sample));
        let first = all.next().unwrap();
        all.fold(first, |mut sum, next| {
            sum.add(&next);
            sum
        })
    }

    #[test]
    fn marks_are_no_points_and_end_a_series() {
        let mark = f64::from_bits(STALE);
        let found = digest(&[(1, mark), (2, 5.0), (3, mark), (4, 3.0), (5, mark)]);
        assert_eq!((found.count, found.falls, found.is_ended), (2, 5.0, true));
        assert_eq!((found.first, found.last), ((2, 5.0), (4, 3.0)));
        let found = digest(&[(2, 5.0), (3, mark), (4, f64::NAN)]);
        assert!((found.count, found.is_ended) == (2, false) && found.last.1.is_nan());
    }

    /// Against each window: where one begins or ends between two times, they are not alike.
    #[test]
    fn times_are_alike_that_lie_in_the_same_windows() {
        for (first, step, count, range) in [
            (10, 7, 5, 7),
            (10, 7, 5, 10),
            (-3, 5, 9, 12),
            (4, 9, 3, 2),
            (20, 1, 1, 15),
            (5, 0, 3, 4),
        ] {
            let windows = Windows { first, step, count, range, wanted: Wanted::Count };
            let (after, until) = windows.bounds();
            let of = |time: i64| {
                let ends = (0..count as i64).map(move |place| first + place * step);
                ends.filter(move |end| time > end - range && time <= *end).collect::<Vec<_>>()
            };
            let mut longest = 0;
            for time in after + 1..=until {
                let last = windows.alike_until(time).min(until);
                assert!(last >= time, "{windows:?} {time}");
                for other in time..=last {
                    assert_eq!(of(time), of(other), "{windows:?} {time} {other}");
                }
                longest = longest.max(last + 1 - time);
            }
            assert!(longest <= windows.longest_alike(), "{windows:?} {longest}");
        }
        let far =
            Windows { first: i64::MAX, step: 9, count: 2, range: i64::MAX, wanted: Wanted::Count };
        assert_eq!(far.alike_until(i64::MAX), i64::MAX);
        assert!(far.alike_until(i64::MIN) < 0);
    }

    #[test]
    fn what_lies_at_ends_of_windows_is_told() {
        let windows = |first, step, count, range, is_last| {
            let wanted = if is_last { Wanted::Last } else { Wanted::Sum };
            Windows { first, step, count, range, wanted }
        };
        assert!(windows(120, 60, 5, 60, false).are_aligned(60));
        assert!(windows(120, 60, 5, 600, false).are_aligned(20));
        assert!(!windows(121, 60, 5, 60, false).are_aligned(60));
        assert!(!windows(120, 50, 5, 60, false).are_aligned(60));
        assert!(!windows(120, 60, 5, 50, false).are_aligned(60));
        assert!(windows(120, 60, 5, 50, true).are_aligned(60));
        assert!(windows(120, 1, 1, 600, false).are_aligned(60));
        assert!(windows(121, 1, 1, 600, false).is_long(60));
        assert!(!windows(121, 1, 1, 100, false).is_long(60));
        assert!(!windows(121, 1, 1, 600, true).is_long(60));
        assert!(!windows(121, 60, 2, 600, false).is_long(60));
        assert_eq!(windows(120, 60, 5, 50, true).bounds(), (70, 360));
    }
}
