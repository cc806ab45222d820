//! Recovery: what the tail has goes back into the open leaves of its series.
//!
//! ```text
//!   batches, as they came   a b c a b c | a b c ...     read and decoded ahead, by a task of its own
//!      a window of them     a a a  b b b  c c c         put in the order of series
//!   open leaves             a...   b...   c...          each is visited once for a window
//! ```
//!
//! The tail may have tens of millions of points, and nobody is answered before they are back. Where
//! many series take turns each of their leaves is far from the processor, and to come by it costs
//! more than to put a point there: so it is done for many points at a time, and another task does
//! so for half of the series. Points of one series keep their order, in which the last one of a
//! time counts. Those that a leaf has are told by their time, and left out.

use super::aside::Aside;
use super::damage::Mark;
use super::keys::{Id, Whose};
use super::{Cell, Role, Shared, lock, names, prefetch_cells, retry, tail};
use crate::error::{Error, Result};
use crate::value::Point;
use plinth_client::{KeyValue, RangeOptions, StreamingMode, Transaction};
use plinth_env::prefetch;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Bytes, key_after, strinc};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Batches of the tail that are read in one transaction, at most.
const BATCHES_AT_ONCE: usize = 100;

/// A window has one in so many of the points that there may be in open leaves, about: it takes up
/// to three times as much memory for each, and the next one is read meanwhile.
const WINDOW_PART: usize = 16;
/// And no more than so many.
const WINDOW_MOST: usize = 16 << 20;

/// Series of which another task loads half.
const MANY: usize = 4 * names::NAMES_AT_ONCE;

/// Numbers of series that lie together: neighbours have most of a batch's points.
const PAGE: u64 = 256;

/// The place of a series that was not found yet.
const UNKNOWN: u32 = u32::MAX;

/// Runs of a window that one task alone puts back.
const FEW_RUNS: usize = 64;

/// How many runs ahead the memory of the points of one is asked for.
const PREFETCH_RUNS: usize = 16;

/// Points of series that can't be read, which are to be set aside, and why.
type Unreadable = BTreeMap<Whose, (Error, Vec<(Id, Point)>)>;

/// Puts the tail's points back into open leaves.
pub(super) async fn recover(shared: &Arc<Shared>) -> Result<()> {
    let (mut series, mut unreadable) = (Vec::new(), Unreadable::new());
    let mut ahead = read_ahead(Ahead::new(shared), Window::default());
    let mut spare = Window::default();
    while let (reader, Some(mut window)) = ahead.await?? {
        ahead = read_ahead(reader, spare);
        series.append(&mut window.found);
        {
            let mut flusher = lock(&shared.flusher);
            window.batches.iter().for_each(|batch| flusher.note_batch(batch.number, batch.bytes));
        }
        let sorted = put_back(shared, Sorted::new(series, window), &mut unreadable).await?;
        (series, spare) = (sorted.series, sorted.window);
    }
    set_aside(shared, unreadable);
    Ok(())
}

/// Some batches that follow each other.
#[derive(Default)]
struct Window {
    points: Vec<Point>,
    /// Points of one series that stand next to each other: its place among all that were found, and
    /// how many they are.
    runs: Vec<(u32, u32)>,
    batches: Vec<Batch>,
    /// Series that no window before had points of.
    found: Vec<(Id, Slot)>,
}

/// A batch of a window.
struct Batch {
    number: u64,
    bytes: usize,
    /// The place of its first point among the window's.
    at: usize,
}

impl Window {
    /// The same without anything, with the memory.
    fn cleared(mut self) -> Self {
        self.points.clear();
        self.runs.clear();
        self.batches.clear();
        self
    }

    /// The number of the batch that has the point at this place.
    fn batch_of(&self, at: u32) -> u64 {
        let behind = self.batches.partition_point(|batch| batch.at <= at as usize);
        self.batches[behind - 1].number
    }
}

/// What is known of a series.
enum Slot {
    /// It was deleted: its points stay until the tail moves on.
    Gone,
    There(Arc<Cell>),
    /// Its rows can't be read.
    Unreadable(Whose, Error),
}

/// Who reads the tail.
struct Ahead {
    shared: Arc<Shared>,
    /// What has not been read.
    begin: Bytes,
    end: Bytes,
    places: Places,
}

/// Has the next window read by a task of its own, with the memory of one that was.
fn read_ahead(mut reader: Ahead, spare: Window) -> Reply<Result<(Ahead, Option<Window>)>> {
    let (promise, reply) = promise();
    let env = reader.shared.database.endpoint().env().clone();
    let task = env.spawn("plinth-series-tail", async move {
        let window = reader.next(spare.cleared()).await;
        promise.send(Ok(window.map(|window| (reader, window))));
    });
    drop(task);
    reply
}

impl Ahead {
    fn new(shared: &Arc<Shared>) -> Self {
        let begin = Bytes::from(shared.keys.tails());
        let end = strinc(&begin).unwrap_or_else(|| Bytes::from_static(b"\xff"));
        Self { shared: shared.clone(), begin, end, places: Places::default() }
    }

