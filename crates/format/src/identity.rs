//! Whose files they are.

use crate::field::{array_at, put};

/// Bytes of an identity in a file: two ids.
pub const IDENTITY_LEN: usize = 32;
const ID_LEN: usize = 16;

/// Whose a file is. It stands in every header of log, checkpoints and tables; what belongs to
/// another cluster or node is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Id of the cluster that the node belongs to.
    pub cluster_id: [u8; ID_LEN],
    /// Id of the node.
    pub node_id: [u8; ID_LEN],
}

impl Identity {
    /// The identity in the [`IDENTITY_LEN`] bytes at `at`.
    pub fn at(bytes: &[u8], at: usize) -> Self {
        Self { cluster_id: array_at(bytes, at), node_id: array_at(bytes, at + ID_LEN) }
    }

    /// Writes it.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn put(&self, bytes: &mut [u8], at: usize) {
        put(bytes, at, self.cluster_id);
        put(bytes, at + ID_LEN, self.node_id);
    }
}

/// An id as people are told it.
pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
