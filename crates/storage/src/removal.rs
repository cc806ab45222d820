//! Removing large files without holding up anybody's sync.
//!
//! A file system frees the blocks of a removed file in one step of its journal, and every sync of every file waits for that
//! step: removing a checkpoint of 68 MB at once stopped commits for 15 to 40 ms (ext4). Cut off a few megabytes at a time,
//! it does not.

use plinth_env::{Env, Open};
use plinth_types::Result;
use std::path::Path;
use std::time::Duration;

/// Bytes that are cut off at once.
const STEP: u64 = 4 << 20;

/// Between two cuts, so that syncs that wait get their turn.
const PAUSE: Duration = Duration::from_millis(5);

/// Removes a file from its end to its beginning; gives how long it was. Whoever might read the file after a crash must know by
/// its name, durably, that it is being removed.
///
/// # Errors
/// Those of opening, cutting and removing files; what is left of the file can be removed again.
pub(crate) async fn remove_large_file(env: &Env, path: &Path) -> Result<u64> {
    let file = env.files().open(path, Open::Write).await?;
    let bytes = file.len().await?;
    let mut left = bytes;
    while left > STEP {
        left -= STEP;
        file.set_len(left).await?;
        env.sleep(PAUSE).await;
    }
    drop(file);
    env.files().remove(path).await?;
    Ok(bytes)
}
