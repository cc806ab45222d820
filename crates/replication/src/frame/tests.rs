//! Golden bytes, frames of every kind there and back, and frames that have been tampered with.
//!
//! Flipped bits are found by the checksum. Those that have been given a checksum again are refused,
//! or are a frame that is whole and could have been sent.

use super::*;
use crate::failure::{ReplicationError, ReplicationResult};
use crate::message::MessageKind;

fn message(entries: Vec<u64>) -> Message {
    Message {
        kind: MessageKind::Append,
        from: 1,
        to: 2,
        term: 9,
        index: 40,
        log_term: 7,
        commit: 39,
        commit_term: 0,
        reject: false,
        hint: 0,
        context: None,
        entries,
        members: Vec::new(),
    }
}

/// The body of an entry that changes who is a member.
fn members_body() -> Vec<u8> {
    let members = Members::of_voters([(1, "a:1".to_owned())]);
    let mut rows = plinth_types::MutationList::new();
    rows.push(plinth_types::MutationType::Set, plinth_types::system::MEMBERS, &members.encode());
    let head = plinth_log::sections_head(&[(plinth_log::ALL_ROWS, rows.as_bytes().len())]);
    [&head[..], rows.as_bytes()].concat()
}

fn entry(kind: EntryKind, index: u64, term: u64, versions: [Version; 3], body: &[u8]) -> Entry {
    let [version, previous, committed] = versions;
    let head = EntryHead { kind, index, term, version, previous, committed };
    Entry::new(head, Bytes::copy_from_slice(body))
}

/// An append with an entry of each kind.
fn sample() -> Frame {
    let entries = vec![
        entry(EntryKind::Mutations, 41, 7, [600, 500, 400], b"abc"),
        entry(EntryKind::Begin, 42, 8, [600, 600, 500], b""),
        entry(EntryKind::Lease, 43, 9, [600, 600, 600], &1000_u64.to_le_bytes()),
        entry(EntryKind::Members, 44, 9, [700, 600, 600], &members_body()),
    ];
    let message = Message { members: vec![44], ..message(vec![7, 8, 9, 9]) };
    Frame { message, entries, before: Some(0x0102_0304) }
}

fn decode(bytes: Vec<u8>) -> ReplicationResult<Frame> {
    Frame::decode(&Bytes::from(bytes))
}

/// The same bytes with the checksum that they should have.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes[LENGTH..]);
    bytes[..LENGTH].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn the_bytes_of_a_frame() {
    let entries = vec![entry(EntryKind::Mutations, 41, 9, [6, 5, 4], b"ab")];
    let mut frame = Frame::new(message(vec![9]), entries);
    let number = |n: u8| [n, 0, 0, 0, 0, 0, 0, 0];
    let expected: Vec<u8> = [
        &[0x82, 0xbf, 0xea, 0x16, 0x82, 0, 0, 0, 0x58, 0, 0, 0, 0, 0, 0, 0][..],
        &[1, 0, 0, 0, 1, 0, 0, 0],
        [1, 2, 9, 40, 7, 39, 0, 0, 0, 9].map(number).as_flattened(),
        &[16, 0, 0, 0, 2, 0, 0, 0],
        [6, 5, 4].map(number).as_flattened(),
        b"ab",
    ]
    .concat();
    assert_eq!(frame.encode().unwrap(), expected);
    assert_eq!(decode(expected.clone()), Ok(frame.clone()));
    // With the checksum of entry 40 behind the message.
    frame.before = Some(0x0403_0201);
    let head_at = expected.len() - ENTRY_HEAD - 2;
    let mut with = [&expected[..head_at], &[1, 2, 3, 4], &expected[head_at..]].concat();
    (with[4], with[12]) = (0x86, 2);
    let with = sealed(with);
    assert_eq!(with[..4], [0x0e, 0x64, 0x2f, 0x0d]);
    assert_eq!(frame.encode().unwrap(), with);
    assert_eq!(decode(with), Ok(frame.clone()));
    // Whoever speaks no later version than the fourth gets none.
    frame.speak(5);
    assert_eq!(frame.before, Some(0x0403_0201));
    frame.speak(4);
    assert_eq!(frame.encode().unwrap(), expected);
}

/// The same on every node, whatever its log writes it down behind.
#[test]
fn the_checksum_of_an_entry() {
    let entry = entry(EntryKind::Mutations, 41, 9, [6, 5, 4], b"ab");
    let sum = |entry: &Entry| checksum(&entry.head(), &entry.body);
    let golden = [&[16, 0, 0, 0, 2, 0, 0, 0][..], &[6, 0, 0, 0, 0, 0, 0, 0, 5], &[0; 7], &[4]];
    let golden = [&golden.concat()[..], &[0; 7], b"ab"].concat();
    assert_eq!(sum(&entry), crc32c::crc32c(&golden));
    let other = |change: fn(&mut Entry)| {
        let mut other = entry.clone();
        change(&mut other);
        sum(&other)
    };
    let others = [
        other(|entry| entry.kind = EntryKind::Lease),
        other(|entry| entry.version = 7),
        other(|entry| entry.previous = 4),
        other(|entry| entry.committed = 5),
        other(|entry| entry.body = Bytes::from_static(b"ac")),
        other(|entry| entry.body = Bytes::from_static(b"a")),
    ];
    assert!(!others.contains(&sum(&entry)));
}

