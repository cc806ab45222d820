//! Saving: what was appended becomes batches of the tail, leaves, and late points, in transactions
//! that may be repeated.
//!
//! One flush at a time. It first decides, under the series' locks, what goes where, as a list of
//! steps of a transaction each; then it commits them in order. A step stays in the list until it is
//! known to be committed, so an error or a dropped future loses nothing: the next flush goes on
//! with it. Committing a step twice changes nothing: a leaf that is there already is not written
//! again. But it must not land behind a later one: so whoever goes on with it sees to that first
//! (`turn.rs`).
//!
//! The tail is cut up to the oldest batch that an open leaf still needs, in the last step, when all
//! leaves that replace it are there. Where many series have few points each, each batch is needed
//! by thousands of them, and the first that goes takes nearly all of them along: so a flush seals
//! for the tail's sake little more than has come since the one before, and the tail may be half as
//! long again meanwhile. Where few points that rest keep much else from going, they are written
//! once more and the tail goes (`rest.rs`).

use super::aside::{self, Aside};
use super::back;
use super::by_time::{self, ByTime};
use super::fault::Fault;
use super::keys::{Id, Keys, Whose};
use super::nodes::{self, Through};
use super::record_mail::Saving;
use super::rest::{self, Ages, Rounds, Seen};
use super::side::LatePoints;
use super::{
    Cell, Shared, Standing, State, inbox, lock, pending, post, prefetch_cells, rolls, side, tail,
};
use crate::codec;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::tree::{Span, Trunk};
use crate::value::{Point, Points};
use plinth_client::Transaction;
use plinth_types::limits;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Points that one transaction writes as leaves, about: far from its limits of size and time.
const STEP_POINTS: usize = 200_000;
/// Late points of one series that go with others': each may rewrite a leaf of its own.
const LATE_TOGETHER: usize = STEP_POINTS / LatePoints::VISIT;

/// What is known of the tail, and what is being saved.
#[derive(Default)]
pub(super) struct Flusher {
    /// The number of the next batch.
    next: u64,
    /// Series by the oldest batch that they need.
    ages: Ages,
    rounds: Rounds,
    /// Batches that are there: number and bytes.
    batches: VecDeque<(u64, usize)>,
    bytes: usize,
    steps: VecDeque<Arc<Step>>,
    /// When the oldest point of the steps came.
    pub(super) since: Option<u64>,
    /// Empty: room for what comes while a flush is prepared.
    pub(super) room: pending::List,
}

/// What one transaction saves.
#[derive(Default)]
struct Step {
    /// Rows for the inbox, of a store that posts; then there is nothing else.
    posted: post::Mail,
    batches: Vec<(u64, Vec<u8>)>,
    leaves: Vec<(Arc<Cell>, Vec<Arc<Points>>)>,
    late: Vec<(Arc<Cell>, Vec<Point>)>,
    records: Saving,
    /// What goes beside all series, since theirs is damaged.
    aside: Aside,
    /// The batches before this number go.
    cut: Option<u64>,
    /// What was taken in from the inbox, or from aside, and goes.
    taken: Option<inbox::Taken>,
    /// Whether that is left there after all.
    stays_aside: AtomicBool,
    /// Whether a transaction was made of it before, of which it may not be known what became.
    tried: AtomicBool,
}

impl Step {
    fn of_aside(aside: Aside) -> impl DoubleEndedIterator<Item = Self> {
        aside.divided().into_iter().map(|aside| Self { aside, ..Self::default() })
    }

    /// Whether what it takes in was set aside.
    fn comes_back(&self) -> bool {
        self.taken.as_ref().is_some_and(inbox::Taken::come_back)
    }

    /// The leaves of series that were not found to be damaged since.
    fn leaves(&self) -> impl Iterator<Item = (&Arc<Cell>, &[Arc<Points>])> {
        let leaves = self.leaves.iter().map(|(cell, leaves)| (cell, &leaves[..]));
        leaves.filter(|(cell, _)| is_whole(cell))
    }

