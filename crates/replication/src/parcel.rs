//! Parcels: what nodes send each other so that one that is too far behind gets rows.
//!
//! They travel as frames do, and may be lost, doubled and overtaken as those may; whoever wants
//! something asks again. What is in them is checked as in a frame: one checksum over all of it,
//! each length held against a bound. The rows of a chunk have an encoding of their own, with
//! checksums of theirs, which nobody looks into here.
//!
//! ```text
//!   0          4        8      12  16     17  20   24       32     40        48       56       64      72      80
//!   | checksum | length | head | 1 | kind | 0 | key | sender | receiver | transfer | number | about | index | term | key ... | payload ... |
//! ```

use crate::failure::{ReplicationError, ReplicationResult};
use plinth_types::Bytes;

use crate::NodeId;
use crate::message::MAX_FRAME;

/// The longest key in a parcel.
pub const MAX_KEY: usize = 16 << 10;

const LENGTH: usize = 4;
const HEAD_LENGTH: usize = LENGTH + 4;
const WHAT: usize = HEAD_LENGTH + 4;
const HEAD: usize = WHAT + 4;
const NUMBERS: usize = HEAD + 8;
const NUMBER_COUNT: usize = 7;
const KEY: usize = NUMBERS + NUMBER_COUNT * 8;

/// What tells a parcel from a frame, at the place where a frame has zero.
pub(crate) const MARK: u32 = 1;

/// What a parcel is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ParcelKind {
    /// A node that is behind asks for chunks from a key on.
    Ask = 1,
    /// The same, again: what was sent since has not arrived.
    AskAgain = 2,
    /// A chunk of rows.
    Chunk = 3,
    /// This node has no chunks of that transfer for the one that asks: its text says why.
    Refuse = 4,
    /// A node that is behind will need entries behind this one.
    Hold = 5,
    /// How far entries are committed, to the node that needs them.
    Held = 6,
}

impl ParcelKind {
    const ALL: [Self; 6] =
        [Self::Ask, Self::AskAgain, Self::Chunk, Self::Refuse, Self::Hold, Self::Held];
}

/// Something about rows from one node to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parcel {
    /// What it is.
    pub kind: ParcelKind,
    /// Who sends it.
    pub from: NodeId,
    /// Who it is for.
    pub to: NodeId,
    /// Which transfer it is of: a number that the node that asks has drawn.
    pub transfer: u64,
    /// Asked: how many chunks of it have been taken. A chunk: its place among them, from 0.
    pub number: u64,
    /// Asked: bytes of a chunk. A chunk: bytes of all rows, about.
    pub about: u64,
    /// Asked: rows are of no use before this entry. Held back: the entry behind which entries are
    /// needed; the last one committed.
    pub index: u64,
    /// The sender's term, or 0.
    pub term: u64,
    /// Asked: the key from which on chunks are wanted.
    pub key: Bytes,
    /// A chunk's bytes; a refusal's text.
    pub payload: Bytes,
}

impl Parcel {
    /// A parcel that says no more than this.
    pub fn bare(kind: ParcelKind, from: NodeId, to: NodeId, transfer: u64) -> Self {
        let (key, payload) = (Bytes::new(), Bytes::new());
        Self { kind, from, to, transfer, number: 0, about: 0, index: 0, term: 0, key, payload }
    }

    /// How many bytes [`Parcel::encode`] gives.
    pub fn size(&self) -> usize {
        KEY + self.key.len() + self.payload.len()
    }

