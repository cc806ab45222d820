//! The store that a checkpoint makes.

use super::{Loader, MemoryStorage};
use crate::checkpoint::{Newest, Totals};
use crate::failure::StorageResult;
use plinth_env::Env;
use plinth_format::Identity;
use plinth_types::LogPosition;
use std::path::Path;

/// A store made from a checkpoint.
pub struct Loaded {
    /// The store; its window is the checkpoint's version alone.
    pub store: MemoryStorage,
    /// What the rows are everything of.
    pub at: LogPosition,
    /// What was in it.
    pub totals: Totals,
}

impl MemoryStorage {
    /// The store of the newest checkpoint in a directory; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt`, naming file, offset, expected and found, if it is damaged or another
    /// node's; `NewerFormat` if it is of a newer format; those of reading files.
    pub async fn load(env: &Env, dir: &Path, identity: Identity) -> StorageResult<Option<Loaded>> {
        let Some(newest) = Newest::open(env, dir, identity).await? else { return Ok(None) };
        let at = newest.at();
        let mut loader = Loader::new(at);
        let totals = newest.read(&mut |key, value| loader.push(key, value)).await?;
        Ok(Some(Loaded { store: loader.finish(), at, totals }))
    }
}
