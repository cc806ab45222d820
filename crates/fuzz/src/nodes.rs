//! What nodes of a cluster send each other, and the bodies in their logs.
//!
//! A body reaches a log behind a checksum, from another node that has checked it; it is still looked at as
//! anything from outside is. What is taken is encoded to the same bytes again.

use plinth_log::format::{Rewind, State, Vote};
use plinth_log::{sections, sections_head};
use plinth_replication::{Message, MessageKind};
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
    let message = |kind| Message {
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
    };
    MessageKind::ALL.into_iter().map(|kind| message(kind).encode()).collect()
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
