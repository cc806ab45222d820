//! Records: what a series has at a time that is no number. What is in one is the affair of whoever
//! wrote it (`histogram.rs`, `exemplar.rs`, `increment.rs`); how they are kept, of
//! `store/records.rs`.

use plinth_types::Bytes;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A native histogram.
    Histogram = 1,
    /// An exemplar.
    Exemplar = 2,
    /// A number that is added to the newest point of its series.
    Increment = 3,
    /// A native histogram that is added to the newest of its series.
    HistogramIncrement = 4,
    /// That what the series counts was 0 then.
    Start = 5,
    /// The same of native histograms: with the buckets of this one.
    HistogramStart = 6,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Histogram,
        Self::Exemplar,
        Self::Increment,
        Self::HistogramIncrement,
        Self::Start,
        Self::HistogramStart,
    ];

    /// Those that series have. Others are in the inbox alone, in letters of their own, and become
    /// points or records of these kinds when they are taken in (`store/increments.rs`).
    pub(crate) const KEPT: [Self; 2] = [Self::Histogram, Self::Exemplar];

    /// Whether it is about native histograms.
    pub(crate) fn is_of_histograms(self) -> bool {
        matches!(self, Self::Histogram | Self::HistogramIncrement | Self::HistogramStart)
    }

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
