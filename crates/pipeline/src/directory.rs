//! Where a node's files are, and the lock that keeps others out while any of its tasks lives.
//!
//! ```text
//!   DIR/
//!     IDENTITY     what this is, and which generation counts
//!     MEMBERS      of a member of a cluster alone: who it is there, and who else votes
//!     LOCK
//!     CREATING     while a database is being made
//!     gen-1/       a generation: log/, and checkpoint/ or tables/
//!     old-1/       one that is being removed
//! ```

use crate::failure::{NodeError, NodeResult};
use plinth_env::{DirLock, Env};
use plinth_format::Identity;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the file that is locked.
pub(crate) const LOCK: &str = "LOCK";

const GENERATION: &str = "gen-";
const REMOVED: &str = "old-";

/// Where a node's files are; absent for a database in memory.
#[derive(Clone)]
pub(crate) struct Directory {
    /// The database's directory, as whoever opened it named it.
    pub root: PathBuf,
    /// The directory of its generation, with log and engine.
    pub path: PathBuf,
    /// The number of its generation.
    pub generation: u64,
    /// Whether that is the one that counts, and not one that is being taken in.
    pub is_current: bool,
    pub ids: Identity,
    /// Which node of a cluster this is; 0: a database of its own.
    pub member: u64,
    /// Held until the last task is gone, so that nobody opens the directory while it is still
    /// written.
    pub lock: Arc<DirLock>,
}

impl Directory {
    /// What was opened is still what its name leads to.
    ///
    /// # Errors
    /// `Displaced` if it was removed, renamed or replaced: what is written now would be found by
    /// nobody, and another process may have a database in its place.
    pub fn check_place(&self) -> NodeResult<()> {
        if self.lock.is_in_place() {
            return Ok(());
        }
        let detail = format!(
            "{} was removed, renamed or replaced while the database was open",
            self.root.join(LOCK).display()
        );
        Err(NodeError::Displaced(detail.into()))
    }

    pub fn log_path(&self) -> PathBuf {
        log_path(&self.path)
    }

    pub fn checkpoint_path(&self) -> PathBuf {
        checkpoint_path(&self.path)
    }
}

/// The log of a generation.
pub(crate) fn log_path(generation: &Path) -> PathBuf {
    generation.join("log")
}

/// The checkpoints of a generation.
pub(crate) fn checkpoint_path(generation: &Path) -> PathBuf {
    generation.join("checkpoint")
}

/// The directory of a generation in a database's.
pub(crate) fn generation_path(root: &Path, generation: u64) -> PathBuf {
    root.join(generation_name(generation))
}

pub(crate) fn generation_name(generation: u64) -> String {
    format!("{GENERATION}{generation}")
}

/// The number of the generation that a directory of this name holds.
pub(crate) fn generation_in(name: &str) -> Option<u64> {
    let number = name.strip_prefix(GENERATION)?.parse().ok()?;
    (generation_name(number) == name).then_some(number)
}

/// Whether a directory of this name is one that was being removed.
pub(crate) fn is_removed(name: &str) -> bool {
    name.strip_prefix(REMOVED).is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Removes a generation. It loses its name first, in one step, so that what is partly gone is never
/// taken for one.
pub(crate) async fn remove_generation(env: &Env, root: &Path, generation: u64) -> NodeResult<()> {
    let removed = root.join(format!("{REMOVED}{generation}"));
    env.files().remove_dir_all(&removed).await?;
    env.files().rename(generation_path(root, generation), &removed).await?;
    env.files().sync_dir(root).await?;
    Ok(env.files().remove_dir_all(&removed).await?)
}
