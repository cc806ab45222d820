//! A database behind FoundationDB's C library, as an endpoint of Plinth's client.
//!
//! ## Role
//! Loads a `libfdb_c` at run time, Apple's or ours, and makes of each request of the client's one
//! or two of its calls. So whatever runs on Plinth, layers and migration included, runs on
//! FoundationDB, without linking to it.
//!
//! ## Data structure
//! ```text
//!   plinth_client::Transaction
//!        │ Endpoint: read version, reads at a version, one request to commit
//!        ▼
//!   Foundation ──▶ a fresh FDBTransaction for each request      native/  the one module with `unsafe`:
//!        │           set_read_version, options, calls            functions.rs  the table of symbols
//!        ▼                                                       library.rs    loading, the network thread
//!   FDBFuture ── callback ──▶ decode ──▶ Promise ──▶ Reply       handles.rs    owned handles, futures
//! ```
//!
//! ## Invariants
//! 1. Reads add no conflict ranges and see no writes but the database's: the client above has done
//!    both already.
//! 2. A commit carries exactly the conflict ranges of the request: each mutation's own is turned
//!    off.
//! 3. Every future is destroyed once, and no transaction before the futures that it gave.
//! 4. A library is loaded once in a process, its network runs until the process ends, and it is
//!    never unloaded.
//!
//! ## Not here
//! Transactions, retries, layers: `client` and the facade. What the C library promises:
//! FoundationDB's C API.
//! Read next: `target.rs`, `endpoint.rs`, `commit.rs`, `capture.rs`, then `native/mod.rs`.
#![deny(unsafe_code)]

mod capture;
mod commit;
mod endpoint;
#[expect(unsafe_code, reason = "the one module that calls into C")]
mod native;
mod target;
mod watch;

pub use endpoint::Foundation;
pub use target::Target;

/// Opens a database of Apple's FoundationDB through its C library, which is loaded now. Whatever
/// runs on Plinth runs on it.
///
/// ```no_run
/// let db = plinth_fdb::open(&"fdb:/etc/foundationdb/fdb.cluster".parse()?)?;
/// # Ok::<(), plinth_types::Error>(())
/// ```
///
/// # Errors
/// As [`Foundation::open`].
pub fn open(target: &Target) -> plinth_types::Result<plinth_client::Database> {
    let foundation = Foundation::open(target)?;
    Ok(plinth_client::Database::new(std::sync::Arc::new(foundation)))
}
