//! What nodes say to each other, and how it is written.
//!
//! Numbers alone, little-endian, of a length that follows from the first eight bytes. The bodies of
//! entries travel beside a message, in frames of their own. Nothing is believed before it was
//! checked: what can't be a message of the algorithm is refused here, what can't be one now by
//! [`Core::receive`](crate::Core::receive).
//!
//! ```text
//!   0      1       2   4         8      16   24     32      40         48       56            64     72         80
//!   | kind | flags | 0 | entries | from | to | term | index | log term | commit | commit term | hint | context | a term each ...
//! ```

use crate::NodeId;
use crate::failure::{ReplicationError, ReplicationResult};
use crate::terms::EntryId;

/// The most entries that one message may carry.
pub const MAX_ENTRIES: usize = 4096;

/// The most bytes that a node sends another one as a frame or a parcel: many small entries, or one
/// with the largest transaction, and room.
pub const MAX_FRAME: usize = 32 << 20;

const COUNT: usize = 4;
const NUMBERS: usize = COUNT + 4;
const NUMBER_COUNT: usize = 9;
const HEAD_LEN: usize = NUMBERS + NUMBER_COUNT * 8;

/// Beside the term of an entry that changes who is a member.
const CHANGES_MEMBERS: u64 = 1 << 63;

const REJECT: u8 = 1;
const CONTEXT: u8 = 2;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MessageKind {
    /// Entries behind one, from the leader.
    Append = 1,
    /// Up to which index they are synced, or that they don't fit.
    AppendReply = 2,
    /// A candidate asks for a vote.
    Vote = 3,
    /// The answer.
    VoteReply = 4,
    /// Whether a vote would be given, which binds nobody.
    PreVote = 5,
    /// The answer.
    PreVoteReply = 6,
    /// The leader is there.
    Heartbeat = 7,
    /// So is the follower, and knows no later term.
    HeartbeatReply = 8,
    /// The leader wants this node to lead instead, at once.
    TakeOver = 9,
    /// Entries up to this one are not sent: the leader's log begins behind it, or a follower that
    /// has none of them had better take rows. A follower that has less needs rows.
    Behind = 10,
}

/// The context of a vote that is asked for because the leader wants it: it is given although there
/// is a leader.
pub(crate) const TAKES_OVER: u64 = 1;

impl MessageKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Append,
        Self::AppendReply,
        Self::Vote,
        Self::VoteReply,
        Self::PreVote,
        Self::PreVoteReply,
        Self::Heartbeat,
        Self::HeartbeatReply,
        Self::TakeOver,
        Self::Behind,
    ];
}

/// A message from one node to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// What it is.
    pub kind: MessageKind,
    /// Who sends it.
    pub from: NodeId,
    /// Who it is for.
    pub to: NodeId,
    /// The sender's term; with pre-votes, the one it would have.
    pub term: u64,
    /// An append: the index of the entry before the first; its reply, the last index that matches,
    /// or that was refused; a vote: the candidate's last index.
    pub index: u64,
    /// The term of that entry.
    pub log_term: u64,
    /// Up to which index entries are committed, as far as the receiver may rely on it.
    pub commit: u64,
    /// The term of the entry there, in messages that ask for votes and answer them.
    pub commit_term: u64,
    /// An answer: no.
    pub reject: bool,
    /// A refused append: an index where to try next.
    pub hint: u64,
    /// Which read this heartbeat is to prove; of a vote 1: the leader wants it to be given.
    pub context: Option<u64>,
    /// The terms of the entries behind `index`.
    pub entries: Vec<u64>,
    /// The indices of those among them that change who is a member, in order.
    pub members: Vec<u64>,
}

impl Message {
    /// Of an append with this entry and some before it: the entry and those behind it, as an append
    /// of its own.
    pub(crate) fn split_off(&mut self, index: u64) -> Self {
        let before = index - 1 - self.index;
        let entries = self.entries.split_off(usize::try_from(before).unwrap_or(usize::MAX));
        let behind = self.members.iter().position(|at| *at >= index);
        let members = self.members.split_off(behind.unwrap_or(self.members.len()));
        let log_term = self.entries.last().copied().unwrap_or(self.log_term);
        Self { index: index - 1, log_term, entries, members, ..self.clone() }
    }

