//! What keeps entries for streams: the node's log, or, for a database that lives in memory alone, a list.
//!
//! Both go by the same rules: an entry is kept until every stream has popped it, and a stream that holds back more than its
//! bound loses what it holds back.

use crate::batch_lock::lock;
use plinth_log::{ALL_ROWS, EntryKind, LogReader, LogView, sections_head};
use plinth_types::{Error, LogPosition, MutationList, Result, Version, probe};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use super::rows::Registered;

/// What the names of our consumers begin with.
const CONSUMER: &str = "stream-";

/// The name of a stream's consumer.
fn consumer(id: u64) -> String {
    format!("{CONSUMER}{id}")
}

pub(super) enum Keeper {
    Log(Arc<dyn LogView>),
    Memory(Arc<Mutex<MemoryLog>>),
}

impl Keeper {
    pub fn new(log: Option<Arc<dyn LogView>>) -> Self {
        log.map_or_else(|| Self::Memory(Arc::default()), Self::Log)
    }

    /// Lets go of what is kept for streams that are none of these.
    pub fn forget_others(&self, registered: &[Registered]) {
        let Self::Log(log) = self else { return };
        for (name, _) in log.consumers() {
            let Some(id) = name.strip_prefix(CONSUMER) else { continue };
            if !registered.iter().any(|stream| stream.row.id.to_string() == id) {
                log.unregister(&name);
            }
        }
    }

    /// Keeps entries for a stream from version `from` on. Gives the first version that there is: a later one if the stream is known
    /// from before a restart, and didn't have all of them then.
    ///
    /// # Errors
    /// `version_invalid` if they are gone.
    pub fn register(&self, id: u64, from: Version, bound: u64) -> Result<Version> {
        match self {
            Self::Log(log) => {
                let name = consumer(id);
                let stands = log.register(&name, from, Some(bound))?;
                log.pop(&name, from - 1)?;
                Ok(stands.max(from))
            }
            Self::Memory(kept) => lock(kept).register(id, from, bound).map(|()| from),
        }
    }

    /// # Errors
    /// `version_invalid` if the stream has lost what it held back.
    pub fn pop(&self, id: u64, upto: Version) -> Result<()> {
        match self {
            Self::Log(log) => log.pop(&consumer(id), upto),
            Self::Memory(kept) => lock(kept).pop(id, upto),
        }
    }

    pub fn unregister(&self, id: u64) {
        match self {
            Self::Log(log) => log.unregister(&consumer(id)),
            Self::Memory(kept) => lock(kept).unregister(id),
        }
    }

    /// Whether nobody else needs entries that are as old.
    pub fn holds_back(&self, id: u64) -> bool {
        let Self::Log(log) = self else { return false };
        let (consumers, name) = (log.consumers(), consumer(id));
        let others = consumers.iter().filter(|(other, _)| !other.starts_with(CONSUMER));
        let needed = others.map(|(_, from)| *from).min();
        let ours = consumers.iter().find(|(other, _)| *other == name).map(|(_, from)| *from);
        ours.zip(needed).is_some_and(|(ours, needed)| ours < needed)
    }

    /// Bytes that are kept for a stream, as its bound counts them.
    ///
    /// # Errors
    /// `version_invalid` if it has lost what it held back.
    pub fn held_bytes(&self, id: u64) -> Result<u64> {
        match self {
            Self::Log(log) => log.held_bytes(&consumer(id)),
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
    /// `version_invalid` if the stream has lost what it held back.
    pub fn reader(&self, id: u64, from: Version) -> Result<Box<dyn LogReader>> {
        match self {
            Self::Log(log) => {
                let mut reader = log.reader_for(&consumer(id), from)?;
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
    fn register(&mut self, id: u64, from: Version, bound: u64) -> Result<()> {
        if from <= self.gone {
            let detail =
                format!("entries up to version {} are gone, those from {from} on were asked for", self.gone);
            return Err(Error::version_invalid().with_detail(detail));
        }
        self.lost.remove(&id);
        self.known.insert(id, Known { popped: from - 1, bound });
        Ok(())
    }

    fn check(&self, id: u64) -> Result<()> {
        let Some(bytes) = self.lost.get(&id) else { return Ok(()) };
        let detail = format!("the stream held back {bytes} bytes of changes, which is more than its bound");
        Err(Error::version_invalid().with_detail(detail))
    }

    fn pop(&mut self, id: u64, upto: Version) -> Result<()> {
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
    }

    fn keep(&mut self, at: LogPosition, lists: &[&MutationList]) {
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

    /// Bytes of the entries behind a version.
    fn held_bytes(&self, popped: Version) -> u64 {
        let held = self.entries.iter().rev().take_while(|entry| entry.version > popped);
        held.map(|entry| entry.body.len() as u64).sum()
    }

    fn drop_laggards(&mut self) {
        let Some(least) = self.known.values().map(|known| known.bound).min() else { return self.let_go() };
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
    fn next(&mut self) -> Waiting<'_, Result<Option<plinth_log::Entry>>> {
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

    fn wait(&mut self) -> Waiting<'_, Result<plinth_log::Entry>> {
        let detail = "entries in memory are looked at when they are applied";
        Box::pin(std::future::ready(Err(Error::client_invalid_operation().with_detail(detail))))
    }
}
