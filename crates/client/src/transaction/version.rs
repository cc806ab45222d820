//! The version that a transaction reads at: fetched at the first read, or set by the user.

use super::state::{After, ReadVersion, ReadVersionState};
use super::{Inner, Transaction};
use crate::endpoint::{ReadVersionReply, ReadVersionRequest};
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, Result, Version};
use std::sync::Arc;

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
        self.inner.read_version(epoch, false)
    }

    /// Whether the version is here, so that reads give the same whenever they are sent.
    pub fn has_read_version(&self) -> bool {
        matches!(self.inner.lock().version.state, ReadVersionState::Known(_))
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
    /// The read version, fetched if it has not been.
    pub(crate) fn read_version(self: &Arc<Self>, epoch: u64, by_commit: bool) -> Reply<Version> {
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
            }
        };
        let mut answer = self.endpoint().read_version(request);
        if let Some(result) = answer.try_take() {
            return Reply::ready(self.note_version(epoch, result));
        }
        let (promise, reply) = promise();
        self.lock().version.waiting.push(promise);
        let inner = self.clone();
        answer.on_complete(move |result| drop(inner.note_version(epoch, result)));
        reply
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
