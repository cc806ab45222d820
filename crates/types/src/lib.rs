//! The words that every other crate speaks: keys, ranges, selectors, versions, mutations, limits,
//! errors.
//!
//! ## Role
//! Plain data and pure functions. What crosses the edge between two roles (a client and the
//! commit pipeline, the pipeline and the log) is made of these types, whether that edge is a
//! function call or a socket.
//!
//! ## Data structures
//! Lists that travel are flat: a transaction's mutations are one buffer ([`MutationList`]), its
//! conflict ranges another ([`RangeList`]), the rows of a range read a third ([`Rows`]). The same
//! bytes go from the client through the log to storage without a copy of each part.
//!
//! ```text
//!   MutationList   | op | len1 | len2 | param1 .. | param2 .. | op | len1 | ...
//!   RangeList      | len1 | len2 | begin .. | end .. | len1 | ...
//!   Rows           data: | key | value | key | value |    spans: (key end, value end) each
//! ```
//!
//! ## Invariants
//! 1. Decoding never panics: a flat list is checked whole when it is made from foreign bytes.
//! 2. Error numbers are FoundationDB's, in one table ([`error`]).
//!
//! ## Not here
//! I/O, clocks, threads (`env`); framing for sockets (`proto`).
//! Read next: [`error`], [`mutation`], [`atomic`], [`commit`], [`read`].
#![forbid(unsafe_code)]

pub mod amount;
pub mod atomic;
pub mod calendar;
pub mod changes;
pub mod commit;
pub mod error;
pub mod key;
mod layer_error;
pub mod limits;
pub mod located;
pub mod marks;
pub mod metrics;
pub mod mutation;
pub mod places;
pub mod printable;
pub mod quotas;
pub mod range_locks;
pub mod ranges;
pub mod read;
pub mod rights;
pub mod rows;
pub mod system;
pub mod version;

pub use bytes::Bytes;
pub use changes::{ChangeBatch, Changes, ChangesRequest, StreamRow};
pub use commit::{CommitReply, CommitRequest, Conflicts};
pub use error::{Error, ErrorKind, Resource, Result, codes};
pub use key::{KeyRange, KeySelector, key_after, strinc};
pub use located::{Located, LocatedMember, Quorum, Standing};
pub use metrics::{MetricSet, Metrics};
pub use mutation::{Mutation, MutationList, MutationRef, MutationType};
pub use printable::printable;
pub use range_locks::{RangeLock, RangeLocks};
pub use ranges::{KeyList, RangeList, RangeRef};
pub use read::{KeySpace, RangeRead, RangeResult, Read, ReadResult};
pub use rows::{KeyValue, Rows, RowsBuilder};
pub use version::{LogPosition, Version, Versionstamp};
