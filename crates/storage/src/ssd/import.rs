//! Tables made of chunks: one run of the deepest level, as if everything had been merged.

use super::clears::Clears;
use super::manifest::Manifest;
use super::state::{DEEPEST, Placed, State};
use super::writer::{Making, RunWriter};
use crate::chunk::{Chunk, Sequence};
use crate::failure::StorageResult;
use crate::import::{Import, Taking};
use plinth_types::{Bytes, LogPosition};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An engine's tables, taken in.
pub(super) struct SsdImport {
    making: Arc<Making>,
    writer: RunWriter,
    sequence: Sequence,
    at: LogPosition,
}

impl SsdImport {
    /// Into an empty directory.
    pub fn new(making: Arc<Making>, at: LogPosition) -> Self {
        let writer = RunWriter::new(&making, at.version, DEEPEST, Clears::new());
        Self { making, writer, sequence: Sequence::new(at), at }
    }
}

impl Import for SsdImport {
    fn take<'c>(&'c mut self, chunk: &'c Chunk) -> Taking<'c> {
        Box::pin(async move {
            self.sequence.check(chunk)?;
            for (key, value) in chunk.rows.iter() {
                if !self.writer.has_room() {
                    self.writer.make_room(key).await?;
                    self.making.env.yield_now().await;
                }
                self.writer.push(key, Some(value));
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
            let tables = self.writer.finish().await?;
            let (env, dir) = (&self.making.env, &self.making.dir);
            env.files().sync_dir(dir).await?;
            let placed = tables.into_iter().map(|table| Placed { level: DEEPEST, flush: 0, table });
            let state = State::of(self.at, 1, 1, placed.collect());
            let next_id = self.making.next_id.load(Ordering::Relaxed);
            Manifest::of(&state, self.making.owner.identity, next_id).write(env, dir).await?;
            Ok(self.at)
        })
    }
}
