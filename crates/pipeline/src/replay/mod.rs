//! Replay: what the log has beyond checkpoint or tables, applied at a start. Only the last state
//! counts.
//!
//! ```text
//!   task `replay`                                            whoever opens the node
//!   log ─▶ entries ─▶ gathered ─▶ one list in key order ══▶ applied to the engine, published
//!          many a batch           of the same effect   a few      at the version of its last entry
//!                                                      ahead
//! ```
//!
//! Nobody reads before the node runs, and what was read before it stopped is older than the window.
//! So versions between two batches are of no use to anybody, and the mutations of thousands of
//! entries may become one batch: of each key what its last writes leave ([`batch`]), ordered so
//! that the engine meets neighbours one after the other. Reading, comparing checksums and ordering
//! go on beside the applying, in a task of their own; at most [`AHEAD`] batches lie between the
//! two, each of bounded size.
//!
//! Read next: `batch.rs`, `sort.rs`, `cleared.rs`, then `store.rs` for how each engine takes a
//! batch.

mod batch;
mod cleared;
mod handover;
mod sort;
#[cfg(test)]
mod tests;

use crate::batch::entry_mutations;
use crate::failure::{NodeError, NodeResult};
use crate::store::Recovering;
use batch::Batch;
use handover::{Sender, handover};
use plinth_env::Env;
use plinth_log::{LocalView, Reader};
use plinth_types::{LogPosition, MutationList, Version};
use std::time::Duration;

/// Batches that are ready and not applied yet, at most.
const AHEAD: usize = 2;
/// How often it is told how far it is: not at all by a start that takes no longer.
const TOLD: Duration = Duration::from_secs(2);

/// How large a batch may get; the entry that goes beyond is still part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub mutations: usize,
    pub bytes: usize,
}

impl Bounds {
    /// For an engine with this much memory: all batches that there are at a time take a small part
    /// of it.
    ///
    /// Larger batches meet more neighbours in the index, and the more of them no longer fit into a
    /// processor's cache.
    pub fn with_memory(memory: u64) -> Self {
        let bytes = usize::try_from(memory / 64).unwrap_or(usize::MAX).clamp(64 << 10, 16 << 20);
        Self { mutations: 64 << 10, bytes }
    }
}

/// A batch ready to be applied.
struct Ordered {
    /// Where its last entry is.
    at: LogPosition,
    mutations: MutationList,
}

/// Applies what the log has beyond `from`; gives the version reached.
pub(crate) async fn replay(
    env: &Env,
    log: &LocalView,
    engine: &mut Recovering,
    from: LogPosition,
    bounds: Bounds,
) -> NodeResult<Version> {
    let (sender, mut receiver) = handover(AHEAD);
    let task = env.spawn("replay", read_ahead(log.reader(from.version + 1), from, bounds, sender));
    let (upto, mut told) = (log.committed().version, env.now());
    let mut reached = from.version;
    let mut outcome = Ok(());
    while let Some(next) = receiver.next().await {
        let applied = match next {
            Ok(Ordered { at, mutations }) => {
                assert!(at.version > reached, "entries up to {at} are replayed after {reached}");
                reached = at.version;
                engine.apply(env, at, &mutations).await
            }
            Err(error) => Err(error),
        };
        if env.now().saturating_sub(told) >= TOLD {
            told = env.now();
            crate::events::replaying(reached, upto, log.bytes_between(reached, upto));
        }
        if applied.is_err() {
            outcome = applied;
            break;
        }
    }
    drop(receiver);
    // It must have ended before anybody does anything with the log; and one that panicked has not
    // told all there is.
    task.await?;
    outcome.map(|()| reached)
}

/// Reads entries and hands them on in ordered batches, until there are no more or nobody wants
/// them.
async fn read_ahead(
    mut reader: Reader,
    mut from: LogPosition,
    bounds: Bounds,
    sender: Sender<NodeResult<Ordered>>,
) {
    loop {
        let next = match gather(&mut reader, &mut from, bounds).await {
            Ok(None) => return,
            Ok(Some(ordered)) => Ok(ordered),
            Err(error) => Err(error),
        };
        let is_last = next.is_err();
        if !sender.send(next).await || is_last {
            return;
        }
    }
}

/// The next entries behind `from`, as many as make a batch; `None` if there are none.
async fn gather(
    reader: &mut Reader,
    from: &mut LogPosition,
    bounds: Bounds,
) -> NodeResult<Option<Ordered>> {
    let mut batch = Batch::default();
    let began = *from;
    while batch.is_below(bounds) {
        let Some(entry) = reader.next().await? else { break };
        let index = entry.index;
        if entry.previous != from.version || index <= from.index {
            let detail =
                format!("log entry {index} follows version {}, expected {from}", entry.previous);
            return Err(NodeError::Damaged(detail.into()));
        }
        let corrupt = |error| NodeError::Damaged(format!("log entry {index}: {error}").into());
        let mutations = entry_mutations(&entry.body).map_err(corrupt)?;
        batch.add(mutations);
        *from = entry.position();
    }
    Ok((*from != began).then(|| Ordered { at: *from, mutations: batch.into_key_order() }))
}
