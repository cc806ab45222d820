//! Records: what stands before a body, and which kinds there are.
//!
//! A record is an entry, or one of the log's own. The fields of an entry are the same on every node
//! that has it: kind, term, index, version, previous version, committed version. The rest of the
//! header (checksums, sequence, opening, what was durable) belongs to this node's files alone.

use plinth_format::{Flaw, checksum_from, compare, put, u32_at, u64_at, version_at};
use plinth_types::{Bytes, Version};

use super::{ALIGNMENT, MAX_BODY_LEN};
use crate::entry::{Entry, EntryHead, EntryKind};

const RECORD_CHECKSUM: usize = 0;
const RECORD_BODY_CHECKSUM: usize = RECORD_CHECKSUM + 4;
const RECORD_BODY_LEN: usize = RECORD_BODY_CHECKSUM + 4;
const RECORD_BEFORE: usize = RECORD_BODY_LEN + 4;
const RECORD_TERM: usize = RECORD_BEFORE + 4;
const RECORD_SEQUENCE: usize = RECORD_TERM + 8;
const RECORD_INDEX: usize = RECORD_SEQUENCE + 8;
const RECORD_VERSION: usize = RECORD_INDEX + 8;
const RECORD_PREVIOUS: usize = RECORD_VERSION + 8;
const RECORD_COMMITTED: usize = RECORD_PREVIOUS + 8;
const RECORD_OPENING: usize = RECORD_COMMITTED + 8;
const RECORD_UNSURE: usize = RECORD_OPENING + 4;
const RECORD_KIND: usize = RECORD_UNSURE + 4;
const RECORD_RESERVED: usize = RECORD_KIND + 1;
/// Bytes of a record before its body.
pub const RECORD_HEADER_LEN: usize = RECORD_RESERVED + 7;

const _: () = {
    assert!(RECORD_HEADER_LEN == 80);
    assert!((RECORD_HEADER_LEN as u64).is_multiple_of(ALIGNMENT));
};

/// Bytes from one record's beginning to the next one's.
pub const fn record_span(body_len: u64) -> u64 {
    (RECORD_HEADER_LEN as u64 + body_len).next_multiple_of(ALIGNMENT)
}

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The log's own: its body is a [`State`](super::State).
    State,
    /// The log's own: its body is a [`Vote`](super::Vote).
    Vote,
    /// The log's own: entries behind its index are void. Its body is a [`Rewind`](super::Rewind).
    Rewind,
    /// An entry.
    Entry(EntryKind),
}

impl Kind {
    const STATE: u8 = 1;
    const VOTE: u8 = 2;
    const REWIND: u8 = 3;

    /// The byte that stands for it.
    pub fn code(self) -> u8 {
        match self {
            Self::State => Self::STATE,
            Self::Vote => Self::VOTE,
            Self::Rewind => Self::REWIND,
            Self::Entry(kind) => kind as u8,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            Self::STATE => Some(Self::State),
            Self::VOTE => Some(Self::Vote),
            Self::REWIND => Some(Self::Rewind),
            other => EntryKind::from_code(other).map(Self::Entry),
        }
    }

    /// What the entry is for, if it is one.
    pub fn entry(self) -> Option<EntryKind> {
        match self {
            Self::Entry(kind) => Some(kind),
            Self::State | Self::Vote | Self::Rewind => None,
        }
    }

    /// Whether it is an entry.
    pub fn is_entry(self) -> bool {
        self.entry().is_some()
    }
}

/// What stands before a record's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Checksum of this header; fills in by encoding.
    pub checksum: u32,
    /// Checksum of the body.
    pub body_checksum: u32,
    /// Bytes in the body.
    pub body_len: u32,
    /// `checksum` of the record before, 0 for the first of a log.
    pub before: u32,
    /// The term of the entry; in the log's own records that of the last entry.
    pub term: u64,
    /// Number of the record, without gaps from 1.
    pub sequence: u64,
    /// Number of the entry, without gaps from 1 but for what was voided; in the log's own records
    /// that of the last entry.
    pub index: u64,
    /// Version of the entry; in the log's own records that of the last entry.
    pub version: Version,
    /// Version of the entry before; in the log's own records the same as `version`.
    pub previous: Version,
    /// The highest version that was known committed: to whoever made the entry, or to this node.
    pub committed: Version,
    /// Which opening of the log wrote it.
    pub opening: u32,
    /// How many of the records just before this one were not known durable when it was written.
    pub unsure: u32,
    /// What it is.
    pub kind: Kind,
}

