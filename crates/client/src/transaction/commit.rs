//! Commit: from what was read and written to a request, and from its answer to the transaction's
//! outcome.
//!
//! It waits for the reads under way, because what they find belongs to what conflicts. A
//! transaction that wrote nothing ends without a request. An answer that got lost is looked into
//! before it is called unknown.

use super::conflicts::coalesced;
use super::done::Done;
use super::state::{After, ReadVersionState, State};
use super::{Inner, Transaction};
use crate::endpoint::Pinned;
use bytes::Bytes;
use plinth_env::reply::{Reply, promise};
use plinth_types::{
    CommitReply, CommitRequest, Conflicts, Error, MutationList, MutationType, RangeList, Result,
    Version, Versionstamp, key_after, planted, system,
};
use std::sync::Arc;

/// Mutation lists up to this size are copied into the request, so that the transaction keeps its
/// buffer.
const COPIED_BYTES: usize = 16 << 10;

/// A commit on its way to the endpoint.
pub(super) struct Attempt {
    pub(super) request: CommitRequest,
    /// A key that the transaction conflicts with itself on, if its answer may get lost.
    pub(super) self_conflict: Option<Bytes>,
    /// The read conflict ranges as sent, if the reply names some of them.
    reads: Option<RangeList>,
}

/// What to know of a request once its answer comes.
struct Sent {
    self_conflict: Option<Bytes>,
    id: Option<Bytes>,
    reads: Option<RangeList>,
    version: Version,
}

fn is_unknown(result: &Result<CommitReply>) -> bool {
    result.as_ref().err().is_some_and(super::unknown::is_unknown)
}

/// Why a commit failed, and whether it came as far as to be tried.
struct Failure {
    error: Error,
    tried: bool,
}

impl Failure {
    fn tried(error: Error) -> Self {
        Self { error, tried: true }
    }

    fn untried(error: Error) -> Self {
        Self { error, tried: false }
    }
}

impl Transaction {
    /// Commits: afterwards all writes are durable and visible, or, if it fails, none is (but see
    /// [`Error::is_maybe_committed`]).
    ///
    /// # Errors
    /// `not_committed` if something that was read has been written meanwhile;
    /// `transaction_too_large`; the error of a read or an earlier call.
    /// [`on_error`](Transaction::on_error) knows which to retry.
    pub fn commit(&self) -> Reply<()> {
        self.inner.commit()
    }

    /// The ten bytes that the commit puts into versionstamped keys and values. To be called before
    /// commit; the result comes with the commit's.
    ///
    /// # Errors
    /// `no_commit_version` if the transaction wrote nothing, `transaction_invalid_version` if its
    /// commit failed.
    pub fn versionstamp(&self) -> Reply<Versionstamp> {
        let inner = &self.inner;
        inner.with(|state, after| {
            if let Err(error) = state
                .check_deferred()
                .and_then(|()| state.check_not_committing(after))
                .and_then(|()| state.check_alive())
            {
                return Reply::ready(Err(error));
            }
            if let Some(stamp) = &state.outcome.stamp {
                return Reply::ready(stamp.clone());
            }
            let (promise, reply) = promise();
            state.outcome.stamp_waiting.push(promise);
            reply
        })
    }
}

impl Inner {
    fn commit(self: &Arc<Self>) -> Reply<()> {
        let mut after = After::default();
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Err(error) = state.check(&mut after) {
            drop(guard);
            after.run();
            return Reply::ready(Err(error));
        }
        state.life.committing = true;
        let epoch = state.life.epoch;
        let is_simple = state.reads.pending == 0
            && state.reads.failed.is_none()
            && state.watches.is_empty()
            && !state.special.as_ref().is_some_and(|special| special.needs_commit());
        if is_simple {
            let attempt = self.prepare(state);
            drop(guard);
            return self.commit_now(epoch, attempt);
        }
        drop(guard);
        self.flush();
        self.launch(epoch, false, self.clone().commit_task(epoch))
    }

