//! Bodies that are compressed by gzip: expanded a piece at a time, so that others have their turns
//! on the thread between, and within bounds.
//!
//! A few bytes can stand for very many, or for much work and nothing at all. So bounded are the
//! bytes that come out, how many of them there are for each that went in, and the members of which
//! a body is made.

use super::bodies::{Bodies, Held, NO_ROOM};
use flate2::bufread::GzDecoder;
use hyper::StatusCode;
use plinth_env::{Env, block_on};
use std::io::Read;

/// Largest body of a sender's, when it is expanded.
const MAX_BYTES: usize = 64 << 20;
/// Bytes out of each that went in, at most, beyond the first million. Lines of senders come to
/// about 10, one line again and again to 400, and the format's most is 1,032.
const MAX_RATIO: usize = 500;
const FREE: usize = 1 << 20;
/// Members of one body at most. Whoever compresses as it goes makes some.
const MAX_MEMBERS: usize = 1000;
/// Bytes that are expanded before others have their turn: some tenths of a millisecond.
const PIECE: usize = 128 << 10;

/// Why a body was not taken.
pub(super) type Refusal = (StatusCode, String);

/// The bytes of a body, which `held` holds from then on.
pub(super) async fn expand(env: &Env, body: &[u8], held: &mut Held) -> Result<Vec<u8>, Refusal> {
    expand_to(env, body, MAX_BYTES, held).await
}

/// The same of one that may come to so many bytes.
pub(super) async fn expand_to(
    env: &Env,
    body: &[u8],
    most: usize,
    held: &mut Held,
) -> Result<Vec<u8>, Refusal> {
    let mut plain = Vec::new();
    let (mut rest, mut members) = (body, 0);
    while !rest.is_empty() {
        members += 1;
        if members > MAX_MEMBERS {
            let why = format!("the body has more than {MAX_MEMBERS} members of gzip");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let mut decoder = GzDecoder::new(rest);
        loop {
            let before = plain.len();
            let read = decoder.by_ref().take(PIECE as u64).read_to_end(&mut plain);
            let read = read.map_err(|error| {
                (StatusCode::BAD_REQUEST, format!("the body is no gzip: {error}"))
            })?;
            check(body.len(), plain.len(), most)?;
            if !held.add(plain.len() - before) {
                return Err((StatusCode::SERVICE_UNAVAILABLE, NO_ROOM.to_owned()));
            }
            env.give_way().await;
            if read < PIECE {
                break;
            }
        }
        rest = decoder.into_inner();
    }
    Ok(plain)
}

/// The bytes of a body that comes alone, where all of them may hold so many.
pub(crate) fn expanded(body: &[u8], most: usize) -> Result<Vec<u8>, (u16, String)> {
    let bodies = Bodies::up_to(most);
    let result = block_on(expand(&Env::real(), body, &mut bodies.hold()));
    assert_eq!(bodies.held(), 0, "what was held is given back");
    result.map_err(|(status, why)| (status.as_u16(), why))
}

/// Whether a body of so many bytes may become so many.
fn check(compressed: usize, plain: usize, most: usize) -> Result<(), Refusal> {
    if plain > most {
        let why = format!("the body has more than {most} bytes");
        return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
    }
    if plain > FREE && plain / MAX_RATIO > compressed {
        let why = format!("the body has more than {MAX_RATIO} bytes for each that was sent");
        return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn expanded(body: &[u8]) -> Result<Vec<u8>, (u16, String)> {
        super::expanded(body, 256 << 20)
    }

    #[test]
    fn members_follow_each_other_and_are_one_body() {
        let long: Vec<u8> = (0..PIECE * 3 + 5).map(|n| (n / 7) as u8).collect();
        let body = [gzip(b"one "), gzip(b""), gzip(&long)].concat();
        assert!(expanded(&body).unwrap() == [b"one ", &long[..]].concat());
        assert_eq!(expanded(b"").unwrap(), b"");
        assert_eq!(expanded(&body[..body.len() - 9]).unwrap_err().0, 400);
        assert_eq!(expanded(b"no gzip").unwrap_err().0, 400);
    }

    #[test]
    fn what_makes_much_of_little_is_refused() {
        let lines = b"x\n".repeat(16 << 20);
        let (status, why) = expanded(&gzip(&lines)).unwrap_err();
        assert!(status == 413 && why.contains("for each"), "{why}");
        let (status, why) = expanded(&gzip(b"").repeat(MAX_MEMBERS + 1)).unwrap_err();
        assert!(status == 413 && why.contains("members"), "{why}");
        // Lines as senders write them, however much alike, are far from that.
        let lines: String = (0..200_000).map(|n| format!("cpu,host=a value=0.5 {n}\n")).collect();
        assert_eq!(expanded(&gzip(lines.as_bytes())).unwrap().len(), lines.len());
        let same = b"cpu,host=a value=0.5\n".repeat(200_000);
        assert_eq!(expanded(&gzip(&same)).unwrap().len(), same.len());
    }
}
