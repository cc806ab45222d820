//! What a store knows of rollups: the rules, and which series have something to be rolled up.
//!
//! Rules are a row of the place, which anybody may change at any time ([`SeriesStore::keeping`],
//! [`SeriesStore::change_keeping`]). The owner of a part looks at it now and then. What it knows
//! changes while it has the turn: so a transaction that saves points or deletes some goes by the
//! rules by which rollups are made, which begin behind it.
//!
//! ```text
//!   (19)                               the rules
//!   (20, rule, series)                 how far a series is rolled up: see State
//!   (20, rule, series, begin)          a row of buckets
//!   (21, series, kind, first, last)    late points that came into a span, or a span that was deleted, and the rollups don't know it yet
//! ```

use super::keys::{Id, Keys};
use super::place::Home;
use super::{Cell, Role, Series, SeriesStore, Settings, Shared, lock, retry};
use crate::codec::reader::Reader;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::rollup::{Keeping, Rollup, begin_of};
use crate::tree::Span;
use plinth_client::{Database, Transaction};
use plinth_env::Burst;
use plinth_types::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Leaves that a series gets before it is rolled up further: what is in fewer is quickly read.
const LEAVES: usize = 4;
/// How long a change waits for others: each has whole buckets made again.
const SETTLED: Duration = Duration::from_secs(5);
/// Spans of changes that one commit notes of a series, at most.
const SPANS: usize = 16;
/// Late points that are closer together are one change.
const CLOSE: i64 = 3_600_000_000_000;

/// The kinds of changes; their numbers are part of the format.
const LATE: u64 = 0;
const DELETED: u64 = 1;

/// A change of a series' points that its rollups may not have yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) span: Span,
    /// Whether points were deleted; otherwise some came.
    pub(super) is_deletion: bool,
}

impl Change {
    pub(super) fn key(&self, keys: &Keys, id: Id) -> Vec<u8> {
        keys.change(id, if self.is_deletion { DELETED } else { LATE }, self.span)
    }

    pub(super) fn of_key(keys: &Keys, key: &[u8]) -> Result<Self> {
        let (kind, span) = keys.of_change(key)?;
        Ok(Self { span, is_deletion: kind == DELETED })
    }
}

/// How far a series is rolled up by a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State {
    /// From here on ...
    pub(super) from: i64,
    /// ... up to here buckets have all points, but for changes that are noted. Both are
    /// beginnings of buckets.
    pub(super) upto: i64,
    /// The points before that have gone, and buckets are all there is.
    pub(super) gone: i64,
}

impl State {
    const FORMAT: u8 = 1;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![Self::FORMAT];
        for time in [self.from, self.upto, self.gone] {
            out.extend_from_slice(&time.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != Self::FORMAT {
            return Err(reader.wrong("how far a series is rolled up, format 1"));
        }
        let mut time = || reader.fixed::<8>().map(i64::from_le_bytes);
        let state = Self { from: time()?, upto: time()?, gone: time()? };
        if !reader.is_empty() || state.from > state.upto || state.gone > state.upto {
            return Err(reader.wrong("how far a series is rolled up"));
        }
        Ok(state)
    }
}

/// The rules, and the row that has them.
#[derive(Default)]
pub(super) struct Known {
    pub(super) row: Option<Bytes>,
    pub(super) keeping: Keeping,
    /// Why the row can't be read, if it can't: a newer program's, say. Nothing is rolled up then
    /// and nothing forgotten, and what changes is noted for whoever can read it.
    pub(super) fault: Option<Error>,
}

impl Known {
    fn of(row: Option<Bytes>) -> Result<Self> {
        let keeping = row.as_deref().map(Keeping::decode).transpose()?.unwrap_or_default();
        Ok(Self { row, keeping, fault: None })
    }

    /// The same of a row that may be one that can't be read.
    fn of_any(row: Option<Bytes>) -> Self {
        match Self::of(row.clone()) {
            Ok(known) => known,
            Err(why) => {
                tracing::error!(error = %why, "rules about what is kept can't be read");
                Self { row, keeping: Keeping::default(), fault: Some(why) }
            }
        }
    }

