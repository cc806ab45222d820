//! The step: events in, work out.
//!
//! ```text
//!   tick, receive, propose ──▶ Core ──▶ work(): promise, void, append, send, committed
//!                                ▲                      │ sync
//!                                └─── persisted(ticket) ┘──▶ send what had to wait for it
//! ```
//!
//! Whoever drives it takes all work after each event, in order, and does it in the order of
//! [`Work`]'s fields. A follower's answers wait for the sync of what they answer; a leader's
//! appends don't, so that followers write beside it, once its promise not to vote for anybody else
//! is synced.
//!
//! Two things of `raft` are guarded from here. Its election timeouts are drawn from a generator
//! that no seed reaches: after every step they are set to a value that follows from seed, node and
//! term, so it doesn't matter whether it has drawn one. A node that would elect itself waits for
//! its disk first. And a follower's next index may fall to its match index or below (fixed after
//! 0.7.0, by commit 2fbeee5), from where entries would be sent that are known to be there: it is
//! lifted again. What would make it panic is refused before it gets there.

mod elections;
mod heard;
mod planted;
mod probing;
mod rows;
mod sums;

use crate::failure::{ReplicationError, ReplicationResult};
use std::collections::{BTreeSet, VecDeque};

use raft::eraftpb::{ConfState, Entry, EntryType, HardState};
use raft::{RawNode, StateRole};
use slog::{Discard, Logger, o};

use crate::NodeId;
use crate::members::Members;
use crate::message::{MAX_ENTRIES, Message, MessageKind};
use crate::raft_message::{from_raft, to_raft};
use crate::spoken::Spoken;
use crate::stand::{Role, Stand};
use crate::terms::{EntryId, Store, Terms};
use elections::InVain;
use heard::Heard;
use probing::Probing;
use sums::Sums;

/// Who a node is, and among whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// This node.
    pub id: NodeId,
    /// Who is a member, as of the entry with `members_index`, which this log may have yet to get.
    pub members: Members,
    /// The entry that brought them; 0: the cluster began with them.
    pub members_index: u64,
    /// What election timeouts come from.
    pub seed: u64,
    /// After so many ticks a leader sends heartbeats.
    pub heartbeat_ticks: usize,
    /// A follower that hears of no leader for so many ticks, or more but fewer than twice as many,
    /// wants an election.
    pub election_ticks: usize,
    /// How many entries one message carries at most, about; never more than [`MAX_ENTRIES`].
    pub message_entries: usize,
    /// A node that has no entry yet takes rows where the log has more bytes than these.
    pub most_log_bytes: u64,
    /// What this node speaks.
    pub spoken: Spoken,
    /// A bug to have, for tests of tests.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub planted: crate::planted::Planted,
}

impl Config {
    /// One of these. A leader is missed after 200 to 400 ms, ticks being 10 ms apart.
    pub fn of_members(id: NodeId, members: Members, members_index: u64, seed: u64) -> Self {
        Self {
            id,
            members,
            members_index,
            seed,
            heartbeat_ticks: 5,
            election_ticks: 20,
            message_entries: 1024,
            most_log_bytes: u64::MAX,
            spoken: Spoken::THIS,
            #[cfg(feature = "planted-bugs")]
            planted: crate::planted::Planted::None,
        }
    }
}

/// What a node promises to others: no vote for anybody else in this term, no part in earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Promise {
    /// The newest term that it has heard of.
    pub term: u64,
    /// The node that it votes for in that term; 0: none.
    pub vote: NodeId,
    /// The index up to which it knows entries to be committed.
    pub commit: u64,
}

/// What a leader knows of another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Follower {
    /// Which node.
    pub node: NodeId,
    /// Up to which index it has synced what the leader has.
    pub synced: u64,
    /// Whether it was heard of lately.
    pub is_active: bool,
}

/// What is to be done, in this order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Work {
    /// What [`Core::persisted`] is to be called with once everything up to here is synced.
    pub ticket: u64,
    /// This is written down. First, so that no entry is ever found in a log that has not heard of
    /// its term.
    pub promise: Option<Promise>,
    /// Then entries behind this index are void.
    pub rewind: Option<u64>,
    /// Then these are appended. In a leader they are what it proposed, or the one with which its
    /// term begins.
    pub append: Vec<EntryId>,
    /// Whether anything of this has to be synced before [`Core::persisted`] is called. If not, that
    /// is done already.
    pub needs_sync: bool,
    /// Messages that need not wait for the sync.
    pub send: Vec<Message>,
    /// Entries up to this index are committed, and synced on this node too: whoever applies them is
    /// never ahead of its own log.
    pub committed: Option<u64>,
    /// The last of them changes who is a member: [`Core::take_effect`] is to be called with what it
    /// says, before there is more work.
    pub members: bool,
}

