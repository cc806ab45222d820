//! The commit queue: where clients leave their transactions and the front of the pipeline collects
//! them.
//!
//! It has one reader at a time (the holder of the batch lock) and any number of writers. What waits
//! in it is bounded by bytes; beyond the bound commits are refused at once with
//! `commit_proxy_memory_limit_exceeded`, which clients retry with a long back-off.

use crate::batch_lock::lock;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_env::sync::Signal;
use plinth_types::{CommitReply, CommitRequest, Error, Result, limits};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Bytes of waiting transactions beyond which new ones are refused.
const QUEUE_BYTES: usize = 256 << 20;

/// Bytes of transactions after which a batch is full.
const BATCH_BYTES: usize = 4 << 20;

/// A transaction and whoever waits for its fate.
pub(crate) struct Submitted {
    pub request: CommitRequest,
    /// Who is a member of the cluster is among what it changes: the pipeline's own.
    pub changes_members: bool,
    pub answer: Answer,
}

/// The duty to tell a client what became of its transaction. Dropped unsent, be it by a task that
/// panicked, it tells that nobody knows.
pub(crate) struct Answer(Option<Promise<CommitReply>>);

impl Answer {
    pub fn new(promise: Promise<CommitReply>) -> Self {
        Self(Some(promise))
    }

    pub fn send(mut self, result: Result<CommitReply>) {
        if let Some(promise) = self.0.take() {
            promise.send(result);
        }
    }

    /// The transaction may have been committed, or not.
    pub fn unknown(self, cause: &Error) {
        self.send(Err(Error::commit_unknown_result().with_detail(cause.to_string())));
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(promise) = self.0.take() {
            let detail = "the commit was given up on its way";
            promise.send(Err(Error::commit_unknown_result().with_detail(detail)));
        }
    }
}

/// What the reader of the queue gets.
pub(crate) enum Work {
    /// Transactions, in order of arrival; at least one.
    Batch(Vec<Submitted>),
    /// Nothing to commit, but time for the chores (move the window, extend the lease).
    Chores,
    /// No more will come: the database closes and the queue is empty, or the leader has resigned.
    Closed,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Submitted>,
    bytes: usize,
    /// The most bytes since somebody asked.
    peak: usize,
    chores: bool,
    closed: bool,
    /// Why the leader has resigned, if it has.
    failed: Option<Error>,
}

#[derive(Default)]
pub(crate) struct CommitQueue {
    state: Mutex<State>,
    changed: Signal,
}

impl CommitQueue {
    /// Leaves a transaction; the reply comes when its fate is known.
    pub fn submit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.submit_as(request, false)
    }

    /// Leaves a transaction that changes who is a member of the cluster.
    pub fn submit_members(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.submit_as(request, true)
    }

    fn submit_as(&self, request: CommitRequest, changes_members: bool) -> Reply<CommitReply> {
        let (promise, reply) = promise();
        {
            let mut state = lock(&self.state);
            if let Some(cause) = &state.failed {
                return Reply::ready(Err(cause.clone()));
            }
            if state.closed {
                return Reply::ready(Err(Error::shutdown_in_progress()));
            }
            let bytes = request.size();
            if state.bytes + bytes > QUEUE_BYTES && !state.waiting.is_empty() {
                let detail = format!("{} bytes wait to be committed", state.bytes);
                return Reply::ready(Err(
                    Error::commit_proxy_memory_limit_exceeded().with_detail(detail)
                ));
            }
            state.bytes += bytes;
            state.peak = state.peak.max(state.bytes);
            state.waiting.push_back(Submitted {
                request,
                changes_members,
                answer: Answer::new(promise),
            });
        }
        self.changed.notify();
        reply
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
            state.bytes += submitted.request.size();
            state.waiting.push_front(submitted);
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
    pub fn fail(&self, cause: &Error) {
        let waiting = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.failed.get_or_insert_with(|| cause.clone());
            state.bytes = 0;
            std::mem::take(&mut state.waiting)
        };
        self.changed.notify();
        waiting.into_iter().for_each(|submitted| submitted.answer.send(Err(cause.clone())));
    }

    /// How many transactions wait, and their bytes.
    pub fn depth(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.waiting.len(), state.bytes)
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
        let bytes: usize = state.waiting.iter().map(|waits| waits.request.size()).sum();
        assert_eq!(bytes, state.bytes, "the bytes of what waits to be committed");
        assert!(state.peak >= state.bytes, "the most that has waited is more than what waits");
        assert!(state.failed.is_none() || state.closed, "who has resigned takes nothing more");
        assert!(state.failed.is_none() || state.waiting.is_empty(), "nor does anybody wait");
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
        if state.waiting.is_empty() {
            if state.closed {
                // The next worker must find the way out too.
                self.changed.notify();
                return Some(Work::Closed);
            }
            return std::mem::take(&mut state.chores).then_some(Work::Chores);
        }
        let (mut count, mut bytes) = (0, 0);
        for submitted in state.waiting.iter().take(limits::BATCH_TRANSACTIONS) {
            let size = submitted.request.size();
            if count > 0 && bytes + size > BATCH_BYTES {
                break;
            }
            count += 1;
            bytes += size;
        }
        assert!(count > 0 && state.bytes >= bytes, "a batch is taken of what waits");
        state.bytes -= bytes;
        let rest = state.waiting.split_off(count);
        let batch = std::mem::replace(&mut state.waiting, rest);
        if !state.waiting.is_empty() {
            self.changed.notify();
        }
        Some(Work::Batch(batch.into()))
    }
}
