//! What somebody's grants cover together, and whether a request stays within that.
//!
//! ```text
//!   grants     [shop/, shop0) writer     [shop/, shop/m) reader     [log/, log0) reader
//!   reads      [log/ ... log0)  [shop/ ............ shop0)         in order, apart
//!   writes                      [shop/ ............ shop0)
//! ```
//!
//! Always: an answer to whoever stays within it depends on nothing without. So a range is read
//! whole or not at all; a selector that is followed out of a span is refused, wherever it leads
//! then; and a commit may name no key without, be it only to conflict.
//!
//! Beside the spans there is a little of the system's keys that clients use by themselves: the
//! version of the metadata, which everybody is told anyway; a key each that a transaction
//! conflicts with itself on, random bytes that nobody else knows; and the records by which a lost
//! commit is found again, random bytes too.

use super::Role;
use crate::{
    Bytes, CommitRequest, Error, KeyRange, KeySpace, MetricSet, Metrics, MutationRef, MutationType,
    RangeLock, RangeLocks, RangeRef, Result, key_after, printable, system,
};

use std::sync::Arc;

/// Random bytes behind [`system::SELF_CONFLICT_PREFIX`], at least: an idempotency id may have more.
const SELF_CONFLICT_BYTES: usize = 16;
/// Bytes of a versionstamp, and of its place behind a parameter.
const STAMP: usize = 10;
const PLACE: usize = 4;

/// Ranges of keys in order, none of which touches another.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Spans(Vec<KeyRange>);

impl Spans {
    /// The keys of all these ranges.
    pub fn of(ranges: impl IntoIterator<Item = KeyRange>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort();
        let mut spans = Vec::<KeyRange>::with_capacity(ranges.len());
        for range in ranges {
            match spans.last_mut().filter(|last| range.begin <= last.end) {
                Some(last) => last.end = range.end.max(last.end.clone()),
                None => spans.push(range),
            }
        }
        Self(spans)
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The span that begins last at or before this key.
    fn before(&self, key: &[u8]) -> Option<&KeyRange> {
        let after = self.0.partition_point(|span| span.begin[..] <= *key);
        after.checked_sub(1).map(|at| &self.0[at])
    }

    /// Whether it has this key.
    pub fn has(&self, key: &[u8]) -> bool {
        self.before(key).is_some_and(|span| *key < span.end[..])
    }

    /// Whether it has all keys from `begin` up to, and without, `end`.
    pub fn covers(&self, begin: &[u8], end: &[u8]) -> bool {
        begin >= end || self.before(begin).is_some_and(|span| *end <= span.end[..])
    }

    /// The span in which somebody may go from this place between keys, forwards or backwards. The
    /// place is before the key that it names.
    fn from(&self, place: &[u8], forward: bool) -> Option<&KeyRange> {
        if forward {
            return self.before(place).filter(|span| *place <= span.end[..]);
        }
        // The span that ends here lies before the one that begins here.
        let after = self.0.partition_point(|span| span.begin[..] < *place);
        let span = match after.checked_sub(1) {
            Some(at) => &self.0[at],
            None => self.0.first().filter(|span| span.begin.is_empty())?,
        };
        (*place <= span.end[..]).then_some(span)
    }
}

/// What somebody may.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Coverage {
    is_operator: bool,
    reads: Spans,
    writes: Spans,
    /// What it may of time series.
    series: Option<Role>,
    /// Of which metrics series may be read, and written, where that isn't all.
    metrics: [Arc<MetricSet>; 2],
}

impl Coverage {
    /// Everything.
    pub fn everything() -> Self {
        Self::of([(Role::Operator, KeyRange::new(&b""[..], system::NORMAL_END))])
    }

    /// What these roles give, each in a range. An operator's is everything.
    pub fn of(roles: impl IntoIterator<Item = (Role, KeyRange)>) -> Self {
        let (mut is_operator, mut reads, mut writes) = (false, Vec::new(), Vec::new());
        for (role, range) in roles {
            is_operator |= role == Role::Operator;
            if role >= Role::Writer {
                writes.push(range.clone());
            }
            reads.push(range);
        }
        let (reads, writes) = (Spans::of(reads), Spans::of(writes));
        Self { is_operator, reads, writes, series: None, metrics: Default::default() }
    }

    /// The same, and this of time series.
    #[must_use]
    pub fn with_series(self, role: Option<Role>) -> Self {
        Self { series: self.series.max(role), ..self }
    }

