//! Whose files they are, and by which keys they are sealed.

use crate::crypt::Keys;
use crate::identity::Identity;

/// Who has files: an identity, and the keys that were given.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Cluster and node.
    pub identity: Identity,
    /// By these what is written is sealed, and what was written is opened.
    pub keys: Keys,
}

impl From<Identity> for Owner {
    /// One without keys.
    fn from(identity: Identity) -> Self {
        Self { identity, keys: Keys::none() }
    }
}
