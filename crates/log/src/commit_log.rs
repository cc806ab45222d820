//! The commit log as the pipeline knows it: two traits, whatever stands behind them.
//!
//! ```text
//!   leader, one term          everybody, as long as the process lives
//!   Box<dyn CommitLog>        Arc<dyn LogView>  --reader()-->  Box<dyn LogReader>
//!     append, extend_lease      committed, durable, drive, until_committed, register, pop
//! ```
//!
//! There is one writer, for one term, and any number of views. An entry is first *written*, then
//! *durable* (this node has synced it), then *committed* (it will never be lost). With
//! [`LocalLog`](crate::LocalLog), the log of one node, the last two are the same moment. With a
//! replicated log committed means on the disks of a majority; it may come before this node's own
//! sync, or after it.
//!
//! Always: written is at least durable and at least committed; all three only grow while the
//! process lives, except that what is written and not committed may be voided when a term ends.
//! Readers see committed entries alone.
//!
//! ## How a pipeline drives it
//! The thread that appends an entry lends itself to whatever commits it: [`LogView::drive`] runs at
//! most one sync, on that thread, and says at once if there is nothing for it to do. So an idle
//! commit is appended, synced and answered on one thread; under load as many threads are in a sync
//! as there are lanes, one more forms the next batch, and the number of batches in flight is none
//! of their business. Whoever completes batches takes them in order, up to [`LogView::committed`].
//! A log that commits by itself ([`LogView::drive`] does nothing there) is waited for with
//! [`LogView::until_committed`].

use std::pin::Pin;
use std::sync::Arc;

use plinth_types::Version;

use crate::entry::Entry;
use crate::failure::{LogError, LogResult};
use crate::position::{Position, Progress};

/// What the methods give that wait: a boxed future.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The one writer of a commit log, for one term. Dropping it ends the writing, as a crash would,
/// except that nothing written is lost.
pub trait CommitLog: Send {
    /// The term in which this writer appends: larger than that of every writer before it.
    fn term(&self) -> u64;

    /// The position of the last entry.
    fn written(&self) -> Position;

    /// A handle for everybody else.
    fn view(&self) -> Arc<dyn LogView>;

    /// Appends an entry whose body is `parts` one after the other. It is written when this is
    /// ready, and counts once [`LogView::committed`] has reached its position.
    ///
    /// # Errors
    /// `Version` if `version` is not above the last one or is above the lease;
    /// `Io` if the disk is full, and other errors of files: nothing was appended
    /// then, and the next append may succeed. If the term has ended, or [`LogView::check`] fails
    /// from now on, the entry's fate is unknown.
    fn append<'a>(
        &'a mut self,
        version: Version,
        parts: &'a [&'a [u8]],
    ) -> Waiting<'a, LogResult<Position>>;

    /// As [`CommitLog::append`], for an entry among whose mutations is the row that says who is a
    /// member from here on.
    ///
    /// # Errors
    /// As there; `Unsupported` for a log that one node has to itself, `Behind` if
    /// another such entry is under way: nothing was appended then.
    fn append_members<'a>(
        &'a mut self,
        version: Version,
        parts: &'a [&'a [u8]],
    ) -> Waiting<'a, LogResult<Position>> {
        let _ = (version, parts);
        let detail = "this log has no members";
        Box::pin(std::future::ready(Err(LogError::Unsupported(detail.into()))))
    }

    /// Appends an entry that lets versions up to `upto` be handed out, once it is committed.
    /// Entries may be appended up to it at once. If the lease reaches that far already, nothing is
    /// appended and the position is that of the last entry.
    ///
    /// # Errors
    /// As those of [`CommitLog::append`].
    fn extend_lease(&mut self, upto: Version) -> Waiting<'_, LogResult<Position>>;

    /// Has this node's disk say of every entry so far that it is durable, so that damage to the
    /// last of them is known to be damage and not a write cut short; writes down what consumers
    /// have popped. To be called when there is nothing to commit; does nothing if nothing happened
    /// since the last time.
    ///
    /// # Errors
    /// As those of [`CommitLog::append`] and [`LogView::drive`].
    fn mark_durable(&mut self) -> Waiting<'_, LogResult<()>>;

    /// Ends the writing as after [`CommitLog::mark_durable`], waits until no task of the log
    /// touches its files any longer, and ends every reader that waits.
    ///
    /// # Errors
    /// As those of [`CommitLog::mark_durable`]; the log is closed all the same.
    fn close(self: Box<Self>) -> Waiting<'static, LogResult<()>>;

    /// Panics if what the log believes of itself contradicts itself.
    fn check_invariants(&self);
}

/// What everybody but the writer does with a commit log.
pub trait LogView: Send + Sync {
    /// Up to where entries will never be lost.
    fn committed(&self) -> Progress;

    /// Up to where this node has synced.
    fn durable(&self) -> Progress;

    /// Waits until more than `beyond` is committed, and gives how much. Asked again with what it
    /// gave, it is the stream of committed positions; steps that come quickly are told as one.
    ///
    /// # Errors
    /// That of [`LogView::check`]; `Closed` once the log is closed.
    fn until_committed(&self, beyond: Position) -> Waiting<'_, LogResult<Progress>>;

    /// Whether entries become committed although nobody calls [`LogView::drive`].
    fn commits_by_itself(&self) -> bool {
        false
    }

