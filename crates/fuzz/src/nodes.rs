//! What nodes of a cluster send each other, and the bodies in their logs.
//!
//! A body reaches a log behind a checksum, from another node that has checked it; it is still looked at as
//! anything from outside is. What is taken is encoded to the same bytes again.

use plinth_log::format::{Rewind, State, Vote};
use plinth_log::{Entry, EntryHead, EntryKind, sections, sections_head};
use plinth_replication::{Frame, Message, MessageKind};
use plinth_types::Bytes;

/// A message of consensus.
pub(crate) fn messages(bytes: &[u8]) {
    match Message::decode(bytes) {
        Ok(message) => {
            assert_eq!(message.check(), Ok(()), "what was decoded is one that a node may send");
            // What a flag says isn't there is not looked at.
            let again = message.encode();
            assert_eq!(Message::decode(&again), Ok(message));
            assert_eq!(again.len(), bytes.len());
        }
        Err(error) => {
            assert!(error.detail().is_some_and(|why| !why.is_empty()), "{error} without a word why")
        }
    }
}

/// A frame, with the length and the checksum that it should have.
pub(crate) fn frames(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= 8 {
        let len = (sealed.len() - 8) as u32;
        sealed[4..8].copy_from_slice(&len.to_le_bytes());
        let checksum = crc32c::crc32c(&sealed[4..]);
        sealed[..4].copy_from_slice(&checksum.to_le_bytes());
    }
    match Frame::decode(&Bytes::from(sealed)) {
        Ok(frame) => {
            let again = frame.encode().expect("what was decoded can be sent on");
            assert_eq!(again.len(), bytes.len());
            assert_eq!(Frame::decode(&Bytes::from(again)), Ok(frame));
        }
        Err(error) => {
            assert!(error.detail().is_some_and(|why| !why.is_empty()), "{error} without a word why")
        }
    }
}

/// The body of an entry, and of each of the log's own records.
pub(crate) fn log_bodies(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    match sections(&body) {
        Ok(sections) => {
            let heads: Vec<_> = sections.iter().map(|(tag, bytes)| (*tag, bytes.len())).collect();
            let head = sections_head(&heads);
            let data: Vec<u8> = sections.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
            assert_eq!(head[2..], bytes[2..head.len()]);
            assert_eq!(data, bytes[head.len()..]);
        }
        Err(error) => {
            assert!(error.detail().is_some_and(|why| !why.is_empty()), "{error} without a word why")
        }
    }
    if let Some(vote) = Vote::decode(bytes) {
        assert_eq!(vote.encode(), bytes);
    }
    if let Some(rewind) = Rewind::decode(bytes) {
        assert_eq!(rewind.encode(), bytes);
    }
    if let Some(state) = State::decode(bytes) {
        let mut again = Vec::new();
        state.encode(&mut again);
        assert_eq!(State::decode(&again), Some(state));
    }
}

/// One message of each kind.
pub(crate) fn message_seeds() -> Vec<Vec<u8>> {
    MessageKind::ALL.into_iter().map(|kind| message(kind).encode()).collect()
}

fn message(kind: MessageKind) -> Message {
    Message {
        kind,
        from: 1,
        to: 2,
        term: 9,
        index: 40,
        log_term: 7,
        commit: 39,
        commit_term: 7,
        reject: kind == MessageKind::VoteReply,
        hint: 12,
        context: (kind == MessageKind::Heartbeat).then_some(5),
        entries: if kind == MessageKind::Append { vec![7, 9] } else { Vec::new() },
    }
}

/// A frame without entries, and one with an entry of each kind.
pub(crate) fn frame_seeds() -> Vec<Vec<u8>> {
    let entry = |kind, index, version, body: &[u8]| {
        let head = EntryHead { kind, index, term: 9, version, previous: 500, committed: 400 };
        Entry::new(head, Bytes::copy_from_slice(body))
    };
    let entries = vec![
        entry(EntryKind::Begin, 41, 500, b""),
        entry(EntryKind::Lease, 42, 500, &[7; 8]),
        entry(EntryKind::Members, 43, 500, b"who"),
        entry(EntryKind::Mutations, 44, 600, b"what"),
    ];
    let append = Message { entries: vec![9; 4], ..message(MessageKind::Append) };
    let frames = [
        Frame { message: message(MessageKind::Heartbeat), entries: Vec::new() },
        Frame { message: append, entries },
    ];
    frames.iter().map(|frame| frame.encode().expect("it is a small one")).collect()
}

/// A body of each kind.
pub(crate) fn log_seeds() -> Vec<Vec<u8>> {
    let vote = Vote { term: 3, vote: 1, commit: 5 };
    let popped = [("storage".to_string(), 40), ("backup".to_string(), 0)].into_iter().collect();
    let mut state = Vec::new();
    State { lease: 100, vote, popped }.encode(&mut state);
    let body = [&sections_head(&[(0, 3), (7, 2)])[..], b"abcde"].concat();
    vec![body, sections_head(&[]), vote.encode().to_vec(), Rewind { lease: 7 }.encode().to_vec(), state]
}