/// The part of a record's header that its body is sealed about: all but the two checksums, which
/// are made of what was sealed.
pub(crate) fn sealed_about(header: &[u8]) -> &[u8] {
    header.get(RECORD_BODY_LEN..RECORD_HEADER_LEN).unwrap_or_default()
}

impl RecordHeader {
    /// The last record that was known durable when this one was written.
    pub fn durable_sequence(&self) -> u64 {
        (self.sequence - 1).saturating_sub(u64::from(self.unsure))
    }

    /// The entry with this header and body, if it is one.
    pub(crate) fn entry(&self, body: Bytes) -> Option<Entry> {
        let Self { kind, index, term, version, previous, committed, .. } = *self;
        let head = EntryHead { kind: kind.entry()?, index, term, version, previous, committed };
        Some(Entry::new(head, body))
    }

    /// Bytes from this record's beginning to the next one's.
    pub fn span(&self) -> u64 {
        record_span(u64::from(self.body_len))
    }

    /// The header's bytes; also fills in `checksum`.
    pub fn encode(&mut self, seed: u32) -> [u8; RECORD_HEADER_LEN] {
        let mut bytes = [0; RECORD_HEADER_LEN];
        put(&mut bytes, RECORD_BODY_CHECKSUM, self.body_checksum.to_le_bytes());
        put(&mut bytes, RECORD_BODY_LEN, self.body_len.to_le_bytes());
        put(&mut bytes, RECORD_BEFORE, self.before.to_le_bytes());
        put(&mut bytes, RECORD_TERM, self.term.to_le_bytes());
        put(&mut bytes, RECORD_SEQUENCE, self.sequence.to_le_bytes());
        put(&mut bytes, RECORD_INDEX, self.index.to_le_bytes());
        put(&mut bytes, RECORD_VERSION, self.version.to_le_bytes());
        put(&mut bytes, RECORD_PREVIOUS, self.previous.to_le_bytes());
        put(&mut bytes, RECORD_COMMITTED, self.committed.to_le_bytes());
        put(&mut bytes, RECORD_OPENING, self.opening.to_le_bytes());
        put(&mut bytes, RECORD_UNSURE, self.unsure.to_le_bytes());
        put(&mut bytes, RECORD_KIND, [self.kind.code()]);
        self.checksum = checksum_from(seed, &bytes[RECORD_BODY_CHECKSUM..]);
        put(&mut bytes, RECORD_CHECKSUM, self.checksum.to_le_bytes());
        bytes
    }

    /// Reads a header, or says why there is none.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_LEN], seed: u32) -> Result<Self, Flaw> {
        let checksum = u32_at(bytes, RECORD_CHECKSUM);
        let computed = checksum_from(seed, &bytes[RECORD_BODY_CHECKSUM..]);
        compare("checksum of a record's header", checksum, computed)?;
        let Some(kind) = Kind::from_code(bytes[RECORD_KIND]) else {
            return Err(Flaw::new("kind of a record", "1 to 3, or 16 to 19", bytes[RECORD_KIND]));
        };
        let header = Self {
            checksum,
            body_checksum: u32_at(bytes, RECORD_BODY_CHECKSUM),
            body_len: u32_at(bytes, RECORD_BODY_LEN),
            before: u32_at(bytes, RECORD_BEFORE),
            term: u64_at(bytes, RECORD_TERM),
            sequence: u64_at(bytes, RECORD_SEQUENCE),
            index: u64_at(bytes, RECORD_INDEX),
            version: version_at(bytes, RECORD_VERSION),
            previous: version_at(bytes, RECORD_PREVIOUS),
            committed: version_at(bytes, RECORD_COMMITTED),
            opening: u32_at(bytes, RECORD_OPENING),
            unsure: u32_at(bytes, RECORD_UNSURE),
            kind,
        };
        if header.sequence == 0 || u64::from(header.body_len) > MAX_BODY_LEN {
            return Err(Flaw::new(
                "number and length of a record",
                "from 1; up to 2^30",
                header.sequence,
            ));
        }
        Ok(header)
    }

    /// Whether bytes can be a header at all: cheap, for looking for one at every possible place.
    pub(crate) fn is_plausible(bytes: &[u8; RECORD_HEADER_LEN]) -> bool {
        Kind::from_code(bytes[RECORD_KIND]).is_some()
            && bytes[RECORD_RESERVED..] == [0; RECORD_HEADER_LEN - RECORD_RESERVED]
    }
}

/// Checksum of a body as it is stored.
pub(crate) fn body_checksum(seed: u32, body: &[u8]) -> u32 {
    checksum_from(seed, body)
}
