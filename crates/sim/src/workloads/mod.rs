//! The workloads: what clients do, and for each one oracle that says whether what they saw could be.
//!
//! A workload owns the whole database of its run. Its clients keep what they must remember in the workload itself,
//! behind locks that are never held across an await. What is wrong is told at once by `Client::fail`.

mod atomic_ops;
mod conflict_range;
mod cycle;
mod increment;
mod serializability;
mod sideband;
mod version_stamp;
mod watches;
mod write_during_read;

use crate::client::Client;
use plinth_env::simulated::Random;
use plinth_types::{Bytes, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A future in a box: workloads are made by name.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the clients of a run do, and whether it went well.
pub trait Workload: Send + Sync {
    /// Writes what the clients find at their start. No faults yet.
    fn set_up(self: Arc<Self>, client: Client) -> Work {
        drop(client);
        Box::pin(async {})
    }

    /// What one of `clients` clients does until it is told to stop.
    fn run(self: Arc<Self>, client: Client, clients: usize) -> Work;

    /// Looks at what is left when all has come to rest. Called several times.
    fn check(self: Arc<Self>, client: Client) -> Work;

    /// Whether its transactions would grow too old in a short window for it to test anything.
    fn needs_long_window(&self) -> bool {
        false
    }
}

/// The names of all workloads.
pub const NAMES: [&str; 9] = [
    "cycle",
    "atomic_ops",
    "conflict_range",
    "write_during_read",
    "serializability",
    "increment",
    "sideband",
    "watches",
    "version_stamp",
];

/// The workload of this name, with random properties.
pub fn make(name: &str, random: &mut Random) -> Option<Arc<dyn Workload>> {
    Some(match name {
        "cycle" => Arc::new(cycle::Cycle::new(random)),
        "atomic_ops" => Arc::new(atomic_ops::AtomicOps::new(random)),
        "conflict_range" => Arc::new(conflict_range::ConflictRange::new(random)),
        "write_during_read" => Arc::new(write_during_read::WriteDuringRead::new(random)),
        "serializability" => Arc::new(serializability::Serializability::new(random)),
        "increment" => Arc::new(increment::Increment::new(random)),
        "sideband" => Arc::new(sideband::Sideband::default()),
        "watches" => Arc::new(watches::Watches::new(random)),
        "version_stamp" => Arc::new(version_stamp::VersionStamp::default()),
        _ => return None,
    })
}

/// Locks what is never left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All rows whose keys begin with `prefix`, in one transaction.
pub(crate) async fn read_all(client: &Client, prefix: &str) -> Option<Vec<(Bytes, Bytes)>> {
    let read = client.insist(async |tr| -> Result<Vec<(Bytes, Bytes)>> {
        let rows = tr.range(plinth_client::RangeOptions::prefix(prefix)).collect().await?;
        Ok(rows.into_iter().map(|row| (row.key, row.value)).collect())
    });
    read.await.map(|(rows, _)| rows)
}

/// The number that eight little-endian bytes spell.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}
