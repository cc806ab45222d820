//! Reads: the window first, then the engine's state, in that order.
//!
//! A read takes the state after it has looked into the window, so that what left the window
//! meanwhile is in the state; and if the state has moved beyond the read's version, the read came
//! too late. See [`super::window`]. Each read is a future that ends at once when memory can answer
//! it; see [`super::load`].

use super::cursor::{Merge, RunCursor};
use super::load::Loader;
use super::state::State;
use super::window::{Part, Window};
use crate::failure::{StorageError, StorageResult};
use crate::memory::{Seen, place};
use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, RangeRead, RangeResult, Rows, RowsBuilder, Version,
    system,
};
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes that one range read gives at most, whatever its target: offsets of rows are 32 bits wide.
const MOST_BYTES: usize = 1 << 30;
/// Entries of the window that a walk takes along at first, and at most.
const PART: (usize, usize) = (64, 4096);
/// Rows from which on a range read has blocks read ahead from the start.
const LONG: usize = 200;

/// Window and state together, or a state alone that was pinned.
pub(crate) struct View<'v> {
    /// `None` for a pinned state.
    pub window: Option<&'v Window>,
    pub state: &'v RwLock<Arc<State>>,
    pub version: Version,
}

impl View<'_> {
    /// The state as of now, if it still is one that this version can be read from.
    fn state(&self) -> StorageResult<Arc<State>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner).clone();
        if state.at.version > self.version {
            let detail = format!(
                "version {} was asked for, the engine is at {}",
                self.version, state.at.version
            );
            return Err(StorageError::TooOld(detail.into()));
        }
        Ok(state)
    }

    /// The values of the keys, in their order. All share one buffer.
    pub async fn get_many(
        &self,
        space: KeySpace,
        keys: &KeyList,
        loader: &Loader,
    ) -> StorageResult<Vec<Option<Bytes>>> {
        let mut values = Values::new(keys.len());
        let mut open: Vec<u32> = Vec::new();
        match self.window {
            Some(window) => window.overlay().find(self.version, keys, |at, seen| match seen {
                Seen::Value(value) if shows(space, keys.get(at)) => values.set(at, value),
                Seen::Nothing => open.push(at as u32),
                Seen::Value(_) | Seen::Removed => {}
            }),
            None => open.extend(0..keys.len() as u32),
        }
        open.retain(|at| {
            let key = keys.get(*at as usize);
            shows(space, key)
                && !self.window.is_some_and(|window| window.is_cleared(key, self.version))
        });
        if !open.is_empty() {
            let state = self.state()?;
            for at in open {
                let begin = values.buffer.len();
                if state.get(keys.get(at as usize), loader, &mut values.buffer).await? {
                    values.spans[at as usize] = Some((begin, values.buffer.len()));
                }
            }
        }
        Ok(values.share())
    }

    /// The key that a selector describes, and whether the selector ran over an end of the key
    /// space.
    pub async fn resolve(
        &self,
        space: KeySpace,
        selector: &KeySelector,
        loader: &Loader,
    ) -> StorageResult<(Bytes, bool)> {
        let from = place(space, selector);
        let offset = i64::from(selector.offset);
        let (forward, mut left) = if offset >= 1 { (true, offset) } else { (false, 1 - offset) };
        let mut selected = None;
        let until = if forward { space.end() } else { b"" };
        let hint = usize::try_from(left).unwrap_or(usize::MAX);
        self.walk(&from, until, hint, loader, |key, _| {
            left -= 1;
            if left == 0 {
                selected = Some(Bytes::copy_from_slice(key));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })
        .await?;
        Ok(match selected {
            Some(key) => (key, false),
            // The place behind the last key is one that a selector can describe exactly.
            None if forward => (Bytes::from_static(space.end()), left > 1),
            None => (Bytes::new(), true),
        })
    }

    /// The rows of a range.
    pub async fn get_range(
        &self,
        space: KeySpace,
        read: &RangeRead,
        loader: &Loader,
    ) -> StorageResult<RangeResult> {
        let from = [&read.begin, &read.end].map(|selector| place(space, selector));
        if read.limit == 0 || (read.begin.offset >= read.end.offset && from[0] >= from[1]) {
            return Ok(RangeResult::default());
        }
        let [begin, end] = from;
        let (begin, read_to_begin) = self.bound(space, &read.begin, begin, loader).await?;
        let (end, read_through_end) = self.bound(space, &read.end, end, loader).await?;
        let (rows, more) = self.rows(&begin, &end, read, loader).await?;
        Ok(RangeResult { rows, more, read_to_begin, read_through_end })
    }

    /// Resolves a bound of a range. The first key not below a given one need not be looked for: the
    /// given one bounds the same rows.
    async fn bound(
        &self,
        space: KeySpace,
        selector: &KeySelector,
        place: Bytes,
        loader: &Loader,
    ) -> StorageResult<(Bytes, bool)> {
        if selector.offset == 1 {
            Ok((place, false))
        } else {
            self.resolve(space, selector, loader).await
        }
    }

    async fn rows(
        &self,
        begin: &[u8],
        end: &[u8],
        read: &RangeRead,
        loader: &Loader,
    ) -> StorageResult<(Rows, bool)> {
        if begin >= end {
            return Ok((Rows::new(), false));
        }
        let target = read.target_bytes.min(MOST_BYTES);
        let hint = read.limit.min(target / 64 + 1);
        let room = hint.min(1024);
        let mut rows = RowsBuilder::with_capacity(room, room * 80);
        let mut more = false;
        let (from, until) = if read.reverse { (end, begin) } else { (begin, end) };
        self.walk(from, until, hint, loader, |key, value| {
            rows.push(key, value);
            more = rows.len() >= read.limit || rows.accounted_bytes() >= target;
            if more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await?;
        Ok((rows.finish(), more))
    }

    /// Visits the rows that exist at this version: with `from` below `until` those from `from` on
    /// and below `until`, in order; else those below `from` down to `until`, backwards. Stops when
    /// told to. `hint` says how many rows will be wanted, about.
    pub async fn walk(
        &self,
        from: &[u8],
        until: &[u8],
        hint: usize,
        loader: &Loader,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> StorageResult<()> {
        let forward = from < until;
        let mut from = Bytes::copy_from_slice(from);
        let bound = Bytes::copy_from_slice(until);
        let mut most = PART.0;
        let mut merge: Option<(Version, Merge)> = None;
        loop {
            let part = match self.window {
                Some(window) => window.part(self.version, &from, until, forward, most),
                None => Part::default(),
            };
            let reach = part.reach.clone();
            let state = self.state()?;
            // As long as the engine stays at its version, nothing has left the window either.
            let current = match merge.take() {
                Some((version, merge)) if version == state.at.version => merge,
                _ => {
                    let ahead = if hint >= LONG { 8 } else { 1 };
                    let cursor = |run| RunCursor::new(run, forward, bound.clone(), ahead);
                    let sources = state.runs.iter().cloned().map(cursor).collect();
                    let mut fresh = Merge::new(sources, forward);
                    fresh.seek(&from, loader).await?;
                    fresh
                }
            };
            let (_, current) = merge.insert((state.at.version, current));
            current.set_part(part);
            while let Some(winner) = current.peek(loader).await? {
                let key = current.key(winner);
                // Where the part ends, the window may know of keys before this one.
                let end = reach.as_deref().unwrap_or(until);
                if if forward { key >= end } else { key < end } {
                    break;
                }
                if current.visit(winner, end, &mut visit).is_break() {
                    return Ok(());
                }
            }
            let Some(reach) = reach else { return Ok(()) };
            from = reach;
            most = (most * 4).min(PART.1);
        }
    }
}

fn shows(space: KeySpace, key: &[u8]) -> bool {
    key < space.end() || key == system::METADATA_VERSION
}

/// Values that gather in one buffer.
struct Values {
    buffer: Vec<u8>,
    spans: Vec<Option<(usize, usize)>>,
}

impl Values {
    fn new(count: usize) -> Self {
        Self { buffer: Vec::with_capacity(count * 64), spans: vec![None; count] }
    }

    fn set(&mut self, at: usize, value: &[u8]) {
        let begin = self.buffer.len();
        self.buffer.extend_from_slice(value);
        self.spans[at] = Some((begin, self.buffer.len()));
    }

    fn share(self) -> Vec<Option<Bytes>> {
        let shared = Bytes::from(self.buffer);
        self.spans
            .into_iter()
            .map(|span| span.map(|(begin, end)| shared.slice(begin..end)))
            .collect()
    }
}
