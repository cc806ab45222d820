//! Places in a log, as its callers hold them.

use plinth_types::{LogPosition, Version};

/// A record's place in the log: what [`Syncer::sync`](crate::Syncer::sync) takes. Later is larger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Position {
    pub(crate) sequence: u64,
    pub(crate) index: u64,
    pub(crate) term: u64,
}

impl Position {
    /// The position of the record with this number, in a log where it is an entry and so is each
    /// one before it.
    pub fn from_sequence(sequence: u64) -> Self {
        Self { sequence, index: sequence, term: 0 }
    }

    /// The record's number, counted from 1 over the whole life of the log, control records
    /// included.
    pub fn sequence(self) -> u64 {
        self.sequence
    }

    /// The same for whoever keeps what the log's entries do: `version` is that of the record, if it
    /// is an entry, and else of the last one before it.
    pub fn entry(self, version: Version) -> LogPosition {
        LogPosition { index: self.index, term: self.term, version }
    }
}

/// How far a log has come: after which entry, and what holds from there on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Progress {
    /// The last entry.
    pub position: Position,
    /// The version of the last entry that has mutations; 0 if there never was one.
    pub version: Version,
    /// Versions up to this one may be handed out, if this is the progress of what is committed.
    pub lease: Version,
}