    /// The late points of such.
    fn late(&self) -> impl Iterator<Item = (&Arc<Cell>, &[Point])> {
        let late = self.late.iter().map(|(cell, points)| (cell, &points[..]));
        late.filter(|(cell, _)| is_whole(cell))
    }
}

fn is_whole(cell: &Cell) -> bool {
    lock(&cell.state).standing != Standing::Damaged
}

impl Flusher {
    /// Notes that `cell` needs the batches from `number` on.
    pub(super) fn age(&mut self, number: u64, cell: &Arc<Cell>) {
        self.ages.insert((number, cell.id), cell.clone());
    }

    /// Notes that a series needs none any more, the oldest of which was this.
    pub(super) fn forget_age(&mut self, number: u64, id: Id) {
        self.ages.remove(&(number, id));
    }

    /// Has this saved before anything else.
    pub(super) fn set_aside(&mut self, aside: Aside) {
        Step::of_aside(aside).rev().for_each(|step| self.steps.push_front(Arc::new(step)));
    }

    /// Makes the next batch of these points.
    fn make_batch(&mut self, points: &[(Id, Point)]) -> (u64, Vec<u8>) {
        let bytes = tail::encode(points);
        let number = self.next;
        self.note_batch(number, bytes.len());
        (number, bytes)
    }

    /// Panics if what is known of the tail contradicts itself.
    pub(super) fn check_invariants(&self) {
        let numbers = || self.batches.iter().map(|(number, _)| *number);
        assert!(numbers().is_sorted_by(|one, next| one < next), "batches of the tail ascend");
        assert!(numbers().all(|number| number < self.next), "no batch is to come again");
        let bytes: usize = self.batches.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(bytes, self.bytes, "bytes of the tail");
        let needed = |(number, _): &(u64, Id)| *number < self.next;
        assert!(self.ages.keys().all(needed), "what series need of the tail was made");
    }

    /// Notes that a batch is there.
    pub(super) fn note_batch(&mut self, number: u64, bytes: usize) {
        self.next = self.next.max(number + 1);
        self.batches.push_back((number, bytes));
        self.bytes += bytes;
    }
}

/// What a flush seals although its leaf is not full and nothing has to become less.
#[derive(Clone, Copy)]
pub(super) enum Sealed<'a> {
    Nothing,
    /// This series, if it has points of a span.
    Series(&'a Arc<Cell>, Span),
    /// The next ones that have been at rest for so long.
    Resting(Duration),
}

/// Saves all that was appended before.
pub(super) async fn flush(shared: &Arc<Shared>) -> Result<()> {
    let turn = shared.take_turn().await?;
    turn.done(flush_now(shared, Sealed::Nothing).await)
}

/// Refuses what only whoever owns the series may do. Who posts has no fence in its commits: it
/// would take points out of the owner's inbox, and write over its tail.
pub(super) fn only_an_owner(shared: &Shared) -> Result<()> {
    if shared.is_poster() { Err(Error::NotOwner) } else { Ok(()) }
}

/// Goes on with the round among series at rest if one is due; until somebody has something to be
/// saved, or until its end.
pub(super) async fn go_the_round(shared: &Arc<Shared>) -> Result<()> {
    let Some(after) = shared.settings.seal_after else { return Ok(()) };
    let env = shared.database.endpoint().env();
    while lock(&shared.flusher).rounds.is_due(env.now()) {
        seal_resting(shared, after).await?;
        if shared.pending.since().is_some() {
            break;
        }
        env.yield_now().await;
    }
    Ok(())
}

/// Saves all that was appended before, and seals the next series that have been at rest for so
/// long.
async fn seal_resting(shared: &Arc<Shared>, after: Duration) -> Result<()> {
    only_an_owner(shared)?;
    let turn = shared.take_turn().await?;
    turn.done(flush_now(shared, Sealed::Resting(after)).await)
}

/// Takes in what transactions wrote before, and saves it.
pub(super) async fn take_in(shared: &Arc<Shared>) -> Result<()> {
    only_an_owner(shared)?;
    let turn = shared.take_turn().await?;
    turn.done(take_in_now(shared).await)
}

