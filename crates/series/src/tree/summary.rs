//! What is known of some points without looking at them: counts, sum, and the first, last, least
//! and greatest.
//!
//! Summaries of neighbours add up to the summary of both. Several of them are written column by
//! column with the codecs of leaves, since the children of one node are alike: about forty bytes
//! each.
//!
//! Values that are not numbers are counted, but are neither summed nor the least or greatest.

use crate::codec::{self, reader::Reader};
use crate::error::{Error, Result};
use crate::value::{Column, Point, Points, Value};
use std::cmp::Ordering;
use std::ops::Range;

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
        Self::of_places(points, 0..points.len())
    }

    /// The summary of the points at these places, which must exist; `None` if there are none.
    pub fn of_places(points: &Points, places: Range<usize>) -> Option<Self> {
        let times = &points.times[places.clone()];
        let (first, last) = (*times.first()?, *times.last()?);
        let known = match &points.values {
            Column::Floats(values) => Known::of_floats(&values[places.clone()]),
            Column::Integers(values) => Known::of_integers(&values[places.clone()]),
            Column::Mixed(_) => return Self::of_points(places.map(|place| points.get(place))),
        };
        let point = |(place, value)| Point { time: times[place], value };
        Some(Self {
            count: times.len() as u64,
            numbers: known.numbers,
            sum: known.sum,
            first: Point { time: first, value: points.values.get(places.start) },
            last: Point { time: last, value: points.values.get(places.end - 1) },
            min: known.min.map(point),
            max: known.max.map(point),
        })
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

/// What is known of values of one type: how many are numbers, their sum, and the first place of the
/// least and the greatest.
struct Known {
    numbers: u64,
    sum: f64,
    min: Option<(usize, Value)>,
    max: Option<(usize, Value)>,
}

/// Sums that are made side by side, so that none of them waits for the one before.
const LANES: usize = 8;

impl Known {
    fn of_floats(values: &[f64]) -> Self {
        // Adding it changes no number, not even the other zero.
        const NOTHING: f64 = -0.0;
        let (mut sums, mut mins, mut maxs) =
            ([NOTHING; LANES], [f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
        let mut others = [0_u64; LANES];
        let mut add = |lanes: &[f64]| {
            for (lane, value) in lanes.iter().enumerate() {
                sums[lane] += if value.is_nan() { NOTHING } else { *value };
                others[lane] += u64::from(value.is_nan());
                mins[lane] = if *value < mins[lane] { *value } else { mins[lane] };
                maxs[lane] = if *value > maxs[lane] { *value } else { maxs[lane] };
            }
        };
        let (chunks, rest) = values.as_chunks::<LANES>();
        chunks.iter().for_each(|chunk| add(chunk));
        add(rest);
        let numbers = values.len() as u64 - others.iter().sum::<u64>();
        let (mut min, mut max) = (None, None);
        if numbers > 0 {
            let least = mins.into_iter().fold(f64::INFINITY, f64::min);
            let greatest = maxs.into_iter().fold(f64::NEG_INFINITY, f64::max);
            let at = |value: f64| {
                first_place(values, value).map(|place| (place, Value::Float(values[place])))
            };
            (min, max) = (at(least), at(greatest));
        }
        let sum =
            if numbers > 0 { sums.into_iter().fold(NOTHING, |sum, lane| sum + lane) } else { 0.0 };
        Self { numbers, sum, min, max }
    }

    fn of_integers(values: &[i64]) -> Self {
        let mut sums = [0.0; LANES];
        let mut add = |lanes: &[i64]| {
            lanes.iter().zip(&mut sums).for_each(|(value, sum)| *sum += *value as f64);
        };
        let (chunks, rest) = values.as_chunks::<LANES>();
        chunks.iter().for_each(|chunk| add(chunk));
        add(rest);
        let at = |value: Option<&i64>| {
            value.and_then(|value| {
                first_place(values, *value).map(|place| (place, Value::Integer(*value)))
            })
        };
        let (min, max) = (at(values.iter().min()), at(values.iter().max()));
        Self { numbers: values.len() as u64, sum: sums.into_iter().sum(), min, max }
    }
}

/// The first place of a value that is there. Most of the way it looks at many of them at once.
fn first_place<T: PartialEq + Copy>(values: &[T], value: T) -> Option<usize> {
    const MANY: usize = 32;
    let is_in =
        |many: &[T; MANY]| many.iter().fold(false, |found, other| found | (*other == value));
    let passed = values.as_chunks::<MANY>().0.iter().take_while(|many| !is_in(many)).count() * MANY;
    values[passed..].iter().position(|other| *other == value).map(|place| passed + place)
}

const FORMAT: u8 = 1;
const HEADER: usize = 8;

/// The summaries of a node's children, or of a single node, as bytes: between 1 and 65536 of them.
pub fn encode_summaries(level: u8, summaries: &[Summary]) -> Vec<u8> {
    assert!((1..=1 << 16).contains(&summaries.len()), "a node has children");
    let mut out = Vec::with_capacity(128 * summaries.len());
    out.extend_from_slice(&[FORMAT, level]);
    out.extend_from_slice(&((summaries.len() - 1) as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let after = |summary: &Summary, time: i64| time.wrapping_sub(summary.first.time);
    let or_first = |summary: &Summary, point: Option<Point>| {
        after(summary, point.unwrap_or(summary.first).time)
    };
    let integers: [&dyn Fn(&Summary) -> i64; 6] = [
        &|summary| summary.first.time,
        &|summary| after(summary, summary.last.time),
        &|summary| summary.count as i64,
        &|summary| (summary.count - summary.numbers) as i64,
        &|summary| or_first(summary, summary.min),
        &|summary| or_first(summary, summary.max),
    ];
    let mut numbers = Vec::with_capacity(summaries.len());
    for column in integers {
        numbers.clear();
        numbers.extend(summaries.iter().map(column));
        codec::encode_integers(&numbers, &mut out);
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
    let (mut reader, count) = begin(level, bytes)?;
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
        let integers = [first[i], last[i], counts[i], others[i], min[i], max[i]];
        from_columns(
            i,
            integers,
            [sums.get(i), firsts.get(i), lasts.get(i), mins.get(i), maxs.get(i)],
        )
    };
    (0..count).map(summary).collect()
}

/// The only summary in such bytes. A series has dozens of them on their own, and all are read
/// whenever it is: so no memory is asked for.
///
/// # Errors
/// [`Error::Damaged`] for other bytes, and for those of several summaries.
pub fn decode_summary(level: u8, bytes: &[u8]) -> Result<Summary> {
    let (mut reader, count) = begin(level, bytes)?;
    if count != 1 {
        return Err(Error::damaged("a twig", "one summary expected, several found"));
    }
    let mut integers = [0; 6];
    for integer in &mut integers {
        *integer = codec::decode_integer(&mut reader)?;
    }
    let mut values = [Value::Integer(0); 5];
    for value in &mut values {
        *value = codec::decode_value(&mut reader)?;
    }
    if !reader.is_empty() {
        return Err(reader.wrong("the end of the node"));
    }
    from_columns(0, integers, values)
}

/// Checks what comes before the columns: how many summaries there are.
fn begin(level: u8, bytes: &[u8]) -> Result<(Reader<'_>, usize)> {
    codec::check_checksum("a node", bytes)?;
    let mut reader = Reader::new(bytes);
    let [format, found, low, high, ..] = reader.fixed::<HEADER>()?;
    if format != FORMAT || found != level {
        let why = format!("format {FORMAT} and level {level} expected, {format} and {found} found");
        return Err(Error::damaged("a node", why));
    }
    Ok((reader, usize::from(u16::from_le_bytes([low, high])) + 1))
}

/// A summary of what the columns say of it, in their order.
fn from_columns(child: usize, integers: [i64; 6], values: [Value; 5]) -> Result<Summary> {
    let [first, last, count, others, min, max] = integers;
    let [sum, first_value, last_value, min_value, max_value] = values;
    let point = |after: i64, value: Value| Point { time: first.wrapping_add(after), value };
    let number = |after: i64, value: Value| (!value.is_nan()).then(|| point(after, value));
    let summary = Summary {
        count: count as u64,
        numbers: (count as u64).wrapping_sub(others as u64),
        sum: sum.as_f64(),
        first: point(0, first_value),
        last: point(last, last_value),
        min: number(min, min_value),
        max: number(max, max_value),
    };
    let sound = summary.count > 0
        && summary.numbers <= summary.count
        && summary.first.time <= summary.last.time
        && (summary.numbers > 0) == (summary.min.is_some() && summary.max.is_some());
    sound
        .then_some(summary)
        .ok_or_else(|| Error::damaged("a node", format!("child {child} contradicts itself")))
}
