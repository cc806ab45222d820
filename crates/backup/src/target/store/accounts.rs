//! Credentials in files, as FoundationDB has them: `--blob-credentials FILE`, or the files that
//! `FDB_BLOB_CREDENTIALS` names.
//!
//! ```text
//!   { "accounts": { "key@host": { "secret": "..", "token": ".." },  "@host": { "api_key": "..", "secret": ".." } } }
//! ```

use plinth_env::Env;
use plinth_types::{Error, Result};
use std::path::PathBuf;

/// The variable that names files, separated by colons.
const VARIABLE: &str = "FDB_BLOB_CREDENTIALS";

/// By whom a store is asked.
#[derive(Clone, Default)]
pub(super) struct Account {
    pub key: String,
    pub secret: String,
    pub token: String,
}

/// The account of this key, or of any if it is empty, at a host, out of the files given and those
/// of the environment.
///
/// # Errors
/// `backup_invalid_url` if there is none, or a file can't be read; never with what is in them.
pub(super) async fn find(env: &Env, files: &[PathBuf], key: &str, host: &str) -> Result<Account> {
    let wrong = |what: String| Error::backup_invalid_url().with_detail(what);
    let named = std::env::var_os(VARIABLE).unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|file| !file.as_os_str().is_empty());
    let bare = host.split(':').next().unwrap_or(host);
    for file in files.iter().cloned().chain(named) {
        let shown = file.display();
        let contents =
            env.files().read(&file).await.map_err(|error| wrong(format!("{shown}: {error}")))?;
        let parsed: serde_json::Value =
            serde_json::from_slice(&contents).map_err(|_| wrong(format!("{shown} is no JSON")))?;
        for host in [host, bare] {
            let found = &parsed["accounts"][format!("{key}@{host}")];
            if !found.is_object() {
                continue;
            }
            let field = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
            let own = if key.is_empty() { field("api_key") } else { key.to_owned() };
            return Ok(Account { key: own, secret: field("secret"), token: field("token") });
        }
    }
    Err(wrong(format!(
        "no file of credentials has an account {key}@{host}; name one by --blob-credentials or {VARIABLE}"
    )))
}
