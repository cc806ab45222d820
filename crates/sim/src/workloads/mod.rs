//! The workloads: what clients do, and for each one oracle that says whether what they saw could
//! be.
//!
//! A workload keeps to keys of its own, so that specs may put several side by side; those that look
//! at the whole database say so. Its clients keep what they must remember in the workload itself,
//! behind locks that are never held across an await. What is wrong is told at once by
//! `Client::fail`.

mod api_correctness;
mod atomic_ops;
mod automatic_idempotency;
mod backup;
mod changes;
mod conflict_range;
mod cycle;
mod disk_durability;
mod dr;
mod fuzz_api_correctness;
mod increment;
mod known;
mod pinned_snapshots;
mod ryow_correctness;
mod selector_correctness;
mod serializability;
mod sideband;
mod version_stamp;
mod watches;
mod write_during_read;

pub use known::Workloads;

use crate::client::Client;
use crate::draw::{Draw, Entry};
use plinth_env::simulated::Random;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

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

    /// Whether its oracle looks at the whole database, so that nothing else may be in it.
    fn owns_database(&self) -> bool {
        false
    }

    /// Whether it locks the database now and then: clients are told so, and that is no mistake.
    fn locks_database(&self) -> bool {
        false
    }
}

macro_rules! workloads {
    ($($name:ident $workload:ident)*) => {
        /// The names of all workloads.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];

        fn new(name: &str, draw: &mut Draw<'_>) -> Option<Arc<dyn Workload>> {
            Some(match name {
                $(stringify!($name) => Arc::new($name::$workload::new(draw)),)*
                _ => return None,
            })
        }
    };
}

workloads! {
    api_correctness ApiCorrectness
    atomic_ops AtomicOps
    automatic_idempotency AutomaticIdempotency
    backup Backup
    changes Changes
    conflict_range ConflictRange
    cycle Cycle
    disk_durability DiskDurability
    dr Dr
    fuzz_api_correctness FuzzApiCorrectness
    increment Increment
    pinned_snapshots PinnedSnapshots
    ryow_correctness RyowCorrectness
    selector_correctness SelectorCorrectness
    serializability Serializability
    sideband Sideband
    version_stamp VersionStamp
    watches Watches
    write_during_read WriteDuringRead
}

/// The workload of a spec: one of `own`, or a built-in one.
///
/// # Errors
/// There is none of this name, or it has no such parameter.
pub(crate) fn make(
    own: &Workloads,
    entry: &Entry,
    random: &mut Random,
) -> Result<Arc<dyn Workload>, String> {
    let name = &entry.name[..];
    let mut draw = Draw::new(random, entry);
    let made = own.make(name, &mut draw);
    if made.is_some() && NAMES.contains(&name) {
        return Err(format!("there is a built-in workload {name:?}: give your own another name"));
    }
    let made = made.or_else(|| new(name, &mut draw)).ok_or_else(|| {
        let known: Vec<&str> = own.names().chain(NAMES.iter().copied()).collect();
        format!("there is no workload {name:?}; there are {}", known.join(", "))
    })?;
    draw.finish(&entry.name)?;
    Ok(made)
}

/// The number that eight little-endian bytes spell.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}
