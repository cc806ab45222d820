//! A try of a transaction as special keys see it, and the reads and the commit that go to them.
//!
//! What they ask for belongs to the try in which they were called: once it is over, it changes
//! nothing. System keys are read and written here whatever the transaction itself may, locked or
//! not.

use super::Inner;
use crate::endpoint::Endpoint;
use crate::range::{Limits, RangeOptions};
use crate::special_keys::{Allowed, ConflictsOf, Host, Special, SpecialKeys};
use bytes::Bytes;
use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_types::{
    Error, KeyList, KeySelector, KeySpace, KeyValue, MutationType, RangeList, RangeRead,
    RangeResult, Result, Version, key_after, system,
};
use std::ops::Deref;
use std::sync::Arc;

/// A try of a transaction.
#[derive(Clone)]
struct Try {
    inner: Arc<Inner>,
    epoch: u64,
}

impl Inner {
    fn special_keys(self: &Arc<Self>, epoch: u64) -> SpecialKeys<Try> {
        SpecialKeys::new(Try { inner: self.clone(), epoch })
    }

    /// The try that special keys are read in, or the error that every call tells.
    fn special_epoch(&self) -> Result<u64> {
        let state = self.lock();
        state.life.check_deferred().map(|()| state.life.epoch())
    }

    /// A read of one special key.
    pub(super) fn special_get(self: &Arc<Self>, key: &[u8]) -> Reply<Option<Bytes>> {
        match self.special_epoch() {
            Err(error) => Reply::ready(Err(error)),
            Ok(epoch) => {
                let key = Bytes::copy_from_slice(key);
                self.launch(epoch, false, self.special_keys(epoch).get(key))
            }
        }
    }

    /// A read of a range of special keys; without limits that make sense it fails.
    pub(super) fn special_range(
        self: &Arc<Self>,
        range: RangeOptions,
        limits: Option<Limits>,
    ) -> Reply<RangeResult> {
        match (self.special_epoch(), limits) {
            (Err(error), _) => Reply::ready(Err(error)),
            (Ok(_), _) if !self.api(630) => Reply::ready(Ok(RangeResult::default())),
            (Ok(_), None) => Reply::ready(Err(Error::range_limits_invalid())),
            (Ok(epoch), Some(limits)) => {
                self.launch(epoch, false, self.special_keys(epoch).get_range(range, limits))
            }
        }
    }

    /// Carries out what was written to special keys.
    pub(super) async fn special_commit(self: &Arc<Self>, epoch: u64) -> Result<()> {
        self.special_keys(epoch).commit().await
    }
}

impl Try {
    /// Runs `f` under the lock, unless the try is over.
    fn change(&self, f: impl FnOnce(&mut super::state::State)) {
        let mut state = self.inner.lock();
        if state.life.is_in(self.epoch) {
            f(&mut state);
        }
    }

    /// The version to read system keys at. Reads of the database's own state work while it is
    /// locked.
    fn system_version(&self) -> Reply<Version> {
        self.change(|state| state.options.commit.lock_aware = true);
        self.read_version()
    }
}

fn between(begin: &[u8], end: &[u8], limit: usize) -> RangeRead {
    RangeRead {
        begin: KeySelector::first_greater_or_equal(Bytes::copy_from_slice(begin)),
        end: KeySelector::first_greater_or_equal(Bytes::copy_from_slice(end)),
        limit,
        target_bytes: usize::MAX,
        reverse: false,
    }
}

impl Host for Try {
    fn endpoint(&self) -> impl Deref<Target = dyn Endpoint> + Send {
        self.inner.endpoint()
    }

    fn env(&self) -> &Env {
        self.inner.env()
    }

    fn api_version(&self) -> i32 {
        self.inner.api_version()
    }

    fn with_special<R>(&self, f: impl FnOnce(&mut Special, Allowed) -> R) -> R {
        let mut state = self.inner.lock();
        let allowed = state.allowed();
        if state.life.is_in(self.epoch) {
            return f(&mut state.special, allowed);
        }
        drop(state);
        f(&mut Special::default(), allowed)
    }

    fn read_version(&self) -> Reply<Version> {
        self.inner.read_version(self.epoch)
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let version = self.system_version().await?;
        let mut keys = KeyList::new();
        keys.push(key);
        let values = self.inner.reading().get_many(version, KeySpace::System, &keys).await?;
        Ok(values.into_iter().next().flatten())
    }

    async fn get_range(&self, begin: &[u8], end: &[u8]) -> Result<Vec<KeyValue>> {
        let version = self.system_version().await?;
        let mut from = Bytes::copy_from_slice(begin);
        let mut rows = Vec::new();
        loop {
            let read = between(&from, end, usize::MAX);
            let result = self.inner.reading().get_range(version, KeySpace::System, &read).await?;
            rows.extend(result.rows.key_values());
            match result.rows.last() {
                Some((last, _)) if result.more => from = key_after(last),
                _ => return Ok(rows),
            }
        }
    }

    async fn has_rows(&self, begin: &[u8], end: &[u8]) -> Result<bool> {
        let version = self.system_version().await?;
        let read = between(begin, end, 1);
        let result = self.inner.reading().get_range(version, KeySpace::System, &read).await?;
        Ok(!result.rows.is_empty())
    }

    fn depend_on(&self, begin: &[u8], end: &[u8]) {
        self.change(|state| state.reads.add_uncounted(begin, end));
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>) {
        match value {
            None => self.clear(key, &key_after(key)),
            Some(value) => self.change(|state| {
                state.options.commit.lock_aware = true;
                state.writes.push_key(MutationType::Set, key, value, true);
            }),
        }
    }

    fn clear(&self, begin: &[u8], end: &[u8]) {
        self.change(|state| {
            state.options.commit.lock_aware = true;
            state.writes.push_clear(begin, end, true);
        });
    }

    fn lock_database(&self, operand: &[u8]) {
        self.change(|state| {
            let kind = MutationType::SetVersionstampedValue;
            state.writes.push_key(kind, system::DATABASE_LOCKED, operand, true);
            state.writes.conflict_with_all();
        });
    }

    async fn reads_done(&self) -> Result<()> {
        self.inner.drain_reads(self.epoch).await
    }

    fn conflicts(&self, of: ConflictsOf) -> RangeList {
        let state = self.inner.lock();
        match of {
            ConflictsOf::Reads => state.reads.conflicts().clone(),
            ConflictsOf::Writes => state.writes.all_conflicts(state.outcome.known_stamp()),
            ConflictsOf::LastCommit => state.outcome.conflicting().cloned().unwrap_or_default(),
        }
    }
}
