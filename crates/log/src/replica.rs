//! The log of a replica: what consensus stands on.
//!
//! Entries come with their term and index, from this node's leader or another's. Whether they are
//! committed is told from outside ([`ReplicaLog::commit`]); until then they may be voided
//! ([`ReplicaLog::rewind`]). What the node promises to others is a record of its own, durable
//! before [`ReplicaLog::vote`] returns. A restart knows as committed what records say, and no more:
//! the rest stays readable by index, for consensus alone.
//!
//! ```text
//!   first_index          committed            last
//!      | entries for everybody | for consensus  |
//!      LogReader               EntryReader
//! ```

use std::path::Path;
use std::sync::Arc;

use plinth_env::Env;
use plinth_format::Identity;
use plinth_types::Version;

use crate::config::LogConfig;
use crate::entry::{Entry, EntryHead};
use crate::failure::{LogError, LogResult};
use crate::findings::{Findings, Recovery};
use crate::format::Vote;
use crate::opened::Opened;
use crate::place::{Opening, Place};
use crate::position::Position;
use crate::shared::{Commits, Shared};
use crate::syncer::Syncer;
use crate::upkeep;
use crate::view::LocalView;
use crate::writer::{NewEntry, Wanted};

/// A log whose entries are made and committed elsewhere, open for appending.
pub struct ReplicaLog {
    opened: Opened,
}

impl ReplicaLog {
    /// Makes a new log in `dir` that begins behind an entry that it doesn't have (index, term,
    /// version; zeros: from nothing), and opens it. A crash leaves a whole log or none.
    ///
    /// # Errors
    /// As those of [`LocalLog::create_at`](crate::LocalLog::create_at).
    pub async fn create_at(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
        beginning: (u64, u64, Version),
    ) -> LogResult<(Self, Recovery)> {
        let dir = dir.as_ref();
        Opened::create_at(env, dir, identity, &config, beginning).await?;
        Self::open(env, dir, identity, config).await
    }

    /// Opens the log in `dir`, after whatever crash. Everything found is durable then; committed is
    /// what records say.
    ///
    /// # Errors
    /// As those of [`LocalLog::open`](crate::LocalLog::open).
    pub async fn open(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
    ) -> LogResult<(Self, Recovery)> {
        Self::open_when(env, dir, identity, config, |_| std::future::ready(Ok(()))).await
    }

    /// Opens the log, and changes nothing before there is permission:
    /// see [`LocalLog::open_when`](crate::LocalLog::open_when).
    ///
    /// # Errors
    /// As those there.
    pub async fn open_when<F: Future<Output = LogResult<()>>>(
        env: &Env,
        dir: impl AsRef<Path>,
        identity: Identity,
        config: LogConfig,
        permission: impl FnOnce(Findings) -> F,
    ) -> LogResult<(Self, Recovery)> {
        let commits = Commits::WhenTold;
        let (mut opened, recovery) =
            Opened::open(env, dir.as_ref(), identity, config, commits, permission).await?;
        opened.view.shared.with(|inner| inner.tail.follow());
        if let Err(why) = opened.mark().await {
            return Err(opened.give_up(why).await);
        }
        opened.start();
        Ok((Self { opened }, recovery))
    }

    /// Appends an entry as it is. It is written when this returns, and durable once a
    /// [`Syncer::sync`] of its position has returned.
    ///
    /// # Errors
    /// `Misused` or `Version` if it can't follow the last entry: another
    /// index than the next, a lower term, another previous version; and as those of
    /// [`LocalLog::append`](crate::LocalLog::append).
    pub async fn append(&mut self, head: EntryHead, parts: &[&[u8]]) -> LogResult<Position> {
        self.opened.writer.write_entry(NewEntry { head, parts }).await
    }

    /// Voids all entries behind the one with this index. Does nothing if that is the last.
    ///
    /// # Errors
    /// `Misused` if there is no such entry, or one behind it is committed; errors
    /// of files, after which nothing has happened.
    pub async fn rewind(&mut self, index: u64) -> LogResult<Position> {
        if index == self.opened.writer.link.index {
            return Ok(self.written());
        }
        let found = self.view().shared.with(|inner| {
            let committed = inner.committed().index;
            inner.history.at(index).cloned().ok_or_else(|| {
                let last = inner.written.index;
                let detail =
                    format!("rewind to entry {index}: {committed} is committed, {last} the last");
                LogError::Misused(detail)
            })
        });
        self.opened.writer.write(Wanted::Rewind(&found?)).await
    }

