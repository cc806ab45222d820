//! Watches: promises that are kept when a key's value becomes another than the one remembered.
//!
//! A watch remembers the value its transaction saw (or wrote). Whoever applies a batch tells
//! [`Watches::changed`] of each key that changed; those watches that differ are fired once the
//! batch is published. Registering looks at the value after the watch is in the table. Of a batch
//! that is applied at that moment the watch may have been told nothing, and nothing of it can be
//! read yet: so what it looks at is the value behind that batch ([`Watches::add`]), and no change
//! can slip between.

use crate::batch_lock::lock;
use crate::failure::NodeError;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_storage::StorageResult;
use plinth_types::{Bytes, Error, Version, planted, probe};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

struct Watch {
    id: u64,
    value: Option<Bytes>,
    promise: Promise<Version>,
}

/// The watches of one key: most have one, and a key may have as many as there are clients.
struct OfKey {
    first: Watch,
    more: BTreeMap<u64, Watch>,
}

impl OfKey {
    fn new(first: Watch) -> Self {
        Self { first, more: BTreeMap::new() }
    }

    fn get(&self, id: u64) -> Option<&Watch> {
        if self.first.id == id { Some(&self.first) } else { self.more.get(&id) }
    }

    /// The watch of the least id from this one on.
    fn next(&self, from: u64) -> Option<&Watch> {
        let of_more = self.more.range(from..).next().map(|(_, watch)| watch);
        [Some(&self.first).filter(|first| first.id >= from), of_more]
            .into_iter()
            .flatten()
            .min_by_key(|watch| watch.id)
    }

    fn into_watches(self) -> impl Iterator<Item = Watch> {
        std::iter::once(self.first).chain(self.more.into_values())
    }
}

/// Watches in the order of their keys, so that a range that is cleared finds its own among a
/// million, and none has to wait until a table of them has grown.
#[derive(Default)]
struct Table {
    by_key: BTreeMap<Bytes, OfKey>,
    next_id: u64,
    /// Which watch is looked at next for being abandoned: the first one from here on.
    sweep_from: (Bytes, u64),
}

impl Table {
    fn put(&mut self, key: Bytes, watch: Watch) {
        match self.by_key.get_mut(&key) {
            Some(watches) => drop(watches.more.insert(watch.id, watch)),
            None => drop(self.by_key.insert(key, OfKey::new(watch))),
        }
    }

    fn take(&mut self, key: &[u8], id: u64) -> Option<Watch> {
        let watches = self.by_key.get_mut(key)?;
        if watches.first.id != id {
            return watches.more.remove(&id);
        }
        match watches.more.pop_first() {
            Some((_, next)) => Some(std::mem::replace(&mut watches.first, next)),
            None => self.by_key.remove(key).map(|watches| watches.first),
        }
    }

    /// The next watch to look at, behind the one that was looked at last; from the first one on
    /// again once all have been. Whether nobody waits for it any more.
    fn look_at_next(&mut self) -> Option<(Bytes, u64, bool)> {
        let (key, id) = std::mem::take(&mut self.sweep_from);
        let mut here = self.by_key.range::<[u8], _>((Included(&key[..]), Unbounded));
        let (key, watch) = here.find_map(|(of, watches)| {
            let from = if *of == key { id } else { 0 };
            Some((of.clone(), watches.next(from)?))
        })?;
        let (id, is_abandoned) = (watch.id, watch.promise.is_cancelled());
        self.sweep_from = (key.clone(), id + 1);
        Some((key, id, is_abandoned))
    }
}

#[derive(Default)]
pub(crate) struct Watches {
    table: Mutex<Table>,
    /// How many there are, so that a database without watches pays one load a key.
    count: AtomicUsize,
    /// The version of the batch that was begun to be applied last.
    applying: AtomicI64,
}

