//! Watches: promises that are kept when a key's value becomes another than the one remembered.
//!
//! A watch remembers the value its transaction saw (or wrote). Whoever applies a batch tells
//! [`Watches::changed`] of each key that changed; those watches that differ are fired once the
//! batch is published. Registering looks at the present value after the watch is in the table, so
//! that no change can slip between.

use crate::batch_lock::lock;
use crate::failure::NodeError;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_storage::StorageResult;
use plinth_types::{Bytes, Error, Version, planted, probe};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Watch {
    id: u64,
    value: Option<Bytes>,
    promise: Promise<Version>,
}

#[derive(Default)]
struct Table {
    by_key: HashMap<Bytes, Vec<Watch>>,
    next_id: u64,
    sweep_at: usize,
}

#[derive(Default)]
pub(crate) struct Watches {
    table: Mutex<Table>,
    /// How many there are, so that a database without watches pays one load a key.
    count: AtomicUsize,
}

/// Below this many watches the table is not searched for abandoned ones.
const SWEEP_AT_LEAST: usize = 1024;

impl Watches {
    #[cfg(test)]
    /// Adds a watch on `key` for values other than `value`; `current` reads the newest published
    /// value.
    pub fn register(
        &self,
        key: Bytes,
        value: Option<Bytes>,
        current: impl FnOnce() -> (Version, Option<Bytes>),
    ) -> Reply<Version> {
        let (id, reply) = self.add(key.clone(), value);
        let (version, now) = current();
        self.compare(&key, id, Ok((version, now)));
        reply
    }

    /// Adds a watch on `key` for values other than `value`, which is to be compared with the newest
    /// published one then ([`Watches::compare`]).
    pub fn add(&self, key: Bytes, value: Option<Bytes>) -> (u64, Reply<Version>) {
        let (promise, reply) = promise();
        let mut table = lock(&self.table);
        self.sweep(&mut table);
        table.next_id += 1;
        let id = table.next_id;
        table.by_key.entry(key).or_default().push(Watch { id, value, promise });
        self.count.fetch_add(1, Ordering::SeqCst);
        (id, reply)
    }

    /// Fires a watch if its key's value, read at a version after it was added, is another; or if it
    /// could not be read.
    pub fn compare(&self, key: &Bytes, id: u64, now: StorageResult<(Version, Option<Bytes>)>) {
        let is_other = |watch: &Watch| now.as_ref().map_or(true, |(_, now)| *now != watch.value);
        let differs = lock(&self.table)
            .by_key
            .get(key)
            .and_then(|watches| watches.iter().find(|watch| watch.id == id))
            .is_some_and(is_other);
        if differs
            && !planted!("a watch misses what came before it")
            && let Some(watch) = self.take(key, id)
        {
            probe!("pipeline: watch fires as it is registered");
            watch.promise.send(now.map(|(version, _)| version).map_err(Error::from));
        }
    }

    /// Whether there are any watches to tell of changes.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// How many watches are outstanding.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// `key` has the value `value` now: the watches that this fires, to be kept until the batch is
    /// published.
    pub fn changed(&self, key: &[u8], value: Option<&[u8]>, fired: &mut Vec<Promise<Version>>) {
        let mut table = lock(&self.table);
        let Some(watches) = table.by_key.get_mut(key) else { return };
        let before = fired.len();
        let mut kept = Vec::new();
        for watch in watches.drain(..) {
            if watch.value.as_deref() == value {
                kept.push(watch);
            } else {
                fired.push(watch.promise);
            }
        }
        self.count.fetch_sub(fired.len() - before, Ordering::SeqCst);
        if kept.is_empty() {
            table.by_key.remove(key);
        } else {
            *watches = kept;
        }
    }

    /// All keys from `begin` to before `end` are gone now: the watches that this fires.
    pub fn cleared(&self, begin: &[u8], end: &[u8], fired: &mut Vec<Promise<Version>>) {
        let inside = |key: &&Bytes| (begin..end).contains(&&key[..]);
        let mut keys: Vec<Bytes> =
            lock(&self.table).by_key.keys().filter(inside).cloned().collect();
        // The table's own order differs from run to run.
        keys.sort_unstable();
        keys.iter().for_each(|key| self.changed(key, None, fired));
    }

    /// Panics if what must hold between two calls doesn't.
    pub fn check_invariants(&self) {
        let table = lock(&self.table);
        let mut ids: Vec<u64> = table.by_key.values().flatten().map(|watch| watch.id).collect();
        assert_eq!(ids.len(), self.len(), "watches are counted");
        assert!(table.by_key.values().all(|watches| !watches.is_empty()), "a key nobody watches");
        ids.sort_unstable();
        assert!(ids.is_sorted_by(|one, next| one < next), "two watches have one id");
        assert!(ids.last().is_none_or(|last| *last <= table.next_id), "ids are given in order");
    }

    /// Ends all watches with this: whoever waits goes elsewhere.
    pub fn end(&self, cause: &NodeError) {
        let ended = std::mem::take(&mut lock(&self.table).by_key);
        let ended: Vec<Watch> = ended.into_values().flatten().collect();
        self.count.fetch_sub(ended.len(), Ordering::SeqCst);
        let cause = Error::from(cause);
        ended.into_iter().for_each(|watch| watch.promise.send(Err(cause.clone())));
    }

    fn take(&self, key: &Bytes, id: u64) -> Option<Watch> {
        let mut table = lock(&self.table);
        let watches = table.by_key.get_mut(key)?;
        let at = watches.iter().position(|watch| watch.id == id)?;
        let watch = watches.swap_remove(at);
        if watches.is_empty() {
            table.by_key.remove(key);
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
        Some(watch)
    }

    /// Drops the watches that nobody waits for any more, each time their number has doubled.
    fn sweep(&self, table: &mut Table) {
        if self.count.load(Ordering::SeqCst) < table.sweep_at.max(SWEEP_AT_LEAST) {
            return;
        }
        table.by_key.retain(|_, watches| {
            watches.retain(|watch| !watch.promise.is_cancelled());
            !watches.is_empty()
        });
        let left = table.by_key.values().map(Vec::len).sum();
        self.count.store(left, Ordering::SeqCst);
        table.sweep_at = 2 * left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_watch_fires_for_another_value_and_not_for_the_same() {
        let watches = Watches::default();
        let mut reply = watches.register(Bytes::from_static(b"k"), bytes("a"), || (1, bytes("a")));
        let mut fired = Vec::new();
        watches.changed(b"k", Some(b"a"), &mut fired);
        watches.changed(b"other", Some(b"b"), &mut fired);
        assert!(fired.is_empty() && reply.try_take().is_none());
        watches.changed(b"k", None, &mut fired);
        assert_eq!(fired.len(), 1);
        fired.pop().unwrap().send(Ok(9));
        assert_eq!(reply.try_take().unwrap().unwrap(), 9);
        assert!(watches.is_empty());
    }

    #[test]
    fn a_change_before_the_registration_fires_at_once() {
        let watches = Watches::default();
        let mut reply = watches.register(Bytes::from_static(b"k"), bytes("a"), || (5, bytes("b")));
        assert_eq!(reply.try_take().unwrap().unwrap(), 5);
        assert!(watches.is_empty());
    }

    #[test]
    fn abandoned_watches_are_swept_away() {
        let watches = Watches::default();
        for _ in 0..3 * SWEEP_AT_LEAST {
            drop(watches.register(Bytes::from_static(b"k"), None, || (1, None)));
        }
        assert!(watches.len() <= SWEEP_AT_LEAST + 1, "{}", watches.len());
    }
}
