//! Whom a proof of leadership is asked of: as few nodes as make a majority with this one, as long as they answer soon.
//!
//! A proof needs a majority, and `raft` asks everybody. Each answer costs two nodes a wake-up, and those beyond the majority prove
//! nothing. So a round asks those who answered a round to all of them first. If it isn't proven within a tick or two, all are
//! asked again, and so is everybody once a second, since others may be nearer by now. Heartbeats that are due go to all in
//! any case: nobody misses its leader because it isn't asked.
//!
//! Always: what is left out is as good as lost on its way, which proofs bear; nothing else is ever left out.

use crate::NodeId;
use crate::members::Members;
use raft::eraftpb::{Message as RaftMessage, MessageType};

/// In so many ticks everybody is asked once.
const ROUND_TICKS: u64 = 100;

/// Who is asked, and what was.
#[derive(Default)]
pub(crate) struct Proving {
    /// In which term the rest holds.
    term: u64,
    /// Those who answered a round to all, first ones first.
    prompt: Vec<NodeId>,
    /// Whether they make a majority, and are asked alone.
    is_narrow: bool,
    /// The last round that was begun, the last one that is proven, and the last one before the tick before.
    asked: u64,
    proven: u64,
    old: u64,
    ticks: u64,
}

impl Proving {
    /// A round begins: its messages are those from `first` on. Leaves those out that go to nobody who is asked.
    pub(crate) fn begin(&mut self, round: u64, term: u64, messages: &mut Vec<RaftMessage>, first: usize) {
        if self.term != term {
            *self = Self { term, ..Self::default() };
        }
        self.asked = round;
        if !self.is_narrow {
            self.prompt.clear();
            return;
        }
        let mut at = 0;
        messages.retain(|message| {
            at += 1;
            let is_asked = self.prompt.contains(&message.to);
            at <= first || message.msg_type != MessageType::MsgHeartbeat || is_asked
        });
    }

    /// A node has answered a round.
    pub(crate) fn answered(&mut self, from: NodeId, us: NodeId, members: &Members) {
        if self.is_narrow || self.prompt.contains(&from) {
            return;
        }
        self.prompt.push(from);
        self.is_narrow = members.has_majority(|id| id == us || self.prompt.contains(&id));
    }

    /// Rounds up to this one are proven.
    pub(crate) fn proven(&mut self, round: u64) {
        self.proven = self.proven.max(round);
    }

    /// Who is a member has changed.
    pub(crate) fn ask_all(&mut self) {
        self.is_narrow = false;
        self.prompt.clear();
    }

    /// Time passes. Says whether all are to be asked now for what was asked of few.
    pub(crate) fn tick(&mut self) -> bool {
        self.ticks += 1;
        let is_late = self.is_narrow && self.old > self.proven;
        self.old = self.asked;
        if is_late || self.ticks.is_multiple_of(ROUND_TICKS) {
            self.ask_all();
        }
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(voters: u64) -> Members {
        Members::of_voters((1..=voters).map(|id| (id, format!("n{id}:1"))))
    }

    /// Whom node 1 asks in this round, behind a message that is none of it.
    fn asked(proving: &mut Proving, round: u64, term: u64, voters: u64) -> Vec<NodeId> {
        let message = |to, msg_type| RaftMessage { to, msg_type, ..RaftMessage::default() };
        let mut messages = vec![message(9, MessageType::MsgHeartbeat)];
        messages.extend((2..=voters).map(|to| message(to, MessageType::MsgHeartbeat)));
        proving.begin(round, term, &mut messages, 1);
        assert_eq!(messages[0].to, 9, "what was there before stays");
        messages[1..].iter().map(|message| message.to).collect()
    }

    #[test]
    fn those_who_answer_first_are_asked_alone_once_they_make_a_majority() {
        let (mut proving, members) = (Proving::default(), members(5));
        assert_eq!(asked(&mut proving, 1, 3, 5), [2, 3, 4, 5]);
        proving.answered(4, 1, &members);
        assert_eq!(asked(&mut proving, 2, 3, 5), [2, 3, 4, 5]);
        for from in [4, 4, 2, 3, 5] {
            proving.answered(from, 1, &members);
        }
        assert_eq!(asked(&mut proving, 3, 3, 5), [2, 4]);
        assert_eq!(asked(&mut proving, 4, 4, 5), [2, 3, 4, 5], "in another term nobody is known");
    }

    #[test]
    fn all_are_asked_when_the_few_are_silent() {
        let (mut proving, members) = (Proving::default(), members(3));
        asked(&mut proving, 1, 3, 3);
        proving.answered(3, 1, &members);
        proving.proven(1);
        assert!(!proving.tick() && !proving.tick(), "nothing waits");
        assert_eq!(asked(&mut proving, 2, 3, 3), [3]);
        assert!(!proving.tick(), "it was asked just now");
        assert!(proving.tick(), "and is late now");
        assert!(!proving.tick(), "all were asked");
        assert_eq!(asked(&mut proving, 3, 3, 3), [2, 3]);
    }

    #[test]
    fn everybody_is_asked_now_and_then() {
        let (mut proving, members) = (Proving::default(), members(3));
        let mut wide = 0;
        for round in 1..=1000 {
            wide += u32::from(asked(&mut proving, round, 3, 3).len() == 2);
            proving.answered(2, 1, &members);
            proving.proven(round);
            assert!(!proving.tick());
        }
        assert_eq!(wide, 10, "the first round, and one each hundred ticks");
    }
}
