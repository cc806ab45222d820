//! Buffers that go from one transaction to the next on the same thread.
//!
//! Most transactions are small and short: growing their lists from nothing would cost more than
//! filling them. So a transaction that ends leaves its buffers, emptied, to the next one that its
//! thread begins.

use super::batches::Batches;
use super::state::State;
use plinth_types::{MutationList, RangeList};
use std::cell::RefCell;

/// How many transactions' buffers a thread keeps.
const KEPT: usize = 4;
/// Larger buffers are not kept.
const KEPT_BYTES: usize = 64 << 10;

#[derive(Default)]
struct Buffers {
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
        self.reads.use_buffer(buffers.reads);
        self.writes.use_buffers(buffers.mutations, buffers.writes);
    }

    /// Leaves the buffers to another transaction.
    pub(super) fn leave_buffers(&mut self) {
        let size = self.reads.buffer_len().max(self.writes.buffer_len());
        if size > KEPT_BYTES || !self.batches.is_reusable() {
            return;
        }
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() >= KEPT {
                return;
            }
            let batches = std::mem::take(&mut self.batches);
            let reads = self.reads.take_buffer();
            let (mutations, writes) = self.writes.take_buffers();
            spare.push(Buffers { batches, reads, writes, mutations });
        });
    }
}
