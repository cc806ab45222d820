//! Putting records together, byte for byte as they will stand in the file.
//!
//! A record's header is made first, without its checksums; then the body is added, sealed about
//! that header if the segment has a key; then the checksums, which are of what is stored.

use plinth_format::Cipher;
use plinth_format::crypt::Nonces;
use plinth_types::Version;

use crate::entry::{EntryHead, EntryKind};
use crate::format::decode_lease;
use crate::format::{
    ALIGNMENT, Kind, RECORD_HEADER_LEN, RecordHeader, Rewind, SEALING_LEN, Vote, body_checksum,
    seal, sealed_about,
};
use crate::link::{Link, Popped};

/// What the operating system reads and writes at once.
pub(crate) const BLOCK: u64 = 4096;

/// Where a write of `start..end` is filled up to with zeros: the end of its last block if it is the
/// first write into that block, so that the block is written whole.
pub(crate) fn padded_end(start: u64, end: u64) -> u64 {
    assert!(0 < start && start < end);
    let enters_a_block = (end - 1) / BLOCK != (start - 1) / BLOCK;
    if enters_a_block { end.next_multiple_of(BLOCK) } else { end }
}

/// What records say of the log that they are written to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) opening: u32,
    /// The last record known durable.
    pub(crate) durable: u64,
    /// The highest version known committed.
    pub(crate) committed: Version,
}

/// With what records of a segment are checksummed, and sealed if it has a key.
pub(crate) struct Sealing<'a> {
    pub(crate) seed: u32,
    pub(crate) cipher: &'a Cipher,
    pub(crate) nonces: &'a mut Nonces,
}

/// Records being put together, one after the other.
pub(crate) struct Frame<'a> {
    buffer: &'a mut Vec<u8>,
    sealing: Sealing<'a>,
    known: Known,
    link: Link,
    /// The header of the last record.
    last: Option<RecordHeader>,
}

impl<'a> Frame<'a> {
    /// Records that follow `link`, in a buffer that is emptied.
    pub(crate) fn new(
        buffer: &'a mut Vec<u8>,
        sealing: Sealing<'a>,
        known: Known,
        link: Link,
    ) -> Self {
        buffer.clear();
        Self { buffer, sealing, known, link, last: None }
    }

    /// Appends a state record, with these consumers.
    pub(crate) fn put_state(&mut self, popped: Popped) {
        self.link.memory.popped = popped;
        let mut body = Vec::new();
        self.link.memory.to_state().encode(&mut body);
        self.put_own(Kind::State, &body);
    }

    /// Appends a vote.
    pub(crate) fn put_vote(&mut self, vote: Vote) {
        self.link.memory.vote = vote;
        self.put_own(Kind::Vote, &vote.encode());
    }

    /// Appends a record that voids all entries behind `target`.
    pub(crate) fn put_rewind(&mut self, target: &Link) {
        let lease = target.memory.lease;
        (self.link.index, self.link.term, self.link.version) =
            (target.index, target.term, target.version);
        self.link.memory.lease = lease;
        self.put_own(Kind::Rewind, &Rewind { lease }.encode());
    }

    /// Appends an entry.
    pub(crate) fn put_entry(&mut self, head: &EntryHead, parts: &[&[u8]]) {
        if head.kind == EntryKind::Lease
            && let Some(lease) = decode_lease(&parts.concat())
        {
            self.link.memory.lease = lease;
        }
        self.put(head, Kind::Entry(head.kind), parts);
    }

    fn put_own(&mut self, kind: Kind, body: &[u8]) {
        let Link { index, term, version, .. } = self.link;
        let committed = self.known.committed;
        let head = EntryHead {
            kind: EntryKind::Begin,
            index,
            term,
            version,
            previous: version,
            committed,
        };
        self.put(&head, kind, &[body]);
    }

    fn put(&mut self, head: &EntryHead, kind: Kind, parts: &[&[u8]]) {
        let key = self.sealing.cipher.key();
        let raw_len: usize = parts.iter().map(|part| part.len()).sum();
        let body_len = raw_len + if key.is_some() { SEALING_LEN } else { 0 };
        let unsure = self.link.sequence - self.known.durable;
        let mut header = RecordHeader {
            checksum: 0,
            body_checksum: 0,
            body_len: u32::try_from(body_len).expect("checked against MAX_BODY_LEN"),
            before: self.link.checksum,
            term: head.term,
            sequence: self.link.sequence + 1,
            index: head.index,
            version: head.version,
            previous: head.previous,
            committed: head.committed,
            opening: self.known.opening,
            unsure: u32::try_from(unsure).unwrap_or(u32::MAX),
            kind,
        };
        let begin = self.buffer.len();
        let body_at = begin + RECORD_HEADER_LEN;
        self.buffer.reserve(RECORD_HEADER_LEN + body_len + ALIGNMENT as usize);
        self.buffer.resize(body_at, 0);
        let seed = self.sealing.seed;
        match key {
            Some(key) => {
                let bytes = header.encode(seed);
                seal(key, self.sealing.nonces, sealed_about(&bytes), parts, self.buffer);
            }
            None => parts.iter().for_each(|part| self.buffer.extend_from_slice(part)),
        }
        header.body_checksum = body_checksum(seed, &self.buffer[body_at..]);
        self.buffer[begin..body_at].copy_from_slice(&header.encode(seed));
        debug_assert_eq!(self.link.check(&header), Ok(()));
        self.buffer.resize(self.buffer.len().next_multiple_of(ALIGNMENT as usize), 0);
        self.link.step(&header);
        self.last = Some(header);
    }

    /// Where the chain stands behind the records, and the header of the last of them.
    pub(crate) fn finish(self) -> (Link, Option<RecordHeader>) {
        (self.link, self.last)
    }
}
