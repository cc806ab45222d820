//! Plinth: an ordered, transactional key-value database with FoundationDB's API, in your own process.
//!
//! ## Role
//! What a Rust application depends on: the database to open, and the layers that every FoundationDB binding has.
//!
//! ## Data structure
//! Keys and values are bytes, sorted by key. The layers give the bytes a meaning:
//!
//! ```text
//!   directory    "app" / "users"         path -> a short prefix, chosen by the database
//!                     |
//!   subspace       \x15\x07              prefix | tuples
//!                     |
//!   tuple          ("ada", 1815)         \x02ada\x00\x16\x07\x17     sorts as the tuple does
//! ```
//!
//! ## Invariants
//! 1. The layers use the public API alone, and what they write is what FoundationDB's own bindings write.
//! 2. No input makes a layer panic: bytes that mean nothing are an [`Error`].
//!
//! ## Not here
//! Transactions (`client`), the commit pipeline (`pipeline`), words and error numbers (`types`).
//! Read next: [`tuple`], [`subspace`].
#![forbid(unsafe_code)]

pub mod subspace;
pub mod tuple;

pub use plinth_types::{Bytes, Error, KeyRange, Result, Versionstamp};
pub use subspace::Subspace;
