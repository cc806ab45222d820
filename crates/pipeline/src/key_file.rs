//! Keys from files.

use crate::events;
use crate::failure::{NodeError, NodeResult};
use plinth_env::Env;
use plinth_format::crypt::Key;
use std::path::Path;
use zeroize::Zeroizing;

/// The key in a file: 32 bytes, or 64 hexadecimal digits. That others than its owner may read the
/// file is told as an event.
///
/// # Errors
/// `Option` if it holds no key, or the program is built without encryption; those of files.
pub async fn read_key_file(env: &Env, path: &Path) -> NodeResult<Key> {
    let contents = Zeroizing::new(env.files().read(path).await?);
    if env.files().is_open_to_others(path).await? {
        events::key_open_to_others(path);
    }
    Key::of_file(&contents)
        .map_err(|bad| NodeError::Option(format!("{}: {bad}", path.display()).into()))
}
