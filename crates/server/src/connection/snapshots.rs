//! Requests about pinned snapshots: pinning one, renewing its lease, reading in it.

use super::Connection;
use super::requests::locked_ranges;
use crate::memory::{self, Charge};
use plinth_client::{ReadVersionReply, ReadVersionRequest};
use plinth_env::reply::promise;
use plinth_proto::frame::{Kind, RANGE_LOCKS};
use plinth_proto::{Request, SnapshotId, reply};
use plinth_types::quotas::Of;
use plinth_types::{Error, Result};

/// For a client that wouldn't leave locked ranges alone. What was pinned lapses with its lease,
/// which nobody renews.
fn put_pin_unless_locked(out: &mut Vec<u8>, id: u32, pinned: &reply::Pinned) {
    match pinned.range_locks {
        None => reply::put_pin(out, id, pinned),
        Some(_) => reply::put_failure(out, id, &locked_ranges()),
    }
}

impl Connection {
    /// Pins a snapshot. Should the connection end before the answer has left, the lease lapses.
    pub(super) fn pin(&mut self, id: u32, lease_ms: u32, len: usize) -> Result<()> {
        let coverage = self.coverage()?;
        let counted = self.count(Of::Snapshots).map_err(|why| {
            let detail =
                format!("{why}, and so many are held: drop one of them, or let its lease lapse");
            Error::operation_failed().with_detail(detail)
        })?;
        let who = self.identity();
        let place = self.shared.snapshots.reserve(who, counted)?;
        let (shared, client) = (self.shared.clone(), self.outbox.peer);
        let (done, answer) = promise();
        // What is kept is the database as it was: who reads in it is judged at each read.
        self.shared.endpoint.pin_snapshot().on_complete(move |pinned| {
            let pinned = match pinned {
                Ok(pinned) => pinned,
                Err(error) => return done.send(Err(error)),
            };
            let version = pinned.version;
            // Whether ranges are locked concerns the client's transactions; only they know whether
            // they are lock-aware.
            let metadata = pinned.endpoint.read_version(ReadVersionRequest::default());
            metadata.on_complete(move |metadata| {
                done.send(metadata.and_then(|metadata| {
                    let lease_ms = shared.snapshots.granted_ms(lease_ms);
                    let times = [shared.env.now(), shared.snapshots.granted(lease_ms)];
                    let snapshot = shared.snapshots.hold(
                        place,
                        pinned,
                        client,
                        shared.env.random_u64(),
                        times,
                    )?;
                    let ReadVersionReply { metadata_version, range_locks, .. } = metadata;
                    let range_locks = match &coverage {
                        Some(coverage) => range_locks.and_then(|locks| coverage.cut_locks(&locks)),
                        None => range_locks,
                    };
                    Ok(reply::Pinned { snapshot, version, metadata_version, lease_ms, range_locks })
                }));
            });
        });
        let put =
            if self.access.version < RANGE_LOCKS { put_pin_unless_locked } else { reply::put_pin };
        self.answer(id, answer, Charge::new(len, memory::SMALL), put);
        Ok(())
    }

    pub(super) fn renew(&mut self, id: u32, snapshot: &SnapshotId, lease_ms: u32) -> Result<()> {
        let snapshots = &self.shared.snapshots;
        let lease = snapshots.granted(lease_ms);
        snapshots.renew(snapshot, self.shared.env.now(), lease)?;
        let granted = snapshots.granted_ms(lease_ms).into();
        reply::put_number(&mut self.output, id, Kind::RenewReply, granted);
        Ok(())
    }

    pub(super) fn release(&mut self, id: u32, snapshot: &SnapshotId) {
        self.shared.snapshots.release(snapshot);
        reply::put_released(&mut self.output, id);
    }

    /// Reads as it would without the snapshot, from the database as it was.
    pub(super) fn read_in(
        &mut self,
        id: u32,
        snapshot: &SnapshotId,
        read: Request,
        len: usize,
    ) -> Result<()> {
        let endpoint = self.shared.snapshots.find(snapshot, self.shared.env.now())?;
        let endpoint = self.guard(endpoint)?;
        match read {
            Request::GetMany { version, space, keys } => {
                self.get_many(&*endpoint, id, (version, space), &keys, len)
            }
            Request::GetKey { version, space, selector } => {
                self.get_key(&*endpoint, id, (version, space), &selector, len)
            }
            Request::GetRange { version, space, read } => {
                self.get_range(&*endpoint, id, (version, space), read, len)
            }
            Request::RangeSize(range) => {
                self.range_size(&*endpoint, id, range, len);
                Ok(())
            }
            Request::SplitPoints { range, chunk } => {
                self.split_points(endpoint.clone(), id, range, chunk, len);
                Ok(())
            }
            other => {
                let detail = format!(
                    "in a pinned snapshot there are only reads, and this is none: {other:?}"
                );
                Err(Error::client_invalid_operation().with_detail(detail))
            }
        }
    }
}
