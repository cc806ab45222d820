//! A commit worker: takes a batch from the queue to its effect. A node runs several of them.
//!
//! ```text
//!   holding the batch lock (one worker)                      then, beside the others
//!   queue -> version -> decide -> append to the log -> in flight     a sync, if one is to be done
//!                                                            -> settle what is committed: apply, publish, answer
//! ```
//!
//! So while one worker forms a batch the others sync; and an idle system commits at once, on one
//! thread, without waiting for company. How many batches are in flight is a number
//! ([`NodeConfig::commit_depth`]): a worker waits for the log only where that many are, or to lend
//! its thread to a sync.
//!
//! Nothing is applied before it is committed. A batch whose append fails (the disk is full) leaves
//! no trace; one whose sync fails has an unknown fate: its clients are told so, and the node takes
//! no more commits.
//!
//! [`NodeConfig::commit_depth`]: crate::NodeConfig::commit_depth

use crate::backpressure;
use crate::batch::{Decided, Refused, decide};
use crate::events;
use crate::failure::{NodeError, NodeResult};
use crate::leader::{Batch, Batcher, Leader};
use crate::metrics::Heat;
use crate::queue::{Look, Submitted, Work};
use plinth_env::sync::{First, race};
use plinth_log::{ALL_ROWS, Position, sections_head};
use plinth_types::{Version, planted, probe};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a commit worker, whose end can't be waited for here.
pub(crate) fn is_worker_thread() -> bool {
    IS_WORKER.get()
}

/// Works until the queue is closed and empty.
pub(crate) async fn run(leader: Arc<Leader>) {
    IS_WORKER.set(true);
    let depth = leader.replica.config.commit_depth.max(1);
    loop {
        let mut batcher = leader.batcher.take().await;
        if planted!("a commit worker ends early") {
            return;
        }
        if leader.in_flight.len() >= depth
            && let Some(last) = leader.in_flight.last_position()
        {
            drop(batcher);
            if leader.term.is_some() {
                // Whoever applies entries settles, and no thread is needed for the log.
                probe!("pipeline: as many batches are in flight as may be");
                leader.in_flight.until_below(depth).await;
                continue;
            }
            wait_for_commit(&leader, last).await;
            // Others have left the next sync to this worker.
            drive(&leader).await;
            continue;
        }
        let look = || Look {
            now: leader.replica.env.now(),
            is_busy: !leader.in_flight.is_empty(),
            is_crowded: leader.replica.health.refusals.is_crowded(),
        };
        match leader.queue.next(&leader.replica.env, look).await {
            Work::Closed => return,
            Work::Chores => {
                crate::chores::run(&leader, &mut batcher).await;
            }
            Work::Batch { batch, is_long } => {
                let batch = backpressure::admit(&leader, &mut batcher, batch).await;
                if is_long && !let_the_others_sync(&leader).await {
                    // Nothing of it was appended: its clients are told why.
                    leader.queue.put_back(batch);
                } else if !batch.is_empty() {
                    begin(&leader, &mut batcher, batch).await;
                }
            }
        }
        drop(batcher);
        leader.settle_early().await;
        drive(&leader).await;
    }
}

/// Waits until nothing is in flight: with megabytes appended behind them, the batches before would
/// have to wait for those to be on the disk, too. False if the leader has resigned meanwhile.
async fn let_the_others_sync(leader: &Leader) -> bool {
    if leader.term.is_some() {
        leader.in_flight.until_below(1).await;
    } else if let Some(last) = leader.in_flight.last_position() {
        wait_for_commit(leader, last).await;
    }
    !leader.queue.has_failed()
}

/// Syncs for as long as there is something that nobody else syncs, and settles what that commits. A
/// worker that waits for the log takes the next sync, so that this one can form the next batch.
async fn drive(leader: &Leader) {
    let Some(log) = &leader.log else { return leader.settle(None).await };
    loop {
        let began = leader.replica.env.now();
        match log.drive().await {
            // What a sync of the chores has covered is settled here too.
            Ok(None) => return leader.settle(Some(log.committed().position)).await,
            Ok(Some(committed)) => {
                note_sync(leader, began);
                leader.settle(Some(committed.position)).await;
                if leader.waiting_for_log.load(Ordering::SeqCst) > 0 {
                    return;
                }
            }
            Err(error) => return leader.lose_log(error.into()),
        }
    }
}

