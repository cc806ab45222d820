//! Buckets as bytes: a row of some hundred of them, column by column, by the codecs of leaves;
//! how they are read is in `columns.rs`.
//!
//! Each column stands behind its length, so that whoever needs a few of them passes over the
//! others. A bucket of a gauge with two decimals takes about 15 bytes.

use super::digest::{Bucket, Digest};
use crate::codec::{self, reader::write_number};
use crate::tree::Summary;
use crate::value::{Column, Point, Value};

pub(super) const FORMAT: u8 = 1;
pub(super) const HEADER: usize = 8;

/// Buckets of a row, at most.
pub(crate) const MAX_BUCKETS: usize = 1024;

/// What a bucket has: a point at its beginning, others behind it.
pub(super) const AT: i64 = 1;
pub(super) const REST: i64 = 2;

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
