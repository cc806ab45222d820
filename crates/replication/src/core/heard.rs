//! Whether a node has forgotten what it promised: its directory is an older copy, or its disk has
//! lost what was synced. And whether the others have.
//!
//! It can't know that by itself. Others can, in two ways:
//!
//! - A leader tells a node no commit beyond what that node has acknowledged to it in its term. One
//!   whose log ends before that has lost entries, and the leader may have counted them.
//! - Nodes tell each other now and then in which term they are, once that is synced: as answers to
//!   heartbeats that nobody has sent, which older programs pass over. Each remembers the latest of
//!   each other node. Whoever leads, or asks for a vote, says it along (*hint*); one that isn't as
//!   far has been there and doesn't know it. So it finds out before it votes for a node that knows
//!   better, whoever has led meanwhile.
//!
//! The other way round a node may know more than the cluster does: a majority has been restored
//! from older disks, and has gone on without what was acknowledged since. Whoever has that knows
//! entries to be committed in whose place the leader has others. What was committed is in the log
//! of each later leader, so this is said of whoever leads in this node's term or a later one, and
//! of nobody else: an old leader's append may be late, and what it has in that place may have lost.
//!
//! Unless they have elected somebody in a term that had a leader whom they have forgotten: then
//! entries with the same index and term differ, and checksums tell that (`sums.rs`).
//!
//! What nobody remembers nobody can tell: of a copy that was made in the term that still is, after
//! the only node to which it has acknowledged more is gone; or when all others have been started
//! anew.
//!
//! Along with its term a node says up to which entry it has synced the log. Only the leader has
//! that of the appends' replies; so those who follow can tell who lacks entries, too.

use super::{Core, Follower, Lacks};
use crate::NodeId;
use crate::failure::ReplicationError;
use crate::members::Part;
use crate::message::{Message, MessageKind};
use crate::terms::EntryId;
use raft::StateRole;
use std::collections::BTreeMap;
use std::iter;

/// How often a node says in which term it is: so many ticks.
const SAY_TICKS: u64 = 50;

/// What a node has said counts for so many ticks: what is committed since is what it lacks, if it
/// says nothing more.
const SAID_TICKS: u64 = 4 * SAY_TICKS;

/// The terms in which other nodes have spoken, and how far they were.
#[derive(Default)]
pub(super) struct Heard {
    terms: BTreeMap<NodeId, u64>,
    said: BTreeMap<NodeId, Said>,
    ticks: u64,
}

/// What another node has said last of its log.
struct Said {
    /// Up to which entry it had synced it.
    synced: u64,
    /// Up to which entry this node knew then that the log is committed.
    committed: u64,
    ticks: u64,
}

impl Heard {
    /// Notes in which term a node has spoken, if what it says comes behind a sync of that. What
    /// belongs to a proof doesn't, and whether it would be voted for is asked of a term that may
    /// never be. So many entries are known to be committed.
    fn note(&mut self, message: &Message, committed: u64) {
        let is_synced = matches!(
            message.kind,
            MessageKind::Append
                | MessageKind::AppendReply
                | MessageKind::Heartbeat
                | MessageKind::HeartbeatReply
        );
        if is_synced && message.context.is_none() {
            let latest = self.terms.entry(message.from).or_default();
            *latest = message.term.max(*latest);
            // Older programs say 0.
            if message.kind == MessageKind::HeartbeatReply && message.index > 0 {
                let said = Said { synced: message.index, committed, ticks: self.ticks };
                self.said.insert(message.from, said);
            }
        }
    }

    /// Of each node that has said how far it is how many committed entries it lacks.
    fn lags(&self, committed: u64) -> impl Iterator<Item = (NodeId, u64)> {
        self.said.iter().map(move |(node, said)| {
            let is_fresh = self.ticks - said.ticks <= SAID_TICKS;
            let of = if is_fresh { said.committed } else { committed };
            (*node, of.saturating_sub(said.synced))
        })
    }

    /// Says along what the receiver must know of itself.
    pub(super) fn say_along(&self, message: &mut Message) {
        if asks(message.kind) {
            message.hint = self.terms.get(&message.to).copied().unwrap_or(0);
        }
    }
}

/// Whether the sender relies on what the receiver has promised.
fn asks(kind: MessageKind) -> bool {
    matches!(kind, MessageKind::Vote | MessageKind::PreVote | MessageKind::Heartbeat)
}

impl Core {
    /// Looks whether a message shows that this node has forgotten something.
    pub(super) fn look_for_what_is_forgotten(&mut self, message: &Message) {
        self.lacks.heard.note(message, self.committed());
        let Message { kind, from, to, term, commit, hint, .. } = *message;
        let (last, own) = (self.node.raft.raft_log.last_index(), self.node.raft.term);
        if to != self.config.id || !self.members.part(from).is_some_and(Part::votes) {
            return;
        }
        if let Some(lost) = self.lost_by_the_leader(message) {
            self.lacks.forgotten = Some(lost);
            return;
        }
        let what = if asks(kind) && hint > own {
            format!(
                "node {to} has spoken to node {from} in term {hint}, and knows of none after {own}"
            )
        } else if kind == MessageKind::Heartbeat && commit > last && term >= own {
            format!(
                "node {to} has acknowledged entries up to {commit} to node {from}, which leads, and its log ends at {last}"
            )
        } else {
            return;
        };
        self.lacks.forgotten = Some(ReplicationError::Forgotten(format!(
            "{what}: its directory is an older copy, or its disk has lost what was synced. It doesn't know what it has promised to the \
             others, and takes no part: start this server with an empty directory, as a new node"
        )));
    }

