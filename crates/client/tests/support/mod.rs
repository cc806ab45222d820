//! A database for tests: every version of every key in a map, an exact resolver, faults and delays
//! on demand.
//!
//! Answers are computed when they are asked for. With [`StandIn::delay`] they are delivered later,
//! from another thread, in random order, so that whatever a client must not rely on happens.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod model;

use plinth_client::endpoint::{Description, Endpoint, ReadVersionReply, ReadVersionRequest};
use plinth_client::{Database, Reply};
use plinth_env::Env;
use plinth_env::reply::{Promise, promise};
use plinth_env::sync::Signal;
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySelector, KeySpace,
    MutationRef, MutationType, RangeRead, RangeResult, Result, Rows, Version, Versionstamp, atomic,
    system,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/endpoint.rs"));

/// Small random numbers from a seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// What goes wrong next.
#[derive(Default)]
pub struct Faults {
    /// Errors that the next commits fail with, without taking effect.
    pub commit: Vec<Error>,
    /// Commits that take effect and whose answer is lost.
    pub lose_answers: usize,
    /// Errors of the next read versions.
    pub read_version: Vec<Error>,
    /// Errors of the next reads.
    pub read: Vec<Error>,
    /// Read versions that nobody gives, if nobody is to give any.
    pub withheld: Option<Vec<Promise<ReadVersionReply>>>,
}

pub struct Store {
    pub version: Version,
    pub oldest: Version,
    values: BTreeMap<Vec<u8>, Vec<(Version, Option<Bytes>)>>,
    writes: Vec<(Version, Vec<KeyRange>)>,
    watches: Vec<(Bytes, Option<Bytes>, Promise<Version>)>,
    pub faults: Faults,
    pub commits: Vec<CommitRequest>,
    pub reads: usize,
    pub requests: usize,
}

type Job = Box<dyn FnOnce() + Send>;

/// Answers on their way.
#[derive(Default)]
struct Queue {
    jobs: Mutex<Vec<Job>>,
    changed: Signal,
    stopped: AtomicBool,
}
type Jobs = Arc<Queue>;

async fn deliver_later(queue: Jobs, mut random: Random) {
    while !queue.stopped.load(Ordering::Relaxed) {
        let job = {
            let mut jobs = queue.jobs.lock().unwrap();
            if jobs.is_empty() {
                None
            } else {
                let at = random.below(jobs.len());
                Some(jobs.swap_remove(at))
            }
        };
        match job {
            Some(job) => job(),
            None => queue.changed.wait().await,
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.jobs.stopped.store(true, Ordering::Relaxed);
        self.jobs.changed.notify();
    }
}

pub struct StandIn {
    env: Env,
    pub store: Mutex<Store>,
    jobs: Jobs,
    delayed: bool,
    /// Rows in a reply to a range read at most.
    reply_rows: usize,
    pub may_lose_answers: bool,
}

pub fn stand_in() -> (Arc<StandIn>, Database) {
    StandIn::new(false, 0)
}

impl StandIn {
    /// A database that answers at once, or, delayed, later and in random order.
    pub fn new(delayed: bool, seed: u64) -> (Arc<Self>, Database) {
        let env = Env::real();
        let jobs: Jobs = Arc::default();
        if delayed {
            env.spawn("delays", deliver_later(jobs.clone(), Random::new(seed)));
        }
        let store = Store {
            version: 1_000_000,
            oldest: 0,
            values: BTreeMap::new(),
            writes: Vec::new(),
            watches: Vec::new(),
            faults: Faults::default(),
            commits: Vec::new(),
            reads: 0,
            requests: 0,
        };
        let this = Arc::new(Self {
            env,
            store: Mutex::new(store),
            jobs,
            delayed,
            reply_rows: 7,
            may_lose_answers: true,
        });
        (this.clone(), Database::new(provided(this)))
    }

    fn deliver<T: Send + 'static>(&self, result: Result<T>) -> Reply<T> {
        if !self.delayed {
            return Reply::ready(result);
        }
        let (promise, reply) = promise();
        self.jobs.jobs.lock().unwrap().push(Box::new(move || promise.send(result)));
        self.jobs.changed.notify();
        reply
    }

    pub fn lock(&self) -> std::sync::MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }

    /// Stores rows, each in a version of its own.
    pub fn load(&self, rows: &[(&[u8], &[u8])]) {
        let mut store = self.lock();
        for (key, value) in rows {
            store.version += 1000;
            let version = store.version;
            store.put(version, key, Some(Bytes::copy_from_slice(value)));
        }
    }

    /// All rows of the newest version.
    pub fn rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let store = self.lock();
        store
            .visible(store.version, b"", b"\xff\xff")
            .map(|(k, v)| (k.to_vec(), v.to_vec()))
            .collect()
    }
}

