//! Golden bytes, and what is damaged in every place: each flipped byte, each length that a file was
//! cut to, and what somebody makes of a sealed file who has no key but can count checksums. Nothing
//! of that may be read as a file. The bytes that are compared are those that
//! `docs/format/backup.md` draws.

use super::block::FileBuilder;
use super::{BlockKind, FileReader, Header, Key, Kind};
use plinth_types::Error;

const NAME: &str = "logs/x.log";

fn file(key: Option<&Key>) -> Vec<u8> {
    let mut file = FileBuilder::with_salt([3; 32], Kind::Log, NAME.into(), [9; 16], key);
    file.block(BlockKind::Mutations, 2, &[b'a'; 40]);
    file.block(BlockKind::Times, 1, b"0123456789abcdef");
    (file.header.from, file.header.to) = (0x0102, 0x0103);
    (file.header.time_from, file.header.time_to, file.header.count) = (5, 6, 2);
    file.finish()
}

fn read(bytes: &[u8], key: Option<&Key>) -> plinth_types::Result<Vec<Vec<u8>>> {
    let mut reader = FileReader::new(bytes, NAME, Kind::Log, &[9; 16], key)?;
    let mut bodies = Vec::new();
    while let Some(block) = reader.next()? {
        bodies.push(block.body.to_vec());
    }
    Ok(bodies)
}

fn hex(bytes: &[u8]) -> String {
    crate::names::hex(bytes)
}

#[test]
fn the_bytes_of_a_file_are_as_documented() {
    let bytes = file(None);
    let header = [
        "504c4e544842414b", // PLNTHBAK
        "01000000",         // format 1
        "8e000000",         // 142 bytes of header
        "04",
        "00",                               // a log, not encrypted
        "0a00",                             // 10 bytes of name
        "02000000",                         // 2 blocks
        "09090909090909090909090909090909", // the backup
        "0303030303030303030303030303030303030303030303030303030303030303",
        "0201000000000000",
        "0301000000000000", // versions
        "0500000000000000",
        "0600000000000000", // times
        "0200000000000000", // mutations
        "3800000000000000", // bytes before compression
    ];
    assert_eq!(hex(&bytes[..120]), header.concat());
    assert_eq!(&bytes[128..138], NAME.as_bytes());
    assert_eq!(u64::from_le_bytes(bytes[120..128].try_into().unwrap()), bytes.len() as u64 - 142);
    // The last block: its head behind the checksum, and a body that gets no shorter.
    let last = &bytes[bytes.len() - 40..];
    assert_eq!(hex(&last[4..24]), "1000000010000000010000000100000003000000");
    assert_eq!(&last[24..], b"0123456789abcdef");
    assert_eq!(crc32c::crc32c(&bytes), 0x584f_e2d4);
    let key = Key::of_file(&[1; 32]).unwrap();
    assert_eq!(crc32c::crc32c(&file(Some(&key))), 0x54bd_a205);
}

#[test]
fn every_damage_is_found() {
    let key = Key::of_file(b"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n")
        .unwrap();
    for key in [None, Some(&key)] {
        let bytes = file(key);
        assert_eq!(read(&bytes, key).unwrap(), [vec![b'a'; 40], b"0123456789abcdef".to_vec()]);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(read(&flipped, key).is_err(), "byte {at}");
        }
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len], key).is_err(), "{len} bytes");
        }
        assert_eq!(read(&[&bytes[..], b"x"].concat(), key), Err(Error::file_corrupt()));
        let other = FileReader::new(&bytes, "logs/y.log", Kind::Log, &[9; 16], key);
        assert_eq!(other.map(drop), Err(Error::file_corrupt()), "a file of another name");
        let other = FileReader::new(&bytes, NAME, Kind::Log, &[8; 16], key);
        assert_eq!(other.map(drop), Err(Error::file_corrupt()), "of another backup");
        let other = FileReader::new(&bytes, NAME, Kind::Rows, &[9; 16], key);
        assert_eq!(other.map(drop), Err(Error::file_corrupt()), "of another kind");
    }
}

