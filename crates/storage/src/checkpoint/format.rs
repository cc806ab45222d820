//! The bytes of a checkpoint file; `docs/format/checkpoint.md` describes them.
//!
//! A header, blocks of rows, a footer. Every checksum behind the header is continued from the seed,
//! which the header's identity, version and nonce make, so that a block of another file never
//! passes for one of this. The footer repeats the header: either of them is enough to salvage the
//! rows.

use crate::problem::Flaw;
use plinth_types::{LogPosition, Version};

/// The first bytes of every checkpoint.
pub const MAGIC: [u8; 8] = *b"PLNTHCKP";
/// The format that this program reads and writes.
pub const FORMAT: u32 = 2;

const HEADER_MAGIC: usize = 0;
const HEADER_FORMAT: usize = HEADER_MAGIC + 8;
const HEADER_LENGTH: usize = HEADER_FORMAT + 4;
const HEADER_CLUSTER: usize = HEADER_LENGTH + 4;
const HEADER_NODE: usize = HEADER_CLUSTER + 16;
const HEADER_VERSION: usize = HEADER_NODE + 16;
const HEADER_NONCE: usize = HEADER_VERSION + 8;
const HEADER_INDEX: usize = HEADER_NONCE + 8;
const HEADER_TERM: usize = HEADER_INDEX + 8;
const HEADER_RESERVED: usize = HEADER_TERM + 8;
const HEADER_CHECKSUM: usize = HEADER_RESERVED + 44;
/// Bytes of the header.
pub const HEADER_LEN: usize = HEADER_CHECKSUM + 4;

/// What every block begins with.
pub const BLOCK_MAGIC: [u8; 4] = *b"PBLK";

const BLOCK_MAGIC_AT: usize = 0;
const BLOCK_CHECKSUM: usize = BLOCK_MAGIC_AT + 4;
const BLOCK_BODY_CHECKSUM: usize = BLOCK_CHECKSUM + 4;
const BLOCK_BODY_LEN: usize = BLOCK_BODY_CHECKSUM + 4;
const BLOCK_NUMBER: usize = BLOCK_BODY_LEN + 4;
const BLOCK_ROWS: usize = BLOCK_NUMBER + 8;
const BLOCK_KIND: usize = BLOCK_ROWS + 4;
/// Bytes before the body of a block.
pub const BLOCK_HEADER_LEN: usize = BLOCK_KIND + 4;

const FOOTER_ROWS: usize = 0;
const FOOTER_KEY_BYTES: usize = FOOTER_ROWS + 8;
const FOOTER_VALUE_BYTES: usize = FOOTER_KEY_BYTES + 8;
const FOOTER_HEADER: usize = FOOTER_VALUE_BYTES + 8;
/// Bytes of the footer's body.
pub const FOOTER_BODY_LEN: usize = FOOTER_HEADER + HEADER_LEN;
/// Bytes of the whole footer, with which every checkpoint ends.
pub const FOOTER_LEN: usize = BLOCK_HEADER_LEN + FOOTER_BODY_LEN;

/// The body of a block is closed when it has this many bytes; one row more may be in it.
pub const BLOCK_TARGET: usize = 64 << 10;
/// The longest body that is believed.
pub const MAX_BODY_LEN: usize = 1 << 20;

const _: () = {
    assert!(HEADER_LEN == 128 && BLOCK_HEADER_LEN == 32);
    assert!(BLOCK_TARGET + 200_000 < MAX_BODY_LEN, "a block holds the longest row besides");
};

/// Whose files they are. What belongs to another cluster or node is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Id of the cluster.
    pub cluster_id: [u8; 16],
    /// Id of the node.
    pub node_id: [u8; 16],
}

/// The begin of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Cluster and node.
    pub identity: Identity,
    /// What the rows are everything of.
    pub at: LogPosition,
    /// Random: tells apart two files of the same version.
    pub nonce: u64,
}

/// Why a header was not taken.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum HeaderFlaw {
    Damaged(Flaw),
    /// Whole, but of this newer format.
    Newer(u32),
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn id_at(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes[at..at + 16].try_into().expect("sixteen bytes")
}

