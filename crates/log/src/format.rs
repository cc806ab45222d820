//! The bytes of a segment file: its header, records, and the state that control records carry.
//!
//! A pure coder: no files here. Every offset is a constant that follows from the one before it; the
//! picture is in `docs/format/log.md`, and golden bytes in the tests hold both to it. Nothing that is
//! decoded is trusted before its checksum has been compared, and nothing here panics on foreign bytes.

pub(crate) mod mark;

use std::collections::BTreeMap;

use plinth_types::{Error, Result, Version};

use crate::config::Identity;
use crate::problem::Flaw;

/// The format that this program writes, and the newest that it reads.
pub const FORMAT: u32 = 1;
/// What every segment file begins with.
pub const MAGIC: [u8; 8] = *b"PLNTHLOG";

/// Where a segment's records begin: the two copies of its header have a block to themselves.
pub const RECORDS_START: u64 = 4096;
/// Where the two copies of the header begin, in different sectors.
pub const HEADER_COPIES: [u64; 2] = [0, 2048];

const HEADER_MAGIC: usize = 0;
const HEADER_FORMAT: usize = HEADER_MAGIC + 8;
const HEADER_LENGTH: usize = HEADER_FORMAT + 4;
const HEADER_CLUSTER: usize = HEADER_LENGTH + 4;
const HEADER_NODE: usize = HEADER_CLUSTER + 16;
const HEADER_LOG: usize = HEADER_NODE + 16;
const HEADER_SERIAL: usize = HEADER_LOG + 8;
const HEADER_NONCE: usize = HEADER_SERIAL + 8;
const HEADER_BYTES: usize = HEADER_NONCE + 8;
const HEADER_RECYCLED: usize = HEADER_BYTES + 8;
const HEADER_RESERVED: usize = HEADER_RECYCLED + 4;
const HEADER_CHECKSUM: usize = HEADER_RESERVED + 40;
/// Bytes in one copy of a segment's header.
pub const HEADER_LEN: usize = HEADER_CHECKSUM + 4;

const RECORD_CHECKSUM: usize = 0;
const RECORD_BODY_CHECKSUM: usize = RECORD_CHECKSUM + 4;
const RECORD_BODY_LEN: usize = RECORD_BODY_CHECKSUM + 4;
const RECORD_PREVIOUS: usize = RECORD_BODY_LEN + 4;
const RECORD_EPOCH: usize = RECORD_PREVIOUS + 4;
const RECORD_SEQUENCE: usize = RECORD_EPOCH + 8;
const RECORD_INDEX: usize = RECORD_SEQUENCE + 8;
const RECORD_VERSION: usize = RECORD_INDEX + 8;
const RECORD_DURABLE: usize = RECORD_VERSION + 8;
const RECORD_UNSURE: usize = RECORD_DURABLE + 8;
const RECORD_KIND: usize = RECORD_UNSURE + 4;
const RECORD_RESERVED: usize = RECORD_KIND + 1;
/// Bytes of a record before its body.
pub const RECORD_HEADER_LEN: usize = RECORD_RESERVED + 3;

/// Records begin at multiples of this.
pub const ALIGNMENT: u64 = 8;
/// The longest body of a record.
pub const MAX_BODY_LEN: u64 = 1 << 30;

const STATE_LEASE: usize = 0;
const STATE_COUNT: usize = STATE_LEASE + 8;
const STATE_CONSUMERS: usize = STATE_COUNT + 4;
const CONSUMER_POPPED: usize = 0;
const CONSUMER_NAME_LEN: usize = CONSUMER_POPPED + 8;
const CONSUMER_NAME: usize = CONSUMER_NAME_LEN + 1;

/// The longest name of a consumer.
pub const MAX_CONSUMER_NAME_LEN: usize = u8::MAX as usize;
/// How many consumers a log may have.
pub const MAX_CONSUMERS: usize = 1024;