    /// Whether changes of a metric's points are noted.
    fn notes(&self, metric: &str) -> bool {
        self.keeping.has(metric) || self.fault.is_some()
    }
}

/// A series that has something to be rolled up.
struct Due {
    name: Name,
    leaves: usize,
    /// When it was noted first that points have changed.
    changed: Option<Duration>,
}

/// What a part knows of its rollups.
#[derive(Default)]
pub(super) struct Rolls {
    known: Mutex<Arc<Known>>,
    due: Mutex<BTreeMap<Id, Due>>,
    progress: Mutex<Progress>,
    failures: Burst,
    too_late: Burst,
    forgetting: Forgetting,
}

/// How often points went that are rolled up, as far as this process has them go: how often it was
/// begun, and up to which of these all are over.
#[derive(Default)]
struct Forgetting {
    begun: AtomicU64,
    over: AtomicU64,
}

/// How far rollups are with series that were there before their rule, or before the store was
/// opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Series that were looked at since rules changed, or the store was opened.
    pub looked_at: u64,
    /// Series that are still to be looked at, about.
    pub left: u64,
    /// How often a series could not be rolled up since the store was opened.
    pub failed: u64,
    /// Points that came since the store was opened, and that no bucket has: theirs was made before,
    /// and of what it was made of not enough is left to make it again.
    pub too_late: u64,
}

impl Rolls {
    pub(super) fn known(&self) -> Arc<Known> {
        lock(&self.known).clone()
    }

    /// Notes that a series has so many more leaves, or that points of it have changed, at a time.
    pub(super) fn note(&self, (id, name): (Id, &Name), leaves: usize, changed: Option<Duration>) {
        let known = self.known();
        if !known.keeping.has(name.metric()) {
            return;
        }
        let mut due = lock(&self.due);
        let due =
            due.entry(id).or_insert_with(|| Due { name: name.clone(), leaves: 0, changed: None });
        due.leaves += leaves;
        due.changed = due.changed.or(changed);
    }

    /// Notes that a series has more to be rolled up than was done at once.
    pub(super) fn note_rest(&self, series: (Id, &Name)) {
        self.note(series, LEAVES, None);
    }

    /// Takes the series that have much to be rolled up, or all that have anything. Changes wait for
    /// others that come soon behind them.
    pub(super) fn take_due(&self, all: bool, now: Duration) -> Vec<(Id, Name)> {
        let is_old = |at: Duration| now.saturating_sub(at) >= SETTLED;
        let is_due =
            |_: &Id, due: &mut Due| all || due.leaves >= LEAVES || due.changed.is_some_and(is_old);
        lock(&self.due).extract_if(.., is_due).map(|(id, due)| (id, due.name)).collect()
    }

    /// Points are about to go that are rolled up, for whoever has the turn.
    pub(super) fn begin_to_forget(&self) {
        self.forgetting.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// They went, or didn't, and nothing of it is under way.
    pub(super) fn have_forgotten(&self) {
        let begun = self.forgetting.begun.load(Ordering::SeqCst);
        self.forgetting.over.store(begun, Ordering::SeqCst);
    }

    /// While none go here, what stays the same until some do.
    pub(super) fn none_go(&self) -> Option<u64> {
        let begun = self.forgetting.begun.load(Ordering::SeqCst);
        (self.forgetting.over.load(Ordering::SeqCst) == begun).then_some(begun)
    }

    pub(super) fn progress(&self) -> Progress {
        *lock(&self.progress)
    }

    /// A series could not be rolled up; whether that is news.
    pub(super) fn count_failure(&self, now: Duration) -> bool {
        lock(&self.progress).failed += 1;
        self.failures.note_alone(1, now)
    }

    /// So many points came too late for their buckets; whether that is news.
    pub(super) fn count_too_late(&self, points: u64, now: Duration) -> bool {
        lock(&self.progress).too_late += points;
        points > 0 && self.too_late.note_alone(points, now)
    }

    /// How many series were looked at, and how many are left.
    pub(super) fn set_walked(&self, looked_at: u64, left: u64) {
        let mut progress = lock(&self.progress);
        (progress.looked_at, progress.left) = (looked_at, left);
    }
}

/// The lengths of buckets of some rules.
pub(super) fn everies<'a>(rules: impl Iterator<Item = &'a Rollup>) -> Vec<i64> {
    rules.map(Rollup::every).collect()
}

