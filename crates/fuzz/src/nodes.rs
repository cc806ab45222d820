//! What nodes of a cluster send each other, and the bodies in their logs.
//!
//! A body reaches a log behind a checksum, from another node that has checked it; it is still
//! looked at as anything from outside is. What is taken is encoded to the same bytes again.

use crate::decoders;
use plinth_log::format::{Rewind, State, Vote};
use plinth_log::{Entry, EntryHead, EntryKind, sections, sections_head};
use plinth_peers::hello::{Hello, Purpose, Stage, Welcome, Word};
use plinth_peers::packet::{self, Kind, Pieces};
use plinth_peers::{Charter, Peer, Secret};
use plinth_pipeline::Chunk;
use plinth_replication::{Frame, Members, Message, MessageKind, Parcel, ParcelKind};
use plinth_types::{Bytes, Error, LogPosition, MutationList, MutationType, Rows, system};

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
        Err(error) => decoders::told(&Error::from(&error)),
    }
}

/// A frame or a parcel, with the length and the checksum that it should have.
pub(crate) fn frames(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= 8 {
        let len = (sealed.len() - 8) as u32;
        sealed[4..8].copy_from_slice(&len.to_le_bytes());
        let checksum = crc32c::crc32c(&sealed[4..]);
        sealed[..4].copy_from_slice(&checksum.to_le_bytes());
    }
    let sealed = Bytes::from(sealed);
    if Parcel::is_one(&sealed) {
        if let Ok(parcel) = Parcel::decode(&sealed) {
            let again = parcel.encode().expect("what was decoded can be sent on");
            assert_eq!(again[..], sealed[..]);
        }
        return;
    }
    match Frame::decode(&sealed) {
        Ok(frame) => {
            let again = frame.encode().expect("what was decoded can be sent on");
            assert_eq!(again.len(), bytes.len());
            assert_eq!(Frame::decode(&Bytes::from(again)), Ok(frame));
        }
        Err(error) => decoders::told(&Error::from(&error)),
    }
}

