//! A database as a transaction reads it that isn't lock-aware, while ranges of it are locked: reads that need one fail.
//!
//! Which ranges those are came with the read version, so it is asked nobody, and a transaction that is told of none reads the endpoint itself.
//! Whether a read needs a range follows from what it gave, as its conflict range does.

use crate::endpoint::{Description, Endpoint, Pinned, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, KeyList, KeyRange, KeySelector, KeySpace, RangeLocks, RangeRead,
    RangeResult, Result, Version, key_after, planted,
};
use std::sync::Arc;

/// What of a database isn't locked.
pub(crate) struct Unlocked {
    endpoint: Arc<dyn Endpoint>,
    locks: RangeLocks,
}

impl Unlocked {
    pub fn new(endpoint: Arc<dyn Endpoint>, locks: RangeLocks) -> Self {
        Self { endpoint, locks }
    }

    /// The answer, if what it was read from isn't locked.
    fn checked<T: Send + 'static>(
        &self,
        mut answer: Reply<T>,
        needed: impl FnOnce(&T) -> (Bytes, Bytes) + Send + 'static,
    ) -> Reply<T> {
        let locks = self.locks.clone();
        let check = move |answer: Result<T>| {
            let answer = answer?;
            let (begin, end) = needed(&answer);
            match planted!("ranges that are locked are read") {
                true => Ok(answer),
                false => locks.check(&begin, &end).map(|()| answer),
            }
        };
        if let Some(answer) = answer.try_take() {
            return Reply::ready(check(answer));
        }
        let (promise, reply) = promise();
        answer.on_complete(move |answer| promise.send(check(answer)));
        reply
    }
}

/// The keys that a range read looked at: those between its selectors' keys, but for what a limit left out, and its rows.
fn needed_by_range(read: &RangeRead, result: &RangeResult) -> (Bytes, Bytes) {
    let (begin, end) = (&read.begin.key, &read.end.key);
    let (mut low, mut high) = (begin.min(end).clone(), begin.max(end).clone());
    let (first, last) = (result.rows.row(0), result.rows.last());
    let (Some((first, _)), Some((last, _))) = (first, last) else { return (low, high) };
    let (smallest, largest) = (Bytes::copy_from_slice(first.min(last)), key_after(first.max(last)));
    match (result.more, read.reverse) {
        (true, true) => low = smallest.clone(),
        (true, false) => high = largest.clone(),
        (false, _) => {}
    }
    (low.min(smallest), high.max(largest))
}

impl Endpoint for Unlocked {
    fn env(&self) -> &Env {
        self.endpoint.env()
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.endpoint.read_version(request)
    }

    fn get_many(&self, version: Version, space: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>> {
        match keys.iter().try_for_each(|key| self.locks.check_key(key)) {
            _ if planted!("ranges that are locked are read") => self.endpoint.get_many(version, space, keys),
            Ok(()) => self.endpoint.get_many(version, space, keys),
            Err(refused) => Reply::ready(Err(refused)),
        }
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        let asked = selector.key.clone();
        let answer = self.endpoint.get_key(version, space, selector);
        self.checked(answer, move |key| match *key < asked {
            true => (key.clone(), asked),
            false => (asked, key_after(key)),
        })
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        let asked = read.clone();
        let answer = self.endpoint.get_range(version, space, read);
        self.checked(answer, move |result| needed_by_range(&asked, result))
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.endpoint.commit(request)
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        match self.locks.check_key(&key) {
            Ok(()) => self.endpoint.watch(key, value, version),
            Err(refused) => Reply::ready(Err(refused)),
        }
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.endpoint.range_size(range)
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.endpoint.split_points(range, chunk)
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.endpoint.addresses_for_key(key)
    }

    fn describe(&self) -> Description {
        self.endpoint.describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.endpoint.status_json()
    }

    fn pin_snapshot(&self) -> Reply<Pinned> {
        self.endpoint.pin_snapshot()
    }
}