    /// The same, and these roles of the series of some metrics each.
    #[must_use]
    pub fn with_metrics(self, roles: impl IntoIterator<Item = (Role, Metrics)>) -> Self {
        let roles: Vec<_> = roles.into_iter().collect();
        let of = |least: Role| {
            let given = roles.iter().filter(|(role, _)| *role >= least);
            Arc::new(MetricSet::of(given.map(|(_, metrics)| metrics.clone())))
        };
        Self { metrics: [of(Role::Reader), of(Role::Writer)], ..self }
    }

    /// Whether it is everything.
    pub fn is_operator(&self) -> bool {
        self.is_operator
    }

    /// Whether it is nothing at all.
    pub fn is_nothing(&self) -> bool {
        !self.is_operator && self.reads.is_empty()
    }

    /// # Errors
    /// `permission_denied` unless it is everything.
    pub fn check_operator(&self, what: &str) -> Result<()> {
        if self.is_operator { Ok(()) } else { Err(denied(&format!("{what} takes an operator"))) }
    }

    /// # Errors
    /// `permission_denied` if it is nothing.
    pub fn check_anything(&self) -> Result<()> {
        if self.is_nothing() { Err(denied("no grant is for whoever asks")) } else { Ok(()) }
    }

    /// Whether time series may be asked for, or points of them be sent, and of which metrics;
    /// `None` for all.
    ///
    /// # Errors
    /// `permission_denied`.
    pub fn check_series(&self, writes: bool) -> Result<Option<Arc<MetricSet>>> {
        let needed = if writes { Role::Writer } else { Role::Reader };
        if self.is_operator || self.series >= Some(needed) {
            return Ok(None);
        }
        let metrics = &self.metrics[usize::from(writes)];
        if !metrics.is_empty() {
            return Ok(Some(metrics.clone()));
        }
        let what = if writes { "points are taken from" } else { "series are told to" };
        Err(denied(&format!("{what} whoever has a grant of series")))
    }

    /// Whether a key may be read.
    ///
    /// # Errors
    /// `permission_denied`.
    pub fn check_key(&self, key: &[u8]) -> Result<()> {
        let is_small = key == system::METADATA_VERSION || key == system::IDEMPOTENCY_EXPIRED;
        if self.is_operator || self.reads.has(key) || (is_small && !self.is_nothing()) {
            return Ok(());
        }
        Err(denied(&format!("no grant covers reading {}", printable(key))))
    }

    /// Whether the keys from `begin` up to, and without, `end` may be read.
    ///
    /// # Errors
    /// `permission_denied`.
    pub fn check_range(&self, begin: &[u8], end: &[u8]) -> Result<()> {
        let is_records = || {
            begin.starts_with(system::IDEMPOTENCY_PREFIX)
                && end.starts_with(system::IDEMPOTENCY_PREFIX)
        };
        if self.is_operator
            || self.reads.covers(begin, end)
            || (!self.writes.is_empty() && is_records())
        {
            return Ok(());
        }
        Err(denied(&format!("no grant covers reading all of {}", span(begin, end))))
    }

    /// Whether a selector that begins at this place may have led to a key. Where it didn't leave
    /// the span, nothing without decides where it led; where it did, that it left it decides.
    ///
    /// # Errors
    /// `permission_denied`.
    pub fn check_led(
        &self,
        space: KeySpace,
        place: &[u8],
        forward: bool,
        found: &[u8],
    ) -> Result<()> {
        let stays = |span: &KeyRange| match forward {
            true => *found < span.end[..] || span.end[..] >= *space.end(),
            false => *found >= span.begin[..],
        };
        if self.is_operator || self.reads.from(place, forward).is_some_and(stays) {
            return Ok(());
        }
        Err(denied(&format!("a key selector leads from {} to where no grant is", printable(place))))
    }

    /// Whether a selector may begin at this place at all.
    ///
    /// # Errors
    /// `permission_denied`.
    pub fn check_begins(&self, place: &[u8], forward: bool) -> Result<()> {
        if self.is_operator || self.reads.from(place, forward).is_some() {
            return Ok(());
        }
        Err(denied(&format!("no grant covers a key selector at {}", printable(place))))
    }

    /// Whether all keys of a space may be read, so that it needs not be looked where selectors
    /// lead.
    pub fn has_space(&self, space: KeySpace) -> bool {
        self.is_operator || self.reads.covers(b"", space.end())
    }

