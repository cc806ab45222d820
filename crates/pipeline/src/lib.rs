//! The roles of a database and the node that wires them: from a client's commit to a durable,
//! visible version.
//!
//! ## Role
//! A [`Node`] is a whole database in one process: a *replica*, which lives as long as the process,
//! and a *leader* besides, which lives for one term. It implements the client's `Endpoint`
//! ([`InProcess`]), so a transaction reaches it by function calls; a server puts sockets in front
//! of the same node.
//!
//! ## Data structure
//! ```text
//!             ┌─ leader: one term ──────────────────────────────────────────────────────┐
//!  commit ──▶ │ queue ─▶ batch lock: sequencer, resolver, append ─▶ in flight ─▶ settle │ ──▶ answers
//!  start  ──▶ │ gate ─▶ newest version, proven where that is needed  ▲              │   │
//!             └───────────────────────────────────── committed up to ┘              │   │
//!             ┌─ replica: as long as the process ────────────────────────────────── ▼ ──┐
//!  reads  ──▶ │ storage, log, versions applied, metadata told, watches  ◀── apply(entry) │
//!             └─────────────────────────────────────────────────────────────────────────┘
//! ```
//! `node.rs` alone wires the roles to tasks and files. What a role has to do is a function of that
//! role; a task (`worker`, `chores`, `checkpoints`) calls it and does the waiting.
//!
//! ## Invariants (checked by [`Node::check_invariants`], and by assertions at the roles' edges)
//! 1. Nothing is visible before it is committed; batches become visible in version order.
//! 2. A read version is at least the version of every commit acknowledged before it was asked for.
//! 3. No version above the log's lease is shown to anybody, and a restart begins beyond the lease.
//! 4. After a failed sync, or a task that ended early, nothing more is acknowledged, and whoever
//!    waits is answered.
//! 5. The log is kept from the newest durable checkpoint on, and from what the consumer of each
//!    stream has acknowledged.
//!
//! ## Not here
//! Conflict detection (`resolver`), bytes on disk (`log`, `storage`), what a transaction does
//! before its commit (`client`).
//! Read next: `replica.rs`, `leader.rs`, `worker.rs`, `batch.rs`, `in_flight.rs`, `node.rs`,
//! `replay/mod.rs`, `changes/mod.rs`.
#![forbid(unsafe_code)]

mod backpressure;
mod batch;
mod batch_lock;
mod beginning;
mod changes;
mod check;
mod checkpoints;
mod chores;
pub mod cluster;
mod config;
mod counters;
mod creation;
mod deliver;
mod directory;
mod endpoint;
mod events;
mod exposition;
mod failure;
mod gate;
mod generation;
mod health;
mod held;
mod host;
mod identity;
mod in_flight;
mod joining;
mod key_file;
mod leader;
mod metadata;
mod metrics;
mod node;
mod opening;
mod pace;
mod pinned;
mod proof;
mod queue;
mod refusals;
mod renewal;
mod replay;
mod replica;
mod sequencer;
mod shown;
mod silence;
mod space;
mod status;
mod store;
mod supervise;
mod taking;
mod together;
mod versions;
mod visible;
mod waiting;
mod watches;
mod worker;

pub use check::{
    CheckReport, SalvageReport, check, check_keys, check_with, is_encrypted, salvage, salvage_with,
};
pub use config::{Creation, LoadTargets, NodeConfig, RowsConfig};
pub use endpoint::InProcess;
pub use failure::{NodeError, NodeResult};
pub use generation::{Import, Incoming};
pub use host::{Host, HostEndpoint};
pub use identity::{DIRECTORY_FORMAT, EngineKind};
pub use key_file::read_key_file;
pub use metrics::LongestWaits;
pub use node::Node;
pub use plinth_format::Corruption;
pub use plinth_format::crypt::{BadKey, Key, Keys};
pub use plinth_storage::ssd::Compression;
pub use plinth_storage::{Chunk, PinnedVersion, SsdSettings};
