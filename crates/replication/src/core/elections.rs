//! When a node wants an election.
//!
//! `raft` counts ticks: a follower that hears of no leader for a while asks whether it would be
//! voted for, and is a candidate if a majority says so; a candidate that isn't elected in that time
//! begins again, in a term of its own. A candidate votes for itself before it asks, and a vote is
//! synced before it is answered, so an election lasts as long as two syncs, one behind the other.
//! With disks slower than the timeout no term would ever be the last:
//!
//! - While what a node has promised isn't synced, its time doesn't pass: it waits for its own disk.
//! - Once two terms have begun one behind the other and nobody was elected, everybody waits twice
//!   as long in the next one, and so on, up to a bound: for others' disks, and so that not all
//!   begin at once who had to wait for the same vote.
//!
//! A leader is missed as soon as ever.

use super::{Config, Core, mix};
use raft::StateRole;

/// An election lasts so many times as long as it would at first, at most.
pub(super) const MOST_TIMES: usize = 16;

/// Terms that this node has seen begin, one behind the other, and nobody was elected.
#[derive(Default)]
pub(super) struct InVain {
    /// The last of them.
    term: u64,
    terms: u32,
}

impl InVain {
    /// How many times as long as usual is waited in this term.
    fn times(&mut self, term: u64, is_led: bool) -> usize {
        if is_led {
            *self = Self { term, terms: 0 };
        } else if self.term != term {
            *self = Self { term, terms: self.terms.saturating_add(1) };
        }
        let doubled = self.terms.saturating_sub(2);
        1_usize.checked_shl(doubled).map_or(MOST_TIMES, |times| times.min(MOST_TIMES))
    }
}

impl Core {
    /// Time passes.
    pub fn tick(&mut self) {
        self.lacks.waits.probing.tick();
        let is_unsynced = self.would_lead_unsynced() || self.has_unsynced_promise();
        if is_unsynced && self.node.raft.state != StateRole::Leader {
            return;
        }
        self.node.tick();
        self.guard();
        self.say_term();
    }

    /// Wants an election now.
    pub fn campaign(&mut self) {
        if self.would_lead_unsynced() {
            return;
        }
        // It fails for a node that may not lead, which then doesn't.
        let _ = self.node.campaign();
        self.guard();
    }

    /// Whether it would win an election at once, with entries that are not synced: it waits for
    /// them, which `raft` takes for granted. The last voter of several may come to this.
    pub(super) fn would_lead_unsynced(&self) -> bool {
        let raft = &self.node.raft;
        raft.raft_log.persisted < raft.raft_log.last_index()
            && raft.prs().conf().voters().ids().iter().all(|id| id == self.config.id)
    }

    /// Whether its newest term, or vote, is still to be synced.
    pub(super) fn has_unsynced_promise(&self) -> bool {
        self.held.iter().any(|held| held.promises)
    }

    /// Has an election time out after so many ticks as follow from seed, node and term.
    pub(super) fn guard_timeout(&mut self) {
        let Config { id, seed, election_ticks, .. } = self.config;
        let raft = &mut self.node.raft;
        let drawn = mix(seed ^ mix(id ^ mix(raft.term))) % election_ticks as u64;
        let ticks = election_ticks + drawn as usize;
        let times = self.lacks.waits.in_vain.times(raft.term, raft.leader_id != 0);
        raft.set_randomized_election_timeout(ticks.saturating_mul(times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_term_in_vain_lasts_longer_than_the_one_before() {
        let mut in_vain = InVain::default();
        let mut times = |term, is_led| in_vain.times(term, is_led);
        assert_eq!(times(4, true), 1);
        let terms = (5..14).map(|term| {
            assert_eq!(times(term, false), times(term, false), "a term counts once");
            times(term, false)
        });
        assert_eq!(terms.collect::<Vec<_>>(), [1, 1, 2, 4, 8, 16, 16, 16, 16]);
        assert_eq!(times(13, true), 1);
        assert_eq!(times(14, false), 1, "somebody was elected meanwhile");
    }
}
