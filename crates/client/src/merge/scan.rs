//! A range read over merged rows: from the near side to a limit, or to the far side, which is found on the way.
//!
//! The far side's selector counts rows from its key `k`: it leads further, then the rows beyond `k` that it counts
//! belong to the range too; or it leads back, then the last rows before `k` don't. So a read that a limit ends
//! never looks further than that limit and the rows that the selector leads back, which is also how far it can fail
//! with `accessed_unreadable`.

use super::cursor::Cursor;
use super::{Resolved, resolve_bound};
use crate::range::Limits;
use crate::transaction::View;
use bytes::Bytes;
use plinth_types::{KeySelector, KeyValue, RangeResult, Result, RowsBuilder};

/// Reads a range; `begin` and `end` are normalised.
pub(crate) async fn range(
    view: &View,
    begin: &KeySelector,
    end: &KeySelector,
    limits: Limits,
    reverse: bool,
) -> Result<RangeResult> {
    let (near_selector, far_selector) = if reverse { (end, begin) } else { (begin, end) };
    let near = resolve_bound(view, near_selector).await?;
    let beyond = if reverse { near.key < far_selector.key } else { near.key > far_selector.key };
    let mut far = None;
    let mut target = Target { key: far_selector.key.clone(), extra: i64::from(far_selector.offset) - 1 };
    if reverse {
        target.extra = -target.extra;
    }
    if target.extra == 0 || beyond {
        let resolved = resolve_bound(view, far_selector).await?;
        if let Some(empty) = empty_result(view, &near, &resolved, reverse) {
            return Ok(empty);
        }
        target = Target { key: resolved.key.clone(), extra: 0 };
        far = Some(resolved);
    }
    let mut walk = Walk::new(view, &near.key, limits, reverse, target);
    let end = walk.run().await?;
    let more = matches!(end, End::Limit);
    if far.is_none() {
        far = match end {
            End::Limit => None,
            End::Far(found) => Some(found),
            End::Before => Some(resolve_bound(view, far_selector).await?),
        };
    }
    if let Some(far) = &far
        && walk.rows.is_empty()
        && !more
        && let Some(empty) = empty_result(view, &near, far, reverse)
    {
        return Ok(empty);
    }
    let sides = [Some(&near), far.as_ref()];
    let mut result = RangeResult {
        rows: walk.rows(),
        more,
        read_to_begin: sides.iter().flatten().any(|side| side.is_off_begin()),
        read_through_end: sides.iter().flatten().any(|side| side.is_off_end()),
    };
    if more && reverse {
        result.read_to_begin = false;
    } else if more {
        result.read_through_end = false;
    }
    Ok(result)
}

/// The result of a range whose sides alone show that it has no rows.
fn empty_result(view: &View, near: &Resolved, far: &Resolved, reverse: bool) -> Option<RangeResult> {
    let (begin, end) = if reverse { (far, near) } else { (near, far) };
    if begin.left >= end.left && begin.key >= end.key {
        return Some(RangeResult::default());
    }
    if begin.key[..] == *view.max_key || end.key.is_empty() {
        return Some(RangeResult {
            read_to_begin: begin.is_off_begin() || end.is_off_begin(),
            read_through_end: begin.is_off_end() || end.is_off_end(),
            ..RangeResult::default()
        });
    }
    None
}

/// Where a walk is to end: at `key`, and `extra` rows beyond it, or, if that is negative, before it.
struct Target {
    key: Bytes,
    extra: i64,
}

/// Where a walk ended.
enum End {
    /// At a limit.
    Limit,
    /// At the far side, which is here.
    Far(Resolved),
    /// The far side lies before the near one, it is not known where.
    Before,
}

/// Collects rows from the near side on.
struct Walk<'v> {
    cursor: Cursor<'v>,
    /// The end of the key space in this direction.
    space_end: &'static [u8],
    reverse: bool,
    target: Target,
    limits: Limits,
    rows: Vec<KeyValue>,
    /// Rows seen after a limit was reached.
    beyond: usize,
}

impl<'v> Walk<'v> {
    fn new(view: &'v View, from: &[u8], limits: Limits, reverse: bool, target: Target) -> Self {
        let extra = usize::try_from(target.extra.unsigned_abs()).unwrap_or(usize::MAX);
        let wanted = limits.rows.unwrap_or(1000).saturating_add(extra).saturating_add(1);
        Self {
            cursor: Cursor::new(view, from, reverse).expecting(wanted),
            space_end: if reverse { b"" } else { view.max_key },
            reverse,
            target,
            limits,
            rows: Vec::new(),
            beyond: 0,
        }
    }

    async fn run(&mut self) -> Result<End> {
        let back = usize::try_from(-self.target.extra).unwrap_or(0);
        loop {
            if self.limits.reached() && self.beyond >= back {
                return Ok(End::Limit);
            }
            let Some(row) = self.cursor.next(&self.target.key).await? else { break };
            if self.limits.reached() {
                self.beyond += 1;
            } else {
                self.limits.take_row(&row.key, &row.value);
                self.rows.push(row);
            }
        }
        if back > 0 { Ok(self.leave_out(back)) } else { self.go_on().await }
    }

    /// Takes the rows beyond the target's key that belong to the range.
    async fn go_on(&mut self) -> Result<End> {
        let extra = self.target.extra;
        for step in 1..=extra {
            if self.limits.reached() {
                return Ok(End::Limit);
            }
            let Some(row) = self.cursor.next(self.space_end).await? else {
                let left = if self.reverse { step - extra } else { extra - step + 2 };
                return Ok(End::Far(Resolved { key: Bytes::from_static(self.space_end), left }));
            };
            self.limits.take_row(&row.key, &row.value);
            self.rows.push(row);
        }
        if self.limits.reached() {
            return Ok(End::Limit);
        }
        let at_begin = self.reverse && extra > 0 && self.rows.last().is_some_and(|row| row.key.is_empty());
        let key = self.rows.last().map_or_else(|| self.target.key.clone(), |row| row.key.clone());
        Ok(End::Far(Resolved { key, left: i64::from(!at_begin) }))
    }

    /// Drops the last rows before the target's key, which don't belong to the range.
    fn leave_out(&mut self, count: usize) -> End {
        let seen = self.rows.len() + self.beyond;
        if seen < count || (self.reverse && seen == count) {
            self.rows.clear();
            return End::Before;
        }
        let first_out = self.rows.get(seen - count).map(|row| row.key.clone());
        self.rows.truncate(seen - count);
        let key = match (self.reverse, self.rows.last()) {
            (true, Some(last)) => last.key.clone(),
            _ => first_out.unwrap_or_else(|| self.target.key.clone()),
        };
        let left = i64::from(self.reverse || !key.is_empty());
        End::Far(Resolved { key, left })
    }

    fn rows(&mut self) -> plinth_types::Rows {
        let bytes = self.rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        let mut rows = RowsBuilder::with_capacity(self.rows.len(), bytes);
        for row in &self.rows {
            rows.push(&row.key, &row.value);
        }
        rows.finish()
    }
}
