//! No panic leaves the library: C has no way to take one.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what an exported function does; a panic becomes `panicked`.
pub(crate) fn guard<R>(panicked: R, f: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(panicked)
}