/// Messages that wait for a sync.
struct Held {
    ticket: u64,
    /// A promise waits for it too.
    promises: bool,
    messages: Vec<Message>,
}

/// What others have shown a node to lack, and what it remembers to show others.
#[derive(Default)]
struct Lacks {
    /// The entry behind which the leader's log begins, or up to which it would have this node take
    /// rows: entries from before are missing here.
    behind: Option<EntryId>,
    /// Why the node may take no part: what it acknowledged or promised is missing, or what is
    /// committed here is missing in the leader.
    forgotten: Option<ReplicationError>,
    /// Up to where entries may be known to be committed by others than leaders: up to where the log
    /// began by rows, and behind that by elections.
    known_besides: u64,
    heard: Heard,
    /// By which it is found that others have forgotten whom they elected.
    sums: Sums,
    /// What it waits for.
    waits: Waits,
}

/// How long a node waits for what others are to have, or to do.
#[derive(Default)]
struct Waits {
    in_vain: InVain,
    /// For so many ticks whoever has no entry is sent entries, however long the log is.
    entries_for_voters: u32,
    probing: Probing,
}

/// One node's part in the agreement.
pub struct Core {
    node: RawNode<Store>,
    config: Config,
    /// Work whose sync has not been reported, oldest first.
    held: VecDeque<Held>,
    /// The promise written down last.
    promised: Promise,
    /// Who is a member, as of the entry with `members_index`.
    members: Members,
    members_index: u64,
    /// Entries up to here were told to be committed.
    committed: u64,
    /// Those up to here are; they are told once a change of members before them has taken effect.
    known: u64,
    /// Such a change, which was told.
    changing: Option<u64>,
    /// Answers to a leader whose log begins behind what it believes that this node has, and to
    /// what nobody has asked.
    answers: Vec<Message>,
    lacks: Lacks,
    /// The rest of an append, behind a change of members that is to take effect first: while there
    /// is work to do of what arrived.
    rest: Option<Message>,
}

impl Core {
    /// A node that has this log, and has promised this.
    ///
    /// # Errors
    /// `Invalid` if the configuration or what the log remembers contradicts itself.
    pub fn new(config: Config, terms: Terms, promised: Promise) -> ReplicationResult<Self> {
        let invalid = |what: String| ReplicationError::Invalid(what);
        config.members.check()?;
        config.spoken.check(config.members.protocol)?;
        if config.message_entries == 0 || config.election_ticks <= config.heartbeat_ticks {
            return Err(invalid(format!(
                "{} entries in a message, elections after {} ticks, heartbeats after {}",
                config.message_entries, config.election_ticks, config.heartbeat_ticks
            )));
        }
        let (begin, last) = (terms.begins_behind(), terms.last());
        if (begin.index == 0) != (begin.term == 0) {
            return Err(invalid(format!("a log behind {begin:?}")));
        }
        if promised.term < last.term {
            return Err(invalid(format!("a promise of term {} beside {last:?}", promised.term)));
        }
        // A change of members that is written down is committed, whatever else is remembered. Those
        // that were told by another node may be ahead of this log: they say nothing of what it has.
        let written_down = Some(config.members_index).filter(|at| terms.members().contains(at));
        let commit = promised.commit.max(written_down.unwrap_or(0));
        let commit = commit.clamp(begin.index, last.index);
        if let Some(missed) =
            terms.members().iter().find(|at| (config.members_index + 1..=commit).contains(at))
        {
            return Err(invalid(format!(
                "members as of entry {}, those of entry {missed} count: {commit} is committed",
                config.members_index
            )));
        }
        let hard_state =
            HardState { term: promised.term, vote: promised.vote, commit, ..HardState::default() };
        let (members, members_index) = (config.members.clone(), config.members_index);
        let conf_state = config.planted_conf_state(members.conf_state());
        let wanted = raft::Config {
            id: config.id,
            election_tick: config.election_ticks,
            heartbeat_tick: config.heartbeat_ticks,
            min_election_tick: config.election_ticks,
            max_election_tick: 2 * config.election_ticks * elections::MOST_TIMES,
            applied: commit,
            // In bytes: no entry without a body has fewer than these. One is sent in any case.
            max_size_per_msg: (config.message_entries.min(MAX_ENTRIES) as u64 - 1) * 4,
            max_inflight_msgs: 256,
            check_quorum: true,
            pre_vote: true,
            ..raft::Config::default()
        };
        let store = Store::new(terms, hard_state, conf_state);
        let logger = Logger::root(Discard, o!());
        let node =
            RawNode::new(&wanted, store, &logger).map_err(|error| invalid(error.to_string()))?;
        let promised = Promise { commit, ..promised };
        let mut core = Self {
            node,
            config,
            held: VecDeque::new(),
            promised,
            members,
            members_index,
            committed: commit,
            known: commit,
            changing: None,
            answers: Vec::new(),
            lacks: Lacks { known_besides: begin.index, ..Lacks::default() },
            rest: None,
        };
        core.guard();
        Ok(core)
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.config.id
    }

