//! The node as a client in the same process sees it: every request a function call.
//!
//! What memory can answer is answered at once, on the caller's thread. Only commits cross to
//! another thread, and reads of versions that are yet to come wait for them.

use crate::backpressure::{self, ROW_BYTES};
use crate::cluster::MemberNode;
use crate::failure::NodeError;
use crate::metrics::{Count, Heat, Metrics, SAMPLE};
use crate::node::{Node, Seat};
use crate::pace;
use crate::replica::Replica;
use crate::status::LOCAL_ADDRESS;
use crate::visible;
use plinth_client::{Description, Endpoint, Newest, Pinned, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, Located, LocatedMember, Quorum, RangeRead, RangeResult, Result,
    Standing, Version,
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

    fn replica(&self) -> &Arc<Replica> {
        &self.node.replica
    }

    /// Reads at once if `version` has been reached, else when it is.
    fn at<T: Send + 'static>(
        &self,
        version: Version,
        read: impl Fn(&Replica) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let replica = self.replica();
        let (done, reply) = promise();
        let reached = replica.waiting.wait(&replica.env, version, || self.node.newest_readable());
        let replica = replica.clone();
        reached.on_complete(move |reached| match reached {
            Ok(()) => read(&replica).on_complete(move |result| done.send(result)),
            Err(error) => done.send(Err(error.into())),
        });
        reply
    }

    /// A read of the sample: timed, and its bytes counted, if memory answers it.
    fn measured<T>(
        &self,
        read: impl FnOnce(&Replica) -> Reply<T>,
        bytes: impl FnOnce(&T) -> u64,
    ) -> Reply<T> {
        let (replica, began) = (self.replica(), self.replica().env.now());
        let mut reply = read(replica);
        let Some(result) = reply.try_take() else { return reply };
        let metrics = &replica.counters.metrics;
        metrics.note_read(replica.env.now().saturating_sub(began));
        if let Ok(value) = &result {
            metrics.add(Count::Bytes, bytes(value) * u64::from(SAMPLE));
        }
        Reply::ready(result)
    }

    /// A watch at a version that this member has not applied yet begins when it has: the value it
    /// knows may be older than the one that the watch is for.
    fn watch_later(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        let (this, (done, reply)) = (self.clone(), promise());
        let replica = self.replica();
        let reached = replica.waiting.wait(&replica.env, version, || replica.newest());
        reached.on_complete(move |reached| match reached {
            Ok(()) => this.watch(key, value, version).on_complete(move |fired| done.send(fired)),
            Err(error) => done.send(Err(error.into())),
        });
        reply
    }

    fn note_started(&self, request: &ReadVersionRequest) {
        let metrics = &self.replica().counters.metrics;
        metrics.started(request.priority, u64::from(request.others) + 1);
    }

    fn is_future(&self, version: Version) -> bool {
        version > self.replica().newest() && version > self.node.newest_readable()
    }
}

fn value_bytes(values: &[Option<Bytes>]) -> u64 {
    values.iter().flatten().map(|value| value.len() as u64).sum()
}

/// Fires a watch if its key's value is another by now.
fn compare_watch(replica: &Arc<Replica>, key: Bytes, id: u64) {
    let version = replica.newest();
    let mut keys = KeyList::new();
    keys.push(&key);
    let read = replica.storage.get_many(version, KeySpace::System, &keys);
    let replica = replica.clone();
    read.on_complete(move |values| {
        let value = values.map(|values| (version, values.into_iter().next().flatten()));
        replica.watches.compare(&key, id, value);
    });
}

impl Endpoint for InProcess {
    fn env(&self) -> &Env {
        &self.replica().env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        let leader = match &self.node.seat {
            Seat::Alone(leader) => leader,
            Seat::Member(participant) => match participant.ready_leader() {
                Ok(leader) if leader.gate.is_open() => {
                    self.note_started(&request);
                    return leader.proven_read_version(request.lock_aware, request.priority);
                }
                Ok(leader) => return pace::begin(&leader, request),
                Err(error) => return Reply::ready(Err(error.into())),
            },
        };
        if leader.gate.is_open() && leader.proofs.is_none() {
            self.note_started(&request);
            let answer = leader.read_version(request.lock_aware, request.priority);
            return Reply::ready(answer.map_err(Error::from));
        }
        pace::begin(leader, request)
    }

    fn counted_read_version(
        &self,
        request: ReadVersionRequest,
    ) -> Reply<(ReadVersionReply, Option<Quorum>)> {
        if let Seat::Member(participant) = &self.node.seat
            && let Ok(leader) = participant.ready_leader()
            && leader.gate.is_open()
            && let Some(quorum) = participant.quorum(&leader)
            // That the database is locked has to be proven too.
            && let Ok(answer) = leader.read_version(request.lock_aware, request.priority)
        {
            self.note_started(&request);
            return Reply::ready(Ok((answer, Some(quorum))));
        }
        plinth_client::endpoint::proven(self.read_version(request))
    }

    fn standing(&self) -> Option<Standing> {
        match &self.node.seat {
            Seat::Alone(_) => None,
            Seat::Member(participant) => participant.member.follows(),
        }
    }

    fn get_newest(&self, lock_aware: bool, space: KeySpace, keys: &KeyList) -> Reply<Newest> {
        let visible::Answer { version, locked, range_locks, metadata_version } =
            self.replica().visible.answer(|| self.node.newest_readable());
        if locked && !lock_aware {
            return Reply::ready(Err(NodeError::Locked.into()));
        }
        let range_locks = range_locks.filter(|_| !lock_aware);
        let at = ReadVersionReply { version, metadata_version, range_locks };
        let mut values = self.get_many(version, space, keys);
        if let Some(values) = values.try_take() {
            return Reply::ready(values.map(|values| (at, values)));
        }
        let (promise, reply) = promise();
        values.on_complete(move |values| promise.send(values.map(|values| (at, values))));
        reply
    }

