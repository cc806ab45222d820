//! What a node refuses, and FoundationDB's number for it.
//!
//! A variant is there where somebody reacts to it, here, at a client or at a program; the text says
//! what happened in particular. The numbers stand in one table, `NodeError::number`. Errors become
//! numbers where a client is answered: at the promises that came with its requests, and in what
//! implements its `Endpoint`. Transactions of the pipeline's own are answered with the error
//! itself.

use plinth_env::{IoError, TaskFailed, Unanswered};
use plinth_format::Corruption;
use plinth_log::LogError;
use plinth_replication::ReplicationError;
use plinth_storage::StorageError;
use plinth_types::{Error, codes, layer_error};
use std::sync::Arc;

/// What a node answers.
pub type NodeResult<T> = Result<T, NodeError>;

/// A node did not do what it was asked for.
///
/// Equality is by variant, and that of what came from below: the text is for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeError {
    /// Another transaction wrote something that this one had read.
    Conflict,
    /// The transaction may or may not be committed.
    Unknown(Arc<str>),
    /// The transaction's version is older than anything that may commit.
    TooOld(Option<Arc<str>>),
    /// The version is yet to come.
    Future,
    /// The database is locked.
    Locked,
    /// A transaction, or another request, that can't be as it is.
    Misused(Arc<str>),
    /// An option, a name or a number that can't be.
    Option(Arc<str>),
    /// As many bytes wait to be committed as may.
    QueueFull(Arc<str>),
    /// As many transactions wait to begin as may.
    GateFull(Arc<str>),
    /// Transactions of batch priority are held back.
    BatchHeldBack,
    /// Transactions with this tag are held back.
    TagHeldBack,
    /// Rows take all the memory that they may take.
    MemoryFull(Arc<str>),
    /// Not by this node, or not now: another one leads, or it lacks what others have. Nothing was
    /// done.
    Behind(Option<Arc<str>>),
    /// Another node has said nothing for long.
    Silent(Arc<str>),
    /// The disk has not answered a call for long.
    DiskSilent(Arc<str>),
    /// Another node is at that address.
    AddressTaken(Arc<str>),
    /// This node is no member of its cluster any more.
    Removed(Arc<str>),
    /// A stream has lost changes that it should have.
    Gone(Arc<str>),
    /// This node was made of rows, and lacks older changes of a stream; others may have them.
    Lacking(Arc<str>),
    /// There is no database in the directory, or no directory.
    Missing(Arc<str>),
    /// The directory is somebody else's, or holds another database than may be there.
    Foreign(Arc<str>),
    /// A file of the database, or an entry of its log, is damaged, missing, or another's.
    Damaged(Arc<str>),
    /// The same, for what is known of the file.
    Corrupt(Arc<Corruption>),
    /// A file has a format that this program doesn't read.
    NewerFormat(Arc<str>),
    /// What was opened isn't what its name leads to any more.
    Displaced(Arc<str>),
    /// A database of this kind doesn't do that.
    Unsupported(Arc<str>),
    /// The node closes.
    Closed(Option<Arc<str>>),
    /// A task ended before its time, or what must be there is not.
    Internal(Arc<str>),
    /// A call on a file failed.
    Io(IoError),
    /// The log did not do what it was asked for.
    Log(Arc<LogError>),
    /// The storage did not.
    Storage(StorageError),
    /// Consensus did not.
    Replication(Arc<ReplicationError>),
    /// Whoever should have answered has not.
    Unanswered(Unanswered),
    /// What the words that all crates speak say of themselves, in numbers: mutations, range locks.
    Told(Error),
}

/// Every answer to a transaction carries one.
const _: () = assert!(size_of::<NodeError>() <= 32);