impl Header {
    /// Whether it is that of the checkpoint with this version in its name, and of this database.
    pub(super) fn check(&self, version: Version, identity: Identity) -> Result<(), Flaw> {
        let hex = |id: [u8; 16]| format!("{:032x}", u128::from_be_bytes(id));
        let ours = self.identity;
        if self.at.version != version {
            let expected = format_args!("{version}, as its name says").to_string();
            Err(Flaw::new("version of the checkpoint", expected, self.at.version))
        } else if ours.cluster_id != identity.cluster_id {
            Err(Flaw::new("cluster id", hex(identity.cluster_id), hex(ours.cluster_id)))
        } else if ours.node_id != identity.node_id {
            Err(Flaw::new("node id", hex(identity.node_id), hex(ours.node_id)))
        } else {
            Ok(())
        }
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[HEADER_MAGIC..HEADER_FORMAT].copy_from_slice(&MAGIC);
        bytes[HEADER_FORMAT..HEADER_LENGTH].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[HEADER_LENGTH..HEADER_CLUSTER].copy_from_slice(&(HEADER_LEN as u32).to_le_bytes());
        bytes[HEADER_CLUSTER..HEADER_NODE].copy_from_slice(&self.identity.cluster_id);
        bytes[HEADER_NODE..HEADER_VERSION].copy_from_slice(&self.identity.node_id);
        bytes[HEADER_VERSION..HEADER_NONCE].copy_from_slice(&self.at.version.to_le_bytes());
        bytes[HEADER_NONCE..HEADER_INDEX].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[HEADER_INDEX..HEADER_TERM].copy_from_slice(&self.at.index.to_le_bytes());
        bytes[HEADER_TERM..HEADER_RESERVED].copy_from_slice(&self.at.term.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKSUM]);
        bytes[HEADER_CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFlaw> {
        let flaw = |what, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
            Err(HeaderFlaw::Damaged(Flaw::new(what, expected, found)))
        };
        let Some(bytes) = bytes.get(..HEADER_LEN) else {
            return flaw("the file is too short for its header", &HEADER_LEN, &bytes.len());
        };
        if bytes[..HEADER_FORMAT] != MAGIC {
            let found = bytes[..HEADER_FORMAT].escape_ascii();
            return flaw(
                "the file does not begin like a checkpoint",
                &MAGIC.escape_ascii(),
                &found,
            );
        }
        let (stored, computed) =
            (u32_at(bytes, HEADER_CHECKSUM), crc32c::crc32c(&bytes[..HEADER_CHECKSUM]));
        if stored != computed {
            return Err(HeaderFlaw::Damaged(Flaw::hex("checksum of the header", stored, computed)));
        }
        let format = u32_at(bytes, HEADER_FORMAT);
        if format > FORMAT {
            return Err(HeaderFlaw::Newer(format));
        }
        if format != FORMAT || u32_at(bytes, HEADER_LENGTH) != HEADER_LEN as u32 {
            return flaw("format of the checkpoint", &FORMAT, &format);
        }
        let identity = Identity {
            cluster_id: id_at(bytes, HEADER_CLUSTER),
            node_id: id_at(bytes, HEADER_NODE),
        };
        let at = LogPosition {
            index: u64_at(bytes, HEADER_INDEX),
            term: u64_at(bytes, HEADER_TERM),
            version: u64_at(bytes, HEADER_VERSION) as Version,
        };
        Ok(Self { identity, at, nonce: u64_at(bytes, HEADER_NONCE) })
    }

    /// What the checksums of this file's blocks begin with.
    pub fn seed(&self) -> u32 {
        crc32c::crc32c(&self.encode()[HEADER_CLUSTER..HEADER_RESERVED])
    }
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Rows = 1,
    Footer = 2,
}

/// The head of a block, read and compared with its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHeader {
    pub(crate) body_checksum: u32,
    pub(crate) body_len: usize,
    /// Counted from 0; the footer's is the number of blocks before it.
    pub(crate) number: u64,
    pub(crate) rows: u32,
    pub(crate) kind: Kind,
}

impl BlockHeader {
    /// Reads the first [`BLOCK_HEADER_LEN`] bytes of a block.
    pub(crate) fn decode(bytes: &[u8], seed: u32) -> Result<Self, Flaw> {
        let bytes = &bytes[..BLOCK_HEADER_LEN];
        if bytes[..BLOCK_CHECKSUM] != BLOCK_MAGIC {
            let found = bytes[..BLOCK_CHECKSUM].escape_ascii();
            return Err(Flaw::new("begin of a block", BLOCK_MAGIC.escape_ascii(), found));
        }
        let stored = u32_at(bytes, BLOCK_CHECKSUM);
        let computed = crc32c::crc32c_append(seed, &bytes[BLOCK_BODY_CHECKSUM..]);
        if stored != computed {
            return Err(Flaw::hex("checksum of a block's head", stored, computed));
        }
        let kind = match u32_at(bytes, BLOCK_KIND) {
            1 => Kind::Rows,
            2 => Kind::Footer,
            other => return Err(Flaw::new("kind of a block", "1 or 2", other)),
        };
        let body_len = u32_at(bytes, BLOCK_BODY_LEN) as usize;
        if body_len > MAX_BODY_LEN {
            return Err(Flaw::new(
                "length of a block",
                format_args!("at most {MAX_BODY_LEN}"),
                body_len,
            ));
        }
        Ok(Self {
            body_checksum: u32_at(bytes, BLOCK_BODY_CHECKSUM),
            body_len,
            number: u64_at(bytes, BLOCK_NUMBER),
            rows: u32_at(bytes, BLOCK_ROWS),
            kind,
        })
    }

