//! Sizes of ranges and points to split them at, from indexes and window alone: no block is read for
//! them.
//!
//! Rows that were overwritten or removed and not yet merged away count until then. What a block
//! holds is taken to lie evenly over the keys between its separator and the next.

use super::state::State;
use crate::memory::Overlay;
use plinth_types::Bytes;

/// Pieces that one range is split into, at most.
const MOST_PIECES: u64 = 65_536;

/// Key and value bytes of a range.
pub(super) fn range_size(
    state: &State,
    overlay: Option<&Overlay>,
    begin: &[u8],
    end: &[u8],
) -> u64 {
    if begin >= end {
        return 0;
    }
    overlay.map_or(0, |overlay| overlay.range_size(begin, end)) + state.range_size(begin, end)
}

/// Keys that split a range into pieces of about `chunk` bytes; the first is `begin` and the last
/// `end`.
pub(super) fn split(
    state: &State,
    overlay: Option<&Overlay>,
    begin: &[u8],
    end: &[u8],
    chunk: u64,
) -> Vec<Bytes> {
    let mut points = vec![Bytes::copy_from_slice(begin)];
    if begin >= end {
        return points;
    }
    let total = range_size(state, overlay, begin, end);
    let chunk = chunk.max(1);
    let pieces = (total.saturating_add(chunk / 2) / chunk).clamp(1, MOST_PIECES);
    let (mut passed, mut made) = (0u64, 1);
    for (key, weight) in samples(state, overlay, begin, end, pieces) {
        let due = u128::from(total) * u128::from(made) / u128::from(pieces);
        if u128::from(passed) >= due
            && made < pieces
            && points.last().is_some_and(|last| *last < key)
        {
            points.push(key);
            made = (u128::from(passed) * u128::from(pieces) / u128::from(total.max(1))) as u64 + 1;
        }
        passed += weight;
    }
    points.push(Bytes::copy_from_slice(end));
    points
}

/// Keys of a range in ascending order, each with the bytes from it to the next one of the same
/// source: about eight for each piece.
fn samples(
    state: &State,
    overlay: Option<&Overlay>,
    begin: &[u8],
    end: &[u8],
    pieces: u64,
) -> Vec<(Bytes, u64)> {
    let inside = |key: &[u8]| *begin < *key && *key < *end;
    let mut samples = Vec::new();
    if let Some(overlay) = overlay {
        let chunk = (overlay.range_size(begin, end) / (8 * pieces)).max(1);
        let points = overlay.split_points(begin, end, chunk);
        samples.extend(points.into_iter().filter(|key| inside(key)).map(|key| (key, chunk)));
    }
    for table in state.tables().filter(|table| table.overlaps(begin, end)) {
        let index = table.index();
        let stride =
            index.count().div_ceil(usize::try_from(8 * pieces).unwrap_or(usize::MAX)).max(1);
        let blocks = index.count().max(1) as u64;
        let weight = table.footer().row_bytes * stride as u64 / blocks;
        let keys = (0..index.count()).step_by(stride).map(|at| index.separator(at));
        let keys = keys.filter(|key| inside(key)).map(|key| (Bytes::copy_from_slice(key), weight));
        samples.extend(keys);
    }
    samples.sort_unstable();
    samples
}
