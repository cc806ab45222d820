//! A temporary directory on a real disk.
//!
//! Many systems keep `/tmp` in memory, where a synced write costs nothing and a benchmark means
//! nothing. So if the system's place for temporary files is such a file system and nobody asked for
//! it by `TMPDIR`, the directory is made in `/var/tmp`, which is meant to outlive a restart and so
//! lies on a disk.
//!
//! Whoever uses one holds its lock, which ends with the process. A process that was killed leaves
//! its directory behind; the next one that makes a directory of the same kind removes it. Of
//! servers that outlived whoever started them the databases' own locks tell.

use crate::failure::Failure;
use plinth_bench::machine;
use plinth_env::{DirLock, Env, IoErrorKind, IoResult, TemporaryDir, block_on};
use std::path::{Path, PathBuf};

const ON_DISK: &str = "/var/tmp";
/// The file by which a database's directory is locked.
const DATABASE_LOCK: &str = "LOCK";
/// Hexadecimal digits at the end of a directory's name.
const DIGITS: usize = 16;
/// How deep databases lie in a directory, at most: those of the tour's cluster lie two below it.
const DEPTH: usize = 4;

/// A directory that is removed with all that is in it when this is dropped.
pub struct Scratch {
    env: Env,
    path: PathBuf,
    _temporary: Option<TemporaryDir>,
    /// Says that it is in use; `None` where a file system has no locks.
    _lock: Option<DirLock>,
}

