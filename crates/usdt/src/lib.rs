//! Static tracepoints (USDT): places of a running program that bpftrace, perf and SystemTap can
//! listen at.
//!
//! ## Role
//! One function for each tracepoint of the provider `plinth`, so that names and arguments stand in
//! one place; `docs/monitoring.md` has them for those who listen. A function is called where the
//! thing happens, and its inlined body is all there is.
//!
//! ## Data structure
//! ```text
//!   code                     section .note.stapsdt
//!     ...                      provider  name               where    arguments
//!     nop  <──────────────────  plinth   transaction_start  address  registers and constants
//!     ...
//! ```
//! While nobody listens a tracepoint is an instruction that does nothing. A tracer writes a
//! breakpoint over it.
//!
//! ## Invariants
//! 1. A tracepoint computes nothing: its arguments are values that are there anyway.
//! 2. On systems without this format (it is that of ELF) the functions are empty.
//!
//! ## Not here
//! Measurements that are always taken: `pipeline`'s metrics. Marks for the simulation, which counts
//! how often rare paths are taken: `types::marks`. The crate stands apart because a tracepoint is
//! made of assembler, which no other crate needs.
//! Read next: `docs/monitoring.md`, then where each function is called.

use std::time::Duration;

/// A transaction was given its read version. Priority: 0 batch, 1 default, 2 immediate.
#[inline(always)]
pub fn transaction_start(version: i64, priority: u8) {
    probe::probe!(plinth, transaction_start, version, u64::from(priority));
}

/// The values of so many keys are read at a version.
#[inline(always)]
pub fn read(version: i64, keys: usize) {
    probe::probe!(plinth, read, version, keys);
}

/// A range is read at a version: at most so many rows.
#[inline(always)]
pub fn read_range(version: i64, limit: usize) {
    probe::probe!(plinth, read_range, version, limit);
}

/// A batch was committed: its version, its transactions, and how long the batch took from its
/// beginning.
#[inline(always)]
pub fn commit(version: i64, transactions: usize, took: Duration) {
    probe::probe!(plinth, commit, version, transactions, nanoseconds(took));
}

/// The log was synced, or that failed: how long it took, up to which record, and how many files.
#[inline(always)]
pub fn fsync(took: Duration, record: u64, files: usize) {
    probe::probe!(plinth, fsync, nanoseconds(took), record, files);
}

#[inline(always)]
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