pub(super) async fn take_in_now(shared: &Arc<Shared>) -> Result<()> {
    shared.check()?;
    commit_steps(shared).await?;
    let Some(last) = inbox::last(&shared.database, &shared.keys).await? else { return Ok(()) };
    while let Some(taken) = inbox::take_some(shared).await? {
        let is_all = taken.reaches(&last);
        save_taken(shared, taken).await?;
        if is_all {
            break;
        }
    }
    Ok(())
}

/// Saves points that were just taken into memory, and removes the rows that they came from. Nothing
/// is awaited between these two, so they go together.
fn save_taken(
    shared: &Arc<Shared>,
    mut taken: inbox::Taken,
) -> impl Future<Output = Result<()>> + Send {
    let mut steps: Vec<Step> = Step::of_aside(std::mem::take(&mut taken.aside)).collect();
    steps.extend(prepare(shared, Sealed::Nothing));
    let records: Saving = std::mem::take(&mut taken.records).into();
    match steps.last_mut() {
        Some(step) => (step.records, step.taken) = (records, Some(taken)),
        None => steps.push(Step { records, taken: Some(taken), ..Step::default() }),
    }
    lock(&shared.flusher).steps.extend(steps.into_iter().map(Arc::new));
    commit_steps(shared)
}

/// Takes in what was set aside of a series that was damaged and can be read again.
pub(super) async fn take_back(shared: &Arc<Shared>, whose: &Whose) -> Result<()> {
    let turn = shared.take_turn().await?;
    turn.done(take_back_now(shared, whose).await)
}

async fn take_back_now(shared: &Arc<Shared>, whose: &Whose) -> Result<()> {
    commit_steps(shared).await?;
    let Some(last) = back::last(shared, whose).await? else {
        return back::end(shared, whose).await;
    };
    while let Some(taken) = back::take_some(shared, whose).await? {
        let is_all = taken.reaches(&last);
        save_taken(shared, taken).await?;
        if is_all {
            break;
        }
    }
    match shared.index.damage.of(whose) {
        Some(_) => Ok(()),
        None => back::end(shared, whose).await,
    }
}

/// Seals a series if points of `span` are in its open leaf, and does `then` before anybody else may
/// save anything. So what there is of the span by then lies in the tree and among the late points.
pub(super) async fn sealed<T>(
    shared: &Arc<Shared>,
    (id, name): (Id, &Name),
    span: Span,
    then: impl AsyncFnOnce() -> Result<T>,
) -> Result<T> {
    only_an_owner(shared)?;
    let turn = shared.take_turn().await?;
    let all = async {
        take_in_now(shared).await?;
        let cell = shared.in_memory(id, name);
        let sealed = cell.as_ref().map_or(Sealed::Nothing, |cell| Sealed::Series(cell, span));
        flush_now(shared, sealed).await?;
        then().await
    };
    turn.done(all.await)
}

/// Saves everything; for whoever has the turn.
pub(super) async fn flush_now(shared: &Arc<Shared>, sealed: Sealed<'_>) -> Result<()> {
    shared.check()?;
    commit_steps(shared).await?;
    let steps = if shared.is_poster() { prepare_mail(shared) } else { prepare(shared, sealed) };
    lock(&shared.flusher).steps.extend(steps.into_iter().map(Arc::new));
    commit_steps(shared).await
}

