//! What keeps entries for streams: the node's log, or, for a database that lives in memory alone, a
//! list.
//!
//! Both go by the same rules: an entry is kept until every stream has popped it, and a stream that
//! holds back more than its bound loses what it holds back.
//!
//! A stream without a bound of its own gets one when its node learns of it, by what is free then,
//! and keeps it: what it holds back would make a later one smaller. So that bound is a part of the
//! name that its consumer has in the log, and outlives restarts.

use crate::batch_lock::lock;
use plinth_log::{ALL_ROWS, EntryKind, LogError, LogReader, LogResult, LogView, sections_head};
use plinth_types::{LogPosition, MutationList, Version, probe};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use super::rows::Registered;

/// What the names of our consumers begin with.
const CONSUMER: &str = "stream-";

/// How much of the log a stream may hold back, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bound {
    /// As its row says.
    Own(u64),
    /// As this node found right.
    Usual(u64),
}

impl Bound {
    pub fn bytes(self) -> u64 {
        let (Self::Own(bytes) | Self::Usual(bytes)) = self;
        bytes
    }

    /// The name of the consumer of a stream with it.
    fn consumer(self, id: u64) -> String {
        match self {
            Self::Own(_) => format!("{CONSUMER}{id}"),
            Self::Usual(bytes) => format!("{CONSUMER}{id}-{bytes}"),
        }
    }
}

/// The stream that a consumer has this name for, and the bound in the name.
fn stream_of(name: &str) -> Option<(u64, Option<u64>)> {
    let name = name.strip_prefix(CONSUMER)?;
    let (id, bound) = name.split_once('-').map_or((name, None), |(id, bound)| (id, Some(bound)));
    Some((id.parse().ok()?, bound.and_then(|bound| bound.parse().ok())))
}

pub(super) enum Keeper {
    Log(LogKeeper),
    Memory(Arc<Mutex<MemoryLog>>),
}

/// A node's log, and the names that streams have there.
pub(super) struct LogKeeper {
    log: Arc<dyn LogView>,
    names: Mutex<BTreeMap<u64, String>>,
}

impl Keeper {
    pub fn new(log: Option<Arc<dyn LogView>>) -> Self {
        let of_log = |log| Self::Log(LogKeeper { log, names: Mutex::default() });
        log.map_or_else(|| Self::Memory(Arc::default()), of_log)
    }

    /// Lets go of what is kept for streams that are none of these.
    pub fn forget_others(&self, registered: &[Registered]) {
        let Self::Log(kept) = self else { return };
        for (name, _) in kept.log.consumers() {
            if !name.starts_with(CONSUMER) {
                continue;
            }
            let id = stream_of(&name).map(|(id, _)| id);
            if !registered.iter().any(|stream| Some(stream.row.id) == id) {
                kept.log.unregister(&name);
            }
        }
    }

    /// Keeps entries for a stream from version `from` on, up to a bound; a usual one only if it has
    /// none yet. Gives the first version that there is, which is a later one if the stream is known
    /// from before a restart and didn't have all of them then, and the bound.
    ///
    /// # Errors
    /// `Version` if they are gone.
    pub fn register(&self, id: u64, from: Version, bound: Bound) -> LogResult<(Version, Bound)> {
        match self {
            Self::Log(kept) => kept.register(id, from, bound),
            Self::Memory(kept) => {
                lock(kept).register(id, from, bound.bytes()).map(|()| (from, bound))
            }
        }
    }

    /// # Errors
    /// `Version` if the stream has lost what it held back.
    pub fn pop(&self, id: u64, upto: Version) -> LogResult<()> {
        match self {
            Self::Log(kept) => kept.log.pop(&kept.name(id), upto),
            Self::Memory(kept) => lock(kept).pop(id, upto),
        }
    }

    pub fn unregister(&self, id: u64) {
        match self {
            Self::Log(kept) => {
                kept.log.unregister(&kept.name(id));
                lock(&kept.names).remove(&id);
            }
            Self::Memory(kept) => lock(kept).unregister(id),
        }
    }