    /// Commits as far as answers are there at once.
    fn commit_now(self: &Arc<Self>, epoch: u64, attempt: Result<Option<Attempt>>) -> Reply<()> {
        let attempt = match attempt {
            Ok(Some(attempt)) => attempt,
            Ok(None) => return self.conclude_now(epoch, Ok(Done::nothing())),
            Err(error) => return self.conclude_now(epoch, Err(Failure::tried(error))),
        };
        let mut version = self.read_version(epoch, true);
        let version = match version.try_take() {
            Some(Ok(version)) => version,
            Some(Err(error)) => return self.conclude_now(epoch, Err(Failure::tried(error))),
            None => {
                let inner = self.clone();
                return self.launch(epoch, false, async move {
                    let result = match version.await {
                        Ok(version) => {
                            let (sent, reply) = inner.send(attempt, version);
                            inner.outcome(epoch, sent, reply).await
                        }
                        Err(error) => Err(Failure::tried(error)),
                    };
                    inner.conclude(epoch, result)
                });
            }
        };
        let (sent, mut reply) = self.send(attempt, version);
        let reply = match reply.try_take() {
            Some(result) if !is_unknown(&result) => {
                return self.conclude_now(epoch, self.judge(epoch, &sent, result));
            }
            Some(result) => Reply::ready(result),
            None => reply,
        };
        let inner = self.clone();
        self.launch(epoch, false, async move {
            let result = inner.outcome(epoch, sent, reply).await;
            inner.conclude(epoch, result)
        })
    }

    async fn commit_task(self: Arc<Self>, epoch: u64) -> Result<()> {
        let result = self.try_commit(epoch).await;
        self.conclude(epoch, result)
    }

    async fn try_commit(self: &Arc<Self>, epoch: u64) -> Result<Done, Failure> {
        self.special_commit(epoch).await.map_err(Failure::untried)?;
        self.drain_reads(epoch).await.map_err(Failure::untried)?;
        let attempt = {
            let mut state = self.lock();
            if state.life.epoch != epoch {
                return Err(Failure::untried(Error::transaction_cancelled()));
            }
            self.prepare(&mut state)
        };
        let Some(attempt) = attempt.map_err(Failure::tried)? else {
            if !self.lock().watches.is_empty() {
                self.read_version(epoch, false).await.map_err(Failure::tried)?;
            }
            return Ok(Done::nothing());
        };
        let version = self.read_version(epoch, true).await.map_err(Failure::tried)?;
        let (sent, reply) = self.send(attempt, version);
        self.outcome(epoch, sent, reply).await
    }

    fn send(&self, attempt: Attempt, version: Version) -> (Sent, Reply<CommitReply>) {
        let Attempt { mut request, self_conflict, reads } = attempt;
        if self.has_tenant() {
            self.add_prefix(&mut request);
        }
        request.conflicts.read_version = version;
        let sent = Sent { self_conflict, id: request.idempotency_id.clone(), reads, version };
        (sent, self.endpoint().commit(request))
    }

    async fn outcome(
        &self,
        epoch: u64,
        sent: Sent,
        reply: Reply<CommitReply>,
    ) -> Result<Done, Failure> {
        let result = reply.await;
        if is_unknown(&result) {
            return self
                .find_out(sent.self_conflict, sent.id, sent.version)
                .await
                .map_err(Failure::tried);
        }
        self.judge(epoch, &sent, result)
    }

    fn judge(&self, epoch: u64, sent: &Sent, result: Result<CommitReply>) -> Result<Done, Failure> {
        match result {
            Ok(CommitReply::Committed { version, batch_index }) => {
                Ok(Done { version, stamp: Ok(Versionstamp::new(version, batch_index)) })
            }
            Ok(CommitReply::Conflict { conflicting_reads }) => {
                self.note_conflicts(epoch, sent.reads.as_ref(), &conflicting_reads);
                Err(Failure::tried(Error::not_committed()))
            }
            Err(error) => Err(Failure::tried(error)),
        }
    }

    /// Notes what became of a commit that is over without having waited.
    fn conclude_now(&self, epoch: u64, result: Result<Done, Failure>) -> Reply<()> {
        let result = self.conclude(epoch, result);
        if !self.api(410) {
            self.with(|state, after| self.renew_if_due(state, after));
        }
        Reply::ready(result)
    }

