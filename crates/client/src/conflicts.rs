//! Which range a read depends on: which writes of others could have changed its result.
//!
//! Of that range only the parts count that depend on the database, which the transaction's read set
//! knows.

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
pub(crate) fn of_get_key(selector: &KeySelector, result: &Bytes) -> (Bytes, Bytes) {
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