async fn row_of_rules(tr: &Transaction, shared: &Shared) -> Result<Option<Bytes>> {
    Ok(tr.get(shared.of.whole.root.keeping()).await?)
}

/// Whether the rules are those that are known, for a transaction that goes by them.
pub(super) async fn are_known(tr: &Transaction, shared: &Shared, known: &Known) -> Result<bool> {
    Ok(row_of_rules(tr, shared).await? == known.row)
}

/// Looks at the rules, and whether they are others than those that were known.
pub(super) async fn learn(shared: &Arc<Shared>) -> Result<bool> {
    let row = retry::transact(&shared.database, |tr| {
        let key = shared.of.whole.root.keeping();
        async move { tr.snapshot().get(key).await }
    });
    let row = row.await?;
    if row == shared.rolls.known().row {
        return Ok(false);
    }
    if !matches!(shared.role, Role::Owner { .. }) {
        *lock(&shared.rolls.known) = Arc::new(Known::of_any(row));
        return Ok(true);
    }
    let turn = shared.take_turn().await?;
    turn.done(learn_now(shared).await)?;
    Ok(true)
}

/// Learns the rules, for whoever has the turn or is about to give it out. What was made by rules
/// that are no more goes.
pub(super) async fn learn_now(shared: &Shared) -> Result<()> {
    let known = retry::transact_all(&shared.database, |tr| async move {
        let known = Known::of_any(row_of_rules(&tr, shared).await?);
        if known.row.is_some() && known.fault.is_none() {
            shared.check_owner(&tr).await?;
            let keys = &shared.keys;
            let end = keys.behind_rolled();
            for (first, behind) in known.keeping.gone() {
                let behind = if behind == u64::MAX { end.clone() } else { keys.rolled_by(behind) };
                tr.clear_range(keys.rolled_by(first), behind);
            }
        }
        Ok(known)
    });
    *lock(&shared.rolls.known) = Arc::new(known.await?);
    Ok(())
}

/// Notes in the transaction that saves late points, which ascend, that rollups have to know of
/// them.
pub(super) fn note_late(
    tr: &Transaction,
    shared: &Shared,
    cell: &Cell,
    times: impl Iterator<Item = i64>,
) {
    if !shared.rolls.known().notes(cell.name.metric()) {
        return;
    }
    for span in spans(times) {
        tr.set(Change { span, is_deletion: false }.key(&shared.keys, cell.id), "");
    }
}

/// Notes in the transaction that deletes a span of a series that rollups have to lose it.
pub(super) fn note_deleted(
    tr: &Transaction,
    shared: &Shared,
    (id, metric): (Id, &str),
    span: Span,
) {
    if shared.rolls.known().notes(metric) && !span.is_empty() {
        tr.set(Change { span, is_deletion: true }.key(&shared.keys, id), "");
    }
}

/// The spans in which times lie that ascend: few, and each as short as that allows.
pub(super) fn spans(times: impl Iterator<Item = i64>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for time in times {
        match spans.last_mut() {
            Some(last) if time.saturating_sub(last.last) <= CLOSE => last.last = time,
            _ => spans.push(Span { first: time, last: time }),
        }
    }
    let mut close = CLOSE;
    while spans.len() > SPANS {
        close = close.saturating_mul(4);
        spans.dedup_by(|next, last| {
            let is_close = next.first.saturating_sub(last.last) <= close;
            if is_close {
                last.last = next.last;
            }
            is_close
        });
    }
    spans
}

