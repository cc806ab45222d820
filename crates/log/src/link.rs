//! The chain of records: what must hold between a record and the one before it.
//!
//! A [`Link`] is where a walk through the log stands: after which record. It knows what the next one
//! must look like (number, epoch, checksum of the one before, version) and takes the step. Writer,
//! recovery, readers and checks all go by the same rules.

use std::sync::Arc;

use plinth_types::Version;

use crate::commit_log::Progress;
use crate::config::Position;
use crate::format::{Kind, RecordHeader, State};
use crate::problem::Flaw;

/// The end of a walk so far.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Number of the last record.
    pub(crate) sequence: u64,
    /// Its checksum.
    pub(crate) checksum: u32,
    pub(crate) epoch: u64,
    /// Index of the last entry.
    pub(crate) index: u64,
    /// Version of the last entry.
    pub(crate) version: Version,
    /// The last record known durable, and the highest version.
    pub(crate) durable_sequence: u64,
    pub(crate) durable: Version,
    pub(crate) state: Arc<State>,
}

impl Link {
    /// The same, as callers are told.
    pub(crate) fn progress(&self) -> Progress {
        Progress { position: Position(self.sequence), version: self.version, lease: self.state.lease }
    }

    /// Before the first record of a log.
    pub(crate) fn origin() -> Self {
        Self {
            sequence: 0,
            checksum: 0,
            epoch: 0,
            index: 0,
            version: 0,
            durable_sequence: 0,
            durable: 0,
            state: Arc::default(),
        }
    }

    /// Just before a record that is taken as it is: the first of the oldest segment kept, or the first
    /// readable one after damage.
    pub(crate) fn before(header: &RecordHeader, state: Arc<State>) -> Self {
        let is_entry = header.kind == Kind::Entry;
        Self {
            sequence: header.sequence - 1,
            checksum: header.previous,
            epoch: header.epoch,
            index: header.index.saturating_sub(u64::from(is_entry)),
            version: if is_entry { header.durable } else { header.version },
            durable_sequence: header.durable_sequence(),
            durable: header.durable,
            state,
        }
    }

    /// Takes the step to the next record, if it is the next.
    pub(crate) fn follow(&mut self, header: &RecordHeader, body: &[u8]) -> Result<(), Flaw> {
        self.check(header)?;
        if header.kind == Kind::State {
            let Some(state) = State::decode(body) else {
                return Err(Flaw::new("body of a state record", "a lease and consumers", "something else"));
            };
            if state.lease < self.state.lease {
                return Err(Flaw::new("lease in a state record", self.state.lease, state.lease));
            }
            self.state = Arc::new(state);
        }
        self.step(header);
        Ok(())
    }

    /// Takes the step to a record that is known to be the next.
    pub(crate) fn step(&mut self, header: &RecordHeader) {
        self.sequence = header.sequence;
        self.checksum = header.checksum;
        self.epoch = header.epoch;
        self.index = header.index;
        self.version = header.version;
        self.durable_sequence = self.durable_sequence.max(header.durable_sequence());
        self.durable = self.durable.max(header.durable);
    }

    /// Whether `header` is that of the next record.
    pub(crate) fn check(&self, header: &RecordHeader) -> Result<(), Flaw> {
        if header.sequence != self.sequence.saturating_add(1) {
            return Err(Flaw::new("number of a record", self.sequence.saturating_add(1), header.sequence));
        }
        if header.previous != self.checksum {
            return Err(Flaw::hex("checksum of the record before", self.checksum, header.previous));
        }
        if header.epoch < self.epoch {
            return Err(Flaw::new(
                "epoch of a record",
                format_args!("{} or later", self.epoch),
                header.epoch,
            ));
        }
        let is_entry = header.kind == Kind::Entry;
        let index = self.index.saturating_add(u64::from(is_entry));
        if header.index != index {
            return Err(Flaw::new("index of an entry", index, header.index));
        }
        if is_entry && header.version <= self.version {
            let expected = format_args!("above {}", self.version).to_string();
            return Err(Flaw::new("version of an entry", expected, header.version));
        }
        if !is_entry && header.version != self.version {
            return Err(Flaw::new("version in a state record", self.version, header.version));
        }
        if header.durable > header.version {
            let expected = format_args!("at most {}", header.version).to_string();
            return Err(Flaw::new("version known durable", expected, header.durable));
        }
        Ok(())
    }
}
