//! Rolling up: buckets are made of points that are sealed, and made again where points changed.
//!
//! ```text
//!   points     ......................................................... sealed | open leaf
//!   buckets    |===|===|===|===|===|===|===|===|===|===|===| up to here
//!                    ^ gone: no points before it       ^ changed since: made again
//! ```
//!
//! All of it is derived from what is committed: sealed leaves, late leaves and masks, and nothing
//! of what is in memory alone. A transaction reads how far the series is and what was changed,
//! with conflicts, reads the points at whatever version, and writes buckets and how far it is then.
//! Whoever changes points that are sealed notes that in the same transaction as he changes them: so
//! either that one has failed, or the change stays noted and the buckets are made once more. A kill
//! at any instant leaves buckets that are right but where that is noted.
//!
//! A step reads some ten thousand points, so that it is over before its version is too old.

use super::found::Found;
use super::keys::Id;
use super::rolls::{Change, Known, State, are_known};
use super::written::Written;
use super::{Part, Series, SeriesStore, Shared, nodes, retry};
use crate::error::Result;
use crate::name::Name;
use crate::rollup::{Maker, Rollup, begin_of, decode, end_of};
use crate::tree::{Direction, Span};
use crate::value::Points;
use plinth_client::{RangeOptions, StreamingMode, Transaction};
use plinth_types::{Bytes, key_after, strinc};
use std::sync::Arc;

/// Points that one step reads, about.
const STEP_POINTS: usize = 100_000;
/// Buckets that one step makes, about: a transaction has room for some ten thousand.
const STEP_BUCKETS: usize = 20_000;
/// Changes that one step takes up.
const CHANGES: usize = 256;

/// A rule about a series, and how far that is.
#[derive(Clone, Copy)]
pub(super) struct Ruled {
    pub(super) id: u64,
    pub(super) every: i64,
    pub(super) state: Option<State>,
}

/// A step of one series, in one transaction.
struct Step<'a> {
    shared: &'a Arc<Shared>,
    tr: &'a Transaction,
    id: Id,
    name: &'a Name,
    rules: Vec<Ruled>,
}

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// Everything is rolled up, or nothing is to be.
    Done,
    /// There may be more to do.
    More,
}

/// Rolls a series up as far as it is sealed.
pub(super) async fn roll(shared: &Arc<Shared>, id: Id, name: &Name) -> Result<()> {
    while roll_some(shared, id, name).await? == Came::More {
        shared.database.endpoint().env().yield_now().await;
    }
    Ok(())
}

/// Rolls a series up by one step.
pub(super) async fn roll_some(shared: &Arc<Shared>, id: Id, name: &Name) -> Result<Came> {
    let known = shared.rolls.known();
    let tr = shared.database.create_transaction();
    loop {
        match try_roll(shared, &known, &tr, (id, name)).await {
            Err(error) => retry::again(&tr, error).await?,
            came => return came,
        }
    }
}

async fn try_roll(
    shared: &Arc<Shared>,
    known: &Known,
    tr: &Transaction,
    (id, name): (Id, &Name),
) -> Result<Came> {
    shared.check_owner(tr).await?;
    let keys = &shared.keys;
    let is_there = tr.get(keys.series(id)).await?.is_some();
    // With other rules whoever called begins anew, once they are known.
    if !is_there || !are_known(tr, shared, known).await? {
        return Ok(Came::Done);
    }
    let rules = ruled(tr, shared, known, (id, name)).await?;
    let step = Step { shared, tr, id, name, rules };
    if step.rules.is_empty() {
        return Ok(Came::Done);
    }
    let changes = changes(tr, shared, id, CHANGES).await?;
    if !changes.is_empty() {
        let too_late = step.make_again(&changes).await?;
        tr.commit().await?;
        tell_too_late(shared, name, too_late);
        return Ok(Came::More);
    }
    let Some(came) = step.go_on().await? else { return Ok(Came::Done) };
    tr.commit().await?;
    Ok(came)
}

/// Counts points that came too late for their buckets, and tells the first of a burst.
fn tell_too_late(shared: &Shared, name: &Name, points: u64) {
    if shared.rolls.count_too_late(points, shared.database.endpoint().env().now()) {
        tracing::warn!(
            series = %name,
            points,
            "points came too late: those that their buckets were made of have gone, and the buckets \
             stay as they are"
        );
    }
}

