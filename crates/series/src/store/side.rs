//! Late points: those that came when later ones were sealed already. They lie in leaves of their
//! own, by time, which are rewritten.
//!
//! Each leaf is keyed by its first time when it was made, and holds what lies between that and the
//! next one's key. A point goes into the leaf before it; a leaf that gets too large becomes
//! several. Readers merge them with the tree, and a late point with the time of another replaces
//! it.

use super::keys::{Id, Keys};
use crate::codec;
use crate::error::Result;
use crate::tree::Span;
use crate::value::{Point, Points, Value};
use plinth_client::{RangeOptions, Transaction};
use plinth_types::{Bytes, key_after, strinc};
use std::collections::BTreeMap;

/// Points of a leaf, at most.
const LEAF_POINTS: usize = 1024;
/// What a leaf that is read counts as in points, however few it has: where the database is
/// elsewhere that is what takes time.
pub(crate) const VISIT: usize = 512;

/// Points that came in this order, by time: of those at one time the last one counts.
pub(crate) fn by_time(points: &[Point]) -> BTreeMap<i64, Value> {
    points.iter().map(|point| (point.time, point.value)).collect()
}

/// Puts points from a time on among the late points of a series: as many as there is room for,
/// counted in points of the leaves that are written. Gives the time at which to go on, in another
/// transaction, if there are more.
pub(crate) async fn merge(
    tr: &Transaction,
    keys: &Keys,
    id: Id,
    points: &BTreeMap<i64, Value>,
    from: i64,
    mut room: usize,
) -> Result<Option<i64>> {
    let all = keys.sides(id);
    let end = strinc(&all).unwrap_or_else(|| Bytes::from_static(b"\xff"));
    let mut next_time = points.range(from..).next().map(|(time, _)| *time);
    while let Some(first) = next_time {
        if room == 0 {
            return Ok(next_time);
        }
        let key = keys.side(id, first);
        let one = |begin: &[u8], end: &[u8], reverse: bool| {
            let range = RangeOptions::from(begin.to_vec()..end.to_vec()).limit(1).reverse(reverse);
            tr.snapshot().get_range(range)
        };
        let after = key_after(&key);
        let (before, next) = (one(&all, &after, true), one(&after, &end, false));
        let before =
            before.await?.rows.iter().next().map(|(key, value)| (key.to_vec(), value.to_vec()));
        let bound = match next.await?.rows.iter().next() {
            Some((_, value)) => first_time(value)?,
            None => None,
        };
        let mut merged = BTreeMap::new();
        if let Some((key, value)) = &before {
            let mut old = Points::default();
            codec::decode(value, &mut old)?;
            merged.extend(old.iter().map(|point| (point.time, point.value)));
            tr.clear(key);
        }
        room = room.saturating_sub(merged.len().max(VISIT));
        next_time = None;
        for (count, (time, value)) in points.range(first..).enumerate() {
            // One of them at least, so that this comes to an end.
            if bound.is_some_and(|bound| *time >= bound) || (room == 0 && count > 0) {
                next_time = Some(*time);
                break;
            }
            merged.insert(*time, *value);
            room = room.saturating_sub(1);
        }
        write(tr, keys, id, merged);
    }
    Ok(None)
}

/// Writes points as leaves, evenly full.
fn write(tr: &Transaction, keys: &Keys, id: Id, points: BTreeMap<i64, Value>) {
    let size = points.len().div_ceil(points.len().div_ceil(LEAF_POINTS).max(1)).max(1);
    let points: Vec<Point> =
        points.into_iter().map(|(time, value)| Point { time, value }).collect();
    for leaf in points.chunks(size) {
        let leaf: Points = leaf.iter().copied().collect();
        tr.set(keys.side(id, leaf.times[0]), codec::encode(&leaf));
    }
}

fn first_time(value: &[u8]) -> Result<Option<i64>> {
    let mut points = Points::default();
    codec::decode(value, &mut points)?;
    Ok(points.times.first().copied())
}

/// Removes the late points of a span: leaves wholly within it at once, and of the two that lie
/// across its ends what is within.
pub(crate) async fn remove(tr: &Transaction, keys: &Keys, id: Id, span: Span) -> Result<()> {
    if span.is_empty() {
        return Ok(());
    }
    let all = keys.sides(id);
    let up_to = |time: i64| {
        let range = RangeOptions::from(all.clone()..key_after(&keys.side(id, time)).to_vec());
        tr.snapshot().get_range(range.limit(1).reverse(true))
    };
    let (first, last) = (up_to(span.first), up_to(span.last));
    let mut across: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for rows in [first.await?.rows, last.await?.rows] {
        across.extend(rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
    // A leaf ends where the next one begins, so those that begin behind the first moment and before
    // the last leaf lie within.
    if let Some((last, _)) = across.last_key_value() {
        let behind = key_after(&keys.side(id, span.first));
        if behind[..] < last[..] {
            tr.clear_range(behind, last);
        }
    }
    for (key, value) in across {
        let mut leaf = Points::default();
        codec::decode(&value, &mut leaf)?;
        let places = span.places(&leaf.times);
        if places.is_empty() {
            continue;
        }
        tr.clear(&key);
        let kept = (0..leaf.len()).filter(|place| !places.contains(place));
        let kept: BTreeMap<i64, Value> =
            kept.map(|place| (leaf.times[place], leaf.values.get(place))).collect();
        if !kept.is_empty() {
            write(tr, keys, id, kept);
        }
    }
    Ok(())
}
