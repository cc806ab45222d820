//! Pinned snapshots that clients hold on leases: taken, renewed, given back, or lapsed.
//!
//! A snapshot costs files that can't be removed while it is there, so no client may keep one by
//! vanishing. Each has a time at which it ends unless its client says otherwise before, and there
//! are so many at most. It belongs to no connection: a client that has lost its own renews the
//! lease over the next one.
//!
//! ```text
//!   id of a snapshot   | which start of the server 8 | random 8 |      so an id of an earlier start is known as one
//!
//!   Pin ──▶ reserve ──▶ endpoint pins ──▶ hold ──▶ find (each read), renew ──▶ release, or sweep when the lease is over
//! ```
//!
//! Endpoints are dropped outside the lock: the last one to go may have files to remove.

use crate::quotas::Counted;
use crate::rights::Identity;
use plinth_client::{Endpoint, Pinned};
use plinth_proto::SnapshotId;
use plinth_types::{Error, Result, Version};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Shortest lease that is given, whatever is asked for.
const SHORTEST: Duration = Duration::from_secs(1);

/// What the server holds for its clients.
pub(crate) struct Snapshots {
    /// Tells this start of the server from others.
    start: u64,
    most: usize,
    longest: Duration,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    leases: BTreeMap<u64, Lease>,
    /// Places that are taken by snapshots yet to come.
    reserved: usize,
    taken: u64,
    lapsed: u64,
    /// Nothing is held any more.
    closed: bool,
}

struct Lease {
    endpoint: Arc<dyn Endpoint>,
    version: Version,
    /// Whose connection it was asked for over.
    client: SocketAddr,
    /// Who asked for it, and what it is counted for.
    who: Identity,
    counted: Vec<Counted>,
    since: Duration,
    until: Duration,
}

/// A place for a snapshot yet to come; given back when dropped.
pub(crate) struct Place {
    snapshots: Arc<Snapshots>,
    who: Identity,
    /// What it is counted for.
    counted: Vec<Counted>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.snapshots.lock().reserved -= 1;
    }
}

impl Snapshots {
    /// None yet, at most so many, each on a lease of at most so long. `start` is a number of this
    /// start of the server's own.
    pub(crate) fn new(start: u64, most: usize, longest: Duration) -> Arc<Self> {
        Arc::new(Self { start, most, longest: longest.max(SHORTEST), table: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for somebody's snapshot, which is counted so.
    ///
    /// # Errors
    /// `operation_failed` if all are taken.
    pub(crate) fn reserve(self: &Arc<Self>, who: Identity, counted: Vec<Counted>) -> Result<Place> {
        let mut table = self.lock();
        if table.leases.len() + table.reserved >= self.most {
            let detail = format!(
                "the server holds {} pinned snapshots (--snapshots) and takes no more until one of them is dropped or its lease lapses",
                self.most
            );
            return Err(Error::operation_failed().with_detail(detail));
        }
        table.reserved += 1;
        Ok(Place { snapshots: self.clone(), who, counted })
    }

    /// For how long a lease is given to who asks for so much.
    pub(crate) fn granted(&self, lease_ms: u32) -> Duration {
        Duration::from_millis(lease_ms.into()).clamp(SHORTEST, self.longest)
    }

    /// How many milliseconds that is.
    pub(crate) fn granted_ms(&self, lease_ms: u32) -> u32 {
        u32::try_from(self.granted(lease_ms).as_millis()).unwrap_or(u32::MAX)
    }

    /// Holds what was pinned; gives its id.
    ///
    /// # Errors
    /// `shutdown_in_progress` if the server has stopped meanwhile.
    pub(crate) fn hold(
        &self,
        mut place: Place,
        pinned: Pinned,
        client: SocketAddr,
        random: u64,
        [now, lease]: [Duration; 2],
    ) -> Result<SnapshotId> {
        let mut table = self.lock();
        if table.closed {
            drop(table);
            return Err(Error::shutdown_in_progress().with_detail("the server is stopping"));
        }
        // Two of the same number are as good as impossible, and would mix up two clients' data.
        let mut number = random;
        while table.leases.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        let Pinned { version, endpoint } = pinned;
        let (who, counted) = (place.who.clone(), std::mem::take(&mut place.counted));
        let until = now + lease;
        table
            .leases
            .insert(number, Lease { endpoint, version, client, who, counted, since: now, until });
        table.taken += 1;
        drop(table);
        drop(place);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.start.to_le_bytes());
        id[8..].copy_from_slice(&number.to_le_bytes());
        Ok(id)
    }

    /// The number of a snapshot of this start of the server.
    fn number(&self, id: &SnapshotId) -> Result<u64> {
        let [start, number] = [0, 8].map(|at| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&id[at..at + 8]);
            u64::from_le_bytes(bytes)
        });
        if start == self.start {
            Ok(number)
        } else {
            Err(gone("the server has been started anew since it was pinned"))
        }
    }

