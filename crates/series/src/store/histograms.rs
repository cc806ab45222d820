//! Native histograms of a store's series: records that hold one each (`records.rs`).

use super::beside;
use super::merged::Merged;
use super::records::Records;
use super::{Series, SeriesStore};
use crate::error::{Error, Result};
use crate::histogram;
use crate::record::Kind;
use crate::tree::Span;
use plinth_promql::Histogram;
use std::ops::RangeBounds;

/// The native histograms of a series, in the order of time.
pub struct HistogramStream(Records);

impl HistogramStream {
    /// The next ones, which may be none yet; `None` if there are no more.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Database`].
    pub async fn next(&mut self) -> Result<Option<Vec<(i64, Histogram)>>> {
        let Some(records) = self.0.next().await? else { return Ok(None) };
        let decoded = records.iter().map(|(time, bytes)| Ok((*time, histogram::decode(bytes)?)));
        decoded.collect::<Result<Vec<_>>>().map(Some)
    }

    /// All that are left.
    ///
    /// # Errors
    /// As [`HistogramStream::next`].
    pub async fn collect(mut self) -> Result<Vec<(i64, Histogram)>> {
        let mut all = Vec::new();
        while let Some(mut some) = self.next().await? {
            all.append(&mut some);
        }
        Ok(all)
    }
}

impl SeriesStore {
    /// Appends native histograms to series, which are made where there is none; times are
    /// nanoseconds since 1970, and the last one of a time counts. When it returns, they survive a
    /// crash, and reads see them.
    ///
    /// ```
    /// # async fn example(store: plinth_series::SeriesStore) -> plinth_series::Result<()> {
    /// use plinth_series::{Histogram, HistogramParts, HistogramSpan};
    /// let parts = HistogramParts {
    ///     schema: 0, // buckets up to 1, 2, 4, 8
    ///     count: 6.0,
    ///     sum: 17.5,
    ///     positive_spans: vec![HistogramSpan { offset: 0, length: 4 }],
    ///     positive: vec![1.0, 2.0, 2.0, 1.0],
    ///     ..HistogramParts::default()
    /// };
    /// let histogram = Histogram::new(parts).expect("it has as many counts as buckets");
    /// store.append_histograms(&[("http.duration path=/", 1_000, &histogram)]).await?;
    /// let series = store.existing("http.duration path=/").await?.expect("it was just made");
    /// let found = series.histograms(..).await?.collect().await?;
    /// assert_eq!(found, [(1_000, histogram)]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooMany`] if a histogram has too many buckets; others as
    /// [`SeriesStore::series`] and [`SeriesStore::sync`]. Then some of them may be there.
    pub async fn append_histograms(&self, histograms: &[(&str, i64, &Histogram)]) -> Result<()> {
        let mut records = Vec::with_capacity(histograms.len());
        for (name, time, histogram) in histograms {
            let record = beside::of_histogram(histogram, *time);
            records.push((*name, record.map_err(|why| beside::too_many(why, name))?));
        }
        self.append_named(records).await
    }
}

impl Series {
    /// Those of a span, for a query that has had the inbox looked into.
    pub(crate) fn histograms_in(&self, span: Span) -> HistogramStream {
        HistogramStream(self.records(Kind::Histogram, span))
    }

    /// Its newest native histogram.
    ///
    /// # Errors
    /// As [`Series::histograms`].
    pub(crate) async fn newest_histogram(&self) -> Result<Option<(i64, Histogram)>> {
        if self.is_deleted() {
            return Err(Error::Deleted);
        }
        let series = Merged::look(self, Span::ALL).await?;
        match series.newest_record(Kind::Histogram).await? {
            Some((time, bytes)) => Ok(Some((time, histogram::decode(&bytes)?))),
            None => Ok(None),
        }
    }

    /// The native histograms of a range of times.
    ///
    /// # Errors
    /// [`Error::Deleted`], [`Error::Damaged`], [`Error::Database`].
    pub async fn histograms(&self, range: impl RangeBounds<i64>) -> Result<HistogramStream> {
        if self.is_deleted() {
            return Err(Error::Deleted);
        }
        let span = Span::new(range);
        let series = Merged::look(self, span).await?;
        Ok(series.histograms_in(span))
    }
}
