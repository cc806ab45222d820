//! Room for rows: how much of the memory that the engine `memory` may take for them is taken, and who is turned away at the bound.
//!
//! Near the bound transactions begin more slowly (`gate/controller.rs`). At it no commit is taken that would write rows; what clears
//! them is, and so is what writes the system's keys, by which operators help themselves. The look at it is taken with those
//! at the other gauges, so the bound may be exceeded by what is committed in the time between two of them.

use crate::replica::Replica;
use plinth_storage::Storage;
use plinth_types::system::NORMAL_END;
use plinth_types::{CommitRequest, Error, MutationType, Result};

/// What a row takes besides its key and its value: its head, its place in a leaf, rounding.
const ROW_BYTES: u64 = 75;

/// Looks how much is taken; gives it as a share of the bound, 0 where there is none.
pub(crate) fn look(replica: &Replica) -> f64 {
    let bound = replica.config.memory_bytes.zip(replica.storage.memory_engine());
    let Some((bound, engine)) = bound else { return 0.0 };
    let memory = engine.memory();
    let taken = memory.data + memory.window + ROW_BYTES * engine.count();
    replica.health.set_full(taken >= bound);
    taken as f64 / bound.max(1) as f64
}

/// Refuses a commit that would write rows where there is no room for them.
///
/// # Errors
/// `operation_failed`, with the bound and what to do.
#[inline]
pub(crate) fn admit(replica: &Replica, request: &CommitRequest) -> Result<()> {
    if replica.health.is_full() && writes_rows(request) { Err(refusal(replica)) } else { Ok(()) }
}

fn writes_rows(request: &CommitRequest) -> bool {
    request.mutations.iter().any(|mutation| {
        let clears = matches!(mutation.kind, MutationType::ClearRange | MutationType::CompareAndClear);
        !clears && mutation.param1 < NORMAL_END
    })
}

#[cold]
fn refusal(replica: &Replica) -> Error {
    let bound = replica.config.memory_bytes.unwrap_or_default();
    Error::operation_failed().with_detail(format!(
        "the rows take all of the {bound} bytes of memory that they may take (--memory): until some are cleared, no commit that \
         writes any is taken"
    ))
}
