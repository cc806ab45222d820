//! What a log is opened with, and the small values that its callers hold.
//!
//! Plain data, compared and copied; the limits of the settings are checked where a log is made or
//! opened, so nothing here holds more than its fields say.

use std::collections::BTreeMap;

use plinth_types::{Error, LogPosition, Result, Version};

use crate::landmarks::Landmarks;
use crate::link::Link;

/// Whose log it is. Stands in every file; a log with other ids is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster that the node belongs to.
    pub cluster_id: [u8; 16],
    /// The node.
    pub node_id: [u8; 16],
}

/// A record's place in the log: what [`Syncer::sync`](crate::Syncer::sync) takes. Later is larger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Position {
    pub(crate) sequence: u64,
    index: u64,
    term: u64,
}

impl Position {
    /// The position of the record with this number, in a log where it is an entry and so is each
    /// one before it.
    pub fn from_sequence(sequence: u64) -> Self {
        Self { sequence, index: sequence, term: 0 }
    }

    pub(crate) fn of(link: &Link) -> Self {
        Self { sequence: link.sequence, index: link.index, term: link.term }
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

/// How a log lays itself out. [`LogConfig::default`] suits a database of any size.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Which log this is, where several share a sequencer.
    pub log_id: u64,
    /// Bytes of the first segment file. Each later one is twice as large as the one before it ...
    pub first_segment_bytes: u64,
    /// ... up to this.
    pub max_segment_bytes: u64,
    /// How many bytes of segment files that nobody needs any longer are kept for use as new ones.
    pub spare_bytes: u64,
    /// How many syncs may be in flight at the same time.
    pub syncs_in_flight: usize,
    /// Bytes of the newest entries that are kept in memory while a reader follows the log.
    pub tail_bytes: usize,
    /// A bug to have, for tests of tests.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub planted: crate::planted::Planted,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            log_id: 0,
            first_segment_bytes: 1 << 20,
            max_segment_bytes: 64 << 20,
            spare_bytes: 256 << 20,
            syncs_in_flight: 2,
            tail_bytes: 16 << 20,
            #[cfg(feature = "planted-bugs")]
            planted: crate::planted::Planted::None,
        }
    }
}

impl LogConfig {
    /// The smallest segment file that makes sense: its header and room for a few records.
    pub const MIN_SEGMENT_BYTES: u64 = 8 << 10;

    /// The most syncs that may be asked to be in flight: each has a handle of its own on the file.
    pub const MAX_SYNCS_IN_FLIGHT: usize = 16;

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::invalid_option_value().with_detail(what));
        if self.first_segment_bytes < Self::MIN_SEGMENT_BYTES {
            let (bytes, least) = (self.first_segment_bytes, Self::MIN_SEGMENT_BYTES);
            return refuse(format!("first_segment_bytes is {bytes}, at least {least} are needed"));
        }
        if self.max_segment_bytes < self.first_segment_bytes {
            return refuse("max_segment_bytes is below first_segment_bytes".to_string());
        }
        if self.syncs_in_flight == 0 || self.syncs_in_flight > Self::MAX_SYNCS_IN_FLIGHT {
            let (syncs, most) = (self.syncs_in_flight, Self::MAX_SYNCS_IN_FLIGHT);
            return refuse(format!("syncs_in_flight is {syncs}, it may be 1 to {most}"));
        }
        Ok(())
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn skips_sync(&self) -> bool {
        self.planted == crate::planted::Planted::SkipSync
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn skips_sync(&self) -> bool {
        false
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn replays_torn_tail(&self) -> bool {
        self.planted == crate::planted::Planted::ReplayTornTail
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn replays_torn_tail(&self) -> bool {
        false
    }
}

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
