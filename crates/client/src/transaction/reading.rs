//! What a transaction reads: the database as it is, or as it was at a version that is kept, but for
//! the ranges that are locked.
//!
//! Which ranges those are came with the read version, so nobody is asked, and a transaction that
//! was told of none reads as if there were no locks. Whether a read needs a range follows from what
//! it gave, as its conflict range does.

use super::shown::Asked;
use crate::endpoint::Endpoint;
use plinth_env::reply::{Reply, promise};
use plinth_types::{
    Bytes, KeyList, KeySelector, KeySpace, RangeLocks, RangeRead, RangeResult, Result, Version,
    key_after, planted,
};
use std::ops::Deref;
use std::sync::Arc;

/// The database that a transaction reads.
pub(crate) struct Reading<'a> {
    from: From<'a>,
    /// What isn't read of it.
    locks: Option<RangeLocks>,
}

enum From<'a> {
    Current(Asked<'a>),
    Pinned(Arc<dyn Endpoint>),
}

impl Deref for From<'_> {
    type Target = dyn Endpoint;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Current(endpoint) => &**endpoint,
            Self::Pinned(endpoint) => &**endpoint,
        }
    }
}

impl<'a> Reading<'a> {
    /// The whole database, as it is.
    #[inline]
    pub fn current(endpoint: Asked<'a>) -> Self {
        Self { from: From::Current(endpoint), locks: None }
    }

    /// The same, or what is kept of a version, but for these ranges.
    pub fn apart(self, pinned: Option<Arc<dyn Endpoint>>, locks: Option<RangeLocks>) -> Self {
        Self { from: pinned.map_or(self.from, From::Pinned), locks }
    }

    /// As [`Endpoint::get_many`]; `transaction_rejected_range_locked` if one of the keys is locked.
    #[inline]
    pub fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        if let Some(locks) = &self.locks
            && !planted!("ranges that are locked are read")
            && let Err(refused) = keys.iter().try_for_each(|key| locks.check_key(key))
        {
            return Reply::ready(Err(refused));
        }
        self.from.get_many(version, space, keys)
    }

    /// As [`Endpoint::get_key`], likewise for the keys on the way to the one that is found.
    pub fn get_key(
        &self,
        version: Version,
        space: KeySpace,
        selector: &KeySelector,
    ) -> Reply<Bytes> {
        let answer = self.from.get_key(version, space, selector);
        let Some(locks) = &self.locks else { return answer };
        let asked = selector.key.clone();
        checked(answer, locks, move |key| match *key < asked {
            true => (key.clone(), asked),
            false => (asked, key_after(key)),
        })
    }

    /// As [`Endpoint::get_range`], likewise for the keys that are looked at.
    pub fn get_range(
        &self,
        version: Version,
        space: KeySpace,
        read: &RangeRead,
    ) -> Reply<RangeResult> {
        let answer = self.from.get_range(version, space, read);
        let Some(locks) = &self.locks else { return answer };
        let asked = read.clone();
        checked(answer, locks, move |result| needed_by_range(&asked, result))
    }
}

/// The answer, if what it was read from isn't locked.
fn checked<T: Send + 'static>(
    mut answer: Reply<T>,
    locks: &RangeLocks,
    needed: impl FnOnce(&T) -> (Bytes, Bytes) + Send + 'static,
) -> Reply<T> {
    let locks = locks.clone();
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

/// The keys that a range read looked at: those between its selectors' keys, but for what a limit
/// left out, and its rows.
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
