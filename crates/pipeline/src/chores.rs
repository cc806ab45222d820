//! What is done when there is nothing to commit: the window moves on, the log is marked durable, the
//! lease on versions is extended, memory of forgotten versions is given back.
//!
//! A clock task rings; the commit worker that holds the baton does the work, because it owns the log
//! and the resolver.

use crate::pace::{self, Pace};
use crate::shared::{Front, Shared};
use plinth_storage::Storage;
use plinth_types::probe;
use plinth_types::version::VERSIONS_PER_SECOND;
use std::sync::Arc;
use std::time::Duration;

/// How often the chores are looked at.
const PERIOD: Duration = Duration::from_millis(200);

/// How many rows of forgotten versions are given back at a time: commits that come meanwhile wait for as long.
const FORGET_ROWS: usize = 4096;

/// Rings for the chores, and keeps the pace, until the node closes.
pub(crate) async fn ring(shared: Arc<Shared>) {
    let directory = shared.directory.as_ref().map(|directory| &*directory.path);
    crate::events::opened(directory, shared.versions.committed());
    let window = shared.config.window_versions().max(0) as f64 / VERSIONS_PER_SECOND as f64;
    let mut pace = Pace::new(shared.config.load, Duration::from_secs_f64(window));
    let mut next = Duration::ZERO;
    while !shared.health.is_closing() {
        shared.pause(&shared.bells.chores, pace.pause(&shared).min(PERIOD)).await;
        pace.tick(&shared);
        pace.look_at_disk(&shared).await;
        if shared.env.now() >= next || shared.health.is_closing() {
            next = shared.env.now() + PERIOD;
            shared.queue.ask_for_chores();
        }
    }
    pace::close(&shared);
}

/// Does the chores. The caller holds the baton and has nothing to commit.
pub(crate) async fn run(shared: &Shared, front: &mut Front) {
    let mut began = shared.env.now();
    let newest = shared.versions.follow(shared.env.now(), |version| shared.storage.publish(version));
    shared.waiting.reached(newest);
    front.resolver.forget_before(shared.window_begin(newest));
    shared.storage.note_elsewhere(front.resolver.memory());
    // Commits are more urgent than memory that can be given back a little later: those that wait in the queue, and those
    // under way, which need the storage's writer for themselves and would not get hold of it between two steps.
    loop {
        let more = shared.storage.forget_before(shared.window_begin(newest), FORGET_ROWS);
        let now = shared.env.now();
        shared.counters.metrics.waits.work.note(now.saturating_sub(began));
        let is_idle = shared.queue.depth().0 == 0 && shared.turns.have_passed(front.next_ticket);
        if !more || !is_idle {
            break;
        }
        shared.env.yield_now().await;
        began = shared.env.now();
    }
    if shared.health.failure().is_none()
        && let Err(error) = tend_log(shared, front).await
    {
        probe!("pipeline: idle log could not be tended");
        // A full disk is no failure: the lease can wait. A failed sync shows up at the next commit.
        if shared.log.as_ref().is_some_and(|log| log.view.check().is_err()) {
            shared.health.fail(error);
        }
    }
}

async fn tend_log(shared: &Shared, front: &mut Front) -> plinth_types::Result<()> {
    let Some(log) = &mut front.log else {
        if let Some(lease) = shared.versions.wanted_lease(shared.env.now()) {
            shared.versions.leased(lease);
        }
        return Ok(());
    };
    log.mark_durable().await?;
    if let Some(lease) = shared.versions.wanted_lease(shared.env.now()) {
        probe!("pipeline: lease extended while idle");
        let position = log.extend_lease(lease).await?;
        log.syncer().sync(position).await?;
        shared.versions.leased(lease);
    }
    Ok(())
}
