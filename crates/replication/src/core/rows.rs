//! Rows in the place of entries: for whom, and up to which entry.
//!
//! ```text
//!   the leader's log begins behind what a node lacks,
//!   or the node has no entry at all and the log is long,  ─▶ it is told so ─▶ it takes rows from
//!   or entries that it lacks can't be read any more                           anybody, up to that
//!                                                                             entry at least
//! ```
//!
//! Rows reach as far as what is committed and durable in somebody's tables. So a node must not be
//! made to wait for rows up to an entry that nobody's tables can come to without that node: whoever
//! votes, and has no entry, is sent all of them, however many they are.

use super::Core;
use crate::NodeId;
use crate::message::{Message, MessageKind};
use crate::terms::EntryId;
use plinth_types::probe;
use raft::StateRole;
use std::sync::PoisonError;

/// So many ticks after it was last known that a voter has no entry it may still have none.
const WAIT_FOR_VOTERS: u32 = 70;

impl Core {
    /// The leader has no entries any more that it believes this node to lack, or more of them than
    /// it would send to a node that has none. If they are here all the same, because rows were
    /// taken in say, the leader is told how far it may go on from; if not, rows are needed.
    pub(super) fn hear_of_a_later_beginning(&mut self, message: &Message) {
        let raft = &self.node.raft;
        if message.term != raft.term
            || raft.leader_id != message.from
            || raft.state != StateRole::Follower
        {
            return;
        }
        let begin = EntryId { index: message.index, term: message.log_term };
        // What the leader has let go of is committed, and so is what it has up to an entry that
        // both have.
        let common = if self.terms().has(begin) { begin.index } else { self.committed };
        if common < begin.index {
            self.lacks.behind = Some(begin);
        } else if raft.raft_log.persisted >= common {
            self.lacks.behind = None;
            let bare =
                Message::bare(MessageKind::AppendReply, self.config.id, message.from, raft.term);
            self.answers.push(Message { index: common, commit: self.committed, ..bare });
        }
    }

    /// If this node needs rows because it is sent no entries: the entry that they have to reach.
    pub fn behind(&self) -> Option<EntryId> {
        self.lacks.behind.filter(|begin| begin.index > self.committed)
    }

    /// The log has so many bytes. Once they are too many, who has no entry at all is told to take
    /// rows, although all entries are here: rows are fewer, and cost less to take.
    pub fn look_at_size(&mut self, log_bytes: u64) {
        let is_long = log_bytes > self.config.most_log_bytes && self.committed > 0;
        let upto = self.entry(self.committed).filter(|_| is_long);
        // `raft` forgets now and then who was there, and who leads doesn't know it at first.
        let leads = self.node.raft.state == StateRole::Leader;
        self.lacks.waits.entries_for_voters = match !leads || self.has_voter_without_entries() {
            true => WAIT_FOR_VOTERS,
            false => self.lacks.waits.entries_for_voters.saturating_sub(1),
        };
        let sends_entries = self.lacks.waits.entries_for_voters > 0;
        let store = self.node.mut_store();
        match upto {
            _ if sends_entries => store.rows_upto = None,
            Some(upto) => _ = store.rows_upto.get_or_insert(upto),
            None => {}
        }
    }

    /// Whether a voter is here that has no entry, as far as this leader knows. With one node gone
    /// nothing may be committed without it, and nobody's rows reach any further.
    fn has_voter_without_entries(&self) -> bool {
        let prs = self.node.raft.prs();
        let voters = prs.conf().voters();
        prs.iter().any(|(id, progress)| {
            let is_another = *id != self.config.id && voters.contains(*id);
            is_another && progress.recent_active && progress.matched == 0
        })
    }

    /// An entry that this node has let go of, or can't read any more, is what another one lacks. If
    /// it is committed, that one is to take rows up to there.
    pub fn cannot_send(&mut self, to: NodeId, index: u64) {
        if let Some(entry) = self.entry(index).filter(|_| index <= self.committed) {
            probe!("replication: rows take the place of entries that can't be read");
            self.node.mut_store().unreadable.insert(to, entry);
        }
    }

    /// What is said to nodes that need entries from before the log begins, or had better take rows.
    pub(super) fn tell_those_behind(&mut self) -> Vec<Message> {
        let (from, term) = (self.config.id, self.node.raft.term);
        let leads = self.node.raft.state == StateRole::Leader;
        let store = self.node.mut_store();
        let needed = store.rows_needed();
        let behind = store.behind.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut told = std::mem::take(&mut store.unreadable);
        told.extend(std::mem::take(behind).into_iter().map(|to| (to, needed)));
        let tell = |(to, EntryId { index, term: log_term })| Message {
            index,
            log_term,
            ..Message::bare(MessageKind::Behind, from, to, term)
        };
        if leads { told.into_iter().map(tell).collect() } else { Vec::new() }
    }

    /// The entry at an index of the log.
    fn entry(&self, index: u64) -> Option<EntryId> {
        self.terms().term_of(index).map(|term| EntryId { index, term })
    }
}
