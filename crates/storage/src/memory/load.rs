//! The store that a checkpoint makes.

use super::{Loader, MemoryStorage};
use crate::checkpoint::{Newest, Totals, outdated_bytes};
use crate::failure::StorageResult;
use plinth_env::Env;
use plinth_format::Owner;
use plinth_types::LogPosition;
use std::path::Path;
use std::sync::atomic::Ordering;

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
    /// node's; `NewerFormat` if it is of a newer format; `Locked` if its key is lacking; those of
    /// reading files.
    pub async fn load(
        env: &Env,
        dir: &Path,
        owner: impl Into<Owner>,
    ) -> StorageResult<Option<Loaded>> {
        let owner = owner.into();
        let Some(newest) = Newest::open(env, dir, &owner).await? else { return Ok(None) };
        let (at, outdated) = (newest.at(), outdated_bytes(env, dir, &owner.keys).await?);
        let mut loader = Loader::new(at);
        let totals = newest.read(&mut |key, value| loader.push(key, value)).await?;
        let store = loader.finish();
        store.shared.outdated.store(outdated, Ordering::Relaxed);
        Ok(Some(Loaded { store, at, totals }))
    }
}
