//! Peeking: durable entries from some version on, while the writer goes on.
//!
//! A reader that waits for more follows the log: it gets the newest entries from memory (`tail.rs`), and
//! goes back to the files where those are no longer there.
//!
//! A reader has its own place in the chain of records and checks every step, as recovery does. It
//! looks at the shared values only when it has read all that it knew to be durable. The segment it
//! stands in is pinned, so that it is not reused below its feet; a reader that stands still thus
//! keeps segments as a consumer does. One that reads for a consumer pins nothing: the consumer holds the
//! log back, and may lose the right to.

use std::sync::Arc;

use plinth_types::{Bytes, Error, Result, Version};

use crate::format::{Kind, RECORDS_START};
use crate::link::Link;
use crate::log::{LocalView, check_kept};
use crate::problem::Flaw;
use crate::scan::Scanner;
use crate::segment::Pin;
use crate::shared::{Inner, Kept, Shared};
use crate::tail::Resume;
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
    /// The consumer it reads for. Then that holds the log back, and the reader doesn't.
    consumer: Option<String>,
    at: At,
    /// It has waited once: entries are kept in memory for it.
    follows: bool,
}

/// Where a reader stands.
enum At {
    /// Before the first entry that it was asked for.
    Start,
    /// In a file.
    File(Place),
    /// Behind an entry that it got from memory.
    Memory(Resume),
}

/// A place in a file.
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
    pub(crate) fn new(shared: Arc<Shared>, from: Version, consumer: Option<String>) -> Self {
        Self { shared, from, consumer, at: At::Start, follows: false }
    }

    /// The next durable entry; `None` if there is none yet: ask again later.
    ///
    /// # Errors
    /// `version_invalid` if the first entries asked for have been popped, or the consumer that it reads
    /// for was dropped; `file_corrupt`, saying file, offset, what was expected and what was found, if the
    /// log is damaged; errors of files.
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            self.check_consumer()?;
            if let Some(entry) = self.take_from_memory() {
                return Ok(Some(entry));
            }
            if !self.find_place()? {
                return Ok(None);
            }
            let At::File(place) = &mut self.at else { return Ok(None) };
            let (link, span, kind, body) = match place.step().await {
                Ok(step) => step,
                Err(error) => {
                    // Without a pin the file may have become another segment: that is no damage.
                    self.check_consumer()?;
                    self.check_kept()?;
                    return Err(error);
                }
            };
            let is_wanted = kind == Kind::Entry && link.version >= self.from;
            let Link { index, epoch, version, .. } = link;
            place.offset += span;
            place.link = Some(link);
            if is_wanted {
                return Ok(Some(Entry { index, epoch, version, body }));
            }
        }
    }

    /// Waits for the next durable entry. From the first call on the newest entries are kept in memory for
    /// this reader, until it is dropped.
    ///
    /// # Errors
    /// As those of [`Reader::next`]; that of [`LocalView::check`](crate::LocalView::check);
    /// `shutdown_in_progress` once the log is closed.
    pub async fn wait(&mut self) -> Result<Entry> {
        if !self.follows {
            self.follows = true;
            self.shared.with(|inner| {
                inner.tail.follow();
                // Nothing that is written is wanted: the files need not be read to find out where it ends.
                if matches!(self.at, At::Start) && self.from > inner.written.version {
                    self.at = inner.end().map_or(At::Start, At::Memory);
                }
            });
        }
        loop {
            let seen = self.shared.with(|inner| inner.committed().sequence);
            if let Some(entry) = self.next().await? {
                return Ok(entry);
            }
            let consumer = self.consumer.clone();
            let more = self.shared.until(move |inner| {
                if inner.committed().sequence > seen {
                    return Some(Ok(()));
                }
                let dropped = consumer.as_deref().and_then(|name| inner.consumers.check(name).err());
                dropped.or_else(|| inner.check_poison().err()).or_else(|| inner.is_closed()).map(Err)
            });
            more.await?;
        }
    }

    fn check_consumer(&self) -> Result<()> {
        let Some(name) = &self.consumer else { return Ok(()) };
        self.shared.with(|inner| inner.consumers.check(name))
    }

    /// An error if the segment that it stands in is part of the log no longer.
    fn check_kept(&self) -> Result<()> {
        let At::File(place) = &self.at else { return Ok(()) };
        let serial = place.pin.segment().header.serial;
        let next = place.link.as_ref().map_or(self.from, |link| link.version.saturating_add(1));
        self.shared.with(
            |inner| {
                if inner.kept(serial).is_some() { Ok(()) } else { check_kept(inner.gone(), next) }
            },
        )
    }

    /// The next entry, if it is one of those in memory.
    fn take_from_memory(&mut self) -> Option<Entry> {
        if !self.follows {
            return None;
        }
        loop {
            let index = match &self.at {
                At::Start => return None,
                At::File(place) => place.link.as_ref()?.index,
                At::Memory(after) => after.link.index,
            };
            let next = self.shared.with(|inner| {
                if index >= inner.committed().index { None } else { inner.tail.get(index + 1) }
            });
            let (entry, after) = next?;
            self.at = At::Memory(after);
            if entry.version >= self.from {
                return Some(entry);
            }
        }
    }

    /// Makes the place one at which there is a record to read. False if there is none.
    fn find_place(&mut self) -> Result<bool> {
        loop {
            if let At::File(place) = &self.at
                && place.sequence() < place.upto
            {
                return Ok(true);
            }
            let open =
                Opening { gullible: self.shared.config.replays_torn_tail(), holds: self.consumer.is_none() };
            let (at, from) = (&mut self.at, self.from);
            if !self.shared.with(|inner| at.go_on(inner, from, open))? {
                return Ok(false);
            }
            upkeep::look(&self.shared);
        }
    }
}

