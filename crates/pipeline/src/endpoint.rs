//! The node as a client in the same process sees it: every request a function call.
//!
//! What memory can answer is answered at once, on the caller's thread. Only commits cross to another
//! thread, and reads of versions that are yet to come wait for them.

use crate::metrics::{Count, Heat, Metrics, SAMPLE};
use crate::node::Node;
use crate::pace;
use crate::pinned;
use crate::room;
use crate::shared::Shared;
use plinth_client::{Description, Endpoint, Pinned, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_storage::Storage;
use plinth_types::{
    Bytes, CommitReply, CommitRequest, KeyList, KeyRange, KeySelector, KeySpace, RangeRead, RangeResult,
    Version,
};
use std::sync::Arc;

/// A node, reached by function calls. The node lives as long as its endpoints.
#[derive(Clone)]
pub struct InProcess {
    node: Arc<Node>,
}

impl Node {
    /// The way to this node for a client in this process.
    pub fn endpoint(self: &Arc<Self>) -> InProcess {
        InProcess { node: self.clone() }
    }
}

impl InProcess {
    /// The node itself.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.node.shared
    }

    /// Reads at once if `version` has been reached, else when it is.
    fn at<T: Send + 'static>(
        &self,
        version: Version,
        read: impl Fn(&Shared) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let shared = self.shared().clone();
        let (done, reply) = promise();
        let reached = shared.waiting.wait(&shared.env, version, || now_committed(&shared));
        reached.on_complete(move |reached| match reached {
            Ok(()) => read(&shared).on_complete(move |result| done.send(result)),
            Err(error) => done.send(Err(error)),
        });
        reply
    }

    /// A read of the sample: timed, and its bytes counted, if memory answers it.
    fn measured<T>(&self, read: impl FnOnce(&Shared) -> Reply<T>, bytes: impl FnOnce(&T) -> u64) -> Reply<T> {
        let (shared, began) = (self.shared(), self.shared().env.now());
        let mut reply = read(shared);
        let Some(result) = reply.try_take() else { return reply };
        let metrics = &shared.counters.metrics;
        metrics.note_read(shared.env.now().saturating_sub(began));
        if let Ok(value) = &result {
            metrics.add(Count::Bytes, bytes(value) * u64::from(SAMPLE));
        }
        Reply::ready(result)
    }

    fn is_future(&self, version: Version) -> bool {
        let shared = self.shared();
        version > shared.versions.committed() && version > now_committed(shared)
    }
}

fn value_bytes(values: &[Option<Bytes>]) -> u64 {
    values.iter().flatten().map(|value| value.len() as u64).sum()
}

/// The newest version that can be read, moved along with the clock.
pub(crate) fn now_committed(shared: &Shared) -> Version {
    shared.versions.read_version(shared.env.now(), |version| shared.storage.publish(version))
}

impl Endpoint for InProcess {
    fn env(&self) -> &Env {
        &self.shared().env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        let shared = self.shared();
        if !shared.health.gate.is_open() {
            return pace::begin(shared, request);
        }
        shared.counters.metrics.started(request.priority, u64::from(request.others) + 1);
        Reply::ready(pace::answer(shared, request.lock_aware, request.priority))
    }

    fn get_many(&self, version: Version, space: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>> {
        let metrics = &self.shared().counters.metrics;
        metrics.read_values(keys.len());
        if self.is_future(version) {
            let keys = keys.clone();
            return self.at(version, move |shared| shared.storage.get_many(version, space, &keys));
        }
        plinth_usdt::read(version, keys.len());
        if Metrics::is_sampled_read() && !keys.is_empty() {
            metrics.hot.note(Heat::Reads, keys.get(0));
            let read = |shared: &Shared| shared.storage.get_many(version, space, keys);
            return self.measured(read, |values| value_bytes(values));
        }
        self.shared().storage.get_many(version, space, keys)
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.shared().counters.metrics.read_values(1);
        if self.is_future(version) {
            let selector = selector.clone();
            return self.at(version, move |shared| shared.storage.get_key(version, space, &selector));
        }
        self.shared().storage.get_key(version, space, selector)
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.shared().counters.metrics.add(Count::Reads, 1);
        if self.is_future(version) {
            let read = read.clone();
            return self.at(version, move |shared| shared.storage.get_range(version, space, &read));
        }
        plinth_usdt::read_range(version, read.limit);
        if Metrics::is_sampled_read() {
            self.shared().counters.metrics.hot.note(Heat::Reads, &read.begin.key);
        }
        let mut reply = self.shared().storage.get_range(version, space, read);
        let Some(result) = reply.try_take() else { return reply };
        if let Ok(result) = &result {
            self.shared().counters.metrics.read_rows(result);
        }
        Reply::ready(result)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        if let Err(error) = room::admit(self.shared(), &request) {
            return Reply::ready(Err(error));
        }
        if !self.shared().counters.metrics.is_sampled_commit() {
            return self.shared().queue.submit(request);
        }
        let (shared, began) = (self.shared().clone(), self.shared().env.now());
        let (done, reply) = promise();
        shared.queue.submit(request).on_complete({
            let shared = shared.clone();
            move |result| {
                shared.counters.metrics.commit.record(shared.env.now().saturating_sub(began), 1);
                done.send(result);
            }
        });
        reply
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, _version: Version) -> Reply<Version> {
        let shared = self.shared();
        let (id, reply) = shared.watches.add(key.clone(), value);
        let version = shared.versions.committed();
        let mut keys = KeyList::new();
        keys.push(&key);
        let read = shared.storage.get_many(version, KeySpace::System, &keys);
        let shared = shared.clone();
        read.on_complete(move |values| {
            let value = values.map(|values| (version, values.into_iter().next().flatten()));
            shared.watches.compare(&key, id, value);
        });
        reply
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        let size = self.shared().storage.range_size(&range.begin, &range.end);
        Reply::ready(Ok(i64::try_from(size).unwrap_or(i64::MAX)))
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        let chunk = u64::try_from(chunk).unwrap_or(0).max(1);
        Reply::ready(Ok(self.shared().storage.split_points(&range.begin, &range.end, chunk)))
    }

    fn addresses_for_key(&self, _key: &[u8]) -> Reply<Vec<String>> {
        Reply::ready(Ok(vec![LOCAL_ADDRESS.to_string()]))
    }

    fn describe(&self) -> Description {
        self.node.describe()
    }

    fn status_json(&self) -> Reply<String> {
        Reply::ready(Ok(crate::status::document(&self.node)))
    }

    fn pin_snapshot(&self) -> Reply<Pinned> {
        if self.shared().storage.ssd_engine().is_none() {
            return Reply::ready(Err(pinned::no_files()));
        }
        // Writing what isn't in files yet takes time, which the caller's thread may not have.
        let (node, (promise, reply)) = (self.node.clone(), promise());
        let pin = async move { promise.send(node.pin_snapshot().await) };
        drop(self.shared().env.spawn("pin", pin));
        reply
    }

    /// In one process an answer is lost only together with the node, which takes no commits after that.
    fn may_lose_answers(&self) -> bool {
        false
    }
}

/// What stands for an address where the database is in the process.
pub(crate) const LOCAL_ADDRESS: &str = "127.0.0.1:4500";