    /// Memory answers, or a task is begun that will.
    #[inline]
    fn get_many_calls_back(&self) -> bool {
        false
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        let metrics = &self.replica().counters.metrics;
        metrics.read_values(keys.len());
        if self.is_future(version) {
            let keys = keys.clone();
            return self.at(version, move |replica| {
                replica.storage.get_many(version, space, &keys).err_into()
            });
        }
        plinth_usdt::read(version, keys.len());
        if Metrics::is_sampled_read() && !keys.is_empty() {
            metrics.hot.note(Heat::Reads, keys.get(0));
            let read =
                |replica: &Replica| replica.storage.get_many(version, space, keys).err_into();
            return self.measured(read, |values: &Vec<_>| value_bytes(values));
        }
        self.replica().storage.get_many(version, space, keys).err_into()
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.replica().counters.metrics.read_values(1);
        if self.is_future(version) {
            let selector = selector.clone();
            return self.at(version, move |replica| {
                replica.storage.get_key(version, space, &selector).err_into()
            });
        }
        self.replica().storage.get_key(version, space, selector).err_into()
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.replica().counters.metrics.add(Count::Reads, 1);
        if self.is_future(version) {
            let read = read.clone();
            return self.at(version, move |replica| {
                replica.storage.get_range(version, space, &read).err_into()
            });
        }
        plinth_usdt::read_range(version, read.limit);
        if Metrics::is_sampled_read() {
            self.replica().counters.metrics.hot.note(Heat::Reads, &read.begin.key);
        }
        let mut reply = self.replica().storage.get_range(version, space, read).err_into();
        let Some(result) = reply.try_take() else { return reply };
        if let Ok(result) = &result {
            self.replica().counters.metrics.read_rows(result);
        }
        Reply::ready(result)
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        if !self.replica().counters.metrics.is_sampled_commit() {
            return self.node.submit(request);
        }
        let (replica, began) = (self.replica().clone(), self.replica().env.now());
        self.node.submit(request).map(move |result| {
            replica.counters.metrics.commit.record(replica.env.now().saturating_sub(began), 1);
            result
        })
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        if matches!(self.node.seat, Seat::Member(_)) && version > self.replica().newest() {
            return self.watch_later(key, value, version);
        }
        let replica = self.replica();
        let (id, reply, upto) = replica.watches.add(key.clone(), value);
        if upto <= replica.newest() {
            compare_watch(replica, key, id);
            return reply;
        }
        let reached = replica.waiting.wait(&replica.env, upto, || replica.newest());
        let replica = replica.clone();
        reached.on_complete(move |reached| match reached {
            Ok(()) => compare_watch(&replica, key, id),
            // Whoever watches asks again.
            Err(error) => replica.watches.give_up(&key, id, error.into()),
        });
        reply
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        let size = self.replica().storage.range_size(&range.begin, &range.end);
        Reply::ready(Ok(i64::try_from(size).unwrap_or(i64::MAX)))
    }

    fn range_footprint(&self, range: KeyRange) -> Reply<i64> {
        let storage = &self.replica().storage;
        let rows = storage.range_count(&range.begin, &range.end);
        let bytes = storage.range_size(&range.begin, &range.end) + ROW_BYTES * rows;
        Reply::ready(Ok(i64::try_from(bytes).unwrap_or(i64::MAX)))
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        let chunk = u64::try_from(chunk).unwrap_or(0).max(1);
        Reply::ready(Ok(self.replica().storage.split_points(&range.begin, &range.end, chunk)))
    }

    fn addresses_for_key(&self, _key: &[u8]) -> Reply<Vec<String>> {
        Reply::ready(Ok(vec![LOCAL_ADDRESS.to_string()]))
    }

    fn describe(&self) -> Description {
        self.node.describe()
    }

    fn located(&self) -> Option<Located> {
        let membership = self.node.membership()?;
        let leadership = self.node.leadership();
        let member = |node: &MemberNode| {
            let MemberNode { id, part, address } = node;
            LocatedMember { node: *id, address: address.clone(), votes: part.stays() }
        };
        Some(Located {
            term: leadership.term,
            node: membership.node,
            leader: leadership.leader,
            members: membership.members.nodes.iter().map(member).collect(),
        })
    }

    fn newest_here(&self) -> Result<Version> {
        Ok(self.replica().newest())
    }

    fn status_json(&self) -> Reply<String> {
        Reply::ready(Ok(crate::status::document(&self.node)))
    }

    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        self.replica().streams.ask(request)
    }

    fn pin_snapshot(&self) -> Reply<Pinned> {
        // Writing what isn't in files yet takes time, which the caller's thread may not have.
        let (node, (promise, reply)) = (self.node.clone(), promise());
        let pin = async move { promise.send(node.pin_snapshot().await.map_err(Error::from)) };
        drop(self.replica().env.spawn("pin", pin));
        reply
    }

    fn refusal(&self) -> Option<Error> {
        backpressure::refusal(self.replica()).map(|(_, error)| error.into())
    }

    fn is_over(&self) -> bool {
        self.node.is_over()
    }

    /// In one process an answer is lost only together with the node, which takes no commits after
    /// that. A member of a cluster may cease to lead while a commit is under way.
    fn may_lose_answers(&self) -> bool {
        match self.node.seat {
            Seat::Alone(_) => false,
            Seat::Member(_) => true,
        }
    }
}
