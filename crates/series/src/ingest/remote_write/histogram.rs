//! Native histograms in a message, which are the same in both versions.
//!
//! ```text
//!   1, 2: count, an integer or a float   3: sum            4: schema          5: zero threshold    6, 7: zero count
//!   8: spans below 0    9: deltas, or 10: counts           11: spans above 0  12: deltas, or 13: counts
//!   14: what is known of a reset         15: time          16: bounds of custom buckets
//! ```

use super::super::protobuf::{Fields, Payload, eights, numbers};
use crate::codec::reader::unzigzag;
use plinth_promql::{Histogram, Parts, ResetHint, STALE, Span};

/// Buckets of a histogram, at most, and as many bounds.
pub(super) const MAX_BUCKETS: usize = 4096;

/// What a message has at a time.
pub(super) struct Read {
    /// Milliseconds since 1970.
    pub(super) time: i64,
    /// `None` where the series has ended.
    pub(super) histogram: Option<Histogram>,
}

/// The counts of one side, as they come: their spans, and differences or floats.
#[derive(Default)]
struct Side {
    spans: Vec<Span>,
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

impl Side {
    fn take_span(&mut self, message: &[u8]) -> Result<(), String> {
        let mut span = Span { offset: 0, length: 0 };
        for field in Fields::of(message) {
            match field? {
                (1, Payload::Number(number)) => span.offset = narrow(number)?,
                (2, Payload::Number(number)) => {
                    span.length = u32::try_from(number).map_err(|_| too_many())?;
                }
                _ => {}
            }
        }
        self.spans.push(span);
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        let most = self.spans.len().max(self.deltas.len()).max(self.counts.len());
        if most > MAX_BUCKETS { Err(too_many()) } else { Ok(()) }
    }

    /// The counts, which are floats if `are_floats`.
    fn counts(self, are_floats: bool) -> (Vec<Span>, Vec<f64>) {
        if are_floats {
            return (self.spans, self.counts);
        }
        let mut count = 0_i64;
        let counts = self.deltas.iter().map(|delta| {
            count = count.wrapping_add(*delta);
            count as f64
        });
        (self.spans, counts.collect())
    }
}

fn too_many() -> String {
    format!("a native histogram has more than {MAX_BUCKETS} buckets")
}

/// A signed number of 32 bits.
fn narrow(number: u64) -> Result<i32, String> {
    i32::try_from(unzigzag(number)).map_err(|_| "a number is beyond 32 bits".to_owned())
}

/// Reads a histogram.
///
/// # Errors
/// Why it is none.
pub(super) fn read(message: &[u8]) -> Result<Read, String> {
    let (mut parts, mut time, mut are_floats) = (Parts::default(), 0, false);
    let (mut above, mut below) = (Side::default(), Side::default());
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
            (9, payload) => numbers(payload, |number| below.deltas.push(unzigzag(number)))?,
            (10, payload) => eights(payload, |bits| below.counts.push(f64::from_bits(bits))),
            (11, Payload::Bytes(span)) => above.take_span(span)?,
            (12, payload) => numbers(payload, |number| above.deltas.push(unzigzag(number)))?,
            (13, payload) => eights(payload, |bits| above.counts.push(f64::from_bits(bits))),
            (14, Payload::Number(hint)) => parts.hint = hint_of(hint),
            (15, Payload::Number(number)) => time = number as i64,
            (16, payload) => eights(payload, |bits| parts.bounds.push(f64::from_bits(bits))),
            _ => {}
        }
        above.check()?;
        below.check()?;
        if parts.bounds.len() > MAX_BUCKETS {
            return Err(too_many());
        }
    }
    if parts.sum.to_bits() == STALE {
        return Ok(Read { time, histogram: None });
    }
    (parts.positive_spans, parts.positive) = above.counts(are_floats);
    (parts.negative_spans, parts.negative) = below.counts(are_floats);
    Ok(Read { time, histogram: Some(Histogram::new(parts)?) })
}

fn hint_of(number: u64) -> ResetHint {
    match number {
        1 => ResetHint::Reset,
        2 => ResetHint::NotReset,
        3 => ResetHint::Gauge,
        _ => ResetHint::Unknown,
    }
}
