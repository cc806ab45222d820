//! A pinned snapshot of a database behind a socket: reads in it, and the task that keeps its lease.
//!
//! ```text
//!   RemoteSnapshot ──reads──▶ links ──▶ server: lease ──▶ the database as it was
//!        │ drop: stop                     ▲
//!        ▼                                │ every third of the lease; at the end: release
//!   keep (a task) ────────────────────────┘
//! ```
//!
//! The lease belongs to no connection: after one was lost it is renewed over the next, if that
//! comes in time. When it has lapsed the server says so to every read, and the task ends.

use super::slots::Answer;
use super::token::Token;
use super::{Core, many};
use crate::endpoint::{Description, Endpoint, Pinned, ReadVersionReply, ReadVersionRequest};
use plinth_env::reply::{Reply, promise};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal};
use plinth_proto::frame::Kind;
use plinth_proto::request;
use plinth_proto::{SnapshotId, reply};
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, RangeLocks, RangeRead, RangeResult, Version,
};
use std::sync::Arc;
use std::time::Duration;

/// How often a lease is renewed while it lasts, so that one renewal may get lost.
const RENEWALS: u32 = 3;

/// A version of a remote database that the server keeps for this client.
pub(super) struct RemoteSnapshot {
    core: Arc<Core>,
    /// The token by which it is read.
    token: Option<Token>,
    id: SnapshotId,
    version: Version,
    metadata_version: Option<Bytes>,
    range_locks: Option<RangeLocks>,
    dropped: Arc<Signal>,
}

/// Pins a snapshot, and has its lease kept.
pub(super) fn pin(core: &Arc<Core>, token: Option<Token>) -> Reply<Pinned> {
    let lease_ms = milliseconds(core.options.snapshot_lease);
    let (asked, answer) = promise();
    core.link().submit(token.as_ref(), Answer::Pinned(asked), |out, id| {
        request::put_pin(out, id, lease_ms);
    });
    let (done, reply) = promise();
    let core = core.clone();
    answer.on_complete(move |pinned| {
        done.send(pinned.map(|pinned| {
            let reply::Pinned { snapshot: id, version, metadata_version, lease_ms, range_locks } =
                pinned;
            let dropped = Arc::new(Signal::new());
            let lease = Duration::from_millis(lease_ms.into());
            let kept = keep(core.clone(), token.clone(), id, lease, dropped.clone());
            drop(core.env.spawn_network("lease", kept));
            let endpoint = Arc::new(RemoteSnapshot {
                core,
                token,
                id,
                version,
                metadata_version,
                range_locks,
                dropped,
            });
            Pinned { version, endpoint }
        }));
    });
    reply
}

fn milliseconds(lease: Duration) -> u32 {
    u32::try_from(lease.as_millis()).unwrap_or(u32::MAX)
}

/// Renews a lease until nobody needs the snapshot any more, and then gives it back.
async fn keep(
    core: Arc<Core>,
    token: Option<Token>,
    id: SnapshotId,
    lease: Duration,
    dropped: Arc<Signal>,
) {
    while let First::Right(()) = race(dropped.wait(), core.env.sleep(lease / RENEWALS)).await {
        let (promise, reply) = promise();
        let answer = Answer::Number(promise, Kind::RenewReply);
        core.link().submit(token.as_ref(), answer, |out, number| {
            request::put_renew(out, number, &id, milliseconds(lease));
        });
        match race(dropped.wait(), reply).await {
            First::Left(()) => break,
            First::Right(Ok(_)) => {}
            // It has yet to learn who may do what, say: that passes.
            First::Right(Err(why)) if why == Error::process_behind() => {}
            // Whoever reads is told the same.
            First::Right(Err(_)) => return,
        }
    }
    let (promise, released) = promise();
    core.link().submit(None, Answer::Released(promise), |out, number| {
        request::put_release(out, number, &id);
    });
    // After that it has lapsed by itself.
    race(released, core.env.sleep(lease)).await;
}

/// Leaves a request for a read in a snapshot.
fn ask(
    (core, token): (&Core, Option<&Token>),
    snapshot: &SnapshotId,
    answer: Answer,
    read: impl FnOnce(&mut Vec<u8>, u32),
) {
    core.link().submit(token, answer, |out, number| {
        request::put_in_snapshot(out, snapshot, |out| read(out, number));
    });
}

impl RemoteSnapshot {
    /// Asks for a read in this snapshot.
    fn ask(&self, answer: Answer, read: impl FnOnce(&mut Vec<u8>, u32)) {
        ask((&self.core, self.token.as_ref()), &self.id, answer, read);
    }
}

impl Drop for RemoteSnapshot {
    fn drop(&mut self) {
        self.dropped.notify();
    }
}

impl Endpoint for RemoteSnapshot {
    fn env(&self) -> &Env {
        &self.core.env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        let metadata_version = self.metadata_version.clone();
        let range_locks = self.range_locks.clone().filter(|_| !request.lock_aware);
        Reply::ready(Ok(ReadVersionReply { version: self.version, metadata_version, range_locks }))
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        let (core, token, snapshot) = (self.core.clone(), self.token.clone(), self.id);
        many::values(keys, move |promise, keys| {
            ask(
                (&core, token.as_ref()),
                &snapshot,
                Answer::Values(promise, keys.len()),
                |out, id| {
                    request::put_get_many(out, id, version, space, keys.iter());
                },
            );
        })
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        let (promise, reply) = promise();
        self.ask(Answer::Key(promise), |out, id| {
            request::put_get_key(out, id, version, space, selector)
        });
        reply
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        let (promise, reply) = promise();
        self.ask(Answer::Range(promise), |out, id| {
            request::put_get_range(out, id, version, space, read)
        });
        reply
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
        let (promise, reply) = promise();
        self.ask(Answer::Number(promise, Kind::RangeSizeReply), |out, id| {
            request::put_range_size(out, id, &range)
        });
        reply
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        let (promise, reply) = promise();
        self.ask(Answer::Keys(promise), |out, id| {
            request::put_split_points(out, id, &range, chunk)
        });
        reply
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.core.addresses_for_key(self.token.as_ref(), key)
    }

    fn describe(&self) -> Description {
        self.core.describe()
    }

    fn status_json(&self) -> Reply<String> {
        self.core.status_json(self.token.clone())
    }

    fn may_lose_answers(&self) -> bool {
        false
    }
}
