//! Why a query has no answer, in one line that a client can show.

use crate::error::Error;
use std::fmt;

/// The result of what a query can fail in.
pub type QueryResult<T> = Result<T, QueryError>;

/// Why a query has no answer, or no more of it. Its text begins as Akumuli's does for the same
/// cause, then says where and what to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum QueryError {
    /// The query is none: which field, what was expected there, what was found.
    Query(String),
    /// No series is as the query wants it.
    NotFound(String),
    /// More series or points at once than a query may have.
    TooMany(String),
    /// The series could not be read.
    Series(Error),
}

impl QueryError {
    /// Something is wrong with a field.
    pub(crate) fn field(field: &str, why: impl fmt::Display) -> Self {
        Self::Query(format!("field `{field}`: {why}"))
    }
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        match error {
            Error::TooMany { what } => Self::TooMany(what),
            error => Self::Series(error),
        }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(why) => write!(f, "query parsing error: {why}"),
            Self::NotFound(what) => write!(f, "not found: {what}"),
            Self::TooMany(what) => {
                write!(f, "high cardinality, lower cardinality required: {what}")
            }
            Self::Series(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for QueryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Series(error) => Some(error),
            _ => None,
        }
    }
}
