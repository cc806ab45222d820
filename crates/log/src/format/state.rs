//! The bodies of the log's own records, and of a lease.

use std::collections::BTreeMap;

use plinth_format::{put, u32_at, u64_at, version_at};
use plinth_types::Version;

use super::MAX_CONSUMER_NAME_LEN;

const VOTE_TERM: usize = 0;
const VOTE_FOR: usize = VOTE_TERM + 8;
const VOTE_COMMIT: usize = VOTE_FOR + 8;
const VOTE_LEN: usize = VOTE_COMMIT + 8;

const STATE_LEASE: usize = 0;
const STATE_VOTE: usize = STATE_LEASE + 8;
const STATE_COUNT: usize = STATE_VOTE + VOTE_LEN;
const STATE_CONSUMERS: usize = STATE_COUNT + 4;
const CONSUMER_POPPED: usize = 0;
const CONSUMER_NAME_LEN: usize = CONSUMER_POPPED + 8;
const CONSUMER_NAME: usize = CONSUMER_NAME_LEN + 1;

/// What a node has promised to others: no vote for anybody else in this term, no part in earlier
/// ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Vote {
    /// The newest term that it has heard of.
    pub term: u64,
    /// The node that it voted for in that term; 0 for none.
    pub vote: u64,
    /// The index up to which it knows entries to be committed.
    pub commit: u64,
}

impl Vote {
    /// The body of the record.
    pub fn encode(&self) -> [u8; VOTE_LEN] {
        let mut bytes = [0; VOTE_LEN];
        put(&mut bytes, VOTE_TERM, self.term.to_le_bytes());
        put(&mut bytes, VOTE_FOR, self.vote.to_le_bytes());
        put(&mut bytes, VOTE_COMMIT, self.commit.to_le_bytes());
        bytes
    }

    /// Reads a vote; `None` if these bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; VOTE_LEN] = bytes.try_into().ok()?;
        Some(Self {
            term: u64_at(bytes, VOTE_TERM),
            vote: u64_at(bytes, VOTE_FOR),
            commit: u64_at(bytes, VOTE_COMMIT),
        })
    }
}

/// What holds after a rewind, beside what the header says (index, term and version of the last
/// entry that is left).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rewind {
    /// The lease as of that entry.
    pub lease: Version,
}

impl Rewind {
    /// The body of the record.
    pub fn encode(&self) -> [u8; 8] {
        self.lease.to_le_bytes()
    }

    /// Reads a rewind; `None` if these bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self { lease: decode_lease(bytes)? })
    }
}

/// The lease in the body of an entry of that kind; `None` if these bytes are none.
pub(crate) fn decode_lease(bytes: &[u8]) -> Option<Version> {
    Some(Version::from_le_bytes(bytes.try_into().ok()?))
}

/// What the log remembers beside its entries: the body of every state record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Versions up to this one may have been handed out, as far as entries before the record say.
    pub lease: Version,
    /// What the node has promised.
    pub vote: Vote,
    /// For each consumer the version up to which it needs no entries any longer.
    pub popped: BTreeMap<String, Version>,
}

impl State {
    /// How many bytes [`State::encode`] gives with these consumers.
    pub(crate) fn encoded_len(popped: &BTreeMap<String, Version>) -> u64 {
        let names: usize = popped.keys().map(|name| CONSUMER_NAME + name.len()).sum();
        (STATE_CONSUMERS + names) as u64
    }

    /// Appends the state's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lease.to_le_bytes());
        out.extend_from_slice(&self.vote.encode());
        out.extend_from_slice(&(self.popped.len() as u32).to_le_bytes());
        for (name, popped) in &self.popped {
            assert!(name.len() <= MAX_CONSUMER_NAME_LEN);
            out.extend_from_slice(&popped.to_le_bytes());
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
        }
    }

    /// Reads a state; `None` if these bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < STATE_CONSUMERS {
            return None;
        }
        let vote = Vote::decode(bytes.get(STATE_VOTE..STATE_COUNT)?)?;
        let mut state =
            Self { lease: version_at(bytes, STATE_LEASE), vote, popped: BTreeMap::new() };
        let mut rest = &bytes[STATE_CONSUMERS..];
        for _ in 0..u32_at(bytes, STATE_COUNT) {
            let (fixed, after) = rest.split_at_checked(CONSUMER_NAME)?;
            let (name, after) = after.split_at_checked(usize::from(fixed[CONSUMER_NAME_LEN]))?;
            state.popped.insert(
                std::str::from_utf8(name).ok()?.to_string(),
                version_at(fixed, CONSUMER_POPPED),
            );
            rest = after;
        }
        rest.is_empty().then_some(state)
    }
}