    /// Notes what became of the commit.
    fn conclude(&self, epoch: u64, result: Result<Done, Failure>) -> Result<()> {
        let mut after = After::default();
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.life.epoch != epoch {
            return result.map(drop).map_err(|failure| failure.error);
        }
        let result = match result {
            Ok(done) => {
                let start = if done.version > 0 {
                    done.version
                } else {
                    state.version.known().unwrap_or(0)
                };
                state.watches.start(self, start, &mut after);
                self.note_commit(state, &done, &mut after);
                Ok(())
            }
            Err(failure) => {
                self.note_failure(state, &failure, &mut after);
                Err(failure.error)
            }
        };
        drop(guard);
        after.run();
        result
    }

    fn note_commit(&self, state: &mut State, done: &Done, after: &mut After) {
        state.outcome.committed_version = done.version;
        for promise in state.outcome.stamp_waiting.drain(..) {
            after.reply(promise, done.stamp.clone());
        }
        state.outcome.stamp = Some(done.stamp.clone());
        if !self.api(700) {
            state.version.state = ReadVersionState::Unset;
            state.version.metadata = None;
            state.version.range_locks = None;
        }
        if !self.api(410) {
            state.life.renewal_due = true;
        }
    }

    fn note_failure(&self, state: &mut State, failure: &Failure, after: &mut After) {
        if failure.tried {
            for promise in state.outcome.stamp_waiting.drain(..) {
                after.reply(promise, Err(Error::transaction_invalid_version()));
            }
            state.outcome.stamp = Some(Err(Error::transaction_invalid_version()));
            state.watches.fail_all(&failure.error, after);
        }
        if !self.api(410) && state.life.dead.is_none() {
            state.life.renewal_due = true;
        }
    }

    /// Waits until all reads have their answer.
    pub(crate) async fn drain_reads(&self, epoch: u64) -> Result<()> {
        let waiting = {
            let mut state = self.lock();
            if state.life.epoch != epoch || state.reads.pending == 0 {
                None
            } else {
                let (promise, reply) = promise();
                state.reads.drained = Some(promise);
                Some(reply)
            }
        };
        if let Some(waiting) = waiting {
            waiting.await?;
        }
        let state = self.lock();
        state.reads.failed.clone().filter(|_| state.life.epoch == epoch).map_or(Ok(()), Err)
    }

    /// Notes which of the read conflict ranges conflicted, if that was asked for.
    fn note_conflicts(&self, epoch: u64, reads: Option<&RangeList>, positions: &[usize]) {
        let conflicting = reads.map(|reads| {
            let mut conflicting = RangeList::new();
            for (at, range) in reads.iter().enumerate() {
                if positions.contains(&at) {
                    conflicting.push(range.begin, &range.end_key());
                }
            }
            Box::new(conflicting)
        });
        let mut state = self.lock();
        if state.life.epoch == epoch {
            state.outcome.conflicting = conflicting;
        }
    }

    /// The request to commit; `None` if nothing was written.
    fn prepare(&self, state: &mut State) -> Result<Option<Attempt>> {
        let options = &state.options.commit;
        let (size_limit, read_only) = (options.size_limit, options.read_only);
        let pinned = state.options.version.pinned;
        let (report, lock_aware) = (options.report_conflicting_keys, options.lock_aware);
        let idempotency_id = options.idempotency.as_ref().map(|idempotency| idempotency.id.clone());
        let risky = options.causal_write_risky;
        if state.writes.mutations.is_empty() && state.writes.conflicts.is_empty() {
            return Ok(None);
        }
        if read_only {
            return Err(Error::transaction_read_only());
        }
        if pinned {
            return Err(Pinned::takes_no_writes());
        }
        // Operations on keys that are not known yet, and appends, take effect as they are seen:
        // merged.
        let merged = !state.options.ryw_disabled
            && (!state.writes.stamped.is_empty() || state.writes.appends > 1);
        let mutations = if merged {
            state.writes.map().mutations()
        } else if state.writes.mutations.as_bytes().len() <= COPIED_BYTES {
            state.writes.mutations.clone()
        } else {
            std::mem::take(&mut state.writes.mutations)
        };
        let mut request = CommitRequest {
            conflicts: Conflicts {
                read_version: 0,
                reads: if report {
                    coalesced(&state.reads.conflicts)
                } else {
                    state.reads.conflicts.clone()
                },
                writes: state.writes.conflicts.clone(),
            },
            mutations,
            lock_aware,
            report_conflicting_keys: report,
            idempotency_id,
        };
        if self.size_of(&request) > size_limit {
            self.shrink(state, &mut request, merged);
            let size = self.size_of(&request);
            if size > size_limit {
                return Err(Error::transaction_too_large()
                    .with_detail(format!("{size} bytes, at most {size_limit}")));
            }
        }
        let is_fresh = matches!(state.version.state, ReadVersionState::Unset);
        let self_conflict = self.guard(&mut request, risky, is_fresh);
        let reads = report.then(|| request.conflicts.reads.clone());
        Ok(Some(Attempt { request, self_conflict, reads }))
    }

