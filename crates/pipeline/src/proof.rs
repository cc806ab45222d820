//! Proofs of leadership: a few rounds at a time for all read versions that are asked for.
//!
//! A read version may be given only by a node that leads at that moment: another one may have been
//! elected meanwhile and have committed what this one doesn't know. Where a round trip is needed to
//! know that, requests share rounds. One that comes while fewer than [`ROUNDS`] are under way
//! begins one; others wait for the next, which begins when one has ended. A round that was begun
//! before a request came proves nothing for it.
//!
//! Where one process has the only log nothing has to be proven, and nobody asks here.

use crate::batch_lock::lock;
use crate::failure::{NodeError, NodeResult};
use plinth_env::reply::{Promise, Reply};
use plinth_types::probe;
use std::sync::{Arc, Mutex};

/// So many rounds are under way at most: with one alone a request waits for half of another one
/// before its own begins.
const ROUNDS: usize = 2;

/// What can tell whether this node still leads.
pub(crate) trait Prover: Send + Sync {
    /// Begins a round; its reply says that the node led at some moment after this call.
    fn prove(&self) -> Reply<(), NodeError>;
}

/// Requests for a proof, a round for many of them.
pub(crate) struct Proofs {
    prover: Box<dyn Prover>,
    rounds: Mutex<Rounds>,
}

#[derive(Default)]
struct Rounds {
    running: usize,
    /// Whoever waits for the next one.
    next: Vec<Promise<(), NodeError>>,
}

impl Proofs {
    pub fn new(prover: Box<dyn Prover>) -> Arc<Self> {
        Arc::new(Self { prover, rounds: Mutex::default() })
    }

    /// Ready when a round that began after this call has proven that the node leads.
    pub fn ask(self: &Arc<Self>) -> Reply<(), NodeError> {
        let (promise, reply) = Promise::pair();
        {
            let mut rounds = lock(&self.rounds);
            if rounds.running >= ROUNDS {
                probe!("pipeline: a read version waits for the next proof");
                rounds.next.push(promise);
                return reply;
            }
            rounds.running += 1;
        }
        self.run(vec![promise]);
        reply
    }

    fn run(self: &Arc<Self>, waiting: Vec<Promise<(), NodeError>>) {
        let this = self.clone();
        self.prover.prove().on_complete(move |proven| this.ended(waiting, &proven));
    }

    fn ended(self: &Arc<Self>, told: Vec<Promise<(), NodeError>>, proven: &NodeResult<()>) {
        let next = {
            let mut rounds = lock(&self.rounds);
            let next = std::mem::take(&mut rounds.next);
            assert!(rounds.running > 0, "a round ends once");
            rounds.running -= usize::from(next.is_empty());
            assert!(rounds.running < ROUNDS || !next.is_empty(), "more rounds run than may");
            next
        };
        told.into_iter().for_each(|promise| promise.send(proven.clone()));
        if !next.is_empty() {
            self.run(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::Unanswered;
    use std::collections::VecDeque;

    /// Rounds end when the test says so.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<VecDeque<Promise<(), NodeError>>>>);

    impl Prover for Slow {
        fn prove(&self) -> Reply<(), NodeError> {
            let (promise, reply) = Promise::pair();
            lock(&self.0).push_back(promise);
            reply
        }
    }

    impl Slow {
        fn end(&self, result: NodeResult<()>) {
            let round = lock(&self.0).pop_front();
            round.expect("a round runs").send(result);
        }
    }

    #[test]
    fn requests_that_come_during_a_round_share_the_next() {
        let slow = Slow::default();
        let proofs = Proofs::new(Box::new(slow.clone()));
        let first: Vec<_> = (0..ROUNDS).map(|_| proofs.ask()).collect();
        let later: Vec<_> = (0..100).map(|_| proofs.ask()).collect();
        assert_eq!(lock(&slow.0).len(), ROUNDS, "no more than these at a time");
        for first in first {
            slow.end(Ok(()));
            assert!(first.is_ready());
        }
        assert!(
            later.iter().all(|reply| !reply.is_ready()),
            "a round begun earlier proves nothing"
        );
        assert_eq!(lock(&slow.0).len(), 1, "one round for a hundred");
        slow.end(Ok(()));
        assert!(later.iter().all(Reply::is_ready));
        assert_eq!(lock(&proofs.rounds).running, 0);
    }

    #[test]
    fn a_failed_round_fails_those_who_waited_for_it_and_no_others() {
        let slow = Slow::default();
        let proofs = Proofs::new(Box::new(slow.clone()));
        let first: Vec<_> = (0..ROUNDS).map(|_| proofs.ask()).collect();
        let second = proofs.ask();
        for first in first {
            slow.end(Err(Unanswered::Broken.into()));
            assert_eq!(first.wait(), Err(Unanswered::Broken.into()));
        }
        slow.end(Ok(()));
        assert_eq!(second.wait(), Ok(()));
    }
}
