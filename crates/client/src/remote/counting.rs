//! Read versions that this client proves itself: [`Count`].
//!
//! A version may be read at once a majority of those who vote has said, after it was asked for,
//! that whoever gave it leads: see [`Quorum`]. A leader that asks the others first costs three
//! wake-ups of threads behind each other, and a majority's answers are the same proof to whoever
//! reads them. So the leader answers at once and names who votes, as few others as make a majority
//! with it are asked whom they follow, and here it is counted.
//!
//! ```text
//!   link to the leader ── counted version ──▶ leader      Count: the version, and who has agreed
//!   links to others    ── standing ─────────▶ followers     ├─ a majority: the transactions begin
//!                                                           └─ none, or silence: the leader is to prove it
//! ```
//!
//! ## Always
//! 1. Those who vote are asked after the last of the transactions has asked for its version.
//! 2. Nobody is told a version, or that there is none, that the leader hasn't proven and the count
//!    doesn't either.

use super::token::Token;
use crate::endpoint::ReadVersionReply;
use plinth_env::reply::{Promise, Reply};
use plinth_proto::ReadVersion;
use plinth_types::{Quorum, Result, Standing};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How long those who are asked may be silent before the leader is asked for a proof.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);

/// What asks a server for versions, and has them counted.
pub(super) trait Asker: Send + Sync {
    /// Since the client began.
    fn now(&self) -> Duration;

    /// Those who may agree that the server leads.
    fn witnesses(&self) -> Option<&dyn Witnesses>;

    /// Asks once more, for a version of which the server is to prove that it leads.
    fn ask_for_proof(&self, wanted: Wanted, waiting: Vec<Promise<ReadVersionReply>>);
}

/// A version that is asked for.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    pub(super) request: ReadVersion,
    /// The token that is shown with it.
    pub(super) token: Option<Token>,
    /// Whether others are asked only when this server doesn't answer: see
    /// [`fallback`](super::fallback).
    pub(super) is_direct: bool,
}

/// Those who may agree that a server leads.
pub(super) trait Witnesses: Send + Sync {
    /// Asks as many of them as make a majority with that server, each by its place; `None` if not
    /// so many can be asked.
    fn ask(&self) -> Option<Vec<(usize, Reply<Standing>)>>;

    /// A version comes from a leader who names these as those who vote.
    fn voters_are(&self, count: usize);

    /// The one at this place is silent, or doesn't agree: others are asked for a while.
    fn are_others(&self, place: usize);
}

/// Transactions that begin with one version, and who agrees that it may be read at.
pub(super) struct Count {
    asker: Weak<dyn Asker>,
    wanted: Wanted,
    began: Duration,
    state: Mutex<State>,
}

struct State {
    /// Empty once they have been answered.
    waiting: Vec<Promise<ReadVersionReply>>,
    /// Whether others are asked for a version when this comes to nothing, and haven't been.
    is_direct: bool,
    answer: Option<(ReadVersionReply, Quorum)>,
    /// The places of those who were asked.
    asked: Vec<usize>,
    /// What they have said; `None` of one that can't be reached.
    said: Vec<(usize, Option<Standing>)>,
}

/// What is to be done, without the lock.
enum Next {
    Wait,
    Answer(Result<ReadVersionReply>, Vec<Promise<ReadVersionReply>>),
    /// The leader is to prove it.
    Prove(Proof),
}

struct Proof {
    waiting: Vec<Promise<ReadVersionReply>>,
    is_direct: bool,
    /// Who was asked and didn't agree.
    others: Vec<usize>,
}

impl Count {
    /// Counts for the transactions of a request what those say who have just been asked.
    pub(super) fn begin(
        asker: &Arc<dyn Asker>,
        wanted: Wanted,
        waiting: Vec<Promise<ReadVersionReply>>,
        asked: Vec<(usize, Reply<Standing>)>,
    ) -> Arc<Self> {
        let places = asked.iter().map(|(place, _)| *place).collect();
        let is_direct = wanted.is_direct;
        let state = State { waiting, is_direct, answer: None, asked: places, said: Vec::new() };
        let (began, asker) = (asker.now(), Arc::downgrade(asker));
        let count = Arc::new(Self { asker, wanted, began, state: Mutex::new(state) });
        for (place, reply) in asked {
            let count = count.clone();
            reply.on_complete(move |said| {
                count.step(|state| {
                    state.said.push((place, said.ok()));
                    state.next()
                });
            });
        }
        count
    }

