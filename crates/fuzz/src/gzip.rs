//! Bodies that are compressed: expanded to what they hold and within their bounds, or refused with
//! words.
//!
//! A member ends with a checksum and its length, which no mutation would come to. So besides bytes
//! as they come there are two ways to make a whole body of them: they are taken for a deflated
//! stream, around which the target writes the head and the end that belong there; and they are
//! compressed, in members of different sizes.
//!
//! Always: what is taken is what another reader makes of it.

use flate2::write::GzEncoder;
use flate2::{Compression, Crc, Decompress, FlushDecompress, Status};
use plinth_server::fuzzed::expanded;
use std::io::Write;

/// How many bytes all bodies may hold.
const ROOM: usize = 8 << 20;
/// A deflated stream that holds more is none of those that are made whole.
const LARGEST: usize = 1 << 20;
/// A member's head without a name and a time.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// A body as it comes, or made whole, as the first byte says.
pub(crate) fn gzip(bytes: &[u8]) {
    match bytes.split_first() {
        Some((b'd', stream)) => {
            if let Some((body, plain)) = whole(stream) {
                assert!(expanded(&body, ROOM).as_ref() == Ok(&plain), "{body:?} is another");
            }
        }
        Some((b'p', plain)) => {
            let body: Vec<u8> = plain.chunks(100).flat_map(compressed).collect();
            assert!(expanded(&body, ROOM).as_deref() == Ok(plain), "{plain:?} is another");
            // And cut off it is none, unless it is cut between two members.
            if let Some((_, cut)) = body.split_last() {
                assert_eq!(expanded(cut, ROOM).map_err(|refused| refused.0), Err(400));
            }
            let (status, why) = expanded(&compressed(&[0; 1000]), 999).expect_err("no room");
            assert!(status == 503 && !why.is_empty());
        }
        Some((_, body)) => match expanded(body, ROOM) {
            Ok(plain) => {
                let most = body.len().max(1) * 500 + LARGEST;
                assert!(plain.len() <= most, "{} bytes of {}", plain.len(), body.len());
            }
            Err((status, why)) => {
                assert!(matches!(status, 400 | 413 | 503) && !why.is_empty(), "{status} {why}");
            }
        },
        None => {}
    }
}

/// A body of one member that these bytes are the deflated stream of, and what it holds; if they are
/// one, up to their end.
fn whole(stream: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut inflate, mut plain) = (Decompress::new(false), Vec::with_capacity(LARGEST));
    let ended = inflate.decompress_vec(stream, &mut plain, FlushDecompress::Finish).ok()?;
    if ended != Status::StreamEnd || inflate.total_in() != stream.len() as u64 {
        return None;
    }
    let mut sum = Crc::new();
    sum.update(&plain);
    let end = [sum.sum().to_le_bytes(), sum.amount().to_le_bytes()].concat();
    Some(([&HEAD, stream, &end].concat(), plain))
}

fn compressed(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory takes it")
}

pub(crate) fn gzip_seeds() -> Vec<Vec<u8>> {
    let lines = b"cpu,host=a value=0.5 1\n".repeat(40);
    let one = compressed(&lines);
    let zeros = compressed(&[0; 500_000]);
    let tagged = |tag: &[u8], bytes: &[u8]| [tag, bytes].concat();
    vec![
        tagged(b"c", &one),
        tagged(b"c", &[&one[..], &compressed(b""), &compressed(b"cpu,host=b value=1 2")].concat()),
        tagged(b"c", &compressed(b"").repeat(150)),
        tagged(b"c", &zeros),
        tagged(b"d", &one[HEAD.len()..one.len() - 8]),
        tagged(b"d", &zeros[HEAD.len()..zeros.len() - 8]),
        // A stored block.
        tagged(b"d", &[1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c']),
        tagged(b"p", &lines),
        tagged(b"p", b""),
    ]
}
