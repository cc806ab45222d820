//! Time series on a database: compressed points, a tree for each series, and nothing durable that a
//! crash can take back.
//!
//! ## Role
//! A layer. It sees the database only as any client does, so it runs wherever
//! [`plinth_client::Database`] leads to. Points (a time in nanoseconds, an integer or a float of 64
//! bits) are appended to named series, become a few bytes each, and come back bit by bit;
//! aggregates over any span look at a handful of nodes. [`SeriesStore`] is the way in for the one
//! who owns them, [`SeriesLayer`] for transactions that write points beside keys, and for whoever
//! only looks.
//!
//! ## Data structure
//! ```text
//!   append --> open leaf, in memory ----- every few ms, all series in one commit ---> tail
//!                   |  full                                                            |  after a crash: open leaves again
//!                   v                                                                  v
//!   tree        node     summaries of 64 children (count, sum, first, last, min, max)
//!               leaves   0 1 2 ... 63 | 64 ...          twigs: summaries whose parent is not full yet
//!                   |
//!   leaf        header | times: what a predictor leaves, bit-packed | values: decimals or ordered bits, the same way
//!
//!   beside the tree: leaves of late points, masks of deleted spans, names and their index; the inbox, with what transactions wrote
//! ```
//!
//! ## Invariants
//! 1. Every value comes back with all of its bits: NaN payloads, infinities, -0.0, integers beyond
//!    2^53. Of a time the last point counts.
//! 2. A leaf or node with a wrong or missing byte is an error, never a wrong point, never a panic.
//! 3. Nodes never change once written; the times of a tree's leaves ascend.
//! 4. What `sync` covered is there after a crash, once; so is what a transaction committed, and
//!    nothing of one that did not. Only the owner's commits change a tree; there is one owner of a
//!    prefix, and nobody's commit says so but the database's: each has the owner's row among its
//!    read conflicts.
//!
//! ## Not here
//! Sockets: those are the server's. Several owners of one prefix: several servers take turns, by a
//! lease (`store/lease.rs`), and post points to whoever has it (`store/post.rs`); or own a part
//! each, which is a prefix of its own (`store/division.rs`). A series may be written by several
//! threads, which take its lock in turn.
//! Read next: `value.rs`, [`codec`] with `integers.rs` and `floats.rs`, [`tree`] with `read.rs`,
//! then `store/mod.rs`, `store/flush.rs` and `store/inbox.rs`, [`ingest`] for what comes in as
//! text, and `query/mod.rs` for what is asked. `docs/format/series.md` draws the bytes.
#![forbid(unsafe_code)]

#[cfg(feature = "arrow")]
pub mod arrow;
mod cell;
pub mod codec;
mod digits;
pub mod dump;
mod error;
pub mod event;
mod exemplar;
mod histogram;
mod increment;
pub mod ingest;
mod name;
#[cfg(feature = "parquet")]
pub mod parquet;
mod protobuf;
mod query;
mod record;
mod rollup;
mod store;
pub mod time;
pub mod tree;
mod value;
pub mod workload;

pub use error::{Error, Result};
pub use exemplar::Exemplar;
pub use name::{MAX_NAME_BYTES, MAX_TAGS, Name};
pub use plinth_promql::{
    CUSTOM as CUSTOM_BUCKETS, Histogram, Labels, Parts as HistogramParts, ResetHint,
    Span as HistogramSpan,
};
pub use query::{
    ARROW_CONTENT_TYPE, Answer, FUNCTION_NAMES, MAX_QUERY_BYTES, Query, QueryError, QueryLimits,
    QueryResult,
};
pub use query::{
    ChunkStream, Export, HeldText, LOOKUP, Remarks, RemoteRead, delete_series, form_pairs,
    is_opentsdb, is_prometheus, opentsdb, opentsdb_expressions, opentsdb_fixed, prometheus,
};
pub use rollup::{Keeping, Metrics, Rollup};
pub use store::{
    Appended, Beside, Candidate, Claim, Division, GroupStream, HistogramStream, Holder, Listing,
    Live, Look, MAX_PARTS, Members, Newcomers, Owner, PointStream, Progress, Retention, Series,
    SeriesLayer, SeriesLimits, SeriesStore, Settings, StoreStats, Told,
};
pub use tree::{Direction, Summary};
pub use value::{Column, Point, Points, Value};