    /// The newest term that it has heard of.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// What it is in that term.
    pub fn role(&self) -> Role {
        match self.node.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => {
                let leader = self.node.raft.leader_id;
                Role::Follower((leader != 0).then_some(leader))
            }
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// Who leads in that term, as far as it knows.
    pub fn leader(&self) -> Option<NodeId> {
        match self.role() {
            Role::Leader => Some(self.config.id),
            // Who has no vote stands for no election, and would name for ever whom it heard of
            // last.
            Role::Follower(leader) => leader.filter(|_| {
                let raft = &self.node.raft;
                raft.promotable() || raft.election_elapsed <= 2 * self.config.election_ticks
            }),
            Role::Candidate => None,
        }
    }

    /// Up to which index it has told entries to be committed.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Who is a member, as of the last entry that was committed and has said so.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// What this node speaks.
    pub fn spoken(&self) -> Spoken {
        self.config.spoken
    }

    /// The index of that entry.
    pub fn members_index(&self) -> u64 {
        self.members_index
    }

    /// The terms of the log, as of the work that was taken last.
    pub fn terms(&self) -> &Terms {
        &self.node.store().terms
    }

    /// A message has arrived. One from an earlier term, or that comes too late, changes nothing.
    ///
    /// # Errors
    /// `Malformed` if no node that keeps to the algorithm sends it. Nothing has changed then.
    pub fn receive(&mut self, message: &Message) -> ReplicationResult<()> {
        message.check()?;
        self.look_for_what_is_forgotten(message);
        self.check(message)?;
        if message.kind == MessageKind::Behind {
            self.hear_of_a_later_beginning(message);
            return Ok(());
        }
        let has_it_elected = matches!(
            message.kind,
            MessageKind::TakeOver | MessageKind::PreVoteReply | MessageKind::VoteReply
        );
        if has_it_elected && self.would_lead_unsynced() {
            return Ok(());
        }
        // What it says was noted, and only who leads has asked.
        let leads = self.node.raft.state == StateRole::Leader;
        if message.kind == MessageKind::HeartbeatReply && (!leads || self.is_only_there(message)) {
            return Ok(());
        }
        let committed = self.node.raft.raft_log.committed;
        self.step_through(message.clone());
        self.note_who_told(message.kind, committed);
        Ok(())
    }

    /// Takes a message, an append only as far as its second change of members that would be in the
    /// log without having taken effect. `raft` lets nobody stand for election who knows that an
    /// earlier change is committed and hasn't taken effect, and forgets with a restart what it
    /// knew: a node that has two such changes could be elected by members of two changes ago, whose
    /// majorities need not meet today's.
    fn step_through(&mut self, mut message: Message) {
        self.rest = None;
        if let Some(second) = self.second_change(&message) {
            let rest = message.split_off(second);
            self.rest = Some(rest);
        }
        // What it refuses it has no use for.
        let _ = self.node.step(to_raft(&message));
        self.guard();
    }

    /// The index of the second change of members that an append would put into the log, or that
    /// stands behind one that is there, before the first has taken effect.
    fn second_change(&self, message: &Message) -> Option<u64> {
        if message.members.is_empty() {
            return None;
        }
        let terms = self.terms();
        let stays = |at: &&u64| {
            let sent = at.checked_sub(message.index + 1).and_then(|at| usize::try_from(at).ok());
            sent.is_none_or(|sent| message.entries.get(sent).copied() == terms.term_of(**at))
        };
        let known = terms.members().iter().filter(stays);
        let ahead: BTreeSet<_> =
            known.chain(&message.members).filter(|at| **at > self.members_index).collect();
        ahead.into_iter().copied().nth(1).filter(|second| *second > message.index)
    }

    /// What would have `raft` panic, or count what nobody has.
    fn check(&self, message: &Message) -> ReplicationResult<()> {
        let refuse = |what: String| {
            let Message { kind, from, .. } = message;
            Err(ReplicationError::Malformed(format!("{kind:?} of node {from} with {what}")))
        };
        let raft = &self.node.raft;
        if message.to != self.config.id {
            return refuse(format!("receiver {}, at node {}", message.to, self.config.id));
        }
        let last = raft.raft_log.last_index();
        match message.kind {
            MessageKind::Heartbeat if message.commit > last && message.term >= raft.term => {
                refuse(format!("commit {}, {last} is the last entry here", message.commit))
            }
            // A vote is asked for when everything here is synced, and a candidate appends nothing.
            MessageKind::VoteReply
                if !message.reject
                    && message.term == raft.term
                    && raft.state == StateRole::Candidate
                    && raft.raft_log.persisted < last =>
            {
                refuse(format!(
                    "a vote that was not asked for: entries up to {last} are not synced here"
                ))
            }
            // One that has lost its power may have led in this term, and have lost entries since.
            MessageKind::AppendReply
                if !message.reject
                    && message.index > last
                    && message.term == raft.term
                    && raft.state == StateRole::Leader =>
            {
                refuse(format!("index {}, {last} is the last entry here", message.index))
            }
            _ => Ok(()),
        }
    }

    /// It leads no more, in its term: it can't do what a leader must.
    pub fn step_down(&mut self) {
        if self.node.raft.state == StateRole::Leader {
            self.node.raft.become_follower(self.node.raft.term, 0);
            self.guard();
        }
    }

    /// A leader wants another entry. Gives which it is, once it is appended as work says; `None` if
    /// this node doesn't lead.
    pub fn propose(&mut self) -> Option<EntryId> {
        if self.node.raft.state != StateRole::Leader {
            return None;
        }
        self.node.propose(Vec::new(), Vec::new()).ok()?;
        self.guard();
        Some(EntryId { index: self.node.raft.raft_log.last_index(), term: self.node.raft.term })
    }

    /// A leader wants these to be the members from its next entry on. Gives which that is, once it
    /// is appended as work says.
    ///
    /// # Errors
    /// `Behind` if this node doesn't lead, or another change is under way;
    /// `Invalid` if these can't follow those that there are.
    pub fn propose_members(&mut self, next: &Members) -> ReplicationResult<EntryId> {
        let behind = |what: &str| ReplicationError::Behind(what.into());
        if self.node.raft.state != StateRole::Leader {
            return Err(behind("this node doesn't lead in that term, or no longer"));
        }
        if self.changing.is_some() || self.node.raft.has_pending_conf() {
            return Err(behind("another change of members is under way"));
        }
        let Some(change) = self.members.step_to(next) else {
            let detail = format!("members {next:?} can't follow {:?}", self.members);
            return Err(ReplicationError::Invalid(detail));
        };
        let change = self.config.planted_change(change);
        let dropped = |_| behind("another node is about to lead");
        self.node.propose_conf_change(Vec::new(), change).map_err(dropped)?;
        let raft = &self.node.raft;
        let id = EntryId { index: raft.raft_log.last_index(), term: raft.term };
        assert_eq!(
            raft.pending_conf_index, id.index,
            "what would have it refused was looked at before"
        );
        self.guard();
        Ok(id)
    }

    /// The change of members that [`Work::members`] spoke of takes effect.
    ///
    /// # Errors
    /// `Malformed` if it can't follow what was before: no leader makes such an entry.
    pub fn take_effect(&mut self, members: Members) -> ReplicationResult<()> {
        let refuse = |what: &str| Err(ReplicationError::Malformed(format!("{what}: {members:?}")));
        let Some(index) = self.changing else { return refuse("no change of members is due") };
        let Some(change) = self.members.step_to(&members) else {
            return refuse("members that can't follow those before");
        };
        match self.node.apply_conf_change(&self.config.planted_change(change)) {
            Ok(state) if self.config.plants_members() || is_same(&state, &members.conf_state()) => {
            }
            found => return refuse(&format!("members that come to be {found:?}")),
        }
        (self.members, self.members_index, self.changing) = (members, index, None);
        self.node.advance_apply_to(index);
        if self.node.raft.state == StateRole::Leader && !self.node.raft.promotable() {
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, 0);
        }
        self.guard();
        if let Some(rest) = self.rest.take().filter(|rest| rest.term == self.node.raft.term) {
            self.step_through(rest);
        }
        Ok(())
    }

