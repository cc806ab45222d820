//! What opening a log finds.

use std::collections::BTreeMap;

use plinth_format::Corruption;
use plinth_types::Version;

use crate::landmarks::Landmarks;

/// What [`LocalLog::open`](crate::LocalLog::open) found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The term of this opening: larger than every earlier one's. With a log that is told what is
    /// committed, that of the last entry.
    pub term: u64,
    /// The index of the oldest entry kept; one more than `last_index` if none is.
    pub first_index: u64,
    /// The index of the last entry, 0 if there never was one.
    pub last_index: u64,
    /// The version of the last entry, 0 if there never was one.
    pub last_version: Version,
    /// The highest version that the log itself knew to be committed. Entries above it were found
    /// whole and are durable now, but may never have been acknowledged.
    pub known_committed: Version,
    /// As of the last entry. No version above this one was ever handed out: a restart begins beyond
    /// the larger of it and `last_version`.
    pub lease: Version,
    /// What was cut off the end, if anything was.
    pub cut_tail: Option<CutTail>,
    /// One of the two notes of how far the log is durable, if it could not be read.
    pub spoilt_note: Option<Corruption>,
}

/// What a log was found to hold, before anything in it is changed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Findings {
    /// Where its entries lie.
    pub landmarks: Landmarks,
    /// No version above this one was ever handed out, but for those of entries.
    pub lease: Version,
    /// The consumers, and up to which version each has popped.
    pub popped: BTreeMap<String, Version>,
}

/// A torn tail: bytes whose write had not ended, and which were never acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutTail {
    /// The segment file in which the tail begins.
    pub file: String,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes were cut, in this file and those after it.
    pub bytes: u64,
    /// What was wrong at that place.
    pub reason: String,
}
