//! Records: what a series has at a time that is no number. What is in one is the affair of whoever
//! wrote it (`histogram.rs`, `exemplar.rs`); how they are kept, of `store/records.rs`.

use plinth_types::Bytes;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A native histogram.
    Histogram = 1,
    /// An exemplar.
    Exemplar = 2,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Histogram, Self::Exemplar];

    /// The kind of this number, which is part of the format.
    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A record: when, and what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    /// Nanoseconds since 1970.
    pub(crate) time: i64,
    /// At most [`MAX_RECORD_BYTES`].
    pub(crate) bytes: Bytes,
}

/// Bytes of a record, at most: a row with a single one fits a value.
pub(crate) const MAX_RECORD_BYTES: usize = 64 << 10;