    /// Says so if this node knows an entry to be committed in whose place the leader has another.
    fn lost_by_the_leader(&self, message: &Message) -> Option<ReplicationError> {
        let Message { kind, from, to, term, .. } = *message;
        let says_entries = matches!(kind, MessageKind::Append | MessageKind::Behind);
        if !says_entries || term < self.node.raft.term || !self.knows_by_a_leader() {
            return None;
        }
        let before = EntryId { index: message.index, term: message.log_term };
        let behind = (message.index + 1..).zip(&message.entries);
        let theirs = behind.map(|(index, term)| EntryId { index, term: *term });
        let is_another = |entry: &EntryId| {
            let ours = self.terms().term_of(entry.index);
            entry.index <= self.known && ours.is_some_and(|ours| ours != entry.term)
        };
        let EntryId { index, term: theirs } = iter::once(before).chain(theirs).find(is_another)?;
        let ours = self.terms().term_of(index).unwrap_or_default();
        Some(ReplicationError::Lost(format!(
            "the cluster has lost commits that were acknowledged: entry {index} of term {ours} is \
             committed on node {to}, as is all up to {}, and node {from}, which leads in term \
             {term}, has one of term {theirs} in its place. A majority was restored from older \
             disks. Node {to} takes no part any more, and has what is lost: keep its directory, \
             and save the rows with `plinth salvage`",
            self.known
        )))
    }

    /// A message of this kind was taken, before which so many entries were known to be committed.
    /// Whoever stands for election says how many he knows, and need not have it of a leader of this
    /// node's term, nor of one before.
    pub(super) fn note_who_told(&mut self, kind: MessageKind, before: u64) {
        use MessageKind::{PreVote, PreVoteReply, Vote, VoteReply};
        let now = self.node.raft.raft_log.committed;
        if matches!(kind, PreVote | PreVoteReply | Vote | VoteReply) && now > before {
            self.lacks.known_besides = self.lacks.known_besides.max(now);
        }
    }

    /// Whether what is known to be committed was told by a leader of this node's term, or of an
    /// earlier one. Rows that were taken in may be of a later term than any of which this node has
    /// heard, and say nothing of who leads in its own; nor does whoever would be elected in one.
    fn knows_by_a_leader(&self) -> bool {
        self.known > self.lacks.known_besides
    }

    /// Why this node may take no part any more: it has lost what it had acknowledged or promised,
    /// or the cluster has lost what is committed here. A new process on the same directory doesn't
    /// know that before another node has told it, and must not be started.
    pub fn forgotten(&self) -> Option<&ReplicationError> {
        self.lacks.forgotten.as_ref()
    }

    /// How many entries nodes lack. Whoever leads knows it of its `followers`, as
    /// [`Core::followers`] gives them, and counts its own last entry. One that follows knows what
    /// others have said, and of itself, and counts committed entries; of the leader there is
    /// nothing to know. None while nobody leads.
    pub fn lags(&self, followers: &[Follower]) -> Vec<(NodeId, u64)> {
        let raft = &self.node.raft;
        match raft.state {
            StateRole::Leader => {
                let last = self.terms().last().index;
                let lag = |other: &Follower| (other.node, last.saturating_sub(other.synced));
                followers.iter().map(lag).collect()
            }
            StateRole::Follower if raft.leader_id != 0 => {
                let committed = self.committed();
                let own = committed.saturating_sub(raft.raft_log.persisted);
                let others = self.lacks.heard.lags(committed);
                let others = others.filter(|(node, _)| *node != raft.leader_id);
                others.chain([(self.config.id, own)]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Time passes: says now and then to those who don't lead in which term this node is, and up to
    /// where it has synced its log. Whoever leads hears it anyway.
    pub(super) fn say_term(&mut self) {
        // Entries may be under way to the disk: with a busy one some always are.
        let is_promised = !self.has_unsynced_promise();
        let Lacks { heard, .. } = &mut self.lacks;
        heard.ticks += 1;
        // Who leads says nothing more of this, and what was said before would count again after.
        match self.node.raft.state {
            StateRole::Leader => heard.said.clear(),
            _ => drop(heard.said.remove(&self.node.raft.leader_id)),
        }
        if !heard.ticks.is_multiple_of(SAY_TICKS) {
            return;
        }
        let raft = &self.node.raft;
        let (id, term, leader) = (self.config.id, raft.term, raft.leader_id);
        let is_synced = is_promised && self.promised.term == term;
        if raft.state != StateRole::Follower || leader == 0 || !is_synced {
            return;
        }
        let voters = self.members.all_voters();
        heard.terms.retain(|node, _| voters.contains(node));
        heard.said.retain(|node, _| self.members.part(*node).is_some());
        if self.members.part(id).is_some() {
            let index = raft.raft_log.persisted;
            let others = self.members.nodes.iter().map(|node| node.id);
            let others = others.filter(|node| ![id, leader].contains(node));
            let say =
                |to| Message { index, ..Message::bare(MessageKind::HeartbeatReply, id, to, term) };
            self.answers.extend(others.map(say));
        }
    }
}
