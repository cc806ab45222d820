//! The log as everybody but its writer holds it: [`LocalView`].
//!
//! Everything here is a few lines over the parts that do the work. What consumers ask for
//! (register, pop) is noted at once and written down with the next record, so that it never waits
//! for the disk.

use std::sync::Arc;

use plinth_types::Version;

use crate::consumers::check_name;
use crate::failure::{LogError, LogResult};
use crate::position::Progress;
use crate::reader::Reader;
use crate::shared::Shared;
use crate::upkeep;

/// A handle to a log: for consumers, readers, and whoever wants to know how far it is. Cheap to
/// clone.
#[derive(Clone)]
pub struct LocalView {
    pub(crate) shared: Arc<Shared>,
}

impl LocalView {
    /// The version of the last durable entry.
    pub fn known_durable(&self) -> Version {
        self.shared.with(|inner| inner.durable.version)
    }

    /// Up to where entries will never be lost.
    pub fn committed(&self) -> Progress {
        self.shared.with(|inner| inner.committed().progress())
    }

    /// Up to where everything is synced.
    pub fn durable(&self) -> Progress {
        self.shared.with(|inner| inner.durable.progress())
    }

    /// The lease that is committed: no version above it may be handed out.
    pub fn lease(&self) -> Version {
        self.shared.with(|inner| inner.committed().memory.lease)
    }

    /// Whether a failure has poisoned the log, and which.
    ///
    /// # Errors
    /// The error that every append and sync gives since.
    pub fn check(&self) -> LogResult<()> {
        self.shared.with(|inner| inner.check_poison())
    }

    /// What was wrong with the first damaged record that a reader met with since the start, and how
    /// often one did.
    pub fn damage(&self) -> Option<(LogError, u64)> {
        self.shared.damage()
    }

    /// Bytes of records in the segments that are kept.
    pub fn bytes(&self) -> u64 {
        self.shared.with(|inner| inner.bytes())
    }

    /// Bytes that the log's files take on the disk: segments, the next one, spares.
    pub fn disk_bytes(&self) -> u64 {
        self.shared.with(|inner| inner.disk_bytes())
    }

    /// Segments, and their bytes, that are not sealed by the newest of the keys that were given:
    /// see [`LogView::outdated`](crate::LogView::outdated).
    pub fn outdated(&self) -> (u64, u64) {
        self.shared.with(|inner| inner.outdated(&self.shared.config.keys))
    }

    /// The log leaves so many bytes of the disk to others: see
    /// [`LogView::keep_free`](crate::LogView::keep_free).
    pub fn keep_free(&self, bytes: u64) {
        self.shared.with(|inner| inner.upkeep.room.keep_free = bytes);
    }

    /// Reads committed entries with versions from `from` on, in order.
    pub fn reader(&self, from: Version) -> Reader {
        Reader::new(self.shared.clone(), from, None)
    }
}

/// Consumers, and what they read.
impl LocalView {
    /// Makes `consumer` known, with or without a bound in bytes: see
    /// [`LogView::register`](crate::LogView::register).
    ///
    /// # Errors
    /// `Version` if entries from `from` on are gone already; `Option` if the
    /// name is empty or too long, or there are too many consumers.
    pub fn register(
        &self,
        consumer: &str,
        from: Version,
        bound_bytes: Option<u64>,
    ) -> LogResult<Version> {
        check_name(consumer)?;
        // There are no versions below 1.
        let from = from.max(1);
        let registered = self.shared.with(|inner| {
            if let Some(next) = inner.consumers.set_bound(consumer, bound_bytes) {
                return Ok(next);
            }
            inner.consumers.check_room()?;
            inner.check_kept(from)?;
            inner.consumers.add(consumer, from, bound_bytes);
            Ok(from)
        });
        upkeep::look(&self.shared);
        registered
    }

    /// `consumer` needs no entries up to version `upto` any longer. Segments that no consumer needs
    /// are reused or removed, once this is durable: as soon as anything appended later is.
    ///
    /// # Errors
    /// `Misused` if there is no such consumer; `Version` if it was
    /// dropped. Popping backwards does nothing.
    pub fn pop(&self, consumer: &str, upto: Version) -> LogResult<()> {
        let popped = self.shared.with(|inner| {
            inner.upkeep.is_stuck = false;
            inner.consumers.pop(consumer, upto)
        });
        upkeep::look(&self.shared);
        popped
    }

    /// Forgets a consumer: nothing is kept for it any longer. Without any consumer everything is
    /// kept.
    pub fn unregister(&self, consumer: &str) {
        self.shared.with(|inner| inner.consumers.remove(consumer));
    }

    /// Bytes that a consumer holds back, as its bound counts them.
    ///
    /// # Errors
    /// As those of [`LogView::reader_of`](crate::LogView::reader_of).
    pub fn held_bytes(&self, consumer: &str) -> LogResult<u64> {
        self.shared.with(|inner| {
            let next = inner.consumers.next_of(consumer)?;
            Ok(inner.held_bytes(next - 1))
        })
    }

    /// Bytes of full segments that go if nobody needs entries from version `from` up to below
    /// `until`.
    pub fn bytes_between(&self, from: Version, until: Version) -> u64 {
        self.shared.with(|inner| inner.bytes_between(from, until))
    }

    /// The consumers, and from which version on each needs entries.
    pub fn consumers(&self) -> Vec<(String, Version)> {
        self.shared.with(|inner| inner.consumers.all())
    }

    /// Reads committed entries for a consumer from version `from` on. The reader keeps nothing by
    /// itself.
    ///
    /// # Errors
    /// As those of [`LocalView::reader_of`]; `Version` if the consumer has popped beyond
    /// `from`.
    pub fn reader_for(&self, consumer: &str, from: Version) -> LogResult<Reader> {
        let next = self.shared.with(|inner| inner.consumers.next_of(consumer))?;
        if from < next {
            let detail =
                format!("consumer {consumer} goes on from version {next}, not from {from}");
            return Err(LogError::Version(detail));
        }
        Ok(Reader::new(self.shared.clone(), from, Some(consumer.to_string())))
    }

    /// Reads committed entries for a consumer, from where it stands. The reader keeps nothing by
    /// itself.
    ///
    /// # Errors
    /// `Misused` if there is no such consumer; `Version` if it was
    /// dropped.
    pub fn reader_of(&self, consumer: &str) -> LogResult<Reader> {
        let from = self.shared.with(|inner| inner.consumers.next_of(consumer))?;
        Ok(Reader::new(self.shared.clone(), from, Some(consumer.to_string())))
    }
}

impl std::fmt::Debug for LocalView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalView").field("known_durable", &self.known_durable()).finish()
    }
}
