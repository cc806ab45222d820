//! Reading the newest checkpoint of a directory: all of its rows, or an error.

use super::format::Totals;
use super::list;
use super::walk::{Step, Walk};
use crate::failure::StorageResult;
use plinth_env::Env;
use plinth_format::Owner;
use plinth_types::LogPosition;
use std::path::Path;

/// The newest checkpoint of a directory, which is read from its first row to its last.
pub(crate) struct Newest {
    walk: Walk,
}

impl Newest {
    /// Opens it; `None` if there is no checkpoint.
    ///
    /// # Errors
    /// `Corrupt`, naming file, offset, expected and found, if its head is damaged or another
    /// node's; `NewerFormat` if it is of a newer format; `Locked` if its key is lacking; those of
    /// reading files.
    pub(crate) async fn open(env: &Env, dir: &Path, owner: &Owner) -> StorageResult<Option<Self>> {
        let Some((version, path)) = list(env, dir).await?.pop() else { return Ok(None) };
        let (walk, problem) = Walk::open(env, &path, &owner.keys).await??;
        if let Some(problem) = problem {
            return Err(problem.into());
        }
        walk.expect(version, owner.identity)?;
        walk.check_unlocked(&owner.keys)?;
        Ok(Some(Self { walk }))
    }

    /// What the rows are everything of.
    pub(crate) fn at(&self) -> LogPosition {
        self.walk.header().at
    }

    /// Visits all rows, in key order.
    ///
    /// # Errors
    /// `Corrupt`, naming file, offset, expected and found; those of reading files. Some rows
    /// may have been visited.
    pub(crate) async fn read(
        mut self,
        visit: &mut (dyn FnMut(&[u8], &[u8]) + Send),
    ) -> StorageResult<Totals> {
        loop {
            match self.walk.step(visit).await? {
                Step::Rows => {}
                Step::Damage(problem) => {
                    // A read that fails may succeed the next time: nobody should restore a backup
                    // for it.
                    return Err(self.walk.read_error().cloned().unwrap_or_else(|| problem.into()));
                }
                Step::End => return Ok(self.walk.totals()),
            }
        }
    }
}
