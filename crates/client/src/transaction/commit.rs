//! Commit: from what was read and written to a request, and from its answer to the transaction's
//! outcome.
//!
//! It waits for the reads under way, because what they find belongs to what conflicts. A
//! transaction that wrote nothing ends without a request. An answer that got lost is looked into
//! before it is called unknown.

use super::after::After;
use super::attempt::{Attempt, Sent, Terms};
use super::done::Done;
use super::state::State;
use super::{Inner, Transaction};
use plinth_env::reply::Reply;
use plinth_types::{CommitReply, Error, Result, Version, Versionstamp};
use std::sync::Arc;

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
            if let Err(error) = state.check(after) {
                return Reply::ready(Err(error));
            }
            state.outcome.stamp()
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
        state.life.begin_commit();
        let epoch = state.life.epoch();
        let is_simple =
            state.reads.is_settled() && state.watches.is_empty() && !state.special.needs_commit();
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
        let mut version = self.commit_version(epoch);
        let version = match version.try_take() {
            Some(Ok(version)) => version,
            Some(Err(error)) => return self.conclude_now(epoch, Err(Failure::tried(error))),
            None => {
                let inner = self.clone();
                return self.launch(epoch, false, async move {
                    let result = match version.await {
                        Ok(version) => {
                            let (sent, reply) = inner.send_commit(attempt, version);
                            inner.outcome(epoch, sent, reply).await
                        }
                        Err(error) => Err(Failure::tried(error)),
                    };
                    inner.conclude(epoch, result)
                });
            }
        };
        let (sent, mut reply) = self.send_commit(attempt, version);
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
            if !state.life.is_in(epoch) {
                return Err(Failure::untried(Error::transaction_cancelled()));
            }
            self.prepare(&mut state)
        };
        let Some(attempt) = attempt.map_err(Failure::tried)? else {
            if !self.lock().watches.is_empty() {
                self.read_version(epoch).await.map_err(Failure::tried)?;
            }
            return Ok(Done::nothing());
        };
        let version = self.commit_version(epoch).await.map_err(Failure::tried)?;
        let (sent, reply) = self.send_commit(attempt, version);
        self.outcome(epoch, sent, reply).await
    }

    fn send_commit(&self, attempt: Attempt, version: Version) -> (Sent, Reply<CommitReply>) {
        let prefix = self.has_tenant().then(|| self.prefix());
        attempt.send(&**self.database.endpoint(), version, prefix)
    }

    async fn outcome(
        &self,
        epoch: u64,
        sent: Sent,
        reply: Reply<CommitReply>,
    ) -> Result<Done, Failure> {
        let result = reply.await;
        if is_unknown(&result) {
            return self.find_out(&sent).await.map_err(Failure::tried);
        }
        self.judge(epoch, &sent, result)
    }

    fn judge(&self, epoch: u64, sent: &Sent, result: Result<CommitReply>) -> Result<Done, Failure> {
        match result {
            Ok(CommitReply::Committed { version, batch_index }) => Ok(Done {
                version: Some(version),
                stamp: Ok(Versionstamp::new(version, batch_index)),
            }),
            Ok(CommitReply::Conflict { conflicting_reads }) => {
                let mut state = self.lock();
                if state.life.is_in(epoch) {
                    state.outcome.note_conflicts(sent.conflicting(&conflicting_reads));
                }
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
        if !state.life.is_in(epoch) {
            return result.map(drop).map_err(|failure| failure.error);
        }
        let result = match result {
            Ok(done) => {
                let start = done.version.or(state.version.known()).unwrap_or(0);
                if !state.watches.is_empty() {
                    let endpoint = self.shown.get();
                    let endpoint = endpoint.unwrap_or_else(|| self.database().endpoint().clone());
                    state.watches.start(&endpoint, self.prefix(), start, &mut after);
                }
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
        state.outcome.succeed(done, after);
        if !self.api(700) {
            state.version.forget();
        }
        if !self.api(410) {
            state.life.renew_later();
        }
    }

    fn note_failure(&self, state: &mut State, failure: &Failure, after: &mut After) {
        if failure.tried {
            state.outcome.fail(after);
            state.watches.fail_all(&failure.error, after);
        }
        if !self.api(410) && !state.life.is_dead() {
            state.life.renew_later();
        }
    }

    /// The request to commit; `None` if nothing was written.
    fn prepare(&self, state: &mut State) -> Result<Option<Attempt>> {
        let terms = Terms {
            settings: &state.options,
            env: self.env(),
            api: self.api_version(),
            may_lose_answers: self.database.may_lose_answers(),
            is_fresh: state.version.is_unset(),
            shown: self.shown.get(),
        };
        Attempt::of(&state.reads, &mut state.writes, &terms)
    }

    /// Waits until all reads have their answer.
    pub(super) async fn drain_reads(&self, epoch: u64) -> Result<()> {
        let waiting = {
            let mut state = self.lock();
            if state.life.is_in(epoch) { state.reads.drained() } else { None }
        };
        if let Some(waiting) = waiting {
            waiting.await?;
        }
        let state = self.lock();
        let failure = state.reads.failure().filter(|_| state.life.is_in(epoch));
        failure.cloned().map_or(Ok(()), Err)
    }
}
