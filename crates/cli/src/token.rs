//! The token that commands show to a server, from the file that `PLINTH_TOKEN_FILE` names.
//!
//! It is read when a command opens the database: one that runs for longer than the token lasts is
//! refused from then on, so agents are better given a certificate.

use plinth::{Database, Error};
use plinth_env::{Env, block_on};
use std::path::Path;

/// The variable that names the file.
pub const VARIABLE: &str = "PLINTH_TOKEN_FILE";
/// More than any token has that a server takes.
const MOST: usize = 4096;

/// The same database, with everything asked with that token, if the environment names one.
///
/// # Errors
/// `io_error` or `file_not_found` if the file can't be read, `invalid_option_value` if what is in
/// it is no token.
pub fn of_environment(database: Database) -> Result<Database, Error> {
    match std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) {
        Some(file) => Ok(database.showing(read(Path::new(&file))?.as_bytes())),
        None => Ok(database),
    }
}

/// Whether an error is one of that file.
pub fn is_of_it(error: &Error) -> bool {
    error.detail().is_some_and(|detail| detail.starts_with(VARIABLE))
}

fn read(file: &Path) -> Result<String, Error> {
    let told = |error: Error, why: &dyn std::fmt::Display| {
        error.with_detail(format!("{VARIABLE} names {}: {why}", file.display()))
    };
    let bytes = block_on(Env::real().files().read_at_most(file, 2 * MOST)).map_err(|error| {
        let error = Error::from(error);
        let why = error.detail().unwrap_or_default().to_owned();
        told(error, &why)
    })?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
    let is_one =
        (1..=MOST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_one {
        let why = format!("it has no token, a line of up to {MOST} letters");
        return Err(told(Error::invalid_option_value(), &why));
    }
    Ok(text.to_owned())
}