    /// The server that is asked for a version has answered, or can't.
    pub(super) fn answered(&self, answer: Result<(ReadVersionReply, Option<Quorum>)>) {
        if let Ok((_, Some(quorum))) = &answer {
            self.tell(|witnesses| witnesses.voters_are(quorum.voters.len()));
        }
        self.step(|state| match answer {
            Ok((reply, Some(quorum))) => {
                state.answer = Some((reply, quorum));
                state.next()
            }
            Ok((reply, None)) => Next::Answer(Ok(reply), std::mem::take(&mut state.waiting)),
            Err(error) => Next::Answer(Err(error), std::mem::take(&mut state.waiting)),
        });
    }

    /// Whether it needs nobody who looks after it any more. One whose version has come and that
    /// has waited for too long is given to the leader.
    pub(super) fn look(&self, now: Duration) -> bool {
        let is_late = now.saturating_sub(self.began) >= PATIENCE;
        self.step(|state| match &state.answer {
            Some(_) if is_late => state.prove(),
            _ => Next::Wait,
        });
        self.state().waiting.is_empty()
    }

    /// Since when it is asked for a version that others may be asked for, too; `None` if they have
    /// been, or there is an answer.
    pub(super) fn waits_directly(&self) -> Option<Duration> {
        let state = self.state();
        (state.is_direct && !state.waiting.is_empty()).then_some(self.began)
    }

    /// Takes out those who wait, so that others are asked, and has this one wait.
    pub(super) fn replace(
        &self,
        other: Promise<ReadVersionReply>,
    ) -> Option<(Vec<Promise<ReadVersionReply>>, Wanted)> {
        let mut state = self.state();
        if state.waiting.is_empty() || !std::mem::take(&mut state.is_direct) {
            return None;
        }
        let waiting = std::mem::replace(&mut state.waiting, vec![other]);
        Some((waiting, self.wanted.clone()))
    }

