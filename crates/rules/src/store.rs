//! What rules are evaluated over: a narrow trait, which answers questions and takes points.

use plinth_promql::{Answered, HistogramSample, Labels, Matcher, Sample};
use std::time::Duration;

/// A point for the series with these labels, the metric among them.
pub type Written = (Labels, Sample);

/// A native histogram for the series with these labels.
pub type WrittenHistogram = (Labels, HistogramSample);

/// Series, to be asked and to be written to. Times are nanoseconds since 1970. What goes wrong is
/// told as a text, which is shown to people as the rule's last error.
pub trait Store: Sync {
    /// The value of an expression at one time, which may take so long.
    fn instant(
        &self,
        expr: &str,
        time: i64,
        within: Duration,
    ) -> impl Future<Output = Result<Answered, String>> + Send;

    /// The newest point of each series that meets all conditions and has one later than the first
    /// time, up to and with the second; also where that is the mark of its end.
    fn newest(
        &self,
        matchers: &[Matcher],
        after: i64,
        until: i64,
    ) -> impl Future<Output = Result<Vec<Written>, String>> + Send;

    /// Writes points; who asks from then on sees them. Gives the places of those whose series
    /// can't be, each with the reason: they keep none of the others back. Behind an error any of
    /// them may have been written.
    fn write(
        &self,
        points: &[Written],
    ) -> impl Future<Output = Result<Vec<(usize, String)>, String>> + Send;

    /// Writes native histograms, in the same way.
    fn write_histograms(
        &self,
        histograms: &[WrittenHistogram],
    ) -> impl Future<Output = Result<Vec<(usize, String)>, String>> + Send;
}
