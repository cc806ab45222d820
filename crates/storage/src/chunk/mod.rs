//! Chunks: the rows of a range at one version, in pieces that travel and are kept on their own.
//!
//! ```text
//!   range     begin ──────────────────────────────────────────────▶ end
//!   chunks    | begin..k1, rows | k1..k2, rows | ... | kn..end, rows |    each at the same log position
//!                                ▲ an export goes on from here, whoever asks
//! ```
//!
//! A chunk says which keys it speaks of: what it has no row for, within its bounds, doesn't exist.
//! So whoever takes chunks can tell whether one is missing between two, and a cut in the middle is
//! no shorter range. It has an encoding of its own with checksums ([`Chunk::encode`]), which nodes
//! send and backups keep.
//!
//! Always: keys ascend and lie within the bounds; the encoding is at most [`MAX_CHUNK_LEN`] long.

mod format;

pub use format::{FORMAT, HEADER_LEN};

use crate::failure::{StorageError, StorageResult};
use plinth_types::{
    Bytes, KeySelector, LogPosition, RangeRead, RangeResult, Rows, key_after, printable,
};

/// The longest encoding of a chunk.
pub const MAX_CHUNK_LEN: usize = HEADER_LEN + format::MAX_BODY_LEN;

/// The most bytes of rows that an export takes into a chunk, whatever is asked for, but for the row
/// that goes beyond.
pub const MOST_CHUNK_BYTES: usize = 16 << 20;

/// All rows between two keys, as they were at one place in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// What the rows are everything of.
    pub at: LogPosition,
    /// The first key that it speaks of.
    pub begin: Bytes,
    /// The first key behind it that it doesn't speak of: an export goes on there.
    pub end: Bytes,
    /// The rows.
    pub rows: Rows,
}

impl Chunk {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        format::encode(self, &mut out);
        out
    }

    /// The chunk that these bytes are, all of them.
    ///
    /// # Errors
    /// `Corrupt`, saying what was expected and found, for anything that no export has made;
    /// `NewerFormat` for a newer format.
    pub fn decode(bytes: &[u8]) -> StorageResult<Self> {
        format::decode(bytes)
    }

    /// How long the chunk is that begins with these [`HEADER_LEN`] bytes.
    ///
    /// # Errors
    /// As [`Chunk::decode`].
    pub fn encoded_len(header: &[u8]) -> StorageResult<usize> {
        format::length(header)
    }

    /// What a range read has given, as a chunk.
    pub(crate) fn of(at: LogPosition, range: (&[u8], &[u8]), result: RangeResult) -> Self {
        let (begin, end) = range;
        let last = result.rows.last().filter(|_| result.more);
        assert!(last.is_none_or(|(key, _)| begin <= key && key < end), "rows of another range");
        let end = last.map_or_else(|| Bytes::copy_from_slice(end), |(key, _)| key_after(key));
        Self { at, begin: Bytes::copy_from_slice(begin), end, rows: result.rows }
    }
}

/// The read that makes a chunk of about so many bytes.
pub(crate) fn read_for(begin: &[u8], end: &[u8], target_bytes: usize) -> RangeRead {
    RangeRead {
        begin: KeySelector::first_greater_or_equal(Bytes::copy_from_slice(begin)),
        end: KeySelector::first_greater_or_equal(Bytes::copy_from_slice(end)),
        limit: usize::MAX,
        target_bytes: target_bytes.clamp(1, MOST_CHUNK_BYTES),
        reverse: false,
    }
}

/// Up to where chunks have been taken, one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    at: LogPosition,
    reached: Bytes,
}

impl Sequence {
    /// Of chunks of one place in the log, from the first key on.
    pub fn new(at: LogPosition) -> Self {
        Self { at, reached: Bytes::new() }
    }

    /// The key behind the last chunk.
    pub fn reached(&self) -> &Bytes {
        &self.reached
    }

    /// # Errors
    /// `OutOfPlace` if this is not the next one, or of another place in the log.
    pub fn check(&self, chunk: &Chunk) -> StorageResult<()> {
        let refuse = |what: String| Err(StorageError::OutOfPlace(what.into()));
        if chunk.at != self.at {
            return refuse(format!("a chunk of {} among those of {}", chunk.at, self.at));
        }
        // What lies between two ranges that were exported is empty in the new state.
        if chunk.begin < self.reached {
            let (begin, reached) = (printable(&chunk.begin), printable(&self.reached));
            return refuse(format!("a chunk that begins at {begin}, behind one up to {reached}"));
        }
        Ok(())
    }

    /// A chunk has been taken.
    pub fn advance(&mut self, chunk: &Chunk) {
        self.reached = chunk.end.clone();
    }
}
