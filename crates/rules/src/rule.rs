//! A rule, and what is known of it between two evaluations.

use crate::alert::Alerts;
use crate::file::{RuleKind, RuleSpec};
use crate::store::{Store, Written, WrittenHistogram};
use plinth_promql::{Labels, STALE};
use std::collections::BTreeSet;
use std::time::Duration;

/// A rule, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) spec: RuleSpec,
    /// Of one that alerts.
    pub(crate) alerts: Alerts,
    /// The series that it wrote to the last time, as far as they have no end.
    pub(crate) series: BTreeSet<Labels>,
    pub(crate) last: Option<Evaluated>,
}

/// How the last evaluation of a rule went.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// When it was, in nanoseconds since 1970.
    pub at: i64,
    /// How long it took.
    pub took: Duration,
    /// What went wrong.
    pub error: Option<String>,
}

/// The mark by which a series ends.
pub(crate) fn stale(time: i64) -> (i64, f64) {
    (time, f64::from_bits(STALE))
}

impl Rule {
    /// For how long its alerts have to be there; `None` if it gives none.
    pub(crate) fn hold(&self) -> Option<i64> {
        match &self.spec.kind {
            RuleKind::Alert { hold, .. } => Some(*hold),
            RuleKind::Record => None,
        }
    }

    /// Writes points, and ends the series that it has no more.
    ///
    /// # Errors
    /// Why one of them can't be written. A series that is refused is none of the rule's from then
    /// on, as with Prometheus; behind a write that failed each may be there, so all are.
    pub(crate) async fn write<S: Store>(
        &mut self,
        store: &S,
        (points, histograms): (Vec<Written>, Vec<WrittenHistogram>),
        time: i64,
    ) -> Result<(), String> {
        let of_points = points.iter().map(|(labels, _)| labels.clone());
        let of_histograms = histograms.iter().map(|(labels, _)| labels.clone());
        let series: BTreeSet<Labels> = of_points.chain(of_histograms).collect();
        let gone = self.series.difference(&series).map(|labels| (labels.clone(), stale(time)));
        let all: Vec<Written> = gone.chain(points).collect();
        let written = async {
            let mut refused = Vec::new();
            if !all.is_empty() {
                let places = store.write(&all).await?;
                refused.extend(places.into_iter().map(|(place, why)| (&all[place].0, why)));
            }
            if !histograms.is_empty() {
                let places = store.write_histograms(&histograms).await?;
                refused.extend(places.into_iter().map(|(place, why)| (&histograms[place].0, why)));
            }
            Ok(refused)
        };
        let refused = match written.await {
            Ok(refused) => refused,
            Err(why) => {
                self.series.extend(series);
                return Err(why);
            }
        };
        self.series = series;
        for (labels, _) in &refused {
            self.series.remove(*labels);
        }
        refused.into_iter().next().map_or(Ok(()), |(_, why)| Err(why))
    }
}