    /// The database as it was.
    ///
    /// # Errors
    /// `version_invalid`, with why, if the snapshot isn't held (any more).
    pub(crate) fn find(&self, id: &SnapshotId, now: Duration) -> Result<Arc<dyn Endpoint>> {
        let number = self.number(id)?;
        let table = self.lock();
        let lease = table.leases.get(&number).filter(|lease| lease.until >= now);
        lease.map(|lease| lease.endpoint.clone()).ok_or_else(lapsed)
    }

    /// Keeps a snapshot for so long from now on.
    ///
    /// # Errors
    /// As [`Snapshots::find`].
    pub(crate) fn renew(&self, id: &SnapshotId, now: Duration, lease: Duration) -> Result<()> {
        let number = self.number(id)?;
        let mut table = self.lock();
        let held =
            table.leases.get_mut(&number).filter(|lease| lease.until >= now).ok_or_else(lapsed)?;
        held.until = now + lease;
        Ok(())
    }

    /// Gives a snapshot up; none that is gone already is missed.
    pub(crate) fn release(&self, id: &SnapshotId) {
        let Ok(number) = self.number(id) else { return };
        let lease = self.lock().leases.remove(&number);
        drop(lease);
    }

    /// Counts all of them anew, for those who asked for them.
    pub(crate) fn recount(&self, count: impl Fn(&Identity) -> Vec<Counted>) {
        for lease in self.lock().leases.values_mut() {
            lease.counted = count(&lease.who);
        }
    }

    /// Gives up those whose lease is over.
    pub(crate) fn sweep(&self, now: Duration) {
        let mut table = self.lock();
        let over: Vec<_> = table.leases.extract_if(.., |_, lease| lease.until < now).collect();
        table.lapsed += over.len() as u64;
        drop(table);
        drop(over);
    }

    /// Gives up all of them, and takes no more.
    pub(crate) fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        let leases = std::mem::take(&mut table.leases);
        drop(table);
        drop(leases);
    }

    /// What is held, for the status document.
    pub(crate) fn status(&self, now: Duration) -> Value {
        let table = self.lock();
        let leases: Vec<_> = table
            .leases
            .values()
            .map(|lease| {
                json!({
                    "client": lease.client.to_string(),
                    "version": lease.version,
                    "age_seconds": now.saturating_sub(lease.since).as_secs_f64(),
                    "lease_seconds": lease.until.saturating_sub(now).as_secs_f64(),
                })
            })
            .collect();
        json!({
            "count": leases.len(),
            "count_max": self.most,
            "taken": table.taken,
            "lapsed": table.lapsed,
            "leases": leases,
        })
    }
}

#[cold]
fn lapsed() -> Error {
    gone("its lease has lapsed, or it was dropped")
}