/// What nodes say before there are frames, with the checksum that it should have, and the packets
/// around frames.
pub(crate) fn words(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= 16 {
        let checksum = crc32c::crc32c(&sealed[16..]);
        let len = (sealed.len() - 16) as u32;
        sealed[8..12].copy_from_slice(&len.to_le_bytes());
        sealed[12..16].copy_from_slice(&checksum.to_le_bytes());
    }
    let mut again = Vec::new();
    if let Ok(Some((hello, _))) = Hello::decode(&sealed) {
        hello.encode(&mut again);
        assert_eq!(Hello::decode(&again).map(|read| read.map(|(read, _)| read)), Ok(Some(hello)));
    }
    again.clear();
    if let Ok(Some((welcome, _))) = Welcome::decode(&sealed) {
        welcome.encode(&mut again);
        assert_eq!(
            Welcome::decode(&again).map(|read| read.map(|(read, _)| read)),
            Ok(Some(welcome))
        );
    }
    again.clear();
    if let Ok(Some((word, _))) = Word::decode(&sealed) {
        word.encode(&mut again);
        assert_eq!(Word::decode(&again).map(|read| read.map(|(read, _)| read)), Ok(Some(word)));
    }
    let (mut rest, mut pieces) = (bytes, Pieces::default());
    while let Ok(Some((kind, payload))) = packet::split(rest) {
        rest = &rest[packet::HEAD + payload.len()..];
        if matches!(kind, Kind::Whole | Kind::Piece | Kind::Last)
            && pieces.take(kind, payload).is_err()
        {
            break;
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
        Err(error) => decoders::told(&Error::from(&error)),
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

/// Bytes of a chunk's header before what the target `chunks` takes from its input: rows, lengths,
/// compression.
const CHUNK_COUNTS: std::ops::Range<usize> = 40..56;
const CHUNK_HEADER: usize = 64;

/// A chunk of rows, as it comes, and with the header's other fields and the checksums that it
/// should have.
pub(crate) fn chunks(bytes: &[u8]) {
    let mut sealed = Vec::new();
    if let Some((counts, body)) = bytes.split_at_checked(CHUNK_COUNTS.len()) {
        sealed.extend_from_slice(b"PLNTHROW");
        [1_u32, CHUNK_HEADER as u32]
            .iter()
            .for_each(|number| sealed.extend_from_slice(&number.to_le_bytes()));
        sealed.extend_from_slice(&[1; 24]);
        sealed.extend_from_slice(counts);
        sealed[44..48].copy_from_slice(&(body.len() as u32).to_le_bytes());
        sealed.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
        sealed.extend_from_slice(&crc32c::crc32c(&sealed).to_le_bytes());
        sealed.extend_from_slice(body);
    }
    for bytes in [bytes, &sealed] {
        match Chunk::decode(bytes) {
            Ok(chunk) => {
                let again = chunk.encode();
                assert_eq!(Chunk::decode(&again), Ok(chunk));
                assert_eq!(Chunk::encoded_len(&again[..CHUNK_HEADER]), Ok(again.len()));
            }
            Err(error) => decoders::told(&Error::from(&error)),
        }
    }
}

/// No rows; a few; some that compression makes smaller.
pub(crate) fn chunk_seeds() -> Vec<Vec<u8>> {
    let chunk = |rows: &[(&[u8], &[u8])]| {
        let mut builder = Rows::builder();
        rows.iter().for_each(|(key, value)| builder.push(key, value));
        let at = LogPosition { index: 5, term: 2, version: 70 };
        let (begin, end) = (Bytes::from_static(b"a"), Bytes::from_static(b"\xff"));
        let encoded = Chunk { at, begin, end, rows: builder.finish() }.encode();
        [&encoded[CHUNK_COUNTS], &encoded[CHUNK_HEADER..]].concat()
    };
    let text = b"frieze, cornice, ".repeat(20);
    vec![
        chunk(&[]),
        chunk(&[(b"a", b""), (b"b", b"1"), (b"c", &[7; 200])]),
        chunk(&[(b"a", &text), (b"b", &text)]),
    ]
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
        members: if kind == MessageKind::Append { vec![42] } else { Vec::new() },
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
        entry(EntryKind::Members, 43, 600, &members_body()),
    ];
    let append = Message { entries: vec![9; 3], members: vec![43], ..message(MessageKind::Append) };
    let mutations = Message { entries: vec![9], members: Vec::new(), ..append.clone() };
    let what = vec![entry(EntryKind::Mutations, 41, 600, b"what")];
    let frames = [
        Frame::new(message(MessageKind::Heartbeat), Vec::new()),
        Frame::new(append.clone(), entries.clone()),
        Frame::new(mutations, what),
        Frame { before: Some(0x1234_5678), ..Frame::new(append, entries) },
    ];
    let bare = Parcel::bare(ParcelKind::Chunk, 1, 2, 9);
    let key = Bytes::from_static(b"key");
    let parcels = [
        Parcel { number: 3, about: 100, payload: Bytes::from_static(b"rows"), ..bare.clone() },
        Parcel { kind: ParcelKind::Ask, number: 3, about: 1 << 20, index: 7, key, ..bare },
    ];
    let parcels = parcels.iter().map(|parcel| parcel.encode().expect("it is a small one"));
    let frames = frames.iter().map(|frame| frame.encode().expect("it is a small one"));
    frames.chain(parcels).collect()
}

/// The body of an entry that changes who is a member.
fn members_body() -> Vec<u8> {
    let members = Members::of_voters([(1, "a:1".to_owned())]).with_learner("b:2");
    let mut rows = MutationList::new();
    rows.push(MutationType::Set, system::MEMBERS, &members.encode());
    [&sections_head(&[(0, rows.as_bytes().len())])[..], rows.as_bytes()].concat()
}

/// A body of each kind.
pub(crate) fn log_seeds() -> Vec<Vec<u8>> {
    let vote = Vote { term: 3, vote: 1, commit: 5 };
    let popped = [("storage".to_string(), 40), ("backup".to_string(), 0)].into_iter().collect();
    let mut state = Vec::new();
    State { lease: 100, vote, popped }.encode(&mut state);
    let body = [&sections_head(&[(0, 3), (7, 2)])[..], b"abcde"].concat();
    vec![
        body,
        sections_head(&[]),
        vote.encode().to_vec(),
        Rewind { lease: 7 }.encode().to_vec(),
        state,
    ]
}

/// Each message by which nodes come to know each other, and packets.
pub(crate) fn word_seeds() -> Vec<Vec<u8>> {
    let (cluster_id, nonce) = ([3; 16], [6; 32]);
    let hello = Hello {
        spoken: plinth_replication::Spoken { oldest: 1, newest: 1 },
        purpose: Purpose::Forming,
        cluster: "a:b".into(),
        cluster_id,
        from: 4,
        to: 5,
        nonce,
        address: "h:1".into(),
        addresses: "h:1,h:2".into(),
        window: 5_000_000,
    };
    let peer = |node, address: &str| Peer { node, address: address.into() };
    let charter = Charter {
        cluster: "a:b".into(),
        cluster_id,
        secret: Secret::from_bytes([8; 32]),
        members: vec![peer(4, "h:1"), peer(5, "h:2")],
    };
    let welcome = Welcome {
        version: 1,
        refused: None,
        cluster_id,
        node: 5,
        stage: Stage::Begun,
        nonce,
        proof: [7; 32],
    };
    let refused = Welcome::refuse(Error::permission_denied().with_detail("why"));
    let mut packets = Vec::new();
    for kind in [Kind::Ping, Kind::Pong, Kind::Piece, Kind::Whole, Kind::Last] {
        packet::put(&mut packets, kind, b"payload");
    }
    let mut seeds = vec![Vec::new(); 3];
    hello.encode(&mut seeds[0]);
    welcome.encode(&mut seeds[1]);
    refused.encode(&mut seeds[2]);
    let verdict = Word::Verdict(Err(Error::permission_denied().with_detail("why")));
    let words = [Word::Proof([7; 32]), verdict, Word::Found(charter)];
    seeds.extend(words.iter().map(|word| {
        let mut bytes = Vec::new();
        word.encode(&mut bytes);
        bytes
    }));
    seeds.push(packets);
    seeds
}
