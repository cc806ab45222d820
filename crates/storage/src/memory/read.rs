//! Reads: point reads side by side, selectors, ranges.
//!
//! A read pins the epoch, walks, copies what it found into one buffer, and then asks whether its
//! version was in the window all the while. Long walks let go of their pin now and then, so that
//! they do not hold up the freeing of memory, and go on from the last key.

use super::core::{Core, Held};
use super::record::RecordRef;
use super::tree::{Cursor, GROUP, find_group};
use crate::failure::StorageResult;
use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, RangeRead, RangeResult, Rows, RowsBuilder, Version,
    key_after, system,
};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Entries that a walk visits before it lets go of its pin.
const STRETCH: usize = if cfg!(miri) { 20 } else { 4096 };
/// Bytes that one range read gives at most, whatever its target: offsets of rows are 32 bits wide.
const MOST_BYTES: usize = 1 << 30;
/// Rows that a range read makes room for from the start, at most.
const ROOM_ROWS: usize = 1024;

/// The store as of one version.
#[derive(Clone, Copy)]
pub(crate) struct View<'c> {
    core: &'c Core,
    version: Version,
    held: bool,
}

impl<'c> View<'c> {
    /// # Errors
    /// `TooOld` or `Future` if the version is outside the window.
    #[inline]
    pub(crate) fn new(core: &'c Core, version: Version) -> StorageResult<Self> {
        core.check(version)?;
        Ok(Self { core, version, held: false })
    }

    /// The view that a hold keeps, whatever becomes of the window.
    pub(crate) fn held(held: &'c Held) -> Self {
        Self { core: held.core(), version: held.version(), held: true }
    }

    #[inline]
    fn check_again(&self) -> StorageResult<()> {
        if self.held { Ok(()) } else { self.core.check_again(self.version) }
    }

    /// The values of the keys, in their order. All share one buffer.
    pub(crate) fn get_many(
        &self,
        space: KeySpace,
        keys: &KeyList,
    ) -> StorageResult<Vec<Option<Bytes>>> {
        let pin = self.core.epochs.pin();
        let root = self.core.root(&pin);
        let mut few = [None; GROUP];
        let mut many = Vec::new();
        let values = match few.get_mut(..keys.len()) {
            Some(few) => few,
            None => {
                many.resize(keys.len(), None);
                &mut many[..]
            }
        };
        let mut group = [&[][..]; GROUP];
        let mut next = 0;
        for values in values.chunks_mut(GROUP) {
            for key in &mut group[..values.len()] {
                *key = keys.get(next);
                next += 1;
            }
            let mut found = [None; GROUP];
            find_group(root, &group[..values.len()], &mut found);
            for ((value, record), key) in values.iter_mut().zip(found).zip(group) {
                let visible = key < space.end() || key == system::METADATA_VERSION;
                *value =
                    record.filter(|_| visible).and_then(|record| record.value_at(self.version));
            }
        }
        self.check_again()?;
        Ok(share(values))
    }

