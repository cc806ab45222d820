//! The node as a client in the same process sees it: every request a function call.
//!
//! What memory can answer is answered at once, on the caller's thread. Only commits cross to another
//! thread, and reads of versions that are yet to come wait for them.

use crate::node::Node;
use crate::shared::Shared;
use plinth_client::{Description, Endpoint, Priority, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_storage::Storage;
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Error, KeyList, KeyRange, KeySelector, KeySpace, RangeRead,
    RangeResult, Version,
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

    fn is_future(&self, version: Version) -> bool {
        let shared = self.shared();
        version > shared.versions.committed() && version > now_committed(shared)
    }
}

fn value_at(shared: &Shared, version: Version, key: &[u8]) -> Option<Bytes> {
    let mut keys = KeyList::new();
    keys.push(key);
    let values = shared.storage.get_many(version, KeySpace::System, &keys).try_take();
    values.and_then(Result::ok).and_then(|mut values| values.pop()).flatten()
}

/// The newest version that can be read, moved along with the clock.
fn now_committed(shared: &Shared) -> Version {
    shared.versions.read_version(shared.env.now(), |version| shared.storage.publish(version))
}

impl Endpoint for InProcess {
    fn env(&self) -> &Env {
        &self.shared().env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        let shared = self.shared();
        let answer = shared.visible.answer(|| now_committed(shared));
        if answer.locked && !request.lock_aware {
            return Reply::ready(Err(Error::database_locked()));
        }
        debug_assert!(matches!(request.priority, Priority::Batch | Priority::Default | Priority::Immediate));
        Reply::ready(Ok(ReadVersionReply {
            version: answer.version,
            metadata_version: answer.metadata_version,
        }))
    }

    fn get_many(&self, version: Version, space: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>> {
        if self.is_future(version) {
            let keys = keys.clone();
            return self.at(version, move |shared| shared.storage.get_many(version, space, &keys));
        }
        self.shared().storage.get_many(version, space, keys)
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        if self.is_future(version) {
            let selector = selector.clone();
            return self.at(version, move |shared| shared.storage.get_key(version, space, &selector));
        }
        self.shared().storage.get_key(version, space, selector)
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        if self.is_future(version) {
            let read = read.clone();
            return self.at(version, move |shared| shared.storage.get_range(version, space, &read));
        }
        self.shared().storage.get_range(version, space, read)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.shared().queue.submit(request)
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, _version: Version) -> Reply<Version> {
        let shared = self.shared();
        shared.watches.register(key.clone(), value, || {
            let version = shared.versions.committed();
            (version, value_at(shared, version, &key))
        })
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

    /// In one process an answer is lost only together with the node, which takes no commits after that.
    fn may_lose_answers(&self) -> bool {
        false
    }
}

/// What stands for an address where the database is in the process.
pub(crate) const LOCAL_ADDRESS: &str = "127.0.0.1:4500";
