//! What the log refuses, and FoundationDB's number for it.
//!
//! A variant is there where somebody reacts to it; the text says what happened in particular. The
//! numbers stand in one table, `LogError::number`.

use std::sync::Arc;

use plinth_env::{IoError, Unanswered};
use plinth_format::Corruption;
use plinth_types::{Error, layer_error};

/// What the log answers.
pub type LogResult<T> = Result<T, LogError>;

/// The log did not do what it was asked for.
///
/// Equality is by variant, and that of what came from below: the text is for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LogError {
    /// A call on a file failed.
    Io(IoError),
    /// A file is damaged.
    Corrupt(Arc<Corruption>),
    /// The body of an entry, or what else is no file, is damaged.
    Malformed(String),
    /// A file has a format that this program doesn't read.
    ForeignFormat(String),
    /// A file is encrypted, and the key is not there.
    Locked(String),
    /// There is no log in this directory.
    Missing(String),
    /// An earlier failure left the files in doubt: the log takes nothing more.
    Poisoned(String),
    /// Nothing more will be appended.
    Closed(String),
    /// Not with this version: it is not above the last one, it is above the lease, or its entries
    /// are gone, for everybody or for this consumer.
    Version(String),
    /// There is no such entry, no such position or no such consumer, or the log is not one that
    /// could do this.
    Misused(String),
    /// An option, a name or a number that can't be.
    Option(String),
    /// The log is not of the kind that does this.
    Unsupported(String),
    /// An entry, or the log, is larger than it may be.
    TooLarge(String),
    /// A task of the log ended before its time, or a number has run out.
    Internal(String),
    /// What was appended may or may not be committed: the term has ended.
    Unknown(String),
    /// The cluster speaks a protocol that this program doesn't.
    Incompatible(String),
    /// Not now: another node leads, or something else is under way. Nothing was appended.
    Behind(String),
    /// Whoever was asked whether the log may be opened, or goes on, has said no, for this reason.
    Refused(Error),
    /// Whoever should have answered has not.
    Unanswered(Unanswered),
}

impl LogError {
    /// Whether a disk (or the quota on it) is full: nothing was appended, and trying again may
    /// succeed.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_disk_full())
    }

    /// Whether a file is not there.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Io(error) => error.is_not_found(),
            other => matches!(other, Self::Missing(_)),
        }
    }

    /// Whether what is there is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::Malformed(_))
    }

    /// FoundationDB's number, and what happened in particular.
    fn number(&self) -> (Error, &str) {
        match self {
            Self::Io(error) => (error.into(), ""),
            Self::Corrupt(corruption) => ((&**corruption).into(), ""),
            Self::Malformed(what) => (Error::file_corrupt(), what),
            Self::ForeignFormat(what) | Self::Unsupported(what) => {
                (Error::unsupported_operation(), what)
            }
            Self::Locked(what) => (Error::encrypt_key_not_found(), what),
            Self::Missing(what) => (Error::file_not_found(), what),
            Self::Poisoned(what) => (Error::io_error(), what),
            Self::Closed(what) => (Error::shutdown_in_progress(), what),
            Self::Version(what) => (Error::version_invalid(), what),
            Self::Misused(what) => (Error::client_invalid_operation(), what),
            Self::Option(what) => (Error::invalid_option_value(), what),
            Self::TooLarge(what) => (Error::file_too_large(), what),
            Self::Internal(what) => (Error::internal_error(), what),
            Self::Unknown(what) => (Error::commit_unknown_result(), what),
            Self::Incompatible(what) => (Error::incompatible_protocol_version(), what),
            Self::Behind(what) => (Error::process_behind(), what),
            Self::Refused(error) => (error.clone(), ""),
            Self::Unanswered(why) => ((*why).into(), ""),
        }
    }
}

layer_error!(LogError { Io(IoError), Corrupt(Corruption), Unanswered(Unanswered) });

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::IoErrorKind;

    /// Scripts and bindings know these numbers.
    #[test]
    fn each_variant_has_its_number_of_foundationdbs() {
        let what = || "what happened".to_owned();
        let numbers = [
            (LogError::Malformed(what()), 1522),
            (LogError::ForeignFormat(what()), 2108),
            (LogError::Locked(what()), 2702),
            (LogError::Missing(what()), 1511),
            (LogError::Poisoned(what()), 1510),
            (LogError::Closed(what()), 1043),
            (LogError::Version(what()), 2011),
            (LogError::Misused(what()), 2000),
            (LogError::Option(what()), 2006),
            (LogError::Unsupported(what()), 2108),
            (LogError::TooLarge(what()), 1516),
            (LogError::Internal(what()), 4100),
            (LogError::Unknown(what()), 1021),
            (LogError::Incompatible(what()), 2100),
            (LogError::Behind(what()), 1037),
        ];
        for (error, number) in numbers {
            let told = Error::from(&error);
            assert_eq!((told.code(), told.detail()), (number, Some("what happened")), "{error:?}");
            assert_eq!(error.to_string(), told.to_string(), "users see the words of the number");
        }
    }

    #[test]
    fn what_comes_from_below_keeps_its_number_its_words_and_what_there_was_no_more_of() {
        let full = LogError::from(IoError::new(IoErrorKind::DiskFull, "write /log"));
        let told = Error::from(&full);
        assert_eq!((told.code(), told.detail()), (1514, Some("write /log")));
        assert!(full.is_disk_full() && plinth_env::is_disk_full(&told));
        let flaw = plinth_format::Flaw::new("a length", 1, 2).at("/log", 3);
        let told = Error::from(LogError::from(flaw.clone()));
        assert_eq!((told.code(), told.detail()), (1522, Some(flaw.to_string().as_str())));
        assert!(std::error::Error::source(&full).is_some(), "the call that failed");
    }
}
