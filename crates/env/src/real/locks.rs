//! Locks between processes, and within this one.
//!
//! The operating system's file lock (`flock`) excludes other processes and is given back by the
//! system when the process ends, however it ends. On file systems that emulate it (over a network)
//! it does not exclude a second taker in the same process, so taken paths are also kept in a set,
//! under their canonical names.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plinth_types::Result;

use crate::failure::{file_error, lock_taken};

static TAKEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn taken() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock that is held.
pub(crate) struct RealLock {
    canonical: PathBuf,
    /// Closing it gives the system's lock back.
    file: Option<File>,
}

impl RealLock {
    pub(crate) fn take(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| file_error("lock", path, &error, true);
        let file = if path.is_dir() {
            File::open(path)
        } else {
            // Write access, because that is what emulations over a network ask for.
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
        };
        let file = file.map_err(failed)?;
        let canonical = std::fs::canonicalize(path).map_err(failed)?;
        if !taken().insert(canonical.clone()) {
            return Err(lock_taken(path));
        }
        // From here on, dropping the lock takes the name out of the set again.
        let mut lock = Self { canonical, file: None };
        match file.try_lock() {
            Ok(()) => {
                lock.file = Some(file);
                Ok(lock)
            }
            Err(TryLockError::WouldBlock) => Err(lock_taken(path)),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

impl Drop for RealLock {
    fn drop(&mut self) {
        // The system's lock first: whoever finds the name free finds the lock free too.
        self.file = None;
        taken().remove(&self.canonical);
    }
}
