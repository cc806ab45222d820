//! The log, applied: mutations in the order of their versions become transactions, one after the
//! other.
//!
//! They go to the endpoint as they are, not through a transaction of the client's, which would make
//! others of some operations. A place in the log is a version and how many of its mutations come
//! before; what was applied up to there can be skipped.

use super::changes::Extents;
use super::read::fetch;
use super::{Plan, RestoreControl};
use crate::container::{Backup, LogFile};
use crate::format::Kind;
use crate::{log, target::Doing};
use bytes::Bytes;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, MutationList, MutationRef, Result, Version};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// About how many bytes of mutations a transaction has.
const TRANSACTION_BYTES: usize = 1 << 20;
/// Files of the log fetched ahead.
const AHEAD: usize = 4;

/// So often in a row files are listed anew.
const LISTINGS: u32 = 5;

/// Files of the log, one after the other.
struct Files<'b> {
    backup: &'b Backup,
    waiting: VecDeque<LogFile>,
    coming: VecDeque<(LogFile, Reply<Bytes>)>,
}

impl<'b> Files<'b> {
    fn new(backup: &'b Backup, files: impl Iterator<Item = LogFile>) -> Self {
        Self { backup, waiting: files.collect(), coming: VecDeque::new() }
    }

    /// # Errors
    /// `restore_missing_data` if it isn't there; those of the target.
    async fn next(&mut self) -> Result<Option<(LogFile, Bytes)>> {
        while let Some(file) =
            (self.coming.len() < AHEAD).then(|| self.waiting.pop_front()).flatten()
        {
            let ((done, reply), backup, name) = (promise(), self.backup.clone(), file.name.clone());
            self.coming.push_back((file, reply));
            drop(self.backup.env.spawn("restore-log", async move {
                done.send(fetch(&backup, &name).await);
            }));
        }
        let Some((file, bytes)) = self.coming.pop_front() else { return Ok(None) };
        Ok(Some((file, bytes.await?)))
    }
}

/// A place in the log: mutations of a version that come before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Place {
    pub version: Version,
    pub mutations: u64,
}

/// Takes transactions.
pub(crate) trait Sink: Send {
    /// Commits these mutations, which lead to this place in the log.
    fn commit(&mut self, mutations: MutationList, reached: Place) -> Doing<'_, ()>;
}

/// How much of the log is done, counted in bytes of its files.
struct Counting<'c> {
    control: &'c RestoreControl,
    /// What of the plan isn't counted yet: files that others were merged into have more.
    left: u64,
}

impl Counting<'_> {
    fn add(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        self.control.restored.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Applies the log of a plan, from a place on. Gives the number of its mutations, those before the
/// place among them.
pub(crate) async fn apply(
    backup: &Backup,
    plan: &Plan,
    control: &RestoreControl,
    from: Place,
    sink: &mut dyn Sink,
) -> Result<u64> {
    let mut gathering = Gathering {
        plan,
        extents: Extents::of(plan),
        from,
        place: Place::default(),
        next: match plinth_types::planted!("a restore applies what its snapshot has") {
            true => 0,
            false => plan.snapshot.header.from + 1,
        },
        mutations: MutationList::new(),
        ready: Vec::new(),
        applied: 0,
    };
    let mut counting = Counting { control, left: plan.log_bytes() };
    let (mut files, mut listings) = (Files::new(backup, plan.logs.iter().cloned()), LISTINGS);
    loop {
        let (file, bytes) = match files.next().await {
            Ok(Some(found)) => found,
            Ok(None) => break,
            // It may have been merged since, and another one has its versions.
            Err(error) if error == Error::restore_missing_data() && listings > 0 => {
                listings -= 1;
                let contents = backup.contents().await?;
                let (chain, end) = contents.chain(gathering.next, plan.version + 1);
                if end <= plan.version {
                    return Err(error);
                }
                files = Files::new(backup, chain.into_iter().cloned());
                continue;
            }
            Err(error) => return Err(error),
        };
        listings = LISTINGS;
        // Files may overlap: each version is taken from one of them.
        let mut reader = backup.reader(&bytes, &file.name, Kind::Log)?;
        gathering.file(&mut reader, file.to)?;
        let ready = std::mem::take(&mut gathering.ready);
        let part = file.stored / (ready.len() as u64 + 1);
        let rest = file.stored - part * ready.len() as u64;
        for (mutations, place) in ready {
            if control.stop.load(Ordering::Relaxed) {
                return Err(Error::operation_cancelled());
            }
            counting.add(part);
            sink.commit(mutations, place).await?;
        }
        counting.add(rest);
    }
    let (rest, place) = (std::mem::take(&mut gathering.mutations), gathering.place);
    if !rest.is_empty() {
        sink.commit(rest, place).await?;
    }
    counting.add(u64::MAX);
    Ok(gathering.applied)
}

struct Gathering<'p> {
    plan: &'p Plan,
    extents: Extents,
    from: Place,
    place: Place,
    /// The first version that no file before had.
    next: Version,
    mutations: MutationList,
    ready: Vec<(MutationList, Place)>,
    applied: u64,
}

impl Gathering<'_> {
    fn file(&mut self, reader: &mut crate::format::FileReader<'_>, to: Version) -> Result<()> {
        let next = self.next;
        log::read(reader, |version, mutation| {
            if version >= next && version <= self.plan.version {
                self.mutation(version, mutation);
            }
            Ok(())
        })?;
        self.next = to;
        Ok(())
    }

    fn mutation(&mut self, version: Version, mutation: MutationRef<'_>) {
        if self.place.version != version {
            self.place = Place { version, mutations: 0 };
        }
        self.place.mutations += 1;
        let is_there = self.place <= self.from;
        let (mapping, mutations) = (&self.plan.mapping, &mut self.mutations);
        let applied = &mut self.applied;
        self.extents.apply(version, mutation, &mut |mutation| {
            *applied += 1;
            if !is_there {
                mapping.push(mutation, mutations);
            }
        });
        if self.mutations.as_bytes().len() >= TRANSACTION_BYTES {
            self.ready.push((std::mem::take(&mut self.mutations), self.place));
        }
    }
}