/// How many watches are looked at for each that is added, whether anybody still waits for them: so
/// abandoned ones are never more than those that were added while the others were looked at.
const LOOK_AT: usize = 2;

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
        let (id, reply, _) = self.add(key.clone(), value);
        let (version, now) = current();
        self.compare(&key, id, Ok((version, now)));
        reply
    }

    /// Adds a watch on `key` for values other than `value`, which is to be compared then with what
    /// was published last, and not before the version that this gives is ([`Watches::compare`]).
    pub fn add(&self, key: Bytes, value: Option<Bytes>) -> (u64, Reply<Version>, Version) {
        let (promise, reply) = promise();
        let mut table = lock(&self.table);
        let abandoned = self.sweep(&mut table);
        table.next_id += 1;
        let id = table.next_id;
        table.put(key, Watch { id, value, promise });
        self.count.fetch_add(1, Ordering::SeqCst);
        drop(table);
        drop(abandoned);
        (id, reply, self.applying.load(Ordering::SeqCst))
    }

    /// A batch of this version begins to be applied. Of what it changes are told those watches that
    /// are there; who is added behind this hears of the version.
    pub fn begin(&self, version: Version) {
        self.applying.store(version, Ordering::SeqCst);
    }

    /// Fires a watch if its key's value, read at a version as [`Watches::add`] wants it, is
    /// another, or could not be read.
    pub fn compare(&self, key: &Bytes, id: u64, now: StorageResult<(Version, Option<Bytes>)>) {
        let is_other = |watch: &Watch| now.as_ref().map_or(true, |(_, now)| *now != watch.value);
        let differs = lock(&self.table)
            .by_key
            .get(key)
            .and_then(|watches| watches.get(id))
            .is_some_and(is_other);
        if differs
            && !planted!("a watch misses what came before it")
            && let Some(watch) = self.take(key, id)
        {
            probe!("pipeline: watch fires as it is registered");
            watch.promise.send(now.map(|(version, _)| version).map_err(Error::from));
        }
    }

    /// Ends a watch with this error, if it has not fired.
    pub fn give_up(&self, key: &[u8], id: u64, error: Error) {
        if let Some(watch) = self.take(key, id) {
            watch.promise.send(Err(error));
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
        let is_other = |watch: &Watch| watch.value.as_deref() != value;
        let differ = |of: &OfKey| is_other(&of.first) || of.more.values().any(is_other);
        if !table.by_key.get(key).is_some_and(differ) {
            return;
        }
        let Some((key, watches)) = table.by_key.remove_entry(key) else { return };
        let before = fired.len();
        let mut kept = Vec::new();
        for watch in watches.into_watches() {
            if is_other(&watch) {
                fired.push(watch.promise);
            } else {
                kept.push(watch);
            }
        }
        self.count.fetch_sub(fired.len() - before, Ordering::SeqCst);
        kept.into_iter().for_each(|watch| table.put(key.clone(), watch));
    }

    /// All keys from `begin` to before `end` are gone now: the watches that this fires, in the
    /// order of their keys.
    pub fn cleared(&self, begin: &[u8], end: &[u8], fired: &mut Vec<Promise<Version>>) {
        let inside = (Included(begin), Excluded(end));
        if begin >= end {
            return;
        }
        let table = lock(&self.table);
        let keys = table.by_key.range::<[u8], _>(inside).map(|(key, _)| key.clone());
        let keys: Vec<Bytes> = keys.collect();
        drop(table);
        keys.iter().for_each(|key| self.changed(key, None, fired));
    }

    /// Panics if what must hold between two calls doesn't.
    pub fn check_invariants(&self) {
        let table = lock(&self.table);
        let more = table.by_key.values().flat_map(|of| of.more.keys());
        let first = table.by_key.values().map(|of| &of.first.id);
        let mut ids: Vec<u64> = first.chain(more).copied().collect();
        assert_eq!(ids.len(), self.len(), "watches are counted");
        ids.sort_unstable();
        assert!(ids.is_sorted_by(|one, next| one < next), "two watches have one id");
        assert!(ids.last().is_none_or(|last| *last <= table.next_id), "ids are given in order");
    }

    /// Ends all watches with this: whoever waits goes elsewhere.
    pub fn end(&self, cause: &NodeError) {
        let ended = std::mem::take(&mut lock(&self.table).by_key);
        let ended: Vec<Watch> = ended.into_values().flat_map(OfKey::into_watches).collect();
        self.count.fetch_sub(ended.len(), Ordering::SeqCst);
        let cause = Error::from(cause);
        ended.into_iter().for_each(|watch| watch.promise.send(Err(cause.clone())));
    }

    fn take(&self, key: &[u8], id: u64) -> Option<Watch> {
        let mut table = lock(&self.table);
        let taken = table.take(key, id)?;
        self.count.fetch_sub(1, Ordering::SeqCst);
        Some(taken)
    }

    /// Looks at a few watches, in turn, and takes out those that nobody waits for any more.
    fn sweep(&self, table: &mut Table) -> [Option<Watch>; LOOK_AT] {
        std::array::from_fn(|_| {
            let (key, id, is_abandoned) = table.look_at_next()?;
            let abandoned = is_abandoned.then(|| table.take(&key, id)).flatten()?;
            self.count.fetch_sub(1, Ordering::SeqCst);
            Some(abandoned)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Option<Bytes> {
        Some(Bytes::from_static(text.as_bytes()))
    }

    /// A watch that came between the moment at which a batch told of its changes and that at which
    /// they could be read was told by neither.
    #[test]
    fn a_watch_that_comes_while_a_batch_is_applied_is_compared_behind_it() {
        let watches = Watches::default();
        let key = Bytes::from_static(b"k");
        let (_, _, upto) = watches.add(Bytes::from_static(b"other"), bytes("x"));
        assert_eq!(upto, 0, "nothing was applied");
        let mut fired = Vec::new();
        watches.begin(7);
        watches.changed(&key, Some(b"b"), &mut fired);
        let (id, mut reply, upto) = watches.add(key.clone(), bytes("a"));
        assert!(fired.is_empty() && upto == 7);
        watches.compare(&key, id, Ok((7, bytes("b"))));
        assert_eq!(reply.try_take(), Some(Ok(7)));
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

    /// Also where all are of one key, or those who wait are many.
    #[test]
    fn abandoned_watches_are_swept_away() {
        for keys in [1, 1000] {
            let watches = Watches::default();
            let key = |number: usize| Bytes::copy_from_slice(&(number % keys).to_be_bytes());
            let add = |number| watches.register(key(number), None, || (1, None));
            (0..10_000).for_each(|number| drop(add(number)));
            assert!(watches.len() <= LOOK_AT, "{} of {keys} keys", watches.len());
            let waited: Vec<_> = (0..1000).map(add).collect();
            (0..10_000).for_each(|number| drop(add(number)));
            assert!(watches.len() <= 2 * waited.len() + LOOK_AT, "{} of {keys}", watches.len());
            watches.check_invariants();
            drop(waited);
            (0..10_000).for_each(|number| drop(add(number)));
            assert!(watches.len() <= LOOK_AT, "{} of {keys} keys", watches.len());
        }
    }

    /// Random additions, changes, clears and clients that go away, against a list.
    #[test]
    fn those_fire_whose_value_has_changed_and_no_others() {
        let mut random = plinth_env::simulated::Random::new(27);
        let watches = Watches::default();
        let mut waiting: Vec<(u8, u8, Reply<Version>)> = Vec::new();
        for step in 1..20_000 {
            let [key, value] = [6, 3].map(|most| random.below(most) as u8);
            let mut fired = Vec::new();
            let kind = random.below(8);
            match kind {
                0..=4 => {
                    let (_, reply, _) = watches.add(vec![key].into(), Some(vec![value].into()));
                    waiting.push((key, value, reply));
                }
                5 if !waiting.is_empty() => {
                    drop(waiting.swap_remove(random.index(waiting.len())));
                }
                5 => {}
                6 => watches.changed(&[key], Some(&[value]), &mut fired),
                _ => watches.cleared(&[key], &[key + value], &mut fired),
            }
            fired.into_iter().for_each(|promise| promise.send(Ok(step)));
            waiting.retain_mut(|(of, had, reply)| {
                let fires = match kind {
                    6 => *of == key && *had != value,
                    7 => (key..key + value).contains(of),
                    _ => false,
                };
                assert_eq!(reply.try_take().is_some(), fires, "{of} {had}, step {step}");
                !fires
            });
            watches.check_invariants();
            assert!(watches.len() >= waiting.len());
        }
    }
}