    /// Those of the locks that concern what may be read, cut to it: others know nothing of locks
    /// elsewhere.
    pub fn cut_locks(&self, locks: &RangeLocks) -> Option<RangeLocks> {
        if self.is_operator {
            return Some(locks.clone());
        }
        let mut cut = Vec::new();
        for RangeLock { range, owner } in locks.locks() {
            for span in &self.reads.0 {
                let begin = range.begin.clone().max(span.begin.clone());
                let end = range.end.clone().min(span.end.clone());
                if begin < end {
                    cut.push(RangeLock { range: KeyRange::new(begin, end), owner: *owner });
                }
            }
        }
        Some(RangeLocks::new(cut)).filter(|cut| !cut.is_empty())
    }

    /// Whether all that a commit names may be read, or written: what it changes, and what it
    /// conflicts on.
    ///
    /// # Errors
    /// `permission_denied`.
    pub fn check_commit(&self, request: &CommitRequest) -> Result<()> {
        if self.is_operator {
            return Ok(());
        }
        self.check_anything()?;
        // It becomes a row of its own, whatever else there is.
        if request.idempotency_id.is_some() && self.writes.is_empty() {
            return Err(denied(
                "no grant covers writing anything, and an idempotency id is written",
            ));
        }
        for range in &request.conflicts.reads {
            match range.end {
                _ if is_self_conflict(&range) => {}
                None => self.check_key(range.begin)?,
                Some(end) => self.check_range(range.begin, end)?,
            }
        }
        for range in &request.conflicts.writes {
            match range.end {
                _ if is_self_conflict(&range) => {}
                None => self.check_write_key(range.begin)?,
                Some(end) => self.check_write(range.begin, end)?,
            }
        }
        request.mutations.iter().try_for_each(|mutation| self.check_mutation(mutation))
    }

    fn check_mutation(&self, mutation: MutationRef<'_>) -> Result<()> {
        let MutationRef { kind, param1, param2 } = mutation;
        match kind {
            MutationType::ClearRange => self.check_write(param1, param2),
            MutationType::SetVersionstampedKey => match stamped(param1) {
                Some((low, high)) => self.check_write(&low, &key_after(&high)),
                None => self.check_write_key(param1),
            },
            MutationType::SetVersionstampedValue => self.check_write_key(param1),
            // What layers keep for each other there is a versionstamp, and nothing else.
            _ if param1 == system::METADATA_VERSION => Err(not_written(param1)),
            _ => self.check_write_key(param1),
        }
    }

    fn check_write_key(&self, key: &[u8]) -> Result<()> {
        let may_tell_layers =
            key == system::METADATA_VERSION && self.writes.covers(b"", system::NORMAL_END);
        if self.writes.has(key) || may_tell_layers { Ok(()) } else { Err(not_written(key)) }
    }

    fn check_write(&self, begin: &[u8], end: &[u8]) -> Result<()> {
        if self.writes.covers(begin, end) {
            return Ok(());
        }
        Err(denied(&format!("no grant covers writing all of {}", span(begin, end))))
    }
}

/// A range in words; what is empty is seen to be.
fn span(begin: &[u8], end: &[u8]) -> String {
    let bound = |key: &[u8]| if key.is_empty() { "\"\"".to_owned() } else { printable(key) };
    format!("{} to {}", bound(begin), bound(end))
}

fn denied(why: &str) -> Error {
    Error::permission_denied().with_detail(why.to_owned())
}

fn not_written(key: &[u8]) -> Error {
    denied(&format!("no grant covers writing {}", printable(key)))
}

/// Whether it is a key on which a transaction conflicts with itself, and with nobody who doesn't
/// know its random bytes.
fn is_self_conflict(range: &RangeRef<'_>) -> bool {
    let random = range.begin.strip_prefix(system::SELF_CONFLICT_PREFIX);
    range.is_single() && random.is_some_and(|random| random.len() >= SELF_CONFLICT_BYTES)
}

/// The first and the last key that a stamp in its place can make of a parameter; `None` if it has
/// no place, and is refused for that.
fn stamped(parameter: &[u8]) -> Option<(Bytes, Bytes)> {
    let (key, place) = parameter.split_last_chunk::<PLACE>()?;
    let place = usize::try_from(u32::from_le_bytes(*place)).ok()?;
    let end = place.checked_add(STAMP)?;
    let (mut low, mut high) = (key.to_vec(), key.to_vec());
    low.get_mut(place..end)?.fill(0);
    let stamp = high.get_mut(place..end)?;
    stamp.fill(0xff);
    // It begins with the version, which isn't negative.
    *stamp.first_mut()? = 0x7f;
    Some((low.into(), high.into()))
}

#[cfg(test)]
mod tests;
