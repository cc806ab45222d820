//! A row of buckets by the column: only those columns are read that are asked for.
//!
//! Most questions want a few numbers of each bucket and none of the others, and a year of hours is
//! nine thousand buckets for each series. So a row's columns are decoded as they lie, those that
//! nobody asks for are passed over by their lengths, and nothing is made for a bucket by itself.
//!
//! The checksum is that of all bytes, whichever are read. What is read is compared with what has to
//! hold between columns, so that a bucket that contradicts itself is an error and no answer.

use super::digest::{Bucket, Digest};
use super::row::{AT, FORMAT, HEADER, MAX_BUCKETS, REST};
use crate::codec::{self, reader::Reader};
use crate::error::{Error, Result};
use crate::tree::Summary;
use crate::value::{Column, Point, Value};
use std::ops::Range;

/// Columns of what lies behind the beginnings of buckets, by their places in a row.
const COUNTS: usize = 0;
pub(super) const OTHERS: usize = 1;
pub(super) const MARKS: usize = 2;
const TIMES: usize = 3;
pub(super) const SUMS: usize = 7;
pub(super) const FALLS: usize = 8;
pub(super) const FIRST: usize = 9;
pub(super) const LAST: usize = 10;
pub(super) const LEAST: usize = 11;
pub(super) const GREATEST: usize = 12;
const SEEN: usize = 13;

/// Which of those are read, besides the numbers of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needed(u16);

impl Needed {
    /// How many points there are, and no more.
    pub(crate) const COUNTS: Self = Self(1 << COUNTS | 1 << OTHERS | 1 << MARKS);
    /// All that a bucket has.
    pub(crate) const ALL: Self = Self((1 << (SEEN + 1)) - 1);
    /// All that a summary has.
    pub(crate) const SUMMARIES: Self = Self(Self::ALL.0 & !(1 << FALLS | 1 << SEEN));

    /// What answers windows of PromQL.
    pub(crate) fn of(wanted: plinth_promql::Wanted) -> Self {
        use plinth_promql::Wanted::{Count, Ends, FirstAndLast, Greatest, Last, Least, Sum};
        let ends = 1 << TIMES | 1 << (TIMES + 1) | 1 << FIRST | 1 << LAST | 1 << SEEN;
        let more = match wanted {
            Count => 0,
            Sum => 1 << SUMS,
            Least => 1 << LEAST,
            Greatest => 1 << GREATEST,
            Last | FirstAndLast => ends,
            Ends => ends | 1 << FALLS,
        };
        Self(Self::COUNTS.0 | more)
    }

    fn has(self, column: usize) -> bool {
        self.0 >> column & 1 == 1
    }
}

/// Buckets of a row, ascending; those of them that are looked at.
#[derive(Debug)]
pub(crate) struct Columns {
    needed: Needed,
    pub(super) begins: Vec<i64>,
    /// What each has: a point at its beginning, others behind it.
    has: Vec<i64>,
    /// The values at beginnings, of those that have one.
    pub(super) at: Column,
    /// Of what lies behind, where something does: how many points, how many of them are no numbers,
    /// and how many marks.
    pub(super) numbers: [Vec<i64>; 3],
    /// When the first was, the last, the least and the greatest, since the beginning.
    pub(super) times: [Vec<i64>; 4],
    /// Sums, falls, first, last, least and greatest values.
    pub(super) values: [Column; 6],
    /// Of those with marks: the first and the last that is none.
    pub(super) seen: Vec<(usize, Option<(Point, Point)>)>,
    pub(super) looked_at: Places,
}

/// The places of buckets: among all, among those with a point at the beginning, and among those
/// with others behind it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Places {
    pub(super) all: Range<usize>,
    pub(super) at: Range<usize>,
    pub(super) rest: Range<usize>,
}

impl Columns {
    /// The buckets of a row.
    ///
    /// # Errors
    /// [`Error::Damaged`] for bytes that [`encode`](super::encode) did not make.
    pub(crate) fn decode(bytes: &[u8], needed: Needed) -> Result<Self> {
        codec::check_checksum("a row of rollups", bytes)?;
        let mut reader = Reader::new(bytes);
        let [format, _, low, high, ..] = reader.fixed::<HEADER>()?;
        if format != FORMAT {
            let why = format!("format {FORMAT} expected, {format} found");
            return Err(Error::damaged("a row of rollups", why));
        }
        let count = usize::from(u16::from_le_bytes([low, high])) + 1;
        if count > MAX_BUCKETS {
            return Err(reader.wrong("no more buckets than a row has"));
        }
        let begins = integers(&mut reader, count)?;
        let has = integers(&mut reader, count)?;
        if !begins.is_sorted_by(|one, next| one < next) {
            return Err(reader.wrong("buckets that ascend"));
        }
        if !has.iter().all(|has| (AT..=AT | REST).contains(has)) {
            return Err(reader.wrong("buckets with points"));
        }
        let of = |what: i64| has.iter().filter(|has| *has & what != 0).count();
        let (at_count, rest_count) = (of(AT), of(REST));
        let at = values(&mut reader, at_count)?;
        let mut columns = Self {
            needed,
            begins,
            has,
            at,
            numbers: Default::default(),
            times: Default::default(),
            values: Default::default(),
            seen: Vec::new(),
            looked_at: Places { all: 0..count, at: 0..at_count, rest: 0..rest_count },
        };
        columns.read_rests(&mut reader, rest_count)?;
        Ok(columns)
    }

