//! Points put together as far as they lie in the same windows: those of a leaf that is read, and
//! nodes of the tree that needn't be, since their summaries say all that is asked.
//!
//! ```text
//!   windows      |-----------|              bounds, of which no stretch lies on both sides: | | | |
//!                      |-----------|
//!   tree         [ leaf ][ leaf ][ leaf ]
//!   stretches    =====|==|[whole]|==|==     what lies between two bounds is one thing; a leaf that
//!                                           does, or a node with all its leaves, is not read
//! ```
//!
//! What is asked is the same to the bit as of the points one by one: how many there are, the least,
//! the greatest, the first and the last. Sums are not, for they differ in their last digits with
//! the order of what is added; nor is what rises. A summary doesn't tell marks from other values
//! that are no numbers: where there is one of either, the points are read.

use crate::tree::Summary;
use crate::value::{Point, Points};
use plinth_promql::{Digest, STALE, Sample, Stretches, Wanted, Windows};

/// Windows between whose bounds hardly a few points lie are better off with these.
const LEAST: i64 = 300_000_000_000;

/// What is asked, of windows between whose bounds many points may lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summed(Windows);

impl Summed {
    /// `None` if it takes points one by one.
    pub(super) fn of(windows: Windows) -> Option<Self> {
        let is_exact = match windows.wanted {
            Wanted::Count | Wanted::Least | Wanted::Greatest | Wanted::FirstAndLast => true,
            Wanted::Sum | Wanted::Ends | Wanted::Last => false,
        };
        (is_exact && windows.longest_alike() >= LEAST).then_some(Self(windows))
    }

    /// Whether a summary says all that is asked of its points.
    pub(super) fn has_all(&self, summary: &Summary) -> bool {
        summary.count == summary.numbers
            && self.0.alike_until(summary.first.time) >= summary.last.time
    }

    /// The digest of points of which only a summary is read. Of what they rise it knows nothing.
    pub(super) fn digest(summary: &Summary) -> Digest {
        Digest {
            count: summary.count,
            first: sample(summary.first),
            last: sample(summary.last),
            falls: 0.0,
            is_ended: false,
        }
    }

    /// Appends the stretch of such points.
    pub(super) fn put_whole(&self, summary: &Summary, stretches: &mut Stretches) {
        let value = match self.0.wanted {
            Wanted::Least => summary.min,
            Wanted::Greatest => summary.max,
            _ => None,
        };
        let value = value.map_or(f64::NAN, |point| point.value.as_f64());
        stretches.push((summary.first.time, summary.last.time), summary.count, value);
    }

    /// Appends the digests of points, one for all that are alike.
    pub(super) fn put_digests(&self, points: &Points, digests: &mut Vec<Digest>) {
        self.each(points, digests, |digests, samples| {
            let mut samples = samples.map(Digest::from);
            let Some(mut all) = samples.next() else { return };
            samples.for_each(|digest| all.add(&digest));
            digests.push(all);
        });
    }

    /// Appends the stretches of points, in the same way.
    pub(super) fn put_stretches(&self, points: &Points, stretches: &mut Stretches) {
        let wanted = self.0.wanted;
        self.each(points, stretches, |stretches, samples| {
            let (mut span, mut count, mut value) = (None, 0, f64::NAN);
            for (time, one) in samples {
                let (_, last) = span.get_or_insert((time, time));
                *last = time;
                if one.to_bits() != STALE {
                    value = if count == 0 { one } else { wanted.joined(value, one) };
                    count += 1;
                }
            }
            if let Some(span) = span {
                stretches.push(span, count, value);
            }
        });
    }

    /// Calls for the points of each stretch of time in which all are alike.
    fn each<T>(
        &self,
        points: &Points,
        to: &mut T,
        put: impl Fn(&mut T, &mut dyn Iterator<Item = Sample>),
    ) {
        let mut at = 0;
        while let Some(time) = points.times.get(at) {
            let until = self.0.alike_until(*time);
            let behind = at + points.times[at..].partition_point(|time| *time <= until);
            put(to, &mut (at..behind).map(|place| sample(points.get(place))));
            at = behind;
        }
    }
}

/// A point as PromQL has it.
pub(super) fn sample(point: Point) -> Sample {
    (point.time, point.value.as_f64())
}
