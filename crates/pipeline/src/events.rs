//! What a node tells as it happens: events of the crate `tracing`, which cost a load while nobody listens.
//!
//! One function for each event, so that names and fields stand in one place. Whoever embeds the node decides where they go;
//! the program `plinth` prints them when `PLINTH_LOG` says so.

use crate::backpressure::Cause;
use crate::gate::Limits;
use crate::metrics::SlowTransaction;
use crate::space::Level;
use plinth_types::{Error, Version, printable};
use std::path::Path;
use std::time::Duration;
use tracing::Span;

pub(crate) fn opened(directory: Option<&Path>, version: Version) {
    let directory = directory.map_or_else(|| ":memory:".to_owned(), |path| path.display().to_string());
    tracing::info!(directory, version, "database opened");
}

/// Whoever may look into the directory may be able to read all rows.
pub(crate) fn open_to_others(directory: &Path) {
    let directory = directory.display().to_string();
    tracing::warn!(directory, "other users may look into the database's directory: chmod 700");
}

pub(crate) fn closed() {
    tracing::info!("database closed");
}

/// No commit is taken any more.
pub(crate) fn failed(error: &Error) {
    tracing::error!(code = error.code(), error = %error, "database failed: it takes no more commits");
}

/// The disk has less room than it had, or has room again.
pub(crate) fn space(level: Level, free_bytes: u64, kept_bytes: u64) {
    match level {
        Level::Plenty => tracing::info!(free_bytes, kept_bytes, "the disk has plenty of room"),
        Level::Low => {
            tracing::info!(free_bytes, kept_bytes, "the disk has little room: the log is let go of early")
        }
        Level::Kept => tracing::warn!(
            free_bytes,
            kept_bytes,
            "the disk is full: what is left is kept for what makes room, and commits that write rows are not taken"
        ),
    }
}

/// The disk was so full that the file that is kept for this was removed.
pub(crate) fn reserve_used(bytes: u64) {
    tracing::warn!(bytes, "no room left on the disk: the reserve was given up to make some");
}

/// A checkpoint, or what the engine `ssd` has for one, has failed.
pub(crate) fn checkpoint_failed(error: &Error) {
    tracing::warn!(code = error.code(), error = %error, "a checkpoint could not be written: the log goes on growing");
}

/// Commits are refused: the first of a burst.
pub(crate) fn refusing(cause: Cause, error: &Error) {
    tracing::warn!(cause = cause.name(), code = error.code(), error = %error, "commits are refused");
}

/// No commit has been refused for a while: how many were, and for how long.
pub(crate) fn refused(commits: u64, during: Duration) {
    let seconds = during.as_secs_f64();
    tracing::warn!(commits, seconds, "commits are not refused any more");
}

/// A checkpoint was written, after some could not be.
pub(crate) fn checkpoints_go_on(failures: u64) {
    tracing::info!(failures, "checkpoints are written again");
}

/// What limits the rate of transactions has changed.
pub(crate) fn limited(limits: &Limits) {
    let (cause, batch_cause) = (limits.reason.name(), limits.batch_reason.name());
    let (limit, batch_limit) = (limits.default, limits.batch);
    tracing::warn!(cause, limit, batch_cause, batch_limit, "what limits transactions has changed");
}

pub(crate) fn slow(slow: &SlowTransaction) {
    let (age_ms, first_key) = (slow.age / 1000, printable(&slow.first_key).to_string());
    let SlowTransaction { version, bytes, mutations, .. } = slow;
    tracing::warn!(age_ms, version, bytes, mutations, first_key, "slow transaction");
}

/// A batch on its way, with what it takes to get there as its parts. Nothing while nobody keeps spans.
pub(crate) fn batch(version: Version, transactions: usize) -> Span {
    tracing::info_span!(parent: None, "commit_batch", version, transactions, conflicts = tracing::field::Empty)
}

/// The sync of a batch's entry in the log.
pub(crate) fn log_sync(batch: &Span) -> Span {
    tracing::info_span!(parent: batch, "log_sync")
}

/// A batch takes effect.
pub(crate) fn apply(batch: &Span) -> Span {
    tracing::info_span!(parent: batch, "apply")
}