    /// The next window; `None` if there are no more batches.
    async fn next(&mut self, mut window: Window) -> Result<Option<Window>> {
        let enough = (self.shared.settings.open_points / WINDOW_PART).min(WINDOW_MOST);
        // Where there are many parts, each has little room.
        let at_once = (enough / tail::BATCH_POINTS).clamp(1, BATCHES_AT_ONCE);
        while window.points.len() <= enough {
            let rows = self.rows(at_once).await?;
            let Some(last) = rows.last() else { break };
            self.begin = key_after(&last.key);
            let mut unknown = Vec::new();
            for row in &rows {
                let number = self.shared.keys.number_of_tail(&row.key)?;
                let at = window.points.len();
                window.batches.push(Batch { number, bytes: row.value.len(), at });
                for (id, length) in tail::decode_into(&row.value, &mut window.points)? {
                    let place = self.places.find(id, || unknown.push(id));
                    window.runs.push((place, length as u32));
                }
            }
            window.found.extend(self.load(unknown).await?);
        }
        Ok((!window.batches.is_empty()).then_some(window))
    }

    /// What there is of some series; where they are many, another task has half of the work.
    async fn load(&self, mut ids: Vec<Id>) -> Result<Vec<(Id, Slot)>> {
        let rest = if ids.len() > MANY { ids.split_off(ids.len() / 2) } else { Vec::new() };
        if rest.is_empty() {
            return load(&self.shared, ids).await;
        }
        let (promise, reply) = promise();
        let shared = self.shared.clone();
        let env = shared.database.endpoint().env().clone();
        let task = env.spawn("plinth-series-names", async move {
            promise.send(Ok(load(&shared, rest).await));
        });
        drop(task);
        let mut all = load(&self.shared, ids).await?;
        all.extend(reply.await??);
        Ok(all)
    }

    /// The next batches. They may be read at several versions: for an owner nobody else writes any
    /// more, and for a view, what goes meanwhile is in the trees.
    async fn rows(&self, limit: usize) -> Result<Vec<KeyValue>> {
        let range = RangeOptions::from(self.begin.clone()..self.end.clone());
        let range = &range.limit(limit).mode(StreamingMode::WantAll);
        let rows =
            |tr: Transaction| async move { tr.snapshot().range(range.clone()).collect().await };
        retry::transact(&self.shared.database, rows).await
    }
}

async fn load(shared: &Arc<Shared>, ids: Vec<Id>) -> Result<Vec<(Id, Slot)>> {
    let loaded = names::load(shared, &ids).await?;
    let slot = |loaded| match loaded {
        Ok(Some(cell)) => Slot::There(cell),
        Ok(None) => Slot::Gone,
        Err((whose, why)) => Slot::Unreadable(whose, why),
    };
    Ok(ids.into_iter().zip(loaded.into_iter().map(slot)).collect())
}

/// The places of series among all that were found, by their numbers.
#[derive(Default)]
struct Places {
    /// Of [`PAGE`] numbers that follow each other; no place is [`UNKNOWN`].
    pages: Vec<Vec<u32>>,
    by_number: BTreeMap<u64, usize>,
    /// The page that was looked at last.
    last: Option<(u64, usize)>,
    found: u32,
}

impl Places {
    /// The place of a series; says so, if it had none before.
    fn find(&mut self, id: Id, is_new: impl FnOnce()) -> u32 {
        let (number, page) = match self.last {
            Some(last) if last.0 == id / PAGE => last,
            _ => {
                let number = id / PAGE;
                let page = self.by_number.entry(number).or_insert_with(|| {
                    self.pages.push(vec![UNKNOWN; PAGE as usize]);
                    self.pages.len() - 1
                });
                (number, *page)
            }
        };
        self.last = Some((number, page));
        let place = &mut self.pages[page][(id % PAGE) as usize];
        if *place == UNKNOWN {
            *place = self.found;
            self.found += 1;
            is_new();
        }
        *place
    }
}

/// A window in the order of series.
struct Sorted {
    /// All that were found so far.
    series: Vec<(Id, Slot)>,
    window: Window,
    /// Where each run begins and how many points it has; those of one series as they were.
    runs: Vec<(u32, u32)>,
    /// How many runs lie before those of each series.
    before: Vec<u32>,
    /// The series that have any.
    present: Vec<usize>,
}

impl Sorted {
    fn new(series: Vec<(Id, Slot)>, window: Window) -> Self {
        let mut before = vec![0_u32; series.len() + 1];
        for (of, _) in &window.runs {
            before[*of as usize + 1] += 1;
        }
        for at in 0..series.len() {
            before[at + 1] += before[at];
        }
        let (mut runs, mut next) = (vec![(0, 0); window.runs.len()], before.clone());
        let mut at = 0;
        for (of, length) in &window.runs {
            let place = &mut next[*of as usize];
            runs[*place as usize] = (at, *length);
            *place += 1;
            at += length;
        }
        let has_any = |at: &usize| before[*at] < before[*at + 1];
        let present = (0..series.len()).filter(has_any).collect();
        Self { series, window, runs, before, present }
    }

