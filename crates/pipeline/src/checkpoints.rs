//! Checkpoints: the data at one version in a file, so that the log before it can go.
//!
//! A task writes one whenever the log has grown by enough since the last. It reads the index at a
//! pinned version, like any reader, while commits go on. The last checkpoint is removed only when
//! the next one is durable.

use crate::failure::{NodeError, NodeResult};
use crate::identity::EngineKind;
use crate::metrics::Rated;
use crate::renewal::Renewal;
use crate::replica::Replica;
use crate::space::{LEAST_LOG, Level, with_reserve};
use plinth_env::Open;
use plinth_storage::{Flushed, Pace, checkpoint};
use plinth_types::{Version, planted, probe};
use std::sync::Arc;
use std::time::Duration;

/// The name under which checkpoints hold back the log.
pub(crate) const CONSUMER: &str = "checkpoint";

/// How often the log's size is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// A checkpoint that has failed, or for which there is no room, is tried again after this unless
/// the disk says otherwise.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Bytes a second at which a checkpoint is written at least. The disk is left to the commits then
/// for nine tenths of the time.
const BYTES_PER_SECOND: u64 = 64 << 20;

/// What the task that writes checkpoints remembers of the last one.
struct Last {
    /// What had been written to the log before it, less what earlier runs left to replay: that
    /// counts too, or a process that often starts again would never write a checkpoint.
    written: u64,
    /// About how large it is.
    data: u64,
    /// Nothing is tried before this, unless somebody asks for it.
    not_before: Duration,
    renewal: Renewal,
}

/// Writes checkpoints until the node closes.
pub(crate) async fn run(replica: Arc<Replica>) {
    let left_before = replica.log.as_ref().map_or(0, |log| log.bytes());
    let written = replica.counters.bytes_written.get().wrapping_sub(left_before);
    let data = replica.storage.memory().data.max(bytes_of_last(&replica).await);
    let renewal = Renewal::begin(&replica);
    let mut last = Last { written, data, not_before: Duration::ZERO, renewal };
    while !replica.health.is_over() {
        replica.pause(&replica.space.checkpoint.due, PERIOD).await;
        assert!(!planted!("the task for checkpoints panics"), "planted");
        replica.space.keep_reserve().await;
        last.renewal.look(&replica);
        if !is_due(&replica, &last) || replica.health.is_over() {
            continue;
        }
        let (written, data) = (replica.counters.bytes_written.get(), replica.storage.memory().data);
        let made = make_room_and_write(&replica).await;
        replica.note_checkpoint(&made);
        match made {
            Ok(_) => {
                (last.written, last.data, last.not_before) = (written, data, Duration::ZERO);
                last.renewal.has_checkpoint();
            }
            Err(_) => {
                probe!("pipeline: checkpoint failed");
                last.not_before = replica.env.now() + PAUSE_AFTER_FAILURE;
            }
        }
        replica.space.serve(written);
    }
}

/// How long the newest checkpoint is that is there at a start: more than there is now if much was
/// cleared since it was written. What can't be looked at counts as nothing.
async fn bytes_of_last(replica: &Replica) -> u64 {
    let Some(directory) = &replica.directory else { return 0 };
    let found = checkpoint::list(&replica.env, &directory.checkpoint_path()).await;
    let Some((_, path)) = found.unwrap_or_default().pop() else { return 0 };
    let file = replica.env.files().open(&path, Open::Read).await;
    match file {
        Ok(file) => file.len().await.unwrap_or(0),
        Err(_) => 0,
    }
}

/// Whether it is time for a checkpoint.
fn is_due(replica: &Replica, last: &Last) -> bool {
    let (space, now) = (&replica.space, replica.env.now());
    let lacked_room =
        replica.space.checkpoint.trouble().as_ref().is_some_and(NodeError::is_disk_full);
    if lacked_room && space.level() != Level::Kept && space.fits_at_once() {
        // There is room now for the one that failed.
        return true;
    }
    let grown = replica.counters.bytes_written.get().wrapping_sub(last.written);
    let wanted = match space.level() {
        Level::Plenty => grown >= threshold(replica),
        Level::Low => space.is_asked() || grown >= space.log_bound(threshold(replica)),
        // Also one that is smaller than the last makes room.
        Level::Kept => {
            space.is_asked()
                || grown >= LEAST_LOG
                || replica.storage.memory().data < last.data / 8 * 7
        }
    };
    let has_room = space.level() == Level::Plenty && space.fits_at_once();
    let wanted = wanted || (last.renewal.wants_checkpoint() && has_room);
    // Without room for it it would only fill the disk to the brim; but that is an estimate.
    wanted && (now >= last.not_before || (space.level() != Level::Plenty && space.fits()))
}

