//! How often a leader sends again what it has no answer to.
//!
//! To `raft` an answer to a heartbeat says that what was sent before it is lost, if nothing has
//! come back of that: it sends the same entries again. Here such answers overtake the sync of
//! entries, so a follower with a slow disk would be sent the same ones with each heartbeat, until
//! its disk is done. What has to be sent again is, but not as often.

use super::Core;
use crate::NodeId;
use crate::message::Message;
use std::collections::BTreeMap;

/// After so many ticks, at the soonest, the same is sent again.
const AGAIN: u64 = 20;

/// When answers to heartbeats had the same sent again.
#[derive(Default)]
pub(super) struct Probing {
    ticks: u64,
    last: BTreeMap<NodeId, u64>,
}

impl Probing {
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
    }

    /// Whether it is time again for this node.
    fn is_due(&mut self, node: NodeId) -> bool {
        let last = self.last.entry(node).or_insert(self.ticks);
        let is_due = self.ticks >= *last + AGAIN;
        if is_due {
            *last = self.ticks;
        }
        is_due
    }
}

impl Core {
    /// Whether an answer to a heartbeat is to be taken for nothing but that: the node is there.
    pub(super) fn is_only_there(&mut self, message: &Message) -> bool {
        let raft = &mut self.node.raft;
        if message.term != raft.term {
            return false;
        }
        let Some(progress) = raft.mut_prs().get_mut(message.from) else { return false };
        if !progress.is_paused() {
            self.lacks.waits.probing.last.remove(&message.from);
            return false;
        }
        progress.recent_active = true;
        !self.lacks.waits.probing.is_due(message.from)
    }
}