#[test]
fn sealed_blocks_need_their_key() {
    let key = |byte| Key::of_file(&[byte; 32]).unwrap();
    let bytes = file(Some(&key(1)));
    assert!(!bytes.windows(8).any(|part| part == [b'a'; 8]));
    assert_eq!(read(&bytes, Some(&key(2))), Err(Error::client_invalid_operation()));
    // What needs no key is read without it.
    assert_eq!(read(&bytes, None).unwrap(), [vec![], b"0123456789abcdef".to_vec()]);
    for wrong in [&b""[..], b"short", &[b'x'; 64], &[0; 33]] {
        assert!(Key::of_file(wrong).is_err());
    }
}

/// Writes a checksum of the header that fits what was changed in it.
fn mend_header(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c(&bytes[..138]);
    bytes[138..142].copy_from_slice(&checksum.to_le_bytes());
}

/// Begins and ends of the blocks.
fn blocks(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut at, mut blocks) = (142, Vec::new());
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        blocks.push((at, at + 24 + len));
        at += 24 + len;
    }
    blocks
}

/// A file of these blocks, with numbers and checksums that fit.
fn of_blocks(bytes: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut made = bytes[..142].to_vec();
    made[20..24].copy_from_slice(&(parts.len() as u32).to_le_bytes());
    let stored = parts.iter().map(|part| part.len() as u64).sum::<u64>();
    made[120..128].copy_from_slice(&stored.to_le_bytes());
    mend_header(&mut made);
    for (number, part) in parts.iter().enumerate() {
        let mut part = part.to_vec();
        part[12..16].copy_from_slice(&(number as u32).to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&[3; 32]), &part[4..]);
        part[..4].copy_from_slice(&checksum.to_le_bytes());
        made.append(&mut part);
    }
    made
}

/// Somebody who may write the target but has no key could make a shorter file of a sealed one,
/// whose checksums were right.
#[test]
fn without_the_key_no_other_file_is_made_of_a_sealed_one() {
    let key = Key::of_file(&[1; 32]).unwrap();
    let bytes = file(Some(&key));
    let all: Vec<&[u8]> = blocks(&bytes).into_iter().map(|(from, to)| &bytes[from..to]).collect();
    assert_eq!(all.len(), 3, "two blocks and the seal");
    assert_eq!(of_blocks(&bytes, &all), bytes);
    let refused = |made: &[u8], what: &str| {
        assert_eq!(read(made, Some(&key)), Err(Error::file_corrupt()), "{what}");
    };
    refused(&of_blocks(&bytes, &[]), "nothing");
    refused(&of_blocks(&bytes, &all[..1]), "the first block");
    refused(&of_blocks(&bytes, &all[..2]), "all but the seal");
    refused(&of_blocks(&bytes, &[all[0], all[2]]), "without the second block");
    assert!(
        read(&of_blocks(&bytes, &[all[1], all[2]]), Some(&key)).is_err(),
        "without the first block"
    );
    assert!(read(&of_blocks(&bytes, &[all[1], all[0], all[2]]), Some(&key)).is_err(), "swapped");
    let mut times = all[1].to_vec();
    times[24] ^= 1;
    refused(&of_blocks(&bytes, &[all[0], &times, all[2]]), "another time");
    for at in [17, 72, 80, 88, 96, 104, 112] {
        let mut made = bytes.clone();
        made[at] ^= 1;
        mend_header(&mut made);
        refused(&made, &format!("byte {at} of the header"));
    }
    refused(&file(None), "one that isn't sealed");
}

#[test]
fn a_newer_format_is_told_as_such() {
    let mut bytes = file(None);
    bytes[8] = 2;
    let checksum = crc32c::crc32c(&bytes[..138]);
    bytes[138..142].copy_from_slice(&checksum.to_le_bytes());
    let error = Header::decode(&bytes, NAME).unwrap_err();
    assert_eq!(error, Error::unsupported_operation());
    assert!(error.to_string().contains("format 2"), "{error}");
}