    /// What proofs of leadership need to know of this node. It is published before anything is sent
    /// that comes of the same event.
    pub fn stand(&self) -> Stand {
        let raft = &self.node.raft;
        let leads = raft.state == StateRole::Leader && raft.commit_to_current_term();
        let committed = leads.then_some(raft.raft_log.committed);
        Stand { term: self.term(), role: self.role(), committed }
    }

    /// Whether another voter has synced entries of this leader's that this one's own disk hasn't:
    /// so it is this disk that is slow, and not all of them.
    pub fn is_behind_another_disk(&self) -> bool {
        let own = self.node.raft.raft_log.persisted;
        let voters = self.members.voters();
        let is_ahead = |other: &Follower| {
            other.is_active && other.synced > own && voters.contains(&other.node)
        };
        self.followers().iter().any(is_ahead)
    }

    /// Has another voter lead, the one that has most of the log, unless that is under way. Nothing
    /// can be proposed until it does, or it was in vain.
    pub fn hand_over(&mut self) {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader || raft.lead_transferee.is_some() {
            return;
        }
        let matched = |id: &NodeId| {
            raft.prs().get(*id).map(|progress| (progress.recent_active, progress.matched))
        };
        let others = self.members.voters().into_iter().filter(|id| *id != self.config.id);
        let Some(next) = others.max_by_key(matched) else { return };
        self.node.transfer_leader(next);
        self.guard();
    }

