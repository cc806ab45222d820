//! The index as an overlay: the versions above what an engine holds, for the keys that changed
//! since.
//!
//! A key that it does not have is not absent: the engine is to be asked. [`Seen`] tells the two
//! apart.

use super::core::Core;
use super::record::RecordRef;
use super::tree::{Cursor, GROUP, find_group};
use super::writer::Writer;
use crate::failure::StorageResult;
use plinth_types::{Bytes, KeyList, LogPosition, Version, key_after};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Entries that a walk visits before it lets go of its pin.
const STRETCH: usize = 1024;

/// What an overlay knows of a key at a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen<'a> {
    /// Its value.
    Value(&'a [u8]),
    /// That it was removed.
    Removed,
    /// Nothing: it was not written since.
    Nothing,
}

/// Keys that changed, each with its versions since.
pub(crate) struct Overlay {
    core: Arc<Core>,
    writer: Mutex<Writer>,
    /// Bytes of memory in use.
    live: AtomicUsize,
}

/// The one who changes an overlay, while it lives.
pub(crate) struct OverlayWriter<'o> {
    writer: MutexGuard<'o, Writer>,
    live: &'o AtomicUsize,
}

impl Overlay {
    /// An empty overlay whose window is `version` alone.
    pub(crate) fn new(version: Version) -> Self {
        let writer = Writer::new(LogPosition::without_log(version));
        Self { core: writer.core().clone(), writer: Mutex::new(writer), live: AtomicUsize::new(0) }
    }

    /// The newest and oldest readable versions.
    pub(crate) fn newest(&self) -> Version {
        self.core.newest()
    }

    pub(crate) fn oldest(&self) -> Version {
        self.core.oldest()
    }

    pub(crate) fn publish(&self, version: Version) {
        self.core.publish(version);
    }

    /// # Errors
    /// `TooOld` or `Future` if the version is outside the window.
    #[inline]
    pub(crate) fn check(&self, version: Version) -> StorageResult<()> {
        self.core.check(version)
    }

    /// Ends the window at `version`, or at the newest version if that is older. Only moves forward.
    pub(crate) fn raise_oldest(&self, version: Version) {
        self.core.raise_oldest(version.min(self.core.newest()));
    }

    /// Bytes of memory taken from the system.
    pub(crate) fn reserved(&self) -> usize {
        self.core.figures.reserved.load(Ordering::Relaxed) as usize
    }

    /// Bytes of memory in use: what is taken and free waits for new rows.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Frees what readers kept from being freed when it was let go.
    pub(crate) fn tidy(&self) {
        self.write().settle();
    }

    /// How many keys have a value that was written since.
    pub(crate) fn rows(&self) -> u64 {
        self.core.figures.rows.load(Ordering::Relaxed)
    }

    /// Bytes of the newest rows: keys and values.
    pub(crate) fn weight(&self) -> u64 {
        let pin = self.core.epochs.pin();
        self.core.root(&pin).weight().max(0) as u64
    }

