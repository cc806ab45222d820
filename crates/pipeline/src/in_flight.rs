//! Batches in flight: appended, not yet committed, in commit order.
//!
//! ```text
//!   appended ──▶ | batch 7 | batch 8 | batch 9 |   at most `depth` of them
//!                  ▲ committed up to 8: whoever learns of it settles 7, then 8
//! ```
//!
//! A batch takes effect when its position in the log is committed and every batch before it has
//! taken effect. No task waits for its own batch: whoever learns that the log is committed further
//! takes the batches that this covers, one at a time, oldest first. So how many may be in flight is
//! a number, and not a number of threads.
//!
//! Always: positions and versions rise from front to back; at most one batch is being settled;
//! after [`InFlight::close`] nothing is added, and what was in flight has been handed out.

use crate::batch_lock::lock;
use crate::failure::NodeError;
use plinth_log::Position;
use plinth_types::Version;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

/// What a batch in flight says of itself.
pub(crate) trait Appended {
    /// Where it lies in the log; `None` without a log: it is committed at once.
    fn position(&self) -> Option<Position>;
    /// Its version.
    fn version(&self) -> Version;
}

/// The batches in flight.
pub(crate) struct InFlight<B> {
    state: Mutex<State<B>>,
}

struct State<B> {
    batches: VecDeque<B>,
    /// The version of the batch being settled.
    settling: Option<Version>,
    /// The version of the last batch that was, or is being, settled.
    settled: Version,
    newest: Version,
    closed: Option<NodeError>,
    waiting: Vec<Waker>,
}

impl<B> Default for InFlight<B> {
    fn default() -> Self {
        let state = State {
            batches: VecDeque::new(),
            settling: None,
            settled: 0,
            newest: 0,
            closed: None,
            waiting: Vec::new(),
        };
        Self { state: Mutex::new(state) }
    }
}

impl<B: Appended> InFlight<B> {
    /// Adds the batch that was appended last.
    ///
    /// # Errors
    /// The batch and why, if the leader has resigned meanwhile.
    pub fn push(&self, batch: B) -> Result<(), (B, NodeError)> {
        let mut state = lock(&self.state);
        if let Some(cause) = &state.closed {
            return Err((batch, cause.clone()));
        }
        assert!(
            batch.version() > state.newest,
            "batches are appended in the order of their versions"
        );
        let last = state.batches.back().and_then(Appended::position);
        assert!(last.is_none_or(|last| batch.position() > Some(last)), "positions rise");
        state.newest = batch.version();
        state.batches.push_back(batch);
        Ok(())
    }

    /// How many batches are in flight, the one being settled among them.
    pub fn len(&self) -> usize {
        let state = lock(&self.state);
        state.batches.len() + usize::from(state.settling.is_some())
    }

    /// Whether every batch has taken effect.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the last batch lies in the log, if any is in flight.
    pub fn last_position(&self) -> Option<Position> {
        lock(&self.state).batches.back().and_then(Appended::position)
    }

    /// The oldest batch, if it is committed now that the log is up to `committed`; waits while the
    /// one before it is being settled. `None` if there is none that this covers.
    pub async fn next_committed(&self, committed: Option<Position>) -> Option<Settling<'_, B>> {
        self.next(|batch| batch.position() <= committed).await
    }

    /// The oldest batch, if its version is not above this one; waits while the one before it is
    /// being settled.
    pub async fn next_up_to(&self, version: Version) -> Option<Settling<'_, B>> {
        self.next(|batch| batch.version() <= version).await
    }

    async fn next(&self, is_covered: impl Fn(&B) -> bool) -> Option<Settling<'_, B>> {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            if !state.batches.front().is_some_and(&is_covered) {
                return Poll::Ready(None);
            }
            if state.settling.is_some() {
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            let batch = state.batches.pop_front();
            state.settling = batch.as_ref().map(Appended::version);
            if let Some(version) = state.settling {
                let before = std::mem::replace(&mut state.settled, version);
                assert!(before < version, "batch {version} takes effect after {before}");
            }
            Poll::Ready(batch)
        })
        .await
        .map(|batch| Settling { in_flight: self, batch: Some(batch) })
    }

    /// Waits until fewer batches than this are in flight.
    pub async fn until_below(&self, depth: usize) {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            if state.batches.len() + usize::from(state.settling.is_some()) < depth {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Nothing is added any more. Gives what is in flight, but for the batch that is being settled.
    pub fn close(&self, cause: &NodeError) -> VecDeque<B> {
        let (batches, waiting) = {
            let mut state = lock(&self.state);
            state.closed.get_or_insert_with(|| cause.clone());
            (std::mem::take(&mut state.batches), std::mem::take(&mut state.waiting))
        };
        waiting.into_iter().for_each(Waker::wake);
        batches
    }

    /// Panics if what must hold doesn't.
    pub fn check_invariants(&self) {
        let state = lock(&self.state);
        let versions = || state.batches.iter().map(Appended::version);
        assert!(versions().is_sorted_by(|one, next| one < next), "versions rise");
        assert!(state.batches.iter().map(Appended::position).is_sorted(), "positions rise");
        assert!(versions().next().is_none_or(|first| state.settling < Some(first)), "oldest first");
        assert!(versions().all(|version| version <= state.newest));
        assert!(versions().all(|version| version > state.settled), "none takes effect twice");
        assert!(state.closed.is_none() || state.batches.is_empty(), "closed and emptied");
    }
}

/// A committed batch on its way to taking effect. The next one may follow when this is dropped, or
/// [`Settling::done`].
pub(crate) struct Settling<'a, B: Appended> {
    in_flight: &'a InFlight<B>,
    batch: Option<B>,
}

impl<B: Appended> Settling<'_, B> {
    /// The batch.
    pub fn batch(&self) -> &B {
        self.batch.as_ref().expect("it is there until it is done")
    }

    /// The batch, to be changed.
    pub fn batch_mut(&mut self) -> &mut B {
        self.batch.as_mut().expect("it is there until it is done")
    }

    /// The batch has taken effect: the next one may, while this one is answered.
    pub fn done(mut self) -> B {
        self.batch.take().expect("it is there until it is done")
    }
}

impl<B: Appended> Drop for Settling<'_, B> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = lock(&self.in_flight.state);
            state.settling = None;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
