//! The bytes of a segment file: its header, records, and what the log's own records carry.
//!
//! A pure coder: no files here. Every offset is a constant that follows from the one before it; the
//! picture is in `docs/format/log.md`, and golden bytes in the tests hold both to it. Nothing that
//! is decoded is trusted before its checksum has been compared, and nothing here panics on foreign
//! bytes.

pub(crate) mod mark;
mod record;
mod sealing;
mod state;

use crate::failure::LogError;
use plinth_format::crypt::ENVELOPE_LEN;
use plinth_format::{
    FIELDS, Form, HeaderFlaw, IDENTITY_LEN, Identity, checksum, checksum_from, put, u32_at, u64_at,
};

pub use record::{Kind, RECORD_HEADER_LEN, RecordHeader, record_span};
pub(crate) use record::{body_checksum, sealed_about};
pub use sealing::SEALING_LEN;
pub(crate) use sealing::{Body, seal, unseal};
pub(crate) use state::decode_lease;
pub use state::{Rewind, State, Vote};

/// The format that this program writes.
pub const FORMAT: u32 = 2;
/// The same with the bodies of records sealed, where a key was given. It reads these two.
pub const SEALED_FORMAT: u32 = 3;
/// What every segment file begins with.
pub const MAGIC: [u8; 8] = *b"PLNTHLOG";
const FORM: Form<HEADER_LEN> = Form::new(MAGIC);

/// Where a segment's records begin: the two copies of its header have a block to themselves.
pub const RECORDS_START: u64 = 4096;
/// Where the two copies of the header begin, in different sectors.
pub const HEADER_COPIES: [u64; 2] = [0, 2048];

const HEADER_IDENTITY: usize = FIELDS;
const HEADER_LOG: usize = HEADER_IDENTITY + IDENTITY_LEN;
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
    let copy = HEADER_LEN as u64 + ENVELOPE_LEN as u64;
    assert!(HEADER_COPIES[0] + copy <= HEADER_COPIES[1]);
    assert!(HEADER_COPIES[1] + copy <= RECORDS_START);
    assert!(
        RECORDS_START.is_multiple_of(ALIGNMENT)
            && (RECORD_HEADER_LEN as u64).is_multiple_of(ALIGNMENT)
    );
    assert!(MAX_BODY_LEN < u32::MAX as u64);
};

/// The checksum of a log's ids: what checksums of files begin with that are no segments.
fn ids_seed(identity: &Identity, log_id: u64) -> u32 {
    let ids = checksum_from(checksum(&identity.cluster_id), &identity.node_id);
    checksum_from(ids, &log_id.to_le_bytes())
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
    /// Whether the bodies of its records are sealed. Then an envelope with the segment's key stands
    /// behind each copy of the header.
    pub sealed: bool,
}

impl SegmentHeader {
    /// One copy of the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let format = if self.sealed { SEALED_FORMAT } else { FORMAT };
        FORM.encode(format, 0, |header| {
            self.identity.put(header, HEADER_IDENTITY);
            put(header, HEADER_LOG, self.log_id.to_le_bytes());
            put(header, HEADER_SERIAL, self.serial.to_le_bytes());
            put(header, HEADER_NONCE, self.nonce.to_le_bytes());
            put(header, HEADER_BYTES, self.bytes.to_le_bytes());
            put(header, HEADER_RECYCLED, u32::from(self.recycled).to_le_bytes());
        })
    }

    /// The header block: both copies, each with the envelope if there is one, zeros between.
    pub fn encode_block(&self, envelope: Option<&[u8; ENVELOPE_LEN]>) -> Vec<u8> {
        assert_eq!(envelope.is_some(), self.sealed, "an envelope has the key of what is sealed");
        let mut block = vec![0; RECORDS_START as usize];
        let header = self.encode();
        for copy in HEADER_COPIES {
            let (first, rest) = block[copy as usize..].split_at_mut(HEADER_LEN);
            first.copy_from_slice(&header);
            rest[..ENVELOPE_LEN].copy_from_slice(envelope.unwrap_or(&[0; ENVELOPE_LEN]));
        }
        block
    }

    /// Reads one copy of the header.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFlaw> {
        let (bytes, format) = FORM.decode(bytes, 0, FORMAT..=SEALED_FORMAT)?;
        Ok(Self {
            identity: Identity::at(bytes, HEADER_IDENTITY),
            log_id: u64_at(bytes, HEADER_LOG),
            serial: u64_at(bytes, HEADER_SERIAL),
            nonce: u64_at(bytes, HEADER_NONCE),
            bytes: u64_at(bytes, HEADER_BYTES),
            recycled: u32_at(bytes, HEADER_RECYCLED) != 0,
            sealed: format == SEALED_FORMAT,
        })
    }

    /// What the checksums of this segment's records begin with, so that no other segment's record,
    /// and none of another node's, passes for one of this segment's.
    pub fn seed(&self) -> u32 {
        checksum(&self.encode()[HEADER_IDENTITY..HEADER_BYTES])
    }
}

/// The error of a file that another program can read.
pub(crate) fn foreign_format(file: &str, format: u32) -> LogError {
    let remedy = if format > SEALED_FORMAT {
        "open it with a newer Plinth"
    } else {
        "it is from before the first release: copy its data with the program that wrote it"
    };
    LogError::ForeignFormat(format!(
        "{file} has log format {format}, this program reads formats {FORMAT} and {SEALED_FORMAT}: {remedy}"
    ))
}

#[cfg(test)]
mod tests;
