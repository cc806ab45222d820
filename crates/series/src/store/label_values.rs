//! How many values a label of a metric may have.
//!
//! A label that tells each request from all others makes a series of each. The limit of a metric
//! stops that late, and for all of the metric's labels; this one names the label, and goes on
//! taking series whose values are known.
//!
//! A metric has as many series as a label of it has values, at least: so nothing is looked up of
//! one that has fewer. Of others the values of a label are counted when that is first asked, and
//! from then on with each new one. A count that has reached the limit is believed for a while, and
//! then made again, since values go with their last series. Each part counts its own series.

use super::search::Index;
use super::{Shared, lock};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::Listing;
use plinth_client::{RangeOptions, Transaction};
use plinth_types::{Bytes, strinc};
use std::time::Duration;

/// For how long a count is believed that has reached the limit.
const BELIEVED: Duration = Duration::from_secs(10);
/// Labels whose counts are remembered. Beyond, all are forgotten, and made again when asked for.
const LABELS: usize = 10_000;

impl Shared {
    /// Whether a new series may have the values that its labels have, of a metric that has so many
    /// series, where a label may have `most`.
    ///
    /// # Errors
    /// Those of reading; the refusal is the value.
    pub(super) async fn check_labels(
        &self,
        tr: &Transaction,
        name: &Name,
        (of_metric, most): (u64, u64),
    ) -> Result<Result<()>> {
        if of_metric < most {
            return Ok(Ok(()));
        }
        let metric = name.metric();
        let mut new = Vec::new();
        for (tag, value) in name.tags() {
            if self.has_value(tr, metric, tag, value).await? {
                continue;
            }
            let count = self.values(metric, tag, most).await?;
            if count >= most {
                let what = format!(
                    "label {tag:?} of metric {metric:?} has {count} values, and may have no more"
                );
                return Ok(Err(Error::TooMany { what }));
            }
            new.push((metric.to_string(), tag.to_string()));
        }
        let mut counted = lock(&self.index.used.labels);
        for label in new {
            counted.entry(label).and_modify(|(_, count)| *count += 1);
        }
        Ok(Ok(()))
    }

    /// Whether a series of the metric has the label with this value.
    async fn has_value(
        &self,
        tr: &Transaction,
        metric: &str,
        tag: &str,
        value: &str,
    ) -> Result<bool> {
        let begin = Bytes::from(self.keys.index_of(metric, tag, value));
        let end = strinc(&begin).unwrap_or_default();
        let row = tr.snapshot().range(RangeOptions::from(begin..end).limit(1)).collect().await?;
        Ok(!row.is_empty())
    }

    /// How many values a label has, which need not be told exactly beyond `most`.
    async fn values(&self, metric: &str, tag: &str, most: u64) -> Result<u64> {
        let now = self.database.endpoint().env().now();
        let label = (metric.to_string(), tag.to_string());
        if let Some((then, count)) = lock(&self.index.used.labels).get(&label)
            && (*count < most || now < then.saturating_add(BELIEVED))
        {
            return Ok(*count);
        }
        let listing = Listing::Values { metric: metric.to_string(), tag: tag.to_string() };
        let limit = usize::try_from(most).unwrap_or(usize::MAX);
        let found = Index::new(self).items(&listing, ("", None), limit).await?;
        let count = found.len() as u64;
        let mut counted = lock(&self.index.used.labels);
        if counted.len() >= LABELS {
            counted.clear();
        }
        counted.insert(label, (now, count));
        Ok(count)
    }
}