fn gone(why: &str) -> Error {
    let detail =
        format!("the server doesn't hold this pinned snapshot any more: {why}; pin another one");
    Error::version_invalid().with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::{Env, block_on};
    use plinth_pipeline::{Node, NodeConfig};

    const LEASE: Duration = Duration::from_secs(10);

    /// Leases of nothing: this is about time.
    struct World {
        snapshots: Arc<Snapshots>,
        endpoint: Arc<dyn Endpoint>,
    }

    impl World {
        fn new(most: usize) -> Self {
            let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
            Self {
                snapshots: Snapshots::new(7, most, Duration::from_secs(60)),
                endpoint: Arc::new(node.endpoint()),
            }
        }

        fn reserve(&self) -> Result<Place> {
            let client = SocketAddr::from(([127, 0, 0, 1], 9));
            self.snapshots.reserve(Identity::at(client.ip()), Vec::new())
        }

        fn pin(&self, random: u64, now: Duration) -> SnapshotId {
            let place = self.reserve().unwrap();
            let pinned = Pinned { version: 5, endpoint: self.endpoint.clone() };
            let client = SocketAddr::from(([127, 0, 0, 1], 9));
            self.snapshots.hold(place, pinned, client, random, [now, LEASE]).unwrap()
        }
    }

    #[test]
    fn a_lease_that_is_over_is_over_before_anybody_sweeps() {
        let world = World::new(2);
        let begin = Duration::from_secs(100);
        let id = world.pin(1, begin);
        let (last, over) = (begin + LEASE, begin + LEASE + Duration::from_nanos(1));
        assert!(world.snapshots.find(&id, last).is_ok());
        assert_eq!(world.snapshots.find(&id, over).err(), Some(Error::version_invalid()));
        assert_eq!(world.snapshots.renew(&id, over, LEASE).err(), Some(Error::version_invalid()));
        // Renewed in time it is there for that much longer, and a request that was under way
        // doesn't bring it back.
        world.snapshots.renew(&id, last, LEASE).unwrap();
        assert!(world.snapshots.find(&id, last + LEASE).is_ok());
        assert!(world.snapshots.find(&id, over + LEASE).is_err());
    }

    #[test]
    fn a_sweep_gives_up_what_is_over_and_nothing_else() {
        let world = World::new(2);
        let (old, new) = (world.pin(1, Duration::ZERO), world.pin(1, LEASE));
        assert_ne!(old, new, "the same random number twice is two snapshots");
        assert!(world.reserve().is_err(), "two at most");
        let held = Arc::strong_count(&world.endpoint);
        world.snapshots.sweep(LEASE);
        assert_eq!(Arc::strong_count(&world.endpoint), held, "not before its time");
        world.snapshots.sweep(LEASE + Duration::from_nanos(1));
        assert_eq!(Arc::strong_count(&world.endpoint), held - 1, "what it kept is let go");
        let status = world.snapshots.status(LEASE);
        assert_eq!((&status["count"], &status["lapsed"]), (&1.into(), &1.into()), "{status}");
        assert!(world.snapshots.find(&new, 2 * LEASE).is_ok());
        assert!(world.reserve().is_ok(), "there is room again");
    }

    #[test]
    fn a_place_that_comes_to_nothing_is_given_back_and_the_end_takes_all() {
        let world = World::new(1);
        drop(world.reserve().unwrap());
        let id = world.pin(1, Duration::ZERO);
        world.snapshots.close();
        assert!(world.snapshots.find(&id, Duration::ZERO).is_err());
        let place = world.reserve().unwrap();
        let pinned = Pinned { version: 5, endpoint: world.endpoint.clone() };
        let client = SocketAddr::from(([127, 0, 0, 1], 9));
        let held = world.snapshots.hold(place, pinned, client, 2, [Duration::ZERO, LEASE]);
        assert_eq!(held.err(), Some(Error::shutdown_in_progress()));
        assert_eq!(Arc::strong_count(&world.endpoint), 1, "nothing is kept by a server that stops");
    }
}
