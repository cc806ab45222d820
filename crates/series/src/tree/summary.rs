//! What is known of some points without looking at them: counts, sum, and the first, last, least and greatest.
//!
//! Summaries of neighbours add up to the summary of both. Several of them are written column by column with the codecs of leaves, since the
//! children of one node are alike: about forty bytes each.
//!
//! Values that are not numbers are counted, but are neither summed nor the least or greatest.

use crate::codec::{self, reader::Reader};
use crate::error::{Error, Result};
use crate::value::{Column, Point, Points, Value};
use std::cmp::Ordering;

/// The summary of at least one point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// Points.
    pub count: u64,
    /// Points whose value is a number.
    pub numbers: u64,
    /// Sum of the numbers, as floats.
    pub sum: f64,
    /// The earliest point.
    pub first: Point,
    /// The latest point.
    pub last: Point,
    /// The earliest among the points of the least number; `None` if there is no number.
    pub min: Option<Point>,
    /// The earliest among the points of the greatest number; `None` if there is no number.
    pub max: Option<Point>,
}

impl From<Point> for Summary {
    fn from(point: Point) -> Self {
        let number = (!point.value.is_nan()).then_some(point);
        let (numbers, sum) = number.map_or((0, 0.0), |point| (1, point.value.as_f64()));
        Self { count: 1, numbers, sum, first: point, last: point, min: number, max: number }
    }
}

impl Summary {
    /// The summary of these points; `None` if there are none.
    pub fn of(points: &Points) -> Option<Self> {
        Self::of_points(points.iter())
    }

    /// The summary of points that ascend by time; `None` if there are none.
    pub fn of_points(points: impl Iterator<Item = Point>) -> Option<Self> {
        points.fold(None, |summary, point| match summary {
            None => Some(Self::from(point)),
            Some(mut summary) => {
                summary.add(&Self::from(point));
                Some(summary)
            }
        })
    }

    /// Adds the summary of later points.
    pub fn add(&mut self, later: &Self) {
        self.count += later.count;
        self.numbers += later.numbers;
        self.sum += later.sum;
        self.last = later.last;
        self.min = better(self.min, later.min, Ordering::Greater);
        self.max = better(self.max, later.max, Ordering::Less);
    }

    /// The mean of the numbers; NaN if there is none.
    pub fn mean(&self) -> f64 {
        self.sum / self.numbers as f64
    }
}

/// `b` if `a` compares to it as `worse` says, else `a`.
fn better(a: Option<Point>, b: Option<Point>, worse: Ordering) -> Option<Point> {
    match (a, b) {
        (Some(x), Some(y)) if x.value.compare(y.value) == Some(worse) => b,
        (None, _) => b,
        _ => a,
    }
}

const FORMAT: u8 = 1;
const HEADER: usize = 8;

/// The summaries of a node's children, or of a single node, as bytes: between 1 and 65536 of them.
pub fn encode_summaries(level: u8, summaries: &[Summary]) -> Vec<u8> {
    assert!((1..=1 << 16).contains(&summaries.len()), "a node has children");
    let mut out = vec![FORMAT, level];
    out.extend_from_slice(&((summaries.len() - 1) as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let after = |summary: &Summary, time: i64| time.wrapping_sub(summary.first.time);
    let or_first =
        |summary: &Summary, point: Option<Point>| after(summary, point.unwrap_or(summary.first).time);
    let integers: [&dyn Fn(&Summary) -> i64; 6] = [
        &|summary| summary.first.time,
        &|summary| after(summary, summary.last.time),
        &|summary| summary.count as i64,
        &|summary| (summary.count - summary.numbers) as i64,
        &|summary| or_first(summary, summary.min),
        &|summary| or_first(summary, summary.max),
    ];
    for column in integers {
        codec::encode_integers(&summaries.iter().map(column).collect::<Vec<_>>(), &mut out);
    }
    let or_nan = |point: Option<Point>| point.map_or(Value::Float(f64::NAN), |point| point.value);
    let values: [&dyn Fn(&Summary) -> Value; 5] = [
        &|summary| Value::Float(summary.sum),
        &|summary| summary.first.value,
        &|summary| summary.last.value,
        &|summary| or_nan(summary.min),
        &|summary| or_nan(summary.max),
    ];
    for column in values {
        let column: Column = summaries.iter().map(column).collect();
        out.push(codec::kind(&column));
        codec::encode_column(&column, &mut out);
    }
    codec::put_checksum(&mut out);
    out
}

/// What [`encode_summaries`] made into bytes, which have to be of this level.
///
/// # Errors
/// [`Error::Damaged`] for other bytes.
pub fn decode_summaries(level: u8, bytes: &[u8]) -> Result<Vec<Summary>> {
    codec::check_checksum("a node", bytes)?;
    let mut reader = Reader::new(bytes);
    let [format, found, low, high, ..] = reader.fixed::<HEADER>()?;
    if format != FORMAT || found != level {
        let why = format!("format {FORMAT} and level {level} expected, {format} and {found} found");
        return Err(Error::damaged("a node", why));
    }
    let count = usize::from(u16::from_le_bytes([low, high])) + 1;
    let mut integers = || codec::decode_integers(&mut reader, count);
    let (first, last, counts, others) = (integers()?, integers()?, integers()?, integers()?);
    let (min, max) = (integers()?, integers()?);
    let mut values = || -> Result<Column> {
        let kind = reader.byte()?;
        let mut column = Column::default();
        codec::decode_column(&mut reader, kind, count, &mut column)?;
        Ok(column)
    };
    let (sums, firsts, lasts) = (values()?, values()?, values()?);
    let (mins, maxs) = (values()?, values()?);
    if !reader.is_empty() {
        return Err(reader.wrong("the end of the node"));
    }
    let summary = |i: usize| {
        let point = |after: i64, value: Value| Point { time: first[i].wrapping_add(after), value };
        let number = |after: i64, value: Value| (!value.is_nan()).then(|| point(after, value));
        let summary = Summary {
            count: counts[i] as u64,
            numbers: (counts[i] as u64).wrapping_sub(others[i] as u64),
            sum: sums.get(i).as_f64(),
            first: point(0, firsts.get(i)),
            last: point(last[i], lasts.get(i)),
            min: number(min[i], mins.get(i)),
            max: number(max[i], maxs.get(i)),
        };
        let sound = summary.count > 0
            && summary.numbers <= summary.count
            && summary.first.time <= summary.last.time
            && (summary.numbers > 0) == (summary.min.is_some() && summary.max.is_some());
        sound
            .then_some(summary)
            .ok_or_else(|| Error::damaged("a node", format!("child {i} contradicts itself")))
    };
    (0..count).map(summary).collect()
}
