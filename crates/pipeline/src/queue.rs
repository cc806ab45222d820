//! The commit queue: where clients leave their transactions and the front of the pipeline collects
//! them.
//!
//! It has one reader at a time (the holder of the batch lock) and any number of writers. What waits
//! in it is bounded by bytes; beyond the bound commits are refused at once with
//! `commit_proxy_memory_limit_exceeded`, which clients retry with a long back-off.
//!
//! Nobody who waits here knows of the others' fates, so any order is as good as that of arrival. A
//! transaction of megabytes keeps the log busy for as long as hundreds of small ones do. So those
//! have batches of their own, one each, and while small ones wait, too, they take turns: of the
//! large ones that wait, whoever has little to commit waits for one at most, besides those that are
//! on their way to the disk.

use crate::batch_lock::lock;
use crate::failure::{NodeError, NodeResult};
use plinth_env::reply::{Promise, Reply, Unanswered};
use plinth_env::sync::Signal;
use plinth_types::{CommitReply, CommitRequest, Error, limits};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Bytes of waiting transactions beyond which new ones are refused.
const QUEUE_BYTES: usize = 256 << 20;

/// Bytes of transactions after which a batch is full.
const BATCH_BYTES: usize = 4 << 20;

/// Bytes from which on a transaction is a large one.
const LARGE_BYTES: usize = 1 << 20;

/// A transaction and whoever waits for its fate.
pub(crate) struct Submitted {
    pub request: CommitRequest,
    /// Who is a member of the cluster is among what it changes: the pipeline's own.
    pub changes_members: bool,
    pub answer: Answer,
}

/// The duty to tell a client what became of its transaction. Dropped unsent, be it by a task that
/// panicked, it tells that nobody knows.
pub(crate) struct Answer(Option<To>);

/// Who waits for the fate of a transaction.
enum To {
    /// A client, who is told in FoundationDB's numbers.
    Client(Promise<CommitReply>),
    /// The pipeline, of a transaction of its own: it reacts to what happened.
    Own(Promise<CommitReply, NodeError>),
}

impl Answer {
    pub fn new(promise: Promise<CommitReply>) -> Self {
        Self(Some(To::Client(promise)))
    }

    fn own(promise: Promise<CommitReply, NodeError>) -> Self {
        Self(Some(To::Own(promise)))
    }

    pub fn send(mut self, result: NodeResult<CommitReply>) {
        self.tell(result);
    }

    fn tell(&mut self, result: NodeResult<CommitReply>) {
        match self.0.take() {
            Some(To::Client(promise)) => promise.send(result.map_err(Error::from)),
            Some(To::Own(promise)) => promise.send(result),
            None => {}
        }
    }

    /// The transaction may have been committed, or not.
    pub fn unknown(self, cause: &NodeError) {
        self.send(Err(NodeError::Unknown(cause.to_string().into())));
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.0.is_some() {
            let detail = "the commit was given up on its way";
            self.tell(Err(NodeError::Unknown(detail.into())));
        }
    }
}

/// What the reader of the queue gets.
pub(crate) enum Work {
    /// Transactions; at least one. `is_long`: one alone, behind whose bytes those of the batch
    /// before should not have to wait for the disk.
    Batch { batch: Vec<Submitted>, is_long: bool },
    /// Nothing to commit, but time for the chores (move the window, extend the lease).
    Chores,
    /// No more will come: the database closes and the queue is empty, or the leader has resigned.
    Closed,
}

#[derive(Default)]
struct State {
    /// Those that share batches, in order of arrival.
    small: VecDeque<Submitted>,
    /// Those of which each has one for itself, in order of arrival.
    large: VecDeque<Submitted>,
    /// The last batch was one of those.
    large_was_last: bool,
    /// Of all of them.
    bytes: usize,
    /// The most bytes since somebody asked.
    peak: usize,
    chores: bool,
    closed: bool,
    /// Why the leader has resigned, if it has.
    failed: Option<NodeError>,
}