/// The rules about a series, and how far it is by each, read with conflicts.
pub(super) async fn ruled(
    tr: &Transaction,
    shared: &Shared,
    known: &Known,
    (id, name): (Id, &Name),
) -> Result<Vec<Ruled>> {
    let of = |rollup: &Rollup| (rollup.id, rollup.every());
    let rules: Vec<(u64, i64)> = known.keeping.of(name.metric()).map(of).collect();
    let rows: Vec<_> =
        rules.iter().map(|(rule, _)| tr.get(shared.keys.rolled(*rule, id))).collect();
    let mut ruled = Vec::with_capacity(rules.len());
    for ((rule, every), row) in rules.into_iter().zip(rows) {
        let state = row.await?.map(|row| State::decode(&row)).transpose()?;
        ruled.push(Ruled { id: rule, every, state });
    }
    Ok(ruled)
}

/// The changes that are noted of a series, read with conflicts: some of them.
pub(super) async fn changes(
    tr: &Transaction,
    shared: &Shared,
    id: Id,
    limit: usize,
) -> Result<Vec<Change>> {
    let range = RangeOptions::prefix(shared.keys.changes(id)).limit(limit);
    let rows = tr.range(range.mode(StreamingMode::WantAll)).collect().await?;
    rows.iter().map(|row| Change::of_key(&shared.keys, &row.key)).collect()
}

/// Spans of time in which buckets are made again, those of one kind joined where they touch when
/// they are rounded to buckets of `every`.
fn joined(changes: &[Change], is_deletion: bool, every: i64) -> Vec<Span> {
    let mut spans: Vec<Span> = changes
        .iter()
        .filter(|change| change.is_deletion == is_deletion)
        .map(|change| change.span)
        .collect();
    spans.sort_unstable_by_key(|span| span.first);
    spans.dedup_by(|next, last| {
        let touches = begin_of(next.first, every) <= end_of(begin_of(last.last, every), every);
        if touches {
            last.last = last.last.max(next.last);
        }
        touches
    });
    spans
}

/// Buckets that are being made by one rule.
struct Making {
    rule: Ruled,
    /// Which ones: from the first that begins here, up to here.
    begin: i64,
    end: i64,
    maker: Maker,
}

impl Making {
    fn new(rule: Ruled, begin: i64, end: i64) -> Option<Self> {
        let maker = Maker::new(rule.every);
        (begin < end).then_some(Self { rule, begin, end, maker })
    }

    /// Whether a step may end when all points before a time are there: it is a bucket further then,
    /// or has yet to begin.
    fn may_rest_at(&self, time: i64) -> bool {
        self.begin >= time || self.end.min(begin_of(time, self.rule.every)) > self.begin
    }
}