    /// Bytes that nobody needs but this stream, or others.
    pub fn holds_back(&self, id: u64) -> u64 {
        let Self::Log(kept) = self else { return 0 };
        let (consumers, name) = (kept.log.consumers(), kept.name(id));
        let others = consumers.iter().filter(|(other, _)| !other.starts_with(CONSUMER));
        let needed = others.map(|(_, from)| *from).min();
        let ours = consumers.iter().find(|(other, _)| *other == name).map(|(_, from)| *from);
        ours.zip(needed).map_or(0, |(ours, needed)| kept.log.bytes_between(ours, needed))
    }

    /// Bytes that are kept for a stream, as its bound counts them.
    ///
    /// # Errors
    /// `Version` if it has lost what it held back.
    pub fn held_bytes(&self, id: u64) -> LogResult<u64> {
        match self {
            Self::Log(kept) => kept.log.held_bytes(&kept.name(id)),
            Self::Memory(kept) => {
                let kept = lock(kept);
                kept.check(id)?;
                Ok(kept.known.get(&id).map_or(0, |known| kept.held_bytes(known.popped)))
            }
        }
    }

    /// Keeps an entry that no log keeps.
    pub fn keep(&self, at: LogPosition, lists: &[&MutationList]) {
        if let Self::Memory(kept) = self {
            lock(kept).keep(at, lists);
        }
    }

    /// Reads for a stream, from version `from` on.
    ///
    /// # Errors
    /// `Version` if the stream has lost what it held back.
    pub fn reader(&self, id: u64, from: Version) -> LogResult<Box<dyn LogReader>> {
        match self {
            Self::Log(kept) => {
                let mut reader = kept.log.reader_for(&kept.name(id), from)?;
                reader.follow();
                Ok(reader)
            }
            Self::Memory(kept) => {
                lock(kept).check(id)?;
                Ok(Box::new(MemoryReader { kept: kept.clone(), id, next: from }))
            }
        }
    }
}

impl LogKeeper {
    /// What the consumer of a stream is called.
    fn name(&self, id: u64) -> String {
        let name = lock(&self.names).get(&id).cloned();
        name.unwrap_or_else(|| Bound::Own(0).consumer(id))
    }

    fn register(&self, id: u64, from: Version, bound: Bound) -> LogResult<(Version, Bound)> {
        let of_it =
            |(name, _): &(String, Version)| stream_of(name).is_some_and(|(other, _)| other == id);
        let known = self.log.consumers().into_iter().find(of_it);
        let found = known.as_ref().and_then(|(name, _)| stream_of(name)?.1);
        let bound = match (bound, found) {
            (Bound::Usual(_), Some(found)) => Bound::Usual(found),
            (bound, _) => bound,
        };
        let (name, log) = (bound.consumer(id), &self.log);
        // One that a former version registered under another name goes on where it stands.
        let other = known.filter(|(known, _)| *known != name);
        let begin = other.as_ref().map_or(from, |(_, first)| from.max(*first));
        let stands = log.register(&name, begin, Some(bound.bytes()))?;
        other.iter().for_each(|(other, _)| log.unregister(other));
        lock(&self.names).insert(id, name.clone());
        log.pop(&name, from - 1)?;
        Ok((stands.max(from), bound))
    }
}

/// Who needs entries in memory.
struct Known {
    popped: Version,
    bound: u64,
}

/// The newest entries of a database without a log.
#[derive(Default)]
pub(super) struct MemoryLog {
    entries: VecDeque<plinth_log::Entry>,
    known: BTreeMap<u64, Known>,
    lost: BTreeMap<u64, u64>,
    /// Entries up to here are gone.
    gone: Version,
    bytes: u64,
}

impl MemoryLog {
    fn register(&mut self, id: u64, from: Version, bound: u64) -> LogResult<()> {
        if from <= self.gone {
            let detail = format!(
                "entries up to version {} are gone, those from {from} on were asked for",
                self.gone
            );
            return Err(LogError::Version(detail));
        }
        self.lost.remove(&id);
        self.known.insert(id, Known { popped: from - 1, bound });
        Ok(())
    }

