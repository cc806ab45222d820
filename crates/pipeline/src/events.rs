//! What a node tells as it happens: events of the crate `tracing`, which cost a load while nobody listens.
//!
//! One function for each event, so that names and fields stand in one place. Whoever embeds the node decides where they go;
//! the program `plinth` prints them when `PLINTH_LOG` says so.

use crate::gate::Limits;
use crate::metrics::SlowTransaction;
use plinth_types::{Error, Version, printable};
use std::path::Path;
use tracing::Span;

pub(crate) fn opened(directory: Option<&Path>, version: Version) {
    let directory = directory.map_or_else(|| ":memory:".to_owned(), |path| path.display().to_string());
    tracing::info!(directory, version, "database opened");
}

pub(crate) fn closed() {
    tracing::info!("database closed");
}

/// No commit is taken any more.
pub(crate) fn failed(error: &Error) {
    tracing::error!(code = error.code(), error = %error, "database failed: it takes no more commits");
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
