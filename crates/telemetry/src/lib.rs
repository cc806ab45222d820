//! What a program tells of its work as it goes on.
//!
//! ## Role
//! Crates tell events and spans by `tracing`, and know nobody who listens. Here is who listens in
//! the program `plinth`: a line on standard error for each event that is wished for, and, with the
//! feature `otel`, OpenTelemetry's export to a collector.
//!
//! ```text
//!   tracing ──▶ subscriber ──┬──▶ wish: is it told? ──▶ line: as text or JSON, to standard error
//!                            └──▶ otel: two bounded lists ──▶ a task that posts them once a second
//! ```
//!
//! ## Data structures
//! Two lists of records that wait to be sent, and the spans that are open, each with a bound.
//!
//! ## Invariants
//! 1. Telling never waits: what a collector doesn't take in time is dropped and counted.
//! 2. An event is whole in its line; no spans are kept for lines.
//!
//! ## Not here
//! What is told, and at which level: the `events` modules of the crates that tell it. Metrics:
//! `server`'s `/metrics`.
//!
//! Read next: `subscriber.rs`, then `line.rs`.
#![deny(unsafe_code)]

mod line;
#[cfg(feature = "otel")]
mod otel;
mod subscriber;
mod wish;

pub use subscriber::{Listening, begin, begin_as_asked};
pub use wish::{ALLOWED, makes_sense};