/// Settles what a log commits that does so by itself, until the node closes. One that has to be
/// driven is settled by whoever drives.
pub(crate) async fn follow_commits(leader: Arc<Leader>) {
    let Some(log) = leader.log.clone() else { return };
    let mut committed = log.committed().position;
    let health = &leader.replica.health;
    loop {
        // A node that closes waits until all that was appended has taken effect.
        let told = match race(log.until_committed(committed), health.until_over()).await {
            First::Left(told) => told,
            First::Right(()) if leader.in_flight.is_empty() => return,
            First::Right(()) => log.until_committed(committed).await,
        };
        match told {
            Ok(progress) => {
                assert!(
                    progress.position > committed,
                    "the log is committed up to {:?}, and was up to {committed:?}",
                    progress.position
                );
                committed = progress.position;
            }
            Err(error) => return leader.fail(error.into()),
        }
        leader.settle(Some(committed)).await;
    }
}

/// Waits until the log is committed up to `position`, and lends it this thread meanwhile.
async fn wait_for_commit(leader: &Leader, position: Position) {
    let Some(log) = &leader.log else { return };
    probe!("pipeline: as many batches are in flight as may be");
    let began = leader.replica.env.now();
    leader.waiting_for_log.fetch_add(1, Ordering::SeqCst);
    let synced = log.sync(position).await;
    leader.waiting_for_log.fetch_sub(1, Ordering::SeqCst);
    match synced {
        Ok(()) => {
            note_sync(leader, began);
            let committed = log.committed().position;
            assert!(committed >= position, "{position:?} is synced, and {committed:?} committed");
            leader.settle(Some(committed)).await;
        }
        Err(error) => leader.lose_log(error.into()),
    }
}

fn note_sync(leader: &Leader, began: Duration) {
    let took = leader.replica.env.now().saturating_sub(began);
    leader.replica.counters.metrics.sync.record(took, 1);
}

/// Decides and appends a batch. If nothing of it can take effect, its clients are told at once.
async fn begin(leader: &Leader, batcher: &mut Batcher, batch: Vec<Submitted>) {
    let replica = &*leader.replica;
    assert!(!planted!("a commit worker panics before it appends"), "planted");
    let began = replica.env.now();
    let assigned = leader.versions.assign(began, batcher.metadata.min_required_commit_version());
    let version = assigned.version;
    check_version(leader, version, assigned.lease);
    let span = events::batch(version, batch.len());
    batcher.resolver.forget_before(replica.window_begin(version));
    let notes = (replica.wall_clock_seconds(), replica.config.slow);
    let in_cluster = leader.term.is_some();
    let count = batch.len();
    let mut decided =
        decide(batch, version, notes, in_cluster, &batcher.metadata, &mut batcher.resolver);
    assert_eq!(
        decided.accepted.len() + decided.refused.len(),
        count,
        "each transaction of a batch is accepted or refused"
    );
    replica.storage.note_elsewhere(batcher.resolver.memory());
    count_refused(leader, &decided.refused);
    span.record("conflicts", decided.refused.len());
    notice(leader, version, &mut decided);
    for refused in decided.refused.drain(..) {
        refused.answer.send(refused.verdict);
    }
    if decided.accepted.is_empty() {
        return leader.versions.finish(None);
    }
    if decided.accepted.len() > 1 {
        probe!("pipeline: several transactions in a batch");
    }
    let was_sound = is_log_sound(leader);
    let appended = append_with_reserve(leader, batcher, version, assigned.lease, &decided).await;
    let position = match appended {
        Ok(position) => position,
        Err(error) => return not_appended(leader, decided, error, was_sound),
    };
    assert_eq!(
        position.is_some(),
        leader.log.is_some(),
        "what is appended has its place in the log"
    );
    assert!(!planted!("a commit worker panics behind its append"), "planted");
    if let Some(metadata) = &decided.metadata {
        batcher.metadata = metadata.clone();
    }
    let appended = replica.env.now();
    let formed = appended.saturating_sub(began);
    let sync_span = events::log_sync(&span);
    let batch = Box::new(Batch {
        version,
        position,
        lease: assigned.lease,
        decided,
        formed,
        appended,
        span,
        sync_span,
    });
    if let Err((batch, cause)) = leader.in_flight.push(batch) {
        batch.unknown(&cause);
    }
    leader.settle_late(version).await;
}