/// A checkpoint, with the reserve's room if it takes that.
async fn make_room_and_write(replica: &Replica) -> NodeResult<Version> {
    if !replica.space.fits_at_once() {
        replica.space.met_full_disk().await;
    }
    with_reserve(&replica.space, || write(replica)).await
}

/// The log may grow to twice the data, so that a small database is not written over and over.
fn threshold(replica: &Replica) -> u64 {
    let data = replica.storage.memory().data;
    replica.config.checkpoint_bytes.max(2 * data)
}

/// No faster than needed, so that the syncs of commits seldom meet a checkpoint at the disk; but as
/// fast as the log grows, so that the log stays bounded.
fn pace(replica: &Replica) -> Pace {
    if replica.space.level() != Level::Plenty {
        return Pace::default();
    }
    let log_grows = replica.counters.metrics.rates.hz(Rated::BytesWritten);
    Pace { bytes_per_second: Some(BYTES_PER_SECOND.max(log_grows as u64)), ..Pace::default() }
}

/// Brings into files what the engine can, at once, then lets go of the log that they replace. Gives
/// up to which version they have everything: with `memory` a checkpoint of the last entry, with
/// `ssd` tables of all that has left the window.
pub(crate) async fn write(replica: &Replica) -> NodeResult<Version> {
    if replica.directory.is_none() {
        return Err(NodeError::Unsupported("a database in memory has no checkpoints".into()));
    }
    let flushing = replica.writer().flush(pace(replica));
    let flushed = flushing.await;
    // Also if an old file could not be removed behind a checkpoint that is durable.
    let durable = replica.storage.durable().version;
    assert!(durable <= replica.storage.newest(), "a checkpoint has more than was applied");
    if let Some(log) = &replica.log {
        let is_newer = replica.config.engine == EngineKind::Memory
            && planted!("checkpoints let go of newer log");
        log.pop(CONSUMER, if is_newer { replica.newest() } else { durable })?;
    }
    let flushed = flushed?;
    replica.counters.metrics.waits.checkpoint_step.note(flushed.longest_step);
    if replica.config.engine == EngineKind::Memory {
        replica.counters.checkpoints.add(1);
        probe!("pipeline: checkpoint written");
    }
    Ok(durable)
}

/// Lets go of the log that the engine `ssd` needs no longer, until the node closes; has it flushed
/// where the disk is in want of room.
pub(crate) async fn follow_tables(replica: Arc<Replica>) {
    let mut popped = 0;
    // Up to which version flushes are to go for those who ask for room.
    let mut wanted: Option<(Version, u64)> = None;
    let mut renewal = Renewal::begin(&replica);
    while !replica.health.is_over() {
        replica.pause(&replica.space.checkpoint.due, PERIOD).await;
        assert!(!planted!("the task for checkpoints panics"), "planted");
        let (storage, Some(log)) = (&replica.storage, &replica.log) else { return };
        let space = &replica.space;
        space.keep_reserve().await;
        renewal.look(&replica);
        if space.is_asked() && wanted.is_none() {
            wanted = Some((replica.newest(), replica.counters.bytes_written.get()));
        }
        let is_long = space.level() == Level::Low && log.bytes() >= space.log_bound(u64::MAX);
        if wanted.is_some() || is_long || space.level() == Level::Kept {
            let oldest = storage.oldest();
            let flushed = with_reserve(&replica.space, || flush(&replica)).await;
            replica.note_checkpoint(&flushed);
            if let Some((version, written)) = wanted
                && (flushed.is_err() || oldest >= version)
            {
                space.serve(written);
                wanted = None;
            }
        }
        let too_new = planted!("flushes let go of newer log").then(|| replica.newest());
        let version = too_new.unwrap_or_else(|| storage.durable().version);
        assert!(version <= replica.newest(), "the log goes beyond what was applied");
        if version > popped && log.pop(CONSUMER, version).is_ok() {
            replica.counters.checkpoints.add(u64::from(popped > 0));
            popped = version;
        }
    }
}

/// Flushes at the pace of somebody who has time. The writer is let go of before.
fn flush(replica: &Replica) -> impl Future<Output = NodeResult<Flushed>> + use<> {
    let flushed = replica.writer().flush(Pace::default());
    async move { Ok(flushed.await?) }
}
