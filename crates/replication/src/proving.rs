//! Proofs that a node leads, as a pure step: [`Proving`].
//!
//! ## Role
//! A read version may be given only by a node that leads at that moment: another one may have been
//! elected meanwhile, and have committed what this one doesn't know. So it asks the other voters,
//! in rounds: a heartbeat that names the round goes out, and who knows of no later term answers it.
//! Both ends need nothing but what the member's task has *published*. They stand beside the core,
//! and a round takes no turn of either node's task: it goes from socket to socket.
//!
//! ```text
//!   member's task ── stand() ──▶ Proving ◀── ask(), receive() ── whoever takes requests and frames
//! ```
//!
//! As few are asked as make a majority with this node, as long as they answer soon: each answer
//! costs two nodes a wake-up, and those beyond the majority prove nothing. They are those who
//! answered a round to all first. If a round isn't proven within a tick or two, all are asked
//! again, and so is everybody once a second, since others may be nearer by now. The heartbeats that
//! keep elections away are the core's, and go to all in any case.
//!
//! ## Always
//! 1. A node publishes before it sends what came of the same event. So whoever says that it knows
//!    no later term had sent no vote for one until then, and nobody leads in it yet.
//! 2. An answer counts for its round and those before, which began earlier, and for none after it.
//! 3. A round brings the index up to which entries were committed when it began: whoever is
//!    answered sees them applied.

use crate::NodeId;
use crate::members::Members;
use crate::message::{Message, MessageKind};
use crate::stand::{Role, Stand};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// In so many ticks everybody is asked once.
const ROUND_TICKS: u64 = 100;

/// What became of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Nothing: it is for the core. A node that doesn't follow whoever asks has to hear of it
    /// first.
    No,
    /// It was counted.
    Counted,
    /// This is the answer to it.
    Answer(Message),
}

/// A round that is under way.
struct Round {
    number: u64,
    /// What was committed when it began.
    index: u64,
}

/// One node's part in proofs of leadership, its own and others'.
pub struct Proving {
    us: NodeId,
    stand: Stand,
    members: Arc<Members>,
    rounds: VecDeque<Round>,
    /// The last round that was begun, and the last one as of the tick before.
    last: u64,
    old: u64,
    /// Up to which round each node has answered.
    answered: BTreeMap<NodeId, u64>,
    /// Those who answered since all were asked, first ones first.
    prompt: Vec<NodeId>,
    /// Whether they make a majority, and are asked alone.
    is_narrow: bool,
    ticks: u64,
    /// A bug to have: nobody is asked.
    asks_nobody: bool,
}

impl Proving {
    /// For this node, which stands so.
    pub fn new(us: NodeId, stand: Stand, members: Arc<Members>) -> Self {
        let (rounds, answered, prompt) = (VecDeque::new(), BTreeMap::new(), Vec::new());
        let (last, old, ticks, is_narrow, asks_nobody) = (0, 0, 0, false, false);
        Self {
            us,
            stand,
            members,
            rounds,
            last,
            old,
            answered,
            prompt,
            is_narrow,
            ticks,
            asks_nobody,
        }
    }

