//! Consumers: who needs which entries, by name, and what becomes of those that need too much.
//!
//! What callers say (register, pop) is noted at once and written down with the next record, so that
//! nobody waits for the disk. A consumer may have a bound: whenever a segment is full, those that
//! hold back more than theirs before it are dropped, so that no backup and no stream can fill the
//! disk of the database. The log goes on for the others as if they had never been; they learn it
//! from their next pop or read.
//!
//! The segment that has just become full doesn't count: nobody can have popped its last entry yet,
//! so that a bound below the size of a segment would be exceeded by whoever is in step. Whoever
//! knows the segments counts what is held back: `retention.rs`.

use std::collections::BTreeMap;

use plinth_types::Version;

use crate::failure::{LogError, LogResult};
use crate::format::{MAX_CONSUMER_NAME_LEN, MAX_CONSUMERS};

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
    pub(crate) name: String,
    pub(crate) popped: Version,
    pub(crate) held_bytes: u64,
    pub(crate) bound_bytes: u64,
}

impl Dropped {
    fn error(&self) -> LogError {
        let Self { name, popped, held_bytes, bound_bytes } = self;
        LogError::Version(format!(
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
    /// Up to where none of them needed anything when a record was made that says who needs what:
    /// of those that are not known durable, each with the record's number. A crash may make any of
    /// them the last word.
    said: Vec<(u64, Version)>,
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

    /// Up to where no consumer needs anything, nor has needed by any record that is not known
    /// durable; `None` without consumers, when everything is kept.
    pub(crate) fn floor(&self) -> Option<Version> {
        let wanted = self.wanted()?;
        Some(self.said.iter().fold(wanted, |floor, (_, said)| floor.min(*said)))
    }

    fn wanted(&self) -> Option<Version> {
        self.known.values().map(|known| known.popped).min()
    }

    /// The record with this number is about to say who needs what.
    pub(crate) fn say(&mut self, sequence: u64) {
        self.said.extend(self.wanted().map(|floor| (sequence, floor)));
    }

    /// Everything up to this record is durable.
    pub(crate) fn settle(&mut self, durable: u64) {
        self.said.retain(|(sequence, _)| *sequence > durable);
    }

    /// An error if `name` is that of a consumer that was dropped.
    pub(crate) fn check(&self, name: &str) -> LogResult<()> {
        self.dropped.get(name).map_or(Ok(()), |dropped| Err(dropped.error()))
    }

    /// Where a consumer goes on.
    pub(crate) fn next_of(&self, name: &str) -> LogResult<Version> {
        self.check(name)?;
        self.known
            .get(name)
            .map(|known| known.popped.saturating_add(1))
            .ok_or_else(|| unknown(name))
    }

    /// Those with a bound: name, popped, bound in bytes.
    pub(crate) fn bounded(&self) -> impl Iterator<Item = (&str, Version, u64)> {
        self.known.iter().filter_map(|(name, known)| Some((&name[..], known.popped, known.bound?)))
    }

    /// All of them, and from which version on each needs entries.
    pub(crate) fn all(&self) -> Vec<(String, Version)> {
        let next =
            |(name, known): (&String, &Known)| (name.clone(), known.popped.saturating_add(1));
        self.known.iter().map(next).collect()
    }

    /// Takes the right to hold anything back from a consumer.
    pub(crate) fn put_out(&mut self, dropped: Dropped) {
        let was = self.known.remove(&dropped.name);
        assert!(was.is_some(), "only who holds something back is dropped");
        self.generation += 1;
        self.dropped.insert(dropped.name.clone(), dropped);
    }

    /// Gives a consumer another bound, if there is one of this name; then where it goes on.
    pub(crate) fn set_bound(&mut self, name: &str, bound: Option<u64>) -> Option<Version> {
        let known = self.known.get_mut(name)?;
        known.bound = bound;
        Some(known.popped.saturating_add(1))
    }

    /// An error if there may not be one more.
    pub(crate) fn check_room(&self) -> LogResult<()> {
        if self.known.len() >= MAX_CONSUMERS {
            return refuse(format!("the log has {MAX_CONSUMERS} consumers already"));
        }
        Ok(())
    }

    /// Adds a consumer that needs entries from version `from` on.
    pub(crate) fn add(&mut self, name: &str, from: Version, bound: Option<u64>) {
        self.dropped.remove(name);
        self.known.insert(name.to_string(), Known { popped: from - 1, bound });
        self.generation += 1;
    }

    /// A consumer needs nothing up to this version any longer.
    pub(crate) fn pop(&mut self, name: &str, upto: Version) -> LogResult<()> {
        self.check(name)?;
        let known = self.known.get_mut(name).ok_or_else(|| unknown(name))?;
        if upto > known.popped {
            known.popped = upto;
            self.generation += 1;
        }
        Ok(())
    }

    /// Forgets a consumer.
    pub(crate) fn remove(&mut self, name: &str) {
        self.dropped.remove(name);
        if self.known.remove(name).is_some() {
            self.generation += 1;
        }
    }
}

/// # Errors
/// `Option` for what can't be the name of a consumer.
pub(crate) fn check_name(name: &str) -> LogResult<()> {
    if name.is_empty() || name.len() > MAX_CONSUMER_NAME_LEN {
        let len = name.len();
        return refuse(format!(
            "a consumer's name has 1 to {MAX_CONSUMER_NAME_LEN} bytes, not {len}"
        ));
    }
    Ok(())
}

fn refuse(what: String) -> LogResult<()> {
    Err(LogError::Option(what))
}

fn unknown(name: &str) -> LogError {
    LogError::Misused(format!("the log has no consumer {name}"))
}