    pub(crate) fn write(&self) -> OverlayWriter<'_> {
        let writer =
            self.writer.lock().expect("a writer that panicked leaves the index half changed");
        OverlayWriter { writer, live: &self.live }
    }

    /// Tells `each` what is known of each key at `version`, by its place in the list.
    #[inline]
    pub(crate) fn find(
        &self,
        version: Version,
        keys: &KeyList,
        mut each: impl FnMut(usize, Seen<'_>),
    ) {
        let pin = self.core.epochs.pin();
        let root = self.core.root(&pin);
        let mut group = [&[][..]; GROUP];
        let mut first = 0;
        while first < keys.len() {
            let len = GROUP.min(keys.len() - first);
            for (place, key) in group.iter_mut().take(len).enumerate() {
                *key = keys.get(first + place);
            }
            let mut found = [None; GROUP];
            find_group(root, &group[..len], &mut found);
            for (place, record) in found.iter().take(len).enumerate() {
                each(first + place, seen(*record, version));
            }
            first += len;
        }
    }

    /// Visits keys that changed at or before `version`, with the version of what is seen and its
    /// value (`None`: removed), from the first one not below `from` on, or from the last one below
    /// it back.
    pub(crate) fn walk(
        &self,
        version: Version,
        from: &[u8],
        forward: bool,
        mut visit: impl FnMut(&[u8], Version, Option<&[u8]>) -> ControlFlow<()>,
    ) {
        let mut resume = self.stretch(version, from, forward, &mut visit);
        while let Some(from) = resume {
            resume = self.stretch(version, &from, forward, &mut visit);
        }
    }

    fn stretch(
        &self,
        version: Version,
        from: &[u8],
        forward: bool,
        visit: &mut impl FnMut(&[u8], Version, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Option<Vec<u8>> {
        let pin = self.core.epochs.pin();
        let mut cursor = Cursor::seek(self.core.root(&pin), from);
        cursor.ask_ahead(forward);
        let mut last: Option<RecordRef<'_>> = None;
        for _ in 0..STRETCH {
            let newest = if forward { cursor.next() } else { cursor.prev() }?;
            last = Some(newest);
            let Some(record) = newest.at_version(version) else { continue };
            if visit(newest.key(), record.version(), record.value()).is_break() {
                return None;
            }
        }
        let key = last.map(RecordRef::key).unwrap_or_default();
        Some(if forward { key_after(key).to_vec() } else { key.to_vec() })
    }

    /// Key and value bytes of the newest rows of a range.
    pub(crate) fn range_size(&self, begin: &[u8], end: &[u8]) -> u64 {
        self.core.range_size(begin, end)
    }

    /// Keys that split a range into pieces of about `chunk` bytes of what the overlay has.
    pub(crate) fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes> {
        self.core.split_points(begin, end, chunk)
    }

    /// Checks the whole index. Slow: for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub(crate) fn check_invariants(&self) {
        self.write().writer.check_tree();
    }
}

impl OverlayWriter<'_> {
    /// Begins the batch of a version, or goes on with it.
    pub(crate) fn begin(&mut self, version: Version) {
        self.writer.overlay_begin(version);
    }

    /// The newest value of a key, published or not.
    pub(crate) fn newest(&self, key: &[u8]) -> Seen<'_> {
        match self.writer.overlay_newest(key) {
            Some(Some(value)) => Seen::Value(value),
            Some(None) => Seen::Removed,
            None => Seen::Nothing,
        }
    }

    /// Fetches what writes of these keys will touch, side by side. At most [`GROUP`].
    pub(crate) fn warm(&self, keys: &[&[u8]]) {
        self.writer.warm(keys);
    }

    /// Writes a key's value, or its removal.
    pub(crate) fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.writer.overlay_put(key, value);
    }

    /// Removes the keys of a range that the overlay has. What lies below must be told otherwise.
    pub(crate) fn clear(&mut self, begin: &[u8], end: &[u8]) {
        self.writer.overlay_clear(begin, end);
    }

    /// Brings the figures up to date.
    pub(crate) fn end(self) {
        self.writer.publish_figures();
        self.live.store(self.writer.overlay_live(), Ordering::Relaxed);
    }

    fn settle(&mut self) {
        self.writer.overlay_settle();
        self.live.store(self.writer.overlay_live(), Ordering::Relaxed);
    }

    /// Lets go of all versions up to `horizon` in about `leaves` leaves, from the key `from` on.
    /// Gives where to go on; `None` if that was all.
    pub(crate) fn release(
        &mut self,
        horizon: Version,
        from: Vec<u8>,
        leaves: usize,
    ) -> Option<Vec<u8>> {
        let mut next = Some(from);
        for _ in 0..leaves {
            let Some(from) = &next else { break };
            next = self.writer.overlay_release(horizon, from);
        }
        self.settle();
        next
    }
}

#[inline(always)]
fn seen(record: Option<RecordRef<'_>>, version: Version) -> Seen<'_> {
    let Some(record) = record.and_then(|record| record.at_version(version)) else {
        return Seen::Nothing;
    };
    record.value().map_or(Seen::Removed, Seen::Value)
}
