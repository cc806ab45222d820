//! Native histograms: counts of observations in buckets whose bounds a schema gives.
//!
//! A histogram is a value like a float: it is added, scaled, compared and asked for quantiles.
//! Buckets are held by their indexes, in ascending order, and only those that count something. So
//! equal histograms are equal lists, and a histogram is as large as what was observed, whichever
//! spans it came in. What comes in is checked once ([`Histogram::new`]); no operation makes of
//! good histograms one that isn't.

mod bounds;
mod print;
mod resets;
mod stats;
mod total;
mod trim;

pub use bounds::Bucket;
pub(crate) use total::{Merged, Mixed, Total};
pub(crate) use trim::Trim;

use std::sync::Arc;

/// The schema of buckets whose bounds are listed.
pub const CUSTOM: i32 = -53;
/// Schemas of buckets whose bounds grow by a factor: 2 to the power of 2 to the power of minus
/// this.
pub const EXPONENTIAL: std::ops::RangeInclusive<i32> = -4..=8;
/// How far from 0 an index may be. Beyond a hundredth of this bounds are more than a float holds.
const MAX_INDEX: i64 = 1 << 30;

/// What is known of whether a counter began again before a histogram.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ResetHint {
    /// It has to be found out by comparing with the one before.
    #[default]
    Unknown,
    /// It did.
    Reset,
    /// It did not.
    NotReset,
    /// It is no counter: its counts may fall.
    Gauge,
}

/// Buckets one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The index of the first one; behind another span how many buckets are left out.
    pub offset: i32,
    /// How many.
    pub length: u32,
}

/// What a histogram is made of, as senders and stores spell it.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Parts {
    /// Whether a counter began again.
    pub hint: ResetHint,
    /// One of [`EXPONENTIAL`], or [`CUSTOM`].
    pub schema: i32,
    /// How far from 0 the zero bucket reaches, on both sides.
    pub zero_threshold: f64,
    /// Observations in the zero bucket.
    pub zero_count: f64,
    /// All observations.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// Which buckets above 0 there are.
    pub positive_spans: Vec<Span>,
    /// The counts of these.
    pub positive: Vec<f64>,
    /// Which buckets below 0 there are, by how far they are from it.
    pub negative_spans: Vec<Span>,
    /// The counts of these.
    pub negative: Vec<f64>,
    /// Upper bounds of custom buckets; the last bucket, which has none, is not among them.
    pub bounds: Vec<f64>,
}

/// Buckets by index, ascending, each once.
type Side = Vec<(i32, f64)>;

/// A native histogram whose counts are floats.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Histogram {
    hint: ResetHint,
    schema: i32,
    zero_threshold: f64,
    zero_count: f64,
    count: f64,
    sum: f64,
    positive: Side,
    negative: Side,
    bounds: Arc<[f64]>,
}

impl Histogram {
    /// The histogram of some parts.
    ///
    /// # Errors
    /// What doesn't fit together, in a sentence.
    pub fn new(parts: Parts) -> Result<Self, String> {
        let Parts { hint, schema, zero_threshold, zero_count, count, sum, .. } = parts;
        let is_custom = schema == CUSTOM;
        if !is_custom && !EXPONENTIAL.contains(&schema) {
            return Err(format!(
                "a schema of a native histogram is -4 to 8, or {CUSTOM} with bounds of its own, not {schema}"
            ));
        }
        if !(zero_threshold.is_finite() && zero_threshold >= 0.0) {
            return Err(format!("the zero bucket can't reach to {zero_threshold}"));
        }
        if is_custom {
            if !parts.negative.is_empty() || zero_count != 0.0 || zero_threshold != 0.0 {
                return Err("custom buckets have neither a zero bucket nor negative ones".into());
            }
            check_bounds(&parts.bounds)?;
        } else if !parts.bounds.is_empty() {
            return Err(format!("schema {schema} has no bounds of its own"));
        }
        let positive = side(&parts.positive_spans, &parts.positive, "positive")?;
        let negative = side(&parts.negative_spans, &parts.negative, "negative")?;
        let most = parts.bounds.len() as i64;
        let is_beyond = |(index, _): &(i32, f64)| i64::from(*index) > most || *index < 0;
        if is_custom && positive.iter().any(is_beyond) {
            return Err(format!("more buckets than the {most} bounds and the last one"));
        }
        let bounds = parts.bounds.into();
        Ok(Self {
            hint,
            schema,
            zero_threshold,
            zero_count,
            count,
            sum,
            positive,
            negative,
            bounds,
        })
    }

    /// What it is made of. A span has buckets without a gap.
    pub fn parts(&self) -> Parts {
        let (positive_spans, positive) = spans(&self.positive);
        let (negative_spans, negative) = spans(&self.negative);
        Parts {
            hint: self.hint,
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            zero_count: self.zero_count,
            count: self.count,
            sum: self.sum,
            positive_spans,
            positive,
            negative_spans,
            negative,
            bounds: self.bounds.to_vec(),
        }
    }

