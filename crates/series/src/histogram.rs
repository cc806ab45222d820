//! Native histograms as bytes: what a record of one holds.
//!
//! ```text
//!   | flags | schema | sum | zero threshold, or the bounds | count, zero count | spans and counts above 0 | and below |
//! ```
//!
//! Counts that are integers, as nearly all are, are written as the difference to the one before, so
//! a bucket takes a byte or two. Each histogram stands for itself: one that comes late, or goes, is
//! no other's affair.

use crate::codec::reader::{Reader, write_number, write_signed};
use crate::error::{Error, Result};
use crate::record::MAX_RECORD_BYTES;
use plinth_promql::{CUSTOM, Histogram, Parts, ResetHint, Span};

/// Flags: in the lowest two bits what is known of a counter that began again.
const HINTS: u8 = 3;
const INTEGERS: u8 = 4;
/// A number that is as good as an integer: each one up to it is a float.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

/// The bytes of a histogram.
///
/// # Errors
/// If it has more buckets than are kept.
pub(crate) fn encode(histogram: &Histogram) -> Result<Vec<u8>, String> {
    let parts = histogram.parts();
    let all = [parts.count, parts.zero_count];
    let mut all = all.iter().chain(&parts.positive).chain(&parts.negative);
    let are_integers = all.all(|count| count.fract() == 0.0 && count.abs() <= MOST_EXACT);
    let hint = match parts.hint {
        ResetHint::Unknown => 0,
        ResetHint::Reset => 1,
        ResetHint::NotReset => 2,
        ResetHint::Gauge => 3,
    };
    let mut out = vec![hint | if are_integers { INTEGERS } else { 0 }];
    write_signed(i64::from(parts.schema), &mut out);
    out.extend_from_slice(&parts.sum.to_le_bytes());
    if parts.schema == CUSTOM {
        write_number(parts.bounds.len() as u64, &mut out);
        parts.bounds.iter().for_each(|bound| out.extend_from_slice(&bound.to_le_bytes()));
    } else {
        out.extend_from_slice(&parts.zero_threshold.to_le_bytes());
    }
    put_counts(&[parts.count, parts.zero_count], are_integers, &mut out);
    for (spans, counts) in
        [(&parts.positive_spans, &parts.positive), (&parts.negative_spans, &parts.negative)]
    {
        write_number(spans.len() as u64, &mut out);
        for span in spans {
            write_signed(i64::from(span.offset), &mut out);
            write_number(u64::from(span.length), &mut out);
        }
        put_counts(counts, are_integers, &mut out);
    }
    match out.len() <= MAX_RECORD_BYTES {
        true => Ok(out),
        false => Err(format!(
            "{} buckets of a native histogram, which don't fit into {MAX_RECORD_BYTES} bytes",
            parts.positive.len() + parts.negative.len()
        )),
    }
}

fn put_counts(counts: &[f64], are_integers: bool, out: &mut Vec<u8>) {
    let mut before = 0;
    for count in counts {
        if are_integers {
            let count = *count as i64;
            write_signed(count - before, out);
            before = count;
        } else {
            out.extend_from_slice(&count.to_le_bytes());
        }
    }
}

/// The histogram of some bytes.
///
/// # Errors
/// [`Error::Damaged`] for bytes that [`encode`] did not make.
pub(crate) fn decode(bytes: &[u8]) -> Result<Histogram> {
    let mut reader = Reader::new(bytes);
    let flags = reader.byte()?;
    if flags & !(HINTS | INTEGERS) != 0 {
        return Err(reader.wrong("the flags of a histogram"));
    }
    let are_integers = flags & INTEGERS != 0;
    let hint = match flags & HINTS {
        0 => ResetHint::Unknown,
        1 => ResetHint::Reset,
        2 => ResetHint::NotReset,
        _ => ResetHint::Gauge,
    };
    let schema =
        i32::try_from(reader.signed()?).map_err(|_| reader.wrong("the schema of a histogram"))?;
    let mut parts = Parts { hint, schema, sum: float(&mut reader)?, ..Parts::default() };
    if schema == CUSTOM {
        for _ in 0..reader.count(bytes.len() / size_of::<f64>())? {
            parts.bounds.push(float(&mut reader)?);
        }
    } else {
        parts.zero_threshold = float(&mut reader)?;
    }
    if let [count, zero_count] = counts(&mut reader, 2, are_integers)?[..] {
        (parts.count, parts.zero_count) = (count, zero_count);
    }
    (parts.positive_spans, parts.positive) = side(&mut reader, bytes.len(), are_integers)?;
    (parts.negative_spans, parts.negative) = side(&mut reader, bytes.len(), are_integers)?;
    if !reader.is_empty() {
        return Err(reader.wrong("the end of a histogram"));
    }
    Histogram::new(parts).map_err(|why| Error::damaged("a histogram", why))
}

fn float(reader: &mut Reader<'_>) -> Result<f64> {
    Ok(f64::from_le_bytes(reader.fixed::<8>()?))
}

/// Spans and counts of one side; no more of them than there are bytes.
fn side(reader: &mut Reader<'_>, most: usize, are_integers: bool) -> Result<(Vec<Span>, Vec<f64>)> {
    let (mut spans, mut length) = (Vec::new(), 0);
    for _ in 0..reader.count(most)? {
        let offset =
            i32::try_from(reader.signed()?).map_err(|_| reader.wrong("the offset of a span"))?;
        let count = reader.count(most)?;
        length += count;
        spans.push(Span { offset, length: count as u32 });
    }
    if length > most {
        return Err(reader.wrong("counts of all buckets"));
    }
    Ok((spans, counts(reader, length, are_integers)?))
}

fn counts(reader: &mut Reader<'_>, count: usize, are_integers: bool) -> Result<Vec<f64>> {
    let (mut all, mut before) = (Vec::with_capacity(count), 0_i64);
    for _ in 0..count {
        if are_integers {
            before = before.wrapping_add(reader.signed()?);
            all.push(before as f64);
        } else {
            all.push(float(reader)?);
        }
    }
    Ok(all)
}