const _: () = {
    assert!(HEADER_LEN == 128);
    assert!(HEADER_COPIES[0] + HEADER_LEN as u64 <= HEADER_COPIES[1]);
    assert!(HEADER_COPIES[1] + HEADER_LEN as u64 <= RECORDS_START);
    assert!(RECORD_HEADER_LEN == 64);
    assert!(RECORDS_START.is_multiple_of(ALIGNMENT) && (RECORD_HEADER_LEN as u64).is_multiple_of(ALIGNMENT));
    assert!(MAX_BODY_LEN < u32::MAX as u64);
};

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn version_at(bytes: &[u8], at: usize) -> Version {
    Version::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn ids_at(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes[at..at + 16].try_into().expect("sixteen bytes")
}

/// The checksum of a log's ids: what checksums of files begin with that are no segments.
fn ids_seed(identity: &Identity, log_id: u64) -> u32 {
    let ids = crc32c::crc32c_append(crc32c::crc32c(&identity.cluster_id), &identity.node_id);
    crc32c::crc32c_append(ids, &log_id.to_le_bytes())
}

/// Bytes from one record's beginning to the next one's.
pub const fn record_span(body_len: u64) -> u64 {
    (RECORD_HEADER_LEN as u64 + body_len).next_multiple_of(ALIGNMENT)
}

/// The first bytes of a segment file: whose it is, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Cluster and node.
    pub identity: Identity,
    /// Which log of the node.
    pub log_id: u64,
    /// The segment's place in the log, counted from 1 without gaps.
    pub serial: u64,
    /// Random: tells two segments apart that got the same serial, one of which was cut.
    pub nonce: u64,
    /// Bytes of the file when it was made; it is never shorter.
    pub bytes: u64,
    /// Whether the file held another segment before: what follows its last record is old bytes then, else zeros.
    pub recycled: bool,
}

impl SegmentHeader {
    /// One copy of the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[HEADER_MAGIC..HEADER_FORMAT].copy_from_slice(&MAGIC);
        bytes[HEADER_FORMAT..HEADER_LENGTH].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[HEADER_LENGTH..HEADER_CLUSTER].copy_from_slice(&(HEADER_LEN as u32).to_le_bytes());
        bytes[HEADER_CLUSTER..HEADER_NODE].copy_from_slice(&self.identity.cluster_id);
        bytes[HEADER_NODE..HEADER_LOG].copy_from_slice(&self.identity.node_id);
        bytes[HEADER_LOG..HEADER_SERIAL].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[HEADER_SERIAL..HEADER_NONCE].copy_from_slice(&self.serial.to_le_bytes());
        bytes[HEADER_NONCE..HEADER_BYTES].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[HEADER_BYTES..HEADER_RECYCLED].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[HEADER_RECYCLED..HEADER_RESERVED].copy_from_slice(&u32::from(self.recycled).to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKSUM]);
        bytes[HEADER_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header block: both copies, zeros between.
    pub fn encode_block(&self) -> Vec<u8> {
        let mut block = vec![0; RECORDS_START as usize];
        let header = self.encode();
        for copy in HEADER_COPIES {
            block[copy as usize..][..HEADER_LEN].copy_from_slice(&header);
        }
        block
    }

    /// Reads one copy of the header.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFlaw> {
        let flaw = |what, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
            Err(HeaderFlaw::Damaged(Flaw::new(what, expected, found)))
        };
        if bytes.len() < HEADER_LEN {
            return flaw("the file is too short for its header", &HEADER_LEN, &bytes.len());
        }
        let bytes = &bytes[..HEADER_LEN];
        if bytes[..HEADER_FORMAT] != MAGIC {
            let found = bytes[..HEADER_FORMAT].escape_ascii();
            return flaw("the file does not begin like a log segment", &MAGIC.escape_ascii(), &found);
        }
        let (stored, computed) = (u32_at(bytes, HEADER_CHECKSUM), crc32c::crc32c(&bytes[..HEADER_CHECKSUM]));
        if stored != computed {
            return Err(HeaderFlaw::Damaged(Flaw::hex("checksum of the segment's header", stored, computed)));
        }
        let format = u32_at(bytes, HEADER_FORMAT);
        if format > FORMAT {
            return Err(HeaderFlaw::Newer(format));
        }
        if format != FORMAT || u32_at(bytes, HEADER_LENGTH) != HEADER_LEN as u32 {
            return flaw("format of the segment", &FORMAT, &format);
        }
        Ok(Self {
            identity: Identity {
                cluster_id: ids_at(bytes, HEADER_CLUSTER),
                node_id: ids_at(bytes, HEADER_NODE),
            },
            log_id: u64_at(bytes, HEADER_LOG),
            serial: u64_at(bytes, HEADER_SERIAL),
            nonce: u64_at(bytes, HEADER_NONCE),
            bytes: u64_at(bytes, HEADER_BYTES),
            recycled: u32_at(bytes, HEADER_RECYCLED) != 0,
        })
    }

    /// What the checksums of this segment's records begin with, so that no other segment's record,
    /// and none of another node's, passes for one of this segment's.
    pub fn seed(&self) -> u32 {
        crc32c::crc32c(&self.encode()[HEADER_CLUSTER..HEADER_BYTES])
    }
}

