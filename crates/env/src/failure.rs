//! From the operating system's errors to Plinth's.

use std::io;
use std::path::Path;

use plinth_types::Error;

/// What the detail of an error says when a disk is full.
const NO_SPACE: &str = "no space left";

/// Whether `error` says that a disk (or the quota on it) is full. Writing can be tried again when
/// there is room.
pub fn is_disk_full(error: &Error) -> bool {
    error.code() == Error::file_not_writable().code()
        && error.detail().is_some_and(|detail| detail.contains(NO_SPACE))
}

/// The error of `operation` on `path`.
pub(crate) fn file_error(operation: &str, path: &Path, error: &io::Error, writing: bool) -> Error {
    use io::ErrorKind;
    let kind = match error.kind() {
        ErrorKind::NotFound => Error::file_not_found(),
        ErrorKind::PermissionDenied if !writing => Error::file_not_readable(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::file_not_writable(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => return disk_full(operation, path),
        ErrorKind::FileTooLarge => Error::file_too_large(),
        _ => Error::io_error(),
    };
    kind.with_detail(format!("{operation} {}: {error}", path.display()))
}

/// The error of `operation` on `path` for want of room.
pub(crate) fn disk_full(operation: &str, path: &Path) -> Error {
    Error::file_not_writable().with_detail(format!("{operation} {}: {NO_SPACE}", path.display()))
}

/// The error of taking a lock that somebody has.
pub(crate) fn lock_taken(path: &Path) -> Error {
    Error::lock_file_failure().with_detail(path.display().to_string())
}

/// The error of reading beyond the end of a file.
pub(crate) fn short_read(path: &Path, offset: u64, wanted: usize, got: usize) -> Error {
    Error::io_error().with_detail(format!(
        "read {}: the file ends {got} bytes after offset {offset}, {wanted} were wanted",
        path.display()
    ))
}
