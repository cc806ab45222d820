//! A range read over merged rows: from the near side to a limit, or to the far side, which is found
//! on the way.
//!
//! The far side's selector counts rows from its key `k`: it leads further, then the rows beyond `k`
//! that it counts belong to the range too; or it leads back, then the last rows before `k` don't.
//! So a read that a limit ends never looks further than that limit and the rows that the selector
//! leads back, which is also how far it can fail with `accessed_unreadable`.

use super::cursor::{Cursor, Step};
use super::{Resolved, Source, resolve_bound};
use crate::range::Limits;
use bytes::Bytes;
use plinth_types::{KeySelector, RangeResult, Result, RowsBuilder};

/// Reads a range; `begin` and `end` are normalised.
pub(crate) async fn range<S: Source>(
    view: &S,
    begin: &KeySelector,
    end: &KeySelector,
    limits: Limits,
    reverse: bool,
) -> Result<RangeResult> {
    let (near_selector, far_selector) = if reverse { (end, begin) } else { (begin, end) };
    let near = resolve_bound(view, near_selector).await?;
    let beyond = if reverse { near.key < far_selector.key } else { near.key > far_selector.key };
    let mut far = None;
    let mut target =
        Target { key: far_selector.key.clone(), extra: i64::from(far_selector.offset) - 1 };
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
    let rows = walk.rows.finish();
    if let Some(far) = &far
        && rows.is_empty()
        && !more
        && let Some(empty) = empty_result(view, &near, far, reverse)
    {
        return Ok(empty);
    }
    let sides = [Some(&near), far.as_ref()];
    let mut result = RangeResult {
        rows,
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
fn empty_result<S: Source>(
    view: &S,
    near: &Resolved,
    far: &Resolved,
    reverse: bool,
) -> Option<RangeResult> {
    let (begin, end) = if reverse { (far, near) } else { (near, far) };
    if begin.left >= end.left && begin.key >= end.key {
        return Some(RangeResult::default());
    }
    if begin.key[..] == *view.max_key() || end.key.is_empty() {
        return Some(RangeResult {
            read_to_begin: begin.is_off_begin() || end.is_off_begin(),
            read_through_end: begin.is_off_end() || end.is_off_end(),
            ..RangeResult::default()
        });
    }
    None
}

/// Where a walk is to end: at `key`, and `extra` rows beyond it, or, if that is negative, before
/// it.
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
struct Walk<'v, S> {
    cursor: Cursor<'v, S>,
    /// The end of the key space in this direction.
    space_end: &'static [u8],
    reverse: bool,
    target: Target,
    limits: Limits,
    rows: RowsBuilder,
    /// The key of the last row collected.
    last: Bytes,
    /// Rows seen after a limit was reached.
    beyond: usize,
}

impl<'v, S: Source> Walk<'v, S> {
    fn new(view: &'v S, from: &[u8], limits: Limits, reverse: bool, target: Target) -> Self {
        let extra = usize::try_from(target.extra.unsigned_abs()).unwrap_or(usize::MAX);
        let wanted = limits.rows.unwrap_or(1000).saturating_add(extra).saturating_add(1);
        Self {
            cursor: Cursor::new(view, from, reverse).expecting(wanted),
            space_end: if reverse { b"" } else { view.max_key() },
            reverse,
            target,
            limits,
            rows: RowsBuilder::default(),
            last: Bytes::new(),
            beyond: 0,
        }
    }

    async fn run(&mut self) -> Result<End> {
        let back = usize::try_from(-self.target.extra).unwrap_or(0);
        loop {
            if self.limits.reached() && self.beyond >= back {
                return Ok(End::Limit);
            }
            let step = self.cursor.advance(&self.target.key).await?;
            if self.collect(step, usize::MAX, back) == 0 {
                break;
            }
        }
        if back > 0 { Ok(self.leave_out(back)) } else { self.go_on().await }
    }

    /// Takes the rows beyond the target's key that belong to the range.
    async fn go_on(&mut self) -> Result<End> {
        let mut extra = self.target.extra;
        while extra > 0 {
            if self.limits.reached() {
                return Ok(End::Limit);
            }
            let step = self.cursor.advance(self.space_end).await?;
            let taken = self.collect(step, usize::try_from(extra).unwrap_or(usize::MAX), 0);
            if taken == 0 {
                let left = if self.reverse { 1 - extra } else { extra + 1 };
                return Ok(End::Far(Resolved { key: Bytes::from_static(self.space_end), left }));
            }
            extra -= taken as i64;
        }
        if self.limits.reached() {
            return Ok(End::Limit);
        }
        let has_rows = !self.rows.is_empty();
        let key = if has_rows { self.last.clone() } else { self.target.key.clone() };
        let at_begin = self.reverse && self.target.extra > 0 && has_rows && key.is_empty();
        Ok(End::Far(Resolved { key, left: i64::from(!at_begin) }))
    }

    /// Collects what a step gives, `most` rows at most, and beyond a limit only counts, up to
    /// `back`. Gives how many rows were passed.
    fn collect(&mut self, step: Step, most: usize, back: usize) -> usize {
        match step {
            Step::End => 0,
            Step::Own(row) => {
                if self.limits.reached() {
                    self.beyond += 1;
                } else {
                    self.limits.take_row(&row.key, &row.value);
                    self.rows.push(&row.key, &row.value);
                    self.last = row.key;
                }
                1
            }
            Step::Run(run) => {
                let mut passed = 0;
                while passed < run.min(most) && !self.limits.reached() {
                    let (key, value) = self.cursor.row(passed);
                    self.limits.take_row(key, value);
                    self.rows.push(key, value);
                    passed += 1;
                }
                if passed > 0 {
                    self.last = Bytes::copy_from_slice(self.cursor.row(passed - 1).0);
                }
                let counted = (run - passed).min(most - passed).min(back - back.min(self.beyond));
                if self.limits.reached() {
                    self.beyond += counted;
                    passed += counted;
                }
                self.cursor.pass(passed);
                passed
            }
        }
    }

    /// Drops the last rows before the target's key, which don't belong to the range.
    fn leave_out(&mut self, count: usize) -> End {
        let seen = self.rows.len() + self.beyond;
        let all = std::mem::take(&mut self.rows).finish();
        if seen < count || (self.reverse && seen == count) {
            return End::Before;
        }
        let kept = seen - count;
        for (key, value) in all.iter().take(kept) {
            self.rows.push(key, value);
        }
        let at = if self.reverse { kept.min(all.len()).checked_sub(1) } else { Some(kept) };
        let key =
            at.and_then(|at| all.get(at)).map_or_else(|| self.target.key.clone(), |row| row.key);
        let left = i64::from(self.reverse || !key.is_empty());
        End::Far(Resolved { key, left })
    }
}
