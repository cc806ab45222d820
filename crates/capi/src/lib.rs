//! `libfdb_c.so`: FoundationDB's C library with Plinth behind it, so that its bindings and layers
//! run unchanged.
//!
//! ## Role
//! Exports the functions of FoundationDB's C API (versions up to 800) and makes of each call one of
//! the client's. Where the database lives is in the cluster file argument: a directory or
//! `:memory:` runs the store in this process.
//!
//! ## Data structure
//! ```text
//!   C program / Python / Java / Go ...
//!        │ fdb_transaction_get(tr, ...)          ▲ callback, on the thread in fdb_run_network
//!        ▼                                       │
//!   exports/  ──▶ argument: bytes, handles     network: queue of callbacks that are due
//!        │                                       ▲
//!        ▼                                       │
//!   future: cell ◀── answer, on any thread ── client ── endpoint: store in this process
//!        ▲                                               (target: which one)
//!        └── value: what C reads: keys, rows, arrays of them
//! ```
//!
//! ## Invariants
//! 1. Memory that C reads belongs to a future, and stays until that is released or destroyed.
//! 2. Each callback runs once: in the call that sets it if the future is ready, else on a network
//!    thread.
//! 3. No lock is held while the program's code runs.
//! 4. No panic and no error of the program's passes into C but as a number; `words` has what stood
//!    behind the last one.
//!
//! ## Not here
//! What transactions do: `client`. The store: `pipeline`. What differs from FoundationDB:
//! `docs/compatibility.md`.
//! Read next: `target.rs`, `future.rs`, `network.rs`, then `exports/transaction.rs`.

mod absent;
mod argument;
mod consumer;
mod exports;
mod fork;
mod future;
mod guard;
#[cfg(test)]
mod headers;
mod layout;
mod network;
mod network_options;
mod status;
mod store_options;
mod target;
mod value;
mod version;
mod words;
mod world;
