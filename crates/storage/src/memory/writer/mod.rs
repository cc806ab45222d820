//! The one thread that changes the index.
//!
//! A batch is applied key by key: the new value becomes a record whose `prev` is the old one, and
//! the leaf's slot is pointed at it. Readers of older versions follow `prev`. What nobody can read
//! any more is cleaned up as the window moves ([`window`]); a key that comes or goes changes the
//! tree's shape ([`shape`]).

mod compact;
mod garbage;
mod load;
mod overlay;
mod positions;
mod replay;
mod shape;
mod window;

use super::arena::{Arena, Kind};
use super::core::Core;
use super::node::{InnerBuilder, LeafBuilder, NodeRef};
use super::record::{self, Record, RecordRef};
use super::tree::{Cursor, GROUP, Path, find_group};
use crate::{Change, Changed};
use compact::Compaction;
use garbage::Garbage;
pub(crate) use load::Filling;
use plinth_types::{LogPosition, MutationRef, MutationType, Version, atomic, planted};
use positions::Positions;
pub(crate) use replay::Replaying;
use shape::add_weight_above;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use window::Window;

/// What the writer knows and readers don't.
pub(crate) struct Writer {
    core: Arc<Core>,
    arena: Arena,
    garbage: Garbage,
    window: Window,
    compaction: Compaction,
    spare: InnerBuilder,
    /// Bytes of memory in the newest records of keys that exist.
    newest_bytes: usize,
    rows: u64,
    /// The version of the last batch.
    applied: Version,
    positions: Positions,
}

// SAFETY: all pointers in it are to memory that its arena owns.
unsafe impl Send for Writer {}

