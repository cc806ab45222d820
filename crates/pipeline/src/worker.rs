//! A commit worker: takes a batch from the queue to its effect. A node runs several of them.
//!
//! ```text
//!   holding the baton (one worker)                     then, beside the others           in turn
//!   queue -> version -> decide -> append to the log -> pass the baton on -> sync  ->  apply, publish, answer
//! ```
//!
//! So while one worker forms a batch the others wait for their syncs: with three workers two syncs are
//! in flight and the next batch fills meanwhile; and an idle system commits at once, on one thread,
//! without waiting for company.
//!
//! Nothing is applied before it is durable. A batch whose append fails (the disk is full) leaves no
//! trace; one whose sync fails has an unknown fate: its clients are told so, and the node takes no
//! more commits.

use crate::batch::{Accepted, Decided, ENTRY_FORMAT, Refused, decide};
use crate::events;
use crate::metrics::Heat;
use crate::queue::{Submitted, Work};
use crate::shared::{Front, Shared};
use plinth_env::reply::Promise;
use plinth_log::Position;
use plinth_storage::{Change, Storage};
use plinth_types::{CommitReply, Error, MutationList, Result, Version, planted, probe};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// How many rows of forgotten versions are given back with each batch: more than a batch makes, on average.
const FORGET_ROWS: usize = 4096;

/// How long a batch waits before it looks for room in the window again.
const PAUSE_WHILE_FULL: Duration = Duration::from_millis(5);

