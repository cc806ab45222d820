//! Range reads and selectors over the database's rows merged with a transaction's own writes.
//!
//! ```text
//!   database     a   b   c       e   f   g          rows fetched in batches
//!   own writes     [cleared)   d=5     g+1          the write map as of the call
//!   merged       a             d=5 e f g'           what the read sees
//! ```
//!
//! A [`Cursor`] walks the merged rows from a key in one direction. It stops with
//! `accessed_unreadable` where it comes to keys that get their content only at commit, so a read
//! fails exactly if its result depends on such keys.
//!
//! A range read resolves the selector of the side it starts from, walks, and finds the other side
//! on its way.

mod cursor;
mod scan;

pub(crate) use scan::range;

use crate::range::Limits;
use crate::write_map::WriteMap;
use bytes::Bytes;
use cursor::{Cursor, Step};
use plinth_types::{Error, KeySelector, RangeResult, Result};
use std::future::Future;

/// A read that is on its way, as merging needs it.
pub(crate) trait Source: Sync {
    /// The own writes that it sees: those as of its call.
    fn own_writes(&self) -> Option<&WriteMap>;

    /// The first key that it can't read.
    fn max_key(&self) -> &'static [u8];

    /// Whether it sees keys that get their content only at commit.
    fn bypasses_unreadable(&self) -> bool;

    /// The database's rows between two keys, at most as many as the limits say; whether rows may be
    /// left.
    fn fetch(
        &self,
        begin: &[u8],
        end: &[u8],
        limits: Limits,
        reverse: bool,
    ) -> impl Future<Output = Result<RangeResult>> + Send;
}

/// Where a selector leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    /// The key; empty before the first key, the end of the key space after the last one.
    pub(crate) key: Bytes,
    /// 1 if the selector leads to the key. Less: by how many keys, and one, it leads to before the
    /// first one; more: by how many it leads beyond the end.
    pub(crate) left: i64,
}

impl Resolved {
    /// Whether the selector ran into the begin of the key space.
    fn is_off_begin(&self) -> bool {
        self.left < 1
    }

    /// Whether the selector ran beyond the end of the key space.
    fn is_off_end(&self) -> bool {
        self.left > 1
    }
}

/// Where a selector (normalised) leads as the bound of a range: what matters is where the range
/// begins or ends, not which key that is.
pub(crate) async fn resolve_bound<S: Source>(view: &S, selector: &KeySelector) -> Result<Resolved> {
    if selector.offset < 1 {
        return resolve(view, selector).await;
    }
    let rows = i64::from(selector.offset) - 1;
    if rows == 0 {
        let is_beyond = selector.key[..] > *view.max_key();
        let key = if is_beyond { Bytes::from_static(view.max_key()) } else { selector.key.clone() };
        return Ok(Resolved { key, left: 1 });
    }
    let mut cursor = Cursor::new(view, &selector.key, false)
        .expecting(usize::try_from(rows).unwrap_or(usize::MAX).saturating_add(1));
    let mut left = rows;
    while left > 0 {
        match cursor.advance(view.max_key()).await? {
            Step::End => {
                return Ok(Resolved { key: Bytes::from_static(view.max_key()), left: left + 1 });
            }
            Step::Own(_) => left -= 1,
            Step::Run(run) => {
                let passed = usize::try_from(left).map_or(run, |left| left.min(run));
                cursor.pass(passed);
                left -= passed as i64;
            }
        }
    }
    // The bound stands before the next key, or before what can't be looked into.
    let key = match cursor.advance(view.max_key()).await {
        Ok(Step::End) => Bytes::from_static(view.max_key()),
        Ok(Step::Own(row)) => row.key,
        Ok(Step::Run(_)) => Bytes::copy_from_slice(cursor.row(0).0),
        Err(error) if error == Error::accessed_unreadable() => cursor.position(),
        Err(error) => return Err(error),
    };
    Ok(Resolved { key, left: 1 })
}

/// The existing key that a selector (normalised) leads to.
pub(crate) async fn resolve<S: Source>(view: &S, selector: &KeySelector) -> Result<Resolved> {
    let offset = i64::from(selector.offset);
    let forward = offset >= 1;
    let steps = if forward { offset } else { 1 - offset };
    let mut cursor = Cursor::new(view, &selector.key, !forward)
        .expecting(usize::try_from(steps).unwrap_or(usize::MAX));
    let mut left = steps;
    loop {
        let key = match cursor.advance(if forward { view.max_key() } else { b"" }).await? {
            Step::End if forward => {
                return Ok(Resolved { key: Bytes::from_static(view.max_key()), left });
            }
            Step::End => return Ok(Resolved { key: Bytes::new(), left: 1 - left }),
            Step::Own(row) => {
                left -= 1;
                row.key
            }
            Step::Run(run) => {
                let passed = usize::try_from(left).map_or(run, |left| left.min(run));
                let key = Bytes::copy_from_slice(cursor.row(passed - 1).0);
                cursor.pass(passed);
                left -= passed as i64;
                key
            }
        };
        if left == 0 {
            // The very first key is the begin of the key space, too.
            let left = if key.is_empty() && !forward { 0 } else { 1 };
            return Ok(Resolved { key, left });
        }
    }
}
