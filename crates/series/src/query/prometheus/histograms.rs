//! The native histograms of a series among its numbers, in the order of time, as the evaluator
//! reads them.

use crate::error::Result;
use crate::store::{HistogramStream, Series};
use crate::tree::Span;
use plinth_promql::{HISTOGRAM, HistogramSample, Sample};
use std::collections::VecDeque;
use std::sync::Arc;

/// Those of one series that were read, and the rest; and numbers that have yet to be put among
/// them. A page of each is held.
pub(super) struct Histograms {
    rest: Option<HistogramStream>,
    /// Behind the points that were given.
    ahead: VecDeque<HistogramSample>,
    numbers: VecDeque<Sample>,
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
        let (ahead, numbers) = (VecDeque::new(), VecDeque::new());
        let mut histograms = Self { rest, ahead, numbers, joined: Vec::new() };
        histograms.load().await?;
        Ok((!histograms.ahead.is_empty()).then_some(histograms))
    }

    /// Reads on, if none is ahead.
    async fn load(&mut self) -> Result<()> {
        while self.ahead.is_empty()
            && let Some(rest) = &mut self.rest
        {
            match rest.next().await? {
                Some(found) => {
                    self.ahead.extend(found.into_iter().map(|(time, one)| (time, Arc::new(one))));
                }
                None => self.rest = None,
            }
        }
        Ok(())
    }

    /// Whether the next numbers have to be known.
    pub(super) fn wants_numbers(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Takes numbers, which come behind those before.
    pub(super) fn take_numbers(&mut self, numbers: impl Iterator<Item = Sample>) {
        self.numbers.extend(numbers);
    }

    /// Appends the next of both; `are_all` if no more numbers come. Whether there may be more.
    pub(super) async fn join(&mut self, samples: &mut Vec<Sample>, are_all: bool) -> Result<bool> {
        self.joined.clear();
        self.load().await?;
        let (begin, last) = (samples.len(), |time: Option<i64>| time.unwrap_or(i64::MIN));
        // Up to where both are known.
        let numbers = if are_all { i64::MAX } else { last(self.numbers.back().map(|one| one.0)) };
        let histograms = match self.rest {
            Some(_) => last(self.ahead.back().map(|one| one.0)),
            None => i64::MAX,
        };
        let upto = numbers.min(histograms);
        loop {
            let number = self.numbers.front().map(|one| one.0).filter(|time| *time <= upto);
            let histogram = self.ahead.front().map(|one| one.0).filter(|time| *time <= upto);
            match (number, histogram) {
                (None, None) => break,
                (Some(number), histogram) if histogram.is_none_or(|time| number <= time) => {
                    samples.extend(self.numbers.pop_front());
                    // A number counts over a histogram of its time.
                    if histogram == Some(number) {
                        self.ahead.pop_front();
                    }
                }
                _ => {
                    let Some((time, one)) = self.ahead.pop_front() else { break };
                    samples.push((time, f64::from_bits(HISTOGRAM)));
                    self.joined.push((time, one));
                }
            }
        }
        let is_end = are_all && self.rest.is_none() && self.ahead.is_empty();
        Ok(samples.len() > begin || !(is_end && self.numbers.is_empty()))
    }

    /// Those that were appended last.
    pub(super) fn joined(&mut self) -> impl Iterator<Item = HistogramSample> + '_ {
        self.joined.drain(..)
    }
}
