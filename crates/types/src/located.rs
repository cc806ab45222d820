//! Where the parts of a database are: which nodes it has, and which of them leads.

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