impl State {
    fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Where a transaction of this size waits.
    fn among(&mut self, bytes: usize) -> &mut VecDeque<Submitted> {
        if bytes >= LARGE_BYTES { &mut self.large } else { &mut self.small }
    }

    fn all(&self) -> impl Iterator<Item = &Submitted> {
        self.small.iter().chain(&self.large)
    }

    /// The next batch, its bytes, and whether it is a large one behind a small one; there is
    /// something that waits.
    fn take_batch(&mut self) -> (Vec<Submitted>, usize, bool) {
        let is_large = !self.large.is_empty() && (self.small.is_empty() || !self.large_was_last);
        let large_was_last = std::mem::replace(&mut self.large_was_last, is_large);
        if let Some(alone) = self.large.pop_front_if(|_| is_large) {
            let bytes = alone.request.size();
            return (vec![alone], bytes, !large_was_last);
        }
        let (mut count, mut bytes) = (0, 0);
        for submitted in self.small.iter().take(limits::BATCH_TRANSACTIONS) {
            let size = submitted.request.size();
            if count > 0 && bytes + size > BATCH_BYTES {
                break;
            }
            count += 1;
            bytes += size;
        }
        let rest = self.small.split_off(count);
        (std::mem::replace(&mut self.small, rest).into(), bytes, false)
    }
}

#[derive(Default)]
pub(crate) struct CommitQueue {
    state: Mutex<State>,
    changed: Signal,
}

