//! The inbox: points that transactions write beside keys and values, for the owner of the series to
//! take in.
//!
//! ```text
//!   transaction: tr.set(key, value), points --commit--> row of the inbox, by versionstamp: in the order of the commits
//!                                                         |
//!   owner: on a read, and every now and then: --> memory of the series --one step--> batch of the tail, leaf or late points
//!                                                                        last step--> the row goes
//! ```
//!
//! Who writes owns nothing and reads nothing that it could conflict about, so such transactions
//! conflict with nobody because of their points. Beside the rows stands their size, which is added
//! to and taken from in the same commits: a reader sees by it whether anything waits, and a writer
//! that there is room; if not, it is told to try again later, until the owner has taken something
//! in. A row goes in the last step of the flush that saves its points. A crash between two steps
//! leaves points that are in the tree and in the inbox; they are taken in again, to the same end,
//! because whoever opens the series takes the inbox in before it writes or deletes anything else.
//! Points that a reader of the owner's has to see were committed before it began: it looks into the
//! inbox, and has it taken in if there is anything.

use super::keys::Keys;
use super::letter::{decode, grow, size};
use super::names::POSTED_END;
use super::{Place, Shared, lock, names, retry};
use crate::error::Result;
use plinth_client::{RangeOptions, StreamingMode, Transaction};
use plinth_types::{Bytes, KeyValue, key_after};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows that are taken in at a time.
const ROWS: usize = 64;

/// Whether anything waits, as `tr` sees it.
pub(super) async fn has_any(tr: &Transaction, keys: &Keys) -> plinth_types::Result<bool> {
    Ok(size(tr.snapshot().get(keys.inbox_size()).await?.as_ref()) != 0)
}

/// The key of the last row that there is.
pub(super) async fn last(shared: &Shared) -> Result<Option<Bytes>> {
    let range = &RangeOptions::prefix(shared.keys.inbox()).limit(1).reverse(true);
    let first = |tr: Transaction| async move { tr.snapshot().get_range(range.clone()).await };
    let rows = retry::transact(&shared.database, first).await?.rows;
    Ok(rows.iter().next().map(|(key, _)| Bytes::copy_from_slice(key)))
}

/// The first rows, some at a time.
async fn rows(shared: &Shared) -> Result<Vec<KeyValue>> {
    let range = RangeOptions::prefix(shared.keys.inbox()).limit(ROWS).mode(StreamingMode::WantAll);
    let range = &range;
    let rows = |tr: Transaction| async move { tr.snapshot().range(range.clone()).collect().await };
    retry::transact(&shared.database, rows).await
}

/// The rows that a flush takes in: they go in its last step.
pub(super) struct Taken {
    /// The key of the first.
    first: Bytes,
    /// A key behind the last.
    end: Bytes,
    /// What all of them have.
    bytes: i64,
}

impl Taken {
    /// Whether the row of this key is among them, or before them.
    pub(super) fn reaches(&self, key: &[u8]) -> bool {
        self.end[..] > *key
    }

    /// Removes them. Doing so twice is the same as once: what is gone already is not taken from the
    /// size again, and since it is read with a conflict, a try whose answer was lost can't be under
    /// way still.
    pub(super) async fn remove(&self, tr: &Transaction, keys: &Keys) -> plinth_types::Result<()> {
        if tr.get(&self.first).await?.is_some() {
            tr.clear_range(&self.first, &self.end);
            grow(tr, keys, -self.bytes);
        }
        Ok(())
    }
}

/// Puts the next rows' points into memory, for whoever has the turn and saves them now. `None` if
/// there are no more.
pub(super) async fn take_some(shared: &Arc<Shared>) -> Result<Option<Taken>> {
    let rows = rows(shared).await?;
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(None) };
    // Stamps ascend with the versions of commits, and all of them up to the version of the read
    // were there: none can come in between.
    let bytes = rows.iter().map(|row| row.value.len() as i64).sum();
    let taken = Taken { first: first.key.clone(), end: key_after(&last.key), bytes };
    let mut letters = Vec::with_capacity(rows.len());
    for row in &rows {
        let (names, points) = decode(&row.value)?;
        letters.push((names::open(shared, &names).await?, points));
    }
    for (series, points) in letters {
        for (which, point) in points {
            let cell = &series[which].cell;
            let mut state = lock(&cell.state);
            let place = state.take(point);
            if place == Place::More {
                shared.open_points.fetch_add(1, Ordering::Relaxed);
            }
            match place {
                Place::Late => shared.note(cell, &mut state, &[], 1),
                _ => shared.note(cell, &mut state, &[point], 0),
            }
        }
    }
    Ok(Some(taken))
}

/// Puts the points of rows into the memory of a store that only reads.
pub(super) async fn look(shared: &Arc<Shared>, rows: &[KeyValue]) -> Result<()> {
    let mut unknown = POSTED_END;
    for row in rows {
        let (names, points) = decode(&row.value)?;
        let mut cells = Vec::with_capacity(names.len());
        for name in &names {
            cells.push(names::known(shared, name, &mut unknown).await?);
        }
        for (which, point) in points {
            if lock(&cells[which].state).take(point) == Place::More {
                shared.open_points.fetch_add(1, Ordering::Relaxed);
            }
        }
        shared.check_room()?;
    }
    Ok(())
}
