//! Backpressure: what becomes of a batch of commits before it is decided. The one place where that
//! is asked.
//!
//! ```text
//!   batch ──▶ ask ─┬─ go
//!                  ├─ slower, because of X: wait a little, let versions go by, ask again
//!                  └─ refused, because of Y: those that write rows (or all) are answered
//! ```
//!
//! | cause | slower | refused |
//! |---|---|---|
//! | the node has failed | | all |
//! | memory for rows is full (`memory`) | | those that write rows |
//! | the disk is full | while room is being made | those that write rows |
//! | the window is full, or takes the last of the memory for rows | while versions leave it | |
//! | tables can't be written, or the disk doesn't answer, and the window is full (`ssd`) | | all |
//! | the disk doesn't answer what the log waits for | they wait for it, and that is told | |
//!
//! Those that only clear, and those that write the system's keys, by which operators help
//! themselves, are taken in all cases in which room is what lacks. How fast transactions *begin* is
//! another matter, of the gate: it looks at the same gauges before they are at their end.
//!
//! Always: one cause is told at a time, the first in the table.

use crate::batch::internal_request;
use crate::chores;
use crate::failure::NodeError;
use crate::leader::{Batcher, Leader};
use crate::queue::{Answer, Submitted};
use crate::refusals::Cause;
use crate::replica::Replica;
use crate::space::Level;
use plinth_env::reply::promise;
use plinth_types::system::NORMAL_END;
use plinth_types::{CommitRequest, MutationList, MutationType, probe};
use std::time::Duration;

/// What a row takes in memory besides its key and its value: its head, its place in a leaf,
/// rounding.
pub(crate) const ROW_BYTES: u64 = 75;
/// How many rows of forgotten versions are given back while a batch waits.
const FORGET_ROWS: usize = 4096;
/// How long a batch waits before it asks again.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a member may hear of no leader before that is told: longer than an election takes.
const ELECTION: Duration = Duration::from_secs(5);
/// How long a batch waits for room on the disk: longer than versions stay in the window.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much longer than the window a batch waits for what was overwritten.
const BEHIND_WINDOW: Duration = Duration::from_secs(5);
/// How long after room was made the files that are in nobody's way any more may take to go.
const SETTLING: Duration = Duration::from_millis(500);
/// From this share of the memory for rows on, pinned snapshots must go that take much of it.
const ENDS_SNAPSHOTS: f64 = 0.875;
/// Keys of the system with this prefix are layers' data.
const LAYERS: &[u8] = b"\xff\x02";

/// What the answer is.
enum Verdict {
    Go,
    Slower(Cause),
    /// Refused; whether that holds for those too that write no rows.
    Refused {
        cause: Cause,
        error: NodeError,
        all: bool,
    },
}

/// Looks how much memory rows take; gives it as a share of the bound, 0 where there is none. What
/// was overwritten lately is part of it, and leaves by itself: commits wait for that.
pub(crate) fn look_at_memory(replica: &Replica) -> f64 {
    let Some(bound) = replica.config.rows_bound() else { return 0.0 };
    let memory = replica.storage.memory();
    let taken = memory.data + memory.window + ROW_BYTES * replica.storage.count();
    let stays = taken.saturating_sub(memory.window.saturating_sub(memory.pinned));
    replica.health.refusals.set_full(stays >= bound, taken >= bound);
    taken as f64 / bound.max(1) as f64
}

/// Ends the oldest of the snapshots that clients hold, if what they keep is about to have others
/// wait, or be refused, who write rows. What that sets free goes little by little: to be called
/// now and then.
pub(crate) fn end_snapshots(replica: &Replica) {
    let keeps_memory = replica.config.rows_bound().is_some_and(|bound| {
        replica.storage.memory().pinned >= bound / 16 && look_at_memory(replica) >= ENDS_SNAPSHOTS
    });
    let keeps_disk = || {
        let kept = || replica.storage.tables().map_or(0, |tables| tables.pinned_bytes);
        replica.space.level() == Level::Kept && kept() > 0
    };
    if (keeps_memory || keeps_disk())
        && let Some(version) = replica.storage.held().end_oldest(replica.env.now())
    {
        crate::events::snapshot_ended(version);
    }
}

fn ask(replica: &Replica, disk: Level) -> Verdict {
    if let Some(error) = replica.health.failure() {
        return Verdict::Refused { cause: Cause::Failed, error, all: true };
    }
    if replica.health.refusals.is_memory_full() {
        return Verdict::Refused {
            cause: Cause::Memory,
            error: memory_refusal(replica),
            all: false,
        };
    }
    if disk == Level::Kept {
        return Verdict::Slower(Cause::Disk);
    }
    if replica.storage.fullness() < 1.0 && !replica.health.refusals.is_window_full() {
        return Verdict::Go;
    }
    match replica.tables_trouble() {
        Some(error) => Verdict::Refused { cause: Cause::Tables, error, all: true },
        None => Verdict::Slower(Cause::Window),
    }
}

