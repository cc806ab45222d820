//! The bytes of a checkpoint file; `docs/format/checkpoint.md` describes them.
//!
//! A header, blocks of rows, a footer. Every checksum behind the header is continued from the seed,
//! which the header's identity, version and nonce make, so that a block of another file never
//! passes for one of this. The footer repeats the header: either of them is enough to salvage the
//! rows.

use plinth_format::crypt::{ENVELOPE_LEN, FileKey, TAG_LEN, not_authentic, numbered};
use plinth_format::{
    Cipher, FIELDS, Flaw, Form, HeaderFlaw, IDENTITY_LEN, Identity, Keys, checksum, checksum_from,
    compare, hex, push_number, put, take, take_number, u32_at, u64_at, version_at,
};
use plinth_types::{LogPosition, Version};

/// The first bytes of every checkpoint.
pub const MAGIC: [u8; 8] = *b"PLNTHCKP";
const FORM: Form<HEADER_LEN> = Form::new(MAGIC);
/// The format that this program writes.
pub const FORMAT: u32 = 2;
/// The same with blocks that are sealed, where a key was given. It reads these two.
pub const SEALED_FORMAT: u32 = 3;

const HEADER_IDENTITY: usize = FIELDS;
const HEADER_VERSION: usize = HEADER_IDENTITY + IDENTITY_LEN;
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
/// Bytes of the whole footer, with which every checkpoint ends that is not sealed.
pub const FOOTER_LEN: usize = BLOCK_HEADER_LEN + FOOTER_HEADER + HEADER_LEN;
/// The same of one that is sealed: its envelope again, and a tag.
pub const SEALED_FOOTER_LEN: usize = FOOTER_LEN + ENVELOPE_LEN + TAG_LEN;

/// The body of a block is closed when it has this many bytes; one row more may be in it.
pub const BLOCK_TARGET: usize = 64 << 10;
/// The longest body that is believed.
pub const MAX_BODY_LEN: usize = 1 << 20;

const _: () = {
    assert!(HEADER_LEN == 128 && BLOCK_HEADER_LEN == 32);
    assert!(BLOCK_TARGET + 200_000 < MAX_BODY_LEN, "a block holds the longest row besides");
};

/// The begin of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Cluster and node.
    pub identity: Identity,
    /// What the rows are everything of.
    pub at: LogPosition,
    /// Random: tells apart two files of the same version.
    pub nonce: u64,
    /// Whether its rows are sealed. Then an envelope with the file's key stands behind the header.
    pub sealed: bool,
}

