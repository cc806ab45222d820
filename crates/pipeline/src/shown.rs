//! A node as status and metrics show it: its replica, and the leader that it may be besides.
//!
//! A node that doesn't lead shows what an idle leader would: empty queues, and nothing held back.

use crate::cluster::{CatchingUp, Membership, RowsTaken, Standing};
use crate::gate::Limits;
use crate::leader::Leader;
use crate::replica::Replica;
use plinth_replication::{HeldBack, NodeId};
use std::sync::Arc;

/// What is shown of a node.
pub(crate) struct Shown {
    pub replica: Arc<Replica>,
    pub leader: Option<Arc<Leader>>,
    /// Of a member of a cluster: how it stands there.
    pub member: Option<ShownMember>,
}

/// What is shown of a member of a cluster.
pub(crate) struct ShownMember {
    pub standing: Standing,
    pub membership: Membership,
    /// How far it is with taking rows in, if it does.
    pub catching_up: Option<CatchingUp>,
    /// All rows, as it took them last, if it did since it was started.
    pub rows_taken: Option<RowsTaken>,
    /// Who keeps the cluster's protocol from rising, if somebody does.
    pub held_back: Option<HeldBack>,
    /// If it leads: who has taken nothing for long although it lacks entries.
    pub stalled: Vec<NodeId>,
}

impl ShownMember {
    /// What it is in its term.
    pub fn role(&self) -> &'static str {
        match (self.standing.leader, self.standing.leads) {
            (_, Some(_)) => "leader",
            (Some(leader), None) if leader == self.membership.node => "elected",
            (Some(_), None) => "follower",
            (None, None) => "candidate",
        }
    }
}

impl Shown {
    /// Bytes that the log takes on the disk, and what the newest checkpoint takes, which is about
    /// what it holds.
    pub fn disk_used(&self) -> u64 {
        let Replica { log, storage, counters, .. } = &*self.replica;
        let log = log.as_ref().map_or(0, |log| log.disk_bytes());
        if let Some(tables) = storage.tables() {
            return log + tables.disk_bytes;
        }
        let has_checkpoint = counters.checkpoints.get() > 0;
        log + if has_checkpoint { storage.memory().data } else { 0 }
    }

    /// How many transactions wait to be committed, and their bytes.
    pub fn queued(&self) -> (usize, usize) {
        self.leader.as_ref().map_or((0, 0), |leader| leader.queue.depth())
    }

    /// Batches in flight.
    pub fn in_flight(&self) -> usize {
        self.leader.as_ref().map_or(0, |leader| leader.in_flight.len())
    }

    /// How many transactions wait to begin.
    pub fn waiting(&self) -> usize {
        self.leader.as_ref().map_or(0, |leader| leader.gate.waiting())
    }

    /// What limits how many may begin.
    pub fn limits(&self) -> Limits {
        self.leader.as_ref().map_or_else(Limits::default, |leader| leader.gate.limits())
    }

    /// Whether any may begin at once.
    pub fn is_open(&self) -> bool {
        self.leader.as_ref().is_none_or(|leader| leader.gate.is_open())
    }

    /// Tags that are throttled: by hand, and by itself.
    pub fn throttled_tags(&self) -> (usize, usize) {
        self.leader.as_ref().map_or((0, 0), |leader| leader.gate.throttled_tags())
    }
}
