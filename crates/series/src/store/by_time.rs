//! Rows by time that are rewritten: what doesn't fit a tree, since it may come in any order.
//!
//! Each row is keyed by its first time when it was made, and holds what lies between that and the
//! next one's key. What comes goes into the row before it; one that gets too large becomes several.
//! So a writer reads two rows and writes one, wherever in time that is. Where both have little they
//! become one: what comes newest first, each time before all that there is, would leave a row each
//! time, and deletes leave small ones. So points may go to a row with an earlier key, never to one
//! with a later key than their time.

use super::keys::{Id, Keys};
use crate::error::Result;
use crate::tree::Span;
use plinth_client::{RangeOptions, Transaction};
use plinth_types::{Bytes, key_after, strinc};
use std::collections::BTreeMap;

/// A kind of such rows.
pub(super) trait ByTime {
    /// What there is at a time.
    type Value: Clone;
    /// What a row that is read counts as, however little it has: where the database is elsewhere
    /// that is what takes time.
    const VISIT: usize;
    /// How much two rows that lie beside each other may have for them to become one, counted as
    /// they are; 0 where rows stay.
    const JOINED: usize;

    /// What the keys of a series' rows begin with.
    fn all(&self, keys: &Keys, id: Id) -> Vec<u8>;

    /// The key of the row that begins at a time.
    fn row(&self, keys: &Keys, id: Id, first: i64) -> Vec<u8>;

    /// What writing a value counts as.
    fn weight(value: &Self::Value) -> usize;

    /// What a row holds, ascending.
    fn decode(&self, row: &[u8]) -> Result<Vec<(i64, Self::Value)>>;

    /// One or more as rows, each with its first time; `are_last` if no row lies behind them.
    fn encode(&self, all: Vec<(i64, Self::Value)>, are_last: bool) -> Vec<(i64, Vec<u8>)>;
}

/// Puts values from a time on among those of a series: as many as there is room for, counted as
/// `R` does. Gives the time at which to go on, in another transaction, if there are more.
pub(super) async fn merge<R: ByTime>(
    of: &R,
    (tr, keys, id): (&Transaction, &Keys, Id),
    new: &BTreeMap<i64, R::Value>,
    from: i64,
    mut room: usize,
) -> Result<Option<i64>> {
    let all = of.all(keys, id);
    let end = strinc(&all).unwrap_or_else(|| Bytes::from_static(b"\xff"));
    let mut next_time = new.range(from..).next().map(|(time, _)| *time);
    while let Some(first) = next_time {
        if room == 0 {
            return Ok(next_time);
        }
        let key = of.row(keys, id, first);
        let one = |begin: &[u8], end: &[u8], reverse: bool| {
            let range = RangeOptions::from(begin.to_vec()..end.to_vec()).limit(1).reverse(reverse);
            tr.snapshot().get_range(range)
        };
        let after = key_after(&key);
        let (before, next) = (one(&all, &after, true), one(&after, &end, false));
        let before =
            before.await?.rows.iter().next().map(|(key, row)| (key.to_vec(), row.to_vec()));
        let next = match next.await?.rows.iter().next() {
            Some((key, row)) => Some((key.to_vec(), of.decode(row)?)),
            None => None,
        };
        let bound = next.as_ref().and_then(|(_, row)| row.first()).map(|(time, _)| *time);
        let mut merged = BTreeMap::new();
        if let Some((key, row)) = &before {
            merged.extend(of.decode(row)?);
            tr.clear(key);
        }
        let read: usize = merged.values().map(R::weight).sum();
        room = room.saturating_sub(read.max(R::VISIT));
        next_time = None;
        for (count, (time, value)) in new.range(first..).enumerate() {
            // One of them at least, so that this comes to an end.
            if bound.is_some_and(|bound| *time >= bound) || (room == 0 && count > 0) {
                next_time = Some(*time);
                break;
            }
            room = room.saturating_sub(R::weight(value));
            merged.insert(*time, value.clone());
        }
        if let Some((key, row)) = next {
            let more: usize = row.iter().map(|(_, value)| R::weight(value)).sum();
            if merged.values().map(R::weight).sum::<usize>() + more <= R::JOINED {
                tr.clear(key);
                merged.extend(row);
                room = room.saturating_sub(more);
            }
        }
        for (first, row) in of.encode(merged.into_iter().collect(), bound.is_none()) {
            tr.set(of.row(keys, id, first), row);
        }
    }
    Ok(None)
}

/// Removes what there is of a series in a span: rows wholly within it at once, and of the two that
/// lie across its ends what is within.
pub(super) async fn remove<R: ByTime>(
    of: &R,
    (tr, keys, id): (&Transaction, &Keys, Id),
    span: Span,
) -> Result<()> {
    if span.is_empty() {
        return Ok(());
    }
    let all = of.all(keys, id);
    let up_to = |time: i64| {
        let end = key_after(&of.row(keys, id, time)).to_vec();
        let range = RangeOptions::from(all.clone()..end);
        tr.snapshot().get_range(range.limit(1).reverse(true))
    };
    let (first, last) = (up_to(span.first), up_to(span.last));
    let mut across: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for rows in [first.await?.rows, last.await?.rows] {
        across.extend(rows.iter().map(|(key, row)| (key.to_vec(), row.to_vec())));
    }
    // A row ends where the next one begins, so those that begin behind the first moment and before
    // the last row lie within.
    if let Some((last, _)) = across.last_key_value() {
        let behind = key_after(&of.row(keys, id, span.first));
        if behind[..] < last[..] {
            tr.clear_range(behind, last);
        }
    }
    for (key, row) in across {
        let mut kept = of.decode(&row)?;
        let before = kept.len();
        kept.retain(|(time, _)| *time < span.first || *time > span.last);
        if kept.len() == before {
            continue;
        }
        tr.clear(&key);
        if !kept.is_empty() {
            for (first, row) in of.encode(kept, false) {
                tr.set(of.row(keys, id, first), row);
            }
        }
    }
    Ok(())
}
