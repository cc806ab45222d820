//! Golden bytes of checkpoints, in the clear and sealed, and what of them is believed.
//!
//! They hold code and `docs/format/checkpoint.md` to each other. They never change; another format
//! gets golden bytes of its own.

use super::*;
use plinth_format::crypt::Key;

fn header() -> Header {
    let identity = Identity { cluster_id: *b"cluster id 16 by", node_id: *b"node id 16 bytes" };
    let at = LogPosition { index: 0x0a0b, term: 0x0c, version: 0x0102_0304 };
    Header { identity, at, nonce: 0x1122_3344_5566_7788, sealed: false }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file of `docs/format/checkpoint.md`.
fn golden() -> Vec<u8> {
    file(&header(), &Keys::none())
}

/// The same with keys.
fn file(header: &Header, keys: &Keys) -> Vec<u8> {
    let fill = |bytes: &mut [u8]| bytes.iter_mut().zip(1..).for_each(|(byte, at)| *byte = at);
    let front = Front::new(header, keys, fill);
    let (mut file, mut totals) = (front.bytes.clone(), Totals::default());
    push_block(&mut file, front.sealing(), Kind::Rows, 0, |body| {
        for (key, value) in [(&b""[..], &b"empty"[..]), (b"key", b""), (b"key2", &[7; 130])] {
            push_row(body, key, value);
            totals.add(key, value);
        }
        3
    });
    push_footer(&mut file, &front, 1, &totals);
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
    let copy = front_in_footer(footer, &Keys::none());
    assert_eq!(copy.map(|(header, _)| header), Some(header));
    let totals = decode_footer(&footer[BLOCK_HEADER_LEN..], &header).unwrap();
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
    bytes[MAGIC.len()] = 4;
    assert!(matches!(Header::decode(&bytes), Err(HeaderFlaw::Damaged(_))));
    let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKSUM]);
    bytes[HEADER_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(Header::decode(&bytes), Err(HeaderFlaw::Foreign(4)));
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

/// Keys and nonces are told, so the bytes are the same each time.
#[test]
fn golden_bytes_of_a_sealed_file() {
    let keys = Keys::new(&[Key::of_file(&[9; 32]).unwrap()]);
    let header = Header { sealed: true, ..header() };
    let golden = file(&header, &keys);
    assert_eq!(hex(&golden[8..16]), "0300000080000000");
    assert_eq!(golden.len(), FRONT_LEN + 32 + 149 + 16 + SEALED_FOOTER_LEN);
    assert!(!golden.windows(5).any(|part| part == b"empty"));
    assert_eq!(crc32c::crc32c(&golden), SEALED_CHECKSUM);
    let (front, cipher) =
        front_in_footer(&golden[golden.len() - SEALED_FOOTER_LEN..], &keys).unwrap();
    assert_eq!(front, header);
    let at = FRONT_LEN + BLOCK_HEADER_LEN;
    let block = BlockHeader::decode(&golden[FRONT_LEN..], header.seed()).unwrap();
    let mut body = golden[at..at + block.body_len].to_vec();
    block.check(&body, header.seed()).unwrap();
    let moved = BlockHeader { number: 1, ..block };
    assert!(moved.open(&mut body.clone(), &cipher).is_err(), "of another place");
    let len = block.open(&mut body, &cipher).unwrap();
    assert_eq!(BodyRows::new(&body[..len]).count(), 3);
    // The footer can be read by all, and made by those with the key alone.
    let at = golden.len() - SEALED_FOOTER_LEN;
    let block = BlockHeader::decode(&golden[at..], header.seed()).unwrap();
    let mut body = golden[at + BLOCK_HEADER_LEN..].to_vec();
    assert_eq!(decode_footer(&body, &header).unwrap().rows, 3);
    assert!(block.open(&mut body.clone(), &cipher).is_ok());
    body[0] = 2;
    assert!(block.open(&mut body, &cipher).is_err());
}

const SEALED_CHECKSUM: u32 = 0xfebf_0811;
