//! How a node stands in its term: what it is, and what it publishes of that.

use crate::NodeId;

/// What a node is in its term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It leads.
    Leader,
    /// It follows this node, or nobody yet.
    Follower(Option<NodeId>),
    /// It wants to lead.
    Candidate,
}

/// What a node publishes of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stand {
    /// The newest term that it has heard of.
    pub term: u64,
    /// What it is in that term.
    pub role: Role,
    /// If it leads and an entry of its term is committed: up to which index entries are, though not
    /// necessarily synced here.
    pub committed: Option<u64>,
}
