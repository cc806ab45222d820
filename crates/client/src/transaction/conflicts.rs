//! Which read conflict ranges a read adds.
//!
//! A read's range says which writes of others could have changed its result. Of that range only the
//! parts count that depend on the database: what own writes decide alone (keys set, keys cleared)
//! nobody else can change. Own writes are those at the time of the call.

use super::state::State;
use super::writes::RANGE_OVERHEAD;
use crate::write_map::{Edge, WriteMap};
use bytes::Bytes;
use plinth_types::{KeyRange, KeySelector, RangeList, RangeResult, key_after, planted};

/// The same ranges, sorted, those that touch or overlap made one.
pub(crate) fn coalesced(list: &RangeList) -> RangeList {
    let mut ranges: Vec<KeyRange> = list.iter().map(|range| range.to_range()).collect();
    ranges.sort();
    let mut merged = RangeList::new();
    let mut ranges = ranges.into_iter();
    let Some(mut current) = ranges.next() else { return merged };
    for range in ranges {
        if range.begin > current.end {
            merged.push(&current.begin, &current.end);
            current = range;
        } else if range.end > current.end {
            current.end = range.end;
        }
    }
    merged.push(&current.begin, &current.end);
    merged
}

/// The range that a `get_key` depends on: between the selector's (normalised) key and the result.
pub(super) fn of_get_key(selector: &KeySelector, result: &Bytes) -> (Bytes, Bytes) {
    if selector.offset <= 0 {
        (result.clone(), selector.key.clone())
    } else {
        (selector.key.clone(), key_after(result))
    }
}

/// The range that a range read depends on. `begin` and `end` are normalised.
pub(crate) fn of_get_range(
    begin: &KeySelector,
    end: &KeySelector,
    reverse: bool,
    result: &RangeResult,
    max_key: &'static [u8],
) -> (Bytes, Bytes) {
    let first = result.rows.row(0).map(|(key, _)| key);
    let last = result.rows.last().map(|(key, _)| key);
    let (mut low, mut high) = if begin.key < end.key {
        // Nothing beyond the last row can change a result that a limit ended.
        let cut_low = reverse && result.more && begin.offset <= 1;
        let more = result.more || planted!("range reads forget the gap behind the last row");
        let cut_high = !reverse && more && end.offset > 0;
        let low = if cut_low { &end.key } else { &begin.key };
        let high = if cut_high { &begin.key } else { &end.key };
        (low.clone(), high.clone())
    } else {
        (end.key.clone(), begin.key.clone())
    };
    if result.read_to_begin && begin.offset <= 0 {
        low = Bytes::new();
    }
    if result.read_through_end && end.offset > 0 {
        high = Bytes::from_static(max_key);
    }
    let (smallest, largest) = if reverse { (last, first) } else { (first, last) };
    if let (Some(smallest), Some(largest)) = (smallest, largest) {
        if (reverse || begin.offset <= 0) && *smallest < low[..] {
            low = Bytes::copy_from_slice(smallest);
        }
        if (!reverse || end.offset > 0) && high[..] <= *largest {
            high = key_after(largest);
        }
    }
    (low, high)
}

impl State {
    /// Adds a read conflict range as of the writes in `map`; all of it without a map.
    pub(super) fn add_read_conflict(&mut self, map: Option<&WriteMap>, begin: &[u8], end: &[u8]) {
        if begin >= end {
            return;
        }
        let size = (begin.len() + end.len()) as i64 + RANGE_OVERHEAD;
        let Some(map) = map else {
            self.writes.size += size;
            return self.reads.conflicts.push(begin, end);
        };
        for segment in map.segments(begin, end).filter(|segment| segment.depends_on_database()) {
            let from = segment.begin;
            let low = if from.cmp_key(begin).is_le() {
                Bytes::copy_from_slice(begin)
            } else {
                from.to_key()
            };
            let high = segment.end.filter(|edge| edge.cmp_key(end).is_lt()).map(Edge::to_key);
            let high = high.as_deref().unwrap_or(end);
            if low[..] < *high {
                self.writes.size += size;
                self.reads.conflicts.push(&low, high);
            }
        }
    }

    /// Adds a read conflict range as of now.
    pub(super) fn add_read_conflict_now(&mut self, begin: &[u8], end: &[u8]) {
        if self.options.ryw_disabled || self.writes.mutations.is_empty() {
            return self.add_read_conflict(None, begin, end);
        }
        let map = self.writes.map().clone();
        self.add_read_conflict(Some(&map), begin, end);
    }
}
