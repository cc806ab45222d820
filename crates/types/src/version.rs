//! Versions: the logical clock of the database, about a million ticks a second.

use std::fmt;

/// A point in the database's history. Fits an `i64` and is never negative once assigned; larger is
/// later.
pub type Version = i64;

/// How far something has come in the commit log: the last entry with mutations that it has
/// everything of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct LogPosition {
    /// The entry's number in the log; 0 before the first one, and in a database without a log.
    pub index: u64,
    /// The term in which it was made.
    pub term: u64,
    /// Its version. Of two positions in one log the later one never has a lower version.
    pub version: Version,
}

impl LogPosition {
    /// That of a version in a database that has no log, or before the first entry of one.
    pub fn without_log(version: Version) -> Self {
        Self { index: 0, term: 0, version }
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, term, version } = self;
        write!(f, "entry {index} of term {term} at version {version}")
    }
}

/// The version that "no version" is reported as: before a commit, and for a read-only commit.
pub const INVALID_VERSION: Version = -1;

/// How many versions pass in a second, nearly.
pub const VERSIONS_PER_SECOND: i64 = 1_000_000;

/// How far a restart moves versions ahead, so that no transaction spans two runs.
pub const VERSION_JUMP_AT_RESTART: i64 = 100_000_000;

/// The 10-byte identity of a committed transaction: its version and its position in the batch, both
/// big-endian.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Versionstamp([u8; Versionstamp::LEN]);

impl Versionstamp {
    /// Bytes in a versionstamp.
    pub const LEN: usize = 10;

    /// The stamp of the transaction at position `batch_index` of the batch committed at `version`.
    pub fn new(version: Version, batch_index: u16) -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&version.to_be_bytes());
        bytes[8..].copy_from_slice(&batch_index.to_be_bytes());
        Self(bytes)
    }

    /// The stamp that these ten bytes spell.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The ten bytes as they appear in keys and values.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// The commit version in this stamp.
    pub fn version(&self) -> Version {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        Version::from_be_bytes(bytes)
    }

    /// The position in its batch.
    pub fn batch_index(&self) -> u16 {
        u16::from_be_bytes([self.0[8], self.0[9]])
    }
}

impl fmt::Debug for Versionstamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Versionstamp({}, {})", self.version(), self.batch_index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_order_by_version_then_position() {
        assert!(Versionstamp::new(1, 9) < Versionstamp::new(2, 0));
        assert!(Versionstamp::new(2, 0) < Versionstamp::new(2, 1));
        let stamp = Versionstamp::new(0x0102_0304_0506_0708, 0x090a);
        assert_eq!(stamp.as_bytes(), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!((stamp.version(), stamp.batch_index()), (0x0102_0304_0506_0708, 0x090a));
    }
}
