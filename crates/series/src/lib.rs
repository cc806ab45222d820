//! Time series: points as compressed leaves, and each series a tree of them that only grows.
//!
//! ## Role
//! Makes points (a time in nanoseconds, an integer or a float of 64 bits) into values of a few bytes a point that a key-value store
//! can keep, gives them back bit by bit, and answers aggregates over any span without reading what lies in it.
//!
//! ## Data structure
//! ```text
//!   Points      times   | t0 | t1 | t2 | ...        two columns, ascending by time
//!               values  | v0 | v1 | v2 | ...        floats, integers, or both
//!      |  codec::encode                ^ codec::decode
//!      v                               |
//!   leaf        header | times: what a predictor leaves, bit-packed | values: decimals or ordered bits, the same way
//!      |
//!   tree        node     summaries of 64 children (count, sum, first, last, min, max)
//!               leaves   0 1 2 ... 63 | 64 ...          twigs: summaries whose parent is not full yet
//! ```
//!
//! ## Invariants
//! 1. Every value comes back with all of its bits: NaN payloads, infinities, -0.0, integers beyond 2^53.
//! 2. A leaf or node with a wrong or missing byte is an error, never a wrong point, never a panic.
//! 3. Nodes never change once written; the times of a tree's leaves ascend.
//!
//! ## Not here
//! Where nodes are kept: whoever implements [`tree::Nodes`].
//! Read next: `value.rs`, [`codec`] with `integers.rs` and `floats.rs`, [`tree`] with `read.rs`; `docs/format/series.md` draws the bytes.
#![forbid(unsafe_code)]

pub mod codec;
mod error;
pub mod tree;
mod value;
pub mod workload;

pub use error::{Error, Result};
pub use value::{Column, Point, Points, Value};
