//! The same questions and answers for whoever is in this process: an expression's value, the newest
//! points, and points, native histograms and exemplars for the series with some labels.

use super::source::{StoreSource, find, labels_of, name_of};
use super::{Failure, MAX_LISTED};
use crate::error::{Error, Result};
use crate::store::{Beside, Series, SeriesStore, too_many};
use crate::tree::{Direction, Span};
use plinth_promql::{Answered, Labels, Matcher, Options, Sample};
use std::ops::Bound;
use std::time::Duration;

/// How long a write waits for a store that is behind, from one try to the next.
const BEHIND: Duration = Duration::from_millis(20);

impl SeriesStore {
    /// The value of an expression of PromQL at a time in nanoseconds since 1970, which may take so
    /// long.
    ///
    /// # Errors
    /// Why there is none, in Prometheus' words.
    pub async fn promql(
        &self,
        text: &str,
        time: i64,
        timeout: Duration,
    ) -> std::result::Result<Answered, String> {
        let source = StoreSource::new(self, timeout).for_one_time();
        let answer = plinth_promql::instant(&source, text, time, &Options::default()).await;
        answer.map(|answer| answer.value).map_err(|error: Failure| error.to_string())
    }

    /// The newest point of each series that meets all conditions and has one later than the first
    /// time, up to and with the second; also where that is the mark of its end.
    ///
    /// # Errors
    /// Why it can't be told.
    pub async fn newest(
        &self,
        matchers: &[Matcher],
        after: i64,
        until: i64,
    ) -> std::result::Result<Vec<(Labels, Sample)>, String> {
        let mut found =
            find(self, matchers, MAX_LISTED).await.map_err(|error| error.to_string())?;
        let mut newest = Vec::new();
        let bounds = (Bound::Excluded(after), Bound::Included(until));
        let brought = self.bring(found.iter_mut(), Span::new(bounds)).await;
        brought.map_err(|error| error.to_string())?;
        for found in found {
            let read = async {
                let mut points = self.reading(&found).scan(bounds, Direction::Backward).await?;
                points.next().await
            };
            let points = read.await.map_err(|error| error.to_string())?;
            let point = points.and_then(|points| points.iter().next());
            newest.extend(
                point.map(|point| (labels_of(&found.name), (point.time, point.value.as_f64()))),
            );
            crate::query::pause().await;
        }
        Ok(newest)
    }

    /// Appends points to the series with these labels, which are made if there are none. A store
    /// that is behind is waited for. They are durable with the next [`SeriesStore::sync`]. Gives
    /// the places of points whose series can't be, with the reason: they keep none of the others
    /// back.
    ///
    /// # Errors
    /// If the store takes none any more; some of the points may have been taken before.
    pub async fn append_labelled(
        &self,
        points: &[(Labels, Sample)],
    ) -> Result<Vec<(usize, Error)>> {
        self.check_stored().await?;
        let names: Vec<String> = points.iter().map(|(labels, _)| name_of(labels)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let series = self.each_series(&names).await?;
        let mut refused = Vec::new();
        for (place, (series, (_, point))) in series.into_iter().zip(points).enumerate() {
            let appended = match series {
                Ok(series) => self.append_waiting(series, *point).await,
                Err(why) => Err(why),
            };
            match appended {
                Err(why @ (Error::Name { .. } | Error::TooMany { .. } | Error::Damaged { .. })) => {
                    refused.push((place, why))
                }
                appended => appended?,
            }
        }
        Ok(refused)
    }

    /// Appends native histograms and exemplars in the same way, but that they are durable when it
    /// returns.
    ///
    /// # Errors
    /// As [`SeriesStore::append_labelled`].
    pub async fn append_labelled_beside(
        &self,
        all: &[(Labels, i64, Beside)],
    ) -> Result<Vec<(usize, Error)>> {
        self.check_stored().await?;
        let names: Vec<String> = all.iter().map(|(labels, ..)| name_of(labels)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let series = self.each_series(&names).await?;
        let (mut refused, mut records) = (Vec::new(), Vec::with_capacity(all.len()));
        for (place, (series, (_, time, beside))) in series.into_iter().zip(all).enumerate() {
            let record = beside.record(*time).map_err(|why| too_many(why, names[place]));
            match series.and_then(|series| Ok((series, record?))) {
                Ok(record) => records.push(record),
                Err(why) => refused.push((place, why)),
            }
        }
        for (name, why) in self.append_records(records).await?.refused {
            let place = names.iter().position(|known| *known == name.as_str());
            refused.push((place.unwrap_or_default(), why));
        }
        Ok(refused)
    }

    async fn append_waiting(&self, mut series: Series, (time, value): Sample) -> Result<()> {
        loop {
            match series.append(time, value) {
                Err(Error::Behind) => self.env().sleep(BEHIND).await,
                // It had ended, or somebody deleted it: it begins again.
                Err(Error::Deleted) => series = self.series(series.name().as_str()).await?,
                result => return result,
            }
        }
    }
}
