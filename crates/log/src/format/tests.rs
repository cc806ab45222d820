//! Golden bytes: what format 1 looks like, for ever; and decoders that are given nonsense.

use std::collections::BTreeMap;

use super::*;

fn header() -> SegmentHeader {
    SegmentHeader {
        identity: Identity { cluster_id: *b"cluster-id-16-by", node_id: *b"node-id-16-bytes" },
        log_id: 3,
        serial: 7,
        nonce: 0x1122_3344_5566_7788,
        bytes: 1 << 20,
        recycled: true,
    }
}

fn hex(bytes: &[u8]) -> String {
    let lines =
        bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_bytes_of_a_segment_header() {
    let golden = "\
504c4e54484c4f470100000080000000
636c75737465722d69642d31362d6279
6e6f64652d69642d31362d6279746573
03000000000000000700000000000000
88776655443322110000100000000000
01000000000000000000000000000000
00000000000000000000000000000000
0000000000000000000000001915132f";
    assert_eq!(hex(&header().encode()), golden);
    assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
    let block = header().encode_block();
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
        body_checksum: body_checksum(0x0BAD_5EED, &[b"mutations"]),
        body_len: 9,
        previous: 0xAABB_CCDD,
        epoch: 2,
        sequence: 40,
        index: 31,
        version: 5_000_000,
        durable: 4_999_000,
        unsure: 3,
        kind: Kind::Entry,
    };
    let bytes = entry.encode(0x0BAD_5EED);
    let golden = "\
f3af6b34d7ef37e409000000ddccbbaa
02000000000000002800000000000000
1f00000000000000404b4c0000000000
58474c00000000000300000001000000";
    assert_eq!(hex(&bytes), golden);
    assert_eq!(RecordHeader::decode(&bytes, 0x0BAD_5EED), Ok(entry));
    assert_eq!(entry.durable_sequence(), 36);
    assert_eq!(entry.span(), 80);
    assert!(RecordHeader::is_plausible(&bytes));
    RecordHeader::decode(&bytes, 0x0BAD_5EEE).expect_err("another segment's record");

    let state = State {
        lease: 10_000_000,
        popped: BTreeMap::from([("storage".to_string(), 4_000_000), ("b".to_string(), 0)]),
    };
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    assert_eq!(bytes.len() as u64, state.encoded_len());
    let golden = "\
80969800000000000200000000000000
00000000016200093d00000000000773
746f72616765";
    assert_eq!(hex(&bytes), golden);
    assert_eq!(State::decode(&bytes), Some(state));
}

#[test]
fn a_newer_format_is_told_apart_from_damage() {
    let mut bytes = header().encode();
    bytes[HEADER_FORMAT] = 2;
    assert!(matches!(SegmentHeader::decode(&bytes), Err(HeaderFlaw::Damaged(_))), "its checksum is wrong");
    let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKSUM]);
    bytes[HEADER_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFlaw::Newer(2)));
    let error = newer_format("segment-1.log", 2);
    assert!(error.to_string().contains("segment-1.log has log format 2"), "{error}");
}

#[test]
fn two_segments_that_differ_in_anything_have_different_seeds() {
    let others = [
        SegmentHeader { identity: Identity { cluster_id: [0; 16], ..header().identity }, ..header() },
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
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for len in 0..300 {
        for _ in 0..20 {
            let bytes: Vec<u8> = (0..len).map(|_| if random() < 80 { 0 } else { random() }).collect();
            assert!(SegmentHeader::decode(&bytes).is_err());
            State::decode(&bytes);
            if let Some(bytes) = bytes.first_chunk::<RECORD_HEADER_LEN>() {
                RecordHeader::decode(bytes, 5).expect_err("nonsense");
            }
        }
    }
    // Every prefix of a good state, and one byte more.
    let state = State { lease: 1, popped: BTreeMap::from([("consumer".to_string(), 2)]) };
    let mut bytes = Vec::new();
    state.encode(&mut bytes);
    for len in 0..bytes.len() {
        assert_eq!(State::decode(&bytes[..len]), None);
    }
    bytes.push(0);
    assert_eq!(State::decode(&bytes), None);
}
