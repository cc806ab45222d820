//! Where the parts of a database are: which nodes it has, which of them leads, and who says so.

use crate::planted;

/// What a node knows of its cluster.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Located {
    /// The newest term that it has heard of: of two answers the one with the later term is right. 0
    /// where one server is all there is.
    pub term: u64,
    /// The node that says so.
    pub node: u64,
    /// The node that leads in that term; `None` while nobody is known to.
    pub leader: Option<u64>,
    /// All nodes.
    pub members: Vec<LocatedMember>,
}

/// A node of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedMember {
    /// Which one.
    pub node: u64,
    /// Where it listens, as `host:port`.
    pub address: String,
    /// Whether it counts for the majority.
    pub votes: bool,
}

impl Located {
    /// The address of the node that leads.
    pub fn leader_address(&self) -> Option<&str> {
        let member = self.members.iter().find(|member| Some(member.node) == self.leader)?;
        Some(&member.address)
    }
}

/// Who has to agree that a node leads, for a version that it gave to be one to read at: a majority
/// of these. Whoever follows it in that term, at a moment after the version was asked for, agrees;
/// the leader does itself.
///
/// A majority that knew of no later term then had elected no other leader until the version was
/// asked for. So nothing had been acknowledged by then that the one who gave it doesn't know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quorum {
    /// The term in which the node leads.
    pub term: u64,
    /// The node.
    pub leader: u64,
    /// Those who vote, itself among them.
    pub voters: Vec<u64>,
}

impl Quorum {
    /// Whether those who have said how they stand, and the leader itself, are a majority.
    pub fn is_met(&self, said: &[Standing]) -> bool {
        let agrees = |voter: &&u64| {
            let has_said = |it: &Standing| it.node == **voter && self.is_agreed_by(it);
            **voter == self.leader || said.iter().any(has_said)
        };
        let is_met = self.voters.iter().filter(agrees).count() * 2 > self.voters.len();
        is_met || planted!("read versions are not proven")
    }

    /// Whether who stands so votes, and follows the leader in its term.
    pub fn is_agreed_by(&self, standing: &Standing) -> bool {
        (standing.term, standing.follows) == (self.term, Some(self.leader))
            && self.voters.contains(&standing.node)
    }
}

/// Whom a node follows: nobody has got its vote for a later term until it said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The node that says so.
    pub node: u64,
    /// The newest term that it has heard of.
    pub term: u64,
    /// The node that leads in that term as far as it knows, which is not itself.
    pub follows: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_voters_that_follow_the_leader_in_its_term_is_needed() {
        let follows = |node, term, leader| Standing { node, term, follows: Some(leader) };
        let quorum = |voters: &[u64]| Quorum { term: 3, leader: 1, voters: voters.to_vec() };
        let three = quorum(&[1, 2, 5]);
        assert!(three.is_met(&[follows(5, 3, 1)]));
        for nobody in [
            follows(5, 4, 1),
            follows(5, 2, 1),
            follows(5, 3, 2),
            follows(4, 3, 1),
            Standing { node: 5, term: 3, follows: None },
        ] {
            assert!(!three.is_met(&[nobody]), "{nobody:?}");
        }
        assert!(!three.is_met(&[]) && quorum(&[1]).is_met(&[]));
        let five = quorum(&[1, 2, 3, 4, 5]);
        assert!(!five.is_met(&[follows(2, 3, 1), follows(2, 3, 1)]), "one twice is one");
        assert!(five.is_met(&[follows(2, 3, 1), follows(4, 3, 1)]));
        let two = quorum(&[2, 3]);
        assert!(!two.is_met(&[follows(2, 3, 1)]), "a leader that has no vote any more");
        assert!(two.is_met(&[follows(2, 3, 1), follows(3, 3, 1)]));
    }
}