    /// The entry before its own.
    pub(crate) fn before(&self) -> EntryId {
        EntryId { index: self.index, term: self.log_term }
    }

    /// Whether it speaks of an entry before its own.
    pub(crate) fn has_entry_before(&self) -> bool {
        self.kind == MessageKind::Append && self.index > 0
    }

    /// A message that says no more than this: all else is 0, or empty.
    pub fn bare(kind: MessageKind, from: u64, to: u64, term: u64) -> Self {
        Self {
            kind,
            from,
            to,
            term,
            index: 0,
            log_term: 0,
            commit: 0,
            commit_term: 0,
            reject: false,
            hint: 0,
            context: None,
            entries: Vec::new(),
            members: Vec::new(),
        }
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_LEN + self.entries.len() * 8);
        let reject = if self.reject { REJECT } else { 0 };
        let context = if self.context.is_some() { CONTEXT } else { 0 };
        bytes.extend_from_slice(&[self.kind as u8, reject | context, 0, 0]);
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        let numbers: [u64; NUMBER_COUNT] = [
            self.from,
            self.to,
            self.term,
            self.index,
            self.log_term,
            self.commit,
            self.commit_term,
            self.hint,
            self.context.unwrap_or(0),
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for (at, term) in self.entries.iter().enumerate() {
            let index = self.index.wrapping_add(1 + at as u64);
            let mark = if self.members.contains(&index) { CHANGES_MEMBERS } else { 0 };
            bytes.extend_from_slice(&(term | mark).to_le_bytes());
        }
        bytes
    }

    /// Reads a message.
    ///
    /// # Errors
    /// `Malformed` if these bytes are none, or none that a node could send.
    pub fn decode(bytes: &[u8]) -> ReplicationResult<Self> {
        let Some((head, rest)) = bytes.split_at_checked(NUMBERS) else {
            return refuse(format!("{} bytes", bytes.len()));
        };
        let &[kind, flags, 0, 0, a, b, c, d] = head else {
            return refuse("bytes 2 and 3, which are not zero".to_string());
        };
        let Some(kind) = MessageKind::ALL.into_iter().find(|known| *known as u8 == kind) else {
            return refuse(format!("kind {kind}"));
        };
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        if flags & !(REJECT | CONTEXT) != 0 || count > MAX_ENTRIES {
            return refuse(format!("flags {flags:#x} and {count} entries"));
        }
        let (numbers, left) = rest.as_chunks::<8>();
        if !left.is_empty() || numbers.len() != NUMBER_COUNT + count {
            return refuse(format!("{} bytes for {count} entries", bytes.len()));
        }
        let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut next = || numbers.next().unwrap_or_default();
        let (from, to, term, index, log_term) = (next(), next(), next(), next(), next());
        let (commit, commit_term, hint, context) = (next(), next(), next(), next());
        let entries: Vec<u64> = numbers.collect();
        let changes = |(at, term): (usize, &u64)| {
            (term & CHANGES_MEMBERS != 0).then_some(index.wrapping_add(1 + at as u64))
        };
        let members = entries.iter().enumerate().filter_map(changes).collect();
        let message = Self {
            kind,
            from,
            to,
            term,
            index,
            log_term,
            commit,
            commit_term,
            reject: flags & REJECT != 0,
            hint,
            context: (flags & CONTEXT != 0).then_some(context),
            entries: entries.into_iter().map(|term| term & !CHANGES_MEMBERS).collect(),
            members,
        };
        message.check()?;
        Ok(message)
    }

