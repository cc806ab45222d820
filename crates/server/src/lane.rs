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
//! A crowd here would still keep the threads busy all the time, and whoever wants one row would
//! wait for a processor as well. So while there is one, and others ask for little, the next one is
//! called only after a rest, which is as long as the last turn was: the crowd has half of the time.
//! Alone it has all of it, and a few who move much never rest.
//!
//! Always: as long as somebody waits here, one is on its way or will be after a rest; who is gone
//! passes its turn on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// So many who wait here are a crowd.
const CROWD: usize = 8;
/// Whoever asked for little within this time may well ask again.
const RECENT: Duration = Duration::from_millis(20);
/// The longest rest: a turn that took longer had no processor.
const MOST_REST: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    state: Mutex<State>,
    is_crowded: AtomicBool,
    /// Microseconds of the clock when somebody outside asked for little, while it was crowded.
    asked: AtomicU64,
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

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Lane {
    /// One for so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        let state =
            State { free: threads.max(1), called: BTreeSet::new(), waiting: VecDeque::new() };
        Self {
            state: Mutex::new(state),
            is_crowded: AtomicBool::new(false),
            asked: AtomicU64::new(0),
        }
    }

    /// Whether there is a crowd.
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Somebody outside has asked for little.
    pub(crate) fn note_asked(&self, now: Duration) {
        self.asked.store(micros(now), Ordering::Relaxed);
    }

    /// How long the crowd rests behind a turn, if it does, since others ask for little.
    pub(crate) fn rest(&self, now: Duration, turn: Duration) -> Option<Duration> {
        let asked = self.asked.load(Ordering::Relaxed);
        let is_recent = asked > 0 && micros(now).saturating_sub(asked) <= micros(RECENT);
        (is_recent && self.is_crowded()).then(|| turn.min(MOST_REST))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a connection, which does not wait here yet, woken when it is its turn.
    pub(crate) fn enter(&self, number: u64, waker: &Waker) {
        let mut state = self.lock();
        if state.free == 0 {
            state.waiting.push_back((number, waker.clone()));
            self.note_crowd(&state);
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
        let mut state = self.lock();
        let next = state.pass_on();
        self.note_crowd(&state);
        drop(state);
        next.inspect(Waker::wake_by_ref);
    }

    fn note_crowd(&self, state: &State) {
        self.is_crowded.store(state.waiting.len() >= CROWD, Ordering::Relaxed);
    }

    /// A connection that waits here has gone.
    pub(crate) fn leave(&self, number: u64) {
        // In one go: another thread may call it at any moment.
        let mut state = self.lock();
        let next = if state.called.remove(&number) { state.pass_on() } else { None };
        let at = state.waiting.iter().position(|(waits, _)| *waits == number);
        let gone = at.and_then(|at| state.waiting.remove(at));
        self.note_crowd(&state);
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
    fn a_crowd_rests_while_others_ask_for_little_and_only_then() {
        let lane = Lane::new(1);
        let ms = Duration::from_millis;
        let enter = |number: usize| lane.enter(number as u64, Waker::noop());
        (0..CROWD).for_each(enter);
        lane.note_asked(ms(100));
        assert_eq!(lane.rest(ms(101), ms(2)), None, "one is on its way, and the others are few");
        enter(CROWD);
        assert!(lane.is_crowded());
        assert_eq!(lane.rest(ms(101), ms(2)), Some(ms(2)));
        assert_eq!(lane.rest(ms(101), ms(200)), Some(MOST_REST));
        assert_eq!(lane.rest(ms(100) + 2 * RECENT, ms(2)), None, "nobody else is there");
        lane.leave(3);
        assert_eq!(lane.rest(ms(101), ms(2)), None);
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