    /// The key that a selector describes, and whether the selector ran over an end of the key
    /// space.
    pub(crate) fn resolve(
        &self,
        space: KeySpace,
        selector: &KeySelector,
    ) -> StorageResult<(Bytes, bool)> {
        let from = place(space, selector);
        let offset = i64::from(selector.offset);
        let (forward, mut left) = if offset >= 1 { (true, offset) } else { (false, 1 - offset) };
        let mut selected = None;
        self.walk(&from, forward, |key, _| {
            if forward && key >= space.end() {
                return ControlFlow::Break(());
            }
            left -= 1;
            if left == 0 {
                selected = Some(Bytes::copy_from_slice(key));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(match selected {
            Some(key) => (key, false),
            // The place behind the last key is one that a selector can describe exactly.
            None if forward => (Bytes::from_static(space.end()), left > 1),
            None => (Bytes::new(), true),
        })
    }

    /// The rows of a range.
    pub(crate) fn get_range(
        &self,
        space: KeySpace,
        read: &RangeRead,
    ) -> StorageResult<RangeResult> {
        let from = [&read.begin, &read.end].map(|selector| place(space, selector));
        if read.limit == 0 || (read.begin.offset >= read.end.offset && from[0] >= from[1]) {
            return Ok(RangeResult::default());
        }
        let [begin, end] = from;
        let (begin, read_to_begin) = self.bound(space, &read.begin, begin)?;
        let (end, read_through_end) = self.bound(space, &read.end, end)?;
        let (rows, more) = self.rows(&begin, &end, read)?;
        Ok(RangeResult { rows, more, read_to_begin, read_through_end })
    }

    /// Resolves a bound of a range. The first key not below a given one need not be looked for: the
    /// given one bounds the same rows.
    fn bound(
        &self,
        space: KeySpace,
        selector: &KeySelector,
        place: Bytes,
    ) -> StorageResult<(Bytes, bool)> {
        if selector.offset == 1 { Ok((place, false)) } else { self.resolve(space, selector) }
    }

    fn rows(&self, begin: &[u8], end: &[u8], read: &RangeRead) -> StorageResult<(Rows, bool)> {
        if begin >= end {
            return Ok((Rows::new(), false));
        }
        let mean = self.core.mean_row_bytes();
        let target = read.target_bytes.min(MOST_BYTES);
        let room = read.limit.min(target / (mean + 8) + 1).min(ROOM_ROWS);
        let mut rows = RowsBuilder::with_capacity(room, room * (mean + mean / 8) + 64);
        let mut more = false;
        self.walk(if read.reverse { end } else { begin }, !read.reverse, |key, value| {
            if if read.reverse { key < begin } else { key >= end } {
                return ControlFlow::Break(());
            }
            rows.push(key, value);
            more = rows.len() >= read.limit || rows.accounted_bytes() >= target;
            if more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((rows.finish(), more))
    }

    /// Visits the rows that exist at this version, from the first key not below `from` on, or from
    /// the last one below it back, until told to stop.
    pub(crate) fn walk(
        &self,
        from: &[u8],
        forward: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> StorageResult<()> {
        let mut resume = self.stretch(from, forward, &mut visit)?;
        while let Some(from) = resume {
            resume = self.stretch(&from, forward, &mut visit)?;
        }
        Ok(())
    }

    /// Part of a walk, under one pin. Gives where to go on, unless the walk is over.
    fn stretch(
        &self,
        from: &[u8],
        forward: bool,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> StorageResult<Option<Bytes>> {
        let pin = self.core.epochs.pin();
        let mut cursor = Cursor::seek(self.core.root(&pin), from);
        cursor.ask_ahead(forward);
        let mut last: Option<RecordRef<'_>> = None;
        for _ in 0..STRETCH {
            let entry = if forward { cursor.next() } else { cursor.prev() };
            let Some(newest) = entry else {
                self.check_again()?;
                return Ok(None);
            };
            last = Some(newest);
            let Some(value) = newest.value_at(self.version) else { continue };
            if visit(newest.key(), value).is_break() {
                self.check_again()?;
                return Ok(None);
            }
        }
        self.check_again()?;
        let key = last.map(RecordRef::key).unwrap_or_default();
        Ok(Some(if forward { key_after(key) } else { Bytes::copy_from_slice(key) }))
    }
}

impl Core {
    /// Key and value bytes of a row, on average.
    fn mean_row_bytes(&self) -> usize {
        let pin = self.epochs.pin();
        let bytes = self.root(&pin).weight().max(0) as u64;
        (bytes / self.figures.rows.load(Ordering::Relaxed).max(1)) as usize
    }
}

/// The key of a selector without `or_equal`, clamped to what the space shows: the base is the last
/// key below it.
pub(crate) fn place(space: KeySpace, selector: &KeySelector) -> Bytes {
    let key = if selector.or_equal { key_after(&selector.key) } else { selector.key.clone() };
    if key[..] > *space.end() { Bytes::from_static(space.end()) } else { key }
}

/// Copies the values into one buffer and gives slices of it.
fn share(values: &[Option<&[u8]>]) -> Vec<Option<Bytes>> {
    let total = values.iter().flatten().map(|value| value.len()).sum();
    let mut buffer = Vec::with_capacity(total);
    for value in values.iter().flatten() {
        buffer.extend_from_slice(value);
    }
    let shared = Bytes::from(buffer);
    let mut begin = 0;
    let mut slice = |value: &[u8]| {
        let end = begin + value.len();
        let slice = shared.slice(begin..end);
        begin = end;
        slice
    };
    values.iter().map(|value| value.map(&mut slice)).collect()
}