    /// Whether these bytes, which came whole, are a parcel's and not a frame's.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.get(WHAT..HEAD) == Some(&MARK.to_le_bytes()[..])
    }

    /// The parcel's bytes.
    ///
    /// # Errors
    /// `TooLarge` if it is longer than anybody takes.
    pub fn encode(&self) -> ReplicationResult<Vec<u8>> {
        if self.size() > MAX_FRAME || self.key.len() > MAX_KEY {
            let detail =
                format!("a parcel of {} bytes, at most {MAX_FRAME} are taken", self.size());
            return Err(ReplicationError::TooLarge(detail));
        }
        let mut bytes = Vec::with_capacity(self.size());
        bytes.extend_from_slice(&[0; LENGTH]);
        bytes.extend_from_slice(&((self.size() - HEAD_LENGTH) as u32).to_le_bytes());
        bytes.extend_from_slice(&((KEY - HEAD) as u32).to_le_bytes());
        bytes.extend_from_slice(&MARK.to_le_bytes());
        bytes.extend_from_slice(&[self.kind as u8, 0, 0, 0]);
        bytes.extend_from_slice(&(self.key.len() as u32).to_le_bytes());
        let numbers: [u64; NUMBER_COUNT] =
            [self.from, self.to, self.transfer, self.number, self.about, self.index, self.term];
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.payload);
        let checksum = crc32c::crc32c(&bytes[LENGTH..]);
        bytes[..LENGTH].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    /// Reads a parcel. Its payload is a slice of these bytes.
    ///
    /// # Errors
    /// `Damaged`; `Malformed` if these bytes are no parcel, or none that a node could
    /// send.
    pub fn decode(bytes: &Bytes) -> ReplicationResult<Self> {
        let Some((head, rest)) = bytes.split_first_chunk::<KEY>() else {
            return refuse(format!("{} bytes", bytes.len()));
        };
        let word =
            |at: usize| head[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let number = |at: usize| {
            let at = NUMBERS + at * 8;
            head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let len = word(LENGTH) as usize;
        if bytes.len() > MAX_FRAME || bytes.len() - HEAD_LENGTH != len {
            return refuse(format!("{} bytes, of which {len} are said to be there", bytes.len()));
        }
        let (found, checksum) = (crc32c::crc32c(&bytes[LENGTH..]), word(0));
        if found != checksum {
            let detail =
                format!("a parcel's checksum is {checksum:08x}, its bytes have {found:08x}");
            return Err(ReplicationError::Damaged(detail));
        }
        // The kind's byte, and three that are zero.
        let kind = ParcelKind::ALL.into_iter().find(|known| *known as u32 == word(HEAD));
        let Some(kind) =
            kind.filter(|_| word(HEAD_LENGTH) as usize == KEY - HEAD && word(WHAT) == MARK)
        else {
            return refuse(format!("kind {:#x}", word(HEAD)));
        };
        let key = word(HEAD + 4) as usize;
        if key > MAX_KEY.min(rest.len()) {
            return refuse(format!("a key of {key} bytes"));
        }
        let (from, to) = (number(0), number(1));
        if from == 0 || to == 0 || from == to {
            return refuse(format!("nodes {from} and {to}"));
        }
        Ok(Self {
            kind,
            from,
            to,
            transfer: number(2),
            number: number(3),
            about: number(4),
            index: number(5),
            term: number(6),
            key: bytes.slice(KEY..KEY + key),
            payload: bytes.slice(KEY + key..),
        })
    }
}

fn refuse<T>(found: String) -> ReplicationResult<T> {
    Err(ReplicationError::Malformed(format!("parcel of a node with {found}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Parcel {
        Parcel {
            number: 3,
            about: 4,
            index: 5,
            term: 6,
            key: Bytes::from_static(b"key"),
            payload: Bytes::from_static(b"rows"),
            ..Parcel::bare(ParcelKind::Chunk, 1, 2, 9)
        }
    }

    #[test]
    fn the_bytes_of_a_parcel() {
        let bytes = sample().encode().unwrap();
        let numbers = [1, 2, 9, 3, 4, 5, 6].map(|number: u64| number.to_le_bytes());
        let head = [[79, 0, 0, 0], [64, 0, 0, 0], [1, 0, 0, 0], [3, 0, 0, 0], [3, 0, 0, 0]];
        let behind = [head.as_flattened(), numbers.as_flattened(), b"keyrows"].concat();
        assert_eq!(bytes[LENGTH..], behind[..]);
        assert_eq!(bytes[..LENGTH], [0xfb, 0xc1, 0x4a, 0]);
        assert!(Parcel::is_one(&bytes) && bytes.len() == sample().size());
        assert_eq!(Parcel::decode(&bytes.into()), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = sample().encode().unwrap();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            Parcel::decode(&bytes.into()).expect_err("a bit is flipped");
        }
        for len in 0..good.len() {
            Parcel::decode(&good[..len].to_vec().into()).expect_err("cut short");
        }
    }

    #[test]
    fn what_no_node_sends_is_refused_though_its_checksum_is_right() {
        for (at, value) in [(12, 0), (16, 0), (16, 7), (17, 1), (8, 1), (20, 200), (24, 0), (32, 1)]
        {
            let mut bytes = sample().encode().unwrap();
            bytes[at] = value;
            let checksum = crc32c::crc32c(&bytes[LENGTH..]);
            bytes[..LENGTH].copy_from_slice(&checksum.to_le_bytes());
            assert_eq!(
                Parcel::decode(&bytes.into()),
                Err(ReplicationError::Malformed(String::new())),
                "{value} at {at}"
            );
        }
        let long = Parcel { payload: vec![0; MAX_FRAME].into(), ..sample() };
        long.encode().expect_err("nobody would take it");
    }
}
