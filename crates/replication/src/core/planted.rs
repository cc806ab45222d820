//! The step with a bug that was asked for; without the feature, as it is.
//!
//! Each method stands where the step does what a bug changes, and does nothing unless that bug is
//! planted.

use super::{Config, Core};
use crate::message::Message;
#[cfg(feature = "planted-bugs")]
use crate::message::MessageKind;
#[cfg(feature = "planted-bugs")]
use crate::planted::Planted;
#[cfg(feature = "planted-bugs")]
use raft::StateRole;
#[cfg(feature = "planted-bugs")]
use raft::eraftpb::ConfChangeType;
use raft::eraftpb::{ConfChangeV2, ConfState};

#[cfg(feature = "planted-bugs")]
impl Config {
    pub(super) fn plants_members(&self) -> bool {
        self.planted == Planted::LearnerCounted
    }

    pub(super) fn planted_conf_state(&self, mut state: ConfState) -> ConfState {
        if self.plants_members() {
            let learners = state.take_learners();
            state.mut_voters().extend(learners);
        }
        state
    }

    pub(super) fn planted_change(&self, mut change: ConfChangeV2) -> ConfChangeV2 {
        for single in change.mut_changes().iter_mut().filter(|_| self.plants_members()) {
            if single.get_change_type() == ConfChangeType::AddLearnerNode {
                single.set_change_type(ConfChangeType::AddNode);
            }
        }
        change
    }
}

#[cfg(not(feature = "planted-bugs"))]
impl Config {
    pub(super) const fn plants_members(&self) -> bool {
        false
    }

    pub(super) fn planted_conf_state(&self, state: ConfState) -> ConfState {
        state
    }

    pub(super) fn planted_change(&self, change: ConfChangeV2) -> ConfChangeV2 {
        change
    }
}

#[cfg(feature = "planted-bugs")]
impl Core {
    pub(super) fn plant_early_messages(&self, after: &mut Vec<Message>, now: &mut Vec<Message>) {
        let early = match self.config.planted {
            Planted::VoteBeforeSync => MessageKind::VoteReply,
            Planted::AppendBeforeSync => MessageKind::AppendReply,
            _ => return,
        };
        now.extend(after.extract_if(.., |message| message.kind == early));
    }

    pub(super) fn plant_counting(&mut self) {
        let raft = &mut self.node.raft;
        if self.config.planted != Planted::CommitByCounting || raft.state != StateRole::Leader {
            return;
        }
        let mut matched: Vec<_> = self
            .members
            .voters()
            .iter()
            .filter_map(|id| raft.prs().get(*id))
            .map(|one| one.matched)
            .collect();
        matched.sort_unstable();
        let counted = matched[(matched.len() - 1) / 2];
        if counted > raft.raft_log.committed {
            raft.raft_log.commit_to(counted);
        }
    }
}

#[cfg(not(feature = "planted-bugs"))]
impl Core {
    pub(super) const fn plant_early_messages(
        &self,
        _after: &mut Vec<Message>,
        _now: &mut Vec<Message>,
    ) {
    }

    pub(super) const fn plant_counting(&mut self) {}
}
