//! What is done when there is nothing to commit: the window moves on, the log is marked durable,
//! the lease on versions is extended, memory of forgotten versions is given back.
//!
//! A clock task says when; the commit worker that holds the batch lock does the work, because it
//! owns the log and the resolver.

use crate::leader::{Batcher, Leader};
use crate::pace::{self, Pace};
use plinth_env::is_disk_full;
use plinth_types::version::VERSIONS_PER_SECOND;
use plinth_types::{planted, probe};
use std::sync::Arc;
use std::time::Duration;

/// How often the chores are looked at.
const PERIOD: Duration = Duration::from_millis(200);

/// How many rows of forgotten versions are given back at a time: commits that come meanwhile wait
/// for as long.
const FORGET_ROWS: usize = 4096;

/// Asks for the chores when they are due, and keeps the pace, until the node closes.
pub(crate) async fn keep_time(leader: Arc<Leader>) {
    let replica = leader.replica.clone();
    let window = replica.config.window.max(0) as f64 / VERSIONS_PER_SECOND as f64;
    let mut pace = Pace::new(replica.config.load, Duration::from_secs_f64(window));
    let mut next = Duration::ZERO;
    while !leader.is_over() {
        replica.pause(&leader.chores_due, pace.pause(&leader).min(PERIOD)).await;
        assert!(!planted!("the task for the chores panics"), "planted");
        pace.tick(&leader);
        pace.look_at_disk(&leader).await;
        if replica.env.now() >= next || leader.is_over() {
            next = replica.env.now() + PERIOD;
            if let Err(lost) = replica.check_place() {
                leader.fail(lost);
            }
            leader.queue.ask_for_chores();
        }
    }
    pace::close(&leader);
}

/// Does the chores. The caller holds the batch lock and has nothing to commit.
pub(crate) async fn run(leader: &Leader, batcher: &mut Batcher) {
    let replica = &*leader.replica;
    let mut began = replica.env.now();
    let publish = |version| replica.storage.publish(version);
    let newest = leader.versions.follow(&replica.versions, replica.env.now(), publish);
    replica.waiting.reached(newest);
    batcher.resolver.forget_before(replica.window_begin(newest));
    replica.storage.note_elsewhere(batcher.resolver.memory());
    // Commits are more urgent than memory that can be given back a little later: those that wait in
    // the queue, and those under way, which need the storage's writer for themselves and would not
    // get hold of it between two steps.
    loop {
        let more = replica.writer().forget_before(replica.window_begin(newest), FORGET_ROWS);
        let now = replica.env.now();
        replica.counters.metrics.waits.work.note(now.saturating_sub(began));
        let is_idle = leader.queue.depth().0 == 0 && leader.in_flight.is_empty();
        if !more || !is_idle {
            break;
        }
        replica.env.yield_now().await;
        began = replica.env.now();
    }
    tend(leader, batcher).await;
}

/// Writes down what the log is to remember. The caller holds the batch lock.
pub(crate) async fn tend(leader: &Leader, batcher: &mut Batcher) {
    let replica = &*leader.replica;
    if replica.health.failure().is_some() {
        return;
    }
    let Err(error) = tend_log(leader, batcher).await else { return };
    probe!("pipeline: idle log could not be tended");
    // A full disk is no failure: the lease can wait. A failed sync shows up at the next commit.
    if leader.log.as_ref().is_some_and(|log| log.check().is_err()) {
        leader.lose_log(error);
    } else if is_disk_full(&error) {
        // What was popped is let go of only once the log says so: it is tried again with the
        // reserve.
        replica.space.met_full_disk(replica).await;
    }
}

async fn tend_log(leader: &Leader, batcher: &mut Batcher) -> plinth_types::Result<()> {
    let wanted = || leader.versions.wanted_lease(leader.replica.env.now());
    let Some(log) = &mut batcher.log else {
        wanted().into_iter().for_each(|lease| leader.versions.leased(lease));
        return Ok(());
    };
    log.mark_durable().await?;
    if let Some(lease) = wanted() {
        probe!("pipeline: lease extended while idle");
        let position = log.extend_lease(lease).await?;
        log.view().sync(position).await?;
        leader.versions.leased(lease);
    }
    Ok(())
}
