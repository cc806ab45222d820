//! The lane of those who move much: connections that have more to do than fits into a turn, one
//! after the other.
//!
//! A thread of the network gives each of its connections a turn. If a hundred of them ask for
//! megabytes, each may have half a millisecond of work in every turn, and somebody who wants one
//! row waits for all of them. So a connection that has moved its fill in a turn comes here, and
//! only as many as there are threads are let back in at a time:
//!
//! ```text
//!   a thread's queue     c c c c c | sockets | [B]    whoever has little to do, and what sockets bring: then one of
//!                                               │     those who have much
//!   lane                                        └──▶ B2 B3 B4 ...   when B has its turn the next one is called
//! ```
//! Whoever is called lets the others on its thread go first once more, sockets included: somebody
//! whose request has arrived meanwhile waits for one of those here, and not for all.
//!
//! Always: as long as somebody waits here, one is on its way; who is gone passes its turn on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many more may be on their way.
    free: usize,
    /// Whose turn it is, until they have heard of it.
    called: BTreeSet<u64>,
    waiting: VecDeque<(u64, Waker)>,
}

impl State {
    /// One has had its turn: the next one, if there is one.
    fn pass_on(&mut self) -> Option<Waker> {
        let Some((number, waker)) = self.waiting.pop_front() else {
            self.free += 1;
            return None;
        };
        self.called.insert(number);
        Some(waker)
    }
}

impl Lane {
    /// One for so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        let state =
            State { free: threads.max(1), called: BTreeSet::new(), waiting: VecDeque::new() };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a connection, which does not wait here yet, woken when it is its turn.
    pub(crate) fn enter(&self, number: u64, waker: &Waker) {
        let mut state = self.lock();
        if state.free == 0 {
            state.waiting.push_back((number, waker.clone()));
            return;
        }
        state.free -= 1;
        state.called.insert(number);
        drop(state);
        waker.wake_by_ref();
    }

    /// Whether it is the turn of a connection that waits here. Then it waits no more, and has to
    /// say [`done`](Self::done) when it begins.
    pub(crate) fn is_called(&self, number: u64) -> bool {
        self.lock().called.remove(&number)
    }

    /// Whoever was called has begun, or has gone: the next one.
    pub(crate) fn done(&self) {
        let next = self.lock().pass_on();
        next.inspect(Waker::wake_by_ref);
    }

    /// A connection that waits here has gone.
    pub(crate) fn leave(&self, number: u64) {
        // In one go: another thread may call it at any moment.
        let mut state = self.lock();
        let next = if state.called.remove(&number) { state.pass_on() } else { None };
        let at = state.waiting.iter().position(|(waits, _)| *waits == number);
        let gone = at.and_then(|at| state.waiting.remove(at));
        drop(state);
        next.inspect(Waker::wake_by_ref);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Who enters a lane of two, with how often each was woken.
    fn three(lane: &Lane) -> [Arc<Woken>; 3] {
        let woken: [Arc<Woken>; 3] = Default::default();
        for (number, woken) in (0..).zip(&woken) {
            lane.enter(number, &Waker::from(woken.clone()));
        }
        woken
    }

    fn counts(woken: &[Arc<Woken>; 3]) -> [usize; 3] {
        [0, 1, 2].map(|at| woken[at].0.load(Ordering::Relaxed))
    }

    #[test]
    fn no_more_are_on_their_way_than_there_are_threads_and_each_has_its_turn() {
        let lane = Lane::new(2);
        let woken = three(&lane);
        assert_eq!(counts(&woken), [1, 1, 0]);
        assert!(!lane.is_called(2), "it is not its turn");
        assert!(lane.is_called(0));
        assert_eq!(counts(&woken), [1, 1, 0], "not before it has begun");
        lane.done();
        assert_eq!(counts(&woken), [1, 1, 1]);
        lane.enter(0, &Waker::from(woken[0].clone()));
        assert_eq!(counts(&woken), [1, 1, 1], "behind the two who are on their way");
        for number in [2, 1, 0] {
            assert!(lane.is_called(number) && !lane.is_called(number), "{number}");
            lane.done();
        }
        assert_eq!(lane.lock().free, 2);
    }

    #[test]
    fn who_goes_away_passes_its_turn_on() {
        let lane = Lane::new(1);
        let woken = three(&lane);
        lane.leave(1);
        lane.leave(0);
        assert_eq!(counts(&woken), [1, 0, 1], "the one behind those who have gone");
        lane.leave(2);
        assert_eq!(lane.lock().free, 1);
        assert!(lane.lock().waiting.is_empty() && lane.lock().called.is_empty());
    }
}
