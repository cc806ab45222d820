//! Sizes of ranges and points to split them at.
//!
//! FoundationDB keeps a sample of the rows for this. Here each node knows what the rows below it
//! weigh (key and value bytes of their newest versions), so the weight of all keys below a given
//! one is a sum along one path, exact but for what the writer does meanwhile, and small ranges are
//! as exact as large ones.
//!
//! How many rows there are is not in the nodes: few ask for it, and each write would pay. It is
//! estimated from leaves at even distances, by weight, across the range. A leaf is met the more
//! often the heavier it is, so the mean of rows by weight over those that are met, times the weight
//! of all, is right on average however different the rows are; and because rows of one kind lie
//! together, it is near.

use super::core::Core;
use super::node::{LeafRef, Node, NodeRef};
use plinth_types::Bytes;

/// Pieces that one range is split into, at most.
const MOST_PIECES: i64 = 65_536;
/// Leaves that a count of rows looks into.
const SAMPLES: i64 = 128;

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

    /// How many rows a range has, about, as of now: exactly where they are in one leaf.
    pub(crate) fn range_count(&self, begin: &[u8], end: &[u8]) -> u64 {
        if begin >= end {
            return 0;
        }
        let pin = self.epochs.pin();
        let root = self.root(&pin);
        let first = weight_below(root, begin);
        let total = (weight_below(root, end) - first).max(0);
        let samples = SAMPLES.min(total);
        let by_weight = |sample: i64| {
            // In the middle of its share.
            let at = i128::from(total) * i128::from(2 * sample + 1) / i128::from(2 * samples);
            let leaf = leaf_at_weight(root, first + at as i64)?.0;
            let inside = (0..leaf.count())
                .map(|slot| leaf.record(slot))
                .filter(|record| record.key() >= begin && record.key() < end)
                .filter(|record| record.weight() > 0)
                .map(|record| record.weight());
            let (rows, weight) =
                inside.fold((0_u32, 0), |(rows, sum), weight| (rows + 1, sum + weight));
            (rows > 0).then(|| f64::from(rows) / weight as f64)
        };
        let met: Vec<f64> = (0..samples).filter_map(by_weight).collect();
        let mean = met.iter().sum::<f64>() / met.len().max(1) as f64;
        (mean * total as f64).round() as u64
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

/// The leaf in which the rows reach `weight`, and how much of that is left for those in it.
fn leaf_at_weight(root: NodeRef<'_>, weight: i64) -> Option<(LeafRef<'_>, i64)> {
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
            Node::Leaf(leaf) => return Some((leaf, left)),
        }
    }
}

/// The first key before which rows of at least `weight` lie.
fn key_at_weight(root: NodeRef<'_>, weight: i64) -> Option<&[u8]> {
    let (leaf, mut left) = leaf_at_weight(root, weight)?;
    for at in 0..leaf.count() {
        let record = leaf.record(at);
        if left <= 0 {
            return Some(record.key());
        }
        left -= record.weight();
    }
    // The first key of the next leaf would do; the last one here is as near.
    leaf.count().checked_sub(1).map(|last| leaf.record(last).key())
}
