//! Native histograms as remote read gives them: in a message of samples, and as chunks.
//!
//! ```text
//!   message   2: count  3: sum  4: schema  5: zero threshold  7: zero count  8: spans below 0  10: their counts
//!             11: spans above 0  13: their counts  14: reset  15: time  16: bounds
//!
//!   chunk     count (2 bytes)  reset (2 bits, then 6)  zero threshold  schema  spans above 0  spans below 0  [bounds]
//!             time  count  zero count  sum  counts above 0  counts below 0
//! ```
//!
//! A chunk has one histogram, whose counts are floats: those that follow would be written as what
//! they differ by, as long as their buckets are the same.

use super::chunk::Bits;
use super::put_field;
use crate::codec::reader::zigzag;
use crate::protobuf::put_bytes;
use plinth_promql::{CUSTOM, Histogram, Parts, ResetHint, Span};

/// How many bits a number of variable length may have: what says so is one more bit for each.
const WIDTHS: [u32; 7] = [3, 6, 9, 12, 18, 25, 56];

fn hint_of(parts: &Parts) -> i64 {
    match parts.hint {
        ResetHint::Unknown => 0,
        ResetHint::Reset => 1,
        ResetHint::NotReset => 2,
        ResetHint::Gauge => 3,
    }
}

fn put_float(field: u8, value: f64, out: &mut Vec<u8>) {
    out.push(field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_floats(field: u32, values: &[f64], out: &mut Vec<u8>) {
    if !values.is_empty() {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        put_bytes(field, &bytes, out);
    }
}

/// Appends a histogram of a time in milliseconds to the message of its series.
pub(super) fn put_histogram(time: i64, histogram: &Histogram, series: &mut Vec<u8>) {
    let parts = histogram.parts();
    let mut out = Vec::new();
    put_float(2, parts.count, &mut out);
    put_float(3, parts.sum, &mut out);
    put_field(4, zigzag(i64::from(parts.schema)) as i64, &mut out);
    put_float(5, parts.zero_threshold, &mut out);
    put_float(7, parts.zero_count, &mut out);
    for (field, spans, counts) in
        [(8, &parts.negative_spans, &parts.negative), (11, &parts.positive_spans, &parts.positive)]
    {
        for span in spans {
            let mut message = Vec::new();
            put_field(1, zigzag(i64::from(span.offset)) as i64, &mut message);
            put_field(2, i64::from(span.length), &mut message);
            put_bytes(field, &message, &mut out);
        }
        put_floats(field + 2, counts, &mut out);
    }
    put_field(14, hint_of(&parts), &mut out);
    put_field(15, time, &mut out);
    put_floats(16, &parts.bounds, &mut out);
    put_bytes(4, &out, series);
}

/// A chunk with one histogram, of a time in milliseconds.
pub(super) fn chunk(time: i64, histogram: &Histogram) -> Vec<u8> {
    let parts = histogram.parts();
    let mut bits = Bits::default();
    bits.put(1, 16);
    let reset = match parts.hint {
        ResetHint::Unknown => 0b00,
        ResetHint::NotReset => 0b01,
        ResetHint::Reset => 0b10,
        ResetHint::Gauge => 0b11,
    };
    bits.put(reset, 2);
    bits.put(0, 6);
    put_threshold(parts.zero_threshold, &mut bits);
    put_signed(i64::from(parts.schema), &mut bits);
    put_spans(&parts.positive_spans, &mut bits);
    put_spans(&parts.negative_spans, &mut bits);
    if parts.schema == CUSTOM {
        put_unsigned(parts.bounds.len() as u64, &mut bits);
        parts.bounds.iter().for_each(|bound| put_bound(*bound, &mut bits));
    }
    put_signed(time, &mut bits);
    let numbers = [parts.count, parts.zero_count, parts.sum].into_iter();
    for number in numbers.chain(parts.positive).chain(parts.negative) {
        bits.put(number.to_bits(), 64);
    }
    bits.bytes
}

/// A power of two that is not too far from 1 is a byte.
fn put_threshold(threshold: f64, bits: &mut Bits) {
    const MANTISSA: u64 = (1 << 52) - 1;
    // Of a half, as the exponent is counted.
    let exponent = (threshold.to_bits() >> 52) as i64 - 1022;
    if threshold == 0.0 {
        bits.put(0, 8);
    } else if threshold.to_bits() & MANTISSA == 0 && (-242..=11).contains(&exponent) {
        bits.put((exponent + 243) as u64, 8);
    } else {
        bits.put(255, 8);
        bits.put(threshold.to_bits(), 64);
    }
}

fn put_spans(spans: &[Span], bits: &mut Bits) {
    put_unsigned(spans.len() as u64, bits);
    for span in spans {
        put_unsigned(u64::from(span.length), bits);
        put_signed(i64::from(span.offset), bits);
    }
}

/// Thousandths that aren't many are a number of variable length.
fn put_bound(bound: f64, bits: &mut Bits) {
    const MOST: f64 = 33_554_430.0;
    let thousandths = (bound * 1000.0).round();
    if (0.0..=MOST).contains(&(bound * 1000.0)) && thousandths / 1000.0 == bound {
        put_unsigned(thousandths as u64 + 1, bits);
    } else {
        bits.put(0, 1);
        bits.put(bound.to_bits(), 64);
    }
}

fn put_signed(number: i64, bits: &mut Bits) {
    let fits = |width: u32| {
        let half = 1_i64 << (width - 1);
        (1 - half..=half).contains(&number)
    };
    put_as(number as u64, number == 0, fits, bits);
}

fn put_unsigned(number: u64, bits: &mut Bits) {
    put_as(number, number == 0, |width| number < 1 << width, bits);
}

/// The lowest bits of a number, as few as fit.
fn put_as(number: u64, is_zero: bool, fits: impl Fn(u32) -> bool, bits: &mut Bits) {
    if is_zero {
        return bits.put(0, 1);
    }
    match WIDTHS.iter().position(|width| fits(*width)) {
        Some(place) => {
            // So many ones, and a zero.
            let ones = place as u32 + 1;
            bits.put((1 << (ones + 1)) - 2, ones + 1);
            bits.put(number, WIDTHS[place]);
        }
        None => {
            bits.put(0xff, 8);
            bits.put(number, 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks as Prometheus' own package writes them.
    #[test]
    fn chunks_are_prometheus_to_the_byte() {
        let span = |offset, length| Span { offset, length };
        let fine = Parts {
            schema: 3,
            zero_threshold: 0.5,
            zero_count: 2.0,
            count: 17.5,
            sum: -3.25,
            positive_spans: vec![span(-3, 2), span(40, 1)],
            positive: vec![1.0, 2.5, 4.0],
            negative_spans: vec![span(300, 1)],
            negative: vec![8.0],
            ..Parts::default()
        };
        let empty = Parts {
            hint: ResetHint::Gauge,
            schema: -4,
            zero_threshold: 1e-128,
            ..Parts::default()
        };
        let custom = Parts {
            schema: CUSTOM,
            count: 5.5,
            sum: 7.0,
            positive_spans: vec![span(0, 1), span(1, 1)],
            positive: vec![1.5, 4.0],
            bounds: vec![-1.0, 0.25, 1e9],
            ..Parts::default()
        };
        let told = [
            (
                1_767_225_600_123,
                fine,
                "000100f39ca558f0a231f0967f0000cdbb6d543da018c00000000000200000000000000060050000000000001ff800000000000020020000000000002008000000000000201000000000000000",
            ),
            (
                5,
                empty,
                "0001c0ff255bba08cf8c979dde1850000000000000000000000000000000000000000000000000",
            ),
            (
                -1,
                custom,
                "00010000ee5ca28c535ff800000000000073ec839b9aca00000001740160000000000000000000000000000401c0000000000003ff800000000000040100000000000000",
            ),
        ];
        for (time, parts, expected) in told {
            let bytes = chunk(time, &Histogram::new(parts).unwrap());
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digits, expected);
        }
    }
}
