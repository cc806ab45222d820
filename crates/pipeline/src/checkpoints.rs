//! Checkpoints: the data at one version in a file, so that the log before it can go.
//!
//! A task writes one whenever the log has grown by enough since the last. It reads the index at a
//! pinned version, like any reader, while commits go on. The last checkpoint is removed only when the
//! next one is durable.

use crate::metrics::Rated;
use crate::shared::{Directory, Shared};
use plinth_env::Env;
use plinth_storage::checkpoint::{self, Pace};
use plinth_storage::{MemoryStorage, Storage};
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
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut last_bytes = shared.counters.bytes_written.get();
    // What earlier runs left to replay counts too, or a process that often starts again would never write a checkpoint.
    let mut left_before = shared.log.as_ref().map_or(0, |log| log.view.bytes());
    while !shared.health.is_closing() {
        shared.pause(&shared.bells.checkpoint, PERIOD).await;
        let written = shared.counters.bytes_written.get();
        if left_before + written - last_bytes < threshold(&shared) || shared.health.is_closing() {
            continue;
        }
        match write(&shared).await {
            Ok(_) => (last_bytes, left_before) = (written, 0),
            Err(_) => {
                probe!("pipeline: checkpoint failed");
                shared.pause(&shared.bells.checkpoint, PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}

/// The log may grow to twice the data, so that a small database is not written over and over.
fn threshold(shared: &Shared) -> u64 {
    let data = shared.storage.memory().data;
    shared.config.checkpoint_bytes.max(2 * data)
}

/// No faster than needed, so that the syncs of commits seldom meet a checkpoint at the disk; but as fast as the log grows, so that
/// the log stays bounded.
fn pace(shared: &Shared) -> Pace {
    let log_grows = shared.counters.metrics.rates.hz(Rated::BytesWritten);
    Pace { bytes_per_second: Some(BYTES_PER_SECOND.max(log_grows as u64)), ..Pace::default() }
}

/// Writes a checkpoint at the newest version, then lets go of what it replaces.
pub(crate) async fn write(shared: &Shared) -> Result<Version> {
    let Some(directory) = &shared.directory else {
        return Err(Error::unsupported_operation().with_detail("a database in memory has no checkpoints"));
    };
    let version = shared.versions.committed();
    let path = directory.checkpoint_path();
    let identity = directory.checkpoint_identity();
    let Some(storage) = shared.storage.memory_engine() else { return flush(shared).await };
    let waits = &shared.counters.metrics.waits;
    let written = checkpoint::write(&shared.env, &path, identity, storage, version, pace(shared)).await?;
    waits.checkpoint_step.note(written.longest_step);
    if let Some(log) = &shared.log {
        let too_new = planted!("checkpoints let go of newer log").then(|| shared.versions.committed());
        log.view.pop(CONSUMER, too_new.unwrap_or(version))?;
    }
    let removed = checkpoint::remove_others(&shared.env, &path, version).await?;
    waits.checkpoint_step.note(removed.longest_step);
    shared.counters.checkpoints.add(1);
    probe!("pipeline: checkpoint written");
    Ok(version)
}

/// Moves all that has left the window into the tables. That is what the engine `ssd` has for a checkpoint.
async fn flush(shared: &Shared) -> Result<Version> {
    let Some(storage) = shared.storage.ssd_engine() else { return Err(Error::internal_error()) };
    storage.flush().await?;
    let version = storage.durable_version();
    if let Some(log) = &shared.log {
        log.view.pop(CONSUMER, version)?;
    }
    Ok(version)
}

/// Lets go of the log that the engine `ssd` needs no longer, until the node closes.
pub(crate) async fn follow_tables(shared: Arc<Shared>) {
    let mut popped = 0;
    while !shared.health.is_closing() {
        shared.pause(&shared.bells.checkpoint, PERIOD).await;
        let (Some(storage), Some(log)) = (shared.storage.ssd_engine(), &shared.log) else { return };
        let too_new = planted!("flushes let go of newer log").then(|| shared.versions.committed());
        let version = too_new.unwrap_or_else(|| storage.durable_version());
        if version > popped && log.view.pop(CONSUMER, version).is_ok() {
            shared.counters.checkpoints.add(u64::from(popped > 0));
            popped = version;
        }
    }
}

/// Loads the newest checkpoint, if there is one.
pub(crate) async fn load_newest(
    env: &Env,
    directory: &Directory,
) -> Result<Option<(MemoryStorage, Version)>> {
    let loaded = checkpoint::load(env, &directory.checkpoint_path(), directory.checkpoint_identity()).await?;
    Ok(loaded.map(|loaded| (loaded.store, loaded.version)))
}
