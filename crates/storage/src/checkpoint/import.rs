//! A checkpoint made of chunks.

use super::write::{Pace, Writing, unfinished_path};
use crate::chunk::{Chunk, Sequence};
use crate::failure::StorageResult;
use crate::import::{Import, Taking};
use plinth_env::{Env, Open};
use plinth_format::Owner;
use plinth_types::{Bytes, LogPosition};
use std::path::Path;
use std::pin::Pin;

/// Bytes after which the file is synced: nobody's commits wait for this disk yet.
const SYNC_EVERY: u64 = 8 << 20;

struct CheckpointImport {
    writing: Writing,
    sequence: Sequence,
    dir: std::path::PathBuf,
}

/// Begins a checkpoint of what chunks of this place in the log will bring, in a directory that
/// exists and has none.
///
/// # Errors
/// Those of writing files.
pub async fn import(
    env: &Env,
    dir: &Path,
    owner: impl Into<Owner>,
    at: LogPosition,
) -> StorageResult<Box<dyn Import>> {
    let file = env.files().open(unfinished_path(dir, at), Open::Truncate).await?;
    let pace = Pace { bytes_per_second: None, sync_every: SYNC_EVERY };
    let writing = Writing::begin(env, file, (&owner.into(), at), pace);
    Ok(Box::new(CheckpointImport { writing, sequence: Sequence::new(at), dir: dir.to_path_buf() }))
}

impl Import for CheckpointImport {
    fn take<'c>(&'c mut self, chunk: &'c Chunk) -> Taking<'c> {
        Box::pin(async move {
            self.sequence.check(chunk)?;
            for (key, value) in chunk.rows.iter() {
                self.writing.push(key, value);
                self.writing.flush_if_full().await?;
            }
            self.sequence.advance(chunk);
            Ok(())
        })
    }

    fn reached(&self) -> &Bytes {
        self.sequence.reached()
    }

    fn finish(
        mut self: Box<Self>,
    ) -> Pin<Box<dyn Future<Output = StorageResult<LogPosition>> + Send>> {
        Box::pin(async move {
            self.writing.end().await?;
            self.writing.put_in_place(&self.dir).await?;
            Ok(self.writing.at())
        })
    }
}
