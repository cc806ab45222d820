//! Points, and the mark that is none.

/// The value that says that a series has ended: Prometheus writes it when what it measured is gone.
pub const STALE: u64 = 0x7ff0_0000_0000_0002;

/// A point: nanoseconds since 1970, and the value, which may be [`STALE`].
pub type Sample = (i64, f64);
