//! What is done when there is nothing to commit: the window moves on, the log is marked durable,
//! the lease on versions is extended, memory of forgotten versions is given back.
//!
//! A clock task says when (`pace.rs`); the commit worker that holds the batch lock does the work,
//! because it owns the log and the resolver.

use crate::failure::NodeResult;
use crate::leader::{Batcher, Leader};
use plinth_types::probe;

/// How many rows of forgotten versions are given back at a time: commits that come meanwhile wait
/// for as long.
const FORGET_ROWS: usize = 4096;

/// Does the chores. The caller holds the batch lock and has nothing to commit.
pub(crate) async fn run(leader: &Leader, batcher: &mut Batcher) {
    let replica = &*leader.replica;
    let mut began = replica.env.now();
    let publish = |version| replica.storage.publish(version);
    let newest = leader.versions.follow(&replica.visible.applied, replica.env.now(), publish);
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
    } else if error.is_disk_full() {
        // What was popped is let go of only once the log says so: it is tried again with the
        // reserve.
        replica.space.met_full_disk().await;
    }
}

async fn tend_log(leader: &Leader, batcher: &mut Batcher) -> NodeResult<()> {
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