impl Header {
    /// Whether it is that of the checkpoint with this version in its name, and of this database.
    pub(super) fn check(&self, version: Version, identity: Identity) -> Result<(), Flaw> {
        let ours = self.identity;
        if self.at.version != version {
            let expected = format_args!("{version}, as its name says").to_string();
            Err(Flaw::new("version of the checkpoint", expected, self.at.version))
        } else if ours.cluster_id != identity.cluster_id {
            Err(Flaw::new("cluster id", hex(&identity.cluster_id), hex(&ours.cluster_id)))
        } else if ours.node_id != identity.node_id {
            Err(Flaw::new("node id", hex(&identity.node_id), hex(&ours.node_id)))
        } else {
            Ok(())
        }
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let format = if self.sealed { SEALED_FORMAT } else { FORMAT };
        FORM.encode(format, 0, |header| {
            self.identity.put(header, HEADER_IDENTITY);
            put(header, HEADER_VERSION, self.at.version.to_le_bytes());
            put(header, HEADER_NONCE, self.nonce.to_le_bytes());
            put(header, HEADER_INDEX, self.at.index.to_le_bytes());
            put(header, HEADER_TERM, self.at.term.to_le_bytes());
        })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFlaw> {
        let (bytes, format) = match FORM.decode(bytes, 0, FORMAT..=SEALED_FORMAT) {
            // No release wrote an older one.
            Err(HeaderFlaw::Foreign(format)) if format < FORMAT => {
                return Err(Flaw::new("format of the checkpoint", FORMAT, format).into());
            }
            decoded => decoded?,
        };
        let identity = Identity::at(bytes, HEADER_IDENTITY);
        let at = LogPosition {
            index: u64_at(bytes, HEADER_INDEX),
            term: u64_at(bytes, HEADER_TERM),
            version: version_at(bytes, HEADER_VERSION),
        };
        let sealed = format == SEALED_FORMAT;
        Ok(Self { identity, at, nonce: u64_at(bytes, HEADER_NONCE), sealed })
    }

    /// What the checksums of this file's blocks begin with.
    pub fn seed(&self) -> u32 {
        checksum(&self.encode()[HEADER_IDENTITY..HEADER_RESERVED])
    }

    /// Bytes before the first block.
    pub(crate) fn front_len(&self) -> usize {
        HEADER_LEN + if self.sealed { ENVELOPE_LEN } else { 0 }
    }
}

/// What a file begins with, and ends with: the header, and the envelope if there is one.
pub(crate) const FRONT_LEN: usize = HEADER_LEN + ENVELOPE_LEN;

/// The front of a new file, and what seals its blocks.
pub(crate) struct Front {
    pub(crate) bytes: Vec<u8>,
    seed: u32,
    pub(crate) cipher: Cipher,
}

impl Front {
    /// `random` fills bytes for keys.
    pub(crate) fn new(header: &Header, keys: &Keys, random: impl FnOnce(&mut [u8])) -> Self {
        let (mut bytes, seed) = (header.encode().to_vec(), header.seed());
        let (cipher, envelope) = keys.of_new_file(&bytes, seed, random);
        assert_eq!(envelope.is_some(), header.sealed, "an envelope has the key of what is sealed");
        bytes.extend(envelope.into_iter().flatten());
        Self { bytes, seed, cipher }
    }

    /// What checksums begin with, and the key, if there is one.
    pub(crate) fn sealing(&self) -> (u32, Option<&FileKey>) {
        (self.seed, self.cipher.key())
    }
}

/// Reads the front that bytes begin with.
pub(crate) fn decode_front(bytes: &[u8], keys: &Keys) -> Result<(Header, Cipher), HeaderFlaw> {
    let header = Header::decode(bytes)?;
    if !header.sealed {
        return Ok((header, Cipher::Clear));
    }
    let envelope = bytes.get(HEADER_LEN..).unwrap_or_default();
    Ok((header, keys.of_file(envelope, &header.encode(), header.seed())?))
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
        let computed = checksum_from(seed, &bytes[BLOCK_BODY_CHECKSUM..]);
        compare("checksum of a block's head", stored, computed)?;
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
        compare("checksum of a block's body", self.body_checksum, checksum_from(seed, body))
    }

    /// Opens the body in place, if it is sealed and the key is there; gives its length.
    pub(crate) fn open(&self, body: &mut [u8], cipher: &Cipher) -> Result<usize, Flaw> {
        let Some(key) = cipher.key() else { return Ok(body.len()) };
        let about = about(self.body_len, self.number, self.rows, self.kind);
        let opened = match self.kind {
            Kind::Rows => key.open(numbered(self.number), &about, body),
            Kind::Footer => key.tagged(numbered(self.number), &about, body),
        };
        opened.ok_or_else(|| not_authentic("body of a block"))
    }
}

/// What the body of a block is sealed about: all of its head but the checksums, which are made of
/// what was sealed.
fn about(
    body_len: usize,
    number: u64,
    rows: u32,
    kind: Kind,
) -> [u8; BLOCK_HEADER_LEN - BLOCK_BODY_LEN] {
    let mut about = [0; BLOCK_HEADER_LEN - BLOCK_BODY_LEN];
    put(&mut about, 0, (body_len as u32).to_le_bytes());
    put(&mut about, BLOCK_NUMBER - BLOCK_BODY_LEN, number.to_le_bytes());
    put(&mut about, BLOCK_ROWS - BLOCK_BODY_LEN, rows.to_le_bytes());
    put(&mut about, BLOCK_KIND - BLOCK_BODY_LEN, (kind as u32).to_le_bytes());
    about
}

