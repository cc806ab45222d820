//! The index as an overlay: it holds only what changed after some version, over rows that lie
//! elsewhere.
//!
//! Two things differ from an index of everything. A key that is removed gets a tombstone even where
//! nothing was, because the rows below may have it. And rows leave once those below have caught up:
//! leaf by leaf, each made anew once however many of its entries go.

use super::super::arena::{Arena, Kind};
use super::super::node::{LeafBuilder, LeafRef};
use super::super::record::{self, RecordRef};
use super::super::tree::{Cursor, Path};
use super::Writer;
use super::shape::add_weight_above;
use plinth_types::{Version, key_after};

impl Writer {
    /// Begins a batch, or goes on with it.
    pub(crate) fn overlay_begin(&mut self, version: Version) {
        assert!(
            version > self.core.newest() && version >= self.applied,
            "batches are applied in version order"
        );
        self.applied = version;
    }

    /// The newest value of a key, if the overlay knows: `Some(None)` for a removed one.
    pub(crate) fn overlay_newest(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let path = Path::descend(self.root(), key);
        path.find(key).map(|(_, record)| record.value())
    }

    /// Writes a key's value, or its removal, into the batch that was begun.
    pub(crate) fn overlay_put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let version = self.applied;
        let path = Path::descend(self.root(), key);
        match path.find(key) {
            Some((at, old)) if old.value() != value => self.replace(&path, at, old, version, value),
            Some(_) => {}
            None => {
                let record = match value {
                    Some(value) => self.create_first(version, key, value),
                    None => record::create(&mut self.arena, version, key, None, None),
                };
                let weight = value.map_or(0, |value| (key.len() + value.len()) as i64);
                self.insert_entry(&path, key, record, weight);
            }
        }
        // Nothing is cleaned up version by version here.
        self.window.clear();
        self.collect_some();
    }

    /// Removes the keys of a range that the overlay has.
    pub(crate) fn overlay_clear(&mut self, begin: &[u8], end: &[u8]) {
        self.clear(self.applied, begin, end, &mut None);
        self.window.clear();
    }

    /// Lets go of all versions up to `horizon` in the leaf of the first key not below `from`: the
    /// rows below have them. Gives where to go on; `None` after the last leaf.
    pub(crate) fn overlay_release(&mut self, horizon: Version, from: &[u8]) -> Option<Vec<u8>> {
        let mut cursor = Cursor::seek(self.root(), from);
        cursor.next()?;
        let path = cursor.last_given().0.clone();
        let leaf = path.leaf;
        let next = key_after(leaf.record(leaf.count() - 1).key()).to_vec();
        let stays = |record: RecordRef<'_>| record.version() > horizon;
        let survivors = (0..leaf.count()).filter(|at| stays(leaf.record(*at))).count();
        for at in 0..leaf.count() {
            self.release_older(leaf.record(at), horizon);
        }
        if survivors < leaf.count() {
            self.shrink_leaf(&path, survivors, stays);
        }
        self.collect_some();
        Some(next)
    }

    /// Bytes of memory in use.
    pub(crate) fn overlay_live(&self) -> usize {
        [Kind::Record, Kind::Leaf, Kind::Inner].map(|kind| self.arena.usage(kind).live).iter().sum()
    }

    /// Frees what was let go, and brings the figures up to date.
    pub(crate) fn overlay_settle(&mut self) {
        self.collect();
        self.publish_figures();
    }

    /// Cuts a chain of versions behind those above the horizon.
    fn release_older(&mut self, newest: RecordRef<'_>, horizon: Version) {
        let mut last = newest;
        while let Some(prev) = last.prev() {
            if prev.version() > horizon {
                last = prev;
                continue;
            }
            last.set_prev(None);
            let mut gone = Some(prev);
            while let Some(record) = gone {
                gone = record.prev();
                self.garbage.retire(record.as_ptr());
            }
            return;
        }
    }

    /// Makes the leaf anew with the entries that stay; the others' records are alone in their
    /// chains.
    pub(super) fn shrink_leaf(
        &mut self,
        path: &Path<'_>,
        survivors: usize,
        stays: impl Fn(RecordRef<'_>) -> bool,
    ) {
        let leaf = path.leaf;
        let mut weight = 0;
        for at in 0..leaf.count() {
            let record = leaf.record(at);
            if stays(record) {
                continue;
            }
            weight += record.weight();
            if let Some(value) = record.value() {
                let bytes = record::OVERHEAD + record.key().len() + value.len();
                self.newest_bytes -= Arena::rounded(bytes);
                self.rows -= 1;
            }
            self.garbage.retire(record.as_ptr());
        }
        add_weight_above(path, -weight);
        if survivors == 0 && path.depth() > 0 {
            return self.replace_leaf(path, &[]);
        }
        let prefix_len = if survivors == 0 { 0 } else { leaf.node().prefix_len() };
        let mut builder = LeafBuilder::new(&mut self.arena, prefix_len);
        extend_staying(&mut builder, leaf, stays);
        builder.set_weight(leaf.node().weight() - weight);
        self.replace_leaf(path, &[builder.finish()]);
    }
}

fn extend_staying(
    builder: &mut LeafBuilder,
    leaf: LeafRef<'_>,
    stays: impl Fn(RecordRef<'_>) -> bool,
) {
    let mut at = 0;
    while at < leaf.count() {
        let begin = at;
        while at < leaf.count() && stays(leaf.record(at)) {
            at += 1;
        }
        builder.extend(leaf, begin..at);
        at += 1;
    }
}
