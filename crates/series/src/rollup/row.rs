//! Buckets as bytes: a row of some hundred of them, column by column, by the codecs of leaves.
//!
//! Each column stands behind its length, so that whoever needs a few of them passes over the
//! others. A bucket of a gauge with two decimals takes about 15 bytes.

use super::digest::{Bucket, Digest};
use crate::codec::{
    self,
    reader::{Reader, write_number},
};
use crate::error::{Error, Result};
use crate::tree::Summary;
use crate::value::{Column, Point, Value};

const FORMAT: u8 = 1;
const HEADER: usize = 8;

/// Buckets of a row, at most.
pub(crate) const MAX_BUCKETS: usize = 1024;

/// What a bucket has: a point at its beginning, others behind it.
const AT: i64 = 1;
const REST: i64 = 2;

/// Some buckets as a row: between 1 and [`MAX_BUCKETS`] of them, ascending.
pub(crate) fn encode(buckets: &[Bucket]) -> Vec<u8> {
    assert!((1..=MAX_BUCKETS).contains(&buckets.len()), "a row has buckets");
    let mut out = vec![FORMAT, 0];
    out.extend_from_slice(&((buckets.len() - 1) as u16).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    put_integers(buckets.iter().map(|bucket| bucket.begin), &mut out);
    let has = |bucket: &Bucket| match (bucket.at, bucket.rest) {
        (Some(_), None) => AT,
        (None, Some(_)) => REST,
        _ => AT | REST,
    };
    put_integers(buckets.iter().map(has), &mut out);
    put_values(buckets.iter().filter_map(|bucket| bucket.at), &mut out);
    let rests: Vec<(i64, Digest)> =
        buckets.iter().filter_map(|bucket| Some((bucket.begin, bucket.rest?))).collect();
    put_rests(&rests, &mut out);
    codec::put_checksum(&mut out);
    out
}

/// What is behind the beginning of a bucket, and a column of it.
type Rest = (i64, Digest);
type Of<'a, T> = &'a dyn Fn(&Rest) -> T;

fn put_rests(rests: &[Rest], out: &mut Vec<u8>) {
    let after = |begin: &i64, point: Point| point.time.wrapping_sub(*begin);
    let least = |summary: &Summary| summary.min.unwrap_or(summary.first);
    let greatest = |summary: &Summary| summary.max.unwrap_or(summary.first);
    let integers: [Of<'_, i64>; 7] = [
        &|(_, rest)| rest.summary.count as i64,
        &|(_, rest)| (rest.summary.count - rest.summary.numbers) as i64,
        &|(_, rest)| rest.marks as i64,
        &|(begin, rest)| after(begin, rest.summary.first),
        &|(begin, rest)| after(begin, rest.summary.last),
        &|(begin, rest)| after(begin, least(&rest.summary)),
        &|(begin, rest)| after(begin, greatest(&rest.summary)),
    ];
    for column in integers {
        put_integers(rests.iter().map(column), out);
    }
    let or_nan = |point: Option<Point>| point.map_or(Value::Float(f64::NAN), |point| point.value);
    let values: [Of<'_, Value>; 6] = [
        &|(_, rest)| Value::Float(rest.summary.sum),
        &|(_, rest)| Value::Float(rest.falls),
        &|(_, rest)| rest.summary.first.value,
        &|(_, rest)| rest.summary.last.value,
        &|(_, rest)| or_nan(rest.summary.min),
        &|(_, rest)| or_nan(rest.summary.max),
    ];
    for column in values {
        put_values(rests.iter().map(column), out);
    }
    // What is seen beside marks, where there are any.
    let marked = || rests.iter().filter(|(_, rest)| rest.marks > 0);
    put_integers(marked().map(|(_, rest)| i64::from(rest.seen.is_some())), out);
    let seen: Vec<(i64, (Point, Point))> =
        marked().filter_map(|(begin, rest)| Some((*begin, rest.seen?))).collect();
    for which in [|seen: &(Point, Point)| seen.0, |seen: &(Point, Point)| seen.1] {
        put_integers(seen.iter().map(|(begin, seen)| after(begin, which(seen))), out);
        put_values(seen.iter().map(|(_, seen)| which(seen).value), out);
    }
}

/// Puts a column behind its length; nothing is behind it where there are no numbers.
fn put_integers(numbers: impl Iterator<Item = i64>, out: &mut Vec<u8>) {
    let numbers: Vec<i64> = numbers.collect();
    let mut bytes = Vec::new();
    if !numbers.is_empty() {
        codec::encode_integers(&numbers, &mut bytes);
    }
    write_number(bytes.len() as u64, out);
    out.extend_from_slice(&bytes);
}

fn put_values(values: impl Iterator<Item = Value>, out: &mut Vec<u8>) {
    let column: Column = values.collect();
    let mut bytes = Vec::new();
    if !column.is_empty() {
        bytes.push(codec::kind(&column));
        codec::encode_column(&column, &mut bytes);
    }
    write_number(bytes.len() as u64, out);
    out.extend_from_slice(&bytes);
}

/// The buckets of a row.
///
/// # Errors
/// [`Error::Damaged`] for bytes that [`encode`] did not make.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Bucket>> {
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
    let at = values(&mut reader, of(AT))?;
    let begin_of_rests: Vec<i64> =
        begins.iter().zip(&has).filter(|(_, has)| *has & REST != 0).map(|(at, _)| *at).collect();
    let rests = rests(&mut reader, &begin_of_rests)?;
    if !reader.is_empty() {
        return Err(reader.wrong("the end of the row"));
    }
    let (mut at, mut rests) = (at.iter(), rests.into_iter());
    let bucket = |(begin, has): (i64, i64)| Bucket {
        begin,
        at: if has & AT != 0 { at.next() } else { None },
        rest: if has & REST != 0 { rests.next() } else { None },
    };
    Ok(begins.into_iter().zip(has).map(bucket).collect())
}

