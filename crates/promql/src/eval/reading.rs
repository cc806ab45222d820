//! When a selector looks at its points, and how far back.

use super::Steps;
use crate::digest::{Wanted, Windows};

/// Points that are looked at in a series without a pause for others.
pub(super) const VISITS_AT_ONCE: u64 = 1 << 18;

/// When a selector looks, and how many nanoseconds back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Its own steps: the query's, moved, or one.
    pub(super) steps: Steps,
    pub(super) range: i64,
    /// Whether it looks at the same time at every step.
    pub(super) is_fixed: bool,
}

impl Reading {
    /// Where points begin, that of the bound not among them, and where they end.
    pub(super) fn bounds(&self) -> (i64, i64) {
        (self.steps.first.saturating_sub(self.range), self.steps.last())
    }

    /// The windows of it.
    pub(super) fn windows(&self, wanted: Wanted) -> Windows {
        let Steps { first, count, step } = self.steps;
        Windows { first, step, count, range: self.range, wanted }
    }
}