    /// Reads what lies behind beginnings.
    fn read_rests(&mut self, reader: &mut Reader<'_>, count: usize) -> Result<()> {
        let needed = self.needed;
        for (place, numbers) in self.numbers.iter_mut().chain(&mut self.times).enumerate() {
            match needed.has(place) {
                true => *numbers = integers(reader, count)?,
                false => pass(reader)?,
            }
        }
        for (place, found) in self.values.iter_mut().enumerate() {
            match needed.has(SUMS + place) {
                true => *found = values(reader, count)?,
                false => pass(reader)?,
            }
        }
        if !self.are_sound() {
            return Err(reader.wrong("a bucket that doesn't contradict itself"));
        }
        match needed.has(SEEN) {
            true => self.read_seen(reader)?,
            // Three columns of numbers and two of values.
            false => (0..5).try_for_each(|_| pass(reader))?,
        }
        match reader.is_empty() {
            true => Ok(()),
            false => Err(reader.wrong("the end of the row")),
        }
    }

    /// Whether what was read of each bucket agrees with the rest of it.
    fn are_sound(&self) -> bool {
        let [counts, others, marks] = &self.numbers;
        let of_numbers = counts.iter().zip(others).zip(marks);
        let are_counts = of_numbers.fold(true, |are, ((count, others), marks)| {
            are & (*count > 0) & (*others <= *count) & (*marks <= *others) & (*marks >= 0)
        });
        let are_times = || {
            let ends = self.times[0].iter().zip(&self.times[1]);
            let are = |are: bool, (begin, (first, last)): (i64, (&i64, &i64))| {
                let (first, last) = (begin.wrapping_add(*first), begin.wrapping_add(*last));
                are & (begin < first) & (first <= last)
            };
            match counts.len() == self.begins.len() {
                true => self.begins.iter().copied().zip(ends).fold(true, are),
                false => self.rest_begins().zip(ends).fold(true, are),
            }
        };
        // There is a least and a greatest number where there is any.
        let are_numbers = |column: usize| {
            let values = &self.values[column - SUMS];
            let of_numbers = counts.iter().zip(others).map(|(count, others)| others < count);
            of_numbers.zip(values.iter()).all(|(is_any, value)| is_any != value.is_nan())
        };
        are_counts
            && (!self.needed.has(TIMES) || are_times())
            && (!self.needed.has(LEAST) || are_numbers(LEAST))
            && (!self.needed.has(GREATEST) || are_numbers(GREATEST))
    }

    /// Reads what is seen beside marks.
    fn read_seen(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let marks = self.numbers[MARKS].iter().zip(self.rest_begins()).enumerate();
        let marked = marks.filter(|(_, (marks, _))| **marks > 0);
        let marked: Vec<(usize, i64)> = marked.map(|(at, (_, begin))| (at, begin)).collect();
        let is_seen = integers(reader, marked.len())?;
        let count = is_seen.iter().filter(|is_seen| **is_seen != 0).count();
        let (first, firsts) = (integers(reader, count)?, values(reader, count)?);
        let (last, lasts) = (integers(reader, count)?, values(reader, count)?);
        let mut next = 0..count;
        for ((place, begin), is_seen) in marked.into_iter().zip(is_seen) {
            let at = if is_seen != 0 { next.next() } else { None };
            let point = |after: &[i64], values: &Column, at: usize| Point {
                time: begin.wrapping_add(after[at]),
                value: values.get(at),
            };
            let seen = at.map(|at| (point(&first, &firsts, at), point(&last, &lasts, at)));
            self.seen.push((place, seen));
        }
        Ok(())
    }

