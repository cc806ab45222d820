//! Golden bytes of each message, and messages that have been tampered with.
//!
//! Whatever arrives in their place is refused in words that name it, and no bytes make a panic.

use super::*;
use crate::charter::Peer;
use crate::secret::Secret;

fn hello() -> Hello {
    Hello {
        spoken: Spoken { oldest: 1, newest: 1 },
        purpose: Purpose::Forming,
        cluster: "a:b".into(),
        cluster_id: [3; 16],
        from: 4,
        to: 5,
        nonce: [6; LEN],
        address: "h:1".into(),
        addresses: "h:1,h:2".into(),
        window: 0x0102_0304,
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        refused: None,
        cluster_id: [3; 16],
        node: 5,
        stage: Stage::Begun,
        nonce: [6; LEN],
        proof: [7; LEN],
    }
}

fn words() -> Vec<Word> {
    let charter = Charter {
        cluster: "a:b".into(),
        cluster_id: [3; 16],
        secret: Secret::from_bytes([8; LEN]),
        members: vec![
            Peer { node: 4, address: "h:1".into() },
            Peer { node: 5, address: "h:2".into() },
        ],
    };
    vec![
        Word::Proof([7; LEN]),
        Word::Verdict(Ok(())),
        Word::Verdict(Err(PeerError::Untrusted("why".to_owned()).into())),
        Word::Found(charter),
    ]
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

#[test]
fn the_bytes_of_a_hello_and_a_welcome() {
    let bytes = encoded(|out| hello().encode(out));
    let content: Vec<u8> = [
        &[1, 0, 1, 0, 2, 3, 0, 0, 0][..],
        b"a:b",
        &[3; 16],
        &[4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
        &[6; 32],
        &[3, 0, 0, 0],
        b"h:1",
        &[7, 0, 0, 0],
        b"h:1,h:2",
        &[4, 3, 2, 1, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(bytes[..8], *b"\x89PLNPR\r\n");
    assert_eq!(bytes[8..12], (content.len() as u32).to_le_bytes());
    assert_eq!(bytes[16..], content);
    assert_eq!(Hello::decode(&bytes), Ok(Some((hello(), bytes.len()))));
    // A program of before says no window.
    let older = encoded(|out| {
        envelope::put(out, MAGIC, |out| out.extend_from_slice(&content[..content.len() - 8]))
    });
    let without = Hello { window: 0, ..hello() };
    assert_eq!(Hello::decode(&older), Ok(Some((without, older.len()))));

    let bytes = encoded(|out| welcome().encode(out));
    let content =
        [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[3; 16], &[5, 0, 0, 0, 0, 0, 0, 0, 2], &[6; 32], &[7; 32]]
            .concat();
    assert_eq!(bytes[16..], content);
    assert_eq!(Welcome::decode(&bytes), Ok(Some((welcome(), bytes.len()))));
}

#[test]
fn every_word_comes_back_as_it_was() {
    for word in words() {
        let bytes = encoded(|out| word.encode(out));
        assert_eq!(Word::decode(&bytes), Ok(Some((word, bytes.len()))));
        for len in 0..bytes.len() {
            assert_eq!(Word::decode(&bytes[..len]), Ok(None));
        }
    }
    let refused = Welcome::refuse(PeerError::Mismatch("another cluster".to_owned()));
    let bytes = encoded(|out| refused.encode(out));
    let (read, _) = Welcome::decode(&bytes).unwrap().unwrap();
    assert_eq!(read.refused.unwrap().detail(), Some("another cluster"));
}

/// Each was told that the other doesn't speak Plinth's protocol.
#[test]
fn a_server_with_a_database_of_its_own_is_named_as_one_and_hears_who_calls() {
    let called = plinth_proto::Hello::decode(&encoded(|out| hello().encode(out))).unwrap_err();
    assert!(called.to_string().contains("another of Plinth's protocols"), "{called}");
    let stranger = plinth_proto::Hello::decode(b"GET / HTTP/1.1").unwrap_err();
    assert!(stranger.to_string().contains("doesn't speak"), "{stranger}");
    let refused = plinth_proto::Welcome::refuse((&PeerError::TimedOut).into());
    let bytes = encoded(|out| refused.encode(out));
    let error = Welcome::decode(&bytes).unwrap_err();
    assert!(matches!(&error, PeerError::Mismatch(what) if what.contains("its own")), "{error}");
}

#[test]
fn the_newest_version_that_both_speak_is_spoken() {
    let choose = |oldest, newest| {
        Hello { spoken: Spoken { oldest, newest }, ..hello() }.choose(Spoken::THIS)
    };
    assert_eq!((choose(1, 9), choose(1, 1)), (Ok(Spoken::THIS.newest), Ok(1)));
    let error = choose(8, 9).unwrap_err();
    assert!(matches!(&error, PeerError::Incompatible(why) if why.contains("8 to 9")), "{error}");
}

/// With or without a checksum that is right.
#[test]
fn no_bytes_do_harm() {
    let mut samples =
        vec![encoded(|out| hello().encode(out)), encoded(|out| welcome().encode(out))];
    samples.extend(words().iter().map(|word| encoded(|out| word.encode(out))));
    let mut state = 3_u64;
    for round in 0..60_000 {
        let mut bytes = samples[round % samples.len()].clone();
        for _ in 0..1 + round % 3 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] ^= 1 << (state >> 61);
        }
        if round % 2 == 0 {
            let checksum = crc32c::crc32c(&bytes[16..]);
            bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        }
        let _ = (Hello::decode(&bytes), Welcome::decode(&bytes), Word::decode(&bytes));
    }
}