/// Nobody has seen the version of a batch that is to be decided, and its lease reaches there.
fn check_version(leader: &Leader, version: Version, lease: Option<Version>) {
    // Entries of later terms may have been applied by now, beside a leader that is one no longer:
    // the log refuses what this one appends.
    assert!(
        leader.term.is_some() || version > leader.replica.newest(),
        "version {version} was shown to readers before its batch"
    );
    assert!(lease.is_none_or(|lease| lease >= version), "a lease reaches its batch");
}

/// The batch is not in the log; or nobody knows whether it is.
fn not_appended(leader: &Leader, decided: Decided, error: NodeError, was_sound: bool) {
    if was_sound && !is_log_sound(leader) {
        probe!("pipeline: append failed and left bytes behind");
        // Bytes were written and could not be taken back: a restart may find the batch. Its version
        // stays in flight: if read versions followed the clock beyond it, a reader could miss at a
        // later version what a restart then shows at an earlier one.
        decided.accepted.into_iter().for_each(|accepted| accepted.answer.unknown(&error));
        return leader.fail(error);
    }
    probe!("pipeline: append refused");
    leader.versions.finish(None);
    let refused = decided.accepted.len() as u64;
    leader.replica.counters.refused.add(refused);
    backpressure::note_not_appended(&leader.replica, &error, refused);
    decided.accepted.into_iter().for_each(|accepted| accepted.answer.send(Err(error.clone())));
}

fn is_log_sound(leader: &Leader) -> bool {
    leader.log.as_ref().is_none_or(|log| log.check().is_ok())
}

/// Appends a batch; once more with the room of the reserve if the disk is full and the batch only
/// clears.
async fn append_with_reserve(
    leader: &Leader,
    batcher: &mut Batcher,
    version: Version,
    lease: Option<Version>,
    decided: &Decided,
) -> NodeResult<Option<Position>> {
    match append(leader, batcher, version, lease, decided).await {
        Err(error) if error.is_disk_full() && is_log_sound(leader) => {
            let has_more = leader.replica.space.met_full_disk().await;
            if !has_more
                || decided.accepted.iter().any(|it| backpressure::any_row_written(&it.mutations))
            {
                return Err(error);
            }
            probe!("pipeline: clears appended in the room of the reserve");
            append(leader, batcher, version, lease, decided).await
        }
        done => done,
    }
}

async fn append(
    leader: &Leader,
    batcher: &mut Batcher,
    version: Version,
    lease: Option<Version>,
    decided: &Decided,
) -> NodeResult<Option<Position>> {
    let Some(log) = &mut batcher.log else { return Ok(None) };
    if let Some(lease) = lease {
        log.extend_lease(lease).await?;
    }
    let lists =
        || decided.accepted.iter().map(|accepted| &accepted.mutations).chain([&decided.records]);
    let head = sections_head(&[(ALL_ROWS, lists().map(|list| list.as_bytes().len()).sum())]);
    let mut parts: Vec<&[u8]> = Vec::with_capacity(decided.accepted.len() + 2);
    parts.push(&head);
    parts.extend(lists().map(|list| list.as_bytes()));
    let position = match decided.changes_members {
        true => log.append_members(version, &parts).await?,
        false => log.append(version, &parts).await?,
    };
    if leader.term.is_none() {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        leader.replica.counters.bytes_written.add(bytes);
    }
    Ok(Some(position))
}

/// Notes what is hot and what was slow: of the writes one a batch.
fn notice(leader: &Leader, version: Version, decided: &mut Decided) {
    let hot = &leader.replica.counters.metrics.hot;
    decided.conflicting.iter().for_each(|key| hot.note(Heat::Conflicts, key));
    for slow in decided.slow.drain(..) {
        events::slow(&slow);
        hot.note_slow(slow);
    }
    // Versions are as good as random here.
    let at = usize::try_from(version).unwrap_or(0) % decided.accepted.len().max(1);
    let sample = decided.accepted.get(at).and_then(|accepted| accepted.mutations.iter().next());
    if let Some(mutation) = sample {
        hot.note(Heat::Writes, mutation.param1);
    }
}

fn count_refused(leader: &Leader, refused: &[Refused]) {
    let counters = &leader.replica.counters;
    for refused in refused {
        match &refused.verdict {
            Ok(_) => counters.conflicted.add(1),
            Err(NodeError::TooOld(_)) => counters.too_old.add(1),
            Err(_) => counters.refused.add(1),
        }
    }
}