impl Store {
    fn put(&mut self, version: Version, key: &[u8], value: Option<Bytes>) {
        self.values.entry(key.to_vec()).or_default().push((version, value));
    }

    pub fn value(&self, version: Version, key: &[u8]) -> Option<Bytes> {
        let versions = self.values.get(key)?;
        versions.iter().rev().find(|(at, _)| *at <= version)?.1.clone()
    }

    fn visible<'a>(
        &'a self,
        version: Version,
        begin: &[u8],
        end: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Bytes)> + 'a {
        let range = if begin < end { begin.to_vec()..end.to_vec() } else { vec![]..vec![] };
        self.values.range(range).filter_map(move |(key, versions)| {
            let value = versions.iter().rev().find(|(at, _)| *at <= version)?.1.clone()?;
            Some((&key[..], value))
        })
    }

    fn check(&mut self, version: Version) -> Result<()> {
        self.reads += 1;
        if !self.faults.read.is_empty() {
            return Err(self.faults.read.remove(0));
        }
        if version < self.oldest {
            return Err(Error::transaction_too_old());
        }
        if version > self.version {
            return Err(Error::future_version());
        }
        Ok(())
    }

    /// The key a selector leads to, and whether it ran off the begin or beyond the end.
    fn resolve(
        &self,
        version: Version,
        space: KeySpace,
        selector: &KeySelector,
    ) -> (Vec<u8>, bool, bool) {
        let selector = selector.clone().normalized();
        let keys: Vec<&[u8]> =
            self.visible(version, b"", space.end()).map(|(key, _)| key).collect();
        let base = keys.partition_point(|key| *key < &selector.key[..]) as i64 - 1;
        let at = base + i64::from(selector.offset);
        if at < 0 {
            return (Vec::new(), true, false);
        }
        match keys.get(at as usize) {
            Some(key) => (key.to_vec(), key.is_empty() && selector.offset < 1, false),
            None => (space.end().to_vec(), false, at as usize > keys.len()),
        }
    }

    fn range(
        &self,
        version: Version,
        space: KeySpace,
        read: &RangeRead,
        most: usize,
    ) -> RangeResult {
        let (begin, begin_off, _) = self.bound(version, space, &read.begin);
        let (end, _, end_through) = self.bound(version, space, &read.end);
        let mut rows = Rows::builder();
        let mut more = false;
        let mut all = self.visible(version, &begin, &end);
        let mut next = || if read.reverse { all.next_back() } else { all.next() };
        while let Some((key, value)) = next() {
            rows.push(key, &value);
            if rows.len() >= read.limit.min(most) || rows.accounted_bytes() >= read.target_bytes {
                more = next().is_some();
                break;
            }
        }
        RangeResult {
            rows: rows.finish(),
            more,
            read_to_begin: begin_off,
            read_through_end: end_through,
        }
    }

    fn bound(
        &self,
        version: Version,
        space: KeySpace,
        selector: &KeySelector,
    ) -> (Vec<u8>, bool, bool) {
        let selector = selector.clone().normalized();
        if selector.offset == 1 {
            return ((&selector.key[..]).min(space.end()).to_vec(), false, false);
        }
        self.resolve(version, space, &selector)
    }

    fn commit(&mut self, request: &CommitRequest) -> Result<CommitReply> {
        if let Some(error) = (!self.faults.commit.is_empty()).then(|| self.faults.commit.remove(0))
        {
            return Err(error);
        }
        let conflicts = &request.conflicts;
        if self.value(self.version, system::DATABASE_LOCKED).is_some() && !request.lock_aware {
            return Err(Error::database_locked());
        }
        if !conflicts.reads.is_empty() && conflicts.read_version < self.oldest {
            return Err(Error::transaction_too_old());
        }
        let conflicting: Vec<usize> = conflicts
            .reads
            .iter()
            .enumerate()
            .filter(|(_, read)| {
                let read = read.to_range();
                self.writes.iter().any(|(version, ranges)| {
                    *version > conflicts.read_version
                        && ranges
                            .iter()
                            .any(|write| write.begin < read.end && read.begin < write.end)
                })
            })
            .map(|(at, _)| at)
            .collect();
        if !conflicting.is_empty() {
            let conflicting_reads =
                if request.report_conflicting_keys { conflicting } else { Vec::new() };
            return Ok(CommitReply::Conflict { conflicting_reads });
        }
        self.version += 1000;
        let version = self.version;
        let batch_index = (version / 1000 % 7) as u16;
        let mut ranges: Vec<KeyRange> =
            conflicts.writes.iter().map(|range| range.to_range()).collect();
        for mutation in &request.mutations {
            if let Some(key) = self.apply(version, batch_index, mutation) {
                ranges.push(KeyRange::single(&key));
            }
        }
        if let Some(id) = &request.idempotency_id {
            let [high, low] = batch_index.to_be_bytes();
            let key = [system::IDEMPOTENCY_PREFIX, &version.to_be_bytes(), &[high]].concat();
            let value = [&[0; 16][..], &[id.len() as u8], id, &[low]].concat();
            self.put(version, &key, Some(value.into()));
        }
        self.writes.push((version, ranges));
        if self.faults.lose_answers > 0 {
            self.faults.lose_answers -= 1;
            return Err(Error::broken_promise());
        }
        Ok(CommitReply::Committed { version, batch_index })
    }

    /// Applies a mutation; gives the key if it was made at commit.
    fn apply(
        &mut self,
        version: Version,
        batch_index: u16,
        mutation: MutationRef<'_>,
    ) -> Option<Vec<u8>> {
        let stamp = Versionstamp::new(version, batch_index);
        let stamped = |parameter: &[u8]| {
            let (rest, offset) = parameter.split_last_chunk::<4>().unwrap();
            let at = i32::from_le_bytes(*offset) as usize;
            let mut rest = rest.to_vec();
            rest[at..at + 10].copy_from_slice(stamp.as_bytes());
            rest
        };
        match mutation.kind {
            MutationType::ClearRange => {
                let keys: Vec<Vec<u8>> = self
                    .visible(version, mutation.param1, mutation.param2)
                    .map(|(key, _)| key.to_vec())
                    .collect();
                for key in keys {
                    self.put(version, &key, None);
                }
            }
            MutationType::SetVersionstampedKey => {
                let key = stamped(mutation.param1);
                self.put(version, &key, Some(Bytes::copy_from_slice(mutation.param2)));
                return Some(key);
            }
            MutationType::SetVersionstampedValue => {
                self.put(version, mutation.param1, Some(stamped(mutation.param2).into()));
            }
            kind => {
                let old = self.value(version, mutation.param1);
                let new = atomic::apply(kind, old.as_deref(), mutation.param2)
                    .map(|value| Bytes::copy_from_slice(&value));
                self.put(version, mutation.param1, new);
            }
        }
        None
    }

    fn fire_watches(&mut self) -> Vec<Promise<Version>> {
        let watches = std::mem::take(&mut self.watches);
        let version = self.version;
        let (changed, rest): (Vec<_>, Vec<_>) =
            watches.into_iter().partition(|(key, value, _)| self.value(version, key) != *value);
        self.watches = rest;
        changed.into_iter().map(|(_, _, promise)| promise).collect()
    }

    pub fn watch_count(&mut self) -> usize {
        self.watches.retain(|(_, _, promise)| !promise.is_cancelled());
        self.watches.len()
    }
}