/// A batch between its append and its effect.
struct Flight {
    version: Version,
    ticket: u64,
    /// `None`: the database lives in memory alone.
    position: Option<Position>,
    lease: Option<Version>,
    decided: Decided,
    /// How long it took to get so far.
    formed: Duration,
    span: tracing::Span,
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a commit worker, whose end can't be waited for here.
pub(crate) fn is_worker_thread() -> bool {
    IS_WORKER.get()
}

/// Works until the queue is closed and empty.
pub(crate) async fn run(shared: Arc<Shared>) {
    IS_WORKER.set(true);
    loop {
        let mut front = shared.front.take().await;
        match shared.queue.next().await {
            Work::Closed => return,
            Work::Chores => crate::chores::run(&shared, &mut front).await,
            Work::Batch(batch) => {
                wait_for_room(&shared, &mut front).await;
                let flight = begin(&shared, &mut front, batch).await;
                drop(front);
                if let Some(flight) = flight {
                    finish(&shared, flight).await;
                }
            }
        }
    }
}

/// While the memory for the window is full, lets versions go by instead of a batch, so that it is emptied.
async fn wait_for_room(shared: &Shared, front: &mut Front) {
    while shared.storage.fullness() >= 1.0 && shared.storage.refusal().is_none() {
        if shared.health.failure().is_some() || shared.health.is_closing() {
            return;
        }
        probe!("pipeline: batch waits for room in the window");
        shared.env.sleep(PAUSE_WHILE_FULL).await;
        let newest = shared.versions.follow(shared.env.now(), |version| shared.storage.publish(version));
        shared.waiting.reached(newest);
        let begin = shared.window_begin(newest);
        front.resolver.forget_before(begin);
        shared.storage.note_elsewhere(front.resolver.memory());
        shared.storage.forget_before(begin, FORGET_ROWS);
    }
}

/// Decides and appends a batch. `None` if nothing of it can take effect; then its clients have been told.
async fn begin(shared: &Shared, front: &mut Front, batch: Vec<Submitted>) -> Option<Flight> {
    if let Some(error) = shared.health.failure().or_else(|| shared.storage.refusal()) {
        batch.into_iter().for_each(|submitted| submitted.promise.send(Err(error.clone())));
        return None;
    }
    let began = shared.env.now();
    let assigned = shared.versions.assign(began);
    let version = assigned.version;
    let span = events::batch(version, batch.len());
    front.resolver.forget_before(shared.window_begin(version));
    let notes = (shared.wall_clock_seconds(), shared.config.slow);
    let mut decided = decide(batch, version, notes, &front.metadata, &mut front.resolver);
    shared.storage.note_elsewhere(front.resolver.memory());
    count_refused(shared, &decided.refused);
    span.record("conflicts", decided.refused.len());
    notice(shared, version, &mut decided);
    for refused in decided.refused.drain(..) {
        refused.promise.send(refused.answer);
    }
    if decided.accepted.is_empty() {
        shared.versions.abandon();
        return None;
    }
    let was_sound = is_log_sound(shared);
    let position = match append(shared, front, version, assigned.lease, &decided).await {
        Ok(position) => position,
        Err(error) if was_sound && !is_log_sound(shared) => {
            probe!("pipeline: append failed and left bytes behind");
            // Bytes were written and could not be taken back: a restart may find the batch.
            leave_unknown(shared, decided.accepted, error);
            return None;
        }
        Err(error) => {
            probe!("pipeline: append refused");
            shared.versions.abandon();
            shared.counters.refused.add(decided.accepted.len() as u64);
            decided.accepted.into_iter().for_each(|accepted| accepted.promise.send(Err(error.clone())));
            return None;
        }
    };
    if let Some(metadata) = &decided.metadata {
        front.metadata = metadata.clone();
    }
    let ticket = front.next_ticket;
    front.next_ticket += 1;
    let formed = shared.env.now().saturating_sub(began);
    Some(Flight { version, ticket, position, lease: assigned.lease, decided, formed, span })
}

fn is_log_sound(shared: &Shared) -> bool {
    shared.log.as_ref().is_none_or(|log| log.view.check().is_ok())
}

/// The fate of a batch is known only after a restart, and the node takes no more commits.
///
/// Its version is not abandoned: read versions stay below it for good. If they followed the clock beyond it, a
/// reader could miss at a later version what a restart then shows at an earlier one.
fn leave_unknown(shared: &Shared, accepted: Vec<Accepted>, cause: Error) {
    let error = Error::commit_unknown_result().with_detail(cause.to_string());
    shared.health.fail(cause);
    accepted.into_iter().for_each(|accepted| accepted.promise.send(Err(error.clone())));
}

async fn append(
    shared: &Shared,
    front: &mut Front,
    version: Version,
    lease: Option<Version>,
    decided: &Decided,
) -> Result<Option<Position>> {
    let Some(log) = &mut front.log else { return Ok(None) };
    if let Some(lease) = lease {
        log.extend_lease(lease).await?;
    }
    let mut parts: Vec<&[u8]> = Vec::with_capacity(decided.accepted.len() + 2);
    parts.push(&[ENTRY_FORMAT]);
    parts.extend(decided.accepted.iter().map(|accepted| accepted.mutations.as_bytes()));
    parts.push(decided.records.as_bytes());
    let position = log.append(version, &parts).await?;
    shared.counters.bytes_written.add(parts.iter().map(|part| part.len() as u64).sum());
    Ok(Some(position))
}

/// Makes a batch durable and, in its turn, visible.
async fn finish(shared: &Shared, flight: Flight) {
    if flight.decided.accepted.len() > 1 {
        probe!("pipeline: several transactions in a batch");
    }
    if planted!("visible before it is durable") {
        shared.turns.wait(flight.ticket).await;
        drop(take_effect(shared, &flight).await);
    }
    let began = shared.env.now();
    let synced = match (&shared.log, flight.position) {
        (Some(log), Some(position)) => {
            let span = events::log_sync(&flight.span);
            let synced = log.syncer.sync(position).await;
            drop(span);
            shared.counters.metrics.sync.record(shared.env.now().saturating_sub(began), 1);
            synced
        }
        _ => Ok(()),
    };
    shared.turns.wait(flight.ticket).await;
    let turn = shared.env.now();
    if let Err(error) = synced {
        shared.health.fail(error);
    }
    if let Some(cause) = shared.health.failure() {
        shared.turns.pass(flight.ticket);
        return leave_unknown(shared, flight.decided.accepted, cause);
    }
    let is_early = planted!("visible before it is durable");
    let span = events::apply(&flight.span);
    let effect = if is_early { Ok(Vec::new()) } else { take_effect(shared, &flight).await };
    drop(span);
    shared.turns.pass(flight.ticket);
    let fired = match effect {
        Ok(fired) => fired,
        // It is in the log, and a restart will apply it.
        Err(cause) => return leave_unknown(shared, flight.decided.accepted, cause),
    };
    let version = flight.version;
    let took = flight.formed + shared.env.now().saturating_sub(began);
    plinth_usdt::commit(version, flight.decided.accepted.len(), took);
    for Accepted { batch_index, promise, .. } in flight.decided.accepted {
        promise.send(Ok(CommitReply::Committed { version, batch_index }));
    }
    fired.into_iter().for_each(|promise| promise.send(Ok(version)));
    shared.waiting.reached(version);
    let waits = &shared.counters.metrics.waits;
    waits.sync.note(turn.saturating_sub(began));
    waits.work.note(flight.formed + shared.env.now().saturating_sub(turn));
}

/// Applies and publishes a durable batch, in its turn. Gives the watches that it fires.
///
/// # Errors
/// If what an atomic operation changes could not be read. Then nothing was applied, and the node takes no more commits.
async fn take_effect(shared: &Shared, flight: &Flight) -> Result<Vec<Promise<Version>>> {
    let version = flight.version;
    let mutations = || {
        let lists = flight.decided.accepted.iter().map(|accepted| &accepted.mutations);
        lists.chain([&flight.decided.records]).flat_map(MutationList::iter)
    };
    let prepared = shared.storage.prepare(&mut mutations());
    if let Err(error) = prepared.await {
        shared.health.fail(error.clone());
        return Err(error);
    }
    let mut fired = Vec::new();
    apply(shared, version, &mut mutations(), &mut fired);
    shared.storage.publish(version);
    if let Some(lease) = flight.lease {
        shared.versions.leased(lease);
    }
    match &flight.decided.metadata {
        Some(metadata) => shared.visible.change(metadata, || shared.versions.commit(version)),
        None => shared.versions.commit(version),
    }
    shared.storage.forget_before(shared.window_begin(version), FORGET_ROWS);
    let counters = &shared.counters;
    counters.batches.add(1);
    counters.committed.add(flight.decided.accepted.len() as u64);
    counters
        .mutations
        .add(flight.decided.accepted.iter().map(|accepted| accepted.mutations.len() as u64).sum());
    Ok(fired)
}

fn apply(
    shared: &Shared,
    version: Version,
    mutations: &mut dyn Iterator<Item = plinth_types::MutationRef<'_>>,
    fired: &mut Vec<Promise<Version>>,
) {
    if shared.watches.is_empty() {
        return shared.storage.apply(version, mutations, None);
    }
    let mut changed = |change: Change<'_>| match change {
        Change::Key(key, value) => shared.watches.changed(key, value, fired),
        Change::Range(begin, end) => shared.watches.cleared(begin, end, fired),
    };
    shared.storage.apply(version, mutations, Some(&mut changed));
}

/// Notes what is hot and what was slow: of the writes one a batch.
fn notice(shared: &Shared, version: Version, decided: &mut Decided) {
    let hot = &shared.counters.metrics.hot;
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

fn count_refused(shared: &Shared, refused: &[Refused]) {
    let counters = &shared.counters;
    for refused in refused {
        match &refused.answer {
            Ok(_) => counters.conflicted.add(1),
            Err(error) if *error == Error::transaction_too_old() => counters.too_old.add(1),
            Err(_) => counters.refused.add(1),
        }
    }
}
