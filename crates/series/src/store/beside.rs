//! What a series has besides numbers, on its way to records (`records.rs`): native histograms, and
//! exemplars.

use super::SeriesStore;
use crate::error::{Error, Result};
use crate::exemplar::{Exemplar, MAX_LABEL_BYTES};
use crate::histogram;
use crate::record::{Kind, Record};
use plinth_promql::Histogram;

/// What a series has at a time besides a number.
#[derive(Clone, PartialEq, Debug)]
pub enum Beside {
    /// A native histogram.
    Histogram(Histogram),
    /// An exemplar.
    Exemplar(Exemplar),
}

impl Beside {
    /// Bytes that it takes in memory, about, besides itself.
    pub fn size(&self) -> usize {
        match self {
            Self::Histogram(histogram) => histogram.size() * size_of::<f64>(),
            Self::Exemplar(exemplar) => exemplar.size(),
        }
    }

    /// The record of it.
    ///
    /// # Errors
    /// Why it is too large to be kept.
    pub(crate) fn record(&self, time: i64) -> Result<Record, String> {
        match self {
            Self::Histogram(histogram) => of_histogram(histogram, time),
            Self::Exemplar(exemplar) => of_exemplar(exemplar, time),
        }
    }
}

pub(super) fn of_histogram(histogram: &Histogram, time: i64) -> Result<Record, String> {
    let bytes = histogram::encode(histogram)?.into();
    Ok(Record { kind: Kind::Histogram, time, bytes })
}

fn of_exemplar(exemplar: &Exemplar, time: i64) -> Result<Record, String> {
    let bytes = exemplar.encode().ok_or_else(|| {
        let count = exemplar.labels.len();
        format!("{count} labels of an exemplar, which don't fit into {MAX_LABEL_BYTES} bytes")
    })?;
    Ok(Record { kind: Kind::Exemplar, time, bytes: bytes.into() })
}

pub(crate) fn too_many(why: String, name: &str) -> Error {
    Error::TooMany { what: format!("{why}: {name}") }
}

impl SeriesStore {
    /// Appends exemplars to series, as [`SeriesStore::append_histograms`] does histograms.
    ///
    /// ```
    /// # async fn example(store: plinth_series::SeriesStore) -> plinth_series::Result<()> {
    /// use plinth_series::Exemplar;
    /// let labels = vec![("trace_id".to_owned(), "0af7651916cd43dd".to_owned())];
    /// let slow = Exemplar { labels, value: 2.5 };
    /// store.append_exemplars(&[("http.requests path=/", 1_000, &slow)]).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooMany`] if the labels of one are too many or too long; others as
    /// [`SeriesStore::series`] and [`SeriesStore::sync`]. Then some of them may be there.
    pub async fn append_exemplars(&self, exemplars: &[(&str, i64, &Exemplar)]) -> Result<()> {
        let mut records = Vec::with_capacity(exemplars.len());
        for (name, time, exemplar) in exemplars {
            let record = of_exemplar(exemplar, *time);
            records.push((*name, record.map_err(|why| too_many(why, name))?));
        }
        self.append_named(records).await
    }

    /// Appends records to series, which are made where there is none.
    pub(super) async fn append_named(&self, records: Vec<(&str, Record)>) -> Result<()> {
        let (names, records): (Vec<&str>, Vec<Record>) = records.into_iter().unzip();
        let series = self.all_series(&names).await?;
        let records = series.into_iter().zip(records).collect();
        match self.append_records(records).await?.refused.pop() {
            Some((_, why)) => Err(why),
            None => Ok(()),
        }
    }
}
