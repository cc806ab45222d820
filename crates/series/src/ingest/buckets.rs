//! Buckets of native histograms, as messages of Prometheus have them.

use super::protobuf::{Fields, Payload, eights, numbers};
use crate::codec::reader::unzigzag;
use plinth_promql::Span;

/// Buckets of a histogram on one side, at most.
pub(super) const MAX_BUCKETS: usize = 4096;

/// The buckets of one side, as they come: spans, and differences of counts, or floats.
#[derive(Default)]
pub(super) struct Buckets {
    spans: Vec<Span>,
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

impl Buckets {
    pub(super) fn take_span(&mut self, message: &[u8]) -> Result<(), String> {
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

    pub(super) fn take_deltas(&mut self, payload: Payload<'_>) -> Result<(), String> {
        numbers(payload, |number| self.deltas.push(unzigzag(number)))?;
        self.check()
    }

    pub(super) fn take_counts(&mut self, payload: Payload<'_>) -> Result<(), String> {
        eights(payload, |bits| self.counts.push(f64::from_bits(bits)));
        self.check()
    }

    /// Whether there is any span, which may be one of no buckets.
    pub(super) fn has_spans(&self) -> bool {
        !self.spans.is_empty()
    }

    fn check(&self) -> Result<(), String> {
        let most = self.spans.len().max(self.deltas.len()).max(self.counts.len());
        if most > MAX_BUCKETS { Err(too_many()) } else { Ok(()) }
    }

    /// The counts, which are floats if `are_floats`.
    pub(super) fn counts(self, are_floats: bool) -> (Vec<Span>, Vec<f64>) {
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

pub(super) fn too_many() -> String {
    format!("a native histogram has more than {MAX_BUCKETS} buckets")
}

/// A signed number of 32 bits.
pub(super) fn narrow(number: u64) -> Result<i32, String> {
    i32::try_from(unzigzag(number)).map_err(|_| "a number is beyond 32 bits".to_owned())
}