impl Step<'_> {
    /// The series as it is committed, whatever of it is in memory.
    fn committed(&self) -> Series {
        let cell = Found::new(self.id, self.name.clone()).cell();
        Series { shared: self.shared.clone(), cell, is_looked_up: true }
    }

    /// The longest bucket.
    fn longest(&self) -> i64 {
        self.rules.iter().map(|rule| rule.every).max().unwrap_or(1)
    }

    /// Gives points to those who make buckets, about as many as a step reads, and such that each
    /// has one bucket at least that is whole, or begins behind them; `seen` gets the times of all
    /// of them. Gives the time of the first that was not read.
    async fn feed(
        &self,
        making: &mut [Making],
        mut seen: impl FnMut(&[i64]),
    ) -> Result<Option<i64>> {
        let begin = making.iter().map(|making| making.begin).min().unwrap_or(0);
        let end = making.iter().map(|making| making.end).max().unwrap_or(0);
        let mut points = self.committed().scan_unchecked(begin..end, Direction::Forward).await?;
        let mut read = 0;
        while let Some(some) = points.next().await? {
            let Some(first) = some.times.first().copied() else { continue };
            let is_enough = making.iter().all(|making| making.may_rest_at(first));
            let made: usize = making.iter().map(|making| making.maker.len()).sum();
            if (read >= STEP_POINTS || made >= STEP_BUCKETS) && is_enough {
                return Ok(Some(first));
            }
            read += some.len();
            seen(&some.times);
            for making in making.iter_mut() {
                let places = Span::new(making.begin..making.end).places(&some.times);
                if places.len() == some.len() {
                    making.maker.add(&some);
                } else {
                    let mut within = Points::default();
                    within.append(&some, places);
                    making.maker.add(&within);
                }
            }
        }
        Ok(None)
    }

    /// Makes the buckets behind those that there are. `None` if there are none to be made.
    async fn go_on(&self) -> Result<Option<Came>> {
        let Some(last) = nodes::trunk_in(self.tr, &self.shared.keys, self.id).await?.last() else {
            return Ok(None);
        };
        let mut making: Vec<Making> = Vec::new();
        for rule in &self.rules {
            let begin = rule.state.map_or_else(|| self.first_of(rule), |state| state.upto);
            making.extend(Making::new(*rule, begin, begin_of(last, rule.every)));
        }
        if making.is_empty() {
            return Ok(None);
        }
        let next = self.feed(&mut making, |_| {}).await?;
        for Making { rule, begin, end, maker } in making {
            let end = next.map_or(end, |next| end.min(begin_of(next, rule.every)));
            if end <= begin {
                continue;
            }
            self.buckets(rule.id).replace((begin, end), maker.until(end)).await?;
            let state = rule.state.unwrap_or(State { from: begin, upto: end, gone: begin });
            self.set_state(rule.id, State { upto: end, ..state });
        }
        Ok(Some(if next.is_some() { Came::More } else { Came::Done }))
    }

    /// Where the buckets of a rule begin by which nothing was rolled up yet: where there are
    /// points, if some have gone for which others have buckets.
    fn first_of(&self, rule: &Ruled) -> i64 {
        let gone = self.rules.iter().filter_map(|rule| Some(rule.state?.gone)).max();
        match gone {
            Some(gone) if begin_of(gone, rule.every) < gone => {
                end_of(begin_of(gone, rule.every), rule.every)
            }
            gone => gone.unwrap_or(i64::MIN),
        }
    }

    fn set_state(&self, rule: u64, state: State) {
        self.tr.set(self.shared.keys.rolled(rule, self.id), state.encode());
    }

    /// Makes buckets again where points have changed, and notes what is left of the changes. Gives
    /// how many points no bucket has because they came too late.
    async fn make_again(&self, changes: &[Change]) -> Result<u64> {
        let keys = &self.shared.keys;
        for change in changes {
            self.tr.clear(change.key(keys, self.id));
        }
        // Whatever is written, others who do the same at the same time are in conflict.
        for rule in &self.rules {
            rule.state.inspect(|state| self.set_state(rule.id, *state));
        }
        // By each rule for itself: what the longest buckets join is more than was deleted.
        for rule in &self.rules {
            for span in joined(changes, true, rule.every) {
                self.remove_gone(rule, span).await?;
            }
        }
        let deleted = changes.iter().map(|change| Change { is_deletion: false, ..*change });
        let spans = joined(&deleted.collect::<Vec<_>>(), false, self.longest());
        let mut spans = spans.into_iter();
        let came = joined(changes, false, 1);
        let (mut rest, mut too_late) = (None, 0);
        for span in spans.by_ref() {
            let left_out;
            (rest, left_out) = self.make_span_again(span, &came).await?;
            too_late += left_out;
            if rest.is_some() {
                break;
            }
        }
        for span in rest.into_iter().chain(spans) {
            self.tr.set(Change { span, is_deletion: false }.key(keys, self.id), "");
        }
        Ok(too_late)
    }

    /// Removes the buckets of which points were deleted, where there are no points to make them of.
    async fn remove_gone(&self, rule: &Ruled, span: Span) -> Result<()> {
        let Some(state) = rule.state else { return Ok(()) };
        let begin = begin_of(span.first, rule.every);
        let end = end_of(begin_of(span.last, rule.every), rule.every).min(state.gone);
        if begin < end {
            self.buckets(rule.id).replace((begin, end), Vec::new()).await?;
        }
        Ok(())
    }

    /// Makes the buckets of a span again, as far as there are points; gives what is left of it.
    /// Where points have gone, others may have come since: history that was brought in late. Gives
    /// how many of those that `came`, in spans that ascend, are in no bucket.
    async fn make_span_again(&self, span: Span, came: &[Span]) -> Result<(Option<Span>, u64)> {
        let mut making: Vec<Making> = Vec::new();
        for rule in &self.rules {
            let Some(state) = rule.state else { continue };
            let begin = begin_of(span.first, rule.every).max(state.from);
            let end = end_of(begin_of(span.last, rule.every), rule.every).min(state.upto);
            making.extend(Making::new(*rule, begin, end));
        }
        if making.is_empty() {
            return Ok((None, 0));
        }
        let all_gone = self.rules.iter().filter_map(|rule| Some(rule.state?.gone)).max();
        let mut late: Vec<i64> = Vec::new();
        let seen = |times: &[i64]| {
            let times = &times[..times.partition_point(|time| Some(*time) < all_gone)];
            late.extend(came.iter().flat_map(|span| &times[span.places(times)]));
        };
        let next = self.feed(&mut making, seen).await?;
        let (mut left, mut left_out): (Option<i64>, Vec<(i64, Vec<i64>)>) = (None, Vec::new());
        for Making { rule, begin, end, maker } in making {
            let until = next.map_or(end, |next| end.min(begin_of(next, rule.every))).max(begin);
            let gone = rule.state.map_or(begin, |state| state.gone).clamp(begin, until);
            let mut made = maker.until(until);
            let behind = made.split_off(made.partition_point(|bucket| bucket.begin < gone));
            let buckets = self.buckets(rule.id);
            left_out.push((rule.every, buckets.complete(made).await?));
            if gone < until {
                buckets.replace((gone, until), behind).await?;
            }
            if until < end {
                left = Some(left.map_or(until, |left| left.min(until)));
            }
        }
        let is_left_out = |time: &&i64| {
            let mut of = left_out.iter();
            of.any(|(every, begins)| begins.binary_search(&begin_of(**time, *every)).is_ok())
        };
        let too_late = late.iter().filter(is_left_out).count() as u64;
        Ok((left.map(|first| Span { first, last: span.last }), too_late))
    }

    /// The buckets of the series by a rule.
    fn buckets(&self, rule: u64) -> Written<'_> {
        Written { tr: self.tr, keys: &self.shared.keys, of: (rule, self.id) }
    }
}