    /// Has a bug on purpose.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub fn plant(&mut self, planted: crate::planted::Planted) {
        self.asks_nobody = planted == crate::planted::Planted::ReadWithoutProof;
    }

    /// The node stands so now. Says whether rounds that were under way have come to nothing.
    pub fn stand(&mut self, stand: Stand) -> bool {
        let before = std::mem::replace(&mut self.stand, stand);
        let leads = stand.role == Role::Leader && stand.term == before.term;
        if leads {
            return false;
        }
        self.ask_all();
        self.answered.clear();
        let had_some = !self.rounds.is_empty();
        self.rounds.clear();
        had_some
    }

    /// Who is a member has changed.
    pub fn change_members(&mut self, members: Arc<Members>) {
        self.members = members;
        self.answered.retain(|node, _| self.members.node(*node).is_some());
        self.ask_all();
    }

    /// Begins a round: its number, and what is to be sent. `None` if this node doesn't lead, or
    /// knows of no entry yet that is committed in its term.
    pub fn ask(&mut self) -> Option<(u64, Vec<Message>)> {
        let index = self.stand.committed.filter(|_| self.stand.role == Role::Leader)?;
        self.last += 1;
        self.rounds.push_back(Round { number: self.last, index });
        let messages = if self.asks_nobody { Vec::new() } else { self.messages() };
        Some((self.last, messages))
    }

    /// How the node stands: published, so that nothing that came of a later stand has been sent.
    pub fn published(&self) -> Stand {
        self.stand
    }

    /// Who is a member.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Takes a message that may be part of a proof.
    pub fn receive(&mut self, message: &Message) -> Taken {
        let Message { kind, from, to, term, context, .. } = *message;
        let Some(number) = context.filter(|_| (to, term) == (self.us, self.stand.term)) else {
            return Taken::No;
        };
        match (kind, self.stand.role) {
            (MessageKind::Heartbeat, Role::Follower(Some(leader))) if leader == from => {
                let answer = Message::bare(MessageKind::HeartbeatReply, to, from, term);
                Taken::Answer(Message { context, ..answer })
            }
            (MessageKind::HeartbeatReply, Role::Leader) => {
                self.take_answer(from, number);
                Taken::Counted
            }
            _ => Taken::No,
        }
    }

    fn take_answer(&mut self, from: NodeId, number: u64) {
        if number > self.last || self.members.node(from).is_none() {
            return;
        }
        let newest = self.answered.entry(from).or_default();
        *newest = number.max(*newest);
        if !self.is_narrow && !self.prompt.contains(&from) {
            self.prompt.push(from);
            let (us, prompt) = (self.us, &self.prompt);
            self.is_narrow = self.members.has_majority(|id| id == us || prompt.contains(&id));
        }
    }

    /// The oldest round if it is proven: its number, and the index that came with it.
    pub fn proven(&mut self) -> Option<(u64, u64)> {
        let Round { number, index } = *self.rounds.front()?;
        let has =
            |id| id == self.us || self.answered.get(&id).is_some_and(|newest| *newest >= number);
        if !self.asks_nobody && !self.members.has_majority(has) {
            return None;
        }
        self.rounds.pop_front();
        Some((number, index))
    }

    /// Time passes: what is to be sent to those who have been silent, or weren't asked for long.
    pub fn tick(&mut self) -> Vec<Message> {
        self.ticks += 1;
        let is_late = self.rounds.front().is_some_and(|round| round.number <= self.old);
        self.old = self.last;
        if is_late || self.ticks.is_multiple_of(ROUND_TICKS) {
            self.ask_all();
        }
        // The newest one proves those before it too.
        if is_late && !self.asks_nobody { self.messages() } else { Vec::new() }
    }

    fn ask_all(&mut self) {
        self.is_narrow = false;
        self.prompt.clear();
    }

    fn messages(&self) -> Vec<Message> {
        let (us, term, context) = (self.us, self.stand.term, Some(self.last));
        let is_asked = |id: &NodeId| !self.is_narrow || self.prompt.contains(id);
        let others = self.members.nodes.iter().filter(|node| node.part.votes());
        let others = others.map(|node| node.id).filter(|id| *id != us && is_asked(id));
        let ask = |to| Message { context, ..Message::bare(MessageKind::Heartbeat, us, to, term) };
        others.map(ask).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(voters: u64) -> Arc<Members> {
        Arc::new(Members::of_voters((1..=voters).map(|id| (id, format!("n{id}:1")))))
    }

    fn stand(term: u64, role: Role, committed: u64) -> Stand {
        Stand { term, role, committed: (role == Role::Leader).then_some(committed) }
    }

    /// Node 1 leads in term 3, with 7 entries committed.
    fn leading(voters: u64) -> Proving {
        Proving::new(1, stand(3, Role::Leader, 7), members(voters))
    }

    /// Whom a new round is asked of.
    fn asked(proving: &mut Proving) -> Vec<NodeId> {
        let (_, messages) = proving.ask().expect("it leads");
        messages.iter().map(|message| message.to).collect()
    }

    fn answer(proving: &mut Proving, from: NodeId, number: u64) -> Taken {
        let reply = Message::bare(MessageKind::HeartbeatReply, from, 1, 3);
        proving.receive(&Message { context: Some(number), ..reply })
    }

    #[test]
    fn a_round_is_proven_by_a_majority_that_answers_it_or_a_later_one() {
        let mut proving = leading(5);
        assert_eq!(proving.ask().map(|(number, asked)| (number, asked.len())), Some((1, 4)));
        assert_eq!(answer(&mut proving, 2, 1), Taken::Counted);
        proving.stand(stand(3, Role::Leader, 9));
        proving.ask();
        assert_eq!(answer(&mut proving, 2, 1), Taken::Counted);
        assert_eq!(proving.proven(), None, "one answer twice is one");
        answer(&mut proving, 3, 2);
        assert_eq!(proving.proven(), Some((1, 7)), "whoever answers the second proves the first");
        assert_eq!(proving.proven(), None, "node 2 has not been asked since");
        answer(&mut proving, 4, 2);
        assert_eq!((proving.proven(), proving.proven()), (Some((2, 9)), None));
    }

    #[test]
    fn answers_of_others_and_to_what_was_not_asked_count_for_nothing() {
        let mut proving = leading(3);
        proving.ask();
        answer(&mut proving, 9, 1);
        answer(&mut proving, 2, 2);
        let of_older_term =
            Message { context: Some(1), ..Message::bare(MessageKind::HeartbeatReply, 3, 1, 2) };
        assert_eq!(proving.receive(&of_older_term), Taken::No);
        assert_eq!(proving.proven(), None);
    }

    #[test]
    fn a_follower_answers_its_leader_alone_and_only_in_its_term() {
        let mut proving = Proving::new(2, stand(3, Role::Follower(Some(1)), 0), members(3));
        let ask = |from, term| Message {
            context: Some(5),
            ..Message::bare(MessageKind::Heartbeat, from, 2, term)
        };
        let Taken::Answer(answer) = proving.receive(&ask(1, 3)) else {
            panic!("it follows node 1")
        };
        assert_eq!(
            (answer.kind, answer.to, answer.term, answer.context),
            (MessageKind::HeartbeatReply, 1, 3, Some(5))
        );
        assert_eq!(
            proving.receive(&ask(1, 2)),
            Taken::No,
            "the core says that there is a later term"
        );
        assert_eq!(proving.receive(&ask(3, 3)), Taken::No);
        for role in [Role::Follower(None), Role::Candidate, Role::Leader] {
            proving.stand(stand(3, role, 0));
            assert_eq!(proving.receive(&ask(1, 3)), Taken::No, "{role:?}");
        }
        proving.stand(stand(4, Role::Follower(Some(1)), 0));
        assert_eq!(
            proving.receive(&ask(1, 3)),
            Taken::No,
            "it may have voted for another one since"
        );
    }

    #[test]
    fn rounds_come_to_nothing_when_it_leads_no_more() {
        let mut proving = leading(3);
        proving.ask();
        assert!(!proving.stand(stand(3, Role::Leader, 8)), "it still leads");
        assert!(proving.stand(stand(4, Role::Follower(None), 0)));
        assert_eq!(proving.ask(), None);
        assert!(!proving.stand(stand(5, Role::Leader, 8)), "none was under way");
        proving.ask();
        answer(&mut proving, 2, 2);
        assert_eq!(proving.proven(), None, "an answer of an earlier term");
    }

    #[test]
    fn those_who_answer_first_are_asked_alone_once_they_make_a_majority() {
        let mut proving = leading(5);
        assert_eq!(asked(&mut proving), [2, 3, 4, 5]);
        answer(&mut proving, 4, 1);
        assert_eq!(asked(&mut proving), [2, 3, 4, 5]);
        for from in [4, 4, 2, 3, 5] {
            answer(&mut proving, from, 2);
        }
        assert_eq!(asked(&mut proving), [2, 4]);
        proving.change_members(members(3));
        assert_eq!(asked(&mut proving), [2, 3], "of other members nobody is known");
    }

    #[test]
    fn all_are_asked_when_the_few_are_silent() {
        let mut proving = leading(3);
        asked(&mut proving);
        answer(&mut proving, 3, 1);
        assert!(proving.proven().is_some());
        assert!(proving.tick().is_empty() && proving.tick().is_empty(), "nothing waits");
        assert_eq!(asked(&mut proving), [3]);
        assert!(proving.tick().is_empty(), "it was asked just now");
        let again = proving.tick();
        assert!(
            again
                .iter()
                .map(|message| (message.to, message.context))
                .eq([(2, Some(2)), (3, Some(2))])
        );
        answer(&mut proving, 2, 2);
        assert!(proving.proven().is_some());
    }

    #[test]
    fn everybody_is_asked_now_and_then() {
        let mut proving = leading(3);
        let mut wide = 0;
        for round in 1..=1000 {
            wide += u32::from(asked(&mut proving).len() == 2);
            answer(&mut proving, 2, round);
            assert!(proving.proven().is_some());
            assert!(proving.tick().is_empty());
        }
        assert_eq!(wide, 10, "the first round, and one each hundred ticks");
    }
}
