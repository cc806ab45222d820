//! Time series: points as compressed leaves.
//!
//! ## Role
//! Makes points (a time in nanoseconds, an integer or a float of 64 bits) into values of a few bytes a point that a key-value store
//! can keep, and gives them back bit by bit.
//!
//! ## Data structure
//! ```text
//!   Points      times   | t0 | t1 | t2 | ...        two columns, ascending by time
//!               values  | v0 | v1 | v2 | ...        floats, integers, or both
//!      |  codec::encode                ^ codec::decode
//!      v                               |
//!   leaf        header | times: what a predictor leaves, bit-packed | values: decimals or ordered bits, the same way
//! ```
//!
//! ## Invariants
//! 1. Every value comes back with all of its bits: NaN payloads, infinities, -0.0, integers beyond 2^53.
//! 2. A leaf with a wrong or missing byte is an error, never a wrong point, never a panic.
//!
//! ## Not here
//! Where leaves lie, and who writes them.
//! Read next: `value.rs`, [`codec`] with `integers.rs` and `floats.rs`, [`workload`]; `docs/format/series.md` draws the bytes.
#![forbid(unsafe_code)]

pub mod codec;
mod error;
mod value;
pub mod workload;

pub use error::{Error, Result};
pub use value::{Column, Point, Points, Value};
