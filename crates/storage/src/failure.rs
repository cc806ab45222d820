//! What the storage refuses, and FoundationDB's number for it.
//!
//! A variant is there where somebody reacts to it; the text says what happened in particular. The
//! numbers stand in one table, `StorageError::number`.

use plinth_env::{IoError, Reply, Unanswered};
use plinth_format::Corruption;
use plinth_types::{Error, layer_error};
use std::sync::Arc;

/// What the storage answers.
pub type StorageResult<T> = Result<T, StorageError>;

/// What the storage answers to a read, now or later.
pub type Answer<T> = Reply<T, StorageError>;

/// The storage did not do what it was asked for.
///
/// Equality is by variant, and that of what came from below: the text is for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StorageError {
    /// A call on a file failed.
    Io(IoError),
    /// A file is damaged.
    Corrupt(Arc<Corruption>),
    /// A file is not the one that belongs there.
    Foreign(Arc<str>),
    /// A file, or a chunk of rows, has a format that this program doesn't read.
    NewerFormat(Arc<str>),
    /// A file is encrypted, and the key is not there.
    Locked(Arc<str>),
    /// The version has left the window.
    TooOld(Arc<str>),
    /// The version is yet to come.
    Future(Arc<str>),
    /// The engine doesn't do this.
    Unsupported(Arc<str>),
    /// A chunk of rows that doesn't go on where the one before it ended.
    OutOfPlace(Arc<str>),
    /// The engine closes.
    Closed,
    /// Nothing came of it, since the engine closes.
    Cancelled,
    /// Whoever should have answered has not.
    Unanswered(Unanswered),
}

impl StorageError {
    /// Whether a disk (or the quota on it) is full. It can be tried again when there is room.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_disk_full())
    }

    /// Whether a file is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_not_found())
    }

    /// Whether a file is damaged, or another one than it should be.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::Foreign(_))
    }

    /// FoundationDB's number, and what happened in particular.
    fn number(&self) -> (Error, &str) {
        match self {
            Self::Io(error) => (error.into(), ""),
            Self::Corrupt(corruption) => ((&**corruption).into(), ""),
            Self::Foreign(what) => (Error::file_corrupt(), what),
            Self::NewerFormat(what) | Self::Unsupported(what) => {
                (Error::unsupported_operation(), what)
            }
            Self::Locked(what) => (Error::encrypt_key_not_found(), what),
            Self::TooOld(what) => (Error::transaction_too_old(), what),
            Self::Future(what) => (Error::future_version(), what),
            Self::OutOfPlace(what) => (Error::client_invalid_operation(), what),
            Self::Closed => (Error::shutdown_in_progress(), ""),
            Self::Cancelled => (Error::operation_cancelled(), ""),
            Self::Unanswered(why) => ((*why).into(), ""),
        }
    }
}

layer_error!(StorageError { Io(IoError), Corrupt(Corruption), Unanswered(Unanswered) });

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::IoErrorKind;

    /// Scripts and bindings know these numbers.
    #[test]
    fn each_variant_has_its_number_of_foundationdbs() {
        let what = || "what happened".into();
        let numbers = [
            (StorageError::Foreign(what()), 1522),
            (StorageError::NewerFormat(what()), 2108),
            (StorageError::Locked(what()), 2702),
            (StorageError::TooOld(what()), 1007),
            (StorageError::Future(what()), 1009),
            (StorageError::Unsupported(what()), 2108),
            (StorageError::OutOfPlace(what()), 2000),
        ];
        for (error, number) in numbers {
            let told = Error::from(&error);
            assert_eq!((told.code(), told.detail()), (number, Some("what happened")), "{error:?}");
            assert_eq!(error.to_string(), told.to_string(), "users see the words of the number");
        }
        let without = [
            (StorageError::Closed, 1043),
            (StorageError::Cancelled, 1101),
            (StorageError::Unanswered(Unanswered::Broken), 1100),
        ];
        for (error, number) in without {
            let told = Error::from(&error);
            assert_eq!((told.code(), told.detail()), (number, None), "{error:?}");
        }
    }

    #[test]
    fn what_comes_from_below_keeps_its_number_its_words_and_what_there_was_no_more_of() {
        let full = StorageError::from(IoError::new(IoErrorKind::DiskFull, "write /tables"));
        let told = Error::from(&full);
        assert_eq!((told.code(), told.detail()), (1514, Some("write /tables")));
        assert!(full.is_disk_full() && plinth_env::is_disk_full(&told));
        let flaw = plinth_format::Flaw::new("a length", 1, 2).at("/tables/1", 3);
        let told = Error::from(StorageError::from(flaw.clone()));
        assert_eq!((told.code(), told.detail()), (1522, Some(flaw.to_string().as_str())));
        assert!(std::error::Error::source(&full).is_some(), "the call that failed");
    }

    /// Every answer to a read carries one.
    #[test]
    fn an_error_is_no_larger_than_foundationdbs() {
        assert!(size_of::<StorageError>() <= size_of::<Error>());
    }
}
