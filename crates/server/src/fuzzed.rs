//! What of this crate takes bytes from outside and needs no server for it: for the fuzzer
//! (`crates/fuzz`), whose targets these are parts of.
//!
//! A server in simulation takes each of them as well, and a thousand times slower. Whoever serves a
//! database has no use for it.
//!
//! Always: each of these is what the doors themselves call, with nothing done beforehand.

use plinth_types::Result;

/// Whether a token is believed by the keys of a file with this text, at a time in seconds since
/// 1970, and whether what it says is what these conditions want (`CLAIM=VALUE,...`).
///
/// # Errors
/// `invalid_option_value` if the text is no set of keys, `permission_denied` if the token isn't
/// believed; both say why.
pub fn token_fulfils(keys: &[u8], token: &[u8], conditions: &str, now: u64) -> Result<bool> {
    crate::rights::token_fulfils(keys, token, conditions, now)
}

/// The bytes of a body that is compressed by gzip, if all bodies together may hold so many.
///
/// # Errors
/// The status of the answer, and why it wasn't taken.
#[cfg(feature = "series")]
pub fn expanded(body: &[u8], most: usize) -> std::result::Result<Vec<u8>, (u16, String)> {
    crate::series::expanded(body, most)
}
