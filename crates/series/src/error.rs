//! What can go wrong with series.

use plinth_client::TransactError;
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
    /// A name of a series that is none.
    Name {
        /// Its beginning.
        name: String,
        /// Why it is none.
        why: String,
    },
    /// Somebody else has taken these series over: nothing can be read or written here any more.
    /// Open them again if they are yours.
    NotOwner,
    /// More points wait to be saved than may: call `sync`, then append again. Nothing was appended.
    Behind,
    /// The series was deleted, or retention has taken its last point; open it again to begin a new
    /// one.
    Deleted,
    /// These series were opened to be read alone.
    ReadOnly,
    /// A series of a metric that isn't among those of [`SeriesStore::within`], which are all that
    /// there are for whoever asks.
    ///
    /// [`SeriesStore::within`]: crate::SeriesStore::within
    Denied {
        /// The metric.
        metric: String,
    },
    /// Too much of a kind, such as deleted spans of one series.
    TooMany {
        /// Of what, and how many there may be.
        what: String,
    },
    /// The database is locked (1038), or the keys of the series are (1242): nothing is read or
    /// written until whoever locked it unlocks it. What was appended stays in memory meanwhile.
    Locked(plinth_types::Error),
    /// The database below failed; its error says what can be done.
    Database(plinth_types::Error),
}

impl From<plinth_types::Error> for Error {
    fn from(error: plinth_types::Error) -> Self {
        Self::Database(error)
    }
}

impl Error {
    /// The same, but for a locked database, which is a kind of its own: see `store::retry`.
    pub(crate) fn or_locked(self) -> Self {
        match self {
            Self::Database(error)
                if [
                    plinth_types::Error::database_locked(),
                    plinth_types::Error::transaction_rejected_range_locked(),
                ]
                .contains(&error) =>
            {
                Self::Locked(error)
            }
            other => other,
        }
    }

    /// Stored bytes of `what` are wrong.
    pub(crate) fn damaged(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), why: why.into() }
    }
}

/// So that bodies of transactions may give errors of series: see
/// [`plinth_client::Database::try_transact`].
impl TransactError for Error {
    fn database_error(&self) -> Option<&plinth_types::Error> {
        match self {
            Self::Database(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { what, why } => write!(f, "{what} is damaged: {why}"),
            Self::Name { name, why } => write!(f, "{name:?} is no name of a series: {why}"),
            Self::NotOwner => write!(f, "somebody else has taken these series over"),
            Self::Behind => write!(f, "too many points wait to be saved"),
            Self::Deleted => write!(f, "the series was deleted"),
            Self::ReadOnly => write!(f, "these series were opened to be read alone"),
            Self::Denied { metric } => {
                write!(f, "permission_denied (6000): no grant covers writing the metric {metric:?}")
            }
            Self::TooMany { what } => write!(f, "too many: {what}"),
            Self::Locked(error) if *error == plinth_types::Error::database_locked() => write!(
                f,
                "database_locked (1038): the database is locked; `plinth shell` shows it (status), and unlocks it (unlock UID)"
            ),
            Self::Locked(error) => error.fmt(f),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Database(error) => Some(error),
            _ => None,
        }
    }
}
