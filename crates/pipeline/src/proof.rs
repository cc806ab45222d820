//! Proofs of leadership: one round for all read versions that were asked for while the last one ran.
//!
//! A read version may be given only by a node that leads at that moment: another one may have been
//! elected meanwhile and have committed what this one doesn't know. Where a round trip is needed to
//! know that, all requests that come while one is under way share the next. A round that was begun
//! before a request came proves nothing for it.
//!
//! Where one process has the only log nothing has to be proven, and nobody asks here.

use crate::batch_lock::lock;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::{Result, probe};
use std::sync::{Arc, Mutex};

/// What can tell whether this node still leads.
pub(crate) trait Prover: Send + Sync {
    /// Begins a round; its reply says that the node led at some moment after this call.
    fn prove(&self) -> Reply<()>;
}

/// Requests for a proof, a round for many of them.
pub(crate) struct Proofs {
    prover: Box<dyn Prover>,
    rounds: Mutex<Rounds>,
}

#[derive(Default)]
struct Rounds {
    is_running: bool,
    /// Whoever waits for the round under way, and for the one after it.
    running: Vec<Promise<()>>,
    next: Vec<Promise<()>>,
}

impl Proofs {
    pub fn new(prover: Box<dyn Prover>) -> Arc<Self> {
        Arc::new(Self { prover, rounds: Mutex::default() })
    }

    /// Ready when a round that began after this call has proven that the node leads.
    pub fn ask(self: &Arc<Self>) -> Reply<()> {
        let (promise, reply) = promise();
        {
            let mut rounds = lock(&self.rounds);
            rounds.next.push(promise);
            if rounds.is_running {
                probe!("pipeline: a read version waits for the next proof");
                return reply;
            }
            rounds.begin();
        }
        self.run();
        reply
    }

    /// How many requests wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        let rounds = lock(&self.rounds);
        rounds.running.len() + rounds.next.len()
    }

    fn run(self: &Arc<Self>) {
        let this = self.clone();
        self.prover.prove().on_complete(move |proven| this.ended(&proven));
    }

    fn ended(self: &Arc<Self>, proven: &Result<()>) {
        let (told, is_next) = {
            let mut rounds = lock(&self.rounds);
            let told = std::mem::take(&mut rounds.running);
            rounds.is_running = false;
            let is_next = !rounds.next.is_empty();
            if is_next {
                rounds.begin();
            }
            (told, is_next)
        };
        told.into_iter().for_each(|promise| promise.send(proven.clone()));
        if is_next {
            self.run();
        }
    }
}

impl Rounds {
    fn begin(&mut self) {
        assert!(!self.is_running && self.running.is_empty(), "one round at a time");
        self.is_running = true;
        self.running = std::mem::take(&mut self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_types::Error;
    use std::collections::VecDeque;

    /// Rounds end when the test says so.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<VecDeque<Promise<()>>>>);

    impl Prover for Slow {
        fn prove(&self) -> Reply<()> {
            let (promise, reply) = promise();
            lock(&self.0).push_back(promise);
            reply
        }
    }

    impl Slow {
        fn end(&self, result: Result<()>) {
            let round = lock(&self.0).pop_front();
            round.expect("a round runs").send(result);
        }
    }

    #[test]
    fn requests_that_come_during_a_round_share_the_next() {
        let slow = Slow::default();
        let proofs = Proofs::new(Box::new(slow.clone()));
        let first = proofs.ask();
        let later: Vec<_> = (0..100).map(|_| proofs.ask()).collect();
        slow.end(Ok(()));
        assert!(first.is_ready());
        assert!(later.iter().all(|reply| !reply.is_ready()), "a round begun earlier proves nothing");
        assert_eq!(lock(&slow.0).len(), 1, "one round for a hundred");
        slow.end(Ok(()));
        assert!(later.iter().all(Reply::is_ready));
        assert_eq!(proofs.waiting(), 0);
    }

    #[test]
    fn a_failed_round_fails_those_who_waited_for_it_and_no_others() {
        let slow = Slow::default();
        let proofs = Proofs::new(Box::new(slow.clone()));
        let (first, second) = (proofs.ask(), proofs.ask());
        slow.end(Err(Error::broken_promise()));
        assert_eq!(first.wait(), Err(Error::broken_promise()));
        slow.end(Ok(()));
        assert_eq!(second.wait(), Ok(()));
    }
}
