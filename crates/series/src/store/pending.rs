//! What waits for the next flush: the points that came into open leaves, of all series in the order
//! in which they came, and the series that it has to look at.
//!
//! Most points go to the tail and nowhere else, so a flush takes them from here, one behind the
//! other, and leaves their series alone: where a million series take turns, to come by one costs
//! more than to write its point. It looks at a series only if that needs more of it: the first
//! point of an open leaf, from which on the tail is needed; a leaf that is full; late points.

use super::keys::Id;
use super::{Cell, lock};
use crate::value::Point;
use plinth_env::sync::Signal;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Points, and series, for which memory is kept from one flush to the next: a million series bring
/// so many at a time. 80 MiB, and only where so many came.
const ROOM: usize = 2 << 20;

/// What waits.
#[derive(Default)]
pub(super) struct Pending {
    list: Mutex<List>,
    /// How many points came, late ones included.
    points: AtomicUsize,
    /// The longest that a point was not durable, in nanoseconds.
    pub(super) longest_unsaved: AtomicU64,
    /// Knocked at when something is pending, and at the end.
    pub(super) work: Arc<Signal>,
    /// Nothing may be added by whoever appends: the part is being handed over, or was.
    pub(super) is_closed: AtomicBool,
    /// Nothing was, and all that had been before is committed.
    pub(super) is_settled: AtomicBool,
}

/// What a flush takes.
#[derive(Default)]
pub(super) struct List {
    /// Those of one series in the order in which they came.
    pub(super) points: Vec<(Id, Point)>,
    /// The series to look at.
    pub(super) cells: Vec<Arc<Cell>>,
    /// When the first of all that came, in nanoseconds of the environment's clock.
    pub(super) since: Option<u64>,
}

impl Pending {
    /// Adds points of a series, which whoever does so has locked, counts late ones, which the
    /// series keeps, and adds the series if it is given. Knocks if nothing waited before.
    pub(super) fn add(
        &self,
        (id, points): (Id, &[Point]),
        late: usize,
        cell: Option<&Arc<Cell>>,
        now: impl FnOnce() -> u64,
    ) {
        let mut list = lock(&self.list);
        let is_first = list.since.is_none();
        if is_first {
            list.since = Some(now());
        }
        list.points.extend(points.iter().map(|point| (id, *point)));
        list.cells.extend(cell.cloned());
        self.points.fetch_add(points.len() + late, Ordering::Relaxed);
        drop(list);
        if is_first {
            self.work.notify();
        }
    }

    /// When the first of all that wait came.
    pub(super) fn since(&self) -> Option<u64> {
        lock(&self.list).since
    }

    /// How many points wait.
    pub(super) fn points(&self) -> usize {
        self.points.load(Ordering::Relaxed)
    }

    /// Takes all that waits, and leaves `room` for what comes.
    pub(super) fn take(&self, room: List) -> List {
        let mut list = lock(&self.list);
        self.points.store(0, Ordering::Relaxed);
        std::mem::replace(&mut *list, room)
    }
}

impl List {
    /// Forgets what it has, and keeps some of its memory: such that is new each time costs more
    /// than what is written into it.
    pub(super) fn clear(&mut self) {
        self.since = None;
        self.points.clear();
        self.cells.clear();
        self.points.shrink_to(ROOM);
        self.cells.shrink_to(ROOM);
    }
}
