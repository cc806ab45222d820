//! What became of a commit, however that was learnt: by its answer, or by looking for it
//! afterwards.

use plinth_types::{Error, Result, Version, Versionstamp};

/// What became of a commit.
pub(super) struct Done {
    /// Where it wrote anything.
    pub(super) version: Option<Version>,
    pub(super) stamp: Result<Versionstamp>,
}

impl Done {
    /// A commit of a transaction that wrote nothing.
    pub(super) fn nothing() -> Self {
        Self { version: None, stamp: Err(Error::no_commit_version()) }
    }
}
