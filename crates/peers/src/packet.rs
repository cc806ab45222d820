//! Packets: how frames travel so that a short one never waits for a long one.
//!
//! A frame that fits is one packet. A longer one is cut into pieces, and between two of them others
//! may go. At most one frame is under way in pieces at a time, and what has arrived of it is
//! bounded as a frame is.
//!
//! ```text
//!   | length 4 | kind 1 | 0 0 0 | payload: length bytes |
//! ```

use crate::failure::{PeerError, PeerResult};
use plinth_replication::MAX_FRAME;

/// Bytes of a packet's head.
pub const HEAD: usize = 8;
/// Most bytes of a payload.
pub const MOST: usize = 64 << 10;
/// Most room that is made for a frame of which nothing but the first piece is there.
const MOST_ROOM: usize = 16 * MOST;
/// A program that speaks this version of the protocol takes answers to its frames on the connection
/// that it sent them by.
pub const ANSWERS_SINCE: u16 = 2;

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Asks for a sign of life; the payload comes back.
    Ping = 1,
    /// The answer.
    Pong = 2,
    /// A frame.
    Whole = 3,
    /// A piece of one, of which more follows.
    Piece = 4,
    /// The last piece.
    Last = 5,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Ping, Self::Pong, Self::Whole, Self::Piece, Self::Last];
}

/// Appends a packet to `out`.
///
/// # Panics
/// If the payload is too long.
pub fn put(out: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    assert!(payload.len() <= MOST, "payloads are cut before they get here");
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&[kind as u8, 0, 0, 0]);
    out.extend_from_slice(payload);
}

/// The packet that `bytes` begin with: kind and payload; `None` while it is not whole.
///
/// # Errors
/// `Malformed` if it is none.
pub fn split(bytes: &[u8]) -> PeerResult<Option<(Kind, &[u8])>> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let [a, b, c, d, kind, zeros @ ..] = *head;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let known = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
    let (Some(kind), true, [0, 0, 0]) = (known, len <= MOST, zeros) else {
        let detail = format!("a packet of kind {kind} with {len} bytes");
        return Err(PeerError::malformed(detail));
    };
    Ok(rest.get(..len).map(|payload| (kind, payload)))
}

/// Puts pieces together.
#[derive(Default)]
pub struct Pieces {
    bytes: Vec<u8>,
    /// How long the last frame was that came in pieces: the next one is alike, as a rule, and
    /// memory that grows piece by piece is moved again and again.
    last: usize,
}

impl Pieces {
    /// Takes a packet that carries a frame, or a piece of one. Gives the frame's bytes once they
    /// are whole.
    ///
    /// # Errors
    /// `Malformed` if the pieces come to more than a frame may have.
    pub fn take(&mut self, kind: Kind, payload: &[u8]) -> PeerResult<Option<Vec<u8>>> {
        if kind == Kind::Whole {
            return Ok(Some(payload.to_vec()));
        }
        if self.bytes.len() + payload.len() > MAX_FRAME {
            let detail = format!("pieces of more than {MAX_FRAME} bytes");
            return Err(PeerError::malformed(detail));
        }
        if self.bytes.is_empty() {
            self.bytes.reserve(self.last.min(MOST_ROOM));
        }
        self.bytes.extend_from_slice(payload);
        if kind != Kind::Last {
            return Ok(None);
        }
        self.last = self.bytes.len();
        Ok(Some(std::mem::take(&mut self.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back_one_by_one_and_pieces_come_together() {
        let mut out = Vec::new();
        put(&mut out, Kind::Piece, b"ab");
        put(&mut out, Kind::Whole, b"small");
        put(&mut out, Kind::Last, b"c");
        assert_eq!(out[..10], [2, 0, 0, 0, 4, 0, 0, 0, b'a', b'b']);
        let (mut pieces, mut at, mut frames) = (Pieces::default(), 0, Vec::new());
        while let Some((kind, payload)) = split(&out[at..]).unwrap() {
            at += HEAD + payload.len();
            frames.extend(pieces.take(kind, payload).unwrap());
        }
        assert_eq!((at, frames), (out.len(), vec![b"small".to_vec(), b"abc".to_vec()]));
        for len in 0..10 {
            assert_eq!(split(&out[..len]), Ok(None));
        }
    }

    #[test]
    fn a_frame_in_pieces_has_room_as_long_as_the_one_before() {
        let mut pieces = Pieces::default();
        for len in [MOST, MOST / 2, 0] {
            let last = pieces.last;
            assert_eq!(pieces.take(Kind::Piece, &[1; MOST]), Ok(None));
            assert!(pieces.bytes.capacity() >= last);
            let frame = pieces.take(Kind::Last, &vec![2; len]);
            assert_eq!(frame.map(|frame| frame.map(|bytes| bytes.len())), Ok(Some(MOST + len)));
            assert_eq!((pieces.last, pieces.bytes.capacity()), (MOST + len, 0), "none is kept");
        }
    }

    #[test]
    fn what_is_too_long_is_refused_by_its_head() {
        let head =
            |len: u32, kind: u8, zero: u8| [&len.to_le_bytes()[..], &[kind, 0, zero, 0]].concat();
        assert_eq!(split(&head(MOST as u32, 4, 0)), Ok(None));
        for bytes in [head(MOST as u32 + 1, 4, 0), head(1, 6, 0), head(1, 0, 0), head(1, 4, 1)] {
            assert_eq!(split(&bytes), Err(PeerError::malformed("its head")));
        }
        let mut pieces = Pieces::default();
        for _ in 0..MAX_FRAME / MOST {
            assert_eq!(pieces.take(Kind::Piece, &[0; MOST]), Ok(None));
        }
        assert_eq!(pieces.take(Kind::Piece, b"x"), Err(PeerError::malformed("its length")));
    }
}