    /// The other nodes, if this one leads.
    pub fn followers(&self) -> Vec<Follower> {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader {
            return Vec::new();
        }
        let others = raft.prs().iter().filter(|(id, _)| **id != self.config.id);
        let follower = |(node, progress): (&NodeId, &raft::Progress)| Follower {
            node: *node,
            synced: progress.matched,
            is_active: progress.recent_active,
        };
        let mut others: Vec<_> = others.map(follower).collect();
        others.sort_unstable_by_key(|follower| follower.node);
        others
    }

    /// All work up to this ticket is synced. Gives the messages that waited for it.
    pub fn persisted(&mut self, ticket: u64) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(held) = self.held.pop_front_if(|held| held.ticket <= ticket) {
            messages.extend(held.messages);
        }
        self.node.on_persist_ready(ticket);
        self.guard();
        messages
    }

    /// What is to be done; `None` if there is nothing. To be called until there is nothing, after
    /// each event.
    pub fn work(&mut self) -> Option<Work> {
        if self.changing.is_some() {
            return None;
        }
        let mut besides = self.tell_those_behind();
        besides.append(&mut self.answers);
        if !self.node.has_ready() && besides.is_empty() {
            let mut work = Work::default();
            self.tell_committed(&mut work);
            if work.committed.is_none() {
                // The bodies of its entries are not kept: the leader sends them again.
                self.rest = None;
            }
            return work.committed.is_some().then_some(work);
        }
        let mut ready = self.node.ready();
        let mut work = Work { ticket: ready.number(), ..Work::default() };
        for entry in ready.take_entries() {
            self.append(&entry, &mut work);
        }
        if let Some(hard_state) = ready.hs() {
            let (term, vote) = (hard_state.term, hard_state.vote);
            if (term, vote) != (self.promised.term, self.promised.vote) {
                let commit = hard_state.commit.min(self.committed);
                self.promised = Promise { term, vote, commit };
                work.promise = Some(self.promised);
            }
        }
        if let Some(last) = ready.take_committed_entries().last() {
            assert!(last.index > self.known, "what is committed only grows");
            self.known = last.index;
        }
        work.send = ready.take_messages().iter().filter_map(from_raft).collect();
        work.send.append(&mut besides);
        let mut after: Vec<_> =
            ready.take_persisted_messages().iter().filter_map(from_raft).collect();
        let sent = work.send.iter_mut().chain(&mut after);
        sent.for_each(|message| self.lacks.heard.say_along(message));
        let promises = work.promise.is_some();
        let is_promised = !promises && !self.has_unsynced_promise();
        work.send.extend(after.extract_if(.., |message| waits_for_no_entry(message, is_promised)));
        // A sole voter leads before it has synced that it does, and `raft` has it speak at once.
        // Without power it would forget that, and might vote for another one in its term.
        if self.node.raft.state == StateRole::Leader && !is_promised {
            after.splice(..0, work.send.drain(..));
        }
        self.plant_early_messages(&mut after, &mut work.send);
        work.needs_sync = ready.must_sync() || promises;
        self.node.advance_append_async(ready);
        self.tell_committed(&mut work);
        self.held.push_back(Held { ticket: work.ticket, promises, messages: after });
        if !work.needs_sync && self.held.len() == 1 {
            let due = self.persisted(work.ticket);
            work.send.extend(due);
        }
        work.needs_sync |= !self.held.is_empty();
        self.guard();
        Some(work)
    }

    /// Tells what is committed, up to the next change of members.
    fn tell_committed(&mut self, work: &mut Work) {
        let is_next =
            |at: &&u64| (self.committed.max(self.members_index) + 1..=self.known).contains(at);
        self.changing = self.terms().members().iter().find(is_next).copied();
        let upto = self.changing.unwrap_or(self.known);
        if upto > self.committed {
            self.committed = upto;
            (work.committed, work.members) = (Some(upto), self.changing.is_some());
            self.node.advance_apply_to(upto - u64::from(work.members));
        }
    }

    fn append(&mut self, entry: &Entry, work: &mut Work) {
        let terms = &mut self.node.mut_store().terms;
        if entry.index <= terms.last().index {
            assert!(entry.index > self.known, "what is committed is never voided");
            assert!(work.append.is_empty(), "a rewind comes before what is appended");
            terms.truncate(entry.index - 1);
            work.rewind = Some(entry.index - 1);
        }
        let id = EntryId { index: entry.index, term: entry.term };
        match entry.get_entry_type() {
            EntryType::EntryNormal => terms.push(id),
            _ => terms.push_members(id),
        }
        work.append.push(id);
    }

    /// Entries up to this index are in the log no longer.
    pub fn forget(&mut self, index: u64) {
        if index <= self.committed && self.changing.is_none() {
            self.node.mut_store().terms.forget(index);
        }
    }

    /// Sets right what `raft` leaves to chance, or has wrong. After every step.
    fn guard(&mut self) {
        self.plant_counting();
        self.guard_timeout();
        if self.node.raft.state == StateRole::Leader {
            for (_, progress) in self.node.raft.mut_prs().iter_mut() {
                progress.next_idx = progress.next_idx.max(progress.matched + 1);
            }
        }
    }

    /// Panics if what it believes of itself contradicts itself.
    pub fn check_invariants(&self) {
        let (raft, terms) = (&self.node.raft, self.terms());
        assert!(
            self.committed <= self.known && self.known <= terms.last().index,
            "what is committed is there"
        );
        assert!(self.promised.term <= raft.term && terms.last().term <= raft.term);
        let ahead = terms.members().iter().filter(|at| **at > self.members_index).count();
        assert!(
            ahead <= 1,
            "one change of members at a time: {:?} after {}",
            terms.members(),
            self.members_index
        );
        assert!(self.held.iter().is_sorted_by_key(|held| held.ticket));
        if raft.state == StateRole::Leader {
            for (id, progress) in raft.prs().iter() {
                assert!(progress.next_idx > progress.matched, "next index of node {id}");
            }
        }
    }
}

/// Whether what is said is no word of what is in the log. A leader that hears nothing while entries
/// are synced takes the node for gone; that it is followed holds once its term is promised. And a
/// question of whether one would be voted for promises nothing.
fn waits_for_no_entry(message: &Message, is_promised: bool) -> bool {
    match message.kind {
        MessageKind::HeartbeatReply => is_promised,
        MessageKind::PreVote | MessageKind::PreVoteReply => true,
        _ => false,
    }
}

/// Whether two states have the same members.
fn is_same(one: &ConfState, other: &ConfState) -> bool {
    let sorted = |ids: &[NodeId]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    let parts = |state: &ConfState| {
        let (learners, next) = (sorted(state.get_learners()), sorted(state.get_learners_next()));
        (sorted(state.get_voters()), sorted(state.get_voters_outgoing()), learners, next)
    };
    parts(one) == parts(other)
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, term, role) = (self.id(), self.term(), self.role());
        write!(f, "Core({id}, term {term}, {role:?}, committed {})", self.committed)
    }
}

/// Spreads the bits of a number.
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (number ^ (number >> 31)).wrapping_add(0x9E37_79B9_7F4A_7C15)
}
