//! The bytes of a segment file: its header, records, and what the log's own records carry.
//!
//! A pure coder: no files here. Every offset is a constant that follows from the one before it; the
//! picture is in `docs/format/log.md`, and golden bytes in the tests hold both to it. Nothing that
//! is decoded is trusted before its checksum has been compared, and nothing here panics on foreign
//! bytes.

pub(crate) mod mark;
mod record;
mod state;

use plinth_types::{Error, Version};

use crate::config::Identity;
use crate::problem::Flaw;

pub(crate) use record::body_checksum;
pub use record::{Kind, RECORD_HEADER_LEN, RecordHeader, record_span};
pub(crate) use state::decode_lease;
pub use state::{Rewind, State, Vote};

/// The format that this program writes, and the only one that it reads.
pub const FORMAT: u32 = 2;
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

/// Records begin at multiples of this.
pub const ALIGNMENT: u64 = 8;
/// The longest body of a record.
pub const MAX_BODY_LEN: u64 = 1 << 30;

/// The longest name of a consumer.
pub const MAX_CONSUMER_NAME_LEN: usize = u8::MAX as usize;
/// How many consumers a log may have.
pub const MAX_CONSUMERS: usize = 1024;

const _: () = {
    assert!(HEADER_LEN == 128);
    assert!(HEADER_COPIES[0] + HEADER_LEN as u64 <= HEADER_COPIES[1]);
    assert!(HEADER_COPIES[1] + HEADER_LEN as u64 <= RECORDS_START);
    assert!(
        RECORDS_START.is_multiple_of(ALIGNMENT)
            && (RECORD_HEADER_LEN as u64).is_multiple_of(ALIGNMENT)
    );
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
    /// Whether the file held another segment before: what follows its last record is old bytes
    /// then, else zeros.
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
        bytes[HEADER_RECYCLED..HEADER_RESERVED]
            .copy_from_slice(&u32::from(self.recycled).to_le_bytes());
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
            return flaw(
                "the file does not begin like a log segment",
                &MAGIC.escape_ascii(),
                &found,
            );
        }
        let (stored, computed) =
            (u32_at(bytes, HEADER_CHECKSUM), crc32c::crc32c(&bytes[..HEADER_CHECKSUM]));
        if stored != computed {
            return Err(HeaderFlaw::Damaged(Flaw::hex(
                "checksum of the segment's header",
                stored,
                computed,
            )));
        }
        let format = u32_at(bytes, HEADER_FORMAT);
        if format != FORMAT {
            return Err(HeaderFlaw::Foreign(format));
        }
        if u32_at(bytes, HEADER_LENGTH) != HEADER_LEN as u32 {
            return flaw(
                "length of the segment's header",
                &HEADER_LEN,
                &u32_at(bytes, HEADER_LENGTH),
            );
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
    /// Whole, but of this other format.
    Foreign(u32),
}

/// The error of a file that another program can read.
pub(crate) fn foreign_format(file: &str, format: u32) -> Error {
    let remedy = if format > FORMAT {
        "open it with a newer Plinth"
    } else {
        "it is from before the first release: copy its data with the program that wrote it"
    };
    Error::unsupported_operation().with_detail(format!(
        "{file} has log format {format}, this program reads format {FORMAT}: {remedy}"
    ))
}

#[cfg(test)]
mod tests;
