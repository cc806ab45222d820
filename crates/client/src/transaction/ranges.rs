//! Range reads, and what a read that may take several steps carries with it.
//!
//! Where no own write matters the endpoint's rows go to the caller untouched. Otherwise the
//! database's rows are merged with the own writes as of the call (see `merge`).

use super::state::State;
use super::{Inner, Transaction};
use crate::conflicts;
use crate::merge::{self, Source};
use crate::range::{Limits, RangeOptions};
use crate::special_keys;
use crate::write_map::WriteMap;
use bytes::Bytes;
use plinth_env::reply::Reply;
use plinth_types::{
    Error, KeyList, KeySelector, KeySpace, RangeRead, RangeResult, Result, Rows, RowsBuilder,
    Version, key_after, rows::row_overhead, system,
};
use std::future::Future;
use std::sync::Arc;

/// What a read sees: which transaction, in which epoch, and its own writes as of the call.
#[derive(Clone)]
pub(crate) struct View {
    inner: Arc<Inner>,
    epoch: u64,
    map: Option<WriteMap>,
    space: KeySpace,
    /// The first key that can't be read.
    max_key: &'static [u8],
    bypass_unreadable: bool,
}

impl Transaction {
    /// One batch of a range, as many rows as limits and mode say. To read on after a batch with
    /// `more`, ask for [`RangeOptions::after`] it; [`Transaction::range`] does that by itself.
    pub fn get_range(&self, range: impl Into<RangeOptions>) -> Reply<RangeResult> {
        self.inner.get_range(range.into(), false)
    }
}

/// A range read that was called: what it sees, and what it is to give.
pub(crate) struct RangeCall {
    pub(crate) view: View,
    /// Normalised, as `end`.
    pub(crate) begin: KeySelector,
    pub(crate) end: KeySelector,
    pub(crate) limits: Limits,
    pub(crate) reverse: bool,
}

impl Transaction {
    /// A range read that is called now for a layer above, and sees own writes; `None` if the range
    /// is empty.
    ///
    /// # Errors
    /// Those of a range read; `client_invalid_operation` for special keys; `unsupported_operation`
    /// if own writes aren't seen, or with `snapshot`.
    pub(crate) fn call_range(
        &self,
        range: &RangeOptions,
        snapshot: bool,
    ) -> Result<Option<RangeCall>> {
        let limits = Limits::of(range)?;
        let inner = &self.inner;
        inner.with(|state, after| {
            state.life.check_deferred()?;
            if special_keys::is_range_read(inner.api_version(), range) {
                return Err(Error::client_invalid_operation()
                    .with_detail("special keys cannot be read by a mapped range read"));
            }
            state.check(after)?;
            let Some((begin, end, limits)) = check_range(state, range, limits)? else {
                return Ok(None);
            };
            if snapshot || state.options.ryw_disabled {
                return Err(Error::unsupported_operation().with_detail(
                    "mapped range reads need read-your-writes and serializable isolation",
                ));
            }
            let view = inner.view(state, false);
            Ok(Some(RangeCall { view, begin, end, limits, reverse: range.reverse }))
        })
    }
}

/// Checks the bounds of a range read and its limits; `None` if the range is empty.
fn check_range(
    state: &State,
    range: &RangeOptions,
    limits: Option<Limits>,
) -> Result<Option<(KeySelector, KeySelector, Limits)>> {
    let max = state.options.max_read_key();
    if range.begin.key[..] > *max || range.end.key[..] > *max {
        return Err(Error::key_outside_legal_range());
    }
    let limits = limits.ok_or_else(Error::range_limits_invalid)?;
    let (begin, end) = (range.begin.clone().normalized(), range.end.clone().normalized());
    let is_empty = begin.offset >= end.offset && begin.key >= end.key;
    Ok((!is_empty).then_some((begin, end, limits)))
}

impl Inner {
    /// What a read that is called now sees.
    pub(super) fn view(self: &Arc<Self>, state: &mut State, snapshot: bool) -> View {
        let map = state.visible_writes(snapshot).cloned();
        self.view_of(state, map)
    }

    fn view_of(self: &Arc<Self>, state: &State, map: Option<WriteMap>) -> View {
        View {
            inner: self.clone(),
            epoch: state.life.epoch(),
            map,
            space: state.options.read_space(),
            max_key: state.options.max_read_key(),
            bypass_unreadable: state.options.bypass_unreadable,
        }
    }

