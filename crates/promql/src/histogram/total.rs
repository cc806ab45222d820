//! Histograms added up, without loss, whatever buckets each of them has.
//!
//! Two histograms are added bucket by bucket once their buckets are the same: the finer schema is
//! made as coarse as the other, the narrower zero bucket as wide, and of custom bounds those are
//! kept that both have. That loses where observations were, never how many.

use super::bounds::exponential;
use super::{CUSTOM, Histogram, ResetHint};
use crate::sum::Sum;
use std::sync::Arc;

/// Buckets by index, ascending, each once.
type Sums = Vec<(i32, Sum)>;

/// Exponential and custom buckets were to be made one: they can't.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mixed;

/// What happened when a histogram was added.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Merged {
    /// One says that a counter began again, the other that it did not.
    pub(crate) hints_collide: bool,
    /// Their custom bounds were different.
    pub(crate) bounds_differ: bool,
}

/// A sum of histograms.
#[derive(Clone, Debug)]
pub(crate) struct Total {
    hint: ResetHint,
    schema: i32,
    zero_threshold: f64,
    zero: Sum,
    count: Sum,
    sum: Sum,
    positive: Sums,
    negative: Sums,
    bounds: Arc<[f64]>,
}

impl Total {
    /// Begins with a histogram.
    pub(crate) fn new(first: &Histogram) -> Self {
        Self::of(first, |count| count)
    }

    fn of(first: &Histogram, change: impl Fn(f64) -> f64) -> Self {
        let side = |side: &super::Side| {
            side.iter().map(|(index, count)| (*index, Sum::new(change(*count)))).collect()
        };
        Self {
            hint: first.hint,
            schema: first.schema,
            zero_threshold: first.zero_threshold,
            zero: Sum::new(change(first.zero_count)),
            count: Sum::new(change(first.count)),
            sum: Sum::new(change(first.sum)),
            positive: side(&first.positive),
            negative: side(&first.negative),
            bounds: Arc::clone(&first.bounds),
        }
    }

    pub(crate) fn add(&mut self, other: &Histogram) -> Result<Merged, Mixed> {
        self.merge(other, |count| count)
    }

    pub(crate) fn sub(&mut self, other: &Histogram) -> Result<Merged, Mixed> {
        self.merge(other, |count| -count)
    }

    /// Adds a part of a histogram.
    pub(crate) fn add_divided(&mut self, other: &Histogram, by: f64) -> Result<Merged, Mixed> {
        self.merge(other, |count| count / by)
    }

    /// Adds a histogram whose counts are changed first. Nothing happens where that can't be.
    fn merge(&mut self, other: &Histogram, change: impl Fn(f64) -> f64) -> Result<Merged, Mixed> {
        if (self.schema == CUSTOM) != other.is_custom() {
            return Err(Mixed);
        }
        let hints_collide = self.take_hint(other.hint);
        let mut other = Self::of(other, change);
        let bounds_differ = self.bounds != other.bounds;
        if bounds_differ {
            let bounds = common(&self.bounds, &other.bounds);
            self.keep_bounds(&bounds);
            other.keep_bounds(&bounds);
        }
        while self.zero_threshold != other.zero_threshold {
            let threshold = self.zero_threshold.max(other.zero_threshold);
            self.widen(threshold);
            other.widen(threshold);
        }
        let schema = self.schema.min(other.schema);
        self.coarsen(schema);
        other.coarsen(schema);
        self.zero.join(other.zero);
        self.count.join(other.count);
        self.sum.join(other.sum);
        join(&mut self.positive, other.positive);
        join(&mut self.negative, other.negative);
        Ok(Merged { hints_collide, bounds_differ })
    }

    /// A gauge among them makes all a gauge; what isn't known of one isn't known of all.
    fn take_hint(&mut self, other: ResetHint) -> bool {
        use ResetHint::{Gauge, Unknown};
        let (hint, collide) = match (self.hint, other) {
            (one, other) if one == other => (one, false),
            (Gauge, _) | (_, Gauge) => (Gauge, false),
            (Unknown, _) | (_, Unknown) => (Unknown, false),
            _ => (Unknown, true),
        };
        self.hint = hint;
        collide
    }

