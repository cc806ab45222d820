//! Consumers: who needs which entries, by name, and what becomes of those that need too much.
//!
//! What callers say (register, pop) is noted at once and written down with the next record, so that
//! nobody waits for the disk. A consumer may have a bound: whenever a segment is full, those that
//! hold back more than theirs before it are dropped, so that no backup and no stream can fill the
//! disk of the database. The log goes on for the others as if they had never been; they learn it
//! from their next pop or read.
//!
//! The segment that has just become full doesn't count: nobody can have popped its last entry yet,
//! so that a bound below the size of a segment would be exceeded by whoever is in step.

use std::collections::BTreeMap;

use plinth_types::{Error, Result, Version, probe};

use crate::format::{MAX_CONSUMER_NAME_LEN, MAX_CONSUMERS, RECORDS_START};
use crate::log::LocalView;
use crate::shared::{Inner, Kept};
use crate::upkeep;

/// A consumer that the log knows.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The version up to which it needs nothing any longer.
    popped: Version,
    /// How many bytes it may hold back.
    bound: Option<u64>,
}

/// A consumer that held back too much.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dropped {
    name: String,
    popped: Version,
    held_bytes: u64,
    bound_bytes: u64,
}

impl Dropped {
    fn error(&self) -> Error {
        let Self { name, popped, held_bytes, bound_bytes } = self;
        Error::version_invalid().with_detail(format!(
            "consumer {name} was dropped: it had popped up to version {popped} and held back {held_bytes} \
             bytes of the log, {bound_bytes} are its bound; take a snapshot and register it again"
        ))
    }

    /// Tells those who run the database.
    pub(crate) fn announce(&self) {
        let Self { name, popped, held_bytes, bound_bytes } = self;
        tracing::warn!(
            consumer = name,
            popped,
            held_bytes,
            bound_bytes,
            "consumer of the log dropped"
        );
    }
}

/// What callers want of the log's consumers, and whether the writer has written it down.
#[derive(Default)]
pub(crate) struct Consumers {
    known: BTreeMap<String, Known>,
    dropped: BTreeMap<String, Dropped>,
    /// Grows with every change.
    pub(crate) generation: u64,
}

impl Consumers {
    /// Those that a log has at a start.
    pub(crate) fn new(popped: &BTreeMap<String, Version>) -> Self {
        let known = |(name, popped): (&String, &Version)| {
            (name.clone(), Known { popped: *popped, bound: None })
        };
        Self { known: popped.iter().map(known).collect(), ..Self::default() }
    }

    /// As they are to be written down.
    pub(crate) fn popped(&self) -> BTreeMap<String, Version> {
        self.known.iter().map(|(name, known)| (name.clone(), known.popped)).collect()
    }

    /// Up to where no consumer needs anything; `None` without consumers, when everything is kept.
    pub(crate) fn floor(&self) -> Option<Version> {
        self.known.values().map(|known| known.popped).min()
    }

    /// An error if `name` is that of a consumer that was dropped.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        self.dropped.get(name).map_or(Ok(()), |dropped| Err(dropped.error()))
    }

    /// Where a consumer goes on.
    pub(crate) fn next_of(&self, name: &str) -> Result<Version> {
        self.check(name)?;
        self.known
            .get(name)
            .map(|known| known.popped.saturating_add(1))
            .ok_or_else(|| unknown(name))
    }
}

fn unknown(name: &str) -> Error {
    Error::client_invalid_operation().with_detail(format!("the log has no consumer {name}"))
}

impl Inner {
    /// Takes the right to hold anything back from consumers that hold back more than they may. A
    /// segment has just become full.
    pub(crate) fn drop_laggards(&mut self) -> Vec<Dropped> {
        let bounded = self
            .consumers
            .known
            .iter()
            .filter_map(|(name, known)| Some((name, known.popped, known.bound?)));
        let held = bounded.map(|(name, popped, bound)| {
            let held_bytes = self.held_bytes(popped);
            (name.clone(), popped, held_bytes, bound)
        });
        let laggards: Vec<_> = held
            .filter(|(_, _, held, bound)| held > bound)
            .map(|(name, popped, held_bytes, bound_bytes)| Dropped {
                name,
                popped,
                held_bytes,
                bound_bytes,
            })
            .collect();
        for laggard in &laggards {
            probe!("log: consumer dropped");
            self.consumers.known.remove(&laggard.name);
            self.consumers.generation += 1;
            self.consumers.dropped.insert(laggard.name.clone(), laggard.clone());
        }
        laggards
    }