impl Endpoint for StandIn {
    fn env(&self) -> &Env {
        &self.env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        let mut store = self.lock();
        if let Some(withheld) = &mut store.faults.withheld {
            let (promise, reply) = promise();
            withheld.push(promise);
            return reply;
        }
        let result = if !store.faults.read_version.is_empty() {
            Err(store.faults.read_version.remove(0))
        } else if store.value(store.version, system::DATABASE_LOCKED).is_some()
            && !request.lock_aware
        {
            Err(Error::database_locked())
        } else {
            let metadata_version = store.value(store.version, system::METADATA_VERSION);
            Ok(ReadVersionReply { version: store.version, metadata_version, range_locks: None })
        };
        drop(store);
        self.deliver(result)
    }

    fn get_many(&self, version: Version, _: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>> {
        let mut store = self.lock();
        store.requests += 1;
        let result = store
            .check(version)
            .map(|()| keys.iter().map(|key| store.value(version, key)).collect());
        drop(store);
        self.deliver(result)
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        let mut store = self.lock();
        store.requests += 1;
        let result =
            store.check(version).map(|()| store.resolve(version, space, selector).0.into());
        drop(store);
        self.deliver(result)
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        let mut store = self.lock();
        store.requests += 1;
        let result =
            store.check(version).map(|()| store.range(version, space, read, self.reply_rows));
        drop(store);
        self.deliver(result)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        let mut store = self.lock();
        let result = store.commit(&request);
        store.commits.push(request);
        let fired = store.fire_watches();
        let version = store.version;
        drop(store);
        for promise in fired {
            promise.send(Ok(version));
        }
        self.deliver(result)
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, _: Version) -> Reply<Version> {
        let mut store = self.lock();
        let (promise, reply) = promise();
        if store.value(store.version, &key) != value {
            return Reply::ready(Ok(store.version));
        }
        store.watches.push((key, value, promise));
        reply
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        let store = self.lock();
        let size = store
            .visible(store.version, &range.begin, &range.end)
            .map(|(key, value)| (key.len() + value.len()) as i64)
            .sum();
        drop(store);
        self.deliver(Ok(size))
    }

    fn split_points(&self, range: KeyRange, _: i64) -> Reply<Vec<Bytes>> {
        self.deliver(Ok(vec![range.begin, range.end]))
    }

    fn addresses_for_key(&self, _: &[u8]) -> Reply<Vec<String>> {
        self.deliver(Ok(vec!["127.0.0.1:4500".into()]))
    }

    fn describe(&self) -> Description {
        Description {
            cluster_file_path: "/tmp/stand-in.cluster".into(),
            connection_string: "test:test@127.0.0.1:4500".into(),
            cluster_id: "0123456789abcdef0123456789abcdef".into(),
        }
    }

    fn status_json(&self) -> Reply<String> {
        self.deliver(Ok(r#"{"client":{"database_status":{"available":true}}}"#.into()))
    }

    fn may_lose_answers(&self) -> bool {
        self.may_lose_answers
    }
}

/// Waits until `f` says so, for at most a generous while.
pub fn eventually(what: &str, mut f: impl FnMut() -> bool) {
    let env = Env::real();
    while !f() {
        assert!(env.now() < Duration::from_secs(20), "{what} did not come true");
        plinth_env::block_on(env.sleep(Duration::from_millis(1)));
    }
}
