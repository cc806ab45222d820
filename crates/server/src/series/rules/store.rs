//! The owner's series, as rules are evaluated over them.

use plinth_promql::{Answered, Histogram, Matcher};
use plinth_rules::{Store, Written, WrittenHistogram};
use plinth_series::{Beside, SeriesStore};
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
        // Points for parts of others' are posted, without a fence: whoever has the first part
        // evaluates, and nobody else.
        self.0.check_owned(0).await.map_err(|error| error.to_string())?;
        let refused = self.0.append_labelled(points).await.map_err(|error| error.to_string())?;
        Ok(refused.into_iter().map(|(place, why)| (place, why.to_string())).collect())
    }

    async fn write_histograms(
        &self,
        histograms: &[WrittenHistogram],
    ) -> Result<Vec<(usize, String)>, String> {
        self.0.check_owned(0).await.map_err(|error| error.to_string())?;
        let all = histograms.iter().map(|(labels, (time, one))| {
            (labels.clone(), *time, Beside::Histogram(Histogram::clone(one)))
        });
        let all: Vec<_> = all.collect();
        let refused = self.0.append_labelled_beside(&all).await;
        let refused = refused.map_err(|error| error.to_string())?;
        Ok(refused.into_iter().map(|(place, why)| (place, why.to_string())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_client::Database;
    use plinth_env::block_on;
    use plinth_pipeline::{Node, NodeConfig};
    use plinth_series::{Claim, Division, Error, Look, Owner, Settings, Told};
    use std::sync::Arc;

    struct Nowhere;

    impl Owner for Nowhere {
        fn ask(&self, _: Vec<u8>) -> Told<'_> {
            Box::pin(async { Err(Error::NotOwner) })
        }
    }

    /// A server that had lost the first part, and didn't know it yet, went on posting what its
    /// rules came to into the other parts, beside the server that evaluates now.
    #[test]
    fn whoever_has_lost_the_first_part_writes_nothing_into_the_others() {
        let env = plinth_env::Env::real();
        block_on(async {
            let node = Node::in_memory(&env, NodeConfig::default()).await.unwrap();
            let database = Database::new(Arc::new(node.endpoint()));
            let settings = Settings { parts: 4, commit_every: None, ..Settings::default() };
            let division = Division::of(&database, settings).await.unwrap();
            let mut candidate = division.candidate(0, Claim::new("before", ""));
            let Ok(Look::Ours(first)) = candidate.look().await else { panic!("it is free") };
            let others = (1..4).map(|part| division.elsewhere(part, Arc::new(Nowhere)));
            let store = Owned(division.together([first].into_iter().chain(others)));
            let name = |at: usize| ("__name__".to_owned(), format!("rule:{at}"));
            let result = |at| ([name(at)].into_iter().collect(), (1, 1.0));
            let results: Vec<Written> = (0..8).map(result).collect();
            assert_eq!(store.write(&results).await, Ok(Vec::new()));
            let mut next = division.candidate(0, Claim::new("before", ""));
            assert!(matches!(next.look().await, Ok(Look::Ours(_))));
            for one in results.chunks(1) {
                assert!(store.write(one).await.is_err());
            }
        });
    }
}