async fn commit_steps(shared: &Arc<Shared>) -> Result<()> {
    loop {
        let step = {
            let mut flusher = lock(&shared.flusher);
            let Some(step) = flusher.steps.front().cloned() else {
                let since = flusher.since.take();
                shared.note_saved(since);
                return Ok(());
            };
            step
        };
        if step.comes_back() && step.records.has_damaged() {
            // The page stays aside, before what comes behind it: to take it in once more, when the
            // series can be read again, ends the same.
            step.records.forget_damaged();
            step.stays_aside.store(true, Ordering::Relaxed);
        }
        let aside = step.records.take_damaged(shared);
        if !aside.is_empty() {
            lock(&shared.flusher).set_aside(aside);
            continue;
        }
        let saved = async {
            save_long(shared, &step).await?;
            step.records.save(shared).await?;
            commit(shared, &step).await
        };
        match saved.await {
            Ok(trunks) => {
                settle(shared, &step, trunks);
                lock(&shared.flusher).steps.pop_front();
            }
            // The others of the step go on without it.
            Err(Fault { why: why @ Error::Damaged { .. }, of: Some(cell) }) => {
                let aside = aside::of_memory(shared, &cell, &why);
                lock(&shared.flusher).set_aside(aside);
            }
            Err(Fault { why, .. }) => return Err(why),
        }
    }
}

/// Whether a series has more late points than go with others' into one transaction.
fn is_long(points: &[Point]) -> bool {
    points.len() > LATE_TOGETHER
}

/// Saves the late points of series that have many of them ahead of the step that they belong to, in
/// as many transactions as it takes: whoever sent them is told of it after the step. Saving them
/// again changes nothing.
async fn save_long(shared: &Shared, step: &Step) -> Result<(), Fault> {
    for (cell, points) in step.late().filter(|(_, points)| is_long(points)) {
        let points = side::by_time(points);
        let mut next = points.first_key_value().map(|(time, _)| *time);
        while let Some(from) = next {
            let tr = shared.database.create_transaction();
            next = loop {
                let saved = async {
                    shared.check_owner(&tr).await?;
                    let rows = (&tr, &shared.keys, cell.id);
                    let next = by_time::merge(&LatePoints, rows, &points, from, STEP_POINTS);
                    let next = next.await.map_err(Fault::of(cell))?;
                    let saved = points.range(from..).map(|(time, _)| *time);
                    let saved = saved.take_while(|time| next.is_none_or(|next| *time < next));
                    rolls::note_late(&tr, shared, cell, saved);
                    tr.commit().await?;
                    Ok::<_, Fault>(next)
                };
                match saved.await {
                    Ok(next) => break next,
                    Err(fault) => fault.again(&tr).await?,
                }
            };
        }
    }
    Ok(())
}

async fn commit(shared: &Shared, step: &Step) -> Result<Vec<Trunk>, Fault> {
    let tr = shared.database.create_transaction();
    loop {
        match try_commit(shared, &tr, step).await {
            Err(fault) => fault.again(&tr).await?,
            result => return result,
        }
    }
}

async fn try_commit(shared: &Shared, tr: &Transaction, step: &Step) -> Result<Vec<Trunk>, Fault> {
    if !step.posted.is_empty() {
        post::try_commit(shared, tr, &step.posted).await?;
        return Ok(Vec::new());
    }
    shared.check_owner(tr).await?;
    let may_be_there = step.tried.swap(true, Ordering::Relaxed);
    let keys = &shared.keys;
    step.aside.write(tr, keys).await?;
    for (number, bytes) in &step.batches {
        tr.set(keys.tail(*number), bytes);
    }
    let trunks = write_leaves(tr, keys, step, may_be_there).await?;
    for (cell, points) in step.late().filter(|(_, points)| !is_long(points)) {
        let points = side::by_time(points);
        let rows = (tr, keys, cell.id);
        let merged = by_time::merge(&LatePoints, rows, &points, i64::MIN, usize::MAX).await;
        merged.map_err(Fault::of(cell))?;
        rolls::note_late(tr, shared, cell, points.keys().copied());
    }
    if let Some(cut) = step.cut {
        tr.clear_range(keys.tail(0), keys.tail(cut));
    }
    if let Some(taken) = &step.taken
        && !step.stays_aside.load(Ordering::Relaxed)
    {
        taken.remove(tr, keys).await?;
    }
    tr.commit().await?;
    Ok(trunks)
}