    fn check(&self, id: u64) -> LogResult<()> {
        let Some(bytes) = self.lost.get(&id) else { return Ok(()) };
        let detail =
            format!("the stream held back {bytes} bytes of changes, which is more than its bound");
        Err(LogError::Version(detail))
    }

    fn pop(&mut self, id: u64, upto: Version) -> LogResult<()> {
        self.check(id)?;
        if let Some(known) = self.known.get_mut(&id) {
            known.popped = known.popped.max(upto);
        }
        self.let_go();
        Ok(())
    }

    fn unregister(&mut self, id: u64) {
        self.known.remove(&id);
        self.lost.remove(&id);
        self.let_go();
    }

    fn let_go(&mut self) {
        let floor = self.known.values().map(|known| known.popped).min().unwrap_or(Version::MAX);
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.version <= floor) {
            self.gone = entry.version;
            self.bytes -= entry.body.len() as u64;
        }
        assert_eq!(self.entries.is_empty(), self.bytes == 0, "bytes of the entries in memory");
    }

    fn keep(&mut self, at: LogPosition, lists: &[&MutationList]) {
        let last = self.entries.back().map_or(self.gone, |last| last.version);
        assert!(at.version > last, "version {} is kept behind {last}", at.version);
        let bytes: usize = lists.iter().map(|list| list.as_bytes().len()).sum();
        let mut body = sections_head(&[(ALL_ROWS, bytes)]);
        lists.iter().for_each(|list| body.extend_from_slice(list.as_bytes()));
        self.bytes += body.len() as u64;
        let head = plinth_log::EntryHead {
            kind: EntryKind::Mutations,
            index: at.index,
            term: at.term,
            version: at.version,
            previous: self.entries.back().map_or(0, |last| last.version),
            committed: at.version,
        };
        self.entries.push_back(plinth_log::Entry::new(head, body.into()));
        self.drop_laggards();
    }

    /// Bytes of the entries behind a version, without the newest one, which nobody can have
    /// acknowledged.
    fn held_bytes(&self, popped: Version) -> u64 {
        let held = self.entries.iter().rev().skip(1).take_while(|entry| entry.version > popped);
        held.map(|entry| entry.body.len() as u64).sum()
    }

    fn drop_laggards(&mut self) {
        let Some(least) = self.known.values().map(|known| known.bound).min() else {
            return self.let_go();
        };
        if self.bytes <= least {
            return;
        }
        let laggards: Vec<_> = self
            .known
            .iter()
            .map(|(id, known)| (*id, self.held_bytes(known.popped), known.bound))
            .filter(|(_, held, bound)| held > bound)
            .collect();
        for (id, held, _) in laggards {
            probe!("pipeline: a stream in memory is dropped");
            self.known.remove(&id);
            self.lost.insert(id, held);
        }
        self.let_go();
    }
}

/// Reads entries in memory.
struct MemoryReader {
    kept: Arc<Mutex<MemoryLog>>,
    id: u64,
    next: Version,
}

type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl LogReader for MemoryReader {
    fn next(&mut self) -> Waiting<'_, LogResult<Option<plinth_log::Entry>>> {
        let kept = lock(&self.kept);
        let result = kept.check(self.id).map(|()| {
            let at = kept.entries.partition_point(|entry| entry.version < self.next);
            let entry = kept.entries.get(at).cloned();
            self.next = entry.as_ref().map_or(self.next, |entry| entry.version + 1);
            entry
        });
        Box::pin(std::future::ready(result))
    }

    fn follow(&mut self) {}

    fn wait(&mut self) -> Waiting<'_, LogResult<plinth_log::Entry>> {
        let detail = "entries in memory are looked at when they are applied";
        Box::pin(std::future::ready(Err(LogError::Misused(detail.into()))))
    }
}
