//! Where series come from: a narrow trait, and series in memory for tests.
//!
//! An evaluator asks which series meet some conditions, then reads each of them once, forward, a
//! piece at a time. So what is held of points is one window of one series, however many there are.

use crate::digest::{Digest, Told, Windows};
use crate::histogram::Histogram;
use crate::labels::Labels;
use crate::matcher::Matcher;
pub(crate) use crate::sample::{HISTOGRAM, HistogramSample, STALE, Sample, Value};
use crate::stretches::Stretches;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

/// The series that meet conditions, or why they can't be told.
pub type Found<S> =
    Result<Vec<(Labels, <S as Source>::Series)>, crate::Error<<S as Source>::Error>>;

/// Gives series. Times are nanoseconds since 1970.
pub trait Source: Sync + Sized {
    /// What names a series to [`read`](Self::read).
    type Series: Send + Sync;
    /// A series being read.
    type Samples: Samples<Error = Self::Error> + 'static;
    /// Why something can't be read.
    type Error: Send + 'static;

    /// The series that meet all conditions. A source may refuse if there are too many.
    fn find(&self, matchers: &[Matcher]) -> impl Future<Output = Found<Self>> + Send;

    /// Points later than the first time, up to and with the second, in the order of time.
    fn read(
        &self,
        series: &Self::Series,
        after: i64,
        until: i64,
    ) -> impl Future<Output = Result<Self::Samples, Self::Error>> + Send;

    /// The same for windows of which a function asks no more than [`Digest`]s or [`Stretches`] say:
    /// a source that has some for whole stretches of time gives these.
    fn read_windows(
        &self,
        series: &Self::Series,
        windows: Windows,
    ) -> impl Future<Output = Result<Self::Samples, Self::Error>> + Send {
        let (after, until) = windows.bounds();
        self.read(series, after, until)
    }

    /// How many series may be worked at beside each other.
    fn beside(&self) -> usize {
        1
    }

    /// Begins work at a series, and gives what comes of it. Where there is more than one
    /// [`beside`](Self::beside) another, it goes on while nobody waits for it; an error is that
    /// nobody does it any more.
    fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, Self::Error>> + Send {
        async { Ok(work.await) }
    }

    /// Called between series, and within one that takes long, so that others get their turn. An
    /// error ends the evaluation.
    fn pause(&self) -> impl Future<Output = Result<(), crate::Error<Self::Error>>> + Send;

    /// Called with how many values are held, each time that these are more. An error ends the
    /// evaluation.
    fn hold(&self, _values: usize) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// A series being read.
pub trait Samples: Send {
    /// Why something can't be read.
    type Error: Send;

    /// Appends the next points; `false` at the end, when nothing was appended.
    fn more(
        &mut self,
        samples: &mut Vec<Sample>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Appends the histograms among the points that [`more`](Self::more) appended last, in their
    /// order. There the value of such a point is [`HISTOGRAM`]; the mark that ends a series of
    /// histograms is a float's. A source that has histograms gives no digests.
    fn histograms(&mut self, _histograms: &mut Vec<HistogramSample>) {}

    /// Appends what comes next as digests, of single points or of stretches of them; `false` at
    /// the end, when nothing was appended.
    fn more_digests(
        &mut self,
        digests: &mut Vec<Digest>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        async {
            let mut samples = Vec::new();
            let is_any = self.more(&mut samples).await?;
            digests.extend(samples.into_iter().map(Digest::from));
            Ok(is_any)
        }
    }

    /// Appends what comes next as stretches, of single points or of more of them, with what the
    /// windows want of each, which are neither ends nor last points; `false` at the end, when
    /// nothing was appended.
    fn more_stretches(
        &mut self,
        stretches: &mut Stretches,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        async {
            let mut samples = Vec::new();
            let is_any = self.more(&mut samples).await?;
            samples.into_iter().for_each(|sample| stretches.push_sample(sample));
            Ok(is_any)
        }
    }

    /// What is to be said of where all this comes from.
    fn told(&self) -> Told {
        Told::default()
    }
}

/// Series in memory.
#[derive(Default, Clone, Debug)]
pub struct Memory {
    series: BTreeMap<Labels, BTreeMap<i64, Value>>,
}

impl Memory {
    /// Adds a point; one of the same time is replaced.
    pub fn add(&mut self, labels: &Labels, time: i64, value: f64) {
        self.series.entry(labels.clone()).or_default().insert(time, Value::Float(value));
    }

    /// Adds a histogram; a point of the same time is replaced.
    pub fn add_histogram(&mut self, labels: &Labels, time: i64, histogram: Arc<Histogram>) {
        self.series.entry(labels.clone()).or_default().insert(time, Value::Histogram(histogram));
    }
}

impl Source for Memory {
    type Series = Labels;
    type Samples = Points;
    type Error = Infallible;

    async fn find(
        &self,
        matchers: &[Matcher],
    ) -> Result<Vec<(Labels, Labels)>, crate::Error<Infallible>> {
        let fits = |labels: &&Labels| {
            matchers.iter().all(|matcher| matcher.matches(labels.get(&matcher.label)))
        };
        Ok(self.series.keys().filter(fits).map(|labels| (labels.clone(), labels.clone())).collect())
    }

    async fn read(&self, series: &Labels, after: i64, until: i64) -> Result<Points, Infallible> {
        if after >= until {
            return Ok(Points::default());
        }
        let bounds = (std::ops::Bound::Excluded(after), std::ops::Bound::Included(until));
        let points = self.series.get(series).into_iter().flat_map(|points| points.range(bounds));
        let points = points.map(|(time, value)| (*time, value.clone())).rev().collect();
        Ok(Points { points, histograms: Vec::new() })
    }

    async fn pause(&self) -> Result<(), crate::Error<Infallible>> {
        Ok(())
    }
}

/// Points in memory, of which a few are given at a time: as a store's blocks, they end in the midst
/// of windows.
#[derive(Default, Debug)]
pub struct Points {
    /// In reverse.
    points: Vec<(i64, Value)>,
    /// Those of what was given last.
    histograms: Vec<HistogramSample>,
}

impl Samples for Points {
    type Error = Infallible;

    async fn more(&mut self, samples: &mut Vec<Sample>) -> Result<bool, Infallible> {
        let rest = self.points.len().saturating_sub(3);
        let is_any = !self.points.is_empty();
        self.histograms.clear();
        for (time, value) in self.points.drain(rest..).rev() {
            samples.push(match value {
                Value::Float(value) => (time, value),
                Value::Histogram(histogram) => {
                    self.histograms.push((time, histogram));
                    (time, f64::from_bits(HISTOGRAM))
                }
            });
        }
        Ok(is_any)
    }

    fn histograms(&mut self, histograms: &mut Vec<HistogramSample>) {
        histograms.append(&mut self.histograms);
    }
}
