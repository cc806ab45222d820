//! The notes in the file `DURABLE`.
//!
//! Two places for one note of 64 bytes each, in blocks of their own, written in turn: the one with
//! the higher number counts. The checksum begins with the log's ids, so that no other log's note is
//! believed.

use plinth_format::{FIELDS, Flaw, Form, HeaderFlaw, Identity, put, u64_at, version_at};
use plinth_types::Version;

use super::{FORMAT, ids_seed};

/// What every note begins with.
pub(crate) const MARK_MAGIC: [u8; 8] = *b"PLNTHDUR";
const FORM: Form<MARK_LEN> = Form::new(MARK_MAGIC);

const MARK_NUMBER: usize = FIELDS;
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
        FORM.encode(FORMAT, seed, |note| {
            put(note, MARK_NUMBER, self.number.to_le_bytes());
            put(note, MARK_SEQUENCE, self.sequence.to_le_bytes());
            put(note, MARK_COMMITTED, self.committed.to_le_bytes());
        })
    }

    /// Reads the note that these bytes begin with.
    pub(crate) fn decode(bytes: &[u8], seed: u32) -> Result<Self, Flaw> {
        let (bytes, _) = FORM.decode(bytes, seed, FORMAT..=FORMAT).map_err(|flaw| match flaw {
            HeaderFlaw::Damaged(flaw) => flaw,
            HeaderFlaw::Foreign(format) => Flaw::new("format of a note", FORMAT, format),
        })?;
        Ok(Self {
            number: u64_at(bytes, MARK_NUMBER),
            sequence: u64_at(bytes, MARK_SEQUENCE),
            committed: version_at(bytes, MARK_COMMITTED),
        })
    }
}
