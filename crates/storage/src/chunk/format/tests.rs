//! Golden bytes, flipped bits, cuts, and bodies that no export has made.
//!
//! What comes back is what was put in, or an error that says what is wrong; and the bytes are those
//! of `docs/format/chunk.md`.

use super::*;
use plinth_env::simulated::Random;

fn chunk(rows: &[(&[u8], &[u8])]) -> Chunk {
    let mut builder = RowsBuilder::default();
    rows.iter().for_each(|(key, value)| builder.push(key, value));
    let at = LogPosition { index: 0x0a0b, term: 0x0c, version: 0x0102_0304 };
    Chunk {
        at,
        begin: Bytes::from_static(b"a"),
        end: Bytes::from_static(b"d"),
        rows: builder.finish(),
    }
}

/// The chunk of `docs/format/chunk.md`.
fn golden() -> Chunk {
    chunk(&[(b"a", b"1"), (b"b", b""), (b"c", &[7; 3])])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let bytes = golden().encode();
    let expected = [
        "504c4e5448524f57",
        "01000000",
        "40000000",
        "0b0a000000000000",
        "0c00000000000000",
        "0403020100000000",
        "03000000",
        "11000000",
        "11000000",
        "00000000",
    ]
    .concat();
    assert_eq!(hex(&bytes[..AT_BODY_CHECKSUM]), expected);
    assert_eq!(hex(&bytes[HEADER_LEN..]), "0161016401016131010062010363070707");
    // The checksum of the whole fixes all checksums in it.
    assert_eq!(crc32c::crc32c(&bytes), 0xca1f_b356);
    assert_eq!(Chunk::decode(&bytes), Ok(golden()));
    assert_eq!(Chunk::encoded_len(&bytes[..HEADER_LEN]), Ok(bytes.len()));
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let text = b"capital and column, capital and column, capital and column".repeat(3);
    for chunk in [golden(), chunk(&[(b"a", &text), (b"b", &text)]), chunk(&[])] {
        let bytes = chunk.encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Chunk::decode(&flipped).is_err(), "bit {bit}");
        }
        assert!((0..bytes.len()).all(|len| Chunk::decode(&bytes[..len]).is_err()));
        assert!(Chunk::decode(&[&bytes[..], b"x"].concat()).is_err());
        assert_eq!(Chunk::decode(&bytes), Ok(chunk));
    }
}

/// Puts right checksums around a header and a body that may be anything.
fn wrapped(body: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = golden().encode();
    bytes.truncate(HEADER_LEN);
    for (at, number) in [(AT_STORED, body.len()), (AT_RAW, body.len())] {
        bytes[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes());
    }
    bytes[AT_BODY_CHECKSUM..AT_CHECKSUM].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    change(&mut bytes);
    let checksum = crc32c::crc32c(&bytes[..AT_CHECKSUM]);
    bytes[AT_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    [&bytes[..], body].concat()
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let body = golden().encode().split_off(HEADER_LEN);
    let newer = wrapped(&body, |header| header[MAGIC.len()] = 2);
    assert_eq!(Chunk::decode(&newer), Err(StorageError::NewerFormat("".into())));
    assert_eq!(Chunk::encoded_len(&newer), Err(StorageError::NewerFormat("".into())));
}

#[test]
fn what_no_export_makes_is_refused_though_its_checksums_are_right() {
    let body = golden().encode().split_off(HEADER_LEN);
    assert_eq!(Chunk::decode(&wrapped(&body, |_| ())), Ok(golden()));
    let refused = |body: &[u8], change: fn(&mut [u8])| {
        let error = Chunk::decode(&wrapped(body, change)).expect_err("refused");
        assert!(error.is_damage(), "{error}");
        assert!(error.to_string().contains("expected"), "{error}");
    };
    refused(&body, |header| header[AT_ROWS] = 2);
    refused(&body, |header| header[AT_COMPRESSION] = 2);
    refused(&body, |header| header[AT_COMPRESSION] = 1);
    refused(&body, |header| header[AT_RAW] = 1);
    refused(&body, |header| header[AT_VERSION + 7] = 0x80);
    refused(&body, |header| header[AT_STORED + 3] = 0xff);
    refused(&body, |header| header[MAGIC.len() + 4] = 0);
    // The bounds turned round, keys out of order, beyond the bounds, a row cut short, a length
    // without an end.
    for body in [
        "0164016101016131",
        "01610164010062010061",
        "01610164010065",
        "0161016401",
        "0161016401ffffffffff01",
        "01",
        "",
    ] {
        let bytes: Vec<u8> = (0..body.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&body[at..at + 2], 16).unwrap())
            .collect();
        refused(&bytes, |_| ());
    }
}

#[test]
fn random_chunks_come_back() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (mut builder, mut key) = (RowsBuilder::default(), Vec::new());
        for n in 0..random.below(300) {
            key = format!("{n:05}{}", "k".repeat(random.index(20))).into_bytes();
            let mut value = vec![b'v'; random.index(100)];
            if random.index(2) == 0 {
                random.fill(&mut value);
            }
            builder.push(&key, &value);
        }
        let (begin, end) = (Bytes::new(), plinth_types::key_after(&key));
        let chunk = Chunk { at: LogPosition::without_log(7), begin, end, rows: builder.finish() };
        let bytes = chunk.encode();
        assert!(Chunk::decode(&bytes).as_ref() == Ok(&chunk), "seed {seed}");
        assert_eq!(Chunk::encoded_len(&bytes[..HEADER_LEN]), Ok(bytes.len()), "seed {seed}");
    }
}

/// What compression doesn't make shorter by much is stored as it is; a long body is judged by
/// pieces of it.
#[test]
fn a_body_is_compressed_if_that_makes_it_a_quarter_shorter() {
    for (rows, random_bytes, compression) in
        [(10, 90, UNCOMPRESSED), (10, 20, LZ4), (5000, 90, UNCOMPRESSED), (5000, 20, LZ4)]
    {
        let (mut random, mut builder, mut key) =
            (Random::new(rows), RowsBuilder::default(), vec![]);
        for n in 0..rows {
            key = format!("key {n:08}").into_bytes();
            let mut value = vec![b'v'; 100];
            random.fill(&mut value[..random_bytes]);
            builder.push(&key, &value);
        }
        let (begin, end) = (Bytes::new(), plinth_types::key_after(&key));
        let chunk = Chunk { at: LogPosition::without_log(7), begin, end, rows: builder.finish() };
        let bytes = chunk.encode();
        assert_eq!(u32_at(&bytes, AT_COMPRESSION), compression, "{rows}, {random_bytes}");
        assert_eq!(Chunk::decode(&bytes), Ok(chunk));
    }
}