    /// Bytes of full segments, without the last one, that could go, but for somebody who needs what
    /// comes after version `popped`.
    fn held_bytes(&self, popped: Version) -> u64 {
        let count = self.segments.len().saturating_sub(2);
        let held = self.full().take(count).filter(|(_, last)| *last > popped);
        held.map(|(kept, _)| kept.end - RECORDS_START).sum()
    }

    /// Full segments, oldest first, each with the version of its last entry.
    fn full(&self) -> impl Iterator<Item = (&Kept, Version)> {
        self.segments.iter().zip(self.segments.iter().skip(1).map(|next| next.before.version))
    }
}

impl LocalView {
    /// Makes `consumer` known, with or without a bound in bytes: see
    /// [`LogView::register`](crate::LogView::register).
    ///
    /// # Errors
    /// `version_invalid` if entries from `from` on are gone already; `invalid_option_value` if the
    /// name is empty or too long, or there are too many consumers.
    pub fn register(
        &self,
        consumer: &str,
        from: Version,
        bound_bytes: Option<u64>,
    ) -> Result<Version> {
        let refuse = |what: String| Err(Error::invalid_option_value().with_detail(what));
        if consumer.is_empty() || consumer.len() > MAX_CONSUMER_NAME_LEN {
            return refuse(format!(
                "a consumer's name has 1 to {MAX_CONSUMER_NAME_LEN} bytes, not {}",
                consumer.len()
            ));
        }
        // There are no versions below 1.
        let from = from.max(1);
        let registered = self.shared.with(|inner| {
            if let Some(known) = inner.consumers.known.get_mut(consumer) {
                known.bound = bound_bytes;
                return Ok(known.popped.saturating_add(1));
            }
            if inner.consumers.known.len() >= MAX_CONSUMERS {
                return refuse(format!("the log has {MAX_CONSUMERS} consumers already"));
            }
            inner.check_kept(from)?;
            inner.consumers.dropped.remove(consumer);
            let known = Known { popped: from - 1, bound: bound_bytes };
            inner.consumers.known.insert(consumer.to_string(), known);
            inner.consumers.generation += 1;
            Ok(from)
        });
        upkeep::look(&self.shared);
        registered
    }

    /// `consumer` needs no entries up to version `upto` any longer. Segments that no consumer needs
    /// are reused or removed, once this is durable: as soon as anything appended later is.
    ///
    /// # Errors
    /// `client_invalid_operation` if there is no such consumer; `version_invalid` if it was
    /// dropped. Popping backwards does nothing.
    pub fn pop(&self, consumer: &str, upto: Version) -> Result<()> {
        let popped = self.shared.with(|inner| {
            inner.upkeep.is_stuck = false;
            inner.consumers.check(consumer)?;
            let Some(known) = inner.consumers.known.get_mut(consumer) else {
                return Err(unknown(consumer));
            };
            if upto > known.popped {
                known.popped = upto;
                inner.consumers.generation += 1;
            }
            Ok(())
        });
        upkeep::look(&self.shared);
        popped
    }

    /// Forgets a consumer: nothing is kept for it any longer. Without any consumer everything is
    /// kept.
    pub fn unregister(&self, consumer: &str) {
        self.shared.with(|inner| {
            inner.consumers.dropped.remove(consumer);
            if inner.consumers.known.remove(consumer).is_some() {
                inner.consumers.generation += 1;
            }
        });
    }

    /// Bytes that a consumer holds back, as its bound counts them.
    ///
    /// # Errors
    /// As those of [`LogView::reader_of`](crate::LogView::reader_of).
    pub fn held_bytes(&self, consumer: &str) -> Result<u64> {
        self.shared.with(|inner| {
            let next = inner.consumers.next_of(consumer)?;
            Ok(inner.held_bytes(next - 1))
        })
    }

    /// Bytes of full segments that go if nobody needs entries from version `from` up to below
    /// `until`.
    pub fn bytes_between(&self, from: Version, until: Version) -> u64 {
        self.shared.with(|inner| {
            let goes = inner.full().filter(|(_, last)| *last >= from && *last < until);
            goes.map(|(kept, _)| kept.end - RECORDS_START).sum()
        })
    }

    /// The consumers, and from which version on each needs entries.
    pub fn consumers(&self) -> Vec<(String, Version)> {
        self.shared.with(|inner| {
            let known = inner.consumers.known.iter();
            known.map(|(name, known)| (name.clone(), known.popped.saturating_add(1))).collect()
        })
    }
}
