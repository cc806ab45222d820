//! When what is counted began, as a sender says it of a sample or of a histogram.

use crate::histogram;
use plinth_promql::{Histogram, Parts, ResetHint};
use plinth_types::Bytes;

/// When what samples of a series count began.
#[derive(Debug)]
pub(super) struct Start {
    /// Whose it is, as of a sample.
    pub(super) target: u32,
    pub(super) time: i64,
    /// What a histogram was then, encoded; `None` for a number, which was 0.
    pub(super) histogram: Option<Bytes>,
}

impl Start {
    /// The start of a number.
    pub(super) fn of_number(time: i64) -> Self {
        Self { target: u32::MAX, time, histogram: None }
    }

    /// The start of a histogram: the same buckets, nothing in them.
    ///
    /// # Errors
    /// If it is too large.
    pub(super) fn of_histogram(time: i64, histogram: &Histogram) -> Result<Self, String> {
        let Parts { schema, zero_threshold, bounds, .. } = histogram.parts();
        let hint = ResetHint::Reset;
        let parts = Parts { hint, schema, zero_threshold, bounds, ..Parts::default() };
        let bytes = histogram::encode(&Histogram::new(parts)?)?.into();
        Ok(Self { target: u32::MAX, time, histogram: Some(bytes) })
    }
}

/// Whether a start says anything of a sample, the one before which in its message is of `before`.
pub(super) fn is_before(start: i64, time: i64, before: Option<i64>) -> bool {
    start > 0 && start < time && before.is_none_or(|before| before < start)
}
