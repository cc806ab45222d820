//! A temporary directory on a real disk.
//!
//! Many systems keep `/tmp` in memory, where a synced write costs nothing and a benchmark means
//! nothing. So if the system's place for temporary files is such a file system and nobody asked for
//! it by `TMPDIR`, the directory is made in `/var/tmp`, which is meant to outlive a restart and so
//! lies on a disk.

use crate::failure::Failure;
use plinth_bench::machine;
use plinth_env::{Env, TemporaryDir, block_on};
use std::path::{Path, PathBuf};

const ON_DISK: &str = "/var/tmp";

/// A directory that is removed with all that is in it when this is dropped.
pub struct Scratch {
    env: Env,
    path: PathBuf,
    _temporary: Option<TemporaryDir>,
}

impl Scratch {
    /// A fresh directory whose name begins with `prefix`.
    pub fn new(env: &Env, prefix: &str) -> Result<Self, Failure> {
        let temporary = block_on(env.files().temporary_dir(prefix)).map_err(|error| {
            Failure::of("cannot make a temporary directory; set TMPDIR or give a directory", error)
        })?;
        let chosen = std::env::var_os("TMPDIR").is_some();
        if !chosen && in_memory(env, temporary.path()) && !in_memory(env, Path::new(ON_DISK)) {
            let path = Path::new(ON_DISK).join(format!("{prefix}-{:016x}", env.random_u64()));
            if block_on(env.keeping_private().files().create_dir_all(&path)).is_ok() {
                return Ok(Self { env: env.clone(), path, _temporary: None });
            }
        }
        Ok(Self {
            env: env.clone(),
            path: temporary.path().to_owned(),
            _temporary: Some(temporary),
        })
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
}