impl CommitQueue {
    /// Leaves a client's transaction; the reply comes when its fate is known.
    pub fn submit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.leave(request, false, Answer::new)
    }

    /// Leaves a transaction of the pipeline's own.
    pub fn submit_own(&self, request: CommitRequest) -> Reply<CommitReply, NodeError> {
        self.leave(request, false, Answer::own)
    }

    /// Leaves a transaction that changes who is a member of the cluster: the pipeline's own.
    pub fn submit_members(&self, request: CommitRequest) -> Reply<CommitReply, NodeError> {
        self.leave(request, true, Answer::own)
    }

    fn leave<E: From<NodeError> + From<Unanswered> + Send>(
        &self,
        request: CommitRequest,
        changes_members: bool,
        answer: impl FnOnce(Promise<CommitReply, E>) -> Answer,
    ) -> Reply<CommitReply, E> {
        let (promise, reply) = Promise::pair();
        {
            let mut state = lock(&self.state);
            if let Some(cause) = &state.failed {
                return Reply::ready(Err(cause.clone().into()));
            }
            if state.closed {
                return Reply::ready(Err(NodeError::Closed(None).into()));
            }
            let bytes = request.size();
            if state.bytes + bytes > QUEUE_BYTES && !state.is_empty() {
                let detail = format!("{} bytes wait to be committed", state.bytes);
                return Reply::ready(Err(NodeError::QueueFull(detail.into()).into()));
            }
            state.bytes += bytes;
            state.peak = state.peak.max(state.bytes);
            state.among(bytes).push_back(Submitted {
                request,
                changes_members,
                answer: answer(promise),
            });
        }
        self.changed.notify();
        reply
    }

    /// Whether the leader has resigned.
    pub fn has_failed(&self) -> bool {
        lock(&self.state).failed.is_some()
    }

    /// Puts back, to the front, what was taken from it last.
    pub fn put_back(&self, batch: Vec<Submitted>) {
        let mut state = lock(&self.state);
        if let Some(cause) = state.failed.clone() {
            drop(state);
            return batch
                .into_iter()
                .for_each(|submitted| submitted.answer.send(Err(cause.clone())));
        }
        for submitted in batch.into_iter().rev() {
            let bytes = submitted.request.size();
            state.bytes += bytes;
            state.peak = state.peak.max(state.bytes);
            state.among(bytes).push_front(submitted);
        }
        self.changed.notify();
    }

    /// Asks whoever reads the queue to do the chores.
    pub fn ask_for_chores(&self) {
        lock(&self.state).chores = true;
        self.changed.notify();
    }

    /// No more transactions are taken; those that wait are still handed out.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify();
    }

    /// The leader resigns: whoever waits is told why, and so is whoever comes later.
    pub fn fail(&self, cause: &NodeError) {
        let waiting = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.failed.get_or_insert_with(|| cause.clone());
            state.bytes = 0;
            [std::mem::take(&mut state.small), std::mem::take(&mut state.large)]
        };
        self.changed.notify();
        waiting
            .into_iter()
            .flatten()
            .for_each(|submitted| submitted.answer.send(Err(cause.clone())));
    }

    /// How many transactions wait, and their bytes.
    pub fn depth(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.small.len() + state.large.len(), state.bytes)
    }

    /// The most bytes that have waited at a time since this was last asked: the queue is empty at
    /// some moment of each batch, so that a look at it now and then says little.
    pub fn take_peak(&self) -> usize {
        let mut state = lock(&self.state);
        let now = state.bytes;
        std::mem::replace(&mut state.peak, now)
    }

    /// Panics if what must hold between two calls doesn't.
    pub fn check_invariants(&self) {
        let state = lock(&self.state);
        let bytes: usize = state.all().map(|waits| waits.request.size()).sum();
        assert_eq!(bytes, state.bytes, "the bytes of what waits to be committed");
        assert!(state.peak >= state.bytes, "the most that has waited is more than what waits");
        assert!(state.failed.is_none() || state.closed, "who has resigned takes nothing more");
        assert!(state.failed.is_none() || state.is_empty(), "nor does anybody wait");
    }

    /// The next work. One caller at a time.
    pub async fn next(&self) -> Work {
        loop {
            if let Some(work) = self.try_next() {
                return work;
            }
            self.changed.wait().await;
        }
    }

    fn try_next(&self) -> Option<Work> {
        let mut state = lock(&self.state);
        if state.is_empty() {
            if state.closed {
                // The next worker must find the way out too.
                self.changed.notify();
                return Some(Work::Closed);
            }
            return std::mem::take(&mut state.chores).then_some(Work::Chores);
        }
        let (batch, bytes, is_long) = state.take_batch();
        assert!(!batch.is_empty() && state.bytes >= bytes, "a batch is taken of what waits");
        state.bytes -= bytes;
        if !state.is_empty() {
            self.changed.notify();
        }
        Some(Work::Batch { batch, is_long })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_types::MutationType;

    /// A transaction that sets one key to so many bytes.
    fn setting(bytes: usize) -> CommitRequest {
        let mut request = CommitRequest::default();
        request.mutations.push(MutationType::Set, b"key", &vec![0; bytes]);
        request
    }

    /// The sizes of the next batches, in kibibytes, until nothing waits.
    fn batches(queue: &CommitQueue) -> Vec<Vec<usize>> {
        let mut batches = Vec::new();
        while let Some(Work::Batch { batch, is_long }) = queue.try_next() {
            queue.check_invariants();
            let is_large = batch[0].request.size() >= LARGE_BYTES;
            assert!(is_large || !is_long, "only a large one is long");
            batches.push(batch.iter().map(|one| one.request.size() >> 10).collect());
        }
        batches
    }

    /// Commits of megabytes kept all others waiting until each of them was on the disk.
    #[test]
    fn small_transactions_wait_for_one_large_one_at_most() {
        let queue = CommitQueue::default();
        let kibibytes = [1600, 1600, 1, 2, 1700];
        let replies: Vec<_> =
            kibibytes.iter().map(|size| queue.submit(setting(size << 10))).collect();
        assert_eq!(queue.depth().0, 5);
        let Some(Work::Batch { batch: first, is_long }) = queue.try_next() else {
            panic!("a batch")
        };
        assert_eq!((first.len(), first[0].request.size() >> 10, is_long), (1, 1600, true));
        queue.put_back(first);
        // One that was put back is the next of its kind.
        assert_eq!(batches(&queue), [vec![1, 2], vec![1600], vec![1600], vec![1700]]);
        let more = [1600, 1600, 3].map(|size| queue.submit(setting(size << 10)));
        assert_eq!(batches(&queue), [vec![3], vec![1600], vec![1600]]);
        drop((replies, more));
    }
}
