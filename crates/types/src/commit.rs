//! What a client sends to commit a transaction, and what it learns.

use crate::{Bytes, MutationList, RangeList, Version};

/// What a transaction read and wrote, as far as conflicts are concerned.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Conflicts {
    /// The version that the transaction read at.
    pub read_version: Version,
    /// What it read: it conflicts if any of this was written after its read version.
    pub reads: RangeList,
    /// What it writes: later commits that read any of this at an older version conflict.
    pub writes: RangeList,
}

/// A transaction on its way to the commit pipeline.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CommitRequest {
    /// What it read and wrote.
    pub conflicts: Conflicts,
    /// What it changes, in order. Operations are normalised: no API version is needed to apply
    /// them.
    pub mutations: MutationList,
    /// Whether it may commit while the database is locked.
    pub lock_aware: bool,
    /// Whether a conflict's reply names the read ranges that conflicted.
    pub report_conflicting_keys: bool,
    /// Under this id the commit leaves a record by which a retry finds out what became of it.
    pub idempotency_id: Option<Bytes>,
}

impl CommitRequest {
    /// The size that is held against the size limit: each mutation 44 bytes and its parameters,
    /// each conflict range 24 bytes and its two keys.
    pub fn size(&self) -> usize {
        let mutations = self.mutations.as_bytes().len() + self.mutations.len() * (44 - 9);
        let ranges = [&self.conflicts.reads, &self.conflicts.writes]
            .map(|list| 24 * list.len() + list.key_bytes());
        mutations + ranges[0] + ranges[1]
    }
}

/// What became of a transaction that reached the commit pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitReply {
    /// It is durable, and visible to every transaction that starts from now on.
    Committed {
        /// The version of its batch.
        version: Version,
        /// Its position in the batch; with the version, its versionstamp.
        batch_index: u16,
    },
    /// Something it read was written after its read version; nothing of it took effect.
    Conflict {
        /// The positions, in its read conflict ranges, of those that conflicted; empty unless asked
        /// for.
        conflicting_reads: Vec<usize>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MutationType;

    #[test]
    fn size_counts_mutations_and_ranges() {
        let mut request = CommitRequest::default();
        assert_eq!(request.size(), 0);
        request.mutations.push(MutationType::Set, b"key", b"value");
        assert_eq!(request.size(), 44 + 8);
        request.conflicts.writes.push_single(b"key");
        assert_eq!(request.size(), 44 + 8 + 24 + 7);
    }
}
