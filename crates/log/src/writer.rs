//! Appending: the one writer's part of the log.
//!
//! Every append is one write call. The record (preceded by a state record where consumers have
//! changed, or where a segment begins) is put together in a buffer that is kept. Where a write
//! enters a new block of the file it is filled up with zeros to the block's end: the operating
//! system then need not read the block from the disk first, which in a recycled file it otherwise
//! would. Nothing about the log changes before the write has succeeded, so an append that fails
//! appended nothing and the next one writes to the same place.

use std::sync::Arc;

use plinth_format::crypt::Nonces;
use plinth_types::Bytes;

use crate::consumers::Dropped;
use crate::entry::EntryHead;
use crate::failure::{LogError, LogResult};
use crate::format::{
    MAX_BODY_LEN, RECORD_HEADER_LEN, RECORDS_START, RecordHeader, SEALING_LEN, State, Vote,
    record_span,
};
use crate::frame::{BLOCK, Frame, Known, Sealing, padded_end};
use crate::link::{Link, Popped};
use crate::position::Position;
use crate::segment::Segment;
use crate::shared::{Before, Inner, Kept, Shared};
use crate::supply::{Next, Prepared};
use crate::tail::Resume;
use crate::upkeep;

/// A write buffer that has grown beyond this is given back.
const BUFFER_KEPT: usize = 8 << 20;

/// An entry on its way into the log.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub(crate) head: EntryHead,
    pub(crate) parts: &'a [&'a [u8]],
}

impl NewEntry<'_> {
    fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

/// What is to be written.
pub(crate) enum Wanted<'a> {
    /// Consumers, as they are now.
    State,
    Vote(Vote),
    /// The place to go back to.
    Rewind(&'a Link),
    Entry(NewEntry<'a>),
}

impl Wanted<'_> {
    /// Bytes that it takes in the file, but for a state, if sealing adds so many.
    fn span(&self, sealing: u64) -> u64 {
        match self {
            Self::State => 0,
            Self::Vote(vote) => record_span(vote.encode().len() as u64 + sealing),
            Self::Rewind(_) => record_span(size_of::<u64>() as u64 + sealing),
            Self::Entry(entry) => record_span(entry.len() + sealing),
        }
    }

    fn entry(&self) -> Option<&NewEntry<'_>> {
        if let Self::Entry(entry) = self { Some(entry) } else { None }
    }
}

/// Where the next record goes.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    opening: u32,
    /// The last record written.
    pub(crate) link: Link,
    segment: Arc<Segment>,
    end: u64,
    /// Up to where bytes of unknown origin may follow `end`.
    dirty: u64,
    /// Which change of the consumers has been written down.
    generation: u64,
    buffer: Vec<u8>,
    nonces: Nonces,
}

/// A write that has been put together.
struct Draft {
    /// The segment to go on in, if not the one being written to.
    switch: Option<Prepared>,
    start: u64,
    /// Bytes of records; the buffer may be longer.
    len: u64,
    link: Link,
    /// The header of the last record.
    last: Option<RecordHeader>,
    generation: u64,
    /// The last record that they say is durable.
    durable_sequence: u64,
    body: Drafted,
}

/// The body of the entry in a draft, which is the last record.
enum Drafted {
    /// There is no entry.
    None,
    /// It stands in the buffer, with so many bytes.
    InBuffer(u64),
    /// That is sealed there, so it was kept, if readers follow.
    Kept(Option<Bytes>),
}

impl Writer {
    /// Goes on behind `link`; `opening` is the number of this opening, up to `dirty` bytes of
    /// unknown origin may follow.
    pub(crate) fn new(
        shared: Arc<Shared>,
        link: Link,
        (opening, dirty): (u32, u64),
        nonces: Nonces,
    ) -> Self {
        let (segment, end) = shared.with(|inner| {
            let last = inner.segments.back().expect("a log has a segment");
            (last.segment.clone(), last.end)
        });
        let (generation, buffer) = (0, Vec::new());
        Self { shared, opening, link, segment, end, dirty, generation, buffer, nonces }
    }

