//! What the writer, syncs, readers and the upkeep task share.
//!
//! One mutex around plain values; it is held for a few instructions and never across a file call.
//! Whoever has to wait (for another's sync, for the next segment) leaves a waker and looks again
//! after every change. Three marks say how far the log is written, how far it is durable, and how
//! far it is committed; all else follows from them:
//!
//! ```text
//!   segments   | 7 | 8 | 9 |            oldest first; the last is written to
//!   records    ............=====........
//!                         ^     ^
//!                   durable     written     committed: anywhere up to written; with one node, where durable is
//! ```

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use plinth_env::{Env, IoError};
use plinth_format::{Identity, Keys};
use plinth_types::{Version, probe};

use crate::config::LogConfig;
use crate::consumers::Consumers;
use crate::failure::{LogError, LogResult};
use crate::format::{Kind, RECORDS_START, RecordHeader};
use crate::history::History;
use crate::link::Link;
use crate::marks::Marks;
use crate::segment::Segment;
use crate::supply::{Next, Upkeep};
use crate::tail::{Resume, Tail};

/// After what a segment begins.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Before {
    /// Number of the last record before it.
    pub(crate) sequence: u64,
    /// The last entry before it that isn't void.
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) version: Version,
}

impl Before {
    /// A rewind has voided what it names: now that is an earlier entry.
    pub(crate) fn rewind(&mut self, rewind: &RecordHeader) {
        if self.index > rewind.index {
            (self.index, self.term, self.version) = (rewind.index, rewind.term, rewind.version);
        }
    }
}

/// What makes an entry committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Commits {
    /// A sync on this node.
    WhenDurable,
    /// Somebody who says so.
    WhenTold,
}

/// A segment that is part of the log.
pub(crate) struct Kept {
    pub(crate) segment: Arc<Segment>,
    pub(crate) before: Before,
    /// Number of the last record in it.
    pub(crate) last: u64,
    /// Where the next record would begin.
    pub(crate) end: u64,
    /// It is being taken away; nobody may begin to read it.
    pub(crate) leaving: bool,
}

/// Who syncs what at this moment.
#[derive(Default)]
pub(crate) struct Syncs {
    /// For each lane, up to which record the sync on it reaches.
    pub(crate) lanes: Vec<Option<u64>>,
}

pub(crate) struct Inner {
    pub(crate) segments: VecDeque<Kept>,
    pub(crate) written: Link,
    pub(crate) durable: Link,
    pub(crate) history: History,
    pub(crate) commits: Commits,
    /// The last record of which anything that is written says that it is durable.
    pub(crate) marked: u64,
    pub(crate) consumers: Consumers,
    pub(crate) tail: Tail,
    pub(crate) syncs: Syncs,
    pub(crate) upkeep: Upkeep,
    /// Why nothing is written or acknowledged any longer.
    pub(crate) poison: Option<LogError>,
    waiters: Waiters,
}

/// Who looks again after a change.
#[derive(Default)]
struct Waiters {
    /// Those who want more to be committed.
    readers: Vec<Waker>,
    /// All others.
    others: Vec<Waker>,
}

pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) config: LogConfig,
    pub(crate) marks: Marks,
    inner: Mutex<Inner>,
    /// What was wrong with the first damaged record that a reader met with, and how often one did.
    damage: Mutex<Option<(LogError, u64)>>,
}

impl Shared {
    pub(crate) fn new(
        env: Env,
        dir: PathBuf,
        identity: Identity,
        config: LogConfig,
        start: Start,
    ) -> Arc<Self> {
        let Start { segments, link, mut history, commits, upkeep, marks } = start;
        if commits == Commits::WhenDurable {
            history.commit_all(link.clone());
        }
        let inner = Inner {
            segments,
            written: link.clone(),
            consumers: Consumers::new(&link.memory.popped),
            tail: Tail::default(),
            durable: link,
            history,
            commits,
            marked: 0,
            syncs: Syncs { lanes: vec![None; config.syncs_in_flight] },
            upkeep,
            poison: None,
            waiters: Waiters::default(),
        };
        let (inner, damage) = (Mutex::new(inner), Mutex::default());
        Arc::new(Self { env, dir, identity, config, marks, inner, damage })
    }

