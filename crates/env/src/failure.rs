//! From the operating system's errors to Plinth's.

use std::io;
use std::path::Path;

use plinth_types::{Error, Resource};

/// Whether `error` says that a disk (or the quota on it) is full. Writing can be tried again when
/// there is room.
pub fn is_disk_full(error: &Error) -> bool {
    error.exhausted() == Some(Resource::DiskSpace)
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
        _ if is_out_of_descriptors(error) => {
            Error::io_error().for_want_of(Resource::FileDescriptors)
        }
        _ => Error::io_error(),
    };
    kind.with_detail(format!("{operation} {}: {error}", path.display()))
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
pub(crate) fn disk_full(operation: &str, path: &Path) -> Error {
    Error::file_not_writable()
        .for_want_of(Resource::DiskSpace)
        .with_detail(format!("{operation} {}: no space left on the disk", path.display()))
}

/// The error of taking a lock that somebody has: who, if that is known.
pub(crate) fn lock_taken(path: &Path, holder: Option<String>) -> Error {
    let path = path.display();
    Error::lock_file_failure().with_detail(match holder {
        Some(holder) => format!("{path} is locked by {holder}"),
        None => format!("{path} is locked"),
    })
}

/// The error of reading beyond the end of a file.
pub(crate) fn short_read(path: &Path, offset: u64, wanted: usize, got: usize) -> Error {
    Error::io_error().with_detail(format!(
        "read {}: the file ends {got} bytes after offset {offset}, {wanted} were wanted",
        path.display()
    ))
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
        let error = file_error("write", path, &readonly, true);
        assert_eq!(error, Error::file_not_writable());
        assert!(!is_disk_full(&error), "{error}");
        assert!(!is_disk_full(
            &Error::file_not_writable().with_detail("no space left on the disk")
        ));
    }

    #[test]
    fn a_full_disk_a_full_quota_and_the_want_of_descriptors_are_told_by_the_systems_number() {
        let told = |errno: rustix::io::Errno| {
            file_error("write", Path::new("/data"), &io::Error::from(errno), true).exhausted()
        };
        assert_eq!(told(rustix::io::Errno::NOSPC), Some(Resource::DiskSpace));
        assert_eq!(told(rustix::io::Errno::DQUOT), Some(Resource::DiskSpace));
        assert_eq!(told(rustix::io::Errno::MFILE), Some(Resource::FileDescriptors));
        assert_eq!(told(rustix::io::Errno::NFILE), Some(Resource::FileDescriptors));
        assert_eq!(told(rustix::io::Errno::IO), None);
    }
}
