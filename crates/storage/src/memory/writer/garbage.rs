//! What has been unlinked and waits for the readers that may still look at it.

use super::super::arena::Arena;
use super::super::epoch::Epochs;
use std::collections::VecDeque;
use std::ptr::NonNull;

/// Objects that wait before another epoch is begun.
const BATCH: usize = 256;
/// Objects freed in one go, at most and roughly: more would hold the writer up.
const FREED_AT_ONCE: usize = 8192;

/// Unlinked objects in the order of their unlinking.
#[derive(Default)]
pub(super) struct Garbage {
    open: Vec<NonNull<u8>>,
    sealed: VecDeque<(u64, Vec<NonNull<u8>>)>,
    spare: Vec<Vec<NonNull<u8>>>,
}

// SAFETY: the pointers are to objects of the arena that belongs to the same writer.
unsafe impl Send for Garbage {}

impl Garbage {
    /// Takes an object that new readers can't reach any more.
    pub(super) fn retire<T>(&mut self, object: NonNull<T>) {
        self.open.push(object.cast());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sealed.is_empty()
    }

    /// Frees what no reader can look at any more, if it is worth the while.
    ///
    /// # Safety
    /// Everything retired came from `arena`, was retired once, cannot be reached from the tree, and
    /// the writer holds no reference to it.
    #[inline]
    pub(super) unsafe fn collect_some(&mut self, epochs: &Epochs, arena: &mut Arena) {
        if self.open.len() >= BATCH {
            // SAFETY: passed on.
            unsafe { self.collect(epochs, arena) };
        }
    }

    /// Frees what no reader can look at any more, up to a helping. Whether it left some of that for
    /// another call: after a reader that stayed long there is more than one helping.
    ///
    /// # Safety
    /// As for [`Garbage::collect_some`].
    pub(super) unsafe fn collect(&mut self, epochs: &Epochs, arena: &mut Arena) -> bool {
        if !self.open.is_empty() {
            let empty = self.spare.pop().unwrap_or_default();
            self.sealed.push_back((epochs.advance(), std::mem::replace(&mut self.open, empty)));
        }
        let oldest = epochs.oldest_pinned();
        let mut freed = 0;
        while freed < FREED_AT_ONCE
            && let Some((tag, objects)) = self.sealed.front_mut()
            && *tag < oldest
        {
            for object in objects.drain(..) {
                freed += 1;
                // SAFETY: every reader that could reach it began at its tag or before, and has
                // left.
                unsafe { arena.free(object) };
            }
            let emptied = self.sealed.pop_front().map(|(_, objects)| objects).unwrap_or_default();
            if self.spare.len() < 4 && emptied.capacity() <= 4 * BATCH {
                self.spare.push(emptied);
            }
        }
        self.sealed.front().is_some_and(|(tag, _)| *tag < oldest)
    }
}
