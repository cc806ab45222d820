//! Which segments are kept: for whom, from which entry on, and who loses the right to have any
//! kept.

use plinth_types::{Version, probe};

use crate::consumers::Dropped;
use crate::failure::{LogError, LogResult};
use crate::format::RECORDS_START;
use crate::shared::{Before, Inner, Kept};

impl Inner {
    /// After what the log begins.
    pub(crate) fn gone(&self) -> Before {
        let first = self.segments.iter().find(|kept| !kept.leaving);
        first.map_or_else(Before::default, |kept| kept.before)
    }

    /// Whether entries from version `from` on are all there.
    pub(crate) fn check_kept(&self, from: Version) -> LogResult<()> {
        let gone = self.gone();
        if gone.index == 0 || from > gone.version {
            return Ok(());
        }
        let detail = format!(
            "entries from version {from} on were asked for, those up to {} have been popped",
            gone.version
        );
        Err(LogError::Version(detail))
    }

    /// The segment with this serial number, unless it is going.
    pub(crate) fn kept(&self, serial: u64) -> Option<&Kept> {
        let mut kept = self.segments.iter().filter(|kept| !kept.leaving);
        kept.find(|kept| kept.segment.header.serial == serial)
    }

    /// The segment with the first entry at or above version `from`, or the last segment.
    pub(crate) fn first_with(&self, from: Version) -> LogResult<Option<&Kept>> {
        self.check_kept(from)?;
        let mut kept = self.segments.iter().filter(|kept| !kept.leaving);
        let oldest = kept.next();
        Ok(kept.take_while(|kept| kept.before.version < from).last().or(oldest))
    }

    /// Takes the right to hold anything back from consumers that hold back more than they may. A
    /// segment has just become full.
    pub(crate) fn drop_laggards(&mut self) -> Vec<Dropped> {
        let held = self.consumers.bounded().map(|(name, popped, bound_bytes)| Dropped {
            name: name.to_string(),
            popped,
            held_bytes: self.held_bytes(popped),
            bound_bytes,
        });
        let laggards: Vec<_> =
            held.filter(|consumer| consumer.held_bytes > consumer.bound_bytes).collect();
        for laggard in &laggards {
            probe!("log: consumer dropped");
            self.consumers.put_out(laggard.clone());
        }
        laggards
    }

    /// Bytes of full segments, without the last one, that could go, but for somebody who needs what
    /// comes after version `popped`.
    pub(crate) fn held_bytes(&self, popped: Version) -> u64 {
        let count = self.segments.len().saturating_sub(2);
        let held = self.full().take(count).filter(|(_, last)| *last > popped);
        held.map(|(kept, _)| kept.end - RECORDS_START).sum()
    }

    /// Bytes of full segments that go if nobody needs entries from version `from` up to below
    /// `until`.
    pub(crate) fn bytes_between(&self, from: Version, until: Version) -> u64 {
        let goes = self.full().filter(|(_, last)| *last >= from && *last < until);
        goes.map(|(kept, _)| kept.end - RECORDS_START).sum()
    }

    /// Full segments, oldest first, each with the version of its last entry.
    fn full(&self) -> impl Iterator<Item = (&Kept, Version)> {
        self.segments.iter().zip(self.segments.iter().skip(1).map(|next| next.before.version))
    }

    /// The segment with the entry of this index, which is written.
    pub(crate) fn with_index(&self, index: u64) -> LogResult<&Kept> {
        let gone = self.gone().index;
        let kept = self.segments.iter().filter(|kept| !kept.leaving);
        let found = kept.take_while(|kept| kept.before.index < index).last();
        found.ok_or_else(|| {
            let detail = format!("entry {index} was asked for, those up to {gone} are gone");
            LogError::Version(detail)
        })
    }
}
