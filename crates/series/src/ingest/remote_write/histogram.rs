//! Native histograms in a message, which are the same in both versions.
//!
//! ```text
//!   1, 2: count, an integer or a float   3: sum            4: schema          5: zero threshold    6, 7: zero count
//!   8: spans below 0    9: deltas, or 10: counts           11: spans above 0  12: deltas, or 13: counts
//!   14: what is known of a reset         15: time          16: bounds of custom buckets
//!   17: when it began
//! ```

use super::super::buckets::{Buckets, MAX_BUCKETS, narrow, too_many};
use super::super::protobuf::{Fields, Payload, eights};
use plinth_promql::{Histogram, Parts, ResetHint, STALE};

/// What a message has at a time.
pub(super) struct Read {
    /// Milliseconds since 1970.
    pub(super) time: i64,
    /// When what it counts began, as far as that was said.
    pub(super) start: i64,
    /// `None` where the series has ended.
    pub(super) histogram: Option<Histogram>,
}

/// Reads a histogram.
///
/// # Errors
/// Why it is none.
pub(super) fn read(message: &[u8]) -> Result<Read, String> {
    let (mut parts, mut are_floats) = (Parts::default(), false);
    let (mut time, mut start) = (0, 0);
    let (mut above, mut below) = (Buckets::default(), Buckets::default());
    for field in Fields::of(message) {
        match field? {
            (1, Payload::Number(count)) => (parts.count, are_floats) = (count as f64, false),
            (2, Payload::Eight(bits)) => (parts.count, are_floats) = (f64::from_bits(bits), true),
            (3, Payload::Eight(bits)) => parts.sum = f64::from_bits(bits),
            (4, Payload::Number(number)) => parts.schema = narrow(number)?,
            (5, Payload::Eight(bits)) => parts.zero_threshold = f64::from_bits(bits),
            (6, Payload::Number(count)) => parts.zero_count = count as f64,
            (7, Payload::Eight(bits)) => parts.zero_count = f64::from_bits(bits),
            (8, Payload::Bytes(span)) => below.take_span(span)?,
            (9, payload) => below.take_deltas(payload)?,
            (10, payload) => below.take_counts(payload)?,
            (11, Payload::Bytes(span)) => above.take_span(span)?,
            (12, payload) => above.take_deltas(payload)?,
            (13, payload) => above.take_counts(payload)?,
            (14, Payload::Number(hint)) => parts.hint = hint_of(hint),
            (15, Payload::Number(number)) => time = number as i64,
            (17, Payload::Number(number)) => start = number as i64,
            (16, payload) => eights(payload, |bits| parts.bounds.push(f64::from_bits(bits))),
            _ => {}
        }
        if parts.bounds.len() > MAX_BUCKETS {
            return Err(too_many());
        }
    }
    if parts.sum.to_bits() == STALE {
        return Ok(Read { time, start, histogram: None });
    }
    (parts.positive_spans, parts.positive) = above.counts(are_floats);
    (parts.negative_spans, parts.negative) = below.counts(are_floats);
    Ok(Read { time, start, histogram: Some(Histogram::new(parts)?) })
}

fn hint_of(number: u64) -> ResetHint {
    match number {
        1 => ResetHint::Reset,
        2 => ResetHint::NotReset,
        3 => ResetHint::Gauge,
        _ => ResetHint::Unknown,
    }
}