    /// Does something with the values, quickly.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the values and has everybody look who waits for a change.
    pub(crate) fn change<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        let (result, waiters) = self.with(|inner| (f(inner), std::mem::take(&mut inner.waiters)));
        waiters.readers.into_iter().chain(waiters.others).for_each(Waker::wake);
        result
    }

    /// The same behind a sync. Where that commits nothing, those who want more to be committed are
    /// left alone: a thread that is woken in vain takes a processor from somebody.
    pub(crate) fn change_durable<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        let (result, waiters) = self.with(|inner| {
            let committed = inner.committed().sequence;
            let result = f(inner);
            let is_read = inner.committed().sequence != committed || inner.poison.is_some();
            let readers = if is_read { std::mem::take(&mut inner.waiters.readers) } else { vec![] };
            (result, readers.into_iter().chain(std::mem::take(&mut inner.waiters.others)))
        });
        waiters.for_each(Waker::wake);
        result
    }

    /// A reader met with this: remembered if it is damage.
    pub(crate) fn note_damage(&self, error: &LogError) {
        if error.is_damage() {
            let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
            damage.get_or_insert_with(|| (error.clone(), 0)).1 += 1;
        }
    }

    /// What readers have met with.
    pub(crate) fn damage(&self) -> Option<(LogError, u64)> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `f` gives something. It is asked now and after every change.
    pub(crate) async fn until<T>(&self, f: impl FnMut(&mut Inner) -> Option<T>) -> T {
        self.until_of(|waiters| &mut waiters.others, f).await
    }

    /// The same for whoever wants more to be committed, or to hear that nothing will be.
    pub(crate) async fn until_more<T>(&self, f: impl FnMut(&mut Inner) -> Option<T>) -> T {
        self.until_of(|waiters| &mut waiters.readers, f).await
    }

    async fn until_of<T>(
        &self,
        of: fn(&mut Waiters) -> &mut Vec<Waker>,
        mut f: impl FnMut(&mut Inner) -> Option<T>,
    ) -> T {
        std::future::poll_fn(|context| {
            self.with(|inner| match f(inner) {
                Some(value) => Poll::Ready(value),
                None => {
                    let waiters = of(&mut inner.waiters);
                    if !waiters.iter().any(|waker| waker.will_wake(context.waker())) {
                        waiters.push(context.waker().clone());
                    }
                    Poll::Pending
                }
            })
        })
        .await
    }
}

/// What a log begins with.
pub(crate) struct Start {
    pub(crate) segments: VecDeque<Kept>,
    pub(crate) link: Link,
    pub(crate) history: History,
    pub(crate) commits: Commits,
    pub(crate) upkeep: Upkeep,
    pub(crate) marks: Marks,
}

