//! FoundationDB's C library made safe: a table of its functions, and handles that own what it
//! gives.
//!
//! Nothing else in this crate has `unsafe`. What makes the calls sound: a handle is destroyed only
//! by its owner's drop, futures and transactions may be used from any thread (as the C API
//! promises), bytes handed in are copied by the library before a call returns, and bytes it gives
//! are copied by us before the future goes.

mod capture;
mod functions;
mod handles;
mod library;

pub(crate) use capture::Consumer;
pub(crate) use handles::{Cancel, Database, RangeAsk, Ready, Transaction};
pub(crate) use library::{Library, load};

/// FoundationDB's codes of the transaction options that the endpoint sets.
pub(crate) mod option {
    pub const CAUSAL_READ_RISKY: i32 = 20;
    pub const INCLUDE_PORT_IN_ADDRESS: i32 = 23;
    pub const NEXT_WRITE_NO_WRITE_CONFLICT_RANGE: i32 = 30;
    pub const READ_YOUR_WRITES_DISABLE: i32 = 51;
    pub const PRIORITY_SYSTEM_IMMEDIATE: i32 = 200;
    pub const PRIORITY_BATCH: i32 = 201;
    pub const ACCESS_SYSTEM_KEYS: i32 = 301;
    pub const READ_SYSTEM_KEYS: i32 = 302;
    pub const IDEMPOTENCY_ID: i32 = 504;
    pub const LOCK_AWARE: i32 = 700;
    pub const REPORT_CONFLICTING_KEYS: i32 = 712;
    pub const AUTO_THROTTLE_TAG: i32 = 801;
    /// Of the database, not of a transaction.
    pub const MAX_WATCHES: i32 = 20;
}
