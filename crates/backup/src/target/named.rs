//! Targets by the URLs that people write.

use super::{Directory, Target};
use plinth_env::Env;
use plinth_types::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// The URLs that there are, for people.
#[cfg(feature = "object-store")]
const KINDS: &str = "file:///path or a path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or \
                     blobstore://key@host/name?bucket=B";
#[cfg(not(feature = "object-store"))]
const KINDS: &str = "file:///path or a path";

/// The target that a URL names: `file:///path`, or a path; with the feature `object-store` also
/// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, and FoundationDB's
/// `blobstore://key:secret@host:port/name?bucket=B`. Of those, `credentials` are files as
/// FoundationDB's `--blob-credentials` names them, besides those of the environment.
///
/// # Errors
/// `backup_invalid_url` for a URL of another kind, or without credentials where some are wanted.
/// Secrets are in no error.
pub async fn named(env: &Env, url: &str, credentials: &[PathBuf]) -> Result<Arc<dyn Target>> {
    let refuse = |what: String| Err(Error::backup_invalid_url().with_detail(what));
    if url.is_empty() {
        return refuse("an empty URL".into());
    }
    #[cfg(not(feature = "object-store"))]
    let _ = credentials;
    match url.split_once("://") {
        None => Ok(Arc::new(Directory::new(env, url))),
        Some(("file", path)) if path.starts_with('/') => Ok(Arc::new(Directory::new(env, path))),
        Some(("file", path)) => {
            refuse(format!("file://{path}: a path begins with a slash: file:///backups/shop"))
        }
        #[cfg(feature = "object-store")]
        Some((scheme, rest)) if super::store::is_store(scheme) => {
            super::store::named(env, scheme, rest, credentials).await
        }
        Some((scheme, _)) => refuse(format!("{scheme}:// is not supported; write {KINDS}")),
    }
}
