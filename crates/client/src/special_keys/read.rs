//! Range reads of special keys: modules, selectors and limits.
//!
//! Only parts that a selector moves over, or that the range covers, are asked for their rows.

use super::{Host, MODULES, Part, SpecialKeys, bare, parts, whole};
use crate::range::{Limits, RangeOptions};
use bytes::Bytes;
use plinth_types::{
    Error, KeyRange, KeySelector, KeyValue, RangeResult, Result, Rows, key_after, system,
};

/// A selector that was moved to a key.
struct Bound {
    key: Bytes,
    /// The offset left when the key was found, or the module's boundary reached.
    offset: i64,
    off_begin: bool,
    off_end: bool,
}

impl<H: Host> SpecialKeys<H> {
    pub(super) async fn read_special(
        &self,
        range: &RangeOptions,
        mut limits: Limits,
    ) -> Result<RangeResult> {
        let (begin, end) = (range.begin.clone().normalized(), range.end.clone().normalized());
        if begin.offset >= end.offset && begin.key >= end.key {
            return Ok(RangeResult::default());
        }
        let boundary = if self.host.with_special(|_, allowed| allowed.relaxed) {
            KeyRange::new(system::SYSTEM_END, system::SPECIAL_END)
        } else {
            module_of(&begin.key, &end.key)?
        };
        let begin = self.move_selector(begin, &boundary).await?;
        let end = self.move_selector(end, &boundary).await?;
        if begin.offset >= end.offset && begin.key >= end.key {
            return Ok(RangeResult::default());
        }
        let mut result = RangeResult {
            read_to_begin: begin.off_begin || end.off_begin,
            read_through_end: begin.off_end || end.off_end,
            ..RangeResult::default()
        };
        if begin.key == boundary.end || end.key == boundary.begin {
            return Ok(result);
        }
        let mut rows = Rows::builder();
        let mut covered: Vec<&Part> = parts(self.host.api_version())
            .filter(|part| part.begin < bare_end(&end.key) && part.end > bare(&begin.key))
            .collect();
        if range.reverse {
            covered.reverse();
        }
        'parts: for part in covered {
            let own = part.range();
            let (low, high) = (own.begin.max(begin.key.clone()), own.end.min(end.key.clone()));
            let mut found = self.special_rows(part, &low, &high).await?;
            if range.reverse {
                found.reverse();
            }
            for row in found {
                rows.push(&row.key, &row.value);
                limits.take_row(&row.key, &row.value);
                if limits.reached() {
                    result.more = true;
                    break 'parts;
                }
            }
        }
        if result.more && range.reverse {
            result.read_to_begin = false;
        } else if result.more {
            result.read_through_end = false;
        }
        result.rows = rows.finish();
        Ok(result)
    }

    /// Moves a selector (normalised) over the rows of the parts in `boundary` to the key that it
    /// selects.
    async fn move_selector(&self, selector: KeySelector, boundary: &KeyRange) -> Result<Bound> {
        let (mut key, mut offset) = (selector.key, i64::from(selector.offset));
        let forward = offset > 1;
        let mut on_the_way: Vec<&Part> = parts(self.host.api_version())
            .filter(|part| {
                let own = part.range();
                let in_boundary = own.begin >= boundary.begin && own.begin < boundary.end;
                in_boundary && if forward { own.end > key } else { own.begin < key }
            })
            .collect();
        if !forward {
            on_the_way.reverse();
        }
        for part in on_the_way {
            if offset == 1 {
                break;
            }
            let own = part.range();
            if forward {
                let rows = self.special_rows(part, &own.begin.max(key.clone()), &own.end).await?;
                if let Some(row) = rows.get(offset as usize - 1) {
                    (key, offset) = (row.key.clone(), 1);
                } else if let Some(last) = rows.last() {
                    (key, offset) = (key_after(&last.key), offset - rows.len() as i64);
                }
            } else {
                let rows = self.special_rows(part, &own.begin, &own.end.min(key.clone())).await?;
                let steps = (1 - offset) as usize;
                if let Some(at) = rows.len().checked_sub(steps) {
                    (key, offset) = (rows[at].key.clone(), 1);
                } else if let Some(first) = rows.first() {
                    (key, offset) = (first.key.clone(), offset + rows.len() as i64);
                }
            }
        }
        let (off_begin, off_end) = (offset < 1, offset > 1);
        if off_begin {
            key = boundary.begin.clone();
        } else if off_end {
            key = boundary.end.clone();
        }
        Ok(Bound { key, offset, off_begin, off_end })
    }

    /// A part's rows between two keys, own writes included.
    pub(super) async fn special_rows(
        &self,
        part: &'static Part,
        begin: &[u8],
        end: &[u8],
    ) -> Result<Vec<KeyValue>> {
        if begin >= end {
            return Ok(Vec::new());
        }
        let rows = self.content(part, begin, end).await?;
        Ok(rows.into_iter().filter(|row| row.key[..] >= *begin && row.key[..] < *end).collect())
    }
}

/// The end of a range among bare keys.
fn bare_end(key: &[u8]) -> &[u8] {
    if key >= system::SPECIAL_END { system::NORMAL_END } else { bare(key) }
}

/// The module that a read lies in.
fn module_of(begin: &[u8], end: &[u8]) -> Result<KeyRange> {
    let key = bare(begin);
    let module = MODULES.iter().find(|(low, high)| *low <= key && key < *high);
    let (low, high) = match module {
        Some((low, high)) => (whole(low), whole(high)),
        None => {
            let before = MODULES.iter().rev().find(|(_, high)| *high <= key);
            let after = MODULES.iter().find(|(low, _)| *low > key);
            let low = before.map_or_else(|| system::SYSTEM_END.into(), |(_, high)| whole(high));
            let high = after.map_or_else(|| system::SPECIAL_END.into(), |(low, _)| whole(low));
            (low, high)
        }
    };
    if low[..] > *end || *end > high[..] {
        return Err(Error::special_keys_cross_module_read());
    }
    if module.is_none() {
        return Err(Error::special_keys_no_module_found());
    }
    Ok(KeyRange::new(low, high))
}