/// Writes the leaves of a step, unless they are there already. Gives the trunks of their series.
async fn write_leaves(
    tr: &Transaction,
    keys: &Keys,
    step: &Step,
    may_be_there: bool,
) -> Result<Vec<Trunk>, Fault> {
    let of = |cell: &Cell| Through { tr, keys, id: cell.id };
    let is_asked = |cell: &Cell| may_be_there || !lock(&cell.state).is_end_known;
    // Asked all at once: where the database is elsewhere, one after the other takes longer than a
    // transaction may.
    let asked = step.leaves().filter(|(cell, _)| is_asked(cell));
    let asked = asked.map(|(cell, _)| (cell.id, of(cell).behind(&lock(&cell.state).trunk)));
    let mut there = BTreeMap::new();
    for (id, leaf) in asked.collect::<Vec<_>>() {
        if let Some(leaf) = leaf.await? {
            there.insert(id, leaf);
        }
    }
    let mut trunks = Vec::with_capacity(step.leaves.len());
    for (cell, leaves) in step.leaves() {
        let mut trunk = lock(&cell.state).trunk;
        match (there.get(&cell.id), leaves.first()) {
            (None, _) => {
                for leaf in leaves {
                    let writes = trunk.append(&of(cell), leaf).await.map_err(Fault::of(cell))?;
                    of(cell).write(&writes);
                }
            }
            // The step was committed already, and its answer was lost.
            (Some(there), Some(first)) if may_be_there && *there == codec::encode(first) => {
                leaves.iter().for_each(|leaf| trunk.pass(leaf));
            }
            (Some(_), _) => return Err(Fault::of(cell)(nodes::without_twig(&trunk))),
        }
        trunks.push(trunk);
    }
    Ok(trunks)
}

/// Takes out of memory what a step has saved.
fn settle(shared: &Shared, step: &Step, trunks: Vec<Trunk>) {
    for ((cell, leaves), trunk) in step.leaves().zip(trunks) {
        let mut state = lock(&cell.state);
        (state.trunk, state.is_end_known) = (trunk, true);
        state.sealing.retain(|leaf| !leaves.iter().any(|saved| Arc::ptr_eq(saved, leaf)));
        let points = leaves.iter().map(|leaf| leaf.len()).sum();
        shared.open_points.fetch_sub(points, Ordering::Relaxed);
        shared.rolls.note((cell.id, &cell.name), leaves.len(), None);
    }
    for (cell, points) in step.late() {
        let now = shared.database.endpoint().env().now();
        shared.rolls.note((cell.id, &cell.name), 0, Some(now));
        let mut state = lock(&cell.state);
        // A series that was taken twice has others behind them, which come with a later step.
        let saved = points.len().min(state.merging.len());
        state.merging.drain(..saved);
        if state.merging.is_empty() {
            state.merging = Vec::new();
        }
    }
}

/// What is gathered for the steps of a flush.
#[derive(Default)]
struct Gathered {
    /// Series whose points the tail needs anew, and these points: of one that had a full leaf,
    /// those behind it. What came is among them, or in the leaf.
    anew: BTreeSet<Id>,
    behind: Vec<(Id, Point)>,
    batches: Vec<(u64, Vec<u8>)>,
    /// By series, since those of one go on from each other.
    leaves: BTreeMap<Id, (Arc<Cell>, Vec<Arc<Points>>)>,
    late: Vec<(Arc<Cell>, Vec<Point>)>,
    sealed_points: usize,
    /// How many may be sealed although their leaves are not full, unless it has to be.
    pace: usize,
}

impl Gathered {
    /// Whether `held`, of which there should be `most`, has to become less in this flush.
    fn has_to_seal(&self, held: usize, most: usize) -> bool {
        held > most && (self.sealed_points < self.pace || held - most > most / 2)
    }

