//! What a point holds: an integer or a float, and a column of such values.
//!
//! A value keeps the type it came with: an integer of 64 bits is never rounded to a float, a float
//! keeps its sign of zero and the payload of a NaN. A [`Column`] is flat as long as all of its
//! values have one type, which is how series are in practice.

use plinth_env::prefetch;
use std::cmp::Ordering;

/// The value of a point.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// An integer; all 64 bits survive.
    Integer(i64),
    /// A float; all 64 bits survive.
    Float(f64),
}

/// Equality is of bits and of type, so that a NaN is itself and the two zeros differ.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

impl Eq for Value {}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl Value {
    /// The value as a float: an integer beyond 2^53 is rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// Whether it is a float that is not a number.
    pub fn is_nan(self) -> bool {
        matches!(self, Self::Float(value) if value.is_nan())
    }

    /// The order of two values as numbers, exact between integers and floats. `None` if one of them
    /// is not a number.
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(&b)),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b),
            (Self::Integer(a), Self::Float(b)) => compare_mixed(a, b),
            (Self::Float(a), Self::Integer(b)) => compare_mixed(b, a).map(Ordering::reverse),
        }
    }
}

/// Compares an integer with a float without rounding either.
fn compare_mixed(integer: i64, float: f64) -> Option<Ordering> {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if float.is_nan() {
        return None;
    }
    if float >= BEYOND {
        return Some(Ordering::Less);
    }
    if float < -BEYOND {
        return Some(Ordering::Greater);
    }
    let whole = float.trunc();
    Some(
        integer
            .cmp(&(whole as i64))
            .then_with(|| 0.0_f64.partial_cmp(&(float - whole)).unwrap_or(Ordering::Equal)),
    )
}

/// A point of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    pub time: i64,
    /// What was measured.
    pub value: Value,
}

/// The values of several points, in their order.
#[derive(Clone, Debug)]
pub enum Column {
    /// All are floats.
    Floats(Vec<f64>),
    /// All are integers.
    Integers(Vec<i64>),
    /// Of both kinds.
    Mixed(Vec<Value>),
}

impl Default for Column {
    fn default() -> Self {
        Self::Floats(Vec::new())
    }
}

impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Column {
    /// How many values.
    pub fn len(&self) -> usize {
        match self {
            Self::Floats(values) => values.len(),
            Self::Integers(values) => values.len(),
            Self::Mixed(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at `index`, which must be below the length.
    pub fn get(&self, index: usize) -> Value {
        match self {
            Self::Floats(values) => Value::Float(values[index]),
            Self::Integers(values) => Value::Integer(values[index]),
            Self::Mixed(values) => values[index],
        }
    }

    /// Makes room for `more` values, and half as many as there are: twice as many, as vectors do,
    /// is too much where many columns grow at the same pace.
    fn make_room(&mut self, more: usize) {
        match self {
            Self::Floats(values) => make_room(values, more),
            Self::Integers(values) => make_room(values, more),
            Self::Mixed(values) => make_room(values, more),
        }
    }

    /// Appends a value; the first one decides the type, a later one of the other type makes the
    /// column mixed.
    pub fn push(&mut self, value: Value) {
        match (&mut *self, value) {
            (Self::Floats(values), Value::Float(value)) => values.push(value),
            (Self::Integers(values), Value::Integer(value)) => values.push(value),
            (Self::Mixed(values), value) => values.push(value),
            (Self::Floats(values), Value::Integer(value)) if values.is_empty() => {
                *self = Self::Integers(vec![value]);
            }
            (Self::Integers(values), Value::Float(value)) if values.is_empty() => {
                *self = Self::Floats(vec![value]);
            }
            (_, value) => {
                let mut values: Vec<Value> = self.iter().collect();
                values.push(value);
                *self = Self::Mixed(values);
            }
        }
    }

    /// Replaces the value at `place`, which must be below the length.
    fn set(&mut self, place: usize, value: Value) {
        match (&mut *self, value) {
            (Self::Floats(values), Value::Float(value)) => values[place] = value,
            (Self::Integers(values), Value::Integer(value)) => values[place] = value,
            _ => {
                let values = self.iter().enumerate();
                *self = values.map(|(at, old)| if at == place { value } else { old }).collect();
            }
        }
    }

    /// Puts a value before the one at `place`, which must be at most the length.
    fn insert(&mut self, place: usize, value: Value) {
        match (&mut *self, value) {
            (Self::Floats(values), Value::Float(value)) => values.insert(place, value),
            (Self::Integers(values), Value::Integer(value)) => values.insert(place, value),
            _ => {
                let mut values: Vec<Value> = self.iter().collect();
                values.insert(place, value);
                *self = values.into_iter().collect();
            }
        }
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        match self {
            Self::Floats(values) => values.clear(),
            Self::Integers(values) => values.clear(),
            Self::Mixed(_) => *self = Self::default(),
        }
    }

    /// The values in their order.
    pub fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Appends the values as points of these times, of which there are as many.
    pub(crate) fn with_times(&self, times: &[i64], points: &mut Vec<Point>) {
        fn extend<T: Copy + Into<Value>>(times: &[i64], values: &[T], points: &mut Vec<Point>) {
            let all = times.iter().zip(values);
            points.extend(all.map(|(time, value)| Point { time: *time, value: (*value).into() }));
        }
        match self {
            Self::Floats(values) => extend(times, values, points),
            Self::Integers(values) => extend(times, values, points),
            Self::Mixed(values) => extend(times, values, points),
        }
    }

    /// The values in their order, each with its type.
    pub(crate) fn into_values(self) -> Vec<Value> {
        match self {
            Self::Floats(values) => values.into_iter().map(Value::Float).collect(),
            Self::Integers(values) => values.into_iter().map(Value::Integer).collect(),
            Self::Mixed(values) => values,
        }
    }

    /// Asks for the memory of the last value.
    fn prefetch_end(&self) {
        match self {
            Self::Floats(values) => prefetch_last(values),
            Self::Integers(values) => prefetch_last(values),
            Self::Mixed(values) => prefetch_last(values),
        }
    }

    /// Appends the values of points.
    fn extend(&mut self, points: &[Point]) {
        let all = |is: fn(&Value) -> bool| points.iter().all(|point| is(&point.value));
        match self {
            Self::Floats(values) if all(|value| matches!(value, Value::Float(_))) => {
                values.extend(points.iter().map(|point| point.value.as_f64()));
            }
            Self::Integers(values) if all(|value| matches!(value, Value::Integer(_))) => {
                values.extend(points.iter().filter_map(|point| match point.value {
                    Value::Integer(value) => Some(value),
                    Value::Float(_) => None,
                }));
            }
            _ => points.iter().for_each(|point| self.push(point.value)),
        }
    }

    /// Appends the values of `other` at these places, which must exist.
    fn append(&mut self, other: &Self, places: std::ops::Range<usize>) {
        match (&mut *self, other) {
            (Self::Floats(values), Self::Floats(others)) => {
                values.extend_from_slice(&others[places])
            }
            (Self::Integers(values), Self::Integers(others)) => {
                values.extend_from_slice(&others[places])
            }
            (Self::Floats(values), Self::Integers(others)) if values.is_empty() => {
                *self = Self::Integers(others[places].to_vec());
            }
            _ => places.for_each(|place| self.push(other.get(place))),
        }
    }
}

/// Makes room for `more` items, and half as many as there are.
fn make_room<T>(items: &mut Vec<T>, more: usize) {
    if items.capacity() - items.len() < more {
        let least = if items.is_empty() { FIRST_ROOM } else { MORE_ROOM };
        items.reserve_exact(more.max(items.len() / 2).max(least));
    }
}

/// Asks for the memory of the last item.
fn prefetch_last<T>(items: &[T]) {
    if let Some(last) = items.last() {
        prefetch(std::ptr::from_ref(last).cast());
    }
}

impl FromIterator<Value> for Column {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        let mut column = Self::default();
        values.into_iter().for_each(|value| column.push(value));
        column
    }
}

/// Items for which there is room when there are some; and for how many more at least when that is
/// used up.
const FIRST_ROOM: usize = 8;
const MORE_ROOM: usize = 16;

/// Points in two columns, ascending by time.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Points {
    /// Nanoseconds since 1970, strictly ascending.
    pub times: Vec<i64>,
    /// As many values.
    pub values: Column,
}

impl Points {
    /// How many points.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Asks for the memory of the last points, behind which others will be appended.
    pub(crate) fn prefetch_end(&self) {
        prefetch_last(&self.times);
        self.values.prefetch_end();
    }

    /// The point at `index`, which must be below the length.
    pub fn get(&self, index: usize) -> Point {
        Point { time: self.times[index], value: self.values.get(index) }
    }

    /// Appends a point behind the last.
    pub fn push(&mut self, point: Point) {
        debug_assert!(self.times.last().is_none_or(|last| *last < point.time), "points ascend");
        self.times.push(point.time);
        self.values.push(point.value);
    }

    /// Appends points that ascend, all of them behind the last.
    pub(crate) fn extend(&mut self, points: &[Point]) {
        debug_assert!(points.is_sorted_by(|a, b| a.time < b.time), "points ascend");
        make_room(&mut self.times, points.len());
        self.values.make_room(points.len());
        self.times.extend(points.iter().map(|point| point.time));
        self.values.extend(points);
    }

    /// Appends the points of `later` at these places, which must exist and be later than the last.
    pub(crate) fn append(&mut self, later: &Self, places: std::ops::Range<usize>) {
        self.times.extend_from_slice(&later.times[places.clone()]);
        self.values.append(&later.values, places);
    }

    /// The points in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Point> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Appends all points, their values as floats: integers beyond 2^53 are rounded.
    pub(crate) fn put_numbers(&self, samples: &mut Vec<(i64, f64)>) {
        let times = self.times.iter().copied();
        match &self.values {
            Column::Floats(values) => samples.extend(times.zip(values.iter().copied())),
            Column::Integers(values) => {
                samples.extend(times.zip(values.iter().map(|value| *value as f64)));
            }
            Column::Mixed(values) => {
                samples.extend(times.zip(values.iter().map(|value| value.as_f64())));
            }
        }
    }

    /// Puts a point where its time belongs, in place of one with the same time if there is one.
    /// Whether there is one more now.
    pub fn insert(&mut self, point: Point) -> bool {
        match self.times.binary_search(&point.time) {
            Ok(place) => {
                self.values.set(place, point.value);
                false
            }
            Err(place) => {
                self.times.insert(place, point.time);
                self.values.insert(place, point.value);
                true
            }
        }
    }

    /// Takes the points from `place` on away and gives them.
    #[must_use]
    pub fn split_off(&mut self, place: usize) -> Self {
        let values = match &mut self.values {
            Column::Floats(values) => Column::Floats(values.split_off(place)),
            Column::Integers(values) => Column::Integers(values.split_off(place)),
            Column::Mixed(values) => Column::Mixed(values.split_off(place)),
        };
        Self { times: self.times.split_off(place), values }
    }

    /// Keeps only the points at these places, which must exist.
    pub fn keep(&mut self, places: std::ops::Range<usize>) {
        fn keep<T>(items: &mut Vec<T>, places: &std::ops::Range<usize>) {
            items.truncate(places.end);
            items.drain(..places.start);
        }
        keep(&mut self.times, &places);
        match &mut self.values {
            Column::Floats(values) => keep(values, &places),
            Column::Integers(values) => keep(values, &places),
            Column::Mixed(values) => keep(values, &places),
        }
    }

    /// Forgets all points and keeps the memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
    }
}

impl FromIterator<Point> for Points {
    fn from_iter<I: IntoIterator<Item = Point>>(points: I) -> Self {
        let mut collected = Self::default();
        points.into_iter().for_each(|point| collected.push(point));
        collected
    }
}
