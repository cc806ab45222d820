//! Rollups: what is kept of points when the points themselves have gone, a bucket of time a row.
//!
//! ## Role
//! Points of a series become [`Bucket`]s of equal length, which add up to longer ones and answer
//! what is asked of whole buckets as the points would. Which metrics have rollups is said by rules
//! ([`Keeping`]); when they are made, and where they lie, is the store's affair (`store/roll.rs`).
//!
//! ## Data structure
//! ```text
//!   bucket of an hour:   begin                                                begin + 1 h
//!                          |<----------------------- rest ------------------------->|
//!                         at        count, sum, first, last, least, greatest,      at of the next one
//!                                   falls of a counter, marks of a series' end
//! ```
//! A point that is exactly at the beginning stands by itself. So buckets that have their beginning
//! (Akumuli's, OpenTSDB's) and those that have their end instead (Prometheus') are made of the same
//! parts, to the point.
//!
//! ## Invariants
//! 1. Buckets made of some points in one go, or of the same points in several and then added up,
//!    are the same but for how sums are rounded.
//! 2. Beginnings are multiples of the bucket's length, counted from 1970.
//! 3. Bytes that are no row are an error, never a wrong bucket, never a panic.
//! 4. What is read by the column is what the buckets have that the row was made of, whichever
//!    columns are read.
//!
//! Read next: `row.rs` for the bytes, `columns.rs` and `asked.rs` for how questions read them,
//! `rules.rs`.

mod asked;
mod columns;
mod digest;
mod row;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use asked::Joined;
pub(crate) use columns::{Columns, Needed, decode};
pub(crate) use digest::{Bucket, Maker, begin_of, end_of};
pub use plinth_types::Metrics;
pub(crate) use row::{MAX_BUCKETS, encode};
pub use rules::{Keeping, Rollup};
