//! The API version that the program selected: once, for the whole process.
//!
//! A program says two: the one whose behaviour it wants (*runtime*), and the one whose header it
//! was compiled with. Functions changed their C signatures long before the oldest header accepted
//! here, so the header's version is only checked.

use plinth_types::{Error, Result};
use std::sync::atomic::{AtomicI32, Ordering};

/// The newest API version that is accepted.
pub(crate) const NEWEST: i32 = 800;
/// The oldest behaviour that may be asked for.
const OLDEST: i32 = 13;
/// The oldest header: before it, functions of the same names took other arguments.
const OLDEST_HEADER: i32 = 23;

static SELECTED: AtomicI32 = AtomicI32::new(0);

/// Selects, or says why not, in FoundationDB's order of reasons.
pub(crate) fn select(runtime: i32, header: i32) -> Result<()> {
    if SELECTED.load(Ordering::Acquire) != 0 {
        return Err(Error::api_version_already_set());
    }
    if runtime > header {
        return Err(Error::api_version_invalid());
    }
    if header > NEWEST || runtime < OLDEST || header < OLDEST_HEADER {
        return Err(Error::api_version_not_supported());
    }
    let selected = SELECTED.compare_exchange(0, runtime, Ordering::AcqRel, Ordering::Acquire);
    selected.map(drop).map_err(|_| Error::api_version_already_set())
}

/// The version selected.
///
/// # Errors
/// `api_version_unset`.
pub(crate) fn selected() -> Result<i32> {
    match SELECTED.load(Ordering::Acquire) {
        0 => Err(Error::api_version_unset()),
        version => Ok(version),
    }
}
