//! The client: transactions with FoundationDB's exact semantics, over any endpoint.
//!
//! ## Role
//! Holds a whole transaction until it commits: its reads (all at one version), its writes, its
//! conflict ranges. Reads see the transaction's own writes; commit sends everything in one request.
//! Where the database is, in this process or behind a socket, only the [`Endpoint`] knows.
//!
//! ## Data structure
//! ```text
//!   Transaction ──▶ Inner ──▶ State (one lock)
//!                              │
//!        ┌──────────┬──────────┼───────────────┬─────────────────┐
//!      life      batches    read set        write set          outcome
//!    usable?   point reads  conflict   mutations (flat list)   committed version,
//!    epoch     on their way  ranges    conflict ranges         versionstamp
//!    timeout                    │      write map, once a read meets a write
//!                               └───────┬───────┘
//!                                commit attempt: the request
//!
//!   above: mapped ranges, tenants, streams of rows, the retry loop (transact)
//!   below, by traits of theirs that a transaction fulfils: special keys, merging
//! ```
//!
//! ## Invariants
//! 1. What a read sees of own writes, and which conflict ranges it adds, is settled when it is
//!    called.
//! 2. No foreign code (endpoint, wakers, promises) runs while the lock is held.
//! 3. An answer of an epoch that is over (before a reset or retry) changes nothing.
//! 4. Keys the user names are relative to the tenant; keys the endpoint sees are whole.
//!
//! ## Not here
//! Versions, conflict resolution, storage: the endpoint. Tuples, subspaces, directories: the
//! facade.
//! Read next: [`endpoint`], `transaction/mod.rs`, `transaction/state.rs`, `write_map/mod.rs`,
//! `merge/mod.rs`.
#![forbid(unsafe_code)]

mod capture;
mod changes;
mod conflicts;
mod database;
pub mod endpoint;
mod filling;
pub mod first_read;
pub mod json;
mod mapped;
mod merge;
mod operator;
mod options;
mod pinned;
mod prefix;
mod range;
#[cfg(feature = "net")]
pub mod remote;
mod special_keys;
mod stream;
mod tenant;
mod transact;
mod transaction;
mod tuple;
mod write_map;

pub use capture::{CaptureConsumer, CapturedStream, ChangeCapture};
pub use changes::{ChangeConsumer, ChangeFeed, ChangeStream};
pub use database::{API_VERSION, API_VERSION_OLDEST, Database};
pub use endpoint::{
    Begun, Description, Endpoint, Newest, Pinned, Priority, ReadVersionReply, ReadVersionRequest,
};
pub use filling::Filling;
pub use first_read::FEW_KEYS;
pub use mapped::{Mapped, MappedRangeResult, MappedRow};
pub use operator::Retries;
pub use options::{DatabaseOption, OptionParameter, TransactionOption};
pub use pinned::{PinnedSnapshot, ReadTransaction};
pub use plinth_env::reply::Reply;
pub use plinth_types::{
    Bytes, ChangeBatch, Changes, ChangesRequest, Error, ErrorKind, KeyRange, KeySelector, KeyValue,
    MutationType, RangeResult, Result, Rows, Version, Versionstamp, codes,
};
pub use range::{ConflictRangeType, RangeOptions, StreamingMode};
pub use stream::RangeStream;
pub use tenant::Tenant;
pub use transact::TransactError;
pub use transaction::{Get, Snapshot, Transaction};