    /// Compares the body with its checksum.
    pub(crate) fn check(&self, body: &[u8], seed: u32) -> Result<(), Flaw> {
        let computed = crc32c::crc32c_append(seed, body);
        match computed == self.body_checksum {
            true => Ok(()),
            false => Err(Flaw::hex("checksum of a block's body", self.body_checksum, computed)),
        }
    }
}

/// Adds a block to `out`: room for its head, then what `body` writes.
pub(crate) fn push_block(
    out: &mut Vec<u8>,
    seed: u32,
    kind: Kind,
    number: u64,
    body: impl FnOnce(&mut Vec<u8>) -> u32,
) {
    let begin = out.len();
    out.resize(begin + BLOCK_HEADER_LEN, 0);
    let rows = body(out);
    let (head, body) = out[begin..].split_at_mut(BLOCK_HEADER_LEN);
    assert!(body.len() <= MAX_BODY_LEN);
    head[BLOCK_MAGIC_AT..BLOCK_CHECKSUM].copy_from_slice(&BLOCK_MAGIC);
    let body_checksum = crc32c::crc32c_append(seed, body);
    head[BLOCK_BODY_CHECKSUM..BLOCK_BODY_LEN].copy_from_slice(&body_checksum.to_le_bytes());
    head[BLOCK_BODY_LEN..BLOCK_NUMBER].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[BLOCK_NUMBER..BLOCK_ROWS].copy_from_slice(&number.to_le_bytes());
    head[BLOCK_ROWS..BLOCK_KIND].copy_from_slice(&rows.to_le_bytes());
    head[BLOCK_KIND..].copy_from_slice(&(kind as u32).to_le_bytes());
    let checksum = crc32c::crc32c_append(seed, &head[BLOCK_BODY_CHECKSUM..]);
    head[BLOCK_CHECKSUM..BLOCK_BODY_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// How much a checkpoint holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Rows.
    pub rows: u64,
    /// Bytes of keys.
    pub key_bytes: u64,
    /// Bytes of values.
    pub value_bytes: u64,
}

impl Totals {
    /// Counts a row.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.rows += 1;
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
    }
}

/// Adds the footer to `out`.
pub(crate) fn push_footer(out: &mut Vec<u8>, header: &Header, blocks: u64, totals: &Totals) {
    push_block(out, header.seed(), Kind::Footer, blocks, |body| {
        for number in [totals.rows, totals.key_bytes, totals.value_bytes] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body.extend_from_slice(&header.encode());
        0
    });
}

/// The totals in a footer's body, whose checksum has been compared.
pub(crate) fn decode_footer(body: &[u8]) -> Result<Totals, Flaw> {
    if body.len() != FOOTER_BODY_LEN {
        return Err(Flaw::new("length of the footer", FOOTER_BODY_LEN, body.len()));
    }
    Ok(Totals {
        rows: u64_at(body, FOOTER_ROWS),
        key_bytes: u64_at(body, FOOTER_KEY_BYTES),
        value_bytes: u64_at(body, FOOTER_VALUE_BYTES),
    })
}

/// The header that the last [`FOOTER_LEN`] bytes of a file repeat, if it is whole.
pub(crate) fn header_in_footer(footer: &[u8]) -> Option<Header> {
    Header::decode(footer.get(BLOCK_HEADER_LEN + FOOTER_HEADER..)?).ok()
}

/// Adds a row to the body of a block.
pub(crate) fn push_row(body: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    push_length(body, key.len());
    push_length(body, value.len());
    body.extend_from_slice(key);
    body.extend_from_slice(value);
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn push_length(body: &mut Vec<u8>, length: usize) {
    let mut rest = length;
    while rest >= 0x80 {
        body.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    body.push(rest as u8);
}

/// Walks the rows in the body of a block.
pub(crate) struct BodyRows<'b> {
    rest: &'b [u8],
}

impl<'b> BodyRows<'b> {
    pub(crate) fn new(body: &'b [u8]) -> Self {
        Self { rest: body }
    }

    /// How many bytes are not read yet: not zero after the last row if the body is no list of rows.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    fn length(bytes: &mut &'b [u8]) -> Option<usize> {
        let mut length = 0;
        for shift in (0..35).step_by(7) {
            let (byte, rest) = bytes.split_first()?;
            *bytes = rest;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(length);
            }
        }
        None
    }
}

impl<'b> Iterator for BodyRows<'b> {
    type Item = (&'b [u8], &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = self.rest;
        let key_len = Self::length(&mut bytes)?;
        let value_len = Self::length(&mut bytes)?;
        let (key, bytes) = bytes.split_at_checked(key_len)?;
        let (value, bytes) = bytes.split_at_checked(value_len)?;
        self.rest = bytes;
        Some((key, value))
    }
}

#[cfg(test)]
mod tests;