impl Scratch {
    /// A fresh directory whose name begins with `prefix`.
    pub fn new(env: &Env, prefix: &str) -> Result<Self, Failure> {
        loop {
            let (path, temporary) = make(env, prefix)?;
            let lock = match hold(env, &path) {
                Ok(lock) if lock.is_in_place() => Some(lock),
                // Somebody who looks for abandoned ones has come between.
                Ok(_) => continue,
                Err(error) if was_taken(error.kind()) => continue,
                // A file system without locks: others find this one in use.
                Err(_) => None,
            };
            if let Some(parent) = path.parent() {
                remove_abandoned(env, parent, prefix);
            }
            return Ok(Self { env: env.clone(), path, _temporary: temporary, _lock: lock });
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What to tell about it if it is not on a disk.
    pub fn warning(&self) -> Option<String> {
        let warning =
            "is in memory, not on a disk: commits will look faster than they are; give --dir DIR";
        in_memory(&self.env, &self.path).then(|| format!("{} {warning}", self.path.display()))
    }
}

/// Takes the lock of a directory. By its name alone a lock would make a file where somebody has
/// just removed the directory; by this name there is either the directory or nothing.
fn hold(env: &Env, path: &Path) -> IoResult<DirLock> {
    block_on(env.files().lock(path.join(".")))
}

/// Whether a directory that was there a moment ago can't be locked since somebody else removes it,
/// or has removed it.
fn was_taken(kind: IoErrorKind) -> bool {
    matches!(kind, IoErrorKind::Locked | IoErrorKind::NotFound)
}

/// Makes a directory, on a disk if there is one.
fn make(env: &Env, prefix: &str) -> Result<(PathBuf, Option<TemporaryDir>), Failure> {
    let temporary = block_on(env.files().temporary_dir(prefix)).map_err(|error| {
        Failure::of("cannot make a temporary directory; set TMPDIR or give a directory", error)
    })?;
    let chosen = std::env::var_os("TMPDIR").is_some();
    if !chosen && in_memory(env, temporary.path()) && !in_memory(env, Path::new(ON_DISK)) {
        let path = Path::new(ON_DISK).join(format!("{prefix}-{:016x}", env.random_u64()));
        if block_on(env.keeping_private().files().create_dir_all(&path)).is_ok() {
            return Ok((path, None));
        }
    }
    Ok((temporary.path().to_owned(), Some(temporary)))
}

/// Removes directories of this kind whose processes are gone.
fn remove_abandoned(env: &Env, parent: &Path, prefix: &str) {
    let is_of_this_kind = |name: &&String| {
        let digits = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
        digits.is_some_and(|digits| {
            digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        })
    };
    let names = block_on(env.files().list(parent)).unwrap_or_default();
    names
        .iter()
        .filter(is_of_this_kind)
        .for_each(|name| remove_if_abandoned(env, &parent.join(name)));
}

/// Removes a directory, unless it is in use, or somebody else is about to remove it, or has.
fn remove_if_abandoned(env: &Env, path: &Path) {
    // Held until it is gone: nobody takes it meanwhile.
    let Ok(_lock) = hold(env, path) else { return };
    if !has_a_database_in_use(env, path, DEPTH) {
        // Another user's can't be removed, and is his own affair.
        let _ = block_on(env.files().remove_dir_all(path));
    }
}

/// Whether somebody has the database in a directory open, or one in a directory below it.
fn has_a_database_in_use(env: &Env, path: &Path, depth: usize) -> bool {
    let lock = path.join(DATABASE_LOCK);
    let exists = block_on(env.files().exists(&lock)).unwrap_or(false);
    if exists && block_on(env.files().lock(&lock)).is_err() {
        return true;
    }
    // What isn't a directory has nothing below it.
    let below = || block_on(env.files().list(path)).unwrap_or_default();
    depth > 0 && below().iter().any(|name| has_a_database_in_use(env, &path.join(name), depth - 1))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed stays: there is nobody left to tell.
        let _ = block_on(self.env.files().remove_dir_all(&self.path));
    }
}

/// Whether a directory is known to lie on a file system that keeps its files in memory.
fn in_memory(env: &Env, directory: &Path) -> bool {
    machine::filesystem(env, directory).is_some_and(|kind| kind == "tmpfs" || kind == "ramfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_goes_away_with_what_is_in_it() {
        let env = Env::real();
        let scratch = Scratch::new(&env, "plinth-scratch-test").unwrap();
        let path = scratch.path().to_owned();
        block_on(env.files().replace(path.join("file"), b"text")).unwrap();
        drop(scratch);
        assert_eq!(block_on(env.files().exists(&path)), Ok(false));
    }

    /// Of two that began at once one locked the name of a directory that the other had removed,
    /// which made a file of that name, or took it for one without locks, and went on without a
    /// directory.
    #[test]
    fn many_that_begin_at_once_have_a_directory_each_and_leave_nothing() {
        let (env, prefix) = (Env::real(), "plinth-scratch-crowd");
        let place = block_on(env.files().temporary_dir("scratch")).unwrap();
        let begin = |_| {
            let (env, place) = (env.clone(), place.path().to_owned());
            env.clone().spawn("beginning", async move {
                for _ in 0..200 {
                    let path = place.join(format!("{prefix}-{:016x}", env.random_u64()));
                    block_on(env.files().create_dir_all(&path)).unwrap();
                    match hold(&env, &path) {
                        Ok(lock) if lock.is_in_place() => {
                            remove_abandoned(&env, &place, prefix);
                            let file = path.join("file");
                            block_on(env.files().replace(&file, b"text")).unwrap();
                            block_on(env.files().remove_dir_all(&path)).unwrap();
                        }
                        Ok(_) => {}
                        Err(error) => assert!(was_taken(error.kind()), "{error}"),
                    }
                }
            })
        };
        let tasks: Vec<_> = (0..4).map(begin).collect();
        tasks.into_iter().for_each(|task| task.wait().unwrap());
        remove_abandoned(&env, place.path(), prefix);
        assert!(block_on(env.files().list(place.path())).unwrap().is_empty());
    }

    #[test]
    fn a_directory_that_somebody_has_removed_becomes_no_file() {
        let env = Env::real();
        let place = block_on(env.files().temporary_dir("scratch")).unwrap();
        let gone = place.path().join("plinth-scratch-gone-00112233445566ff");
        remove_if_abandoned(&env, &gone);
        assert!(was_taken(hold(&env, &gone).err().unwrap().kind()));
        assert!(block_on(env.files().list(place.path())).unwrap().is_empty());
    }

    /// `kill -9` of `plinth dev` left its directory behind for good.
    #[test]
    fn directories_of_processes_that_are_gone_are_removed_and_no_others() {
        let env = Env::real();
        let (prefix, place) =
            ("plinth-scratch-gone", block_on(env.files().temporary_dir("scratch")).unwrap());
        let named = |name: &str| {
            let path = place.path().join(name);
            block_on(env.files().create_dir_all(path.join("node-1"))).unwrap();
            path
        };
        let gone = named("plinth-scratch-gone-00112233445566ff");
        let foreign = named("plinth-scratch-gone-notes");
        let used = named("plinth-scratch-gone-0011223344556677");
        let served = named("plinth-scratch-gone-0011223344556688");
        // The tour's servers lie one directory deeper, and lost theirs while they ran.
        let deep = named("plinth-scratch-gone-0011223344556699").join("cluster").join("node-1");
        block_on(env.files().create_dir_all(&deep)).unwrap();
        let _deep = block_on(env.files().lock(deep.join("LOCK"))).unwrap();
        let _used = block_on(env.files().lock(&used)).unwrap();
        let _served = block_on(env.files().lock(served.join("node-1").join("LOCK"))).unwrap();
        block_on(env.files().replace(gone.join("node-1").join("LOCK"), b"")).unwrap();
        remove_abandoned(&env, place.path(), prefix);
        let left = [&gone, &foreign, &used, &served, &deep]
            .map(|path| block_on(env.files().exists(path)).unwrap());
        assert_eq!(left, [false, true, true, true, true]);
    }
}