    /// The place among the series that have any before which lies about half of the window; behind
    /// all of them if it is small.
    fn middle(&self) -> usize {
        if self.runs.len() < FEW_RUNS {
            return self.present.len();
        }
        let half = self.runs.len() / 2;
        self.present.partition_point(|of| (self.before[*of] as usize) < half)
    }

    /// Puts the points of some of the series that have any back; gives those of series that can't
    /// be read.
    fn put_back(&self, shared: &Shared, some: Range<usize>) -> Unreadable {
        let cell = |place: usize| match self.series.get(*self.present.get(place)?) {
            Some((_, Slot::There(cell))) => Some(&**cell),
            _ => None,
        };
        let (mut points, mut grown, mut unreadable) = (Vec::new(), 0, Unreadable::new());
        for place in some {
            prefetch_cells(place, cell);
            points.clear();
            let of = self.present[place];
            let of_one = self.before[of] as usize..self.before[of + 1] as usize;
            let number = self.window.batch_of(self.runs[of_one.start].0);
            for at in of_one {
                if let Some((ahead, _)) = self.runs.get(at + PREFETCH_RUNS) {
                    prefetch(self.window.points[*ahead as usize..].as_ptr().cast());
                }
                let (from, length) = self.runs[at];
                points.extend_from_slice(&self.window.points[from as usize..][..length as usize]);
            }
            match &self.series[of] {
                (_, Slot::There(cell)) => grown += put_back_one(shared, cell, number, &points),
                // Those are aside already.
                (_, Slot::Unreadable(whose, why))
                    if shared.index.damage.mark(whose).0 == Mark::Aside =>
                {
                    shared.note_damage(whose, why, Mark::Aside);
                }
                (id, Slot::Unreadable(whose, why)) => {
                    let entry = unreadable.entry(whose.clone());
                    let (_, all) = entry.or_insert_with(|| (why.clone(), Vec::new()));
                    all.extend(points.iter().map(|point| (*id, *point)));
                }
                (_, Slot::Gone) => {}
            }
        }
        shared.open_points.fetch_add(grown, Ordering::Relaxed);
        unreadable
    }
}

/// Puts a window's points back; those of series that can't be read to such. Another task does so
/// for half of the series, if the window is large.
async fn put_back(
    shared: &Arc<Shared>,
    sorted: Sorted,
    unreadable: &mut Unreadable,
) -> Result<Sorted> {
    let (middle, all) = (sorted.middle(), sorted.present.len());
    if middle == all {
        add(unreadable, sorted.put_back(shared, 0..all));
        return Ok(sorted);
    }
    let sorted = Arc::new(sorted);
    let (promise, reply) = promise();
    let (theirs, their_shared) = (sorted.clone(), shared.clone());
    let task = shared.database.endpoint().env().spawn("plinth-series-half", async move {
        let unreadable = theirs.put_back(&their_shared, middle..all);
        drop(theirs);
        promise.send(Ok(unreadable));
    });
    drop(task);
    add(unreadable, sorted.put_back(shared, 0..middle));
    add(unreadable, reply.await?);
    let gone = || Error::damaged("the tail", "a window of it is in use still");
    Arc::into_inner(sorted).ok_or_else(gone)
}

/// Adds points of series that can't be read.
fn add(unreadable: &mut Unreadable, more: Unreadable) {
    for (whose, (why, mut points)) in more {
        let (_, all) = unreadable.entry(whose).or_insert_with(|| (why, Vec::new()));
        all.append(&mut points);
    }
}

/// Puts points of one series back, but those that a leaf has; `number` is the batch of the first.
/// How many more there are then.
fn put_back_one(shared: &Shared, cell: &Arc<Cell>, number: u64, points: &[Point]) -> usize {
    let mut state = lock(&cell.state);
    let before = state.open.len();
    if !state.take_later(points) {
        let sealed = state.sealed;
        for point in points.iter().filter(|point| sealed.is_none_or(|last| last < point.time)) {
            state.open.insert(*point);
        }
    }
    if state.since.is_none() && !state.open.is_empty() {
        state.since = Some(number);
        lock(&shared.flusher).age(number, cell);
    }
    state.open.len() - before
}

/// Has the tail's points of series that can't be read set aside before the tail may lose them; a
/// store that only reads is without them.
fn set_aside(shared: &Shared, unreadable: Unreadable) {
    let mut aside = Aside::default();
    for (whose, (why, points)) in unreadable {
        match shared.role {
            Role::Owner { .. } => aside.add_batches(shared, &whose, &why, &points),
            Role::Reader | Role::Poster(_) => shared.note_damage(&whose, &why, Mark::None),
        }
    }
    lock(&shared.flusher).set_aside(aside);
}