    /// Where those buckets begin that have points behind that.
    fn rest_begins(&self) -> impl Iterator<Item = i64> + '_ {
        let all = self.begins.iter().zip(&self.has);
        all.filter(|(_, has)| **has & REST != 0).map(|(begin, _)| *begin)
    }

    /// Where the first of those that are looked at begins, and the last.
    pub(crate) fn ends(&self) -> Option<(i64, i64)> {
        let begins = &self.begins[self.looked_at.all.clone()];
        Some((*begins.first()?, *begins.last()?))
    }

    /// Looks at those alone that begin in a stretch of time.
    pub(crate) fn keep(&mut self, begin: i64, end: i64) {
        let first = self.begins.partition_point(|time| *time < begin);
        let behind = self.begins.partition_point(|time| *time < end).max(first);
        if self.looked_at.all == (first..behind) {
            return;
        }
        let of = |what: i64, places: Range<usize>| {
            self.has[places].iter().filter(|has| *has & what != 0).count()
        };
        let places = |what: i64| {
            let before = of(what, 0..first);
            before..before + of(what, first..behind)
        };
        self.looked_at = Places { all: first..behind, at: places(AT), rest: places(REST) };
    }

    /// Gives each bucket that is looked at: where it begins, the point there, and the place of what
    /// lies behind; the latest first if `is_backward`.
    pub(super) fn each(
        &self,
        is_backward: bool,
        mut take: impl FnMut(i64, Option<Value>, Option<usize>),
    ) {
        let Places { all, mut at, mut rest } = self.looked_at.clone();
        let mut give = |place: usize| {
            let has = self.has[place];
            let next = |places: &mut Range<usize>| match is_backward {
                true => places.next_back(),
                false => places.next(),
            };
            let value = if has & AT != 0 { next(&mut at) } else { None };
            let rest = if has & REST != 0 { next(&mut rest) } else { None };
            take(self.begins[place], value.map(|place| self.at.get(place)), rest);
        };
        match is_backward {
            true => all.rev().for_each(&mut give),
            false => all.for_each(&mut give),
        }
    }

    /// Gives what is known of the points of each bucket that is looked at, in their order or with
    /// the latest first. Only of columns with [`Needed::SUMMARIES`].
    pub(crate) fn summaries(&self, is_backward: bool, mut take: impl FnMut(&Summary)) {
        self.each(is_backward, |begin, at, rest| {
            let at = at.map(|value| Summary::from(Point { time: begin, value }));
            let rest = rest.map(|place| self.summary(begin, place));
            let both = if is_backward { [&rest, &at] } else { [&at, &rest] };
            both.into_iter().flatten().for_each(&mut take);
        });
    }

    fn summary(&self, begin: i64, place: usize) -> Summary {
        let [counts, others, _] = &self.numbers;
        let [sums, _, firsts, lasts, least, greatest] = &self.values;
        let point = |after: usize, values: &Column| Point {
            time: begin.wrapping_add(self.times[after][place]),
            value: values.get(place),
        };
        let number = |point: Point| (!point.value.is_nan()).then_some(point);
        Summary {
            count: counts[place] as u64,
            numbers: (counts[place] - others[place]) as u64,
            sum: sums.get(place).as_f64(),
            first: point(0, firsts),
            last: point(1, lasts),
            min: number(point(2, least)),
            max: number(point(3, greatest)),
        }
    }

    /// The buckets that are looked at, one by one. Only of columns with [`Needed::ALL`].
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        let mut buckets = Vec::with_capacity(self.looked_at.all.len());
        let mut seen = self.seen.iter().peekable();
        self.each(false, |begin, at, rest| {
            let rest = rest.map(|place| {
                let summary = self.summary(begin, place);
                let marks = self.numbers[MARKS][place] as u64;
                let falls = self.values[FALLS - SUMS].get(place).as_f64();
                while seen.next_if(|(of, _)| *of < place).is_some() {}
                let beside = seen.next_if(|(of, _)| *of == place);
                let whole = Some((summary.first, summary.last));
                Digest { summary, falls, marks, seen: beside.map_or(whole, |(_, seen)| *seen) }
            });
            buckets.push(Bucket { begin, at, rest });
        });
        buckets
    }
}

/// The buckets of a row.
///
/// # Errors
/// [`Error::Damaged`] for bytes that [`encode`](super::encode) did not make.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Bucket>> {
    Ok(Columns::decode(bytes, Needed::ALL)?.buckets())
}

/// The bytes of the next column.
fn column<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>> {
    let len = reader.count(usize::MAX)?;
    Ok(Reader::new(reader.take(len)?))
}

/// Passes over a column.
fn pass(reader: &mut Reader<'_>) -> Result<()> {
    column(reader).map(|_| ())
}

fn end<T>(reader: &Reader<'_>, found: T) -> Result<T> {
    if reader.is_empty() { Ok(found) } else { Err(reader.wrong("the end of the column")) }
}

fn integers(reader: &mut Reader<'_>, count: usize) -> Result<Vec<i64>> {
    let mut column = column(reader)?;
    let numbers = match count {
        0 => Vec::new(),
        count => codec::decode_integers(&mut column, count)?,
    };
    end(&column, numbers)
}

fn values(reader: &mut Reader<'_>, count: usize) -> Result<Column> {
    let mut column = column(reader)?;
    let mut values = Column::default();
    if count > 0 {
        let kind = column.byte()?;
        codec::decode_column(&mut column, kind, count, &mut values)?;
    }
    end(&column, values)
}
