//! Filling an empty store with rows that come in key order, as from a checkpoint.
//!
//! As long as keys ascend, each row goes behind the last one: into the last leaf, to which the way
//! is kept instead of looked up. The leaves come out full.

use super::super::node::LEAF_SLOTS;
use super::super::tree::Path;
use super::Writer;
use super::shape::{add_weight_above, shares_prefix};
use plinth_types::{LogPosition, Version};

/// A writer that only adds rows of one version, before anybody reads.
pub(crate) struct Filling {
    writer: Writer,
    version: Version,
    /// The way to the last leaf of the tree, while it is known.
    tail: Option<Path<'static>>,
    /// What was added to that leaf and is not yet counted above it.
    weight: i64,
}

// SAFETY: the way leads through memory of the writer's arena, which goes along.
unsafe impl Send for Filling {}

impl Filling {
    /// Begins with an empty store that is to have everything up to this place in the log.
    pub(crate) fn new(at: LogPosition) -> Self {
        Self { writer: Writer::new(at), version: at.version, tail: None, weight: 0 }
    }

    /// Adds a row, or overwrites the one that has its key.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        if let Some(tail) = &self.tail {
            let (leaf, count) = (tail.leaf, tail.leaf.count());
            let behind = count > 0 && count < LEAF_SLOTS && leaf.record(count - 1).key() < key;
            if behind && shares_prefix(leaf, key, 0) {
                let record = self.writer.create_first(self.version, key, value);
                leaf.append(record, key);
                self.weight += (key.len() + value.len()) as i64;
                return;
            }
        }
        self.settle();
        let path = Path::descend(self.writer.root(), key);
        match path.find(key) {
            Some((at, old)) => self.writer.replace(&path, at, old, self.version, Some(value)),
            None => self.writer.insert(&path, self.version, key, value),
        }
        self.writer.collect_some();
        // Nothing changes the way until the next row that takes this turn.
        let path = Path::descend(self.writer.root(), key);
        self.tail = path.is_last().then_some(path);
    }

    /// The filled store.
    pub(crate) fn finish(mut self) -> Writer {
        self.settle();
        self.writer.publish_figures();
        self.writer
    }

    fn settle(&mut self) {
        if let Some(tail) = self.tail.take() {
            tail.leaf.node().add_weight(self.weight);
            add_weight_above(&tail, self.weight);
            self.weight = 0;
        }
    }
}