impl Inner {
    /// An error if the log is poisoned.
    pub(crate) fn check_poison(&self) -> LogResult<()> {
        match &self.poison {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// The error of waiting for a log that nobody appends to any more.
    pub(crate) fn is_closed(&self) -> Option<LogError> {
        let what = "the log is closed: nothing more will be appended";
        self.upkeep.is_closing.then(|| LogError::Closed(what.into()))
    }

    /// Has the log refuse everything from now on. The first reason is kept.
    pub(crate) fn poison(&mut self, cause: &IoError) {
        probe!("log: poisoned");
        let detail = format!(
            "the log takes nothing more after a failure that left its files in doubt: {}",
            cause.summary()
        );
        self.poison.get_or_insert(LogError::Poisoned(detail));
    }

    /// Up to which version no consumer needs anything, whatever crash may come.
    pub(crate) fn floor(&self) -> Option<Version> {
        let durable = self.durable.memory.floor()?;
        let wanted = self.consumers.floor()?;
        Some(durable.min(wanted))
    }

    /// Up to where entries will never be lost.
    pub(crate) fn committed(&self) -> &Link {
        self.history.committed()
    }

    /// A record was written: `written` is there.
    pub(crate) fn note_written(&mut self, header: &RecordHeader) {
        match (header.kind, self.commits) {
            (Kind::Entry(kind), Commits::WhenTold) => self.history.push(self.written.clone(), kind),
            (Kind::Entry(_), Commits::WhenDurable) => {
                self.history.note_term(header.index, header.term)
            }
            (Kind::Rewind, _) => {
                assert!(
                    self.history.rewind(header, &self.written.memory),
                    "the writer has looked it up"
                );
                self.segments.iter_mut().for_each(|kept| kept.before.rewind(header));
                self.tail.rewind(header.index);
            }
            (Kind::State | Kind::Vote, _) => {}
        }
    }

    /// Everything up to this record is durable.
    pub(crate) fn note_durable(&mut self, reaches: &Link) {
        if reaches.sequence > self.durable.sequence {
            self.durable = reaches.clone();
            self.consumers.settle(reaches.sequence);
            if self.commits == Commits::WhenDurable {
                self.history.commit_all(reaches.clone());
            }
        }
    }

    /// Behind the last record that is written.
    pub(crate) fn end(&self) -> Option<Resume> {
        let last = self.segments.back()?;
        let (serial, offset) = (last.segment.header.serial, last.end);
        Some(Resume { serial, offset, link: self.written.clone() })
    }

    /// Bytes of records kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|kept| kept.end - RECORDS_START).sum()
    }

    /// Bytes of the log's files.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let segments: u64 =
            self.segments.iter().map(|kept| kept.end.max(kept.segment.header.bytes)).sum();
        let next = match &self.upkeep.next {
            Next::Ready(prepared) => prepared.segment.header.bytes,
            Next::None | Next::Wanted { .. } | Next::Failed(_) => 0,
        };
        segments + next + self.upkeep.spares.iter().map(|spare| spare.bytes).sum::<u64>()
    }

    /// Segments, and their bytes, that are not sealed by the newest of these keys.
    pub(crate) fn outdated(&self, keys: &Keys) -> (u64, u64) {
        let outdated = self.segments.iter().filter(|kept| kept.segment.cipher.is_outdated(keys));
        outdated.fold((0, 0), |(count, bytes), kept| {
            (count + 1, bytes + kept.end.max(kept.segment.header.bytes))
        })
    }

    /// Checks what must hold between the values at any time.
    pub(crate) fn check_invariants(&self) {
        assert!(self.durable.sequence <= self.written.sequence);
        assert!(self.marked <= self.durable.sequence);
        assert!(self.committed().sequence <= self.written.sequence);
        assert!(self.committed().index <= self.written.index, "what is committed is never void");
        assert!(self.committed().version <= self.written.version);
        assert!(self.committed().memory.lease <= self.written.memory.lease);
        match self.commits {
            Commits::WhenDurable => assert_eq!(self.committed().sequence, self.durable.sequence),
            Commits::WhenTold => assert_eq!(self.history.last().index, self.written.index),
        }
        self.history.check_invariants();
        assert!(self.segments.back().is_some_and(|kept| kept.last == self.written.sequence));
        for (older, newer) in self.segments.iter().zip(self.segments.iter().skip(1)) {
            assert_eq!(older.last, newer.before.sequence, "records are numbered without gaps");
            assert_eq!(older.segment.header.serial + 1, newer.segment.header.serial);
            assert!(
                older.before.version <= newer.before.version
                    && older.before.index <= newer.before.index
            );
        }
        let leaving = self.segments.iter().map(|kept| kept.leaving);
        assert!(leaving.is_sorted_by(|a, b| a >= b), "only the oldest segments leave");
    }
}