/// The bytes of the next column.
fn column<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>> {
    let len = reader.count(usize::MAX)?;
    Ok(Reader::new(reader.take(len)?))
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

/// What lies behind the beginnings of some buckets.
fn rests(reader: &mut Reader<'_>, begins: &[i64]) -> Result<Vec<Digest>> {
    let count = begins.len();
    let mut integers = || integers(reader, count);
    let (counts, others, marks) = (integers()?, integers()?, integers()?);
    let (first, last, min, max) = (integers()?, integers()?, integers()?, integers()?);
    let mut values = || values(reader, count);
    let (sums, falls) = (values()?, values()?);
    let (firsts, lasts, mins, maxs) = (values()?, values()?, values()?, values()?);
    let mut rests = Vec::with_capacity(count);
    for (place, begin) in begins.iter().enumerate() {
        let point = |after: &[i64], values: &Column| Point {
            time: begin.wrapping_add(after[place]),
            value: values.get(place),
        };
        let number = |point: Point| (!point.value.is_nan()).then_some(point);
        let (first, last) = (point(&first, &firsts), point(&last, &lasts));
        let summary = Summary {
            count: counts[place] as u64,
            numbers: (counts[place] as u64).wrapping_sub(others[place] as u64),
            sum: sums.get(place).as_f64(),
            first,
            last,
            min: number(point(&min, &mins)),
            max: number(point(&max, &maxs)),
        };
        let marks = marks[place] as u64;
        let is_sound = (1..=i64::MAX as u64).contains(&summary.count)
            && summary.numbers <= summary.count
            && marks <= summary.count - summary.numbers
            && *begin < first.time
            && first.time <= last.time
            && (summary.numbers > 0) == (summary.min.is_some() && summary.max.is_some());
        if !is_sound {
            return Err(reader.wrong("a bucket that doesn't contradict itself"));
        }
        let falls = falls.get(place).as_f64();
        rests.push(Digest { summary, falls, marks, seen: Some((first, last)) });
    }
    put_seen(reader, begins, &mut rests)?;
    Ok(rests)
}

/// Reads what is seen beside marks.
fn put_seen(reader: &mut Reader<'_>, begins: &[i64], rests: &mut [Digest]) -> Result<()> {
    let marked: Vec<usize> =
        rests.iter().enumerate().filter(|(_, rest)| rest.marks > 0).map(|(at, _)| at).collect();
    let is_seen = integers(reader, marked.len())?;
    let count = is_seen.iter().filter(|is_seen| **is_seen != 0).count();
    let (first, firsts) = (integers(reader, count)?, values(reader, count)?);
    let (last, lasts) = (integers(reader, count)?, values(reader, count)?);
    let mut next = 0..count;
    for (place, is_seen) in marked.into_iter().zip(is_seen) {
        let at = if is_seen != 0 { next.next() } else { None };
        let point = |after: &[i64], values: &Column, at: usize| Point {
            time: begins[place].wrapping_add(after[at]),
            value: values.get(at),
        };
        rests[place].seen = at.map(|at| (point(&first, &firsts, at), point(&last, &lasts, at)));
    }
    Ok(())
}
