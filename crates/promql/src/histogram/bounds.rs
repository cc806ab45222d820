//! Where buckets begin and end.
//!
//! Bounds of a schema are powers of a factor. They are multiplied together from a few roots of
//! two, the same that Prometheus has, so they are the same numbers to the last digit; whoever
//! compares answers as texts sees no difference.

use super::{CUSTOM, Histogram};

/// Factors of the schemas from 1 on.
#[expect(clippy::approx_constant, reason = "Go takes this for the root of two")]
const FACTORS: [f64; 8] = [
    1.414213562373095,
    1.189207115002721,
    1.0905077326652577,
    1.0442737824274138,
    1.0218971486541166,
    1.0108892860517005,
    1.0054299011128027,
    1.0027112750502025,
];

/// Observations between two bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bucket {
    /// The lower bound, which may be infinite.
    pub lower: f64,
    /// The upper bound, which may be infinite.
    pub upper: f64,
    /// Whether the lower bound itself is in it.
    pub has_lower: bool,
    /// Whether the upper bound itself is in it.
    pub has_upper: bool,
    /// How many.
    pub count: f64,
}

/// Two to a power, as near as a float comes to its product with another.
fn times_power(mut value: f64, exponent: i64) -> f64 {
    let mut rest = exponent.clamp(-3000, 3000);
    while rest != 0 {
        let step = rest.clamp(-1022, 1023);
        value *= f64::from_bits(((step + 1023) as u64) << 52);
        rest -= step;
    }
    value
}

/// The upper bound of a bucket of an exponential schema.
pub(super) fn exponential(index: i32, schema: i32) -> f64 {
    let index = i64::from(index);
    let (part, exponent) = match schema {
        schema if schema <= 0 => (0, index << -schema),
        schema => (index & ((1 << schema) - 1), index >> schema),
    };
    // The last bucket ends where floats end.
    if part == 0 && exponent == 1024 {
        return f64::MAX;
    }
    let mut value = 1.0;
    for (place, factor) in FACTORS.iter().enumerate().take(schema.max(0) as usize) {
        if part >> (schema as usize - 1 - place) & 1 == 1 {
            value *= factor;
        }
    }
    times_power(value, exponent)
}

impl Histogram {
    /// The upper bound of a bucket.
    pub(super) fn bound(&self, index: i32) -> f64 {
        if self.schema != CUSTOM {
            return exponential(index, self.schema);
        }
        match usize::try_from(index) {
            Err(_) => f64::NEG_INFINITY,
            Ok(place) => self.bounds.get(place).copied().unwrap_or(f64::INFINITY),
        }
    }

    fn positive_bucket(&self, (index, count): (i32, f64)) -> Bucket {
        let (lower, upper) = (self.bound(index - 1), self.bound(index));
        let (has_lower, has_upper) = match self.is_custom() {
            true => (index == 0, true),
            false => (lower < 0.0, upper > 0.0),
        };
        self.beside_zero(Bucket { lower, upper, has_lower, has_upper, count })
    }

    fn negative_bucket(&self, (index, count): (i32, f64)) -> Bucket {
        let (lower, upper) = (-self.bound(index), -self.bound(index - 1));
        let (has_lower, has_upper) = (lower < 0.0, upper > 0.0);
        self.beside_zero(Bucket { lower, upper, has_lower, has_upper, count })
    }

    /// Ends a bucket where the zero bucket begins.
    fn beside_zero(&self, mut bucket: Bucket) -> Bucket {
        let zero = self.zero_threshold;
        if bucket.upper < 0.0 && bucket.upper > -zero {
            bucket.upper = -zero;
        } else if bucket.lower > 0.0 && bucket.lower < zero {
            bucket.lower = zero;
        }
        bucket
    }

    /// All buckets that count something, from the least bound on.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = Bucket> {
        let zero = Bucket {
            lower: -self.zero_threshold,
            upper: self.zero_threshold,
            has_lower: true,
            has_upper: true,
            count: self.zero_count,
        };
        let negative = self.negative.iter().rev().map(|bucket| self.negative_bucket(*bucket));
        let positive = self.positive.iter().map(|bucket| self.positive_bucket(*bucket));
        negative.chain((self.zero_count > 0.0).then_some(zero)).chain(positive)
    }
}
