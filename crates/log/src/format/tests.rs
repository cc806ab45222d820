//! Golden bytes: what format 2 looks like, for ever; and decoders that are given nonsense.
//!
//! Each test has the bytes of one thing that is written to a disk, as the page on the format draws
//! them. They never change; another format gets golden bytes of its own.

use std::collections::BTreeMap;

use super::mark::{Mark, mark_seed};
use super::*;
use crate::entry::EntryKind;
use plinth_format::Keys;
use plinth_format::crypt::{Key, Nonces};

fn header() -> SegmentHeader {
    SegmentHeader {
        identity: Identity { cluster_id: *b"cluster-id-16-by", node_id: *b"node-id-16-bytes" },
        log_id: 3,
        serial: 7,
        nonce: 0x1122_3344_5566_7788,
        bytes: 1 << 20,
        recycled: true,
        sealed: false,
    }
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_bytes_of_a_segment_header() {
    let golden = "\
504c4e54484c4f470200000080000000
636c75737465722d69642d31362d6279
6e6f64652d69642d31362d6279746573
03000000000000000700000000000000
88776655443322110000100000000000
01000000000000000000000000000000
00000000000000000000000000000000
000000000000000000000000c382af14";
    assert_eq!(hex(&header().encode()), golden);
    assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
    let block = header().encode_block(None);
    assert_eq!(block.len() as u64, RECORDS_START);
    for copy in HEADER_COPIES {
        assert_eq!(hex(&block[copy as usize..][..HEADER_LEN]), golden);
    }
    assert_eq!(header().seed(), 0xf246_29ae);
}

#[test]
fn the_bytes_of_records() {
    let mut entry = RecordHeader {
        checksum: 0,
        body_checksum: body_checksum(0x0BAD_5EED, b"mutations"),
        body_len: 9,
        before: 0xAABB_CCDD,
        term: 6,
        sequence: 40,
        index: 31,
        version: 5_000_000,
        previous: 4_999_500,
        committed: 4_999_000,
        opening: 2,
        unsure: 3,
        kind: Kind::Entry(EntryKind::Mutations),
    };
    let bytes = entry.encode(0x0BAD_5EED);
    let golden = "\
3dcb5727d7ef37e409000000ddccbbaa
06000000000000002800000000000000
1f00000000000000404b4c0000000000
4c494c000000000058474c0000000000
02000000030000001000000000000000";
    assert_eq!(hex(&bytes), golden);
    assert_eq!(RecordHeader::decode(&bytes, 0x0BAD_5EED), Ok(entry));
    assert_eq!(entry.durable_sequence(), 36);
    assert_eq!(entry.span(), 96);
    assert!(RecordHeader::is_plausible(&bytes));
    RecordHeader::decode(&bytes, 0x0BAD_5EEE).expect_err("another segment's record");
    for kind in
        [Kind::State, Kind::Vote, Kind::Rewind].into_iter().chain(EntryKind::ALL.map(Kind::Entry))
    {
        let bytes = RecordHeader { kind, ..entry }.encode(7);
        assert_eq!(RecordHeader::decode(&bytes, 7).unwrap().kind, kind);
    }
}

#[test]
fn the_bytes_of_the_logs_own_records() {
    let vote = Vote { term: 9, vote: 0x0102_0304_0506_0708, commit: 77 };
    let golden = "\
09000000000000000807060504030201
4d00000000000000";
    assert_eq!(hex(&vote.encode()), golden);
    assert_eq!(Vote::decode(&vote.encode()), Some(vote));
    let rewind = Rewind { lease: 10_000_000 };
    assert_eq!(hex(&rewind.encode()), "8096980000000000");
    assert_eq!(Rewind::decode(&rewind.encode()), Some(rewind));
    let state = State {
        lease: 10_000_000,
        vote,
        popped: BTreeMap::from([("storage".to_string(), 4_000_000), ("b".to_string(), 0)]),
    };
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    assert_eq!(bytes.len() as u64, State::encoded_len(&state.popped));
    let golden = "\
80969800000000000900000000000000
08070605040302014d00000000000000
02000000000000000000000001620009
3d00000000000773746f72616765";
    assert_eq!(hex(&bytes), golden);
    assert_eq!(State::decode(&bytes), Some(state));
}

#[test]
fn the_bytes_of_a_note() {
    let mark = Mark { number: 3, sequence: 40, committed: 5_000_000 };
    let bytes = mark.encode(mark_seed(&header().identity, 3));
    let golden = "\
504c4e54484455520200000040000000
03000000000000002800000000000000
404b4c00000000000000000000000000
000000000000000000000000247ef77c";
    assert_eq!(hex(&bytes), golden);
    assert_eq!(Mark::decode(&bytes, mark_seed(&header().identity, 3)), Ok(mark));
    Mark::decode(&bytes, mark_seed(&header().identity, 4)).expect_err("another log's note");
}

#[test]
fn another_format_is_told_apart_from_damage() {
    for (format, remedy) in [(1, "from before the first release"), (4, "with a newer Plinth")] {
        let mut bytes = header().encode();
        bytes[MAGIC.len()] = format;
        assert!(
            matches!(SegmentHeader::decode(&bytes), Err(HeaderFlaw::Damaged(_))),
            "its checksum is wrong"
        );
        let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKSUM]);
        bytes[HEADER_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFlaw::Foreign(format.into())));
        let error = foreign_format("segment-1.log", format.into()).to_string();
        assert!(error.contains(&format!("segment-1.log has log format {format}")), "{error}");
        assert!(error.contains(remedy), "{error}");
    }
}