/// Removes rows of buckets of a series whose last bucket is older than a time, by one rule. Whether
/// there were any.
pub(super) async fn forget_buckets(
    shared: &Arc<Shared>,
    (id, rule): (Id, &Rollup),
    first: i64,
) -> Result<bool> {
    let keys = &shared.keys;
    let (state_key, row) =
        (&keys.rolled(rule.id, id), |begin: i64| keys.rolled_row(rule.id, id, begin));
    let (row, every) = (&row, rule.every());
    retry::transact_all(&shared.database, |tr| async move {
        shared.check_owner(&tr).await?;
        let Some(state) = tr.get(state_key).await? else { return Ok(false) };
        let state = State::decode(&state)?;
        let end = strinc(state_key).unwrap_or_else(|| Bytes::from_static(b"\xff")).to_vec();
        let oldest = RangeOptions::from(row(i64::MIN)..end).limit(1);
        let kept = RangeOptions::from(row(i64::MIN)..key_after(&row(first)).to_vec());
        let oldest = tr.snapshot().range(oldest).collect().await?;
        let kept = tr.snapshot().range(kept.limit(1).reverse(true)).collect().await?;
        let (Some(oldest), Some(kept)) = (oldest.first(), kept.first()) else { return Ok(false) };
        let last = decode(&kept.value)?.last().map_or(i64::MIN, |bucket| bucket.begin);
        // The last row of those that begin in time may be too old as a whole, too.
        let (behind, from) = match end_of(last, every) <= first {
            true => (key_after(&kept.key), end_of(last, every)),
            false => (kept.key.clone(), decode(&kept.value)?[0].begin),
        };
        if oldest.key[..] >= behind[..] {
            return Ok(false);
        }
        tr.clear_range(row(i64::MIN), behind);
        let from = from.min(state.upto);
        tr.set(state_key, State { from: state.from.max(from), ..state }.encode());
        Ok(true)
    })
    .await
}

impl Part {
    /// Rolls up all series that have rules.
    async fn roll_up(&self) -> Result<()> {
        let shared = &self.shared;
        let mut next = Some(0);
        while let Some(least) = next {
            let (found, is_end) = self.page_of_all(least, true).await?;
            next = found.last().map(|last| last.id + 1).filter(|_| !is_end);
            let known = shared.rolls.known();
            for found in found {
                if known.keeping.has(found.name.metric()) {
                    roll(shared, found.id, &found.name).await?;
                }
            }
        }
        Ok(())
    }
}

impl SeriesStore {
    /// Makes all rollups now that the rules ask for, of the points that are in leaves: what is done
    /// by itself, some time later, where [`Settings::commit_every`](super::Settings) is set.
    ///
    /// # Errors
    /// [`Error::NotOwner`](crate::Error::NotOwner), [`Error::Damaged`](crate::Error::Damaged),
    /// [`Error::Database`](crate::Error::Database).
    pub async fn roll_up(&self) -> Result<()> {
        for part in self.parts.iter().filter(|part| !part.is_foreign()) {
            super::rolls::learn(&part.shared).await?;
            part.roll_up().await?;
        }
        Ok(())
    }
}
