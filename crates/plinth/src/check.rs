//! Looks through a directory that nobody has open, and brings out what can be read.

use crate::{CheckReport, Env, Key, Keys, Result, SalvageReport};
use std::path::Path;

/// Verifies every checksum in the database in `dir`, and that it would open with every row. Nothing
/// is changed there, and nobody may have it open meanwhile.
///
/// # Errors
/// `lock_file_failure` if it is open; `file_not_found` if there is no database; errors of files.
/// Damage is not an error here: it stands in the report.
pub async fn check(env: &Env, dir: &Path) -> Result<CheckReport> {
    Ok(plinth_pipeline::check(env, dir).await?)
}

/// [`check`] of a database that is encrypted. Without its keys checksums are compared, and nothing
/// else.
///
/// # Errors
/// As those of [`check`].
pub async fn check_with(env: &Env, dir: &Path, keys: &Keys) -> Result<CheckReport> {
    Ok(plinth_pipeline::check_with(env, dir, keys).await?)
}

/// Copies what can be read of the damaged database in `dir` into a new one in `out`.
///
/// # Errors
/// `lock_file_failure` if `dir` is open; `client_invalid_operation` if `out` holds anything; errors
/// of files.
pub async fn salvage(env: &Env, dir: &Path, out: &Path) -> Result<SalvageReport> {
    Ok(plinth_pipeline::salvage(env, dir, out).await?)
}

/// [`salvage`] of a database that is encrypted, into one that is, by the newest of these keys.
///
/// # Errors
/// As those of [`salvage`]; `encrypt_key_not_found` if a key is lacking.
pub async fn salvage_with(env: &Env, dir: &Path, out: &Path, keys: &Keys) -> Result<SalvageReport> {
    Ok(plinth_pipeline::salvage_with(env, dir, out, keys).await?)
}

/// Whether the database in `dir` is encrypted; `None` if there is none.
///
/// # Errors
/// Those of files.
pub async fn is_encrypted(env: &Env, dir: &Path) -> Result<Option<bool>> {
    Ok(plinth_pipeline::is_encrypted(env, dir).await?)
}

/// The key in a file: 32 bytes, or 64 hexadecimal digits.
///
/// # Errors
/// `invalid_option_value` if it holds no key, or the program is built without encryption; those of
/// files.
pub async fn read_key_file(env: &Env, path: &Path) -> Result<Key> {
    Ok(plinth_pipeline::read_key_file(env, path).await?)
}