    /// Writes down what this node promises. Durable when this returns.
    ///
    /// # Errors
    /// `Misused` if it takes back an earlier promise (a lower term, or another
    /// vote in the same one); errors of files and syncs, after which it is not known whether it
    /// will be found.
    pub async fn vote(&mut self, vote: Vote) -> LogResult<()> {
        self.check_vote(vote)?;
        self.opened.vote(vote).await.map(drop)
    }

    fn check_vote(&self, vote: Vote) -> LogResult<()> {
        let before = self.promised();
        let is_other = vote.term == before.term && before.vote != 0 && vote.vote != before.vote;
        if vote.term < before.term || is_other || vote.commit < before.commit {
            let detail = format!("{vote:?} after {before:?}");
            return Err(LogError::Misused(detail));
        }
        Ok(())
    }

    /// Writes down what this node promises, without waiting for the disk: nobody may be told before
    /// a [`Syncer::sync`] of this position has returned.
    ///
    /// # Errors
    /// As those of [`ReplicaLog::vote`]; files only.
    pub async fn write_vote(&mut self, vote: Vote) -> LogResult<Position> {
        self.check_vote(vote)?;
        self.opened.writer.write(Wanted::Vote(vote)).await
    }

    /// As [`ReplicaLog::mark_durable`], without waiting for the disk: `None` if there is nothing to
    /// say, or not everything is durable; else what is to be synced.
    ///
    /// # Errors
    /// Those of files.
    pub async fn begin_mark(&mut self) -> LogResult<Option<Position>> {
        self.opened.begin_mark().await
    }

    /// What this node has promised last.
    pub fn promised(&self) -> Vote {
        self.opened.writer.link.memory.vote
    }

    /// Entries up to `index` are committed. Nothing is written: a later record says so.
    ///
    /// # Errors
    /// `Misused` if there are no entries up to there.
    pub fn commit(&self, index: u64) -> LogResult<()> {
        let shared = &self.view().shared;
        let news = shared.with(|inner| {
            if index > inner.written.index {
                let detail =
                    format!("commit of entry {index}, {} is the last", inner.written.index);
                return Err(LogError::Misused(detail));
            }
            Ok(inner.history.commit_index(index))
        })?;
        if news {
            // Whoever waits for it looks again.
            shared.change(|_| ());
            upkeep::look(shared);
        }
        Ok(())
    }

    /// The index from which on entries are there; one more than the last if none is.
    pub fn first_index(&self) -> u64 {
        self.view().shared.with(|inner| inner.gone().index + 1)
    }

    /// Index and term of the last entry, or of the one that the log begins behind.
    pub fn last(&self) -> (u64, u64) {
        let link = &self.opened.writer.link;
        (link.index, link.term)
    }

    /// The version of the last entry.
    pub fn last_version(&self) -> Version {
        self.opened.writer.link.version
    }

    /// The lease as of the last entry, be it committed or not.
    pub fn last_lease(&self) -> Version {
        self.opened.writer.link.memory.lease
    }

    /// The index up to which entries are known committed.
    pub fn committed_index(&self) -> u64 {
        self.view().shared.with(|inner| inner.committed().index)
    }