/// Removes what rollups there are of a series, by all rules that are known.
pub(super) fn clear(tr: &Transaction, shared: &Shared, id: Id) {
    for rollup in shared.rolls.known().keeping.rollups() {
        tr.clear_prefix(shared.keys.rolled(rollup.id, id));
    }
    tr.clear_prefix(shared.keys.changes(id));
}

impl SeriesStore {
    /// The rules about what is kept, as far as this store knows of them: an owner looks at them
    /// several times a second.
    pub fn known_keeping(&self) -> Keeping {
        self.first().rolls.known().keeping.clone()
    }

    /// The rules about what is kept of the series of a database, whoever owns them.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Locked`], [`Error::Database`].
    pub async fn keeping(database: &Database, settings: &Settings) -> Result<Keeping> {
        let keys = Home::of(database, settings).keys;
        let database = Home::of(database, settings).reach(database);
        let row = retry::transact(&database, |tr| {
            let key = keys.keeping();
            async move { tr.get(key).await }
        });
        Ok(Known::of(row.await?)?.keeping)
    }

    /// Changes the rules about what is kept; `change` may be called again. Whoever owns the series
    /// learns of it within a second, makes what is missing in the background, and removes what
    /// nobody wants any more.
    ///
    /// # Errors
    /// [`Error::Database`] with `client_invalid_operation` and what `change` says, if that refuses;
    /// as [`SeriesStore::keeping`].
    pub async fn change_keeping<T>(
        database: &Database,
        settings: &Settings,
        mut change: impl FnMut(&mut Keeping) -> Result<T, String>,
    ) -> Result<T> {
        let keys = Home::of(database, settings).keys;
        let database = Home::of(database, settings).reach(database);
        let tr = database.create_transaction();
        loop {
            let changed = async {
                let mut keeping = Known::of(tr.get(keys.keeping()).await?)?.keeping;
                let done = change(&mut keeping).map_err(|why| {
                    plinth_types::Error::client_invalid_operation().with_detail(why)
                })?;
                tr.set(keys.keeping(), keeping.encode());
                tr.commit().await?;
                Ok::<T, Error>(done)
            };
            match changed.await {
                Ok(done) => return Ok(done),
                Err(error) => retry::again(&tr, error).await?,
            }
        }
    }
}

impl Series {
    /// Where buckets have to begin, and how long they have to be, for rollups to answer, if there
    /// are some for buckets of about this length: no later, and no shorter.
    pub fn rolled_grid(&self, from: i64, step: u64) -> (i64, u64) {
        let known = self.shared.rolls.known();
        let everies = everies(known.keeping.of(self.cell.name.metric())).into_iter();
        let longest = everies.filter(|every| every.unsigned_abs() <= step).max();
        longest.map_or((from, step), |every| {
            let length = every.unsigned_abs();
            (begin_of(from, every), step.div_ceil(length).saturating_mul(length))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_points_are_few_spans_that_have_all_of_them() {
        let span = |first, last| Span { first, last };
        assert_eq!(spans([1, 2, 3].into_iter()), [span(1, 3)]);
        assert_eq!(spans([0, CLOSE + 1].into_iter()), [span(0, 0), span(CLOSE + 1, CLOSE + 1)]);
        let far: Vec<i64> = (0..1000).map(|place| place * 3 * CLOSE).collect();
        let found = spans(far.iter().copied());
        assert!(found.len() <= SPANS, "{found:?}");
        assert!(far.iter().all(|time| found.iter().any(|span| span.contains(*time))));
        assert_eq!(spans([i64::MIN, i64::MAX].into_iter()).len(), 2);
    }

    #[test]
    fn how_far_a_series_is_comes_back() {
        let state = State { from: i64::MIN, upto: 7, gone: -9 };
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes).unwrap(), state);
        assert!((0..bytes.len()).all(|len| State::decode(&bytes[..len]).is_err()));
        assert!(State::decode(&State { gone: 8, ..state }.encode()).is_err());
    }
}