/// Why a commit that writes rows would be refused at this moment, or would wait for who knows how
/// long, if it would.
pub(crate) fn refusal(replica: &Replica) -> Option<(Cause, NodeError)> {
    match ask(replica, replica.space.level()) {
        Verdict::Refused { cause, error, .. } => Some((cause, error)),
        Verdict::Slower(Cause::Disk)
            if !replica.space.may_help(replica.counters.bytes_written.get()) =>
        {
            Some((Cause::Disk, replica.space.refusal(0)))
        }
        Verdict::Go
            if replica.space.level() != Level::Plenty
                && let Some(bytes) =
                    replica.health.refusals.refused_for_disk(replica.env.now()) =>
        {
            Some((Cause::Disk, replica.space.refusal(bytes)))
        }
        Verdict::Go | Verdict::Slower(_) => silent(replica).or_else(|| leaderless(replica)),
    }
}

/// A disk that doesn't answer what commits wait for. They wait elsewhere while another node leads.
fn silent(replica: &Replica) -> Option<(Cause, NodeError)> {
    if replica.health.follows() {
        return None;
    }
    replica.log_silence().map(|error| (Cause::Silent, error))
}

/// A member that has heard of no leader for a while: whoever asks it waits, as for as long as there
/// is no majority.
fn leaderless(replica: &Replica) -> Option<(Cause, NodeError)> {
    let silent = replica.health.leaderless_for(replica.env.now())?;
    (silent >= ELECTION).then(|| {
        let what = format!(
            "this server has heard of no leader for {} s: without a majority of its cluster commits \
             and reads wait",
            silent.as_secs()
        );
        (Cause::NoLeader, NodeError::Behind(Some(what.into())))
    })
}

/// Holds a batch back for as long as it has to be, and gives what of it may go on. The caller holds
/// the batch lock.
pub(crate) async fn admit(
    leader: &Leader,
    batcher: &mut Batcher,
    batch: Vec<Submitted>,
) -> Vec<Submitted> {
    let replica = &*leader.replica;
    let refusals = &replica.health.refusals;
    let mut waiting = ForRoom::default();
    let is_empty = |submitted: &Submitted| submitted.request.mutations.is_empty();
    if leader.term.is_some() && batch.iter().all(is_empty) {
        // What moves versions on is what empties the window.
        return batch;
    }
    look_at_memory(replica);
    loop {
        let disk = look_at_disk(replica, &batch).await;
        let now = replica.env.now();
        let cause = match ask(replica, disk) {
            Verdict::Go => {
                if disk != Level::Plenty && batch.iter().any(|it| writes_rows(&it.request)) {
                    refusals.note_taken();
                }
                return batch;
            }
            Verdict::Refused { cause, error, all } => {
                return refuse(replica, batch, cause, &error, all);
            }
            // What only clears is what makes room.
            Verdict::Slower(Cause::Disk | Cause::Window)
                if (disk == Level::Kept || refusals.is_window_full())
                    && !batch.iter().any(|submitted| writes_rows(&submitted.request)) =>
            {
                return batch;
            }
            Verdict::Slower(Cause::Disk) if !waiting.may_help(replica, now) => {
                let bytes = bytes_of(&batch);
                refusals.note_disk(bytes, now);
                return refuse(replica, batch, Cause::Disk, &replica.space.refusal(bytes), false);
            }
            Verdict::Slower(Cause::Window)
                if refusals.is_window_full() && waiting.is_in_vain(replica, now) =>
            {
                refusals.set_stuck();
                continue;
            }
            Verdict::Slower(cause) => cause,
        };
        if replica.health.is_closing() || leader.is_over() {
            return batch;
        }
        probe!("pipeline: batch waits for room");
        replica.env.sleep(PAUSE).await;
        if leader.term.is_some() && leader.is_stale() && leader.in_flight.is_empty() {
            leader.queue.put_back(batch);
            return vec![moving_versions_on(replica)];
        }
        let_versions_go_by(leader, batcher);
        if cause == Cause::Disk || refusals.is_window_full() {
            // What was let go of leaves the disk once the log says so; and versions go by for as
            // long as the lease on them reaches.
            chores::tend(leader, batcher).await;
        }
    }
}

