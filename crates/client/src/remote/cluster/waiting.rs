//! What waits for an answer, so that the steward can look after it.
//!
//! Most of it is answered within a millisecond by the thread that asked. So each thread has a table
//! of its own, and what is answered leaves it there and then: nothing is left to be freed by the
//! steward's thread, and nobody waits for another one's lock.

use super::Cluster;
use plinth_types::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the steward sees of an operation.
pub(super) trait Pending: Send + Sync {
    /// Whether nobody waits any more.
    fn is_done(&self) -> bool;

    /// Looks whether another server is to be asked, and asks it.
    fn look(self: Arc<Self>, cluster: &Arc<Cluster>);

    /// Whether it is to be found out who leads and who is there: nobody is to be asked, or the
    /// leader is silent.
    fn wants_leader(&self, cluster: &Cluster) -> bool;

    /// Whether the leader is to answer, and nobody was asked who might.
    fn has_nobody(&self) -> bool;

    /// Ends it with an error.
    fn fail(&self, error: &Error);
}

/// Where something waits. Its place may be another one's by now: that has another number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    table: usize,
    slot: usize,
    number: u64,
}

/// What stands in a slot, with its number.
type Slot = Option<(u64, Arc<dyn Pending>)>;

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<usize>,
    number: u64,
}

/// Everything that waits.
pub(super) struct Waiting {
    tables: Vec<Mutex<Table>>,
    /// Whether the steward looks at it now and then; otherwise it sleeps, and is woken.
    is_watched: AtomicBool,
}

impl Waiting {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        let tables = (0..threads.max(1)).map(|_| Mutex::default()).collect();
        Self { tables, is_watched: AtomicBool::new(false) }
    }

    fn table(&self, at: usize) -> MutexGuard<'_, Table> {
        self.tables[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something waits that this thread has asked for. Says where, and whether the steward sleeps.
    pub fn insert(&self, thread: usize, op: Arc<dyn Pending>) -> (Place, bool) {
        let at = thread % self.tables.len();
        let place = {
            let mut table = self.table(at);
            table.number += 1;
            let number = table.number;
            let slot = table.free.pop().unwrap_or_else(|| {
                table.slots.push(None);
                table.slots.len() - 1
            });
            table.slots[slot] = Some((number, op));
            Place { table: at, slot, number }
        };
        (place, self.is_to_be_watched())
    }

    /// Something waits, here or at a link. Says whether the steward sleeps.
    #[inline]
    pub fn is_to_be_watched(&self) -> bool {
        // Read first: it is everybody's, and seldom written.
        let is_watched = self.is_watched.load(Ordering::SeqCst);
        !is_watched && !self.is_watched.swap(true, Ordering::SeqCst)
    }

    /// Whether something has waited since the steward slept.
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::SeqCst)
    }

    /// It waits no longer. May be said twice.
    pub fn remove(&self, place: Place) {
        let removed = {
            let mut table = self.table(place.table);
            let is_it = |entry: &(u64, _)| entry.0 == place.number;
            if !table.slots[place.slot].as_ref().is_some_and(is_it) {
                return;
            }
            table.free.push(place.slot);
            table.slots[place.slot].take()
        };
        drop(removed);
    }

    /// What waits now. What nobody waits for any more is removed.
    pub fn look(&self) -> Vec<Arc<dyn Pending>> {
        let mut waiting = Vec::new();
        for at in 0..self.tables.len() {
            let entries: Vec<_> = {
                let table = self.table(at);
                let entry = |(slot, entry): (usize, &Slot)| {
                    let (number, op) = entry.as_ref()?;
                    Some((Place { table: at, slot, number: *number }, op.clone()))
                };
                table.slots.iter().enumerate().filter_map(entry).collect()
            };
            for (place, op) in entries {
                if op.is_done() {
                    self.remove(place);
                } else {
                    waiting.push(op);
                }
            }
        }
        waiting
    }

    /// Whether the steward may sleep: nothing waits, neither here nor, as `elsewhere` says, at a
    /// link, and the next to do so wakes it.
    pub fn may_rest(&self, elsewhere: impl FnOnce() -> bool) -> bool {
        self.is_watched.store(false, Ordering::SeqCst);
        if !self.any(|_| true) && !elsewhere() {
            return true;
        }
        self.is_watched.store(true, Ordering::SeqCst);
        false
    }

    /// Whether `is` holds for anything that waits.
    pub fn any(&self, is: impl Fn(&Arc<dyn Pending>) -> bool) -> bool {
        let holds = |at| self.table(at).slots.iter().flatten().any(|(_, op)| is(op));
        (0..self.tables.len()).any(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Op(AtomicBool);

    impl Pending for Op {
        fn is_done(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn look(self: Arc<Self>, _: &Arc<Cluster>) {}

        fn wants_leader(&self, _: &Cluster) -> bool {
            false
        }

        fn has_nobody(&self) -> bool {
            false
        }

        fn fail(&self, _: &Error) {}
    }

    #[test]
    fn what_waits_is_seen_until_it_is_done_and_whoever_comes_first_wakes_the_steward() {
        let waiting = Waiting::new(2);
        let op = || Arc::new(Op(AtomicBool::new(false)));
        let ops: Vec<_> = (0..5).map(|_| op()).collect();
        let places: Vec<_> = ops
            .iter()
            .enumerate()
            .map(|(thread, op)| {
                let (place, wakes) = waiting.insert(thread, op.clone());
                assert_eq!(wakes, thread == 0);
                place
            })
            .collect();
        waiting.remove(places[1]);
        ops[2].0.store(true, Ordering::Relaxed);
        assert_eq!(waiting.look().len(), 3);
        assert!(!waiting.may_rest(|| false));
        // A place that another one has by now isn't emptied.
        let (place, wakes) = waiting.insert(1, op());
        assert!(!wakes && place.slot == places[1].slot);
        waiting.remove(places[1]);
        assert_eq!(waiting.look().len(), 4);
        [places[0], places[3], places[4], place].iter().for_each(|it| waiting.remove(*it));
        assert!(waiting.look().is_empty() && !waiting.may_rest(|| true));
        assert!(!waiting.is_to_be_watched() && waiting.may_rest(|| false));
        assert!(waiting.insert(0, op()).1, "it sleeps");
    }
}
