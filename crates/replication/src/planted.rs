//! Bugs to have on purpose, so that it can be shown that the simulation notices them.

/// A bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// A read is answered without asking anybody whether this node still leads.
    ReadWithoutProof,
    /// An entry of an older term is taken for committed once a majority has it.
    CommitByCounting,
    /// A vote is answered before it is synced.
    VoteBeforeSync,
    /// Entries are acknowledged before they are synced.
    AppendBeforeSync,
    /// A node that only follows counts for the majority.
    LearnerCounted,
    /// A node whose disk is new takes part under the number that it had.
    WipedNodeVotes,
}
