//! The chain of records: what must hold between a record and the one before it.
//!
//! A [`Link`] is where a walk through the log stands: after which record. It knows what the next
//! one must look like (number, opening, checksum of the one before, index, term, version) and takes
//! the step. Writer, recovery, readers and checks all go by the same rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use plinth_format::Flaw;
use plinth_types::Version;

use crate::entry::EntryKind;
use crate::format::{Body, Kind, RecordHeader, Rewind, State, Vote, decode_lease};
use crate::position::{Position, Progress};

/// For each consumer the version up to which it has popped.
pub(crate) type Popped = Arc<BTreeMap<String, Version>>;

/// What the log remembers beside its entries, as of a record.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Memory {
    /// As of the last entry.
    pub(crate) lease: Version,
    pub(crate) vote: Vote,
    pub(crate) popped: Popped,
}

impl Memory {
    /// As it is written down.
    pub(crate) fn to_state(&self) -> State {
        State { lease: self.lease, vote: self.vote, popped: (*self.popped).clone() }
    }

    /// Up to where no consumer needs anything; `None` without consumers, when everything is kept.
    pub(crate) fn floor(&self) -> Option<Version> {
        self.popped.values().min().copied()
    }
}

/// The end of a walk so far.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Number of the last record.
    pub(crate) sequence: u64,
    /// Its checksum.
    pub(crate) checksum: u32,
    pub(crate) opening: u32,
    /// Index, term and version of the last entry that is not void.
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) version: Version,
    /// Whether that entry has a version of its own, or the one of an entry before it.
    pub(crate) has_version: bool,
    /// The last record known durable, and the highest version known committed.
    pub(crate) durable_sequence: u64,
    pub(crate) committed: Version,
    pub(crate) memory: Memory,
}

impl Link {
    /// The place of the last record.
    pub(crate) fn position(&self) -> Position {
        Position { sequence: self.sequence, index: self.index, term: self.term }
    }

    /// The same with what holds from there on, as callers are told.
    pub(crate) fn progress(&self) -> Progress {
        Progress { position: self.position(), version: self.version, lease: self.memory.lease }
    }

    /// Before the first record of a log.
    pub(crate) fn origin() -> Self {
        Self {
            sequence: 0,
            checksum: 0,
            opening: 0,
            index: 0,
            term: 0,
            version: 0,
            has_version: true,
            durable_sequence: 0,
            committed: 0,
            memory: Memory::default(),
        }
    }

    /// Just before a record that is taken as it is: the first of the oldest segment kept, or the
    /// first readable one after damage.
    pub(crate) fn before(header: &RecordHeader, memory: Memory) -> Self {
        Self {
            sequence: header.sequence - 1,
            checksum: header.before,
            opening: header.opening,
            index: header.index.saturating_sub(u64::from(header.kind.is_entry())),
            term: header.term,
            version: header.previous,
            has_version: true,
            durable_sequence: header.durable_sequence(),
            committed: header.committed,
            memory,
        }
    }

    /// Takes the step to the next record, if it is the next. What is remembered beside entries
    /// stays as it was where the body can't be opened.
    pub(crate) fn follow(&mut self, header: &RecordHeader, body: &Body) -> Result<(), Flaw> {
        self.check(header)?;
        let Body::Open(body) = body else {
            self.step(header);
            return Ok(());
        };
        let mut memory = self.memory.clone();
        let lease = match header.kind {
            Kind::State => {
                let Some(state) = State::decode(body) else {
                    return Err(Flaw::new(
                        "body of a state record",
                        "lease, vote, consumers",
                        "something else",
                    ));
                };
                self.check_vote(state.vote)?;
                memory = Memory { vote: state.vote, popped: Arc::new(state.popped), ..memory };
                state.lease
            }
            Kind::Vote => {
                let Some(vote) = Vote::decode(body) else {
                    return Err(Flaw::new(
                        "body of a vote",
                        "term, vote, commit",
                        "something else",
                    ));
                };
                self.check_vote(vote)?;
                memory.vote = vote;
                memory.lease
            }
            Kind::Rewind => {
                let Some(rewind) = Rewind::decode(body) else {
                    return Err(Flaw::new("body of a rewind", "a lease", "something else"));
                };
                // It is that of an earlier entry.
                memory.lease = rewind.lease;
                rewind.lease
            }
            Kind::Entry(EntryKind::Lease) => {
                let Some(lease) = decode_lease(body) else {
                    return Err(Flaw::new("body of a lease", "a version", "something else"));
                };
                lease
            }
            Kind::Entry(_) => memory.lease,
        };
        if lease < memory.lease {
            return Err(Flaw::new("lease in a record", memory.lease, lease));
        }
        self.memory = Memory { lease, ..memory };
        self.step(header);
        Ok(())
    }

