//! Targets by the URLs that people write.

use super::{Directory, Target};
use plinth_env::Env;
use plinth_types::{Error, Result};
use std::sync::Arc;

/// The target that a URL names: `file:///path`, or a path.
///
/// # Errors
/// `backup_invalid_url` for a URL of another kind.
pub fn named(env: &Env, url: &str) -> Result<Arc<dyn Target>> {
    let refuse = |what: String| Err(Error::backup_invalid_url().with_detail(what));
    if url.is_empty() {
        return refuse("an empty URL".into());
    }
    match url.split_once("://") {
        None => Ok(Arc::new(Directory::new(env, url))),
        Some(("file", path)) if path.starts_with('/') => Ok(Arc::new(Directory::new(env, path))),
        Some(("file", path)) => {
            refuse(format!("file://{path}: a path begins with a slash: file:///backups/shop"))
        }
        Some((scheme, _)) => refuse(format!("{scheme}:// is not supported; write file:///path or a path")),
    }
}