/// How a reader opens segments.
#[derive(Clone, Copy)]
struct Opening {
    gullible: bool,
    /// Whether it keeps the segment that it stands in.
    holds: bool,
}

impl At {
    /// Goes to where there may be more to read. False if there is nothing more.
    fn go_on(&mut self, inner: &Inner, from: Version, open: Opening) -> Result<bool> {
        let (serial, last) = match self {
            Self::Start => return self.begin(inner, from, open),
            Self::Memory(after) if after.link.sequence >= inner.committed().sequence => return Ok(false),
            Self::Memory(after) => (after.serial, Some(after.link.version)),
            Self::File(here) => {
                (here.pin.segment().header.serial, here.link.as_ref().map(|link| link.version))
            }
        };
        let Some(kept) = inner.kept(serial) else {
            // What was read is gone; if what follows isn't, the oldest segment has it.
            let next = last.map_or(from, |last| last.saturating_add(1));
            return self.begin(inner, next, open);
        };
        match self {
            Self::Start => Ok(false),
            Self::Memory(after) => {
                let mut place = Place::at_beginning(inner, kept, Some(after.link.clone()), open);
                place.offset = after.offset;
                *self = Self::File(place);
                Ok(true)
            }
            Self::File(here) => match inner.kept(serial + 1) {
                Some(next) if here.is_sealed => {
                    let link = here.link.take();
                    *self = Self::File(Place::at_beginning(inner, next, link, open));
                    Ok(true)
                }
                _ => Ok(here.look_again(inner)),
            },
        }
    }

    fn begin(&mut self, inner: &Inner, from: Version, open: Opening) -> Result<bool> {
        let Some(kept) = inner.first_with(from)? else { return Ok(false) };
        *self = Self::File(Place::at_beginning(inner, kept, None, open));
        Ok(true)
    }
}

impl Place {
    fn at_beginning(inner: &Inner, kept: &Kept, link: Option<Link>, open: Opening) -> Self {
        let segment = kept.segment.clone();
        let scanner = Scanner::new(segment.file.clone(), segment.seed, RECORDS_START, open.gullible);
        let before = kept.before.0;
        let pin = Pin::new(segment, open.holds);
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
        let Some(kept) = inner.kept(serial) else { return false };
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
    async fn step(&mut self) -> Result<(Link, u64, Kind, Bytes)> {
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
            Ok(()) => Ok((link, header.span(), header.kind, body)),
            Err(flaw) => Err(Error::from(flaw.at(&name(), self.offset))),
        }
    }
}

impl Inner {
    /// Behind the last record that is written.
    fn end(&self) -> Option<Resume> {
        let last = self.segments.back()?;
        let (serial, offset) = (last.segment.header.serial, last.end);
        Some(Resume { serial, offset, link: self.written.clone() })
    }

    /// The segment with this serial number, unless it is going.
    fn kept(&self, serial: u64) -> Option<&Kept> {
        let mut kept = self.segments.iter().filter(|kept| !kept.leaving);
        kept.find(|kept| kept.segment.header.serial == serial)
    }

    /// The segment with the first entry at or above version `from`, or the last segment.
    fn first_with(&self, from: Version) -> Result<Option<&Kept>> {
        check_kept(self.gone(), from)?;
        let mut kept = self.segments.iter().filter(|kept| !kept.leaving);
        let oldest = kept.next();
        Ok(kept.take_while(|kept| kept.before.2 < from).last().or(oldest))
    }
}

impl LocalView {
    /// Reads durable entries for a consumer, from where it stands. The reader keeps nothing by itself.
    ///
    /// # Errors
    /// `client_invalid_operation` if there is no such consumer; `version_invalid` if it was dropped.
    pub fn reader_of(&self, consumer: &str) -> Result<Reader> {
        let from = self.shared.with(|inner| inner.consumers.next_of(consumer))?;
        Ok(Reader::new(self.shared.clone(), from, Some(consumer.to_string())))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.at = At::Start;
        if self.follows {
            self.shared.with(|inner| inner.tail.leave());
        }
        upkeep::look(&self.shared);
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("from", &self.from).finish()
    }
}