impl NodeError {
    /// Whether a disk (or the quota on it) is full: trying again may succeed.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Io(error) => error.is_disk_full(),
            Self::Log(error) => error.is_disk_full(),
            Self::Storage(error) => error.is_disk_full(),
            _ => false,
        }
    }

    /// Whether what should be there is not.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Self::Io(error) => error.is_not_found(),
            Self::Log(error) => error.is_not_found(),
            Self::Storage(error) => error.is_not_found(),
            other => matches!(other, Self::Missing(_)),
        }
    }

    /// Whether what is there is damaged.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Log(error) => match &**error {
                LogError::Refused(why) => why.code() == codes::FILE_CORRUPT,
                other => other.is_damage(),
            },
            Self::Storage(error) => error.is_damage(),
            Self::Told(error) => error.code() == codes::FILE_CORRUPT,
            other => matches!(other, Self::Damaged(_) | Self::Corrupt(_)),
        }
    }

    /// Whether what is there is somebody else's, or another's.
    pub(crate) fn is_foreign(&self) -> bool {
        match self {
            Self::Log(error) => matches!(**error, LogError::Misused(_)),
            Self::Storage(error) => matches!(error, StorageError::OutOfPlace(_)),
            other => matches!(other, Self::Foreign(_)),
        }
    }

    /// Whether what is there is not for this program to read.
    pub(crate) fn is_unreadable(&self) -> bool {
        use StorageError as S;
        match self {
            Self::Log(error) => {
                matches!(**error, LogError::ForeignFormat(_) | LogError::Unsupported(_))
            }
            Self::Storage(error) => matches!(error, S::NewerFormat(_) | S::Unsupported(_)),
            other => matches!(other, Self::NewerFormat(_) | Self::Unsupported(_)),
        }
    }

    /// Whether entries are asked for that are not there any more.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Log(error) => matches!(**error, LogError::Version(_)),
            other => matches!(other, Self::Gone(_)),
        }
    }

    /// Whether a change was refused because there is, or may be, another one.
    pub(crate) fn is_overtaken(&self) -> bool {
        match self {
            Self::Log(error) => matches!(**error, LogError::Behind(_)),
            Self::Replication(error) => matches!(**error, ReplicationError::Behind(_)),
            other => matches!(other, Self::Behind(_) | Self::Conflict | Self::TooOld(_)),
        }
    }

    /// FoundationDB's number alone, for whoever tells of it.
    pub(crate) fn code(&self) -> i32 {
        self.number().0.code()
    }

    /// FoundationDB's number, and what happened in particular.
    fn number(&self) -> (Error, &str) {
        match self {
            Self::Conflict => (Error::not_committed(), ""),
            Self::Unknown(what) => (Error::commit_unknown_result(), what),
            Self::TooOld(what) => {
                (Error::transaction_too_old(), what.as_deref().unwrap_or_default())
            }
            Self::Future => (Error::future_version(), ""),
            Self::Locked => (Error::database_locked(), ""),
            Self::Misused(what) | Self::Foreign(what) | Self::Removed(what) => {
                (Error::client_invalid_operation(), what)
            }
            Self::Option(what) => (Error::invalid_option_value(), what),
            Self::QueueFull(what) => (Error::commit_proxy_memory_limit_exceeded(), what),
            Self::GateFull(what) => (Error::grv_proxy_memory_limit_exceeded(), what),
            Self::BatchHeldBack => (Error::batch_transaction_throttled(), ""),
            Self::TagHeldBack => (Error::tag_throttled(), ""),
            Self::MemoryFull(what) => (Error::operation_failed(), what),
            Self::Behind(what) => (Error::process_behind(), what.as_deref().unwrap_or_default()),
            Self::Silent(what) => (Error::timed_out(), what),
            Self::DiskSilent(what) => (Error::io_timeout(), what),
            Self::AddressTaken(what) => (Error::address_in_use(), what),
            Self::Gone(what) => (Error::version_invalid(), what),
            Self::Lacking(what) => (Error::wrong_shard_server(), what),
            Self::Missing(what) => (Error::file_not_found(), what),
            Self::Damaged(what) => (Error::file_corrupt(), what),
            Self::Corrupt(corruption) => ((&**corruption).into(), ""),
            Self::NewerFormat(what) | Self::Unsupported(what) => {
                (Error::unsupported_operation(), what)
            }
            Self::Displaced(what) => (Error::io_error(), what),
            Self::Closed(what) => {
                (Error::shutdown_in_progress(), what.as_deref().unwrap_or_default())
            }
            Self::Internal(what) => (Error::internal_error(), what),
            Self::Io(error) => (error.into(), ""),
            Self::Log(error) => ((&**error).into(), ""),
            Self::Storage(error) => (error.into(), ""),
            Self::Replication(error) => ((&**error).into(), ""),
            Self::Unanswered(why) => ((*why).into(), ""),
            Self::Told(error) => (error.clone(), ""),
        }
    }
}

layer_error!(NodeError {
    Io(IoError),
    Log(LogError),
    Storage(StorageError),
    Replication(ReplicationError),
    Corrupt(Corruption),
    Unanswered(Unanswered),
    Told(Error),
});

impl From<TaskFailed> for NodeError {
    fn from(failed: TaskFailed) -> Self {
        Self::Internal(failed.to_string().into())
    }
}

#[cfg(test)]
mod tests;
