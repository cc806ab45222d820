//! What a node tells as it happens: events of the crate `tracing`, which cost a load while nobody
//! listens.
//!
//! One function for each event, so that names and fields stand in one place. Whoever embeds the
//! node decides where they go; the program `plinth` prints them when `PLINTH_LOG` says so.

use crate::failure::NodeError;
use crate::gate::Limits;
use crate::metrics::SlowTransaction;
use plinth_env::Over;
use plinth_format::Corruption;
use plinth_format::crypt::KeyId;
use plinth_log::CutTail;
use plinth_replication::Members;
use plinth_types::{Version, printable};
use std::path::Path;
use std::time::Duration;
use tracing::Span;

/// What an opening took, and found.
pub(crate) struct Opened {
    /// There was no database before; of a member it isn't known.
    pub is_new: bool,
    pub engine: &'static str,
    pub version: Version,
    pub rows: u64,
    pub data_bytes: u64,
    /// Bytes of the log that were read again.
    pub log_bytes: u64,
    pub took: Duration,
}

pub(crate) fn opened(directory: Option<&Path>, opened: &Opened) {
    let directory =
        directory.map_or_else(|| ":memory:".to_owned(), |path| path.display().to_string());
    let Opened { is_new, engine, version, rows, data_bytes, log_bytes, took } = *opened;
    let seconds = took.as_secs_f64();
    // Where one was there before nothing is said.
    let is_new = is_new.then_some(true);
    tracing::info!(
        directory,
        is_new,
        engine,
        version,
        rows,
        data_bytes,
        log_bytes,
        seconds,
        "database opened"
    );
}

/// A start takes long: up to which version entries of the log are applied, of which that have to
/// be, and about how many bytes are left to read.
pub(crate) fn replaying(version: Version, upto: Version, left_bytes: u64) {
    tracing::info!(
        version,
        upto,
        left_bytes,
        "the log is applied to the rows: the database is open when that is done"
    );
}

/// The log ended in bytes whose write had not ended: they were never acknowledged.
pub(crate) fn tail_cut(cut: &CutTail) {
    let CutTail { file, offset, bytes, reason } = cut;
    tracing::info!(file, offset, bytes, reason, "torn tail of the log cut off");
}

/// One of the log's two notes of how far it is durable can't be read.
pub(crate) fn note_spoilt(spoilt: &Corruption) {
    let problem = spoilt.to_string();
    tracing::warn!(
        problem,
        "a note of how far the log is durable is damaged; the other one counts"
    );
}

/// Whoever may look into the directory may be able to read all rows.
pub(crate) fn open_to_others(directory: &Path) {
    let directory = directory.display().to_string();
    tracing::warn!(directory, "other users may look into the database's directory: chmod 700");
}

/// Whoever may read the file of a key may read all that it encrypts.
pub(crate) fn key_open_to_others(file: &Path) {
    let file = file.display().to_string();
    tracing::warn!(file, "other users may read the file of the encryption key: chmod 600");
}

/// Files are sealed by another key than the newest, or not at all, and written anew.
pub(crate) fn is_renewed(key: Option<KeyId>, files: u64, bytes: u64) {
    let key = key.map(|key| key.to_string());
    tracing::warn!(
        key,
        files,
        bytes,
        "files are not encrypted with the newest key, and are written anew: keep the keys before"
    );
}

/// None are left.
pub(crate) fn was_renewed(key: Option<KeyId>) {
    let key = key.map(|key| key.to_string());
    tracing::info!(key, "all files are encrypted with the newest key: it needs no other");
}

/// A member of a cluster hears of another term, or of who leads in it.
pub(crate) fn leadership(node: u64, term: u64, leader: Option<u64>) {
    tracing::info!(node, term, leader, "leadership");
}

/// This node leads, and takes commits.
pub(crate) fn leads(node: u64, term: u64, version: Version) {
    tracing::info!(node, term, version, "this node leads");
}

/// A leader has no room for rows, and lets another one lead.
pub(crate) fn hands_over_for_want_of_room() {
    tracing::warn!("the disk is full: another node is to lead");
}

/// A leader can't write or merge its tables, and lets another one lead.
pub(crate) fn hands_over_for_its_tables(error: &NodeError) {
    tracing::warn!(error = %error, "tables can't be written: another node is to lead");
}

/// Another member is given rows.
pub(crate) fn gives_rows(node: u64, version: Version, bytes: u64) {
    tracing::info!(node, version, bytes, "another node is given rows");
}

/// This member lacks entries that nobody has any more.
pub(crate) fn needs_rows(node: u64, from: u64, upto: u64) {
    tracing::warn!(
        node,
        from,
        upto,
        "this node is too far behind for the log: it takes all rows, and serves nothing meanwhile"
    );
}

/// How far it is with that.
pub(crate) fn takes_rows(source: u64, version: Version, bytes: u64, about_bytes: u64) {
    tracing::info!(source, version, bytes, about_bytes, "rows are taken");
}

/// It doesn't get on with that.
pub(crate) fn cannot_take_rows(error: &NodeError) {
    tracing::warn!(code = error.code(), error = %error, "rows can't be taken, and are asked for again");
}

