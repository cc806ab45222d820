use super::*;

fn header() -> Header {
    let identity = Identity { cluster_id: *b"cluster id 16 by", node_id: *b"node id 16 bytes" };
    let at = LogPosition { index: 0x0a0b, term: 0x0c, version: 0x0102_0304 };
    Header { identity, at, nonce: 0x1122_3344_5566_7788 }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file of `docs/format/checkpoint.md`.
fn golden() -> Vec<u8> {
    let header = header();
    let mut file = header.encode().to_vec();
    let mut totals = Totals::default();
    push_block(&mut file, header.seed(), Kind::Rows, 0, |body| {
        for (key, value) in [(&b""[..], &b"empty"[..]), (b"key", b""), (b"key2", &[7; 130])] {
            push_row(body, key, value);
            totals.add(key, value);
        }
        3
    });
    push_footer(&mut file, &header, 1, &totals);
    file
}

#[test]
fn golden_bytes() {
    let expected = [
        // Header.
        "504c4e5448434b50",
        "02000000",
        "80000000",
        "636c7573746572206964203136206279",
        "6e6f6465206964203136206279746573",
        "0403020100000000",
        "8877665544332211",
        "0b0a000000000000",
        "0c00000000000000",
    ]
    .concat();
    let golden = golden();
    assert_eq!(hex(&golden[..HEADER_RESERVED]), expected);
    assert_eq!(golden[HEADER_RESERVED..HEADER_CHECKSUM], [0; 44]);
    let block = &golden[HEADER_LEN..golden.len() - FOOTER_LEN];
    let head = [
        "50424c4b",
        "CHECKSUM",
        "CHECKSUM",
        "95000000",
        "0000000000000000",
        "03000000",
        "01000000",
    ]
    .concat();
    let fixed =
        |bytes: &[u8]| format!("{}CHECKSUMCHECKSUM{}", hex(&bytes[..4]), hex(&bytes[12..32]));
    assert_eq!(fixed(block), head);
    let rows =
        ["0005", "656d707479", "0300", "6b6579", "048201", "6b657932", &"07".repeat(130)].concat();
    assert_eq!(hex(&block[BLOCK_HEADER_LEN..]), rows);
    let footer = &golden[golden.len() - FOOTER_LEN..];
    let head = [
        "50424c4b",
        "CHECKSUM",
        "CHECKSUM",
        "98000000",
        "0100000000000000",
        "00000000",
        "02000000",
    ]
    .concat();
    assert_eq!(fixed(footer), head);
    let totals = ["0300000000000000", "0700000000000000", "8700000000000000"].concat();
    assert_eq!(hex(&footer[BLOCK_HEADER_LEN..][..24]), totals);
    assert_eq!(footer[BLOCK_HEADER_LEN + 24..], golden[..HEADER_LEN]);
    // The checksum of the whole fixes all checksums in it.
    assert_eq!(crc32c::crc32c(&golden), 0x3bf2_9405);
}

#[test]
fn what_is_written_is_read() {
    let golden = golden();
    let header = Header::decode(&golden).unwrap();
    assert_eq!(header, self::header());
    let block = BlockHeader::decode(&golden[HEADER_LEN..], header.seed()).unwrap();
    let body = &golden[HEADER_LEN + BLOCK_HEADER_LEN..][..block.body_len];
    block.check(body, header.seed()).unwrap();
    assert_eq!((block.number, block.rows, block.kind), (0, 3, Kind::Rows));
    let mut rows = BodyRows::new(body);
    assert_eq!(rows.next(), Some((&b""[..], &b"empty"[..])));
    assert_eq!((rows.by_ref().count(), rows.left()), (2, 0));
    let footer = &golden[golden.len() - FOOTER_LEN..];
    assert_eq!(header_in_footer(footer), Some(header));
    let totals = decode_footer(&footer[BLOCK_HEADER_LEN..]).unwrap();
    assert_eq!(totals, Totals { rows: 3, key_bytes: 7, value_bytes: 135 });
}

#[test]
fn another_files_blocks_are_not_taken() {
    let golden = golden();
    let other = Header { nonce: 1, ..header() };
    assert!(BlockHeader::decode(&golden[HEADER_LEN..], other.seed()).is_err());
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let mut bytes = header().encode();
    bytes[MAGIC.len()] = 3;
    assert!(matches!(Header::decode(&bytes), Err(HeaderFlaw::Damaged(_))));
    let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKSUM]);
    bytes[HEADER_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(Header::decode(&bytes), Err(HeaderFlaw::Foreign(3)));
}

#[test]
fn broken_bodies_end_early_and_never_panic() {
    let mut body = Vec::new();
    push_row(&mut body, b"key", &[7; 300]);
    for len in 0..body.len() {
        let mut rows = BodyRows::new(&body[..len]);
        assert_eq!((rows.by_ref().count(), rows.left()), (0, len));
    }
    assert_eq!(BodyRows::new(&[0xff; 20]).count(), 0);
}