    /// Takes what a series has to be saved beside the points that go to the tail; all of it as
    /// leaves if `whole`, else full leaves only. `number` is that of the flush's first batch.
    fn take(
        &mut self,
        shared: &Shared,
        flusher: &mut Flusher,
        cell: &Arc<Cell>,
        number: u64,
        whole: bool,
    ) {
        let mut state = lock(&cell.state);
        let state = &mut *state;
        state.is_noted = false;
        if !state.late.is_empty() {
            let late = std::mem::take(&mut state.late);
            state.merging.extend_from_slice(&late);
            self.late.push((cell.clone(), late));
        }
        let size = shared.settings.leaf_points;
        if state.open.len() >= size || (whole && !state.open.is_empty()) {
            self.seal(flusher, cell, state, size, whole);
            if !whole {
                self.anew.insert(cell.id);
                self.behind.extend(state.open.iter().map(|point| (cell.id, point)));
            }
        }
        if state.since.is_none() && !state.open.is_empty() {
            state.since = Some(number);
            flusher.age(number, cell);
        }
    }

    /// Has the oldest points of the tail written anew, so that what is there for nothing between
    /// them can go. They stay in their open leaves.
    fn renew(&mut self, shared: &Shared, flusher: &mut Flusher, number: u64) {
        let open = shared.open_points.load(Ordering::Relaxed);
        let enough = self.behind.len() + rest::TOGETHER;
        while rest::is_tail_too_long(shared, flusher.bytes, open) && self.behind.len() < enough {
            let Some(entry) = flusher.ages.first_entry().filter(|entry| entry.key().0 < number)
            else {
                break;
            };
            let cell = entry.remove();
            let mut state = lock(&cell.state);
            state.since = Some(number);
            self.anew.insert(cell.id);
            self.behind.extend(state.open.iter().map(|point| (cell.id, point)));
            drop(state);
            flusher.age(number, &cell);
        }
    }

    /// Makes batches of the points for the tail, of which `points` are those that came.
    fn tail(&mut self, flusher: &mut Flusher, points: &mut Vec<(Id, Point)>) {
        if !self.anew.is_empty() {
            let mut last = None;
            points.retain(|(id, _)| match last {
                Some((of, is_kept)) if of == *id => is_kept,
                _ => {
                    let is_kept = !self.anew.contains(id);
                    last = Some((*id, is_kept));
                    is_kept
                }
            });
            points.append(&mut self.behind);
        }
        self.batches
            .extend(points.chunks(tail::BATCH_POINTS).map(|points| flusher.make_batch(points)));
    }

    /// Moves leaves of `size` points, and what is left if `whole`, from the open leaf to those that
    /// are being written.
    fn seal(
        &mut self,
        flusher: &mut Flusher,
        cell: &Arc<Cell>,
        state: &mut State,
        size: usize,
        whole: bool,
    ) {
        let mut leaves = Vec::new();
        while state.open.len() >= size || (whole && !state.open.is_empty()) {
            let rest = state.open.split_off(size.min(state.open.len()));
            let leaf = std::mem::replace(&mut state.open, rest);
            state.sealed = leaf.times.last().copied();
            self.sealed_points += leaf.len();
            leaves.extend(that_fit(leaf).into_iter().map(Arc::new));
        }
        state.seen = Seen::default();
        if let Some(since) = state.since.take() {
            flusher.ages.remove(&(since, cell.id));
        }
        state.sealing.extend(leaves.iter().cloned());
        self.leaves.entry(cell.id).or_insert_with(|| (cell.clone(), Vec::new())).1.extend(leaves);
    }

    /// The steps that save it.
    fn into_steps(self, cut: Option<u64>) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut step = Step::default();
        let mut points = 0;
        let mut add = |more: usize, steps: &mut Vec<Step>, step: &mut Step| {
            points += more;
            if points > STEP_POINTS {
                points = more;
                steps.push(std::mem::take(step));
            }
        };
        for batch in self.batches {
            add(tail::BATCH_POINTS, &mut steps, &mut step);
            step.batches.push(batch);
        }
        for (cell, leaves) in self.leaves.into_values() {
            add(leaves.iter().map(|leaf| leaf.len()).sum(), &mut steps, &mut step);
            step.leaves.push((cell, leaves));
        }
        for (cell, late) in self.late {
            let here = if is_long(&late) { 0 } else { late.len() };
            add(here * LatePoints::VISIT, &mut steps, &mut step);
            step.late.push((cell, late));
        }
        step.cut = cut;
        let empty = step.batches.is_empty()
            && step.leaves.is_empty()
            && step.late.is_empty()
            && cut.is_none();
        if !empty {
            steps.push(step);
        }
        steps
    }
}

