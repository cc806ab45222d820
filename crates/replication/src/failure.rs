//! What consensus refuses, and FoundationDB's number for it.
//!
//! The log of several nodes is a log, so whoever appends to it or reads it gets a
//! [`LogError`]. What stands here is said of messages between nodes, of who
//! is a member, and of a node's configuration.

use plinth_log::LogError;
use plinth_types::{Error, layer_error};

/// What consensus answers.
pub type ReplicationResult<T> = Result<T, ReplicationError>;

/// Consensus did not do what it was asked for.
///
/// Equality is by variant: the text is for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReplicationError {
    /// Bytes that no node writes, or a message that no node sends which keeps to the algorithm.
    Malformed(String),
    /// Bytes of another node that have changed on their way.
    Damaged(String),
    /// A format that this program doesn't read.
    NewerFormat(String),
    /// A protocol that this program doesn't speak.
    Incompatible(String),
    /// A configuration, or members, that can't be.
    Invalid(String),
    /// What is to be sent is more than fits.
    TooLarge(String),
    /// Not now: another node leads, or another change is under way.
    Behind(String),
    /// This node's disk has lost what it had acknowledged.
    Forgotten(String),
    /// The other nodes have lost what is committed here.
    Lost(String),
}

impl ReplicationError {
    /// FoundationDB's number, and what happened in particular.
    fn number(&self) -> (Error, &str) {
        match self {
            Self::Malformed(what) => (Error::file_corrupt(), what),
            // To restore a backup on one of several servers would be wrong.
            Self::Forgotten(what) | Self::Lost(what) => {
                (Error::file_corrupt().without_advice(), what)
            }
            Self::Damaged(what) => (Error::checksum_failed(), what),
            Self::NewerFormat(what) => (Error::unsupported_operation(), what),
            Self::Incompatible(what) => (Error::incompatible_protocol_version(), what),
            Self::Invalid(what) => (Error::invalid_option_value(), what),
            Self::TooLarge(what) => (Error::client_invalid_operation(), what),
            Self::Behind(what) => (Error::process_behind(), what),
        }
    }

    /// What happened in particular.
    pub fn detail(&self) -> &str {
        self.number().1
    }
}

layer_error!(ReplicationError {});

/// The log ends with it.
impl From<ReplicationError> for LogError {
    fn from(error: ReplicationError) -> Self {
        use ReplicationError as E;
        match error {
            E::Malformed(what) | E::Damaged(what) => Self::Malformed(what),
            E::Forgotten(_) | E::Lost(_) => Self::Refused((&error).into()),
            E::NewerFormat(what) => Self::ForeignFormat(what),
            E::Incompatible(what) => Self::Incompatible(what),
            E::Invalid(what) => Self::Option(what),
            E::TooLarge(what) => Self::Misused(what),
            E::Behind(what) => Self::Behind(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts and bindings know these numbers, whether they come by the log or not.
    #[test]
    fn each_variant_has_its_number_of_foundationdbs() {
        let what = || "what happened".to_owned();
        let numbers = [
            (ReplicationError::Malformed(what()), 1522),
            (ReplicationError::NewerFormat(what()), 2108),
            (ReplicationError::Incompatible(what()), 2100),
            (ReplicationError::Invalid(what()), 2006),
            (ReplicationError::TooLarge(what()), 2000),
            (ReplicationError::Behind(what()), 1037),
            (ReplicationError::Forgotten(what()), 1522),
            (ReplicationError::Lost(what()), 1522),
        ];
        for (error, number) in numbers {
            let told = Error::from(&error);
            assert_eq!((told.code(), told.detail()), (number, Some("what happened")), "{error:?}");
            assert_eq!(error.to_string(), told.to_string(), "users see the words of the number");
            let by_the_log = Error::from(LogError::from(error));
            assert_eq!((by_the_log.code(), by_the_log.detail()), (number, told.detail()));
        }
        assert_eq!(Error::from(ReplicationError::Damaged(what())).code(), 1520);
    }
}