    /// Whether consumers have changed since the last record.
    pub(crate) fn has_news(&self) -> bool {
        self.shared.with(|inner| inner.consumers.generation != self.generation)
    }

    /// Writes a state record with the consumers as they are now.
    pub(crate) async fn write_state(&mut self) -> LogResult<Position> {
        self.write(Wanted::State).await
    }

    /// Writes an entry, with a state record before it if that is due.
    pub(crate) async fn write_entry(&mut self, entry: NewEntry<'_>) -> LogResult<Position> {
        if entry.len() + self.sealing_len() > MAX_BODY_LEN {
            let detail =
                format!("an entry of {} bytes; the log takes up to {MAX_BODY_LEN}", entry.len());
            return Err(LogError::TooLarge(detail));
        }
        let (head, last) = (&entry.head, &self.link);
        let has_version = head.kind.has_mutations();
        if head.previous != last.version
            || head.version < last.version
            || (head.version > last.version) != has_version
            || head.committed > head.previous
        {
            let EntryHead { version, previous, committed, .. } = head;
            let detail = format!(
                "entry at version {version} behind {previous}, {committed} committed; the last one is at {}",
                last.version
            );
            return Err(LogError::Version(detail));
        }
        if head.index != last.index + 1 || head.term < last.term {
            let EntryHead { index, term, .. } = head;
            let detail = format!(
                "entry {index} of term {term}; the last one is {} of term {}",
                last.index, last.term
            );
            return Err(LogError::Misused(detail));
        }
        self.write(Wanted::Entry(entry)).await
    }

    /// Writes one record, with a state record before it if that is due.
    pub(crate) async fn write(&mut self, wanted: Wanted<'_>) -> LogResult<Position> {
        let draft = self.draft(&wanted).await?;
        let segment = match &draft.switch {
            Some(next) => next.segment.clone(),
            None => {
                // Noted before, so that it holds also if this future is dropped in the middle of
                // the write.
                self.dirty = self.dirty.max(draft.start + self.buffer.len() as u64);
                self.segment.clone()
            }
        };
        let written = segment.file.write_all_at(draft.start, &self.buffer).await;
        match written {
            Ok(()) => self.accept(draft),
            Err(error) => {
                self.reject(draft, &segment).await;
                return Err(error.into());
            }
        }
        if self.buffer.capacity() > BUFFER_KEPT {
            self.buffer = Vec::new();
        }
        Ok(self.link.position())
    }