/// Adds a block to `out`: room for its head, then what `body` writes. Rows are sealed by the key,
/// if there is one; a footer is read by those without it, and gets a tag. Each number is used once
/// in a file: it is the nonce.
pub(crate) fn push_block(
    out: &mut Vec<u8>,
    (seed, key): (u32, Option<&FileKey>),
    kind: Kind,
    number: u64,
    body: impl FnOnce(&mut Vec<u8>) -> u32,
) {
    let begin = out.len();
    out.resize(begin + BLOCK_HEADER_LEN, 0);
    let rows = body(out);
    if let Some(key) = key {
        let body_at = begin + BLOCK_HEADER_LEN;
        let about = about(out.len() - body_at + TAG_LEN, number, rows, kind);
        let tag = match kind {
            Kind::Rows => key.seal(numbered(number), &about, &mut out[body_at..]),
            Kind::Footer => key.tag(numbered(number), &about, &out[body_at..]),
        };
        out.extend_from_slice(&tag);
    }
    let (head, body) = out[begin..].split_at_mut(BLOCK_HEADER_LEN);
    assert!(body.len() <= MAX_BODY_LEN);
    put(head, BLOCK_MAGIC_AT, BLOCK_MAGIC);
    put(head, BLOCK_BODY_CHECKSUM, checksum_from(seed, body).to_le_bytes());
    put(head, BLOCK_BODY_LEN, (body.len() as u32).to_le_bytes());
    put(head, BLOCK_NUMBER, number.to_le_bytes());
    put(head, BLOCK_ROWS, rows.to_le_bytes());
    put(head, BLOCK_KIND, (kind as u32).to_le_bytes());
    let checksum = checksum_from(seed, &head[BLOCK_BODY_CHECKSUM..]);
    put(head, BLOCK_CHECKSUM, checksum.to_le_bytes());
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
pub(crate) fn push_footer(out: &mut Vec<u8>, front: &Front, blocks: u64, totals: &Totals) {
    push_block(out, front.sealing(), Kind::Footer, blocks, |body| {
        for number in [totals.rows, totals.key_bytes, totals.value_bytes] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body.extend_from_slice(&front.bytes);
        0
    });
}

/// The totals in a footer's body, whose checksum has been compared.
pub(crate) fn decode_footer(body: &[u8], header: &Header) -> Result<Totals, Flaw> {
    let footer = if header.sealed { SEALED_FOOTER_LEN } else { FOOTER_LEN };
    if body.len() != footer - BLOCK_HEADER_LEN {
        return Err(Flaw::new("length of the footer", footer - BLOCK_HEADER_LEN, body.len()));
    }
    Ok(Totals {
        rows: u64_at(body, FOOTER_ROWS),
        key_bytes: u64_at(body, FOOTER_KEY_BYTES),
        value_bytes: u64_at(body, FOOTER_VALUE_BYTES),
    })
}

/// The front that the last bytes of a file repeat, [`SEALED_FOOTER_LEN`] of them or as many as
/// there are, if it is whole.
pub(crate) fn front_in_footer(end: &[u8], keys: &Keys) -> Option<(Header, Cipher)> {
    let plain = end.len().checked_sub(HEADER_LEN)?;
    let sealed = end.len().checked_sub(FRONT_LEN + TAG_LEN);
    let front = |at: usize, is_sealed| {
        let front = decode_front(end.get(at..)?, keys).ok()?;
        (front.0.sealed == is_sealed).then_some(front)
    };
    front(plain, false).or_else(|| front(sealed?, true))
}

/// Adds a row to the body of a block.
pub(crate) fn push_row(body: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    push_number(body, key.len() as u64);
    push_number(body, value.len() as u64);
    body.extend_from_slice(key);
    body.extend_from_slice(value);
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
}

impl<'b> Iterator for BodyRows<'b> {
    type Item = (&'b [u8], &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = self.rest;
        let key_len = usize::try_from(take_number(&mut bytes)?).ok()?;
        let value_len = usize::try_from(take_number(&mut bytes)?).ok()?;
        let (key, value) = (take(&mut bytes, key_len)?, take(&mut bytes, value_len)?);
        self.rest = bytes;
        Some((key, value))
    }
}

#[cfg(test)]
mod tests;
