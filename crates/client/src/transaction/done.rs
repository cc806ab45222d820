//! What became of a commit, however that was learnt: by its answer, or by looking for it
//! afterwards.

use plinth_types::version::INVALID_VERSION;
use plinth_types::{Error, Result, Version, Versionstamp};

/// What became of a commit.
pub(super) struct Done {
    pub(super) version: Version,
    pub(super) stamp: Result<Versionstamp>,
}

impl Done {
    /// A commit of a transaction that wrote nothing.
    pub(super) fn nothing() -> Self {
        Self { version: INVALID_VERSION, stamp: Err(Error::no_commit_version()) }
    }
}
