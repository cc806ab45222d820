//! Locks between processes, and within this one.
//!
//! The operating system's file lock (`flock`) excludes other processes and is given back by the
//! system when the process ends, however it ends. On file systems that emulate it (over a network)
//! it does not exclude a second taker in the same process, so taken paths are also kept in a set,
//! under their canonical names.
//!
//! A lock is on a file, not on its name: who removes the file lets another process make one of the
//! same name and lock that. So a lock can be asked whether the name still leads to its file.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::{IoResult, file_error, lock_taken};

static TAKEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn taken() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock that is held.
pub(crate) struct RealLock {
    canonical: PathBuf,
    /// What it was asked for by: a link on the way may lead elsewhere later.
    name: PathBuf,
    /// Closing it gives the system's lock back.
    file: Option<File>,
    /// Device and inode of the file, which nothing else has while it is open. It is asked for at
    /// each commit whether the name still leads there.
    place: (u64, u64),
}

impl RealLock {
    pub(crate) fn take(path: &Path, is_private: bool) -> IoResult<Self> {
        let failed = |error: io::Error| file_error("lock", path, error, true);
        let file = if path.is_dir() {
            File::open(path)
        } else {
            // Write access, because that is what emulations over a network ask for.
            let mode = if is_private { 0o600 } else { 0o666 };
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(mode)
                .open(path)
        };
        let file = file.map_err(failed)?;
        let canonical = std::fs::canonicalize(path).map_err(failed)?;
        let name = std::path::absolute(path).map_err(failed)?;
        let place = place_of(&file.metadata().map_err(failed)?);
        if !taken().insert(canonical.clone()) {
            return Err(lock_taken(path, Some("this process".into())));
        }
        // From here on, dropping the lock takes the name out of the set again.
        let mut lock = Self { canonical, name, file: None, place };
        match file.try_lock() {
            Ok(()) => {
                lock.file = Some(file);
                Ok(lock)
            }
            Err(TryLockError::WouldBlock) => Err(lock_taken(path, holder(&file))),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

impl RealLock {
    pub(crate) fn is_in_place(&self) -> bool {
        std::fs::metadata(&self.name).is_ok_and(|there| place_of(&there) == self.place)
    }
}

/// Device and inode.
fn place_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// The process that has the lock of a file, where the system tells: its number, and what it is
/// called.
fn holder(file: &File) -> Option<String> {
    let inode = file.metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| locker(line, inode))?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(match name.trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    })
}

/// The process that a line of `/proc/locks` says to have a `flock` on this inode:
/// `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF`. The device is that below an overlay,
/// which nobody else is told, and isn't compared.
fn locker(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let (kind, _, _) = (words.next()?, words.next()?, words.next()?);
    let (pid, file) = (words.next()?.parse().ok()?, words.next()?);
    let found = file.rsplit(':').next()?.parse::<u64>().ok()?;
    // A process of another container has no number here.
    (kind == "FLOCK" && found == inode && pid > 0).then_some(pid)
}

impl Drop for RealLock {
    fn drop(&mut self) {
        // The system's lock first: whoever finds the name free finds the lock free too.
        self.file = None;
        taken().remove(&self.canonical);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_has_a_lock_is_read_from_the_systems_table() {
        let line = "12: FLOCK  ADVISORY  WRITE 4321 fe:01:987654 0 EOF";
        assert_eq!(locker(line, 987_654), Some(4321));
        assert_eq!(locker(line, 87_654), None);
        assert_eq!(locker("12: POSIX  ADVISORY  WRITE 4321 fe:01:987654 0 EOF", 987_654), None);
        assert_eq!(locker("12: -> FLOCK  ADVISORY  WRITE 4321 fe:01:987654 0 EOF", 987_654), None);
        assert_eq!(locker("12: FLOCK  ADVISORY  WRITE -1 fe:01:987654 0 EOF", 987_654), None);
        assert_eq!(locker("", 1), None);
    }
}
