//! Files of the real world: the standard library's, with errors that name operation and path.
//!
//! `sync_data` is `fdatasync` on Linux; on Apple's systems the standard library asks the drive
//! itself (`F_FULLFSYNC`) for both kinds of sync, which is what durability takes there.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk_room::DiskRoom;
use crate::failure::{IoError, IoResult, disk_full, file_error};
use crate::open::Open;

/// The file system.
pub(crate) struct RealFiles;

impl RealFiles {
    pub(crate) fn create_dir_all(path: &Path, is_private: bool) -> IoResult<()> {
        if path.is_dir() {
            return Ok(());
        }
        let failed = |error| file_error("create directory", path, error, true);
        // Those above first, each synced into its own parent, so that the whole way there is
        // durable.
        let parent = parent_of(path);
        if parent != path {
            Self::create_dir_all(parent, is_private)?;
        }
        let mode = if is_private { 0o700 } else { 0o777 };
        match std::fs::DirBuilder::new().mode(mode).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            Err(error) => Err(failed(error)),
            Ok(()) => Self::sync_dir(parent),
        }
    }

    pub(crate) fn open(path: &Path, open: Open, is_private: bool) -> IoResult<RealFile> {
        let mut options = std::fs::OpenOptions::new();
        let is_private = is_private || open == Open::CreatePrivate;
        options.read(true).write(open.writes()).mode(if is_private { 0o600 } else { 0o666 });
        match open {
            Open::Read | Open::Write => &mut options,
            Open::Create => options.create(true),
            Open::CreateNew | Open::CreatePrivate => options.create_new(true),
            Open::Truncate => options.create(true).truncate(true),
        };
        let file =
            options.open(path).map_err(|error| file_error("open", path, error, open.writes()))?;
        Ok(RealFile { inner: Arc::new(Inner { file, path: path.to_path_buf() }) })
    }

    pub(crate) fn remove(path: &Path) -> IoResult<()> {
        std::fs::remove_file(path).map_err(|error| file_error("remove", path, error, true))
    }

    pub(crate) fn remove_dir_all(path: &Path) -> IoResult<()> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error| file_error("remove directory", path, error, true)),
        }
    }

    pub(crate) fn remove_dir_if_empty(path: &Path) -> IoResult<bool> {
        use io::ErrorKind::{DirectoryNotEmpty, NotFound};
        match std::fs::remove_dir(path) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), DirectoryNotEmpty | NotFound) => Ok(false),
            Err(error) => Err(file_error("remove directory", path, error, true)),
        }
    }

    pub(crate) fn rename(from: &Path, to: &Path) -> IoResult<()> {
        std::fs::rename(from, to).map_err(|error| file_error("rename", from, error, true))
    }

    pub(crate) fn list(dir: &Path) -> IoResult<Vec<String>> {
        let failed = |error| file_error("list", dir, error, false);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().into_string().ok());
        }
        // The file system's order differs from run to run.
        names.sort_unstable();
        Ok(names)
    }

    pub(crate) fn exists(path: &Path) -> IoResult<bool> {
        match path.try_exists() {
            // Below a file there is nothing.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
            found => found.map_err(|error| file_error("look for", path, error, false)),
        }
    }

    pub(crate) fn sync_dir(dir: &Path) -> IoResult<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let synced = std::fs::File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| file_error("sync directory", dir, error, true))
    }

    pub(crate) fn is_open_to_others(path: &Path) -> IoResult<bool> {
        let metadata = std::fs::metadata(path);
        let mode = metadata
            .map_err(|error| file_error("look at", path, error, false))?
            .permissions()
            .mode();
        Ok(mode & 0o077 != 0)
    }

    pub(crate) fn room(path: &Path) -> IoResult<DiskRoom> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let space = rustix::fs::statvfs(path)
            .map_err(|error| file_error("free space of", path, error.into(), false))?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(DiskRoom { free: bytes(space.f_bavail), size: bytes(space.f_blocks) })
    }

    pub(crate) fn temporary_dir(prefix: &str) -> IoResult<PathBuf> {
        let mut random = [0; 8];
        crate::real::world::fill_random(&mut random);
        let path =
            std::env::temp_dir().join(format!("{prefix}-{:016x}", u64::from_le_bytes(random)));
        // What lies in it is its owner's alone: other users may look around where temporary files
        // are.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| file_error("create directory", &path, error, true))?;
        Ok(path)
    }
}

/// The directory that `path` is in; `.` for a bare name.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// An open file.
#[derive(Clone)]
pub(crate) struct RealFile {
    inner: Arc<Inner>,
}

struct Inner {
    file: std::fs::File,
    path: PathBuf,
}

impl RealFile {
    pub(crate) fn path(&self) -> &Path {
        &self.inner.path
    }

    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> IoResult<usize> {
        loop {
            match self.inner.file.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| self.failed("read", error, false)),
            }
        }
    }

    pub(crate) fn write_all_at(&self, offset: u64, bytes: &[u8]) -> IoResult<()> {
        self.inner.file.write_all_at(bytes, offset).map_err(|error| match error.kind() {
            // What a file system without room left sometimes says instead.
            io::ErrorKind::WriteZero => disk_full("write", self.path()),
            _ => self.failed("write", error, true),
        })
    }

    pub(crate) fn sync_data(&self) -> IoResult<()> {
        self.inner.file.sync_data().map_err(|error| self.failed("sync", error, true))
    }

    pub(crate) fn sync_all(&self) -> IoResult<()> {
        self.inner.file.sync_all().map_err(|error| self.failed("sync", error, true))
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn forget_cached(&self) -> IoResult<()> {
        rustix::fs::fadvise(&self.inner.file, 0, None, rustix::fs::Advice::DontNeed)
            .map_err(|error| self.failed("forget what is in memory of", error.into(), false))
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "what Linux can do")]
    pub(crate) fn forget_cached(&self) -> IoResult<()> {
        Ok(())
    }

    pub(crate) fn len(&self) -> IoResult<u64> {
        let metadata = self.inner.file.metadata();
        Ok(metadata.map_err(|error| self.failed("get length of", error, false))?.len())
    }

    pub(crate) fn set_len(&self, len: u64) -> IoResult<()> {
        self.inner.file.set_len(len).map_err(|error| self.failed("set length of", error, true))
    }

    fn failed(&self, operation: &str, error: io::Error, writing: bool) -> IoError {
        file_error(operation, self.path(), error, writing)
    }
}