    /// Puts the bytes of the next write into the buffer.
    async fn draft(&mut self, wanted: &Wanted<'_>) -> LogResult<Draft> {
        let (known, changed, generation) = self.shared.with(|inner| {
            inner.check_poison()?;
            let generation = inner.consumers.generation;
            let changed =
                (generation != self.generation).then(|| Arc::new(inner.consumers.popped()));
            if changed.is_some() {
                inner.consumers.say(self.link.sequence + 1);
            }
            let (durable, committed) = (inner.durable.sequence, inner.committed().version);
            let known = Known { opening: self.opening, durable, committed };
            Ok::<_, LogError>((known, changed, generation))
        })?;
        let mut popped: Option<Popped> = changed;
        if matches!(wanted, Wanted::State) && popped.is_none() {
            popped = Some(self.link.memory.popped.clone());
        }
        let added = self.sealing_len();
        let state_span =
            popped.as_deref().map_or(0, |popped| record_span(State::encoded_len(popped) + added));
        let span = state_span + wanted.span(added);
        // State records may use a part of the segment that entries don't: a restart on a full disk
        // needs one.
        let is_entry = matches!(wanted, Wanted::Entry(_));
        let reserve = if is_entry { (self.segment.header.bytes / 16).min(BLOCK) } else { 0 };
        let switch =
            if self.is_full(span + reserve) { Some(self.next_segment().await?) } else { None };
        if switch.is_some() && popped.is_none() {
            popped = Some(self.link.memory.popped.clone());
        }
        let (segment, start, dirty) = match &switch {
            Some(next) => (&next.segment, RECORDS_START, next.dirty),
            None => (&self.segment, self.end, self.dirty),
        };
        let sealing =
            Sealing { seed: segment.seed, cipher: &segment.cipher, nonces: &mut self.nonces };
        let mut frame = Frame::new(&mut self.buffer, sealing, known, self.link.clone());
        if let Some(popped) = popped {
            frame.put_state(popped);
        }
        match wanted {
            Wanted::State => {}
            Wanted::Vote(vote) => frame.put_vote(*vote),
            Wanted::Rewind(target) => frame.put_rewind(target),
            Wanted::Entry(entry) => frame.put_entry(&entry.head, entry.parts),
        }
        let (link, last) = frame.finish();
        let len = self.buffer.len() as u64;
        assert_eq!(len % 8, 0, "records end at multiples of 8");
        // Beyond its room a file is made no longer than records need.
        let room = segment.header.bytes.max(start + len);
        let end = padded_end(start, start + len).max(dirty).min(room);
        self.buffer.resize(usize::try_from(end - start).unwrap_or(usize::MAX), 0);
        let body = self.drafted(wanted, segment.cipher.key().is_some());
        let durable_sequence = known.durable;
        Ok(Draft { switch, start, len, link, last, generation, durable_sequence, body })
    }

    /// What becomes of the body of what is wanted, once the buffer has it.
    fn drafted(&self, wanted: &Wanted<'_>, is_sealed: bool) -> Drafted {
        match wanted.entry() {
            None => Drafted::None,
            Some(entry) if !is_sealed => Drafted::InBuffer(entry.len()),
            Some(entry) => {
                let followed = self.shared.with(|inner| inner.tail.is_followed());
                Drafted::Kept(followed.then(|| entry.parts.concat().into()))
            }
        }
    }

    /// Whether the segment has no room for `span` more bytes, or is not sealed as it should be now.
    /// An entry that no segment has room for makes an otherwise empty one longer.
    fn is_full(&self, span: u64) -> bool {
        let is_empty = self.end <= RECORDS_START + self.first_state_span();
        let has_room = self.end + span <= self.segment.header.bytes;
        self.segment.cipher.is_outdated(&self.shared.config.keys) || !(has_room || is_empty)
    }

    /// About how much the state at the beginning of a segment takes.
    fn first_state_span(&self) -> u64 {
        record_span(State::encoded_len(&self.link.memory.popped) + self.sealing_len())
    }

    /// Bytes that sealing adds to a body, if that is done.
    fn sealing_len(&self) -> u64 {
        if self.shared.config.keys.is_none() { 0 } else { SEALING_LEN as u64 }
    }

    /// The next segment, which may have to be made first.
    async fn next_segment(&self) -> LogResult<Prepared> {
        self.shared.change(|inner| {
            let next = &mut inner.upkeep.next;
            if !matches!(next, Next::Ready(_)) {
                *next = Next::Wanted { urgent: true };
            }
        });
        upkeep::look(&self.shared);
        let taken = self.shared.until(|inner| {
            if let Err(error) = inner.check_poison() {
                return Some(Err(error));
            }
            match std::mem::take(&mut inner.upkeep.next) {
                Next::Ready(prepared) => Some(Ok(prepared)),
                Next::Failed(error) => Some(Err(error)),
                Next::None => Some(Err(LogError::Closed(String::new()))),
                wanted @ Next::Wanted { .. } => {
                    inner.upkeep.next = wanted;
                    None
                }
            }
        });
        taken.await
    }

