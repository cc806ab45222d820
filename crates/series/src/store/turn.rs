//! The turn: whoever has it saves, takes in or deletes; nobody else does meanwhile.
//!
//! It can be waited for without blocking a thread, and is given back whatever becomes of the future
//! that had it.
//!
//! A commit of his may be under way then: one who asked for a sync may have left, or the database
//! has fallen silent. What it writes was made of what there was, such as late points of a leaf with
//! one more: were it to land behind what the next one commits, that would be gone. So who doesn't
//! say that he is [done](Turn::done) is fenced off by whoever comes next: by a commit that all of
//! his conflict with, behind which they have landed or never will.

use super::{Role, Shared, retry};
use crate::error::Result;
use plinth_client::Transaction;
use plinth_env::sync::Signal;
use std::sync::atomic::{AtomicBool, Ordering};

/// Who may save.
pub(super) struct Turns {
    free: Signal,
    /// Whether something may be under way of whoever had it.
    is_open: AtomicBool,
}

impl Turns {
    /// Nobody may, until [`Turns::open`].
    pub(super) fn closed() -> Self {
        Self { free: Signal::new(), is_open: AtomicBool::new(false) }
    }

    /// Lets the first one have the turn. Called once.
    pub(super) fn open(&self) {
        self.free.notify();
    }

    /// Waits for the turn.
    pub(super) async fn take(&self) -> Turn<'_> {
        self.free.wait().await;
        Turn { of: self, is_done: false }
    }

    /// Waits until nobody has the turn.
    pub(super) async fn pass(&self) {
        self.free.wait().await;
        self.free.notify();
    }
}

/// The turn, which goes to the next one when this is dropped.
pub(super) struct Turn<'a> {
    of: &'a Turns,
    is_done: bool,
}

impl Turn<'_> {
    /// Gives it to the next one: nothing is under way of what was committed in it, if `result` is
    /// what came of that.
    pub(super) fn done<T>(mut self, result: Result<T>) -> Result<T> {
        self.is_done = result.is_ok();
        result
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.of.is_open.store(true, Ordering::Relaxed);
        }
        self.of.free.notify();
    }
}

impl Shared {
    /// Waits for the turn, and until nothing is under way of whoever had it before.
    ///
    /// # Errors
    /// Those of the commit that it takes to know.
    pub(super) async fn take_turn(&self) -> Result<Turn<'_>> {
        let turn = self.turn.take().await;
        if self.turn.is_open.load(Ordering::Relaxed) {
            self.check()?;
            let tr = self.database.create_transaction();
            while let Err(error) = self.try_fence(&tr).await {
                retry::again(&tr, error).await?;
            }
            self.turn.is_open.store(false, Ordering::Relaxed);
        }
        Ok(turn)
    }

    async fn try_fence(&self, tr: &Transaction) -> Result<()> {
        self.check_owner(tr).await?;
        // All that is committed in a turn has read this.
        let read = match self.role {
            Role::Poster(_) => self.of.whole.root.format(),
            Role::Owner { .. } | Role::Reader => self.keys.owner(),
        };
        tr.add_write_conflict_key(&read);
        Ok(tr.commit().await?)
    }
}
