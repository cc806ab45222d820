//! Retention: points go when they are older than the server's rules keep those of their metric.

use super::Hub;
use plinth_env::sync::race;
use plinth_series::Retention;
use std::sync::Arc;

/// Looks for points that are too old, now and then, until the server stops.
pub(super) async fn keep(hub: Arc<Hub>, retention: Retention) {
    let Some(every) = retention.interval() else { return };
    let forgetting = async {
        loop {
            hub.env.sleep(every).await;
            let now = i64::try_from(hub.env.wall_clock().as_nanos()).unwrap_or(i64::MAX);
            // What fails is tried again the next time.
            if let Ok(opened) = hub.slot.own() {
                let _ = opened.store.forget(&retention, now).await;
            }
        }
    };
    race(hub.stops.keep.wait(), forgetting).await;
}
