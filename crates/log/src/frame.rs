//! Putting records together, byte for byte as they will stand in the file.

use std::sync::Arc;

use plinth_types::Version;

use crate::format::{ALIGNMENT, Kind, RECORD_HEADER_LEN, RecordHeader, State, body_checksum};
use crate::link::Link;

/// What the operating system reads and writes at once.
pub(crate) const BLOCK: u64 = 4096;

/// Where a write of `start..end` is filled up to with zeros: the end of its last block if it is the
/// first write into that block, so that the block is written whole.
pub(crate) fn padded_end(start: u64, end: u64) -> u64 {
    debug_assert!(0 < start && start < end);
    let enters_a_block = (end - 1) / BLOCK != (start - 1) / BLOCK;
    if enters_a_block { end.next_multiple_of(BLOCK) } else { end }
}

/// Records being put together, one after the other.
pub(crate) struct Frame<'a> {
    buffer: &'a mut Vec<u8>,
    seed: u32,
    epoch: u64,
    durable: &'a Link,
    link: Link,
}

impl<'a> Frame<'a> {
    /// Records that follow `link`, in a buffer that is emptied. `durable` is how far the log is durable.
    pub(crate) fn new(buffer: &'a mut Vec<u8>, seed: u32, epoch: u64, durable: &'a Link, link: Link) -> Self {
        buffer.clear();
        Self { buffer, seed, epoch, durable, link }
    }

    /// Appends a state record.
    pub(crate) fn put_state(&mut self, state: Arc<State>) {
        let mut body = Vec::new();
        state.encode(&mut body);
        self.link.state = state;
        self.put(Kind::State, self.link.version, &[&body]);
    }

    /// Appends an entry.
    pub(crate) fn put_entry(&mut self, version: Version, parts: &[&[u8]]) {
        self.put(Kind::Entry, version, parts);
    }

    fn put(&mut self, kind: Kind, version: Version, parts: &[&[u8]]) {
        let body_len: usize = parts.iter().map(|part| part.len()).sum();
        let unsure = self.link.sequence - self.durable.sequence;
        let mut header = RecordHeader {
            checksum: 0,
            body_checksum: body_checksum(self.seed, parts),
            body_len: u32::try_from(body_len).expect("checked against MAX_BODY_LEN"),
            previous: self.link.checksum,
            epoch: self.epoch,
            sequence: self.link.sequence + 1,
            index: self.link.index + u64::from(kind == Kind::Entry),
            version,
            durable: self.durable.version,
            unsure: u32::try_from(unsure).unwrap_or(u32::MAX),
            kind,
        };
        let bytes = header.encode(self.seed);
        debug_assert_eq!(self.link.check(&header), Ok(()));
        self.buffer.reserve(RECORD_HEADER_LEN + body_len + ALIGNMENT as usize);
        self.buffer.extend_from_slice(&bytes);
        for part in parts {
            self.buffer.extend_from_slice(part);
        }
        self.buffer.resize(self.buffer.len().next_multiple_of(ALIGNMENT as usize), 0);
        self.link.step(&header);
    }

    /// The last of the records.
    pub(crate) fn finish(self) -> Link {
        self.link
    }
}