    /// Whether nobody waits for it any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.state().waiting.iter().all(Promise::is_cancelled)
    }

    fn step(&self, change: impl FnOnce(&mut State) -> Next) {
        let next = {
            let mut state = self.state();
            if state.waiting.is_empty() { Next::Wait } else { change(&mut state) }
        };
        match next {
            Next::Wait => {}
            Next::Answer(answer, waiting) => {
                waiting.into_iter().for_each(|promise| promise.send(answer.clone()));
            }
            Next::Prove(Proof { waiting, is_direct, others }) => {
                self.tell(|witnesses| {
                    others.into_iter().for_each(|place| witnesses.are_others(place));
                });
                // Without it nobody waits either.
                if let Some(asker) = self.asker.upgrade() {
                    asker.ask_for_proof(Wanted { is_direct, ..self.wanted.clone() }, waiting);
                }
            }
        }
    }

    fn tell(&self, what: impl FnOnce(&dyn Witnesses)) {
        if let Some(asker) = self.asker.upgrade()
            && let Some(witnesses) = asker.witnesses()
        {
            what(witnesses);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> Next {
        let Some((_, quorum)) = &self.answer else { return Next::Wait };
        let said: Vec<_> = self.said.iter().filter_map(|(_, standing)| *standing).collect();
        if quorum.is_met(&said) {
            let answer = self.answer.take().map(|(answer, _)| Ok(answer));
            return answer
                .map_or(Next::Wait, |it| Next::Answer(it, std::mem::take(&mut self.waiting)));
        }
        if self.said.len() == self.asked.len() { self.prove() } else { Next::Wait }
    }

    fn prove(&mut self) -> Next {
        let Some((_, quorum)) = self.answer.take() else { return Next::Wait };
        let agrees = |place: &usize| {
            let of_it = self.said.iter().filter(|(said, _)| said == place);
            of_it.filter_map(|(_, standing)| standing.as_ref()).any(|it| quorum.is_agreed_by(it))
        };
        let others = self.asked.iter().copied().filter(|place| !agrees(place)).collect();
        let (waiting, is_direct) = (std::mem::take(&mut self.waiting), self.is_direct);
        Next::Prove(Proof { waiting, is_direct, others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::reply::promise;
    use plinth_types::Error;

    /// Notes who is passed over.
    #[derive(Default)]
    struct Passed(Mutex<Vec<usize>>);

    impl Witnesses for Passed {
        fn ask(&self) -> Option<Vec<(usize, Reply<Standing>)>> {
            None
        }

        fn voters_are(&self, _count: usize) {}

        fn are_others(&self, place: usize) {
            self.0.lock().unwrap().push(place);
        }
    }

    /// Keeps those for whom the leader is asked for a proof.
    #[derive(Default)]
    struct Leader {
        passed: Passed,
        to_prove: Mutex<Vec<Promise<ReadVersionReply>>>,
    }

    impl Asker for Leader {
        fn now(&self) -> Duration {
            Duration::from_secs(3)
        }

        fn witnesses(&self) -> Option<&dyn Witnesses> {
            Some(&self.passed)
        }

        fn ask_for_proof(&self, _: Wanted, waiting: Vec<Promise<ReadVersionReply>>) {
            self.to_prove.lock().unwrap().extend(waiting);
        }
    }

    struct Table {
        leader: Arc<Leader>,
        count: Arc<Count>,
        version: Reply<ReadVersionReply>,
        said: Vec<Promise<Standing>>,
    }

    /// Node 1 leads, and those at these places, whose nodes have the next numbers, are asked.
    fn table(places: &[usize]) -> Table {
        let leader = Arc::<Leader>::default();
        let (waiting, version) = promise();
        let (said, replies): (Vec<_>, Vec<_>) = places.iter().map(|_| promise()).unzip();
        let asked = places.iter().copied().zip(replies).collect();
        let asker: Arc<dyn Asker> = leader.clone();
        let count = Count::begin(&asker, Wanted::default(), vec![waiting], asked);
        Table { leader, count, version, said }
    }

    fn answer(voters: u64) -> Result<(ReadVersionReply, Option<Quorum>)> {
        let answer = ReadVersionReply { version: 70, metadata_version: None, range_locks: None };
        Ok((answer, Some(Quorum { term: 3, leader: 1, voters: (1..=voters).collect() })))
    }

    fn follows(node: u64, term: u64) -> Result<Standing> {
        Ok(Standing { node, term, follows: Some(1) })
    }

    impl Table {
        fn has_begun(&mut self) -> bool {
            self.version.try_take().is_some_and(|version| version.unwrap().version == 70)
        }

        /// Whether the leader is asked for a proof, and who is passed over.
        fn is_to_be_proven(&mut self) -> Option<Vec<usize>> {
            let is_asked = !self.leader.to_prove.lock().unwrap().is_empty();
            is_asked.then(|| self.leader.passed.0.lock().unwrap().clone())
        }
    }

    #[test]
    fn transactions_begin_once_the_version_and_a_majority_are_there_whichever_comes_first() {
        for version_first in [true, false] {
            let mut table = table(&[4, 5]);
            if version_first {
                table.count.answered(answer(5));
            }
            table.said.pop().unwrap().send(follows(3, 3));
            assert!(!table.has_begun(), "two of five");
            table.said.pop().unwrap().send(follows(2, 3));
            assert_eq!(table.has_begun(), version_first);
            if !version_first {
                table.count.answered(answer(5));
                assert!(table.has_begun());
            }
            assert!(table.is_to_be_proven().is_none() && table.count.look(Duration::MAX));
        }
    }

    #[test]
    fn the_leader_proves_what_others_do_not_agree_to() {
        let strangers = [follows(2, 4), follows(9, 3), Err(Error::connection_failed())];
        for stranger in strangers {
            let mut table = table(&[4]);
            table.said.pop().unwrap().send(stranger);
            assert_eq!(table.is_to_be_proven(), None, "it may prove it without being asked");
            table.count.answered(answer(3));
            assert_eq!((table.has_begun(), table.is_to_be_proven()), (false, Some(vec![4])));
        }
        // It has proven it, or fails.
        let mut proven = table(&[4]);
        proven.count.answered(answer(3).map(|(answer, _)| (answer, None)));
        assert!(proven.has_begun());
        let mut failed = table(&[4]);
        failed.count.answered(Err(Error::process_behind()));
        assert_eq!(failed.version.try_take(), Some(Err(Error::process_behind())));
    }

    #[test]
    fn the_leader_proves_what_others_are_silent_about_for_long() {
        let mut table = table(&[4, 6]);
        assert!(!table.count.look(Duration::MAX), "it has not answered itself");
        table.count.answered(answer(5));
        table.said.pop().unwrap().send(follows(3, 3));
        assert!(!table.count.look(table.count.began + PATIENCE / 2));
        assert_eq!(table.is_to_be_proven(), None);
        assert!(table.count.look(table.count.began + PATIENCE));
        assert_eq!((table.has_begun(), table.is_to_be_proven()), (false, Some(vec![4])));
        // Who answers later is too late.
        table.said.pop().unwrap().send(follows(2, 3));
        assert!(!table.has_begun());
    }
}
