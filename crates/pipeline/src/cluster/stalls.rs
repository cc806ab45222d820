//! Followers that take nothing.
//!
//! Whoever can be reached seems to be well, and counts as one of those of whom a majority has to be
//! there. If it lacks entries and its disk takes none, for whatever reason, a commit gets nowhere
//! by it. The leader sees that: how far each of the others has synced what it has.
//!
//! Always: who lacks nothing, or has come further lately, is not named.

use plinth_replication::{Follower, NodeId, Standing};
use plinth_types::planted;
use std::collections::BTreeMap;
use std::time::Duration;

/// After so long without one more entry.
const LONG: Duration = Duration::from_secs(30);

/// How far the others were, and since when.
#[derive(Default)]
pub(crate) struct Stalls {
    since: BTreeMap<NodeId, (u64, Duration)>,
}

impl Stalls {
    /// How this node and the others stand now. To be called now and then.
    pub fn look(&mut self, standing: &Standing, now: Duration) {
        let lacks =
            |other: &&Follower| other.synced < standing.committed_index && standing.leads.is_some();
        let lacking = standing.followers.iter().filter(lacks);
        let before = std::mem::take(&mut self.since);
        self.since = lacking
            .map(|other| {
                let same = before.get(&other.node).filter(|(synced, _)| *synced == other.synced);
                // As if whoever can be reached were well.
                let same = same.filter(|_| !planted!("who can be reached is never stalled"));
                (other.node, same.copied().unwrap_or((other.synced, now)))
            })
            .collect();
    }

    /// Who has lacked entries for long, and taken none.
    pub fn stalled(&self, now: Duration) -> Vec<NodeId> {
        let is_long = |since: Duration| now.saturating_sub(since) >= LONG;
        let stalled = self.since.iter().filter(|(_, (_, since))| is_long(*since));
        stalled.map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(others: &[(NodeId, u64)]) -> Standing {
        let follower = |&(node, synced): &(NodeId, u64)| Follower { node, synced, is_active: true };
        let followers = others.iter().map(follower).collect();
        Standing { followers, leads: Some(3), committed_index: 100, ..Standing::default() }
    }

    #[test]
    fn who_takes_nothing_is_named_after_a_while_and_until_it_takes_something() {
        let (mut stalls, second) = (Stalls::default(), Duration::from_secs(1));
        for at in 0..40 {
            // The second takes one now and then, the third has all.
            let others = [(1, 7), (2, 7 + at / 20), (3, 100)];
            stalls.look(&standing(&others), at as u32 * second);
            let stalled: &[NodeId] = if at < 30 { &[] } else { &[1] };
            assert_eq!(stalls.stalled(at as u32 * second), stalled, "after {at} seconds");
        }
        stalls.look(&standing(&[(1, 8)]), 41 * second);
        assert!(stalls.stalled(41 * second).is_empty());
        stalls.look(&standing(&[(1, 8)]), 80 * second);
        assert_eq!(stalls.stalled(80 * second), [1]);
        // Whoever leads no more knows nothing of it.
        stalls.look(&Standing { leads: None, ..standing(&[(1, 8)]) }, 81 * second);
        assert!(stalls.stalled(120 * second).is_empty());
    }
}
