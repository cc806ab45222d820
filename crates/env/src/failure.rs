//! What the world outside refuses, and FoundationDB's number for it.
//!
//! Whoever calls reacts to an [`IoErrorKind`]; the text is for people. The numbers stand in one
//! table here, `IoErrorKind::number`.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use plinth_types::{Error, Resource, layer_error};

/// What files and sockets answer.
pub type IoResult<T> = Result<T, IoError>;

/// A call on a file, a directory or a socket failed.
///
/// Equality is by kind alone: the text is for people.
#[derive(Clone)]
pub struct IoError {
    kind: IoErrorKind,
    particulars: Option<Arc<Particulars>>,
}

struct Particulars {
    /// The operation, what it was on, and what the system said.
    what: String,
    cause: Option<io::Error>,
}

/// How a call on a file or a socket failed, as far as callers react differently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// Whatever has no kind of its own: the disk, the file system, a file that ends too early.
    Failed,
    /// There is no such file.
    NotFound,
    /// Reading is not allowed.
    NotReadable,
    /// Writing is not allowed.
    NotWritable,
    /// The disk, or the quota on it, is full. Writing can be tried again when there is room.
    DiskFull,
    /// The file may not be that large.
    TooLarge,
    /// The process, or the machine, has as many files open as it may.
    OutOfDescriptors,
    /// Somebody has the lock.
    Locked,
    /// No thread could be started.
    NoThread,
    /// This build has no sockets.
    NoSockets,
    /// No host of this name is known.
    UnknownHost,
    /// Somebody listens at that address.
    AddressInUse,
    /// The address can't be listened on.
    NotBound,
    /// A connection could not be made or accepted.
    NotConnected,
    /// A connection could not be accepted: the file descriptors left are kept for files.
    TooManyConnections,
}

impl IoError {
    /// An error of this kind; `what` says which operation, on what, and what came of it.
    pub fn new(kind: IoErrorKind, what: impl Into<String>) -> Self {
        Self::of(kind, what.into(), None)
    }

    fn of(kind: IoErrorKind, what: String, cause: Option<io::Error>) -> Self {
        Self { kind, particulars: Some(Arc::new(Particulars { what, cause })) }
    }

    /// How it failed.
    pub const fn kind(&self) -> IoErrorKind {
        self.kind
    }

    /// What happened in particular, if that was known.
    pub fn detail(&self) -> Option<&str> {
        Some(self.particulars.as_ref()?.what.as_str())
    }

    /// Whether a disk (or the quota on it) is full. Writing can be tried again when there is room.
    pub fn is_disk_full(&self) -> bool {
        self.kind == IoErrorKind::DiskFull
    }

    /// Whether a file is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind == IoErrorKind::NotFound
    }

    /// FoundationDB's number, and what happened in particular.
    fn number(&self) -> (Error, &str) {
        (self.kind.number(), self.detail().unwrap_or_default())
    }
}

impl IoErrorKind {
    /// FoundationDB's number for it.
    fn number(self) -> Error {
        match self {
            Self::Failed => Error::io_error(),
            Self::NotFound => Error::file_not_found(),
            Self::NotReadable => Error::file_not_readable(),
            Self::NotWritable => Error::file_not_writable(),
            Self::DiskFull => Error::file_not_writable().for_want_of(Resource::DiskSpace),
            Self::TooLarge => Error::file_too_large(),
            Self::OutOfDescriptors => Error::io_error().for_want_of(Resource::FileDescriptors),
            Self::Locked => Error::lock_file_failure(),
            Self::NoThread => Error::platform_error(),
            Self::NoSockets => Error::unsupported_operation(),
            Self::UnknownHost => Error::lookup_failed(),
            Self::AddressInUse => Error::address_in_use(),
            Self::NotBound => Error::bind_failed(),
            Self::NotConnected => Error::connection_failed(),
            Self::TooManyConnections => {
                Error::connection_failed().for_want_of(Resource::FileDescriptors)
            }
        }
    }
}

layer_error!(IoError);

impl PartialEq for IoError {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for IoError {}

/// Of this kind, with nothing more to say.
impl From<IoErrorKind> for IoError {
    fn from(kind: IoErrorKind) -> Self {
        Self { kind, particulars: None }
    }
}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoError({:?}: {})", self.kind, self.detail().unwrap_or_default())
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.particulars.as_ref()?.cause.as_ref()?)
    }
}

/// Whether `error` says that a disk (or the quota on it) is full. Writing can be tried again when
/// there is room.
pub fn is_disk_full(error: &Error) -> bool {
    error.exhausted() == Some(Resource::DiskSpace)
}

/// The error of `operation` on `path`.
pub(crate) fn file_error(operation: &str, path: &Path, error: io::Error, writing: bool) -> IoError {
    use io::ErrorKind;
    let kind = match error.kind() {
        ErrorKind::NotFound => IoErrorKind::NotFound,
        ErrorKind::PermissionDenied if !writing => IoErrorKind::NotReadable,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => IoErrorKind::NotWritable,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            return IoError::of(IoErrorKind::DiskFull, no_space(operation, path), Some(error));
        }
        ErrorKind::FileTooLarge => IoErrorKind::TooLarge,
        _ if is_out_of_descriptors(&error) => IoErrorKind::OutOfDescriptors,
        _ => IoErrorKind::Failed,
    };
    let what = format!("{operation} {}: {error}", path.display());
    IoError::of(kind, what, Some(error))
}

