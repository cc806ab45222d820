//! Looks through a directory that nobody has open, and brings out what can be read.

use crate::{CheckReport, Env, Result, SalvageReport};
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

/// Copies what can be read of the damaged database in `dir` into a new one in `out`.
///
/// # Errors
/// `lock_file_failure` if `dir` is open; `client_invalid_operation` if `out` holds anything; errors
/// of files.
pub async fn salvage(env: &Env, dir: &Path, out: &Path) -> Result<SalvageReport> {
    Ok(plinth_pipeline::salvage(env, dir, out).await?)
}
