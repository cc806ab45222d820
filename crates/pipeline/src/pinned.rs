//! Pinned snapshots: one version of a database that stays readable for as long as somebody wants
//! it.
//!
//! A backup or an analysis may take hours; a transaction's version leaves the window after seconds.
//! The engine `ssd` keeps a version for the price of files: the tables that made it stay until the
//! snapshot is dropped, however much is written meanwhile. The engine `memory` keeps an old row in
//! memory for each key that is written meanwhile. To a client it is a database that nobody writes
//! to: every transaction reads the pinned version, and commits of writes are refused.
//!
//! Whoever holds snapshots must not keep others from writing. Before what they keep takes the last
//! of the memory for rows, or while the disk has no room for rows, they are ended, the oldest
//! first (`held.rs`): whoever reads on is told so. What is given to other nodes and to backups goes
//! by [`Node::pin`], and isn't ended.

use crate::failure::NodeResult;
use crate::held::Kept;
use crate::metrics::{Count, Metrics};
use crate::node::Node;
use plinth_client::{Description, Endpoint, Pinned, ReadVersionReply, ReadVersionRequest};
use plinth_env::{Env, Reply};
use plinth_storage::PinnedVersion;
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, KeyList, KeyRange, KeySelector,
    KeySpace, RangeLocks, RangeRead, RangeResult, Version, system,
};
use std::sync::Arc;

/// A version of a node's database that stays as it was. Keeps the node, and the files it needs,
/// until it is dropped.
struct PinnedSnapshot {
    node: Arc<Node>,
    version: Version,
    kept: Arc<Kept>,
}

impl Node {
    /// Pins the newest version that the engine can keep: the newest one with `memory`; with `ssd`
    /// the newest one that is wholly in tables, which is a window's length and a flush behind. What
    /// it costs stands in `status`, under `plinth.memory.pinned_bytes` and
    /// `plinth.ssd.pinned_snapshots`.
    ///
    /// # Errors
    /// Those of writing files.
    pub(crate) async fn pin_snapshot(self: &Arc<Self>) -> NodeResult<Pinned> {
        let pinned = self.pin().await?;
        let version = pinned.version();
        let kept = self.replica.storage.held().keep(pinned);
        let snapshot = PinnedSnapshot { node: self.clone(), version, kept };
        Ok(Pinned { version, endpoint: Arc::new(snapshot) })
    }

    /// The same, for whoever wants rows in chunks, to send or to keep them.
    ///
    /// # Errors
    /// Those of writing files.
    pub async fn pin(&self) -> NodeResult<Box<dyn PinnedVersion>> {
        let pinning = self.replica.writer().pin();
        let pinned = pinning.await?;
        let (version, newest) = (pinned.version(), self.replica.storage.newest());
        assert!(version <= newest, "version {version} is pinned, {newest} is the newest");
        Ok(pinned)
    }
}

impl PinnedSnapshot {
    fn metrics(&self) -> &Metrics {
        &self.node.replica.counters.metrics
    }

    /// What its rows answer, if it hasn't been ended.
    fn of_kept<T: Send>(&self, ask: impl FnOnce(&dyn PinnedVersion) -> Reply<T>) -> Reply<T> {
        match self.kept.read() {
            Ok(kept) => ask(&*kept),
            Err(ended) => Reply::ready(Err(ended.into())),
        }
    }
}

impl Endpoint for PinnedSnapshot {
    fn env(&self) -> &Env {
        &self.node.replica.env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        let version = self.version;
        let pinned = match self.kept.read() {
            Ok(pinned) => pinned,
            Err(ended) => return Reply::ready(Err(ended.into())),
        };
        let mut keys = KeyList::new();
        keys.push(system::METADATA_VERSION);
        keys.push(system::RANGE_LOCKS);
        let mut values = pinned.get_many(KeySpace::System, &keys).err_into();
        // What was half there at that version stays so.
        let answer = move |values: Vec<Option<Bytes>>| {
            let mut values = values.into_iter();
            let metadata_version = values.next().flatten();
            let locks = values.next().flatten().map(RangeLocks::decode);
            let range_locks = locks.filter(|locks| !request.lock_aware && !locks.is_empty());
            ReadVersionReply { version, metadata_version, range_locks }
        };
        if let Some(values) = values.try_take() {
            return Reply::ready(values.map(answer));
        }
        let (promise, reply) = plinth_env::reply::promise();
        values.on_complete(move |values| promise.send(values.map(answer)));
        reply
    }

    fn get_many(
        &self,
        _version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.metrics().read_values(keys.len());
        self.of_kept(|kept| kept.get_many(space, keys).err_into())
    }

    fn get_key(&self, _version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.metrics().read_values(1);
        self.of_kept(|kept| kept.get_key(space, selector).err_into())
    }

    fn get_range(
        &self,
        _version: Version,
        space: KeySpace,
        read: &RangeRead,
    ) -> Reply<RangeResult> {
        self.metrics().add(Count::Reads, 1);
        let mut reply = self.of_kept(|kept| kept.get_range(space, read).err_into());
        let Some(result) = reply.try_take() else { return reply };
        if let Ok(result) = &result {
            self.metrics().read_rows(result);
        }
        Reply::ready(result)
    }

    fn commit(&self, _request: CommitRequest) -> Reply<CommitReply> {
        Pinned::refused_commit()
    }

    fn watch(&self, _key: Bytes, _value: Option<Bytes>, _version: Version) -> Reply<Version> {
        Pinned::refused_watch()
    }

    fn read_changes(&self, _request: ChangesRequest) -> Reply<Changes> {
        Pinned::refused_changes()
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.of_kept(|kept| {
            let bytes = kept.range_size(&range.begin, &range.end);
            Reply::ready(Ok(i64::try_from(bytes).unwrap_or(i64::MAX)))
        })
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        let chunk = u64::try_from(chunk).unwrap_or(0).max(1);
        self.of_kept(|kept| Reply::ready(Ok(kept.split_points(&range.begin, &range.end, chunk))))
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.node.endpoint().addresses_for_key(key)
    }

    fn describe(&self) -> Description {
        self.node.endpoint().describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.node.endpoint().status_json()
    }

    fn may_lose_answers(&self) -> bool {
        false
    }
}
