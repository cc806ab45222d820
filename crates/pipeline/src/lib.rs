//! The roles of a database and the node that wires them: from a client's commit to a durable, visible version.
//!
//! ## Role
//! A [`Node`] is a whole database in one process. It implements the client's `Endpoint`
//! ([`InProcess`]), so a transaction reaches it by function calls; a server puts sockets in front of
//! the same node.
//!
//! ## Data structure
//! ```text
//!  clients ── commit ──▶ queue ──▶ ┌─ baton: one worker ───────────┐     sync      turn: in version order
//!     ▲                            │ sequencer, batch (resolver,   │ ──▶ beside ──▶ apply to storage, publish,
//!     │                            │ metadata), append to the log  │     others     answer, fire watches
//!     │                            └───────────────────────────────┘                      │
//!     └── read version: newest published, one load ◀──────────────────────────────────────┘
//!  clients ── reads ──▶ storage, on their own thread
//! ```
//!
//! ## Invariants
//! 1. Nothing is visible before it is durable; batches become visible in version order.
//! 2. A read version is at least the version of every commit acknowledged before it was asked for.
//! 3. No version above the log's lease is shown to anybody, and a restart begins beyond the lease.
//! 4. After a failed sync nothing more is acknowledged.
//! 5. The log is kept from the newest durable checkpoint on.
//!
//! ## Not here
//! Conflict detection (`resolver`), bytes on disk (`log`, `storage`), what a transaction does before its
//! commit (`client`).
//! Read next: `worker.rs`, then `batch.rs`, `sequencer.rs`, `node.rs`, `replay/mod.rs`.
#![forbid(unsafe_code)]

mod batch;
mod check;
mod checkpoints;
mod chores;
mod counters;
mod endpoint;
mod events;
mod gate;
mod identity;
mod metadata;
mod metrics;
mod node;
mod order;
mod pace;
mod pinned;
mod queue;
mod replay;
mod room;
mod sequencer;
mod shared;
mod status;
mod store;
mod together;
mod versions;
mod visible;
mod waiting;
mod watches;
mod worker;

pub use check::{CheckReport, SalvageReport, check, salvage};
pub use endpoint::InProcess;
pub use identity::{DIRECTORY_FORMAT, EngineKind};
pub use metrics::LongestWaits;
pub use node::{Creation, Node, NodeConfig};
pub use pace::LoadTargets;
pub use plinth_log::Problem;
pub use plinth_storage::SsdSettings;
pub use plinth_storage::ssd::Compression;