    pub(super) fn get_range(
        self: &Arc<Self>,
        range: RangeOptions,
        snapshot: bool,
    ) -> Reply<RangeResult> {
        let limits = match Limits::of(&range) {
            Ok(limits) => limits,
            Err(error) => return Reply::ready(Err(error)),
        };
        if range.begin.key[..] >= *system::SYSTEM_END
            && special_keys::is_range_read(self.api_version(), &range)
        {
            return self.special_range(range, limits);
        }
        let prepared = self.with(|state, after| {
            state.check(after)?;
            let Some((begin, end, limits)) = check_range(state, &range, limits)? else {
                return Ok(None);
            };
            state.reads.touch();
            let is_between_keys = begin.offset == 1 && end.offset == 1;
            let view = if is_between_keys && state.writes.is_scanned_untouched(&begin.key, &end.key)
            {
                self.view_of(state, None)
            } else {
                self.view(state, snapshot)
            };
            Ok(Some(RangeCall { view, begin, end, limits, reverse: range.reverse }))
        });
        match prepared {
            Err(error) => Reply::ready(Err(error)),
            Ok(None) => Reply::ready(Ok(RangeResult::default())),
            Ok(Some(call)) => self.launch(call.view.epoch, true, call.run(snapshot)),
        }
    }
}

impl RangeCall {
    async fn run(self, snapshot: bool) -> Result<RangeResult> {
        let Self { view, begin, end, limits, reverse } = self;
        let is_plain = view.plain().is_some() || view.is_untouched(&begin, &end);
        let mut result = if is_plain {
            view.read_through(begin.clone(), end.clone(), limits, reverse).await?
        } else {
            merge::range(&view, &begin, &end, limits, reverse).await?
        };
        let is_off = result.read_to_begin || result.read_through_end;
        if is_plain && is_off && result.rows.is_empty() {
            // What the read depends on takes knowing by how many keys the selectors ran off.
            result = merge::range(&view, &begin, &end, limits, reverse).await?;
        }
        if !snapshot {
            let (low, high) = conflicts::of_get_range(&begin, &end, reverse, &result, view.max_key);
            view.add_conflict(&low, &high);
        }
        view.add_cost(result.rows.data_len());
        Ok(result)
    }
}

impl View {
    /// The key space, if the endpoint alone can answer: no own writes, and no tenant, beyond whose
    /// end a selector could lead.
    pub(super) fn plain(&self) -> Option<KeySpace> {
        (self.map.is_none() && !self.inner.has_tenant()).then_some(self.space)
    }

    /// Whether a range between keys (not between selectors that lead elsewhere) has no own writes
    /// in it.
    fn is_untouched(&self, begin: &KeySelector, end: &KeySelector) -> bool {
        begin.offset == 1
            && end.offset == 1
            && self.map.as_ref().is_none_or(|map| map.is_unmodified(&begin.key, &end.key))
    }

