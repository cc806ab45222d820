//! The version that a transaction reads at: fetched at the first read, or set by the user.

use super::state::{After, ReadVersion, ReadVersionState};
use super::{Inner, Transaction};
use crate::endpoint::{ReadVersionReply, ReadVersionRequest};
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, Result, Version};
use std::sync::Arc;
use std::time::Duration;

/// Requests are held back for at least this long, or not at all.
const HELD_BACK: Duration = Duration::from_millis(5);

impl ReadVersion {
    /// Whether no version was asked for or set.
    pub(crate) fn begin_fixed(&self) -> bool {
        matches!(self.state, ReadVersionState::Unset)
    }

    pub(crate) fn fix(&mut self, version: Version) {
        self.state = ReadVersionState::Known(version);
    }
}

impl Transaction {
    /// The version at which the transaction reads.
    ///
    /// It includes everything that was acknowledged before it was asked for, which is when this is called or
    /// at the transaction's first read.
    pub fn get_read_version(&self) -> Reply<Version> {
        let epoch = {
            let state = self.inner.lock();
            if let Err(error) = state.check_deferred().and_then(|()| state.check_alive()) {
                return Reply::ready(Err(error));
            }
            state.life.epoch
        };
        self.inner.version(epoch, false)
    }

    /// Has the transaction read at `version`. Only before its first read, and once: afterwards that is an error,
    /// `read_version_already_set`, which the next call tells. `version_invalid` if it is not positive.
    pub fn set_read_version(&self, version: Version) {
        self.inner.with(|state, after| {
            if state.life.deferred.is_some() {
                return;
            }
            let result = if !state.version.begin_fixed() {
                Err(Error::read_version_already_set())
            } else if version <= 0 {
                Err(Error::version_invalid().with_detail(format!("{version}")))
            } else {
                state.version.fix(version);
                Ok(())
            };
            state.defer(result, after);
        });
    }
}

impl Inner {
    /// The read version for an operation on keys: a tenant's keys are known only once the tenant is.
    pub(crate) fn read_version(self: &Arc<Self>, epoch: u64, by_commit: bool) -> Reply<Version> {
        let Some(known) = self.tenant_known() else { return self.version(epoch, by_commit) };
        let (promise, reply) = promise();
        let inner = self.clone();
        known.on_complete(move |known| match known {
            Ok(()) => inner.version(epoch, by_commit).on_complete(move |version| promise.send(version)),
            Err(error) => promise.send(Err(error)),
        });
        reply
    }

    /// The read version, fetched if it has not been.
    fn version(self: &Arc<Self>, epoch: u64, by_commit: bool) -> Reply<Version> {
        let request = {
            let mut state = self.lock();
            if state.life.epoch != epoch {
                return Reply::ready(Err(Error::transaction_cancelled()));
            }
            match &state.version.state {
                ReadVersionState::Known(version) => return Reply::ready(Ok(*version)),
                ReadVersionState::Failed(error) => return Reply::ready(Err(error.clone())),
                ReadVersionState::Requested => {
                    let (promise, reply) = promise();
                    state.version.waiting.push(promise);
                    return reply;
                }
                ReadVersionState::Unset => {}
            }
            state.version.state = ReadVersionState::Requested;
            state.version.by_commit = by_commit;
            let options = &state.options;
            ReadVersionRequest {
                priority: options.version.priority,
                lock_aware: options.commit.lock_aware,
                causal_risky: options.version.causal_risky || by_commit,
                tags: options.version.tags.clone(),
                others: 0,
            }
        };
        let tagged_since = (!request.tags.is_empty()).then(|| self.env().now());
        let mut answer = self.endpoint().read_version(request);
        if let Some(result) = answer.try_take() {
            return Reply::ready(self.note_version(epoch, result));
        }
        let (promise, reply) = promise();
        self.lock().version.waiting.push(promise);
        let inner = self.clone();
        answer.on_complete(move |result| {
            if let Some(since) = tagged_since {
                inner.note_held_back(epoch, since);
            }
            drop(inner.note_version(epoch, result));
        });
        reply
    }

    /// Notes how long a transaction with tags waited for its read version, if that is more than a way there and back.
    fn note_held_back(&self, epoch: u64, since: Duration) {
        let waited = self.env().now().saturating_sub(since);
        let mut state = self.lock();
        if state.life.epoch == epoch && waited >= HELD_BACK {
            state.version.held_back = waited;
        }
    }

    fn note_version(&self, epoch: u64, result: Result<ReadVersionReply>) -> Result<Version> {
        let mut after = After::default();
        let mut state = self.lock();
        if state.life.epoch != epoch {
            return Err(Error::transaction_cancelled());
        }
        let result = result.map(|reply| {
            state.version.metadata = Some(reply.metadata_version);
            reply.version
        });
        state.version.state = match &result {
            Ok(version) => ReadVersionState::Known(*version),
            Err(error) => ReadVersionState::Failed(error.clone()),
        };
        for promise in std::mem::take(&mut state.version.waiting) {
            after.reply(promise, result.clone());
        }
        drop(state);
        after.run();
        result
    }
}
