//! Whether a counter began again between two histograms.

use super::{Histogram, ResetHint, Total};

impl Histogram {
    /// Whether a counter that had come to `before` began again before it came to this. A bucket
    /// that counts less says so, and also buckets that divide more finely: a sender that goes on
    /// makes them only coarser.
    pub(crate) fn is_reset_after(&self, before: &Self) -> bool {
        match self.hint {
            ResetHint::Reset => return true,
            ResetHint::NotReset => return false,
            ResetHint::Unknown | ResetHint::Gauge => {}
        }
        if self.count < before.count {
            return true;
        }
        let (mut now, mut then) = (Total::new(self), Total::new(before));
        if self.is_custom() {
            if !before.is_custom() {
                return true;
            }
            then.align_bounds(&mut now);
            return then.has_more_than(&now);
        }
        if self.schema > before.schema || self.zero_threshold < before.zero_threshold {
            return true;
        }
        then.widen(self.zero_threshold);
        if then.zero_threshold() != self.zero_threshold {
            return true;
        }
        then.coarsen(self.schema);
        then.has_more_than(&now)
    }
}