/// Why a header was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HeaderFlaw {
    Damaged(Flaw),
    /// Whole, but of this newer format.
    Newer(u32),
}

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// An entry: its body is the caller's.
    Entry = 1,
    /// The log's own: its body is a [`State`].
    State = 2,
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
    pub previous: u32,
    /// Which opening of the log wrote it.
    pub epoch: u64,
    /// Number of the record, without gaps from 1.
    pub sequence: u64,
    /// Number of the entry, without gaps from 1; in a state record that of the last entry before it.
    pub index: u64,
    /// Version of the entry; in a state record that of the last entry before it.
    pub version: Version,
    /// The highest version known durable when this was written.
    pub durable: Version,
    /// How many of the records just before this one were not known durable when it was written.
    pub unsure: u32,
    /// Entry or state.
    pub kind: Kind,
}

impl RecordHeader {
    /// The last record that was known durable when this one was written.
    pub fn durable_sequence(&self) -> u64 {
        (self.sequence - 1).saturating_sub(u64::from(self.unsure))
    }

    /// Bytes from this record's beginning to the next one's.
    pub fn span(&self) -> u64 {
        record_span(u64::from(self.body_len))
    }

    /// The header's bytes; also fills in `checksum`.
    pub fn encode(&mut self, seed: u32) -> [u8; RECORD_HEADER_LEN] {
        let mut bytes = [0; RECORD_HEADER_LEN];
        bytes[RECORD_BODY_CHECKSUM..RECORD_BODY_LEN].copy_from_slice(&self.body_checksum.to_le_bytes());
        bytes[RECORD_BODY_LEN..RECORD_PREVIOUS].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[RECORD_PREVIOUS..RECORD_EPOCH].copy_from_slice(&self.previous.to_le_bytes());
        bytes[RECORD_EPOCH..RECORD_SEQUENCE].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[RECORD_SEQUENCE..RECORD_INDEX].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[RECORD_INDEX..RECORD_VERSION].copy_from_slice(&self.index.to_le_bytes());
        bytes[RECORD_VERSION..RECORD_DURABLE].copy_from_slice(&self.version.to_le_bytes());
        bytes[RECORD_DURABLE..RECORD_UNSURE].copy_from_slice(&self.durable.to_le_bytes());
        bytes[RECORD_UNSURE..RECORD_KIND].copy_from_slice(&self.unsure.to_le_bytes());
        bytes[RECORD_KIND] = self.kind as u8;
        self.checksum = crc32c::crc32c_append(seed, &bytes[RECORD_BODY_CHECKSUM..]);
        bytes[..RECORD_BODY_CHECKSUM].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Reads a header, or says why there is none.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_LEN], seed: u32) -> Result<Self, Flaw> {
        let checksum = u32_at(bytes, RECORD_CHECKSUM);
        let computed = crc32c::crc32c_append(seed, &bytes[RECORD_BODY_CHECKSUM..]);
        if checksum != computed {
            return Err(Flaw::hex("checksum of a record's header", checksum, computed));
        }
        let kind = match bytes[RECORD_KIND] {
            1 => Kind::Entry,
            2 => Kind::State,
            other => return Err(Flaw::new("kind of a record", "1 or 2", other)),
        };
        let header = Self {
            checksum,
            body_checksum: u32_at(bytes, RECORD_BODY_CHECKSUM),
            body_len: u32_at(bytes, RECORD_BODY_LEN),
            previous: u32_at(bytes, RECORD_PREVIOUS),
            epoch: u64_at(bytes, RECORD_EPOCH),
            sequence: u64_at(bytes, RECORD_SEQUENCE),
            index: u64_at(bytes, RECORD_INDEX),
            version: version_at(bytes, RECORD_VERSION),
            durable: version_at(bytes, RECORD_DURABLE),
            unsure: u32_at(bytes, RECORD_UNSURE),
            kind,
        };
        if header.sequence == 0 || u64::from(header.body_len) > MAX_BODY_LEN {
            return Err(Flaw::new("number and length of a record", "from 1; up to 2^30", header.sequence));
        }
        Ok(header)
    }

    /// Whether bytes can be a header at all: cheap, for looking for one at every possible place.
    pub(crate) fn is_plausible(bytes: &[u8; RECORD_HEADER_LEN]) -> bool {
        matches!(bytes[RECORD_KIND], 1 | 2)
            && bytes[RECORD_RESERVED..] == [0; RECORD_HEADER_LEN - RECORD_RESERVED]
    }
}

