//! Which of several servers is asked what any of them can answer.
//!
//! What is asked in one turn travels in one write and is answered in one, as long as it goes to one
//! server: so each thread keeps to the server at hand. It moves to another one that answers in less
//! than half of the time, and now and then asks one out of turn, so that what is known of each
//! stays fresh. Threads move one at a time: if all of a busy client went at once, they would only
//! take their crowd along.
//!
//! Always: who may not be asked is not chosen; if anybody may be asked, somebody is chosen.

use plinth_env::Env;
use std::sync::atomic::{AtomicUsize, Ordering};

/// After so many choices it is asked whether another server is better.
const JUDGED: usize = 16;
/// After so many choices a server is asked out of turn.
const OUT_OF_TURN: usize = 256;
/// A difference that isn't worth a move, in microseconds.
const SLACK_US: u64 = 200;

pub(super) struct Choice {
    /// The server at hand, for each thread.
    at_hand: Vec<AtomicUsize>,
    servers: usize,
    turn: AtomicUsize,
}

impl Choice {
    /// For so many threads, and servers: of those known the first one at hand is drawn, so that
    /// clients spread over them; so many there may be.
    pub(super) fn new(env: &Env, threads: usize, (known, servers): (usize, usize)) -> Self {
        let first = env.random_u64() as usize % known.max(1);
        let at_hand = (0..threads.max(1)).map(|_| AtomicUsize::new(first)).collect();
        Self { at_hand, servers, turn: AtomicUsize::new(0) }
    }

    /// The server that this thread asks mostly.
    pub(super) fn at_hand(&self, thread: usize) -> usize {
        self.at_hand[thread % self.at_hand.len()].load(Ordering::Relaxed)
    }

    /// The server at hand, for what is asked there without a look at others; `None` when it is time
    /// for one, and [`Choice::choose`] is to be asked.
    pub(super) fn at_once(
        &self,
        thread: usize,
        latency: impl Fn(usize) -> Option<Option<u64>>,
    ) -> Option<usize> {
        if self.turn.load(Ordering::Relaxed).is_multiple_of(JUDGED) {
            return None;
        }
        let known = self.at_hand(thread);
        latency(known)??;
        self.turn.fetch_add(1, Ordering::Relaxed);
        Some(known)
    }

    /// The server that this thread asks. `latency` says how soon one answers: `None` if it may not
    /// be asked, `Some(None)` if that isn't known yet.
    pub(super) fn choose(
        &self,
        thread: usize,
        latency: impl Fn(usize) -> Option<Option<u64>>,
    ) -> Option<usize> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let at_hand = &self.at_hand[thread % self.at_hand.len()];
        let known = at_hand.load(Ordering::Relaxed);
        if !turn.is_multiple_of(JUDGED)
            && let Some(Some(_)) = latency(known)
        {
            return Some(known);
        }
        let there = || (0..self.servers).filter_map(|at| Some((at, latency(at)?)));
        if let Some((unknown, _)) = there().find(|(_, latency)| latency.is_none()) {
            return Some(unknown);
        }
        if turn.is_multiple_of(OUT_OF_TURN) {
            let count = there().count().max(1);
            return there().nth(turn / OUT_OF_TURN % count).map(|(at, _)| at);
        }
        let (best, soonest) = there().min_by_key(|(_, latency)| *latency)?;
        let is_good = latency(known).is_some_and(|known| {
            known.unwrap_or(0) <= soonest.unwrap_or(0).saturating_mul(2).saturating_add(SLACK_US)
        });
        if !is_good {
            at_hand.store(best, Ordering::Relaxed);
            return Some(best);
        }
        Some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(threads: usize) -> Choice {
        let at_hand = (0..threads).map(|_| AtomicUsize::new(0)).collect();
        Choice { at_hand, servers: 3, turn: AtomicUsize::new(1) }
    }

    /// How often each of three servers is chosen.
    fn counts(choice: &Choice, thread: usize, latency: [Option<Option<u64>>; 3]) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..OUT_OF_TURN {
            counts[choice.choose(thread, |at| latency[at]).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn a_thread_keeps_to_the_server_at_hand_among_equals() {
        let choice = choice(1);
        let [first, others @ ..] =
            counts(&choice, 0, [Some(Some(900)), Some(Some(500)), Some(Some(600))]);
        assert!(first >= OUT_OF_TURN - 1 && others.iter().sum::<usize>() <= 1, "{first}");
    }

    #[test]
    fn threads_move_to_a_server_that_answers_in_less_than_half_of_the_time_one_by_one() {
        let choice = choice(2);
        let latency = [Some(Some(5_000)), Some(Some(2_000)), Some(Some(3_000))];
        assert!((1..JUDGED).all(|_| choice.choose(0, |at| latency[at]) == Some(0)));
        assert_eq!(choice.choose(0, |at| latency[at]), Some(1), "judged");
        assert_eq!(choice.choose(1, |at| latency[at]), Some(0), "another thread hasn't been");
    }

    #[test]
    fn who_is_not_there_is_left_at_once_and_who_is_new_is_asked() {
        let choice = choice(1);
        let latency = [None, Some(Some(900)), Some(Some(500))];
        let [gone, _, best] = counts(&choice, 0, latency);
        assert!(gone == 0 && best >= OUT_OF_TURN - 1);
        choice.turn.store(JUDGED, Ordering::Relaxed);
        assert_eq!(choice.choose(0, |at| [Some(None), Some(Some(9)), None][at]), Some(0));
        assert_eq!(choice.choose(0, |_| None), None);
    }

    #[test]
    fn each_server_is_asked_now_and_then() {
        let choice = choice(1);
        let equal = [Some(Some(500)); 3];
        let sums = (0..4)
            .map(|_| counts(&choice, 0, equal))
            .fold([0; 3], |sums, counts| std::array::from_fn(|at| sums[at] + counts[at]));
        assert!(sums.iter().all(|sum| *sum > 0), "{sums:?}");
    }
}