    /// The try of the transaction that reads.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn version(&self) -> Reply<Version> {
        self.inner.read_version(self.epoch)
    }

    /// Runs an operation of the transaction's, which commit doesn't wait for.
    pub(crate) fn launch<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Reply<T> {
        self.inner.launch(self.epoch, false, operation)
    }

    /// The key that a selector leads to in the database.
    pub(super) fn find(
        &self,
        version: Version,
        space: KeySpace,
        selector: &KeySelector,
    ) -> Reply<Bytes> {
        self.inner.reading().get_key(version, space, selector)
    }

    /// Where a selector leads, own writes included.
    pub(super) async fn resolve(&self, selector: &KeySelector) -> Result<merge::Resolved> {
        merge::resolve(self, selector).await
    }

    /// The database's value of a key.
    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let version = self.version().await?;
        let mut keys = KeyList::new();
        keys.push(&[self.inner.prefix(), key].concat());
        let values = self.inner.reading().get_many(version, KeySpace::Normal, &keys).await?;
        Ok(values.into_iter().next().flatten())
    }

    /// Whether own writes leave a range alone.
    pub(crate) fn is_unmodified(&self, begin: &[u8], end: &[u8]) -> bool {
        begin >= end || self.map.as_ref().is_none_or(|map| map.is_unmodified(begin, end))
    }

    /// Has the commit conflict if anybody writes what of a range depended on the database.
    pub(crate) fn add_conflict(&self, begin: &[u8], end: &[u8]) {
        let mut state = self.inner.lock();
        if state.life.is_in(self.epoch) {
            state.reads.add(self.map.as_ref(), begin, end);
        }
    }

    pub(super) fn add_cost(&self, bytes: usize) {
        let mut state = self.inner.lock();
        if state.life.is_in(self.epoch) {
            state.reads.add_cost(bytes);
        }
    }

    /// One request to the endpoint, a tenant's prefix added to the keys and taken off the rows.
    async fn ask(
        &self,
        begin: KeySelector,
        end: KeySelector,
        limits: Limits,
        reverse: bool,
    ) -> Result<RangeResult> {
        let version = self.version().await?;
        let prefix = self.inner.prefix();
        let stored = |selector: KeySelector| match prefix {
            [] => selector,
            prefix => {
                let end = [b"\xff", &selector.key[..]].concat();
                let key = if selector.key[..] >= *self.max_key {
                    plinth_types::strinc(prefix).unwrap_or_else(|| end.into())
                } else {
                    [prefix, &selector.key[..]].concat().into()
                };
                KeySelector { key, ..selector }
            }
        };
        let read = RangeRead {
            begin: stored(begin),
            end: stored(end),
            limit: limits.rows.unwrap_or(usize::MAX),
            target_bytes: limits.bytes.unwrap_or(usize::MAX),
            reverse,
        };
        let mut result = self.inner.reading().get_range(version, self.space, &read).await?;
        if !prefix.is_empty() {
            let mut rows = RowsBuilder::with_capacity(result.rows.len(), 0);
            for (key, value) in result.rows.iter() {
                rows.push(key.get(prefix.len()..).unwrap_or_default(), value);
            }
            result.rows = rows.finish();
        }
        Ok(result)
    }

    /// Reads without own writes: as many requests as it takes to reach a limit or the end of the
    /// range.
    pub(crate) async fn read_through(
        &self,
        mut begin: KeySelector,
        mut end: KeySelector,
        mut limits: Limits,
        reverse: bool,
    ) -> Result<RangeResult> {
        let mut batches: Option<(RowsBuilder, RangeResult)> = None;
        loop {
            let mut result = self.ask(begin.clone(), end.clone(), limits, reverse).await?;
            let reached = limits.take(&result.rows);
            let is_last = reached || !result.more;
            result.more |= reached;
            match &mut batches {
                None if is_last => return Ok(finish(result, reverse)),
                None => {
                    batches =
                        Some((copy(RowsBuilder::default(), &result.rows), RangeResult::default()))
                }
                Some((rows, _)) => *rows = copy(std::mem::take(rows), &result.rows),
            }
            if let Some((_, total)) = &mut batches {
                total.more = result.more;
                total.read_to_begin |= result.read_to_begin;
                total.read_through_end |= result.read_through_end;
            }
            if is_last {
                let Some((rows, mut total)) = batches else { return Ok(finish(result, reverse)) };
                total.rows = rows.finish();
                return Ok(finish(total, reverse));
            }
            let Some((last, _)) = result.rows.last() else {
                return Err(Error::internal_error().with_detail("a range read made no progress"));
            };
            if reverse {
                end = KeySelector::first_greater_or_equal(Bytes::copy_from_slice(last));
            } else {
                begin = KeySelector::first_greater_or_equal(key_after(last));
            }
        }
    }
}

impl Source for View {
    fn own_writes(&self) -> Option<&WriteMap> {
        self.map.as_ref()
    }

    fn max_key(&self) -> &'static [u8] {
        self.max_key
    }

    fn bypasses_unreadable(&self) -> bool {
        self.bypass_unreadable
    }

    async fn fetch(
        &self,
        begin: &[u8],
        end: &[u8],
        limits: Limits,
        reverse: bool,
    ) -> Result<RangeResult> {
        let begin = KeySelector::first_greater_or_equal(Bytes::copy_from_slice(begin));
        let end = KeySelector::first_greater_or_equal(Bytes::copy_from_slice(end));
        self.ask(begin, end, limits, reverse).await
    }
}

/// The flags as a range read gives them: what a limit kept from being reached wasn't reached.
fn finish(mut result: RangeResult, reverse: bool) -> RangeResult {
    if result.more && reverse {
        result.read_to_begin = false;
    } else if result.more {
        result.read_through_end = false;
    }
    result
}

fn copy(mut builder: RowsBuilder, rows: &Rows) -> RowsBuilder {
    for (key, value) in rows.iter() {
        builder.push(key, value);
    }
    builder
}

impl Limits {
    /// Takes rows off; whether a limit is reached.
    pub(crate) fn take(&mut self, rows: &Rows) -> bool {
        if let Some(left) = &mut self.rows {
            *left = left.saturating_sub(rows.len());
        }
        if let Some(left) = &mut self.bytes {
            *left = left.saturating_sub(rows.data_len() + rows.len() * row_overhead());
        }
        self.reached() && !rows.is_empty()
    }

    /// Takes one row off.
    pub(crate) fn take_row(&mut self, key: &[u8], value: &[u8]) {
        if let Some(left) = &mut self.rows {
            *left = left.saturating_sub(1);
        }
        if let Some(left) = &mut self.bytes {
            *left = left.saturating_sub(key.len() + value.len() + row_overhead());
        }
    }

    pub(crate) fn reached(&self) -> bool {
        self.rows == Some(0) || self.bytes == Some(0)
    }
}