/// How much room the disk has for a batch. On one with plenty the last look is good enough.
async fn look_at_disk(replica: &Replica, batch: &[Submitted]) -> Level {
    match replica.space.level() {
        Level::Plenty => Level::Plenty,
        Level::Low | Level::Kept => replica.space.look(bytes_of(batch)).await,
    }
}

fn bytes_of(batch: &[Submitted]) -> u64 {
    batch.iter().map(|submitted| submitted.request.size() as u64).sum()
}

/// While the memory for the window is full, versions go by instead of a batch, so that it is
/// emptied.
fn let_versions_go_by(leader: &Leader, batcher: &mut Batcher) {
    let replica = &*leader.replica;
    let publish = |version| replica.storage.publish(version);
    let newest = leader.versions.follow(&replica.visible.applied, replica.env.now(), publish);
    replica.waiting.reached(newest);
    let begin = replica.window_begin(newest);
    batcher.resolver.forget_before(begin);
    replica.storage.note_elsewhere(batcher.resolver.memory());
    replica.writer().forget_before(begin, FORGET_ROWS);
    look_at_memory(replica);
}

/// In a cluster entries alone move versions: this one does nothing else, and nobody waits for it.
fn moving_versions_on(replica: &Replica) -> Submitted {
    let request = internal_request(MutationList::new(), replica.newest());
    let (answer, _) = promise();
    Submitted { request, changes_members: false, answer: Answer::new(answer) }
}

/// A batch that waits for room.
#[derive(Default)]
struct ForRoom {
    began: Option<Duration>,
    asked: Option<u64>,
    served: Option<Duration>,
}

impl ForRoom {
    /// Whether it has waited for so long that all that was overwritten before should have left the
    /// window: something keeps it.
    fn is_in_vain(&mut self, replica: &Replica, now: Duration) -> bool {
        let began = *self.began.get_or_insert(now);
        let window = u64::try_from(replica.config.window).unwrap_or(0);
        now > began + Duration::from_micros(window) + BEHIND_WINDOW
    }

    /// Whether there is hope: room is being made, or was a moment ago.
    fn may_help(&mut self, replica: &Replica, now: Duration) -> bool {
        if replica.health.is_closing() {
            return false;
        }
        let began = *self.began.get_or_insert(now);
        let Some(asked) = self.asked else {
            if !replica.space.may_help(replica.counters.bytes_written.get()) {
                // What a checkpoint has just let go of may be on its way.
                return replica.space.was_served_within(SETTLING, now);
            }
            self.asked = Some(replica.space.ask());
            return true;
        };
        if self.served.is_none() && replica.space.is_served(asked) {
            self.served = Some(now);
        }
        now < began + PATIENCE && self.served.is_none_or(|served| now < served + SETTLING)
    }
}

fn refuse(
    replica: &Replica,
    batch: Vec<Submitted>,
    cause: Cause,
    error: &NodeError,
    all: bool,
) -> Vec<Submitted> {
    let (refused, taken): (Vec<_>, Vec<_>) =
        batch.into_iter().partition(|submitted| all || writes_rows(&submitted.request));
    if !refused.is_empty() {
        probe!("pipeline: commits refused");
        let count = refused.len() as u64;
        replica.health.refusals.note(cause, error, count, replica.env.now());
        replica.counters.refused.add(count);
        refused.into_iter().for_each(|submitted| submitted.answer.send(Err(error.clone())));
    }
    taken
}

/// A batch could not be appended.
pub(crate) fn note_not_appended(replica: &Replica, error: &NodeError, refused: u64) {
    let cause = if error.is_disk_full() { Cause::Disk } else { Cause::Log };
    replica.health.refusals.note(cause, error, refused, replica.env.now());
}

fn writes_rows(request: &CommitRequest) -> bool {
    // What clears may have an id, whose row is small beside the room that it makes.
    let is_only_id = request.mutations.is_empty() && request.idempotency_id.is_some();
    is_only_id || any_row_written(&request.mutations)
}

/// Whether any mutation writes a row of a user's or a layer's.
pub(crate) fn any_row_written(mutations: &MutationList) -> bool {
    mutations.iter().any(|mutation| {
        let clears =
            matches!(mutation.kind, MutationType::ClearRange | MutationType::CompareAndClear);
        !clears && (mutation.param1 < NORMAL_END || mutation.param1.starts_with(LAYERS))
    })
}

#[cold]
fn memory_refusal(replica: &Replica) -> NodeError {
    let bound = replica.config.memory_bytes.unwrap_or_default();
    let what = format!(
        "the rows take all of the {bound} bytes of memory that they may take (--memory): until some are cleared, no commit that \
         writes any is taken"
    );
    NodeError::MemoryFull(what.into())
}
