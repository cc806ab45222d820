//! Late points: those that came when later ones were sealed already. They lie in leaves of their
//! own, by time, which are rewritten (`by_time.rs`).
//!
//! Readers merge them with the tree, and a late point with the time of another replaces it.

use super::by_time::ByTime;
use super::keys::{Id, Keys};
use crate::codec;
use crate::error::Result;
use crate::value::{Point, Points, Value};
use std::collections::BTreeMap;

/// Points of a leaf, at most.
const LEAF_POINTS: usize = 1024;

/// The leaves of late points; each counts in points.
pub(super) struct LatePoints;

impl ByTime for LatePoints {
    type Value = Value;
    const VISIT: usize = 512;
    /// A quarter less than a leaf: some more have room then before it becomes two again.
    const JOINED: usize = LEAF_POINTS / 4 * 3;

    fn all(&self, keys: &Keys, id: Id) -> Vec<u8> {
        keys.sides(id)
    }

    fn row(&self, keys: &Keys, id: Id, first: i64) -> Vec<u8> {
        keys.side(id, first)
    }

    fn weight(_: &Value) -> usize {
        1
    }

    fn decode(&self, row: &[u8]) -> Result<Vec<(i64, Value)>> {
        let mut points = Points::default();
        codec::decode(row, &mut points)?;
        Ok(points.iter().map(|point| (point.time, point.value)).collect())
    }

    /// Evenly full.
    fn encode(&self, points: Vec<(i64, Value)>, _: bool) -> Vec<(i64, Vec<u8>)> {
        let leaves = points.len().div_ceil(LEAF_POINTS).max(1);
        let leaf = |points: &[(i64, Value)]| {
            let points = points.iter().map(|(time, value)| Point { time: *time, value: *value });
            let leaf: Points = points.collect();
            (leaf.times[0], codec::encode(&leaf))
        };
        points.chunks(points.len().div_ceil(leaves).max(1)).map(leaf).collect()
    }
}

/// Points that came in this order, by time: of those at one time the last one counts.
pub(crate) fn by_time(points: &[Point]) -> BTreeMap<i64, Value> {
    points.iter().map(|point| (point.time, point.value)).collect()
}