#[test]
fn two_segments_that_differ_in_anything_have_different_seeds() {
    let others = [
        SegmentHeader {
            identity: Identity { cluster_id: [0; 16], ..header().identity },
            ..header()
        },
        SegmentHeader { identity: Identity { node_id: [0; 16], ..header().identity }, ..header() },
        SegmentHeader { log_id: 4, ..header() },
        SegmentHeader { serial: 8, ..header() },
        SegmentHeader { nonce: 1, ..header() },
    ];
    for other in others {
        assert_ne!(other.seed(), header().seed(), "{other:?}");
    }
}

#[test]
fn decoders_refuse_nonsense_and_never_panic() {
    let mut state = 0x1234_5678_9ABC_DEF0_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for len in 0..300 {
        for _ in 0..20 {
            let bytes: Vec<u8> =
                (0..len).map(|_| if random() < 80 { 0 } else { random() }).collect();
            assert!(SegmentHeader::decode(&bytes).is_err());
            State::decode(&bytes);
            assert!(len == 24 || Vote::decode(&bytes).is_none());
            assert!(len == 8 || Rewind::decode(&bytes).is_none());
            if let Some(bytes) = bytes.first_chunk::<RECORD_HEADER_LEN>() {
                RecordHeader::decode(bytes, 5).expect_err("nonsense");
            }
        }
    }
    // Every prefix of a good state, and one byte more.
    let popped = BTreeMap::from([("consumer".to_string(), 2)]);
    let state = State { lease: 1, vote: Vote::default(), popped };
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    for len in 0..bytes.len() {
        assert_eq!(State::decode(&bytes[..len]), None);
    }
    bytes.push(0);
    assert_eq!(State::decode(&bytes), None);
}

/// What keys and nonces are is told, so the bytes are the same each time.
#[test]
fn the_bytes_of_a_sealed_record() {
    let keys = Keys::new(&[Key::of_file(&[9; 32]).unwrap()]);
    let header = SegmentHeader { sealed: true, ..header() };
    let fill =
        |bytes: &mut [u8]| bytes.iter_mut().zip(1..).for_each(|(byte, number)| *byte = number);
    let (cipher, envelope) = keys.of_new_file(&header.encode(), header.seed(), fill);
    assert_eq!(hex(&header.encode()[..16]), "504c4e54484c4f470300000080000000");
    let block = header.encode_block(envelope.as_ref());
    for copy in HEADER_COPIES {
        let at = copy as usize + HEADER_LEN;
        assert_eq!(Some(&block[at..at + ENVELOPE_LEN]), envelope.as_ref().map(|all| &all[..]));
    }
    let (mut sealed, mut nonces) = (Vec::new(), Nonces::starting_at([7; 12]));
    seal(cipher.key().unwrap(), &mut nonces, b"about", &[b"muta", b"tions"], &mut sealed);
    assert_eq!(hex(&sealed), SEALED);
    let again = keys.of_file(&envelope.unwrap(), &header.encode(), header.seed()).unwrap();
    let opened = |about| unseal(&again, about, sealed.clone().into());
    assert!(matches!(opened(b"about"), Ok(Body::Open(body)) if body[..] == b"mutations"[..]));
    assert!(opened(b"aboot").is_err());
    for len in 0..sealed.len() {
        assert!(unseal(&again, b"about", sealed[..len].to_vec().into()).is_err(), "{len}");
    }
}

const SEALED: &str = "\
07070707070707070707070787b65d32
1f821b86252ec5baa87a13116539c6da
2308b0e4ed";
