//! The switch from one state to the next: what a flush and a compaction end with.

use super::Engine;
use super::manifest::Manifest;
use super::state::{Placed, State};
use super::table::{Table, table_path};
use crate::failure::StorageError;
use plinth_types::{LogPosition, probe};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// What changes from one state to the next.
pub(super) struct Step {
    /// What the tables have afterwards, if this is a flush.
    pub at: Option<LogPosition>,
    pub removed: Vec<Arc<Table>>,
    pub added: Vec<Placed>,
}

/// Makes the next state durable and shows it to readers.
pub(super) async fn switch(engine: &Engine, step: Step) -> Result<(), NotSwitched> {
    let _inside = engine.gates.switch.enter().await;
    let making = &engine.making;
    let old = engine.state();
    let mut gone: Vec<u64> = step.removed.iter().map(|table| table.id()).collect();
    // A table that is moved leaves its old place.
    gone.extend(step.added.iter().map(|placed| placed.table.id()));
    gone.sort_unstable();
    let mut placed: Vec<Placed> =
        old.placed().filter(|placed| gone.binary_search(&placed.table.id()).is_err()).collect();
    let gone = old.tables().count() - placed.len();
    let is_in_old = |table: &Arc<Table>| old.tables().any(|other| Arc::ptr_eq(other, table));
    let moved = step.added.iter().filter(|placed| is_in_old(&placed.table)).count();
    assert_eq!(gone, step.removed.len() + moved, "what leaves a state stands in it");
    placed.extend(step.added);
    let flushed = u64::from(step.at.is_some());
    let at = step.at.unwrap_or(old.at);
    assert!(old.at.version <= at.version && old.at.index <= at.index, "a state goes back");
    let new = State::of(at, old.serial + 1, old.next_flush + flushed, placed);
    let next_id = making.next_id.load(Ordering::Relaxed);
    let manifest = Manifest::of(&new, making.owner.identity, next_id);
    let (env, dir) = (&making.env, &making.dir);
    env.files().sync_dir(dir).await.map_err(|error| NotSwitched::Certainly(error.into()))?;
    manifest.write_beside(env, dir).await.map_err(NotSwitched::Certainly)?;
    Manifest::replace(env, dir).await.map_err(|error| {
        probe!("ssd: which manifest is on the disk is not known");
        NotSwitched::Perhaps(error)
    })?;
    *engine.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
    for table in &step.removed {
        table.retire();
        making.cache.forget(table.id(), table.index().count() as u32);
    }
    Ok(())
}

/// Why there is no new state.
pub(super) enum NotSwitched {
    /// The manifest is the old one.
    Certainly(StorageError),
    /// The manifest on disk may be either.
    Perhaps(StorageError),
}

impl NotSwitched {
    /// Removes the tables of the new state, unless they may be needed.
    pub async fn clean_up(self, engine: &Engine, added: &[u64]) -> StorageError {
        match self {
            Self::Perhaps(error) => error,
            Self::Certainly(error) => {
                for id in added {
                    let path = table_path(&engine.making.dir, *id);
                    // Whatever can't be removed now goes at the next start.
                    let _ = engine.making.env.files().remove(path).await;
                }
                error
            }
        }
    }
}
