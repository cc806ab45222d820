//! What a log is opened with.
//!
//! Plain data, compared and copied; the limits of the settings are checked where a log is made or
//! opened, so nothing here holds more than its fields say.

use plinth_format::Keys;

use crate::failure::{LogError, LogResult};

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
    /// By these what is written is sealed, and what was written is opened; none: it is written as
    /// it is.
    pub keys: Keys,
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
            keys: Keys::none(),
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

    pub(crate) fn check(&self) -> LogResult<()> {
        let refuse = |what: String| Err(LogError::Option(what));
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
