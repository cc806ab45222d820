//! Retention: points go when they are older than the rules keep those of their metric, and rollups
//! when theirs say so. What was said at run time, and is in the database, counts instead of what
//! the server was started with. A clock that is far ahead of those that retention went by before is
//! followed slowly, and told of.

use super::{Hub, events};
use plinth_env::sync::race;
use plinth_series::{Result, Retention, SeriesStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often it is looked whether there is something to be done: rules change at any time.
const LOOK: Duration = Duration::from_secs(1);
/// A clock that is so far ahead is told of.
const LEAP: Duration = Duration::from_hours(1);

/// Looks for what is too old, now and then, until the server stops.
pub(super) async fn keep(hub: Arc<Hub>, asked: Retention) {
    let forgetting = async {
        let mut since = hub.env.now();
        loop {
            hub.env.sleep(LOOK).await;
            let Ok(opened) = hub.slot.own() else {
                hub.duties.retention.ahead.store(0, Ordering::Relaxed);
                continue;
            };
            let keeping = opened.store.known_keeping();
            let retention = keeping.counting(&asked);
            let every = [retention.interval(), keeping.interval()].into_iter().flatten().min();
            if every.is_none_or(|every| hub.env.now() < since + every) {
                continue;
            }
            since = hub.env.now();
            // What fails is tried again the next time.
            let forgotten = forget(&hub, &opened.store, &asked).await;
            let is_told = hub.duties.retention.fails.swap(forgotten.is_err(), Ordering::Relaxed);
            if let Err(why) = forgotten
                && !is_told
            {
                events::not_forgotten(&why);
            }
        }
    };
    race(hub.stops.keep.wait(), forgetting).await;
}

async fn forget(hub: &Hub, store: &SeriesStore, asked: &Retention) -> Result<()> {
    let now = time(hub, store).await?;
    store.forget(asked, now).await.map(drop)
}

/// What is known of how retention fares.
#[derive(Default)]
pub(super) struct State {
    /// By how many seconds the clock is ahead of the time by which points go.
    pub(super) ahead: AtomicU64,
    /// Whether it was last, which is told once for as long as it stays so.
    leapt: AtomicBool,
    /// Whether the last pass failed, likewise.
    fails: AtomicBool,
}

/// The time by which points are too old, in nanoseconds since 1970.
///
/// # Errors
/// As [`SeriesStore::time_to_forget`].
pub(super) async fn time(hub: &Hub, store: &SeriesStore) -> Result<i64> {
    let wall = i64::try_from(hub.env.wall_clock().as_nanos()).unwrap_or(i64::MAX);
    let time = store.time_to_forget(wall).await?;
    let ahead = Duration::from_nanos(wall.abs_diff(time));
    hub.duties.retention.ahead.store(ahead.as_secs(), Ordering::Relaxed);
    if !hub.duties.retention.leapt.swap(ahead >= LEAP, Ordering::Relaxed) && ahead >= LEAP {
        events::clock_ahead(ahead.as_secs());
    }
    Ok(time)
}
