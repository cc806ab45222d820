//! Envelopes: opened by their key alone, about their file alone.

use super::*;
use crate::crypt::numbered;

const HEADER: &[u8] = b"whose file it is";
const SEED: u32 = 7;

fn key(byte: u8) -> Key {
    Key::of_file(&[byte; 32]).unwrap()
}

fn keys(bytes: &[u8]) -> Keys {
    Keys::new(&bytes.iter().map(|byte| key(*byte)).collect::<Vec<_>>())
}

fn fresh(bytes: &mut [u8]) {
    bytes.iter_mut().zip(1..).for_each(|(byte, number)| *byte = number);
}

fn envelope() -> [u8; ENVELOPE_LEN] {
    keys(&[9]).of_new_file(HEADER, SEED, fresh).1.unwrap()
}

/// The bytes of `docs/format/encryption.md`.
#[test]
fn an_envelope_is_as_documented() {
    let envelope = envelope();
    assert_eq!(envelope[..16], *b"PLNTHKEY\x01\0\0\0\x60\0\0\0");
    assert_eq!(envelope[24..36], (33..45).collect::<Vec<u8>>()[..], "the nonce");
    assert_eq!(envelope[84..92], [0; 8]);
    assert_eq!(crc32c::crc32c(&envelope), ENVELOPE_CHECKSUM);
}

const ENVELOPE_CHECKSUM: u32 = 0x1c63_4a10;

#[test]
fn what_one_file_seals_its_envelope_opens() {
    let (sealer, envelope) = keys(&[9, 8]).of_new_file(HEADER, SEED, fresh);
    let opener = keys(&[8, 9]).of_file(&envelope.unwrap(), HEADER, SEED).unwrap();
    assert_eq!(opener.key_id(), keys(&[9]).newest());
    assert!(opener.is_outdated(&keys(&[8, 9])) && !opener.is_outdated(&keys(&[9, 8])));
    let mut body = *b"twelve bytes----------------";
    let tag = sealer.key().unwrap().seal(numbered(3), b"about", &mut body[..12]);
    body[12..].copy_from_slice(&tag);
    let (open, other) = (opener.key().unwrap(), key(9).derive(b"", &[b"other"]));
    for (key, number, about) in
        [(open, 4, &b"about"[..]), (open, 3, b"aboot"), (&other, 3, b"about")]
    {
        assert_eq!(key.open(numbered(number), about, &mut body.clone()), None);
    }
    assert_eq!(open.open(numbered(3), b"about", &mut body), Some(12));
    assert_eq!(&body[..12], b"twelve bytes");
}

#[test]
fn nothing_else_opens_it() {
    let envelope = envelope();
    let locked = keys(&[8]).of_file(&envelope, HEADER, SEED).unwrap();
    assert_eq!((locked.locked(), locked.key().is_none()), (keys(&[9]).newest(), true));
    assert!(keys(&[9]).of_file(&envelope, b"another header..", SEED).is_err());
    assert!(keys(&[9]).of_file(&envelope, HEADER, SEED + 1).is_err());
    for bit in 0..envelope.len() * 8 {
        let mut flipped = envelope;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(keys(&[9]).of_file(&flipped, HEADER, SEED).is_err(), "bit {bit}");
        // The key tells, too, where somebody has made the checksum right.
        if (24 * 8..84 * 8).contains(&bit) {
            let checksum = crc32c::crc32c_append(SEED, &flipped[..92]);
            flipped[92..].copy_from_slice(&checksum.to_le_bytes());
            assert!(keys(&[9]).of_file(&flipped, HEADER, SEED).is_err(), "bit {bit}");
        }
    }
    assert!(
        (0..envelope.len()).all(|len| keys(&[9]).of_file(&envelope[..len], HEADER, SEED).is_err())
    );
}

#[test]
fn what_a_key_is_never_shows() {
    let text = format!(
        "{:?} {:?} {:?}",
        key(0xab),
        keys(&[0xab]),
        keys(&[0xab]).of_new_file(HEADER, 0, fresh).0
    );
    assert!(!text.contains("abab") && !text.contains("171"), "{text}");
    assert_ne!(keys(&[1]).newest(), keys(&[2]).newest());
    let lack = keys(&[1]).lack("a/b", KeyId([7; 8]));
    assert!(lack.contains("a/b is encrypted with the key 0707070707070707"), "{lack}");
}

#[test]
fn without_keys_nothing_is_sealed() {
    let (cipher, envelope) =
        Keys::none().of_new_file(HEADER, SEED, |_| panic!("no random numbers are needed"));
    assert!(envelope.is_none() && cipher.key().is_none() && !cipher.is_outdated(&Keys::none()));
    assert!(cipher.is_outdated(&keys(&[1])));
}
