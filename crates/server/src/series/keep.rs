//! Retention: points go when they are older than the rules keep those of their metric, and rollups
//! when theirs say so. What was said at run time, and is in the database, counts instead of what
//! the server was started with.

use super::Hub;
use plinth_env::sync::race;
use plinth_series::Retention;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether there is something to be done: rules change at any time.
const LOOK: Duration = Duration::from_secs(1);

/// Looks for what is too old, now and then, until the server stops.
pub(super) async fn keep(hub: Arc<Hub>, asked: Retention) {
    let forgetting = async {
        let mut since = hub.env.now();
        loop {
            hub.env.sleep(LOOK).await;
            let Ok(opened) = hub.slot.own() else { continue };
            let keeping = opened.store.known_keeping();
            let retention = keeping.counting(&asked);
            let every = [retention.interval(), keeping.interval()].into_iter().flatten().min();
            if every.is_none_or(|every| hub.env.now() < since + every) {
                continue;
            }
            since = hub.env.now();
            let now = i64::try_from(hub.env.wall_clock().as_nanos()).unwrap_or(i64::MAX);
            // What fails is tried again the next time.
            let _ = opened.store.forget(&asked, now).await;
        }
    };
    race(hub.stops.keep.wait(), forgetting).await;
}