    /// One without observations whose buckets are those of another.
    pub(crate) fn emptied(&self) -> Self {
        Self { schema: self.schema, bounds: Arc::clone(&self.bounds), ..Self::default() }
    }

    /// The count and the sum alone.
    pub(crate) fn without_buckets(&self) -> Self {
        let Self { hint, schema, count, sum, .. } = *self;
        Self { hint, schema, count, sum, ..Self::default() }
    }

    /// All observations.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// The sum of all observations.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// What is known of whether a counter began again.
    pub fn hint(&self) -> ResetHint {
        self.hint
    }

    /// The same with another hint.
    pub fn with_hint(mut self, hint: ResetHint) -> Self {
        self.hint = hint;
        self
    }

    /// How finely its buckets divide.
    pub(crate) fn schema(&self) -> i32 {
        self.schema
    }

    /// Whether the bounds of its buckets are listed.
    pub fn is_custom(&self) -> bool {
        self.schema == CUSTOM
    }

    /// How many values it takes where what is held is counted.
    pub fn size(&self) -> usize {
        // A bucket is an index and a count, and the rest takes as much as some of them.
        8 + 2 * (self.positive.len() + self.negative.len())
    }

    /// Whether both say the same of observations, to the bit; hints don't count.
    pub fn equals(&self, other: &Self) -> bool {
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
        let sides = |a: &Side, b: &Side| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && same(a.1, b.1))
        };
        self.schema == other.schema
            && same(self.count, other.count)
            && same(self.sum, other.sum)
            && same(self.zero_count, other.zero_count)
            && self.zero_threshold == other.zero_threshold
            && self.bounds == other.bounds
            && sides(&self.positive, &other.positive)
            && sides(&self.negative, &other.negative)
    }

    /// With all counts, and the sum, multiplied by a factor.
    pub(crate) fn times(&self, factor: f64) -> Self {
        self.changed(factor < 0.0, |count| count * factor)
    }

    /// With all counts, and the sum, divided by a number. By 0 no bucket is left.
    pub(crate) fn divided(&self, by: f64) -> Self {
        let mut divided = self.changed(by < 0.0, |count| count / by);
        if by == 0.0 {
            divided.positive.clear();
            divided.negative.clear();
        }
        divided
    }

    /// What is turned round is no counter any more.
    fn changed(&self, is_turned: bool, change: impl Fn(f64) -> f64) -> Self {
        let side = |side: &Side| {
            let changed = side.iter().map(|(index, count)| (*index, change(*count)));
            changed.filter(|(_, count)| *count != 0.0).collect()
        };
        Self {
            hint: if is_turned { ResetHint::Gauge } else { self.hint },
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            zero_count: change(self.zero_count),
            count: change(self.count),
            sum: change(self.sum),
            positive: side(&self.positive),
            negative: side(&self.negative),
            bounds: Arc::clone(&self.bounds),
        }
    }
}

fn check_bounds(bounds: &[f64]) -> Result<(), String> {
    if let Some(bound) = bounds.iter().find(|bound| bound.is_nan() || **bound == f64::INFINITY) {
        return Err(format!("{bound} is no bound of a bucket"));
    }
    match bounds.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(format!("bounds of buckets ascend: {} is behind {}", pair[1], pair[0])),
        None => Ok(()),
    }
}

/// Buckets that count something, by index.
fn side(spans: &[Span], counts: &[f64], which: &str) -> Result<Side, String> {
    let wanted = spans.iter().map(|span| u64::from(span.length)).sum::<u64>();
    if wanted != counts.len() as u64 {
        return Err(format!("{wanted} {which} buckets in spans, {} counts", counts.len()));
    }
    let (mut side, mut index, mut rest) = (Side::new(), 0_i64, counts.iter());
    for (place, span) in spans.iter().enumerate() {
        if place > 0 && span.offset < 0 {
            return Err(format!("{which} spans overlap: offset {}", span.offset));
        }
        index += i64::from(span.offset);
        if index < -MAX_INDEX || index + i64::from(span.length) > MAX_INDEX {
            return Err(format!("{which} bucket {index} is farther away than any float"));
        }
        for count in rest.by_ref().take(span.length as usize) {
            if *count != 0.0 {
                side.push((index as i32, *count));
            }
            index += 1;
        }
    }
    Ok(side)
}

fn spans(side: &Side) -> (Vec<Span>, Vec<f64>) {
    let (mut spans, mut next) = (Vec::<Span>::new(), None);
    for (index, _) in side {
        match spans.last_mut().filter(|_| next == Some(*index)) {
            Some(span) => span.length += 1,
            None => spans.push(Span { offset: index - next.unwrap_or(0), length: 1 }),
        }
        next = Some(index + 1);
    }
    (spans, side.iter().map(|(_, count)| *count).collect())
}

#[cfg(test)]
mod tests;
