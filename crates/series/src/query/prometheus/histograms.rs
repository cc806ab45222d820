//! The native histograms of a series among its numbers, in the order of time, as the evaluator
//! reads them.

use crate::error::Result;
use crate::store::{HistogramStream, Series};
use crate::tree::Span;
use plinth_promql::{HISTOGRAM, HistogramSample, Sample};
use std::collections::VecDeque;
use std::sync::Arc;

/// Those of one series that were read, and the rest.
pub(super) struct Histograms {
    rest: Option<HistogramStream>,
    /// Behind the points that were given.
    ahead: VecDeque<HistogramSample>,
    /// Among the points that were given last.
    joined: Vec<HistogramSample>,
}

impl Histograms {
    /// Those of a span; `None` if there are none.
    pub(super) async fn begin(series: &Series, span: Span, may_have: bool) -> Result<Option<Self>> {
        if !may_have {
            return Ok(None);
        }
        let rest = Some(series.histograms_in(span));
        let mut histograms = Self { rest, ahead: VecDeque::new(), joined: Vec::new() };
        while histograms.ahead.is_empty() && histograms.rest.is_some() {
            histograms.load().await?;
        }
        Ok((!histograms.ahead.is_empty()).then_some(histograms))
    }

    async fn load(&mut self) -> Result<()> {
        let Some(rest) = &mut self.rest else { return Ok(()) };
        match rest.next().await? {
            Some(found) => {
                self.ahead.extend(found.into_iter().map(|(time, one)| (time, Arc::new(one))));
            }
            None => self.rest = None,
        }
        Ok(())
    }

    /// Puts those among the samples since `begin` that belong there; behind the last number, if
    /// `is_end`, the next of those that are left. Whether there was anything.
    pub(super) async fn join(
        &mut self,
        samples: &mut Vec<Sample>,
        begin: usize,
        is_end: bool,
    ) -> Result<bool> {
        self.joined.clear();
        let upto =
            if is_end { i64::MAX } else { samples[begin..].last().map_or(i64::MIN, |last| last.0) };
        // At the end a page at a time.
        while self.rest.is_some()
            && self.ahead.back().is_none_or(|(last, _)| !is_end && *last < upto)
        {
            self.load().await?;
        }
        let count = self.ahead.partition_point(|(time, _)| *time <= upto);
        let mut numbers = samples.split_off(begin).into_iter().peekable();
        for (time, histogram) in self.ahead.drain(..count) {
            while let Some(number) = numbers.next_if(|number| number.0 <= time) {
                samples.push(number);
            }
            // A number of the same time is the mark that ends the series.
            if samples[begin..].last().is_none_or(|last| last.0 < time) {
                samples.push((time, f64::from_bits(HISTOGRAM)));
                self.joined.push((time, histogram));
            }
        }
        samples.extend(numbers);
        Ok(!is_end || samples.len() > begin)
    }

    /// Those that were put among the samples last.
    pub(super) fn joined(&mut self) -> impl Iterator<Item = HistogramSample> + '_ {
        self.joined.drain(..)
    }
}