/// It has all rows, and serves.
pub(crate) fn has_rows(version: Version, bytes: u64, took: Duration) {
    tracing::info!(
        version,
        bytes,
        seconds = took.as_secs_f64(),
        "all rows are taken: this node serves again"
    );
}

/// After its start it lacks so many entries.
pub(crate) fn lacks_entries(node: u64, entries: u64) {
    tracing::info!(
        node,
        entries,
        "this node gets the entries that it missed, and serves nothing meanwhile"
    );
}

/// It has them.
pub(crate) fn has_entries(version: Version, took: Duration) {
    tracing::info!(
        version,
        seconds = took.as_secs_f64(),
        "this node has the entries that it missed: it serves"
    );
}

/// This node was elected and can't commit.
pub(crate) fn could_not_lead(term: u64, error: &NodeError) {
    tracing::warn!(term, code = error.code(), error = %error, "this node could not lead");
}

pub(crate) fn closed() {
    tracing::info!("database closed");
}

/// No commit is taken any more.
pub(crate) fn failed(error: &NodeError) {
    tracing::error!(code = error.code(), error = %error, "database failed: it takes no more commits");
}

/// Little of the disk is left.
pub(crate) fn disk_low(free_bytes: u64, kept_bytes: u64) {
    tracing::warn!(free_bytes, kept_bytes, "the disk has little room left");
}

/// What is left of the disk is kept for what makes room.
pub(crate) fn disk_full(free_bytes: u64, kept_bytes: u64) {
    tracing::error!(
        free_bytes,
        kept_bytes,
        "the disk is full: commits that write rows wait or are refused"
    );
}

/// The disk is full no longer.
pub(crate) fn disk_has_room(free_bytes: u64, kept_bytes: u64) {
    tracing::info!(free_bytes, kept_bytes, "the disk has room again");
}

/// The disk was so full that the file that is kept for this was removed.
pub(crate) fn reserve_used(bytes: u64) {
    tracing::warn!(bytes, "no room left on the disk: the reserve was given up to make some");
}

/// A checkpoint, or what the engine `ssd` has for one, has failed.
pub(crate) fn checkpoint_failed(error: &NodeError) {
    tracing::warn!(code = error.code(), error = %error, "a checkpoint could not be written: the log goes on growing");
}

/// Commits are refused: the first of a burst.
pub(crate) fn refusing(cause: &'static str, error: &NodeError) {
    tracing::warn!(cause, code = error.code(), error = %error, "commits are refused");
}

/// No commit has been refused for a while: how many were, and for how long.
pub(crate) fn refused(over: Over) {
    let (commits, seconds) = (over.count, over.lasted.as_secs_f64());
    tracing::warn!(commits, seconds, "commits are not refused any more");
}

/// A pinned snapshot of this version was ended, since there is no room for rows beside what such
/// ones keep.
pub(crate) fn snapshot_ended(version: Version) {
    tracing::warn!(version, "a pinned snapshot was ended: what it kept left no room for rows");
}

/// Reads meet with damaged files: the first of a burst.
pub(crate) fn damaged(error: &NodeError) {
    tracing::error!(code = error.code(), error = %error, "a damaged file was met with");
}

/// No damage was met with for a while: how often it had been, and for how long.
pub(crate) fn damage_over(over: Over) {
    let (times, seconds) = (over.count, over.lasted.as_secs_f64());
    tracing::warn!(times, seconds, "no damage is met with at the moment");
}

/// Tables can't be written, or merged: the first of a burst.
pub(crate) fn tables_failing(error: &NodeError) {
    tracing::warn!(code = error.code(), error = %error, "what is in memory can't be moved into tables, or tables merged");
}

/// They could be for a while.
pub(crate) fn tables_go_on(over: &Over) {
    tracing::info!(seconds = over.lasted.as_secs_f64(), "tables are written and merged again");
}

/// The disk doesn't answer what the log, or a checkpoint, waits for: the first of a burst.
pub(crate) fn disk_silent(error: &NodeError) {
    tracing::warn!(code = error.code(), error = %error, "the disk does not answer");
}

/// It has for a while.
pub(crate) fn disk_answers(over: &Over) {
    tracing::info!(seconds = over.lasted.as_secs_f64(), "the disk answers again");
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

/// A batch on its way, with what it takes to get there as its parts. Nothing while nobody keeps
/// spans.
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

/// A change of members is committed.
pub(crate) fn members_changed(members: &Members) {
    let (voters, nodes, is_joint) =
        (members.voters().len(), members.nodes.len(), members.is_joint());
    let protocol = members.protocol;
    tracing::info!(voters, nodes, is_joint, protocol, "the cluster has other members");
}

/// A change of members can't be now.
pub(crate) fn members_not_changed(error: &NodeError) {
    tracing::warn!(code = error.code(), error = %error, "the cluster's members could not be changed; it is tried again");
}

/// The cluster's protocol could be newer, but for some members.
pub(crate) fn protocol_held_back(told: &str) {
    tracing::warn!(told, "the protocol of the cluster can't rise");
}