/// The error of this kind on an address.
pub(crate) fn socket_error(
    kind: IoErrorKind,
    address: std::net::SocketAddr,
    why: impl fmt::Display,
) -> IoError {
    IoError::new(kind, format!("{address}: {why}"))
}

/// Whether the process, or the machine, has as many files open as it may. The standard library has
/// no kind for it.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}

/// The error of `operation` on `path` for want of room.
pub(crate) fn disk_full(operation: &str, path: &Path) -> IoError {
    IoError::new(IoErrorKind::DiskFull, no_space(operation, path))
}

fn no_space(operation: &str, path: &Path) -> String {
    format!("{operation} {}: no space left on the disk", path.display())
}

/// The error of taking a lock that somebody has: who, if that is known.
pub(crate) fn lock_taken(path: &Path, holder: Option<String>) -> IoError {
    let path = path.display();
    let what = match holder {
        Some(holder) => format!("{path} is locked by {holder}"),
        None => format!("{path} is locked"),
    };
    IoError::new(IoErrorKind::Locked, what)
}

/// The error of reading beyond the end of a file.
pub(crate) fn short_read(path: &Path, offset: u64, wanted: usize, got: usize) -> IoError {
    let path = path.display();
    let what = format!(
        "read {path}: the file ends {got} bytes after offset {offset}, {wanted} were wanted"
    );
    IoError::new(IoErrorKind::Failed, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `is_disk_full` once looked for words in a text that holds the path: in such a directory, a
    /// log whose record could not be taken back was not poisoned.
    #[test]
    fn a_path_that_speaks_of_space_makes_no_full_disk_of_another_error() {
        let path = Path::new("/var/no space left/log");
        let readonly = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        let error = file_error("write", path, readonly, true);
        assert_eq!(error.kind(), IoErrorKind::NotWritable);
        assert!(!error.is_disk_full(), "{error}");
        assert!(!is_disk_full(&Error::from(error)));
        assert!(!is_disk_full(
            &Error::file_not_writable().with_detail("no space left on the disk")
        ));
    }

    #[test]
    fn a_full_disk_a_full_quota_and_the_want_of_descriptors_are_told_by_the_systems_number() {
        let told = |errno: rustix::io::Errno| {
            file_error("write", Path::new("/data"), io::Error::from(errno), true).kind()
        };
        assert_eq!(told(rustix::io::Errno::NOSPC), IoErrorKind::DiskFull);
        assert_eq!(told(rustix::io::Errno::DQUOT), IoErrorKind::DiskFull);
        assert_eq!(told(rustix::io::Errno::MFILE), IoErrorKind::OutOfDescriptors);
        assert_eq!(told(rustix::io::Errno::NFILE), IoErrorKind::OutOfDescriptors);
        assert_eq!(told(rustix::io::Errno::IO), IoErrorKind::Failed);
    }

    /// Scripts and bindings know these numbers.
    #[test]
    fn each_kind_has_its_number_of_foundationdbs() {
        let numbers = [
            (IoErrorKind::Failed, 1510),
            (IoErrorKind::NotFound, 1511),
            (IoErrorKind::NotReadable, 1513),
            (IoErrorKind::NotWritable, 1514),
            (IoErrorKind::DiskFull, 1514),
            (IoErrorKind::TooLarge, 1516),
            (IoErrorKind::OutOfDescriptors, 1510),
            (IoErrorKind::Locked, 1529),
            (IoErrorKind::NoThread, 1500),
            (IoErrorKind::NoSockets, 2108),
            (IoErrorKind::UnknownHost, 1041),
            (IoErrorKind::AddressInUse, 2105),
            (IoErrorKind::NotBound, 1512),
            (IoErrorKind::NotConnected, 1026),
            (IoErrorKind::TooManyConnections, 1026),
        ];
        for (kind, number) in numbers {
            let error = IoError::new(kind, "open /a");
            let told = Error::from(&error);
            assert_eq!((told.code(), told.detail()), (number, Some("open /a")), "{kind:?}");
            assert_eq!(error.to_string(), told.to_string(), "users see the words of the number");
            let exhausted = match kind {
                IoErrorKind::DiskFull => Some(Resource::DiskSpace),
                IoErrorKind::OutOfDescriptors | IoErrorKind::TooManyConnections => {
                    Some(Resource::FileDescriptors)
                }
                _ => None,
            };
            assert_eq!(told.exhausted(), exhausted, "{kind:?}");
        }
    }

    #[test]
    fn what_the_system_said_is_the_source() {
        let denied = io::Error::from(rustix::io::Errno::ACCESS);
        let error = file_error("open", Path::new("/data"), denied, true);
        let source = std::error::Error::source(&error).unwrap();
        let source = source.downcast_ref::<io::Error>().unwrap();
        assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
    }
}
