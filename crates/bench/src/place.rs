//! A directory beside the measured database's files, for workloads that need a database of their
//! own on the same disk.

use crate::Result;
use plinth_env::{Env, block_on};
use std::path::{Path, PathBuf};

/// A directory that isn't there before, nor afterwards.
pub struct Place {
    env: Env,
    /// Where it is.
    pub path: PathBuf,
}

impl Place {
    /// Removes what an interrupted run may have left there. Whoever needs the directory makes it.
    ///
    /// # Errors
    /// Those of removing files.
    pub fn new(env: &Env, path: PathBuf) -> Result<Self> {
        remove(env, &path)?;
        Ok(Self { env: env.clone(), path })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What can't be removed now is removed by the next run.
        let _ = remove(&self.env, &self.path);
    }
}

fn remove(env: &Env, path: &Path) -> Result<()> {
    if block_on(env.files().exists(path))? {
        block_on(env.files().remove_dir_all(path))?;
    }
    Ok(())
}