    /// The write has succeeded: the log is longer.
    fn accept(&mut self, draft: Draft) {
        let Link { sequence, index, term, version, .. } = self.link;
        let before = Before { sequence, index, term, version };
        let end = draft.start + draft.len;
        let followed = self.shared.with(|inner| inner.tail.is_followed());
        let body = if followed { self.written_body(&draft) } else { None };
        let switched = draft.switch.map(|next| next.segment);
        assert!(draft.link.sequence > self.link.sequence, "a write adds records");
        self.link = draft.link;
        self.generation = draft.generation;
        self.dirty = end;
        self.end = end;
        if let Some(segment) = &switched {
            self.segment = segment.clone();
        }
        let is_time_for_next = end > self.segment.header.bytes / 4;
        let (look, dropped) = self.shared.with(|inner| {
            let mut dropped = Vec::new();
            if let Some(segment) = switched {
                let newest = inner.segments.back().map(|kept| kept.segment.header.serial);
                let serial = segment.header.serial;
                assert_eq!(newest, serial.checked_sub(1), "segments have no gaps");
                inner.segments.push_back(Kept { segment, before, last: 0, end, leaving: false });
                dropped = inner.drop_laggards();
            }
            let last = inner.segments.back_mut().expect("a log has a segment");
            (last.last, last.end) = (self.link.sequence, end);
            inner.written = self.link.clone();
            // The record says it of all that was durable when it was put together.
            inner.marked = inner.marked.max(draft.durable_sequence);
            if let Some(header) = draft.last {
                inner.note_written(&header);
            }
            if let (Some(body), Some(header)) = (body, draft.last)
                && inner.tail.is_followed()
            {
                self.keep(inner, &header, body);
            }
            let look = is_time_for_next && matches!(inner.upkeep.next, Next::None);
            if look {
                inner.upkeep.next = Next::Wanted { urgent: false };
            }
            (look, dropped)
        });
        if look {
            upkeep::look(&self.shared);
        }
        if !dropped.is_empty() {
            dropped.iter().for_each(Dropped::announce);
            // Readers that wait for such a consumer learn it now.
            self.shared.change(|_| ());
        }
    }

    /// The body of the entry in the buffer, for readers that follow.
    fn written_body(&self, draft: &Draft) -> Option<Bytes> {
        let body_len = match &draft.body {
            Drafted::None => return None,
            Drafted::Kept(body) => return body.clone(),
            Drafted::InBuffer(body_len) => *body_len,
        };
        let at = usize::try_from(draft.len - record_span(body_len)).ok()? + RECORD_HEADER_LEN;
        let body = self.buffer.get(at..at + usize::try_from(body_len).ok()?)?;
        Some(Bytes::copy_from_slice(body))
    }

    fn keep(&self, inner: &mut Inner, header: &RecordHeader, body: Bytes) {
        let Some(entry) = header.entry(body) else { return };
        let serial = self.segment.header.serial;
        let after = Resume { serial, offset: self.end, link: self.link.clone() };
        inner.tail.push(entry, after, self.shared.config.tail_bytes);
    }

    /// The write has failed: whatever part of it arrived must not be taken for a record.
    async fn reject(&self, draft: Draft, segment: &Segment) {
        let wiped = segment.file.write_all_at(draft.start, &[0; RECORD_HEADER_LEN]).await;
        let synced = segment.file.sync_data().await;
        if let Some(mut next) = draft.switch {
            next.dirty = next.dirty.max(draft.start + self.buffer.len() as u64);
            self.shared.change(|inner| inner.upkeep.next = Next::Ready(next));
        }
        // A full disk leaves a record cut short, which nobody can take for a whole one. If the
        // wiping fails for another reason, it is not known whether the record will be there after a
        // crash.
        let fatal = [wiped.err().filter(|error| !error.is_disk_full()), synced.err()];
        if let Some(error) = fatal.into_iter().flatten().next() {
            self.shared.change(|inner| inner.poison(&error));
        }
    }
}