/// A leaf as one or several that fit a value: points that don't compress may not.
fn that_fit(mut leaf: Points) -> Vec<Points> {
    // So many do, as they do in a batch.
    if leaf.len() <= tail::BATCH_POINTS || codec::encode(&leaf).len() <= limits::VALUE_SIZE {
        return vec![leaf];
    }
    let rest = leaf.split_off(leaf.len() / 2);
    [leaf, rest].into_iter().flat_map(that_fit).collect()
}

/// The steps of a flush where points only go through.
fn prepare_mail(shared: &Shared) -> Vec<Step> {
    post::prepare(shared).into_iter().map(|posted| Step { posted, ..Step::default() }).collect()
}

/// Decides what is saved and how: the steps of a flush.
fn prepare(shared: &Shared, sealed: Sealed<'_>) -> Vec<Step> {
    let mut flusher = lock(&shared.flusher);
    let flusher = &mut *flusher;
    let mut pending = shared.pending.take(std::mem::take(&mut flusher.room));
    flusher.since = flusher.since.or(pending.since);
    let number = flusher.next;
    let mut gathered = Gathered::default();
    for (place, cell) in pending.cells.iter().enumerate() {
        prefetch_cells(place, |place| pending.cells.get(place).map(|cell| &**cell));
        gathered.take(shared, flusher, cell, number, false);
    }
    if matches!(sealed, Sealed::Resting(_)) {
        gathered.renew(shared, flusher, number);
    }
    gathered.tail(flusher, &mut pending.points);
    // Judged only now, when nothing can get into the ages any more that isn't seen here: a deleted
    // series would never leave them.
    match sealed {
        Sealed::Series(cell, span) if !span.places(&lock(&cell.state).open.times).is_empty() => {
            gathered.take(shared, flusher, cell, number, true);
        }
        Sealed::Resting(after) => {
            for cell in flusher.rounds.find(shared, &flusher.ages, after) {
                gathered.take(shared, flusher, &cell, number, true);
            }
        }
        Sealed::Series(..) | Sealed::Nothing => {}
    }
    gathered.pace = gathered.sealed_points + 2 * pending.points.len() + shared.settings.leaf_points;
    pending.clear();
    flusher.room = pending;
    let open = shared.open_points.load(Ordering::Relaxed);
    while gathered
        .has_to_seal(open.saturating_sub(gathered.sealed_points), shared.settings.open_points)
    {
        let Some(cell) = flusher.ages.first_key_value().map(|(_, cell)| cell.clone()) else {
            break;
        };
        gathered.take(shared, flusher, &cell, number, true);
    }
    let cut = cut(shared, flusher, &mut gathered, number);
    gathered.into_steps(cut)
}

/// Seals what keeps the tail above its budget, and says up to where the tail can go.
fn cut(
    shared: &Shared,
    flusher: &mut Flusher,
    gathered: &mut Gathered,
    number: u64,
) -> Option<u64> {
    let mut cut = None;
    loop {
        let oldest =
            flusher.ages.first_key_value().map(|((since, _), cell)| (*since, cell.clone()));
        let needed = oldest.as_ref().map_or(flusher.next, |(since, _)| *since);
        while let Some((batch, bytes)) =
            flusher.batches.front().copied().filter(|(batch, _)| *batch < needed)
        {
            flusher.batches.pop_front();
            flusher.bytes -= bytes;
            cut = Some(batch + 1);
        }
        match oldest {
            // What this flush brings can't be in the way of itself.
            Some((since, cell))
                if since < number
                    && gathered.has_to_seal(flusher.bytes, shared.settings.tail_bytes) =>
            {
                gathered.take(shared, flusher, &cell, number, true);
            }
            _ => return cut,
        }
    }
}
