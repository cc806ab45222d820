//! Sizes of ranges and points to split them at.
//!
//! FoundationDB keeps a sample of the rows for this. Here each node knows what the rows below it
//! weigh (key and value bytes of their newest versions), so the weight of all keys below a given
//! one is a sum along one path, exact but for what the writer does meanwhile, and small ranges are
//! as exact as large ones.

use super::core::Core;
use super::node::{Node, NodeRef};
use plinth_types::Bytes;

/// Pieces that one range is split into, at most.
const MOST_PIECES: i64 = 65_536;

impl Core {
    /// Key and value bytes of the rows in a range, as of now.
    pub(crate) fn range_size(&self, begin: &[u8], end: &[u8]) -> u64 {
        if begin >= end {
            return 0;
        }
        let pin = self.epochs.pin();
        let root = self.root(&pin);
        (weight_below(root, end) - weight_below(root, begin)).max(0) as u64
    }

    /// Keys that split a range into pieces of about `chunk` bytes; the first is `begin` and the
    /// last `end`.
    pub(crate) fn split_points(&self, begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes> {
        let mut points = vec![Bytes::copy_from_slice(begin)];
        if begin >= end {
            return points;
        }
        let first = weight_below(self.root(&self.epochs.pin()), begin);
        let total = self.range_size(begin, end) as i64;
        let chunk = i64::try_from(chunk).unwrap_or(i64::MAX).max(1);
        let pieces = (total / chunk + i64::from(total % chunk > chunk / 2)).min(MOST_PIECES);
        for piece in 1..pieces {
            let weight =
                first + (i128::from(total) * i128::from(piece) / i128::from(pieces)) as i64;
            let pin = self.epochs.pin();
            let Some(key) = key_at_weight(self.root(&pin), weight) else { break };
            if key >= end {
                break;
            }
            if points.last().is_some_and(|last| **last < *key) {
                points.push(Bytes::copy_from_slice(key));
            }
        }
        points.push(Bytes::copy_from_slice(end));
        points
    }
}

/// What the rows with keys below `key` weigh.
fn weight_below(root: NodeRef<'_>, key: &[u8]) -> i64 {
    let (mut node, mut verified, mut weight) = (root, 0, 0);
    loop {
        match node.kind() {
            Node::Inner(inner) => {
                let at = inner.route(key, &mut verified);
                weight += (0..at).map(|before| inner.child(before).weight()).sum::<i64>();
                node = inner.child(at);
            }
            Node::Leaf(leaf) => {
                let at = leaf.seek(key, verified);
                return weight + (0..at).map(|before| leaf.record(before).weight()).sum::<i64>();
            }
        }
    }
}

/// The first key before which rows of at least `weight` lie.
fn key_at_weight(root: NodeRef<'_>, weight: i64) -> Option<&[u8]> {
    let (mut node, mut left) = (root, weight);
    loop {
        match node.kind() {
            Node::Inner(inner) => {
                let heavy = (0..inner.count()).find(|at| {
                    let below = inner.child(*at).weight();
                    let here = left <= below;
                    left -= if here { 0 } else { below };
                    here
                });
                node = inner.child(heavy?);
            }
            Node::Leaf(leaf) => {
                for at in 0..leaf.count() {
                    let record = leaf.record(at);
                    if left <= 0 {
                        return Some(record.key());
                    }
                    left -= record.weight();
                }
                // The first key of the next leaf would do; the last one here is as near.
                return leaf.count().checked_sub(1).map(|last| leaf.record(last).key());
            }
        }
    }
}