/// Checksum of a body that comes in parts.
pub(crate) fn body_checksum(seed: u32, parts: &[&[u8]]) -> u32 {
    parts.iter().fold(seed, |checksum, part| crc32c::crc32c_append(checksum, part))
}

/// What the log remembers beside its entries: the body of every state record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Versions up to this one may have been handed out.
    pub lease: Version,
    /// For each consumer the version up to which it needs no entries any longer.
    pub popped: BTreeMap<String, Version>,
}

impl State {
    /// Up to where no consumer needs anything; `None` without consumers, when everything is kept.
    pub fn floor(&self) -> Option<Version> {
        self.popped.values().min().copied()
    }

    /// How many bytes [`State::encode`] gives.
    pub fn encoded_len(&self) -> u64 {
        let names: usize = self.popped.keys().map(|name| CONSUMER_NAME + name.len()).sum();
        (STATE_CONSUMERS + names) as u64
    }

    /// Appends the state's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lease.to_le_bytes());
        out.extend_from_slice(&(self.popped.len() as u32).to_le_bytes());
        for (name, popped) in &self.popped {
            debug_assert!(name.len() <= MAX_CONSUMER_NAME_LEN);
            out.extend_from_slice(&popped.to_le_bytes());
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
        }
    }

    /// Reads a state; `None` if these bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < STATE_CONSUMERS {
            return None;
        }
        let mut state = Self { lease: version_at(bytes, STATE_LEASE), popped: BTreeMap::new() };
        let mut rest = &bytes[STATE_CONSUMERS..];
        for _ in 0..u32_at(bytes, STATE_COUNT) {
            let (fixed, after) = rest.split_at_checked(CONSUMER_NAME)?;
            let (name, after) = after.split_at_checked(usize::from(fixed[CONSUMER_NAME_LEN]))?;
            state
                .popped
                .insert(std::str::from_utf8(name).ok()?.to_string(), version_at(fixed, CONSUMER_POPPED));
            rest = after;
        }
        rest.is_empty().then_some(state)
    }
}

/// The error of a file that only a newer program can read.
pub(crate) fn newer_format(file: &str, format: u32) -> Error {
    Error::unsupported_operation().with_detail(format!(
        "{file} has log format {format}, this program reads formats up to {FORMAT}: open it with a newer Plinth"
    ))
}

#[cfg(test)]
mod tests;
