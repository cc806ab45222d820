//! Whether the index is what it should be: for tests and simulation, after each step.

use super::node::{LeafRef, Node, NodeRef};
use super::writer::Writer;

/// What has been seen of the tree so far, in key order.
#[derive(Default)]
struct Seen<'a> {
    last_key: Option<&'a [u8]>,
    rows: u64,
}

impl Writer {
    /// # Panics
    /// If an invariant does not hold.
    pub(crate) fn check_invariants(&self) {
        self.check_tree();
        self.check_counts();
    }

    /// Checks the tree alone: an overlay leaves older versions to their keys, so that memory is
    /// counted otherwise.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub(crate) fn check_tree(&self) {
        let pin = self.core().epochs.pin();
        let root = self.core().root(&pin);
        let mut seen = Seen::default();
        let weight = seen.node(root, &[], None, true);
        assert_eq!(weight, root.weight(), "weight of the root");
        assert_eq!(seen.rows, self.rows(), "count of rows");
        assert!(self.core().oldest() <= self.core().newest());
    }
}

impl<'a> Seen<'a> {
    /// Checks a node whose keys are at or above `low` and below `high`. Gives what the rows below
    /// it weigh.
    fn node(&mut self, node: NodeRef<'a>, low: &[u8], high: Option<&[u8]>, is_root: bool) -> i64 {
        let inner = match node.kind() {
            Node::Leaf(leaf) => return self.leaf(leaf, low, high, is_root),
            Node::Inner(inner) => inner,
        };
        let count = inner.count();
        assert!(count >= if is_root { 2 } else { 1 }, "children of an inner node");
        let mut weight = 0;
        for at in 0..count {
            let child = inner.child(at);
            assert_eq!(child.level() + 1, node.level(), "levels");
            let from = if at == 0 { low } else { inner.separator(at - 1).bytes() };
            let to = if at + 1 == count { high } else { Some(inner.separator(at).bytes()) };
            assert!(to.is_none_or(|to| from < to), "separators ascend");
            if at > 0 {
                let separator = inner.separator(at - 1).bytes();
                assert_eq!(
                    inner.route(separator, &mut 0),
                    at,
                    "a separator leads to the child behind it"
                );
            }
            weight += self.node(child, from, to, false);
        }
        assert_eq!(weight, node.weight(), "weight of an inner node");
        weight
    }

    fn leaf(&mut self, leaf: LeafRef<'a>, low: &[u8], high: Option<&[u8]>, is_root: bool) -> i64 {
        assert!(leaf.count() > 0 || is_root, "an empty leaf");
        let mut weight = 0;
        for at in 0..leaf.count() {
            let record = leaf.record(at);
            let key = record.key();
            assert!(
                low <= key && high.is_none_or(|high| key < high),
                "a key outside its leaf's bounds"
            );
            assert!(self.last_key.is_none_or(|last| last < key), "keys ascend");
            let found = leaf.candidate(key).and_then(|candidate| leaf.confirm(candidate, key));
            assert_eq!(found.map(|(found, _)| found), Some(at), "a key is found where it is");
            assert_eq!(leaf.seek(key, 0), at);
            let mut older = record;
            while let Some(prev) = older.prev() {
                assert!(
                    prev.version() <= older.version() && prev.key() == key,
                    "a chain of versions"
                );
                older = prev;
            }
            self.last_key = Some(key);
            self.rows += u64::from(!record.is_tombstone());
            weight += record.weight();
        }
        assert_eq!(weight, leaf.node().weight(), "weight of a leaf");
        weight
    }
}
