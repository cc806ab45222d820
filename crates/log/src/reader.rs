//! Peeking: durable entries from some version on, while the writer goes on.
//!
//! A reader has its own place in the chain of records and checks every step, as recovery does. It
//! looks at the shared values only when it has read all that it knew to be durable. The segment it
//! stands in is pinned, so that it is not reused below its feet; a reader that stands still thus
//! keeps segments as a consumer does.

use std::sync::Arc;

use plinth_types::{Bytes, Error, Result, Version};

use crate::format::{Kind, RECORDS_START};
use crate::link::Link;
use crate::log::check_kept;
use crate::problem::Flaw;
use crate::scan::Scanner;
use crate::segment::Pin;
use crate::shared::{Inner, Kept, Shared};
use crate::upkeep;

/// An entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Number of the entry, counted from 1 without gaps.
    pub index: u64,
    /// Which opening of the log wrote it.
    pub epoch: u64,
    /// Version of the entry; larger than those before it.
    pub version: Version,
    /// What was appended. A slice of a larger piece of the file (256 KiB or more): whoever keeps a small
    /// part for long should copy it.
    pub body: Bytes,
}

/// Reads durable entries in order.
pub struct Reader {
    shared: Arc<Shared>,
    from: Version,
    place: Option<Place>,
}

/// Where a reader stands.
struct Place {
    pin: Pin,
    scanner: Scanner,
    offset: u64,
    link: Option<Link>,
    /// Number of the record before this segment.
    before: u64,
    /// Number of the last durable record known to be in this segment.
    upto: u64,
    /// Whether records after that one are in the next segment.
    is_sealed: bool,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, from: Version) -> Self {
        Self { shared, from, place: None }
    }

    /// The next durable entry; `None` if there is none yet: ask again later.
    ///
    /// # Errors
    /// `version_invalid` if the first entries asked for have been popped; `file_corrupt`, saying file,
    /// offset, what was expected and what was found, if the log is damaged; errors of files.
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            if !self.find_place()? {
                return Ok(None);
            }
            let Some(place) = &mut self.place else { return Ok(None) };
            let (link, body) = place.step().await?;
            place.offset += link.1;
            let is_wanted = link.2 == Kind::Entry && link.0.version >= self.from;
            let Link { index, epoch, version, .. } = link.0;
            place.link = Some(link.0);
            if is_wanted {
                return Ok(Some(Entry { index, epoch, version, body }));
            }
        }
    }

    /// Makes `place` one at which there is a record to read. False if there is none.
    fn find_place(&mut self) -> Result<bool> {
        loop {
            if let Some(place) = &self.place
                && place.sequence() < place.upto
            {
                return Ok(true);
            }
            let (shared, place, from) = (&self.shared, &mut self.place, self.from);
            let gullible = shared.config.replays_torn_tail();
            let moved: Result<bool> = shared.with(|inner| match place {
                None => {
                    let kept = inner.first_with(from)?;
                    *place = kept.map(|kept| Place::at_beginning(inner, kept, None, gullible));
                    Ok(place.is_some())
                }
                Some(here) => {
                    let serial = here.pin.segment().header.serial;
                    let next = inner.segments.iter().find(|kept| kept.segment.header.serial == serial + 1);
                    match next {
                        Some(next) if here.is_sealed => {
                            let link = here.link.take();
                            *place = Some(Place::at_beginning(inner, next, link, gullible));
                            Ok(true)
                        }
                        _ => Ok(here.look_again(inner)),
                    }
                }
            });
            if !moved? {
                return Ok(false);
            }
            upkeep::look(&self.shared);
        }
    }
}

impl Place {
    fn at_beginning(inner: &Inner, kept: &Kept, link: Option<Link>, gullible: bool) -> Self {
        let segment = kept.segment.clone();
        let scanner = Scanner::new(segment.file.clone(), segment.seed, RECORDS_START, gullible);
        let before = kept.before.0;
        let pin = Pin::new(segment);
        let mut place =
            Self { pin, scanner, offset: RECORDS_START, link, before, upto: before, is_sealed: false };
        place.look_again(inner);
        place
    }

    /// Number of the last record read.
    fn sequence(&self) -> u64 {
        self.link.as_ref().map_or(self.before, |link| link.sequence)
    }

    /// Learns how much of the segment is durable by now. True if that is more than before.
    fn look_again(&mut self, inner: &Inner) -> bool {
        let serial = self.pin.segment().header.serial;
        let Some(kept) = inner.segments.iter().find(|kept| kept.segment.header.serial == serial) else {
            return false;
        };
        let durable = inner.durable.sequence;
        let upto = kept.last.min(durable);
        let was_sealed = std::mem::replace(&mut self.is_sealed, kept.last < durable);
        let is_more = upto > self.upto || self.is_sealed != was_sealed;
        self.upto = upto;
        self.scanner.raise_limit(kept.end);
        is_more
    }

    /// Reads the record at this place. Gives where the chain stands after it, its length in the file, its
    /// kind, and its body.
    async fn step(&mut self) -> Result<((Link, u64, Kind), Bytes)> {
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
        let mut link = self.link.clone().unwrap_or_else(|| Link::before(&header, Arc::default()));
        match link.follow(&header, &body) {
            Ok(()) => Ok(((link, header.span(), header.kind), body)),
            Err(flaw) => Err(Error::from(flaw.at(&name(), self.offset))),
        }
    }
}

impl Inner {
    /// The segment with the first entry at or above version `from`, or the last segment.
    fn first_with(&self, from: Version) -> Result<Option<&Kept>> {
        check_kept(self.gone(), from)?;
        let mut kept = self.segments.iter().filter(|kept| !kept.leaving);
        let oldest = kept.next();
        Ok(kept.take_while(|kept| kept.before.2 < from).last().or(oldest))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.place = None;
        upkeep::look(&self.shared);
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("from", &self.from).finish()
    }
}
