//! The owner's series, as rules are evaluated over them.

use plinth_promql::{Answered, Matcher};
use plinth_rules::{Store, Written};
use plinth_series::SeriesStore;
use std::time::Duration;

/// A store that this server owns.
pub(super) struct Owned(pub(super) SeriesStore);

impl Store for Owned {
    async fn instant(&self, expr: &str, time: i64, within: Duration) -> Result<Answered, String> {
        self.0.promql(expr, time, within).await
    }

    async fn newest(
        &self,
        matchers: &[Matcher],
        after: i64,
        until: i64,
    ) -> Result<Vec<Written>, String> {
        self.0.newest(matchers, after, until).await
    }

    async fn write(&self, points: &[Written]) -> Result<Vec<(usize, String)>, String> {
        let refused = self.0.append_labelled(points).await.map_err(|error| error.to_string())?;
        Ok(refused.into_iter().map(|(place, why)| (place, why.to_string())).collect())
    }
}
