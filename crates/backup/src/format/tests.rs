//! Golden bytes, and what is damaged in every place.

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
    assert_eq!(crc32c::crc32c(&file(Some(&key))), 0xc0a2_fe18);
}

#[test]
fn every_damage_is_found() {
    let key = Key::of_file(b"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n").unwrap();
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
