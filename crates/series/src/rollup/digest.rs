//! What is kept of the points of a bucket, and how buckets are made of points.
//!
//! A digest is a summary and what a counter needs besides: `falls`, the sum of the values from
//! which it fell back. With the first and the last point that is all of which Prometheus computes
//! an increase. Marks, by which Prometheus ends a series, are points to the summary, and none to a
//! counter.

use crate::tree::Summary;
use crate::value::{Column, Point, Points, Value};
use plinth_promql::STALE;
use std::ops::Range;

/// What is kept of some points, of which there is one at least.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Digest {
    /// Of all of them.
    pub(crate) summary: Summary,
    /// The sum of the values behind which a lower one follows, marks left out.
    pub(crate) falls: f64,
    /// Marks among the points.
    pub(crate) marks: u64,
    /// The first and the last point that is no mark; `None` if there is none.
    pub(crate) seen: Option<(Point, Point)>,
}

/// The points of a stretch of time that begins at a multiple of its length.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bucket {
    pub(crate) begin: i64,
    /// The point at the beginning.
    pub(crate) at: Option<Value>,
    /// Those behind it.
    pub(crate) rest: Option<Digest>,
}

/// The beginning of the bucket of a time. Of the first one that there can be it is the beginning of
/// all time.
pub(crate) fn begin_of(time: i64, every: i64) -> i64 {
    time.div_euclid(every).checked_mul(every).unwrap_or(i64::MIN)
}

/// The moment behind a bucket.
pub(crate) fn end_of(begin: i64, every: i64) -> i64 {
    let begins = begin.div_euclid(every).saturating_add(1);
    begins.checked_mul(every).unwrap_or(i64::MAX)
}

pub(super) fn is_mark(value: Value) -> bool {
    matches!(value, Value::Float(value) if value.to_bits() == STALE)
}

impl Digest {
    /// The digest of the points at these places, which must exist; `None` if there are none.
    pub(crate) fn of(points: &Points, places: Range<usize>) -> Option<Self> {
        let summary = Summary::of_places(points, places.clone())?;
        if summary.numbers < summary.count {
            return places.map(|place| Self::from(points.get(place))).reduce(|mut sum, next| {
                sum.add(&next);
                sum
            });
        }
        let falls = match &points.values {
            Column::Floats(values) => falls(&values[places], |value| value),
            Column::Integers(values) => falls(&values[places], |value| value as f64),
            Column::Mixed(values) => falls(&values[places], Value::as_f64),
        };
        Some(Self { summary, falls, marks: 0, seen: Some((summary.first, summary.last)) })
    }

    /// Adds the digest of later points.
    pub(crate) fn add(&mut self, later: &Self) {
        if let (Some((_, last)), Some((first, _))) = (self.seen, later.seen) {
            let (last, first) = (last.value.as_f64(), first.value.as_f64());
            self.falls += if first < last { last } else { 0.0 };
        }
        self.falls += later.falls;
        self.summary.add(&later.summary);
        self.marks += later.marks;
        self.seen = match (self.seen, later.seen) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (seen, later) => seen.or(later),
        };
    }
}

impl From<Point> for Digest {
    fn from(point: Point) -> Self {
        let is_mark = is_mark(point.value);
        Self {
            summary: Summary::from(point),
            falls: 0.0,
            marks: u64::from(is_mark),
            seen: (!is_mark).then_some((point, point)),
        }
    }
}

impl Bucket {
    /// How many points it was made of.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.at.is_some()) + self.rest.map_or(0, |rest| rest.summary.count)
    }
}

/// The sum of the values behind which a lower one follows.
fn falls<T: Copy>(values: &[T], number: impl Fn(T) -> f64) -> f64 {
    let fall = |pair: &[T]| {
        let (before, now) = (number(pair[0]), number(pair[1]));
        if now < before { before } else { 0.0 }
    };
    values.windows(2).map(fall).sum()
}

/// Makes buckets of points that come by and by.
pub(crate) struct Maker {
    every: i64,
    /// The last of them may get more points.
    buckets: Vec<Bucket>,
}

impl Maker {
    /// Buckets of so many nanoseconds, of which there are some.
    pub(crate) fn new(every: i64) -> Self {
        Self { every, buckets: Vec::new() }
    }

    /// Adds points that are later than those before.
    pub(crate) fn add(&mut self, points: &Points) {
        let times = &points.times;
        let mut place = 0;
        while place < times.len() {
            let begin = begin_of(times[place], self.every);
            let end = end_of(begin, self.every);
            let behind = place + times[place..].partition_point(|time| *time < end);
            let is_at = times[place] == begin;
            let at = is_at.then(|| points.values.get(place));
            let rest = Digest::of(points, place + usize::from(is_at)..behind);
            self.put(Bucket { begin, at, rest });
            place = behind;
        }
    }

    fn put(&mut self, bucket: Bucket) {
        let Some(last) = self.buckets.last_mut().filter(|last| last.begin == bucket.begin) else {
            self.buckets.push(bucket);
            return;
        };
        match (&mut last.rest, &bucket.rest) {
            (Some(rest), Some(later)) => rest.add(later),
            (rest, later) => *rest = rest.or(*later),
        }
    }

    /// How many buckets there are by now.
    pub(crate) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// The buckets that end before a moment, or with it.
    pub(crate) fn until(mut self, end: i64) -> Vec<Bucket> {
        let every = self.every;
        self.buckets
            .truncate(self.buckets.partition_point(|bucket| end_of(bucket.begin, every) <= end));
        self.buckets
    }
}
