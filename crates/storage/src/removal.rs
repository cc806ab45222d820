//! Removing large files without holding up anybody's sync.
//!
//! A file system frees the blocks of a removed file in one step, and where it is mounted with
//! `discard` tells the disk so in one request, for which every sync of every file waits: removing a
//! checkpoint of 68 MB at once stopped commits for 15 to 40 ms (ext4). A disk was seen to take 1 to
//! 5 ms for each 4 MiB, a third of a millisecond for one.

use crate::failure::StorageResult;
use plinth_env::{Env, Open};
use std::path::Path;
use std::time::Duration;

/// Bytes that are cut off at once.
const STEP: u64 = 1 << 20;

/// Between two cuts, so that syncs that wait get their turn.
const PAUSE: Duration = Duration::from_millis(5);

/// What has been removed.
#[derive(Clone, Copy, Default, Debug)]
pub struct Removed {
    /// Bytes that were freed.
    pub bytes: u64,
    /// The longest that the disk was kept busy in one go.
    pub longest_step: Duration,
}

impl Removed {
    fn step(&mut self, took: Duration) {
        self.longest_step = self.longest_step.max(took);
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            longest_step: self.longest_step.max(other.longest_step),
        }
    }
}

/// Removes a file from its end to its beginning. Whoever might read the file after a crash must
/// know by its name, durably, that it is being removed.
///
/// # Errors
/// Those of opening, cutting and removing files; what is left of the file can be removed again.
pub(crate) async fn remove_large_file(env: &Env, path: &Path) -> StorageResult<Removed> {
    let file = env.files().open(path, Open::Write).await?;
    let bytes = file.len().await?;
    let mut removed = Removed { bytes, ..Removed::default() };
    let mut left = bytes;
    while left > STEP {
        left -= STEP;
        let begun = env.now();
        file.set_len(left).await?;
        removed.step(env.now().saturating_sub(begun));
        env.sleep(PAUSE).await;
    }
    drop(file);
    let begun = env.now();
    env.files().remove(path).await?;
    removed.step(env.now().saturating_sub(begun));
    Ok(removed)
}