    /// The term of the entry with this index; `None` if it is gone or not there yet. That of the
    /// last one gone is still known.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        self.view().shared.with(|inner| {
            let is_known = (inner.gone().index..=inner.written.index).contains(&index);
            if is_known { inner.history.term_of(index) } else { None }
        })
    }

    /// From which index on entries have which term, in order; the first is the entry behind which
    /// the log begins.
    pub fn terms(&self) -> Vec<(u64, u64)> {
        self.view().shared.with(|inner| {
            let gone = inner.gone();
            let later = inner.history.terms().iter().filter(|(first, _)| *first > gone.index);
            std::iter::once((gone.index, gone.term)).chain(later.copied()).collect()
        })
    }

    /// The indices of entries that say who is a member, in order, committed or not.
    pub fn members(&self) -> Vec<u64> {
        self.view().shared.with(|inner| {
            let gone = inner.gone().index;
            inner.history.members().iter().copied().filter(|index| *index > gone).collect()
        })
    }

    /// The position of the last entry that counts.
    pub fn last_position(&self) -> Position {
        self.view().shared.with(|inner| inner.history.last().position())
    }

    /// Reads entries by index, committed or not, from this one on.
    pub fn entries(&self, from: u64) -> EntryReader {
        EntryReader { shared: self.view().shared.clone(), next: from, place: None }
    }

    /// See [`LocalLog::mark_durable`](crate::LocalLog::mark_durable).
    ///
    /// # Errors
    /// As there.
    pub async fn mark_durable(&mut self) -> LogResult<()> {
        self.opened.mark_durable().await
    }

    /// The position of the last record.
    pub fn written(&self) -> Position {
        self.opened.writer.link.position()
    }

    /// Something that makes records durable, for other tasks.
    pub fn syncer(&self) -> Syncer {
        self.opened.syncer()
    }

    /// A handle for readers of committed entries and for consumers.
    pub fn view(&self) -> &LocalView {
        &self.opened.view
    }

    /// See [`LocalLog::close`](crate::LocalLog::close).
    ///
    /// # Errors
    /// As there.
    pub async fn close(self) -> LogResult<()> {
        self.opened.close().await
    }

    /// Panics if what the log believes of itself contradicts itself.
    pub fn check_invariants(&self) {
        self.opened.check_invariants();
        let gone = self.view().shared.with(|inner| inner.gone());
        assert_eq!(
            self.term_of(gone.index),
            Some(gone.term),
            "the term before the first entry is known"
        );
        assert_eq!(self.term_of(self.last().0), Some(self.last().1));
    }
}

impl std::fmt::Debug for ReplicaLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (index, term) = self.last();
        f.debug_struct("ReplicaLog").field("last", &index).field("term", &term).finish()
    }
}

/// Reads entries of every kind by index, the newest from memory. Keeps the segment that it stands
/// in.
pub struct EntryReader {
    shared: Arc<Shared>,
    next: u64,
    place: Option<Place>,
}

/// Where the next entry is.
enum Whereabouts {
    Nowhere,
    Memory(Entry),
    File,
}

impl EntryReader {
    /// The next entry; `None` if it isn't written yet. An entry that was voided after it was read
    /// is given again as what took its place, if the reader is told to go back:
    /// [`EntryReader::go_to`].
    ///
    /// # Errors
    /// `Version` if it is gone; `Corrupt` if the log is damaged; errors of files.
    pub async fn next(&mut self) -> LogResult<Option<Entry>> {
        loop {
            match self.look()? {
                Whereabouts::Nowhere => return Ok(None),
                Whereabouts::Memory(entry) => {
                    self.place = None;
                    self.next = entry.index + 1;
                    return Ok(Some(entry));
                }
                Whereabouts::File => {}
            }
            let Some(place) = &mut self.place else { return Ok(None) };
            let step = place.step().await.inspect_err(|error| self.shared.note_damage(error));
            if let Some(entry) = step?
                && entry.index == self.next
            {
                self.next += 1;
                return Ok(Some(entry));
            }
        }
    }

    /// The index of the entry that comes next.
    pub fn next_index(&self) -> u64 {
        self.next
    }

    /// Has this entry come next.
    pub fn go_to(&mut self, index: u64) {
        if self.next != index {
            (self.next, self.place) = (index, None);
        }
    }

    /// Finds the next entry.
    fn look(&mut self) -> LogResult<Whereabouts> {
        let gullible = self.shared.config.replays_torn_tail();
        let open = Opening { gullible, holds: true };
        let (next, place) = (self.next, &mut self.place);
        self.shared.with(|inner| {
            if next > inner.written.index {
                *place = None;
                return Ok(Whereabouts::Nowhere);
            }
            if let Some((entry, _)) = inner.tail.get(next) {
                return Ok(Whereabouts::Memory(entry));
            }
            if let Some(here) = place {
                here.look_again(inner, inner.written.sequence);
                let is_on_its_way = here.last_index().is_none_or(|last| last < next);
                if is_on_its_way && here.sequence() < here.upto {
                    return Ok(Whereabouts::File);
                }
            }
            let link = place.take().filter(|here| here.is_sealed).map(|here| {
                let next_serial = here.pin.segment().header.serial + 1;
                (next_serial, here.link)
            });
            let readable = inner.written.sequence;
            let kept = inner.with_index(next)?;
            let serial = kept.segment.header.serial;
            let link = link.and_then(|(after, link)| if after == serial { link } else { None });
            *place = Some(Place::at_beginning(inner, kept, link, (open, readable)));
            Ok(Whereabouts::File)
        })
    }
}

impl std::fmt::Debug for EntryReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryReader").field("next", &self.next).finish()
    }
}
