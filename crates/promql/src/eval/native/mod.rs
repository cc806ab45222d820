//! Native histograms as values: what functions, operators and aggregations make of them.
//!
//! Each file has what one kind of expression does where its values are histograms; floats take the
//! ways that they always took. What can't be computed has no value, and who asked is told why, in
//! Prometheus' words.

pub(super) mod group;
pub(super) mod operate;
mod pool;
pub(super) mod values;
pub(super) mod window;

use crate::annotations::Annotations;
use crate::histogram::Merged;
use std::ops::Range;

/// What may be said of a series while its values are computed.
pub(super) struct Tell<'a> {
    pub(super) told: &'a mut Annotations,
    /// Where the series stands in the text.
    pub(super) span: &'a Range<usize>,
    pub(super) metric: &'a str,
}

impl Tell<'_> {
    fn warn(&mut self, why: String) {
        self.told.warn(why, self.span);
    }

    fn inform(&mut self, why: String) {
        self.told.inform(why, self.span);
    }

    /// Floats and histograms in one window.
    fn of_floats_among(&mut self) {
        let metric = self.metric;
        self.warn(format!("encountered a mix of histograms and floats for metric name {metric:?}"));
    }

    /// Exponential and custom buckets that were to become one histogram.
    fn of_mixed_schemas(&mut self) {
        let metric = self.metric;
        self.warn(format!(
            "vector contains a mix of histograms with exponential and custom buckets schemas for metric name {metric:?}"
        ));
    }

    fn of_no_counter(&mut self) {
        self.warn(format!("this native histogram metric is not a counter: {:?}", self.metric));
    }

    fn of_no_gauge(&mut self) {
        self.warn(format!("this native histogram metric is not a gauge: {:?}", self.metric));
    }

    fn of_ignored(&mut self) {
        let metric = self.metric;
        self.inform(format!(
            "ignored histograms in a range containing both floats and histograms for metric name {metric:?}"
        ));
    }

    /// How histograms became one.
    fn of_merge(&mut self, merged: Merged, doing: &str) {
        if merged.hints_collide {
            self.warn(format!("conflicting counter resets during histogram {doing}"));
        }
        if merged.bounds_differ {
            self.inform(format!("mismatched custom buckets were reconciled during {doing}"));
        }
    }
}
