//! The notes in the file `DURABLE`.
//!
//! Two places for one note of 64 bytes each, in blocks of their own, written in turn: the one with
//! the higher number counts. The checksum begins with the log's ids, so that no other log's note is
//! believed.

use plinth_types::Version;

use super::{FORMAT, ids_seed, u32_at, u64_at, version_at};
use crate::config::Identity;
use crate::problem::Flaw;

/// What every note begins with.
pub(crate) const MARK_MAGIC: [u8; 8] = *b"PLNTHDUR";

const MARK_FORMAT: usize = 8;
const MARK_LENGTH: usize = MARK_FORMAT + 4;
const MARK_NUMBER: usize = MARK_LENGTH + 4;
const MARK_SEQUENCE: usize = MARK_NUMBER + 8;
const MARK_COMMITTED: usize = MARK_SEQUENCE + 8;
const MARK_RESERVED: usize = MARK_COMMITTED + 8;
const MARK_CHECKSUM: usize = MARK_RESERVED + 20;
/// Bytes of a note.
pub(crate) const MARK_LEN: usize = MARK_CHECKSUM + 4;
/// Where the two places for a note begin.
pub(crate) const MARK_PLACES: [usize; 2] = [0, 4096];
/// Bytes of the file.
pub(crate) const MARKS_LEN: usize = MARK_PLACES[1] + MARK_LEN;

const _: () = assert!(MARK_LEN == 64 && MARK_LEN <= MARK_PLACES[1]);

/// A note: everything up to this record is durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Mark {
    /// Which note it is, counted from 1.
    pub(crate) number: u64,
    /// Number of the record.
    pub(crate) sequence: u64,
    /// The highest version known committed then.
    pub(crate) committed: Version,
}

/// What the checksums of a log's notes begin with.
pub(crate) fn mark_seed(identity: &Identity, log_id: u64) -> u32 {
    ids_seed(identity, log_id)
}

impl Mark {
    pub(crate) fn encode(&self, seed: u32) -> [u8; MARK_LEN] {
        let mut bytes = [0; MARK_LEN];
        bytes[..MARK_FORMAT].copy_from_slice(&MARK_MAGIC);
        bytes[MARK_FORMAT..MARK_LENGTH].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[MARK_LENGTH..MARK_NUMBER].copy_from_slice(&(MARK_LEN as u32).to_le_bytes());
        bytes[MARK_NUMBER..MARK_SEQUENCE].copy_from_slice(&self.number.to_le_bytes());
        bytes[MARK_SEQUENCE..MARK_COMMITTED].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[MARK_COMMITTED..MARK_RESERVED].copy_from_slice(&self.committed.to_le_bytes());
        let checksum = crc32c::crc32c_append(seed, &bytes[..MARK_CHECKSUM]);
        bytes[MARK_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the note that these bytes begin with.
    pub(crate) fn decode(bytes: &[u8], seed: u32) -> Result<Self, Flaw> {
        let Some(bytes) = bytes.first_chunk::<MARK_LEN>() else {
            return Err(Flaw::new("length of a note", MARK_LEN, bytes.len()));
        };
        let (stored, computed) =
            (u32_at(bytes, MARK_CHECKSUM), crc32c::crc32c_append(seed, &bytes[..MARK_CHECKSUM]));
        if stored != computed {
            return Err(Flaw::hex("checksum of a note", stored, computed));
        }
        if bytes[..MARK_FORMAT] != MARK_MAGIC || u32_at(bytes, MARK_FORMAT) != FORMAT {
            return Err(Flaw::new("format of a note", FORMAT, u32_at(bytes, MARK_FORMAT)));
        }
        Ok(Self {
            number: u64_at(bytes, MARK_NUMBER),
            sequence: u64_at(bytes, MARK_SEQUENCE),
            committed: version_at(bytes, MARK_COMMITTED),
        })
    }
}