    /// Whether a node could send it at all.
    ///
    /// # Errors
    /// `Malformed` if not.
    pub fn check(&self) -> ReplicationResult<()> {
        let Self { from, to, term, index, log_term, .. } = *self;
        if from == 0 || to == 0 || from == to {
            return refuse(format!("nodes {from} and {to}"));
        }
        // A node that has never heard of any term answers in term 0, and only to this.
        if term == 0 && self.kind != MessageKind::PreVoteReply {
            return refuse("term 0".to_string());
        }
        if !self.entries.is_empty() && self.kind != MessageKind::Append {
            return refuse(format!("{} entries in {:?}", self.entries.len(), self.kind));
        }
        // Behind no entry at all, or behind one that has a term: `raft` takes term 0 for that of
        // whatever isn't there.
        if self.kind == MessageKind::Append && (index == 0) != (log_term == 0) {
            return refuse(format!("entry {index} of term {log_term} before its first"));
        }
        let rises =
            self.entries.is_sorted() && self.entries.first().is_none_or(|first| *first >= log_term);
        if !rises
            || self.entries.last().is_some_and(|last| *last > term)
            || self.entries.contains(&0)
        {
            return refuse("terms of entries that don't rise up to its own".to_string());
        }
        let last = index.saturating_add(self.entries.len() as u64);
        let is_entry = |member: &u64| *member > index && *member <= last;
        if !self.members.is_sorted_by(|one, next| one < next) || !self.members.iter().all(is_entry)
        {
            return refuse("changes of members that are none of its entries".to_string());
        }
        let top = u64::MAX / 2;
        let numbers = [term, index, log_term, self.commit, self.commit_term, self.hint];
        if self.entries.len() > MAX_ENTRIES || numbers.iter().any(|number| *number > top) {
            return refuse("numbers out of bounds".to_string());
        }
        Ok(())
    }
}

fn refuse<T>(found: String) -> ReplicationResult<T> {
    Err(ReplicationError::Malformed(format!("message of a node with {found}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Message {
        Message {
            kind: MessageKind::Append,
            from: 1,
            to: 2,
            term: 9,
            index: 40,
            log_term: 7,
            commit: 39,
            commit_term: 0,
            reject: false,
            hint: 0,
            context: None,
            entries: vec![7, 9],
            members: vec![42],
        }
    }

    #[test]
    fn the_bytes_of_a_message() {
        let bytes = sample().encode();
        let number = |n: u8| [n, 0, 0, 0, 0, 0, 0, 0];
        let mut numbers = [1, 2, 9, 40, 7, 39, 0, 0, 0, 7, 9].map(number);
        numbers[10][7] = 0x80;
        assert_eq!(bytes, [&[1, 0, 0, 0, 2, 0, 0, 0], numbers.as_flattened()].concat());
        assert_eq!(Message::decode(&bytes), Ok(sample()));
        let reply = Message {
            kind: MessageKind::HeartbeatReply,
            reject: true,
            context: Some(0),
            entries: vec![],
            members: vec![],
            ..sample()
        };
        assert_eq!(Message::decode(&reply.encode()), Ok(reply));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let good = sample().encode();
        for len in 0..good.len() {
            Message::decode(&good[..len]).expect_err("cut short");
        }
        Message::decode(&[&good[..], &[0; 8]].concat()).expect_err("too long");
        let wrong = [
            Message { from: 0, ..sample() },
            Message { to: 1, ..sample() },
            Message { term: 0, entries: vec![], ..sample() },
            Message { entries: vec![9, 8], members: vec![], ..sample() },
            Message { entries: vec![6], ..sample() },
            Message { entries: vec![10], ..sample() },
            Message { kind: MessageKind::Vote, ..sample() },
            Message { index: u64::MAX, ..sample() },
            Message { log_term: 0, ..sample() },
            Message { index: 0, ..sample() },
            Message { entries: vec![9; MAX_ENTRIES + 1], ..sample() },
        ];
        for message in wrong {
            assert_eq!(
                Message::decode(&message.encode()),
                Err(ReplicationError::Malformed(String::new())),
                "{message:?}"
            );
        }
        let strange = Message { members: vec![43], ..sample() };
        assert_eq!(
            strange.check(),
            Err(ReplicationError::Malformed(String::new())),
            "it has entries 41 and 42"
        );
        let mut state = 5_u64;
        for round in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + round % 4 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 40) as usize % bytes.len();
                bytes[at] ^= 1 << (state >> 61);
            }
            if let Ok(message) = Message::decode(&bytes) {
                assert_eq!(message.check(), Ok(()));
                assert_eq!(message.encode().len(), bytes.len());
            }
        }
    }
}
