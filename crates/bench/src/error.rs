//! What can stop a benchmark.

use std::fmt;

/// The result of a benchmark's steps.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can stop a benchmark, or one workload of it.
#[derive(Clone, PartialEq, Debug)]
pub enum Error {
    /// The database said so. Its text says what to do.
    Database(plinth_types::Error),
    /// There is no such workload: choose one that is known.
    UnknownWorkload {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The database holds something else than the rows asked for: give another directory, or the
    /// same number of rows.
    OtherData(String),
    /// This workload can't run here, for the reason given; others can.
    Skipped(String),
    /// The user asked to stop.
    Interrupted,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(error) => write!(f, "{error}"),
            Self::UnknownWorkload { name, known } => {
                write!(
                    f,
                    "there is no workload `{name}`; choose from {known}, or guide, cluster, performance, kpi, published, own, default, all"
                )
            }
            Self::OtherData(what) | Self::Skipped(what) => f.write_str(what),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {}

impl From<plinth_env::IoError> for Error {
    fn from(error: plinth_env::IoError) -> Self {
        Self::Database(error.into())
    }
}

impl From<plinth_types::Error> for Error {
    fn from(error: plinth_types::Error) -> Self {
        Self::Database(error)
    }
}
