//! What can go wrong with series.

use std::fmt;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the time-series layer. A kind exists where a caller can react to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Stored bytes are not what was written: restore from a backup, or delete the series.
    Damaged {
        /// Which thing.
        what: String,
        /// What is wrong with it: where, expected, found.
        why: String,
    },
    /// The database below failed; its error says what can be done.
    Database(plinth_types::Error),
}

impl From<plinth_types::Error> for Error {
    fn from(error: plinth_types::Error) -> Self {
        Self::Database(error)
    }
}

impl Error {
    /// Stored bytes of `what` are wrong.
    pub(crate) fn damaged(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), why: why.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { what, why } => write!(f, "{what} is damaged: {why}"),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Database(error) => Some(error),
            Self::Damaged { .. } => None,
        }
    }
}