    /// Lends the caller's thread to whatever makes appended entries committed: one sync, if a lane
    /// is free and something is written that no sync under way covers. Then it gives what is
    /// committed. `None`, at once, if there is nothing for the caller to do: everything is covered,
    /// all lanes are taken, or the log commits by itself.
    ///
    /// A caller that got `None` need not ask again until something is appended or a lane was given
    /// back: who holds a lane has to ask again after its sync.
    ///
    /// # Errors
    /// That of [`LogView::check`]. After a failed sync nothing is committed any more.
    fn drive(&self) -> Waiting<'_, LogResult<Option<Progress>>>;

    /// Waits until `upto` is committed, driving meanwhile.
    ///
    /// # Errors
    /// As those of [`LogView::drive`]; `Misused` if nothing was appended there.
    fn sync(&self, upto: Position) -> Waiting<'_, LogResult<()>>;

    /// Whether a failure has ended the log, and which.
    ///
    /// # Errors
    /// The error that every append and sync gives since.
    fn check(&self) -> LogResult<()>;

    /// What was wrong with the first damaged record that a reader met with since the start, and how
    /// often one did. Whoever appends never reads: a log may be damaged for long before anybody
    /// knows.
    fn damage(&self) -> Option<(LogError, u64)>;

    /// Reads committed entries with versions from `from` on.
    fn reader(&self, from: Version) -> Box<dyn LogReader>;

    /// Reads for a consumer, from where it stands. Unlike another reader it keeps nothing by
    /// itself.
    ///
    /// # Errors
    /// `Misused` if there is no such consumer; `Version` if it was
    /// dropped.
    fn reader_of(&self, consumer: &str) -> LogResult<Box<dyn LogReader>>;

    /// Reads for a consumer from version `from` on, which lies behind what it has popped. It keeps
    /// nothing by itself either.
    ///
    /// # Errors
    /// As those of [`LogView::reader_of`]; `Version` if the consumer has popped beyond
    /// `from`.
    fn reader_for(&self, consumer: &str, from: Version) -> LogResult<Box<dyn LogReader>>;

    /// Makes `consumer` known: entries from version `from` on are kept until it pops them. One that
    /// is known already, be it from before a restart, stays where it is and gets the new bound.
    /// Gives the version that it is to go on from. Durable as soon as anything appended later is.
    ///
    /// With a bound the consumer is dropped, and an event tells it, once it holds back more than so
    /// many bytes (counted in whole segments, without the last full one): what it had not popped
    /// may be gone then. Its pops and readers fail from then on, until it is registered again.
    ///
    /// # Errors
    /// `Version` if entries from `from` on are gone already; `Option` if the
    /// name is empty or too long, or there are too many consumers.
    fn register(
        &self,
        consumer: &str,
        from: Version,
        bound_bytes: Option<u64>,
    ) -> LogResult<Version>;

    /// `consumer` needs no entries up to version `upto` any longer. What nobody needs goes once
    /// this is durable: as soon as anything appended later is. Popping backwards does nothing.
    ///
    /// # Errors
    /// `Misused` if there is no such consumer; `Version` if it was
    /// dropped.
    fn pop(&self, consumer: &str, upto: Version) -> LogResult<()>;

    /// Forgets a consumer: nothing is kept for it any longer. Without any consumer everything is
    /// kept.
    fn unregister(&self, consumer: &str);

    /// The consumers, and from which version on each needs entries.
    fn consumers(&self) -> Vec<(String, Version)>;

    /// Bytes that a consumer holds back, as its bound counts them: those of full segments.
    ///
    /// # Errors
    /// As those of [`LogView::reader_of`].
    fn held_bytes(&self, consumer: &str) -> LogResult<u64>;

    /// Bytes that are kept for whoever needs entries from version `from` up to below `until`, and
    /// go if nobody does: counted in whole segments, without the one that is written to.
    fn bytes_between(&self, from: Version, until: Version) -> u64;

    /// Bytes of records that are kept.
    fn bytes(&self) -> u64;

    /// Bytes that the log's files take on the disk.
    fn disk_bytes(&self) -> u64;

    /// Segments, and their bytes, that are not sealed by the newest of the keys that were given.
    fn outdated(&self) -> (u64, u64);

    /// From now on the log takes care that others find so many bytes of its disk free: the less
    /// there is beyond them, the smaller are the files that it makes, and the fewer of them it
    /// keeps for later use. An append never fails for that: what it must not take, its caller
    /// doesn't append.
    fn keep_free(&self, bytes: u64);
}

/// Reads committed entries in order.
pub trait LogReader: Send {
    /// The next entry; `None` if there is none yet.
    ///
    /// # Errors
    /// `Version` if the entries asked for are gone, or the consumer it reads for was
    /// dropped; `Corrupt`, saying file, offset, what was expected and what was found, if the
    /// log is damaged; errors of files.
    fn next(&mut self) -> Waiting<'_, LogResult<Option<Entry>>>;

    /// From now on the newest entries are kept in memory for this reader, within a bound, until it
    /// is dropped.
    fn follow(&mut self);

    /// Waits for the next entry. From the first call on the newest entries are kept in memory for
    /// this reader, within a bound, until it is dropped.
    ///
    /// # Errors
    /// As those of [`LogReader::next`]; that of [`LogView::check`]; `Closed` once the
    /// log is closed.
    fn wait(&mut self) -> Waiting<'_, LogResult<Entry>>;
}