    fn size_of(&self, request: &CommitRequest) -> usize {
        if self.api(300) {
            return request.size();
        }
        request.mutations.as_bytes().len() + request.mutations.len() * (44 - 9)
    }

    /// Merges what can be merged, for a transaction that would be too large as it was written.
    fn shrink(&self, state: &mut State, request: &mut CommitRequest, merged: bool) {
        if !state.options.ryw_disabled && !merged {
            if state.writes.mutations.is_empty() {
                std::mem::swap(&mut state.writes.mutations, &mut request.mutations);
            }
            request.mutations = state.writes.map().mutations();
        }
        request.conflicts.reads = coalesced(&request.conflicts.reads);
        request.conflicts.writes = coalesced(&request.conflicts.writes);
    }

    /// Adds keys that the transaction conflicts with itself on, so that it can't commit any more
    /// once another transaction has written one of them. Gives such a key.
    fn guard(&self, request: &mut CommitRequest, risky: bool, is_fresh: bool) -> Option<Bytes> {
        let conflicts = &mut request.conflicts;
        if planted!("commits do not conflict with themselves") {
            return None;
        }
        let may_lose_answers = self.database.may_lose_answers();
        if may_lose_answers && let Some(id) = &request.idempotency_id {
            return Some(add_to_both(conflicts, id));
        }
        if risky {
            return None;
        }
        if may_lose_answers {
            let common = super::unknown::intersection(&conflicts.writes, &conflicts.reads);
            if common.is_some() {
                return common;
            }
        } else if is_fresh || !conflicts.reads.is_empty() {
            // No answer gets lost here, and a read, or a read version from a moment ago, says how
            // old it is.
            return None;
        }
        let mut id = [0; 16];
        self.env().fill_random(&mut id);
        Some(add_to_both(conflicts, &id))
    }

    /// Puts the tenant's prefix before all keys.
    fn add_prefix(&self, request: &mut CommitRequest) {
        let prefix = self.prefix();
        let stored = |key: &[u8]| {
            if *key == *system::METADATA_VERSION { key.to_vec() } else { [prefix, key].concat() }
        };
        let mut mutations = MutationList::new();
        for mutation in &request.mutations {
            match mutation.kind {
                MutationType::ClearRange => {
                    mutations.push(
                        mutation.kind,
                        &stored(mutation.param1),
                        &stored(mutation.param2),
                    );
                }
                MutationType::SetVersionstampedKey => {
                    let mut key = stored(mutation.param1);
                    if let Some(offset) = key.last_chunk_mut::<4>() {
                        *offset = (i32::from_le_bytes(*offset) + prefix.len() as i32).to_le_bytes();
                    }
                    mutations.push(mutation.kind, &key, mutation.param2);
                }
                kind => mutations.push(kind, &stored(mutation.param1), mutation.param2),
            }
        }
        request.mutations = mutations;
        for list in [&mut request.conflicts.reads, &mut request.conflicts.writes] {
            let mut prefixed = RangeList::new();
            for range in list.iter() {
                if *range.begin == *system::METADATA_VERSION {
                    prefixed.push(range.begin, &key_after(range.begin));
                } else {
                    prefixed.push(&stored(range.begin), &stored(&range.end_key()));
                }
            }
            *list = prefixed;
        }
    }
}

/// Adds a key to both conflict sets.
fn add_to_both(conflicts: &mut Conflicts, id: &[u8]) -> Bytes {
    let key = [system::SELF_CONFLICT_PREFIX, id].concat();
    conflicts.reads.push_single(&key);
    conflicts.writes.push_single(&key);
    key.into()
}
