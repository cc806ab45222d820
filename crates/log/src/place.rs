//! A place in a segment file, from which a reader goes on record by record.
//!
//! It knows up to which record it may read, and which entries are void, as of the last time it
//! looked at the shared values ([`Place::look_again`]); in between it takes no lock. Each step is
//! checked against the record before, as recovery does.

use plinth_format::Flaw;

use crate::entry::Entry;
use crate::failure::LogResult;
use crate::format::{Body, RECORDS_START};
use crate::history::{Voids, is_void};
use crate::link::{Link, Memory};
use crate::scan::Scanner;
use crate::segment::Pin;
use crate::shared::{Inner, Kept};

/// How a reader opens segments.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) gullible: bool,
    /// Whether it keeps the segment that it stands in.
    pub(crate) holds: bool,
}

/// A place in a file.
pub(crate) struct Place {
    pub(crate) pin: Pin,
    scanner: Scanner,
    pub(crate) offset: u64,
    pub(crate) link: Option<Link>,
    /// Number of the record before this segment.
    before: u64,
    /// Number of the last record known to be in this segment that may be read.
    pub(crate) upto: u64,
    /// Whether records after that one are in the next segment.
    pub(crate) is_sealed: bool,
    voids: Voids,
}

impl Place {
    /// At the beginning of a segment, behind `link` if anything before it was read. Records up to
    /// number `readable` may be read.
    pub(crate) fn at_beginning(
        inner: &Inner,
        kept: &Kept,
        link: Option<Link>,
        (open, readable): (Opening, u64),
    ) -> Self {
        let segment = kept.segment.clone();
        let scanner = Scanner::of(&segment, RECORDS_START, open.gullible);
        let before = kept.before.sequence;
        let pin = Pin::new(segment, open.holds);
        let (voids, seen) = (Voids::default(), before);
        let offset = RECORDS_START;
        let mut place =
            Self { pin, scanner, offset, link, before, upto: seen, is_sealed: false, voids };
        place.look_again(inner, readable);
        place
    }

    /// The index of the last entry read, if a reader in memory could go on behind it.
    pub(crate) fn last_index(&self) -> Option<u64> {
        let link = self.link.as_ref()?;
        if is_void(&self.voids, link.sequence) { None } else { Some(link.index) }
    }

    /// Number of the last record read.
    pub(crate) fn sequence(&self) -> u64 {
        self.link.as_ref().map_or(self.before, |link| link.sequence)
    }

    /// Learns how much of the segment may be read by now. True if that is more than before.
    pub(crate) fn look_again(&mut self, inner: &Inner, readable: u64) -> bool {
        let serial = self.pin.segment().header.serial;
        let Some(kept) = inner.kept(serial) else { return false };
        let upto = kept.last.min(readable);
        let was_sealed = std::mem::replace(&mut self.is_sealed, kept.last < readable);
        self.voids = inner.history.voids().clone();
        let is_more = upto > self.upto || self.is_sealed != was_sealed;
        self.upto = upto;
        self.scanner.raise_limit(kept.end);
        is_more
    }

    /// Reads the record at this place, and goes on behind it. Gives the entry in it, unless it is
    /// one of the log's own, or void.
    pub(crate) async fn step(&mut self) -> LogResult<Option<Entry>> {
        let name = || self.pin.segment().name();
        let (header, body) = match self.scanner.record(self.offset).await? {
            Ok(record) => record,
            Err(flaw) => return Err(flaw.at(&name(), self.offset).into()),
        };
        let expected = self.sequence().saturating_add(1);
        if header.sequence != expected {
            let flaw = Flaw::new("number of a record", expected, header.sequence);
            return Err(flaw.at(&name(), self.offset).into());
        }
        let mut link =
            self.link.clone().unwrap_or_else(|| Link::before(&header, Memory::default()));
        if let Err(flaw) = link.follow(&header, &body) {
            return Err(flaw.at(&name(), self.offset).into());
        }
        self.offset += header.span();
        self.link = Some(link);
        match body {
            Body::Open(body) if !is_void(&self.voids, header.sequence) => Ok(header.entry(body)),
            _ => Ok(None),
        }
    }
}
