//! What a histogram says of its observations: quantiles, fractions, how they are spread.
//!
//! Where in a bucket observations lie nobody knows. In exponential buckets they are taken to be
//! spread as if the buckets were divided further and further; in custom ones, and around zero,
//! evenly.

use super::{Bucket, Histogram};
use crate::sum::Sum;

/// What is to be said of an answer about a histogram that counts what is no number.
pub(crate) type Note = Option<&'static str>;

const NAN_RESULT: &str = "input to histogram_quantile has NaN observations, result is NaN";
const NAN_SKEW: &str = "input to histogram_quantile has NaN observations, result is skewed higher";
const NAN_FRACTION: &str =
    "input to histogram_fraction has NaN observations, which are excluded from all fractions";

impl Bucket {
    /// How much of the bucket lies below a number in it.
    pub(super) fn below(&self, value: f64, is_linear: bool) -> f64 {
        if is_linear {
            return (value - self.lower) / (self.upper - self.lower);
        }
        let [lower, upper, value_log] = [self.lower, self.upper, value].map(|x| x.abs().log2());
        match value > 0.0 {
            true => (value_log - lower) / (upper - lower),
            false => 1.0 - (value_log - upper) / (lower - upper),
        }
    }
}

impl Histogram {
    /// The mean of what was observed.
    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// The mean square of how far observations are from their mean.
    pub(crate) fn variance(&self) -> f64 {
        let mean = self.mean();
        let mut all = Sum::default();
        for Bucket { lower, upper, count, .. } in self.buckets() {
            let middle = match () {
                () if self.is_custom() => (upper + lower) / 2.0,
                () if lower <= 0.0 && upper >= 0.0 => 0.0,
                () => (upper * lower).sqrt().copysign(upper),
            };
            let away = middle - mean;
            all.add(count * away * away);
        }
        (all.sum + all.lost) / self.count
    }

    /// The zero bucket of a histogram that has observations on one side alone is half as wide.
    pub(super) fn on_one_side(&self, mut bucket: Bucket) -> Bucket {
        match (self.negative.is_empty(), self.positive.is_empty()) {
            (true, false) => bucket.lower = 0.0,
            (false, true) => bucket.upper = 0.0,
            _ => {}
        }
        bucket
    }

    /// The number below which so much of the observations lies.
    pub(crate) fn quantile(&self, q: f64) -> (f64, Note) {
        match q {
            q if q < 0.0 => return (f64::NEG_INFINITY, None),
            q if q > 1.0 => return (f64::INFINITY, None),
            q if self.count == 0.0 || q.is_nan() => return (f64::NAN, None),
            _ => {}
        }
        let has_nan = self.sum.is_nan();
        // From the nearer end, so that less is added up; what is no number lies beyond the last.
        let is_forward = has_nan || q < 0.5;
        let rank = if is_forward { q } else { 1.0 - q } * self.count;
        let mut buckets: Vec<Bucket> = self.buckets().collect();
        if !is_forward {
            buckets.reverse();
        }
        let mut bucket =
            Bucket { lower: 0.0, upper: 0.0, has_lower: true, has_upper: true, count: 0.0 };
        let (mut count, mut rest) = (0.0, buckets.into_iter());
        for next in rest.by_ref() {
            bucket = next;
            count += bucket.count;
            if count >= rank {
                break;
            }
        }
        if self.is_custom() {
            match bucket {
                Bucket { lower: f64::NEG_INFINITY, upper, .. } if upper <= 0.0 => {
                    return (upper, None);
                }
                Bucket { lower: f64::NEG_INFINITY, .. } => bucket.lower = 0.0,
                Bucket { lower, upper: f64::INFINITY, .. } => return (lower, None),
                _ => {}
            }
        } else if bucket.lower < 0.0 && bucket.upper > 0.0 {
            bucket = self.on_one_side(bucket);
        }
        // Rounding may have made more of them than there are.
        count = if count > self.count { self.count } else { count };
        if count < rank {
            return match has_nan {
                true => (f64::NAN, Some(NAN_RESULT)),
                false => (bucket.upper, None),
            };
        }
        let rank = if is_forward { rank - (count - bucket.count) } else { count - rank };
        let all = || rest.fold(count, |all, bucket| all + bucket.count);
        let note = (has_nan && all() < self.count).then_some(NAN_SKEW);
        (self.within(bucket, rank / bucket.count), note)
    }

    /// The number below which so much of a bucket lies.
    fn within(&self, Bucket { lower, upper, .. }: Bucket, part: f64) -> f64 {
        if self.is_custom() || (lower <= 0.0 && upper >= 0.0) {
            return lower + (upper - lower) * part;
        }
        let [low, high] = [lower, upper].map(|bound| bound.abs().log2());
        match lower > 0.0 {
            true => (low + (high - low) * part).exp2(),
            false => -(high + (low - high) * (1.0 - part)).exp2(),
        }
    }

    /// How much of the observations lies between two numbers.
    pub(crate) fn fraction(&self, from: f64, to: f64) -> (f64, Note) {
        if self.count == 0.0 || from.is_nan() || to.is_nan() {
            return (f64::NAN, None);
        }
        if from >= to {
            return (0.0, None);
        }
        let mut below = 0.0;
        let (mut first, mut last) = (None, None);
        for mut bucket in self.buckets() {
            let is_zero = bucket.lower <= 0.0 && bucket.upper >= 0.0;
            if is_zero {
                bucket = self.on_one_side(bucket);
            }
            let rank = |value: f64| match bucket.lower {
                lower if lower >= value => Some(below),
                _ if bucket.upper <= value => None,
                f64::NEG_INFINITY if self.is_custom() || is_zero => Some(bucket.count),
                _ => Some(below + bucket.count * bucket.below(value, self.is_custom() || is_zero)),
            };
            first = first.or_else(|| rank(from));
            last = last.or_else(|| rank(to));
            below += bucket.count;
        }
        // What is no number was counted, and lies in no bucket.
        let has_nan = self.sum.is_nan();
        let count = if has_nan { below } else { self.count };
        let note = (has_nan && count < self.count).then_some(NAN_FRACTION);
        let rank = |rank: Option<f64>| match rank {
            Some(rank) if rank > count => count,
            rank => rank.unwrap_or(count),
        };
        ((rank(last) - rank(first)) / self.count, note)
    }
}
