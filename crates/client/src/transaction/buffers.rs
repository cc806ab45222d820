//! Buffers that go from one transaction to the next on the same thread.
//!
//! Most transactions are small and short: growing their lists from nothing would cost more than
//! filling them. So a transaction that ends leaves its buffers, emptied, to the next one that its
//! thread begins.

use super::batch::Batches;
use super::state::State;
use plinth_types::{MutationList, RangeList};
use std::cell::RefCell;

/// How many transactions' buffers a thread keeps.
const KEPT: usize = 4;
/// Larger buffers are not kept.
const KEPT_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Buffers {
    batches: Batches,
    reads: RangeList,
    writes: RangeList,
    mutations: MutationList,
}

thread_local! {
    static SPARE: RefCell<Vec<Buffers>> = const { RefCell::new(Vec::new()) };
}

impl State {
    /// Begins with buffers that another transaction left.
    pub(super) fn take_buffers(&mut self) {
        // While the thread ends there are none any more.
        let Ok(Some(buffers)) = SPARE.try_with(|spare| spare.borrow_mut().pop()) else { return };
        self.batches = buffers.batches;
        self.reads.conflicts = buffers.reads;
        self.writes.conflicts = buffers.writes;
        self.writes.mutations = buffers.mutations;
    }

    /// Leaves the buffers to another transaction.
    pub(super) fn leave_buffers(&mut self) {
        let sizes = [
            self.reads.conflicts.as_bytes().len(),
            self.writes.conflicts.as_bytes().len(),
            self.writes.mutations.as_bytes().len(),
        ];
        if sizes.into_iter().any(|size| size > KEPT_BYTES) || !self.batches.is_reusable() {
            return;
        }
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() >= KEPT {
                return;
            }
            self.reads.conflicts.clear();
            self.writes.conflicts.clear();
            self.writes.mutations.clear();
            spare.push(Buffers {
                batches: std::mem::take(&mut self.batches),
                reads: std::mem::take(&mut self.reads.conflicts),
                writes: std::mem::take(&mut self.writes.conflicts),
                mutations: std::mem::take(&mut self.writes.mutations),
            });
        });
    }
}
