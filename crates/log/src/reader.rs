//! Peeking: committed entries from some version on, while the writer goes on.
//!
//! A reader that waits for more follows the log: it gets the newest entries from memory
//! (`tail.rs`), and goes back to the files where those are no longer there.
//!
//! A reader has its own place in the chain of records and checks every step, as recovery does. It
//! looks at the shared values only when it has read all that it knew to be committed. The segment
//! it stands in is pinned, so that it is not reused below its feet; a reader that stands still thus
//! keeps segments as a consumer does. One that reads for a consumer pins nothing: the consumer
//! holds the log back, and may lose the right to.

use std::sync::Arc;

use plinth_types::{Version, probe};

use crate::entry::Entry;
use crate::failure::LogResult;
use crate::place::{Opening, Place};
use crate::shared::{Commits, Inner, Shared};
use crate::tail::Resume;
use crate::upkeep;

/// Reads committed entries with mutations in order.
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

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, from: Version, consumer: Option<String>) -> Self {
        Self { shared, from, consumer, at: At::Start, follows: false }
    }

    /// The next committed entry; `None` if there is none yet: ask again later.
    ///
    /// # Errors
    /// `Version` if the first entries asked for have been popped, or the consumer that it
    /// reads for was dropped; `Corrupt`, saying file, offset, what was expected and what was
    /// found, if the log is damaged; errors of files.
    pub async fn next(&mut self) -> LogResult<Option<Entry>> {
        loop {
            self.check_consumer()?;
            if let Some(entry) = self.take_from_memory() {
                return Ok(Some(entry));
            }
            if !self.find_place()? {
                return Ok(None);
            }
            let At::File(place) = &mut self.at else { return Ok(None) };
            let entry = match place.step().await {
                Ok(entry) => entry,
                Err(error) => {
                    // Without a pin the file may have become another segment: that is no damage.
                    self.check_consumer()?;
                    if self.leave_what_is_gone()? {
                        continue;
                    }
                    self.shared.note_damage(&error);
                    return Err(error);
                }
            };
            if let Some(entry) = entry.filter(|entry| is_wanted(entry, self.from)) {
                return Ok(Some(entry));
            }
        }
    }

    /// Waits for the next committed entry. From the first call on the newest entries are kept in
    /// memory for this reader, until it is dropped.
    ///
    /// # Errors
    /// As those of [`Reader::next`]; that of [`LocalView::check`](crate::LocalView::check);
    /// `Closed` once the log is closed.
    pub async fn wait(&mut self) -> LogResult<Entry> {
        self.follow();
        loop {
            let seen = self.shared.with(|inner| inner.committed().sequence);
            if let Some(entry) = self.next().await? {
                return Ok(entry);
            }
            let consumer = self.consumer.clone();
            let more = self.shared.until_more(move |inner| {
                if inner.committed().sequence > seen {
                    return Some(Ok(()));
                }
                let dropped =
                    consumer.as_deref().and_then(|name| inner.consumers.check(name).err());
                dropped
                    .or_else(|| inner.check_poison().err())
                    .or_else(|| inner.is_closed())
                    .map(Err)
            });
            more.await?;
        }
    }

    /// From now on the newest entries are kept in memory for this reader, until it is dropped.
    pub fn follow(&mut self) {
        if std::mem::replace(&mut self.follows, true) {
            return;
        }
        self.shared.with(|inner| {
            inner.tail.follow();
            // Nothing that is written is wanted: the files need not be read to find out where it
            // ends. What may still be voided is no place to go on from.
            let is_certain = inner.commits == Commits::WhenDurable
                || inner.committed().sequence == inner.written.sequence;
            if is_certain && matches!(self.at, At::Start) && self.from > inner.written.version {
                self.at = inner.end().map_or(At::Start, At::Memory);
            }
        });
    }

    fn check_consumer(&self) -> LogResult<()> {
        let Some(name) = &self.consumer else { return Ok(()) };
        self.shared.with(|inner| inner.consumers.check(name))
    }

    /// If the segment that it stands in is part of the log no longer, goes to where what it has yet
    /// to read begins.
    ///
    /// # Errors
    /// `Version` if that is gone, too.
    fn leave_what_is_gone(&mut self) -> LogResult<bool> {
        let At::File(place) = &self.at else { return Ok(false) };
        let serial = place.pin.segment().header.serial;
        let next = place.link.as_ref().map_or(self.from, |link| link.version.saturating_add(1));
        let is_gone = self.shared.with(|inner| match inner.kept(serial) {
            Some(_) => Ok(false),
            None => inner.check_kept(next).map(|()| true),
        })?;
        if is_gone {
            probe!("log: a reader leaves a segment that has become another one");
            self.from = self.from.max(next);
            self.at = At::Start;
        }
        Ok(is_gone)
    }

    /// The next entry, if it is one of those in memory.
    fn take_from_memory(&mut self) -> Option<Entry> {
        if !self.follows {
            return None;
        }
        loop {
            let index = match &self.at {
                At::Start => {
                    // Who begins among the newest entries need not look for them in the files.
                    let begin =
                        |inner: &mut Inner| inner.tail.before(self.from, inner.committed().index);
                    self.at = At::Memory(self.shared.with(begin)?);
                    continue;
                }
                At::File(place) => place.last_index()?,
                At::Memory(after) => after.link.index,
            };
            let next = self.shared.with(|inner| {
                if index >= inner.committed().index { None } else { inner.tail.get(index + 1) }
            });
            let (entry, after) = next?;
            self.at = At::Memory(after);
            if is_wanted(&entry, self.from) {
                return Some(entry);
            }
        }
    }

    /// Makes the place one at which there is a record to read. False if there is none.
    fn find_place(&mut self) -> LogResult<bool> {
        loop {
            if let At::File(place) = &self.at
                && place.sequence() < place.upto
            {
                return Ok(true);
            }
            let open = Opening {
                gullible: self.shared.config.replays_torn_tail(),
                holds: self.consumer.is_none(),
            };
            let (at, from) = (&mut self.at, self.from);
            if !self.shared.with(|inner| at.go_on(inner, from, open))? {
                return Ok(false);
            }
            upkeep::look(&self.shared);
        }
    }
}

impl At {
    /// Goes to where there may be more to read. False if there is nothing more.
    fn go_on(&mut self, inner: &Inner, from: Version, open: Opening) -> LogResult<bool> {
        let readable = inner.committed().sequence;
        let (serial, last) = match self {
            Self::Start => return self.begin(inner, from, open),
            Self::Memory(after) if after.link.sequence >= inner.committed().sequence => {
                return Ok(false);
            }
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
                let mut place =
                    Place::at_beginning(inner, kept, Some(after.link.clone()), (open, readable));
                place.offset = after.offset;
                *self = Self::File(place);
                Ok(true)
            }
            Self::File(here) => match inner.kept(serial + 1) {
                Some(next) if here.is_sealed => {
                    let link = here.link.take();
                    *self = Self::File(Place::at_beginning(inner, next, link, (open, readable)));
                    Ok(true)
                }
                _ => Ok(here.look_again(inner, readable)),
            },
        }
    }

    fn begin(&mut self, inner: &Inner, from: Version, open: Opening) -> LogResult<bool> {
        let Some(kept) = inner.first_with(from)? else { return Ok(false) };
        *self =
            Self::File(Place::at_beginning(inner, kept, None, (open, inner.committed().sequence)));
        Ok(true)
    }
}

fn is_wanted(entry: &Entry, from: Version) -> bool {
    entry.kind.has_mutations() && entry.version >= from
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