#[test]
fn a_checksum_of_an_entry_that_is_not_there_is_refused() {
    let kind = MessageKind::Heartbeat;
    let first = Message { index: 0, log_term: 0, ..message(vec![9]) };
    let entries = vec![entry(EntryKind::Mutations, 1, 9, [6, 0, 0], b"ab")];
    for (message, entries) in [(Message { kind, ..message(vec![]) }, vec![]), (first, entries)] {
        let frame = Frame { message: message.clone(), entries: entries.clone(), before: Some(1) };
        assert_eq!(frame.encode(), Err(ReplicationError::TooLarge(String::new())));
        let without = Frame::new(message, entries).encode().unwrap();
        let behind = MESSAGE + u32::from_le_bytes(*without[8..].first_chunk().unwrap()) as usize;
        let mut with = [&without[..behind], &[1, 0, 0, 0], &without[behind..]].concat();
        with[LENGTH] += 4;
        with[12] = 2;
        assert_eq!(decode(sealed(with)), Err(ReplicationError::Malformed(String::new())));
    }
    for what in [3, 255] {
        let mut bytes = sample().encode().unwrap();
        bytes[12] = what;
        assert_eq!(decode(sealed(bytes)), Err(ReplicationError::Malformed(String::new())));
    }
}

#[test]
fn every_frame_comes_back_as_it_was() {
    let sample = sample();
    assert_eq!(decode(sample.encode().unwrap()), Ok(sample.clone()));
    for kind in MessageKind::ALL {
        let frame = Frame::new(Message { kind, ..message(vec![]) }, vec![]);
        let bytes = frame.encode().unwrap();
        assert!(bytes.len() <= frame.size());
        assert_eq!(decode(bytes), Ok(frame));
    }
    // The largest transaction that there is, and what its client may add.
    let body = vec![7; 11 << 20];
    let large = entry(EntryKind::Mutations, 41, 9, [6, 5, 4], &body);
    let frame = Frame::new(message(vec![9]), vec![large]);
    assert_eq!(decode(frame.encode().unwrap()), Ok(frame));
}

#[test]
fn what_nobody_would_take_is_not_sent() {
    let other = Frame { entries: vec![], ..sample() };
    assert_eq!(other.encode(), Err(ReplicationError::TooLarge(String::new())));
    let body = vec![7; MAX_FRAME];
    let large = entry(EntryKind::Mutations, 41, 9, [6, 5, 4], &body);
    let frame = Frame::new(message(vec![9]), vec![large]);
    assert_eq!(frame.encode(), Err(ReplicationError::TooLarge(String::new())));
}

#[test]
fn a_flipped_bit_or_a_missing_byte_is_noticed() {
    let good = sample().encode().unwrap();
    for len in 0..good.len() {
        decode(good[..len].to_vec()).expect_err("cut short");
    }
    decode([&good[..], &[0]].concat()).expect_err("too long");
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        decode(bytes).expect_err("one bit is another");
    }
}

#[test]
fn what_no_leader_could_have_made_is_refused() {
    let body = |len: usize| vec![0; len];
    let wrong = [
        entry(EntryKind::Mutations, 41, 9, [5, 5, 4], b"x"),
        entry(EntryKind::Mutations, 41, 9, [5, -1, 4], b"x"),
        entry(EntryKind::Mutations, 41, 9, [6, 5, 7], b"x"),
        entry(EntryKind::Mutations, 41, 9, [6, 5, -1], b"x"),
        entry(EntryKind::Lease, 41, 9, [6, 5, 4], &body(8)),
        entry(EntryKind::Lease, 41, 9, [5, 5, 4], &body(7)),
        entry(EntryKind::Begin, 41, 9, [5, 5, 4], b"x"),
        entry(EntryKind::Members, 41, 9, [5, 5, 4], &members_body()),
        entry(EntryKind::Members, 41, 9, [6, 5, 4], b"x"),
    ];
    for entry in wrong {
        let members = if entry.kind == EntryKind::Members { vec![41] } else { vec![] };
        let message = Message { members, ..message(vec![9]) };
        let frame = Frame::new(message, vec![entry.clone()]);
        assert_eq!(
            decode(frame.encode().unwrap()),
            Err(ReplicationError::Malformed(String::new())),
            "{entry:?}"
        );
    }
    let gap = vec![
        entry(EntryKind::Mutations, 41, 9, [6, 5, 4], b"x"),
        entry(EntryKind::Mutations, 42, 9, [9, 7, 4], b"x"),
    ];
    let frame = Frame::new(message(vec![9, 9]), gap);
    assert_eq!(decode(frame.encode().unwrap()), Err(ReplicationError::Malformed(String::new())));
}

/// Whoever knows the checksum's algorithm gets no further than anybody else.
#[test]
fn whatever_is_sealed_is_refused_or_means_what_it_says() {
    let good = sample().encode().unwrap();
    let mut state = 11_u64;
    let mut taken = 0;
    for round in 0..50_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + round % 3 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] =
                if round % 2 == 0 { bytes[at] ^ 1 << (state >> 61) } else { (state >> 24) as u8 };
        }
        let bytes = sealed(bytes);
        if let Ok(frame) = decode(bytes.clone()) {
            taken += 1;
            assert!(frame.is_whole());
            assert_eq!(frame.encode().unwrap().len(), bytes.len());
        }
    }
    assert!(taken > 1000, "{taken}");
}