impl Writer {
    /// An empty store that has everything up to this place in the log; its window is that version
    /// alone.
    pub(crate) fn new(at: LogPosition) -> Self {
        let version = at.version;
        let mut arena = Arena::new();
        let root = LeafBuilder::new(&mut arena, 0).finish();
        // SAFETY: the root is a finished leaf; this writer frees only what it retired, in
        // `collect`.
        let core = Arc::new(unsafe { Core::new(root, version) });
        Self {
            core,
            arena,
            garbage: Garbage::default(),
            window: Window::default(),
            compaction: Compaction::default(),
            spare: InnerBuilder::default(),
            newest_bytes: 0,
            rows: 0,
            applied: version,
            positions: Positions::new(at),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The last batch that a reader at `version`, the newest one, sees.
    pub(crate) fn position_at(&self, version: Version) -> LogPosition {
        self.positions.at(version)
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Compares the counts of memory with each other.
    ///
    /// # Panics
    /// If they do not fit.
    pub(crate) fn check_counts(&self) {
        let records = self.arena.usage(Kind::Record);
        assert!(self.newest_bytes <= records.live, "bytes of newest records");
        self.window.check_counts();
        if self.window.is_empty() && self.garbage.is_empty() {
            assert_eq!(
                self.newest_bytes, records.live,
                "with nothing in the window all records are newest ones"
            );
        }
    }

    /// Applies a batch. Nobody can see it before `version` is published.
    pub(crate) fn apply(
        &mut self,
        at: LogPosition,
        mutations: &mut dyn Iterator<Item = MutationRef<'_>>,
        mut changed: Changed<'_>,
    ) {
        let version = at.version;
        assert!(
            version > self.core.newest() && version >= self.applied,
            "batches are applied in version order"
        );
        self.applied = version;
        self.positions.note(at, self.core.newest());
        let nothing = MutationRef { kind: MutationType::Set, param1: &[], param2: &[] };
        let mut group = [nothing; GROUP];
        loop {
            let mut len = 0;
            for (place, mutation) in group.iter_mut().zip(&mut *mutations) {
                *place = mutation;
                len += 1;
            }
            let mut keys = [&[][..]; GROUP];
            for (key, mutation) in keys.iter_mut().zip(&group[..len]) {
                *key = mutation.param1;
            }
            self.warm(&keys[..len]);
            for mutation in &group[..len] {
                self.mutate(version, mutation, &mut changed);
            }
            self.collect_some();
            if len < GROUP {
                break;
            }
        }
        self.publish_figures();
    }

    /// Brings the figures for whoever asks up to date.
    pub(crate) fn publish_figures(&self) {
        let figures = &self.core.figures;
        let window = self.arena.usage(Kind::Record).live - self.newest_bytes + self.window.bytes();
        figures.rows.store(self.rows, Ordering::Relaxed);
        figures.window.store(window as u64, Ordering::Relaxed);
        figures.pinned.store(self.window.kept_bytes() as u64, Ordering::Relaxed);
        figures
            .reserved
            .store((self.arena.reserved() + self.window.bytes()) as u64, Ordering::Relaxed);
    }

    /// The root. What is reached from it is not used across a `collect`.
    fn root<'a>(&self) -> NodeRef<'a> {
        // SAFETY: this is the writer; its methods let go of nodes and records before they collect.
        unsafe { self.core.writers_root() }
    }

    /// Fetches what mutations of these keys will touch, side by side.
    pub(crate) fn warm(&self, keys: &[&[u8]]) {
        if keys.len() >= 2 {
            find_group(self.root(), keys, &mut [None; GROUP]);
        }
    }

    fn mutate(&mut self, version: Version, mutation: &MutationRef<'_>, changed: &mut Changed<'_>) {
        let (key, operand) = (mutation.param1, mutation.param2);
        if mutation.kind == MutationType::ClearRange {
            return self.clear(version, key, operand, changed);
        }
        let path = Path::descend(self.root(), key);
        let found = path.find(key);
        let existing = found.and_then(|(_, record)| record.value());
        let existed = existing.is_some();
        let value = match mutation.kind {
            MutationType::Set => Some(operand.into()),
            operation => atomic::apply(operation, existing, operand),
        };
        let value = value.as_deref();
        match found {
            Some((at, old)) if old.value() != value => self.replace(&path, at, old, version, value),
            None if let Some(value) = value => self.insert(&path, version, key, value),
            _ => {}
        }
        // A comparison that did not match changes nothing; everything else writes, if only the same
        // bytes.
        let wrote = mutation.kind != MutationType::CompareAndClear || (existed && value.is_none());
        if wrote && let Some(changed) = changed {
            changed(Change::Key(key, value));
        }
    }

    /// Makes `value` the newest one of the entry at `at`, whose newest record is `old`.
    fn replace(
        &mut self,
        path: &Path<'_>,
        at: usize,
        old: RecordRef<'_>,
        version: Version,
        value: Option<&[u8]>,
    ) {
        let (key, old_len) = (old.key(), old.value().map(<[u8]>::len));
        if old.version() == version
            && let Some(value) = value
            && old_len == Some(value.len())
        {
            return old.overwrite(value);
        }
        let new = record::create(&mut self.arena, version, key, value, Some(old));
        path.leaf.set_record(at, new);
        self.window.push(new);
        if let Some(old_len) = old_len {
            self.newest_bytes -= Arena::rounded(record::OVERHEAD + key.len() + old_len);
            self.rows -= 1;
        }
        let mut weight = -old.weight();
        if let Some(value) = value {
            self.newest_bytes += Arena::rounded(record::OVERHEAD + key.len() + value.len());
            self.rows += 1;
            weight += (key.len() + value.len()) as i64;
        }
        path.leaf.node().add_weight(weight);
        add_weight_above(path, weight);
    }

    fn insert(&mut self, path: &Path<'_>, version: Version, key: &[u8], value: &[u8]) {
        let new = self.create_first(version, key, value);
        self.insert_entry(path, key, new, (key.len() + value.len()) as i64);
    }

    /// The record of a key that has none.
    fn create_first(&mut self, version: Version, key: &[u8], value: &[u8]) -> NonNull<Record> {
        self.newest_bytes += Arena::rounded(record::OVERHEAD + key.len() + value.len());
        self.rows += 1;
        record::create(&mut self.arena, version, key, Some(value), None)
    }

    /// Gives each key of the range that exists a tombstone. The tree keeps its shape meanwhile.
    fn clear(&mut self, version: Version, begin: &[u8], end: &[u8], changed: &mut Changed<'_>) {
        if begin >= end {
            return;
        }
        let mut cursor = Cursor::seek(self.root(), begin);
        cursor.ask_ahead(true);
        let too_far = planted!("range clears take the end with them");
        let is_within = |key: &[u8]| key < end || (too_far && key == end);
        while let Some(record) = cursor.next().filter(|record| is_within(record.key())) {
            if record.is_tombstone() {
                continue;
            }
            let (path, at) = cursor.last_given();
            self.replace(path, at, record, version, None);
            if let Some(changed) = changed {
                changed(Change::Key(record.key(), None));
            }
        }
    }

    fn collect_some(&mut self) {
        // SAFETY: all that is retired came from the arena and was unlinked before; no caller of
        // this holds nodes or records.
        unsafe { self.garbage.collect_some(&self.core.epochs, &mut self.arena) };
    }

    /// Whether there is more that can be freed at once.
    fn collect(&mut self) -> bool {
        // SAFETY: as for `collect_some`.
        unsafe { self.garbage.collect(&self.core.epochs, &mut self.arena) }
    }
}
