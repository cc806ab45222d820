//! A histogram without what was observed above a number, or below it.
//!
//! Of the bucket in which the number lies a part is kept, as large as what a quantile would find
//! there. What was observed is known to buckets only, so the new sum is that of their middles.

use super::{Bucket, Histogram};

/// Which side of the number goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trim {
    /// What is above it.
    Above,
    /// What is below it.
    Below,
}

/// The middle of a bucket, or of a part of it; of one without an end where it ends.
fn middle(lower: f64, upper: f64, is_linear: bool) -> f64 {
    match (lower.is_infinite(), upper.is_infinite()) {
        (true, true) => 0.0,
        (true, false) if upper > 0.0 => upper / 2.0,
        (true, false) => upper,
        (false, true) => lower,
        _ if is_linear => (lower + upper) / 2.0,
        // One of the bounds may be 0.
        _ => (lower * upper).abs().sqrt().copysign(lower + upper),
    }
}

impl Trim {
    /// How much of a bucket stays, and the middle of that.
    fn kept(self, bucket: &Bucket, at: f64, is_linear: bool) -> (f64, f64) {
        let Bucket { lower, upper, count, .. } = *bucket;
        let (is_whole, is_part) = match self {
            Self::Above => (upper <= at, lower < at),
            Self::Below => (lower >= at, upper > at),
        };
        match () {
            () if is_whole => (count, middle(lower, upper, is_linear)),
            () if !is_part => (0.0, 0.0),
            () if lower.is_infinite() || upper.is_infinite() => self.kept_of_open(bucket, at),
            () => {
                let below = count * bucket.below(at, is_linear);
                match self {
                    Self::Above => (below, middle(lower, at, is_linear)),
                    Self::Below => (count - below, middle(at, upper, is_linear)),
                }
            }
        }
    }

    /// The same of a bucket without an end in which the number lies. One that goes up to a number
    /// above 0 is taken to begin at 0.
    fn kept_of_open(self, bucket: &Bucket, at: f64) -> (f64, f64) {
        let Bucket { lower, upper, count, .. } = *bucket;
        match self {
            Self::Above if lower.is_infinite() && upper <= 0.0 => (count, at),
            Self::Above if lower.is_infinite() && upper.is_finite() && at > 0.0 => {
                (count * at / upper, at / 2.0)
            }
            Self::Below if lower.is_infinite() && upper.is_finite() && at >= 0.0 => {
                (count * (1.0 - at / upper), f64::midpoint(at, upper))
            }
            Self::Below if lower.is_finite() => (count, at),
            _ => (0.0, 0.0),
        }
    }

    /// The same of the zero bucket, in which observations are spread evenly.
    fn kept_of_zero(self, zero: &Bucket, at: f64) -> (f64, f64) {
        let Bucket { lower, upper, count, .. } = *zero;
        let (all, none) = ((count, f64::midpoint(lower, upper)), (0.0, 0.0));
        let width = upper - lower;
        match self {
            Self::Above if at <= lower => none,
            Self::Above if at >= upper => all,
            Self::Above => (count * ((at - lower) / width), f64::midpoint(lower, at)),
            Self::Below if at <= lower => all,
            Self::Below if at >= upper => none,
            Self::Below => (count * ((upper - at) / width), f64::midpoint(at, upper)),
        }
    }
}

impl Histogram {
    /// Without what lies on one side of a number.
    pub(crate) fn trimmed(&self, trim: Trim, at: f64) -> Self {
        let is_linear = self.is_custom();
        let (mut count, mut sum, mut is_less) = (0.0, 0.0, false);
        let mut keep = |all: f64, (kept, middle): (f64, f64)| {
            count += kept;
            sum += middle * kept;
            is_less |= kept != all;
            kept
        };
        let mut trimmed = self.clone();
        for (index, all) in &mut trimmed.positive {
            let all_of_it = bucket(self.bound(*index - 1), self.bound(*index), *all);
            *all = keep(*all, trim.kept(&all_of_it, at, is_linear));
        }
        for (index, all) in &mut trimmed.negative {
            let all_of_it = bucket(-self.bound(*index), -self.bound(*index - 1), *all);
            *all = keep(*all, trim.kept(&all_of_it, at, is_linear));
        }
        if self.zero_count > 0.0 {
            let zero = self.zero_threshold;
            let zero = self.on_one_side(bucket(-zero, zero, self.zero_count));
            trimmed.zero_count = keep(self.zero_count, trim.kept_of_zero(&zero, at));
        }
        if !is_less {
            return self.clone();
        }
        trimmed.positive.retain(|(_, count)| *count != 0.0);
        trimmed.negative.retain(|(_, count)| *count != 0.0);
        (trimmed.count, trimmed.sum) = (count, sum);
        trimmed
    }
}

fn bucket(lower: f64, upper: f64, count: f64) -> Bucket {
    Bucket { lower, upper, has_lower: true, has_upper: true, count }
}
