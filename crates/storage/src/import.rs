//! Import: chunks become an engine's files, as fast as the disk takes them, without a log and
//! without a window.
//!
//! ```text
//!   chunks, in key order ──▶ `ssd`:     tables of the deepest level ──▶ MANIFEST      } the last step makes
//!                        ──▶ `memory`:  new-checkpoint-… ──▶ checkpoint-….data        } them a state
//! ```
//!
//! The directory is one that nobody opens yet: that of a generation that is being made. Until the
//! end it holds no state that could be opened, so a crash leaves none that is half there.

use crate::chunk::Chunk;
use crate::failure::StorageResult;
use plinth_types::{Bytes, LogPosition};
use std::pin::Pin;

/// What [`Import::take`] gives, which looks at the chunk until it is taken.
pub type Taking<'c> = Pin<Box<dyn Future<Output = StorageResult<()>> + Send + 'c>>;

/// Takes the chunks of one place in the log into files of a new engine.
pub trait Import: Send {
    /// Takes the next chunk. Chunks come in key order; keys that none of them speaks of don't exist
    /// afterwards.
    ///
    /// # Errors
    /// `OutOfPlace` for a chunk of another place in the log, or one that is not
    /// behind those before; those of writing files, after which the import can only be given up.
    fn take<'c>(&'c mut self, chunk: &'c Chunk) -> Taking<'c>;

    /// The first key behind the chunks that were taken.
    fn reached(&self) -> &Bytes;

    /// Makes what was taken the engine's state, durably, in one step. Gives what it has everything
    /// of.
    ///
    /// # Errors
    /// Those of writing files; then there is no state.
    fn finish(self: Box<Self>) -> Pin<Box<dyn Future<Output = StorageResult<LogPosition>> + Send>>;
}
