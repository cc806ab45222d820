//! Checkpoints: the data at one version in a file, so that the log before it can go.
//!
//! A task writes one whenever the log has grown by enough since the last. It reads the index at a
//! pinned version, like any reader, while commits go on. The last checkpoint is removed only when the
//! next one is durable.

use crate::metrics::Rated;
use crate::replica::Replica;
use plinth_storage::Storage;
use plinth_storage::checkpoint::{self, Pace};
use plinth_types::{Error, Result, Version, planted, probe};
use std::sync::Arc;
use std::time::Duration;

/// The name under which checkpoints hold back the log.
pub(crate) const CONSUMER: &str = "checkpoint";

/// How often the log's size is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// After a failed checkpoint (a full disk, say) the next is tried after this.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Bytes a second at which a checkpoint is written at least. The disk is left to the commits then for nine tenths of the time.
const BYTES_PER_SECOND: u64 = 64 << 20;

/// Writes checkpoints until the node closes.
pub(crate) async fn run(replica: Arc<Replica>) {
    let mut last_bytes = replica.counters.bytes_written.get();
    // What earlier runs left to replay counts too, or a process that often starts again would never write a checkpoint.
    let mut left_before = replica.log.as_ref().map_or(0, |log| log.bytes());
    while !replica.health.is_over() {
        replica.pause(&replica.checkpoint_due, PERIOD).await;
        assert!(!planted!("the task for checkpoints panics"), "planted");
        let written = replica.counters.bytes_written.get();
        if left_before + written - last_bytes < threshold(&replica) || replica.health.is_over() {
            continue;
        }
        match write(&replica).await {
            Ok(_) => (last_bytes, left_before) = (written, 0),
            Err(_) => {
                probe!("pipeline: checkpoint failed");
                replica.pause(&replica.checkpoint_due, PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}

/// The log may grow to twice the data, so that a small database is not written over and over.
fn threshold(replica: &Replica) -> u64 {
    let data = replica.storage.memory().data;
    replica.config.checkpoint_bytes.max(2 * data)
}

/// No faster than needed, so that the syncs of commits seldom meet a checkpoint at the disk; but as fast as the log grows, so that
/// the log stays bounded.
fn pace(replica: &Replica) -> Pace {
    let log_grows = replica.counters.metrics.rates.hz(Rated::BytesWritten);
    Pace { bytes_per_second: Some(BYTES_PER_SECOND.max(log_grows as u64)), ..Pace::default() }
}

/// Writes a checkpoint at the newest version, then lets go of what it replaces.
pub(crate) async fn write(replica: &Replica) -> Result<Version> {
    let Some(directory) = &replica.directory else {
        return Err(Error::unsupported_operation().with_detail("a database in memory has no checkpoints"));
    };
    let version = replica.newest();
    let path = directory.checkpoint_path();
    let identity = directory.checkpoint_identity();
    let Some(storage) = replica.storage.memory_engine() else { return flush(replica).await };
    let waits = &replica.counters.metrics.waits;
    let written = checkpoint::write(&replica.env, &path, identity, storage, version, pace(replica)).await?;
    waits.checkpoint_step.note(written.longest_step);
    if let Some(log) = &replica.log {
        let too_new = planted!("checkpoints let go of newer log").then(|| replica.newest());
        log.pop(CONSUMER, too_new.unwrap_or(version))?;
    }
    let removed = checkpoint::remove_others(&replica.env, &path, version).await?;
    waits.checkpoint_step.note(removed.longest_step);
    replica.counters.checkpoints.add(1);
    probe!("pipeline: checkpoint written");
    Ok(version)
}

/// Moves all that has left the window into the tables. That is what the engine `ssd` has for a checkpoint.
async fn flush(replica: &Replica) -> Result<Version> {
    let Some(storage) = replica.storage.ssd_engine() else { return Err(Error::internal_error()) };
    storage.flush().await?;
    let version = storage.durable_version();
    if let Some(log) = &replica.log {
        log.pop(CONSUMER, version)?;
    }
    Ok(version)
}

/// Lets go of the log that the engine `ssd` needs no longer, until the node closes.
pub(crate) async fn follow_tables(replica: Arc<Replica>) {
    let mut popped = 0;
    while !replica.health.is_over() {
        replica.pause(&replica.checkpoint_due, PERIOD).await;
        assert!(!planted!("the task for checkpoints panics"), "planted");
        let (Some(storage), Some(log)) = (replica.storage.ssd_engine(), &replica.log) else { return };
        let too_new = planted!("flushes let go of newer log").then(|| replica.newest());
        let version = too_new.unwrap_or_else(|| storage.durable_version());
        if version > popped && log.pop(CONSUMER, version).is_ok() {
            replica.counters.checkpoints.add(u64::from(popped > 0));
            popped = version;
        }
    }
}