    /// Multiplies all counts, and the sum.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.change(|count| count * factor);
    }

    /// Divides all counts, and the sum, by a number that is not 0.
    pub(crate) fn divide(&mut self, by: f64) {
        self.change(|count| count / by);
    }

    fn change(&mut self, change: impl Fn(f64) -> f64) {
        let sums = [&mut self.zero, &mut self.count, &mut self.sum].into_iter();
        let buckets = self.positive.iter_mut().chain(&mut self.negative);
        sums.chain(buckets.map(|(_, sum)| sum))
            .for_each(|sum| *sum = Sum { sum: change(sum.sum), lost: change(sum.lost) });
    }

    /// Whether something in it is infinite.
    pub(crate) fn overflows(&self) -> bool {
        let buckets = self.positive.iter().chain(&self.negative).map(|(_, sum)| sum);
        [&self.zero, &self.count, &self.sum].into_iter().chain(buckets).any(|s| s.sum.is_infinite())
            || self.bounds.iter().any(|bound| bound.is_infinite())
    }

    /// Makes the buckets those of a coarser schema; those of a finer one, and custom ones, stay.
    pub(crate) fn coarsen(&mut self, schema: i32) {
        if self.schema <= schema {
            return;
        }
        let shift = self.schema - schema;
        self.schema = schema;
        for side in [&mut self.positive, &mut self.negative] {
            moved(side, |index| ((index - 1) >> shift) + 1);
        }
    }

    /// Makes the zero bucket reach at least so far: to the end of the bucket in which that lies.
    pub(super) fn widen(&mut self, mut threshold: f64) {
        if threshold <= self.zero_threshold {
            return;
        }
        let schema = self.schema;
        loop {
            let before = threshold;
            for side in [&self.positive, &self.negative] {
                // Bounds ascend with indexes.
                let place =
                    side.partition_point(|(index, _)| exponential(*index, schema) <= threshold);
                if let Some((index, count)) = side.get(place)
                    && exponential(index - 1, schema) < threshold
                    && count.total() != 0.0
                {
                    threshold = exponential(*index, schema);
                }
            }
            if threshold == before {
                break;
            }
        }
        for side in [&mut self.positive, &mut self.negative] {
            let inside =
                side.partition_point(|(index, _)| exponential(*index, schema) <= threshold);
            for (_, count) in side.drain(..inside) {
                self.zero.join(count);
            }
        }
        self.zero_threshold = threshold;
    }

    /// Keeps some of the custom bounds; buckets between them become one.
    fn keep_bounds(&mut self, kept: &Arc<[f64]>) {
        let before = std::mem::replace(&mut self.bounds, Arc::clone(kept));
        moved(&mut self.positive, |index| {
            let bound = usize::try_from(index).ok().and_then(|place| before.get(place));
            let place = bound.map_or(kept.len(), |bound| kept.partition_point(|b| b < bound));
            place as i32
        });
    }

    /// The histogram that they come to.
    pub(crate) fn histogram(self) -> Histogram {
        let side = |side: Sums| {
            let totals = side.into_iter().map(|(index, sum)| (index, sum.total()));
            totals.filter(|(_, count)| *count != 0.0).collect()
        };
        Histogram {
            hint: self.hint,
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            zero_count: self.zero.total(),
            count: self.count.total(),
            sum: self.sum.total(),
            positive: side(self.positive),
            negative: side(self.negative),
            bounds: self.bounds,
        }
    }

    /// Whether a bucket, or the zero bucket, has less in a later histogram with the same buckets.
    pub(super) fn has_more_than(&self, later: &Self) -> bool {
        let falls = |before: &Sums, later: &Sums| {
            before.iter().any(|(index, count)| {
                let place = later.binary_search_by_key(index, |(index, _)| *index);
                let now = place.map_or(0.0, |place| later[place].1.total());
                now < count.total()
            })
        };
        later.zero.total() < self.zero.total()
            || falls(&self.positive, &later.positive)
            || falls(&self.negative, &later.negative)
    }

    pub(super) fn zero_threshold(&self) -> f64 {
        self.zero_threshold
    }

    /// Makes two sums of custom buckets have the same bounds.
    pub(super) fn align_bounds(&mut self, other: &mut Self) {
        if self.bounds != other.bounds {
            let bounds = common(&self.bounds, &other.bounds);
            self.keep_bounds(&bounds);
            other.keep_bounds(&bounds);
        }
    }
}

const MIXED: &str =
    "histograms with exponential buckets and such with custom ones have no sum and no difference";

impl Histogram {
    /// The sum of both, in the coarser of their buckets.
    ///
    /// # Errors
    /// One has custom buckets and the other has not.
    pub fn plus(&self, other: &Self) -> Result<Self, String> {
        let mut total = Total::new(self);
        total.add(other).map_err(|Mixed| MIXED.to_string())?;
        Ok(total.histogram())
    }

    /// The difference of both, in the coarser of their buckets.
    ///
    /// # Errors
    /// One has custom buckets and the other has not.
    pub fn minus(&self, other: &Self) -> Result<Self, String> {
        let mut total = Total::new(self);
        total.sub(other).map_err(|Mixed| MIXED.to_string())?;
        Ok(total.histogram())
    }
}

/// Gives buckets other indexes, which ascend as they do; those of the same become one.
fn moved(side: &mut Sums, index: impl Fn(i32) -> i32) {
    side.iter_mut().for_each(|bucket| bucket.0 = index(bucket.0));
    side.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1.join(next.1);
        }
        is_same
    });
}

/// Adds buckets to those with the same index.
fn join(side: &mut Sums, other: Sums) {
    let are_same = |(a, b): (&(i32, Sum), &(i32, Sum))| a.0 == b.0;
    if side.len() == other.len() && side.iter().zip(&other).all(are_same) {
        for (bucket, other) in side.iter_mut().zip(other) {
            bucket.1.join(other.1);
        }
        return;
    }
    let mut merged = Sums::with_capacity(side.len() + other.len());
    let mut rest = side.iter().copied().peekable();
    for (index, count) in other {
        while let Some(before) = rest.next_if(|(before, _)| *before < index) {
            merged.push(before);
        }
        let mut sum = count;
        if let Some((_, mine)) = rest.next_if(|(mine, _)| *mine == index) {
            sum = mine;
            sum.join(count);
        }
        merged.push((index, sum));
    }
    merged.extend(rest);
    *side = merged;
}

/// The bounds that are in both.
fn common(one: &[f64], other: &[f64]) -> Arc<[f64]> {
    let is_in_other =
        |bound: &f64| other.get(other.partition_point(|b| b < bound)).is_some_and(|b| b == bound);
    one.iter().copied().filter(is_in_other).collect()
}