    fn check_vote(&self, vote: Vote) -> Result<(), Flaw> {
        let before = self.memory.vote;
        if vote.term < before.term || vote.commit < before.commit {
            let before = format_args!("term {} and commit {} or later", before.term, before.commit)
                .to_string();
            let found = format_args!("term {} and commit {}", vote.term, vote.commit).to_string();
            return Err(Flaw::new("vote in a record", before, found));
        }
        Ok(())
    }

    /// Takes the step to a record that is known to be the next. What it says in its body is taken
    /// elsewhere.
    pub(crate) fn step(&mut self, header: &RecordHeader) {
        self.sequence = header.sequence;
        self.checksum = header.checksum;
        self.opening = header.opening;
        self.index = header.index;
        self.term = header.term;
        self.version = header.version;
        if header.kind.is_entry() {
            self.has_version = header.version > header.previous;
        }
        self.durable_sequence = self.durable_sequence.max(header.durable_sequence());
        self.committed = self.committed.max(header.committed);
    }

    /// Whether `header` is that of the next record.
    pub(crate) fn check(&self, header: &RecordHeader) -> Result<(), Flaw> {
        if header.sequence != self.sequence.saturating_add(1) {
            return Err(Flaw::new(
                "number of a record",
                self.sequence.saturating_add(1),
                header.sequence,
            ));
        }
        if header.before != self.checksum {
            return Err(Flaw::hex("checksum of the record before", self.checksum, header.before));
        }
        let at_least = |what, least: u64, found: u64| {
            Err(Flaw::new(what, format_args!("{least} or later").to_string(), found))
        };
        if header.opening < self.opening {
            return at_least("opening of a record", self.opening.into(), header.opening.into());
        }
        if header.committed > header.previous {
            let expected = format_args!("at most {}", header.previous).to_string();
            return Err(Flaw::new("version known committed", expected, header.committed));
        }
        match header.kind {
            Kind::Entry(kind) => self.check_entry(header, kind),
            Kind::Rewind => self.check_rewind(header),
            Kind::State | Kind::Vote => {
                let is_same = (header.index, header.term, header.version, header.previous)
                    == (self.index, self.term, self.version, self.version);
                let expected =
                    format_args!("{}, {}, {}", self.index, self.term, self.version).to_string();
                let found = format_args!("{}, {}, {}", header.index, header.term, header.version)
                    .to_string();
                if is_same {
                    Ok(())
                } else {
                    Err(Flaw::new("last entry in a record", expected, found))
                }
            }
        }
    }

    fn check_entry(&self, header: &RecordHeader, kind: EntryKind) -> Result<(), Flaw> {
        let index = self.index.saturating_add(1);
        if header.index != index {
            return Err(Flaw::new("index of an entry", index, header.index));
        }
        if header.term < self.term {
            let expected = format_args!("{} or later", self.term).to_string();
            return Err(Flaw::new("term of an entry", expected, header.term));
        }
        if header.previous != self.version {
            return Err(Flaw::new("previous version in an entry", self.version, header.previous));
        }
        if kind.has_mutations() && header.version <= self.version {
            let expected = format_args!("above {}", self.version).to_string();
            return Err(Flaw::new("version of an entry", expected, header.version));
        }
        if !kind.has_mutations() && header.version != self.version {
            return Err(Flaw::new(
                "version of an entry without mutations",
                self.version,
                header.version,
            ));
        }
        Ok(())
    }

    fn check_rewind(&self, header: &RecordHeader) -> Result<(), Flaw> {
        if header.index > self.index || header.term > self.term || header.version > self.version {
            let expected =
                format_args!("at most {}, {}, {}", self.index, self.term, self.version).to_string();
            let found =
                format_args!("{}, {}, {}", header.index, header.term, header.version).to_string();
            return Err(Flaw::new("entry that a rewind goes back to", expected, found));
        }
        if header.previous != header.version || header.version < self.committed {
            let expected = format_args!("{} or later", self.committed).to_string();
            return Err(Flaw::new("version that a rewind goes back to", expected, header.version));
        }
        Ok(())
    }
}
