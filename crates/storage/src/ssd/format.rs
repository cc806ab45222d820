//! The bytes of tables: `docs/format/table.md` as code.
//!
//! A table is written once, from its begin to its end, and never changed. Every byte that is read
//! is covered by a checksum that begins with the file's seed, so a block of another file, or of
//! another place in this one, is not taken for the one that belongs there.

use super::zstd;
use plinth_format::crypt::{ENVELOPE_LEN, FileKey, TAG_LEN, not_authentic, numbered};
use plinth_format::{
    Cipher, FIELDS, Flaw, Form, HeaderFlaw, IDENTITY_LEN, Identity, checksum, checksum_from,
    compare, put, u16_at, u32_at, u64_at, version_at,
};
use plinth_types::Version;
use std::ops::Range;

/// The table format that this program writes. Format 1 has blocks without padding.
pub const TABLE_FORMAT: u32 = 2;
/// The same with blocks that are sealed, where a key was given: the newest format that this program
/// can read. It reads all before it.
pub const SEALED_TABLE_FORMAT: u32 = 3;

/// What disks, and the system's cache of files, hand out at once.
pub(crate) const PAGE_LEN: usize = 4096;

const FORM: Form<HEADER_LEN> = Form::new(*b"PLNTHTBL");

/// Where the headers of all the engine's files say whose they are.
pub(crate) const HEADER_IDENTITY: usize = FIELDS;
const HEADER_ID: usize = HEADER_IDENTITY + IDENTITY_LEN;
const HEADER_NONCE: usize = HEADER_ID + 8;
const HEADER_VERSION: usize = HEADER_NONCE + 8;
const HEADER_LEVEL: usize = HEADER_VERSION + 8;
const HEADER_RESERVED: usize = HEADER_LEVEL + 4;
pub(crate) const HEADER_CHECKSUM: usize = HEADER_LEN - 4;
/// Bytes of a file's header.
pub(crate) const HEADER_LEN: usize = 128;

pub(crate) const BLOCK_MAGIC: [u8; 4] = *b"PTBK";
const BLOCK_CHECKSUM: usize = BLOCK_MAGIC.len();
const BLOCK_STORED: usize = BLOCK_CHECKSUM + 4;
const BLOCK_RAW: usize = BLOCK_STORED + 4;
const BLOCK_NUMBER: usize = BLOCK_RAW + 4;
const BLOCK_KIND: usize = BLOCK_NUMBER + 4;
const BLOCK_COMPRESSION: usize = BLOCK_KIND + 1;
const BLOCK_PADDING: usize = BLOCK_COMPRESSION + 1;
/// Bytes of a block's head.
pub(crate) const BLOCK_HEAD_LEN: usize = BLOCK_PADDING + 2;

/// Longest body of a block, raw or stored.
pub(crate) const MAX_BODY_LEN: usize = 1 << 28;

const FOOTER_NUMBERS: usize = 8;
/// Bytes of the footer, the last block of a file: its numbers, and the header again.
pub(crate) const FOOTER_LEN: usize = BLOCK_HEAD_LEN + 8 * FOOTER_NUMBERS + HEADER_LEN;
/// What a sealed one has besides: the envelope again, and a tag.
pub(crate) const FOOTER_SEALING_LEN: usize = ENVELOPE_LEN + TAG_LEN;
/// Bytes of a header with its envelope.
pub(crate) const FRONT_LEN: usize = HEADER_LEN + ENVELOPE_LEN;

const _: () =
    assert!(HEADER_RESERVED < HEADER_CHECKSUM && BLOCK_HEAD_LEN == 24 && FOOTER_LEN == 216);

/// What stands at the beginning of a table, and again at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// The format of the file, at most [`SEALED_TABLE_FORMAT`].
    pub format: u32,
    pub identity: Identity,
    /// Number of the table, new for each.
    pub id: u64,
    /// Random, new for each file.
    pub nonce: u64,
    /// The newest version of anything in it.
    pub version: Version,
    /// The level it was written for.
    pub level: u32,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        FORM.encode(self.format, 0, |header| {
            self.identity.put(header, HEADER_IDENTITY);
            put(header, HEADER_ID, self.id.to_le_bytes());
            put(header, HEADER_NONCE, self.nonce.to_le_bytes());
            put(header, HEADER_VERSION, self.version.to_le_bytes());
            put(header, HEADER_LEVEL, self.level.to_le_bytes());
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderFlaw> {
        let (bytes, format) = decode_header(FORM, bytes, SEALED_TABLE_FORMAT)?;
        Ok(Self {
            format,
            identity: Identity::at(bytes, HEADER_IDENTITY),
            id: u64_at(bytes, HEADER_ID),
            nonce: u64_at(bytes, HEADER_NONCE),
            version: version_at(bytes, HEADER_VERSION),
            level: u32_at(bytes, HEADER_LEVEL),
        })
    }

    /// What the checksums of this file's blocks begin with.
    pub fn seed(&self) -> u32 {
        checksum(&self.encode()[HEADER_IDENTITY..HEADER_RESERVED])
    }

    /// Whether the blocks are sealed. Then an envelope with the file's key stands behind the
    /// header.
    pub fn is_sealed(&self) -> bool {
        self.format == SEALED_TABLE_FORMAT
    }

    /// Bytes before the first block.
    pub fn front_len(&self) -> usize {
        if self.is_sealed() { FRONT_LEN } else { HEADER_LEN }
    }

    /// Bytes of the footer.
    pub fn footer_len(&self) -> usize {
        FOOTER_LEN + if self.is_sealed() { FOOTER_SEALING_LEN } else { 0 }
    }
}

/// The header that one of the engine's files begins with, in whichever format up to the newest.
pub(crate) fn decode_header(
    form: Form<HEADER_LEN>,
    bytes: &[u8],
    newest: u32,
) -> Result<(&[u8; HEADER_LEN], u32), HeaderFlaw> {
    match form.decode(bytes, 0, 1..=newest) {
        Err(HeaderFlaw::Foreign(0)) => {
            Err(Flaw::new("format of the file", format_args!("1 to {newest}"), 0).into())
        }
        decoded => decoded,
    }
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Rows = 1,
    Clears = 2,
    Filter = 3,
    Index = 4,
    Footer = 5,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Self::Rows, Self::Clears, Self::Filter, Self::Index, Self::Footer]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// How the bodies of blocks are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4, block by block; a block that gets hardly smaller stays as it is.
    #[default]
    Lz4,
    /// zstd, block by block, in the same way: smaller, and slower to write and to read. In programs
    /// that are built with the feature `zstd`; others write and read none.
    Zstd,
}

impl Compression {
    /// Whether this program has it.
    pub fn is_built_in(self) -> bool {
        self != Self::Zstd || cfg!(feature = "zstd")
    }
}

/// The head of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHead {
    pub checksum: u32,
    pub stored_len: usize,
    pub raw_len: usize,
    /// Zeros behind the body.
    pub padding: usize,
    pub number: u32,
    pub kind: Kind,
    pub compression: Compression,
}

impl BlockHead {
    /// Reads a head. What it says is believed once [`BlockHead::check`] has been asked.
    pub fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let Some(bytes) = bytes.get(..BLOCK_HEAD_LEN) else {
            return Err(Flaw::new("bytes for the head of a block", BLOCK_HEAD_LEN, bytes.len()));
        };
        if bytes[..BLOCK_CHECKSUM] != BLOCK_MAGIC {
            let found = bytes[..BLOCK_CHECKSUM].escape_ascii();
            return Err(Flaw::new("begin of a block", BLOCK_MAGIC.escape_ascii(), found));
        }
        let [stored_len, raw_len] = [BLOCK_STORED, BLOCK_RAW].map(|at| u32_at(bytes, at) as usize);
        if stored_len.max(raw_len) > MAX_BODY_LEN {
            let expected = format_args!("at most {MAX_BODY_LEN}");
            return Err(Flaw::new("length of a block", expected, stored_len.max(raw_len)));
        }
        let Some(kind) = Kind::of(bytes[BLOCK_KIND]) else {
            return Err(Flaw::new("kind of a block", "1 to 5", bytes[BLOCK_KIND]));
        };
        let compression = match bytes[BLOCK_COMPRESSION] {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            other => return Err(Flaw::new("compression of a block", "0 to 2", other)),
        };
        let padding = usize::from(u16_at(bytes, BLOCK_PADDING));
        if padding >= PAGE_LEN {
            return Err(Flaw::new(
                "padding of a block",
                format_args!("less than {PAGE_LEN}"),
                padding,
            ));
        }
        let (checksum, number) = (u32_at(bytes, BLOCK_CHECKSUM), u32_at(bytes, BLOCK_NUMBER));
        Ok(Self { checksum, stored_len, raw_len, padding, number, kind, compression })
    }

    /// Bytes of the block in its file.
    pub fn block_len(&self) -> usize {
        BLOCK_HEAD_LEN + self.stored_len + self.padding
    }

    /// Compares the block, head, body and padding, with its checksum.
    pub fn check(&self, block: &[u8], seed: u32) -> Result<(), Flaw> {
        let Some(block) = block.get(..self.block_len()) else {
            return Err(Flaw::new("bytes of a block", self.block_len(), block.len()));
        };
        let computed = checksum_from(seed, &block[BLOCK_STORED..]);
        compare("checksum of a block", self.checksum, computed)
    }

    /// The raw body of a block that has been checked, which is opened in place if it is sealed.
    pub fn body(&self, block: &mut [u8], cipher: &Cipher) -> Result<Vec<u8>, Flaw> {
        let body = self.open(block, cipher)?;
        self.body_in(&block[body], |len| vec![0; len])
    }

    /// The raw body in a buffer that `take` has of so many bytes, from what was opened.
    pub fn body_in(
        &self,
        stored: &[u8],
        take: impl FnOnce(usize) -> Vec<u8>,
    ) -> Result<Vec<u8>, Flaw> {
        if self.compression == Compression::None {
            self.check_body_len(stored.len())?;
        }
        let mut raw = take(self.raw_len);
        let len = match self.compression {
            Compression::None => {
                raw.copy_from_slice(stored);
                stored.len()
            }
            Compression::Lz4 => lz4_flex::block::decompress_into(stored, &mut raw)
                .map_err(|error| Flaw::new("compressed body", "LZ4", error))?,
            Compression::Zstd => zstd::decompress(stored, &mut raw)?,
        };
        self.check_body_len(len)?;
        Ok(raw)
    }

    /// Opens the body of a block that has been checked, in place, if it is sealed. Gives where it
    /// lies, compressed as it may be.
    pub fn open(&self, block: &mut [u8], cipher: &Cipher) -> Result<Range<usize>, Flaw> {
        let end = BLOCK_HEAD_LEN + self.stored_len;
        let Some(key) = cipher.key() else { return Ok(BLOCK_HEAD_LEN..end) };
        let (head, body) = block.split_at_mut(BLOCK_HEAD_LEN);
        let body = &mut body[..self.stored_len];
        let about = &head[BLOCK_STORED..];
        let nonce = numbered(self.number.into());
        let opened = match self.kind {
            Kind::Footer => key.tagged(nonce, about, body),
            _ => key.open(nonce, about, body),
        };
        let len = opened.ok_or_else(|| not_authentic("body of a block"))?;
        Ok(BLOCK_HEAD_LEN..BLOCK_HEAD_LEN + len)
    }

    /// Whether the raw body has the length that it should have.
    pub fn check_body_len(&self, len: usize) -> Result<(), Flaw> {
        if len == self.raw_len {
            return Ok(());
        }
        Err(Flaw::new("length of a block's body", self.raw_len, len))
    }
}

/// Adds a block to `out`. Gives its length there. `pad` says how many zeros a block of so many
/// bytes takes along, less than [`PAGE_LEN`]. It is sealed by the key, if there is one, but for a
/// footer, which is read by those without it, and gets a tag. Each number is used once in a file:
/// it is the nonce.
pub(crate) fn push_block(
    out: &mut Vec<u8>,
    (seed, key): (u32, Option<&FileKey>),
    (kind, number): (Kind, u32),
    body: &[u8],
    compression: Compression,
    pad: impl FnOnce(usize) -> usize,
) -> usize {
    assert!(body.len() <= MAX_BODY_LEN - TAG_LEN, "a block of {} bytes", body.len());
    let begin = out.len();
    out.resize(begin + BLOCK_HEAD_LEN, 0);
    let compression = push_body(out, body, compression);
    if key.is_some() {
        // The tag's place.
        out.resize(out.len() + TAG_LEN, 0);
    }
    let stored_len = out.len() - begin - BLOCK_HEAD_LEN;
    let padding = pad(BLOCK_HEAD_LEN + stored_len);
    assert!(padding < PAGE_LEN, "{padding} bytes of padding");
    out.resize(out.len() + padding, 0);
    let head = &mut out[begin..begin + BLOCK_HEAD_LEN];
    put(head, 0, BLOCK_MAGIC);
    put(head, BLOCK_STORED, (stored_len as u32).to_le_bytes());
    put(head, BLOCK_RAW, (body.len() as u32).to_le_bytes());
    put(head, BLOCK_NUMBER, number.to_le_bytes());
    put(head, BLOCK_KIND, [kind as u8]);
    put(head, BLOCK_COMPRESSION, [compression as u8]);
    put(head, BLOCK_PADDING, (padding as u16).to_le_bytes());
    if let Some(key) = key {
        seal(&mut out[begin..], key, (kind, number), stored_len);
    }
    let block = &mut out[begin..];
    let checksum = checksum_from(seed, &block[BLOCK_STORED..]);
    put(block, BLOCK_CHECKSUM, checksum.to_le_bytes());
    block.len()
}

/// Seals a block whose head is complete but for its checksum.
fn seal(block: &mut [u8], key: &FileKey, (kind, number): (Kind, u32), stored_len: usize) {
    let (head, rest) = block.split_at_mut(BLOCK_HEAD_LEN);
    let (body, tag) = rest[..stored_len].split_at_mut(stored_len - TAG_LEN);
    let (about, nonce) = (&head[BLOCK_STORED..], numbered(number.into()));
    tag.copy_from_slice(&match kind {
        Kind::Footer => key.tag(nonce, about, body),
        _ => key.seal(nonce, about, body),
    });
}

/// Adds a body, compressed if that saves an eighth. Says how it lies there.
fn push_body(out: &mut Vec<u8>, body: &[u8], compression: Compression) -> Compression {
    let begin = out.len();
    let most = match compression {
        Compression::Lz4 if body.len() > 64 => lz4_flex::block::get_maximum_output_size(body.len()),
        Compression::Zstd if body.len() > 64 => zstd::most(body.len()),
        _ => 0,
    };
    if most > 0 {
        out.resize(begin + most, 0);
        let len = match compression {
            Compression::Zstd => zstd::compress(body, &mut out[begin..]),
            _ => lz4_flex::block::compress_into(body, &mut out[begin..]).ok(),
        };
        if let Some(len) = len.filter(|len| *len <= body.len() - body.len() / 8) {
            out.truncate(begin + len);
            return compression;
        }
        out.truncate(begin);
    }
    out.extend_from_slice(body);
    Compression::None
}

/// What stands at the end of a table: how much is in it, and where the rest begins.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Footer {
    /// Rows, removed keys not counted.
    pub rows: u64,
    /// Removed keys.
    pub removals: u64,
    /// Bytes of the rows' keys and values.
    pub row_bytes: u64,
    /// Blocks of rows, which lie from the header on.
    pub blocks: u64,
    /// Offset of the block with the cleared ranges; all before it are blocks of rows.
    pub clears_at: u64,
    /// Offset of the filter.
    pub filter_at: u64,
    /// Offset of the index.
    pub index_at: u64,
    /// Offset of the footer.
    pub footer_at: u64,
}

impl Footer {
    /// With the front that the file begins with.
    pub fn encode(&self, front: &[u8]) -> Vec<u8> {
        let numbers = [
            self.rows,
            self.removals,
            self.row_bytes,
            self.blocks,
            self.clears_at,
            self.filter_at,
            self.index_at,
            self.footer_at,
        ];
        let mut body: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        body.extend_from_slice(front);
        body
    }

    pub fn decode(body: &[u8], header: &Header) -> Result<Self, Flaw> {
        let expected = header.footer_len() - BLOCK_HEAD_LEN;
        if body.len() != expected {
            return Err(Flaw::new("length of the footer", expected, body.len()));
        }
        let number = |at: usize| u64_at(body, 8 * at);
        let footer = Self {
            rows: number(0),
            removals: number(1),
            row_bytes: number(2),
            blocks: number(3),
            clears_at: number(4),
            filter_at: number(5),
            index_at: number(6),
            footer_at: number(7),
        };
        let places = [
            header.front_len() as u64,
            footer.clears_at,
            footer.filter_at,
            footer.index_at,
            footer.footer_at,
        ];
        if places.windows(2).any(|pair| pair[0] > pair[1]) || footer.blocks > u64::from(u32::MAX) {
            return Err(Flaw::new("places in the footer", "ascending", format_args!("{places:?}")));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_format::Keys;
    use plinth_format::crypt::Key;

    const BODY: &[u8] = b"\x02\0\0\0\x02\0\0\0ab\0\0\x04\0\x00\x03\x31\x32\x01\x00c";

    fn block(padding: usize) -> Vec<u8> {
        let mut block = Vec::new();
        let place = (Kind::Rows, 1);
        let len = push_block(&mut block, (7, None), place, BODY, Compression::Lz4, |_| padding);
        assert_eq!(len, block.len());
        block
    }

    /// The block of `docs/format/table.md`.
    #[test]
    fn the_bytes_of_a_block_are_as_documented() {
        let mut block = block(3);
        assert_eq!(block[..4], *b"PTBK");
        assert_eq!(block[8..24], *b"\x15\0\0\0\x15\0\0\0\x01\0\0\0\x01\0\x03\0");
        assert_eq!(block[24..], [BODY, &[0; 3]].concat());
        // With it the checksum is fixed.
        assert_eq!(crc32c::crc32c(&block), 0x5c43_13e2);
        let head = BlockHead::decode(&block).unwrap();
        assert_eq!((head.block_len(), head.padding), (block.len(), 3));
        head.check(&block, 7).unwrap();
        assert_eq!(head.body(&mut block, &Cipher::Clear).unwrap(), BODY);
    }

    /// Keys are told, so the bytes are the same each time.
    #[test]
    fn a_sealed_block_is_opened_in_its_place_alone() {
        let keys = Keys::new(&[Key::of_file(&[9; 32]).unwrap()]);
        let (cipher, _) = keys.of_new_file(b"header", 7, |bytes| bytes.fill(5));
        let (sealing, mut block) = ((7, cipher.key()), Vec::new());
        push_block(&mut block, sealing, (Kind::Rows, 1), BODY, Compression::Lz4, |_| 3);
        assert_eq!(block[8..24], *b"\x25\0\0\0\x15\0\0\0\x01\0\0\0\x01\0\x03\0");
        assert_eq!((block.len(), crc32c::crc32c(&block)), (24 + 21 + 16 + 3, SEALED_CHECKSUM));
        let head = BlockHead::decode(&block).unwrap();
        head.check(&block, 7).unwrap();
        let moved = BlockHead { number: 2, ..head };
        assert!(moved.body(&mut block.clone(), &cipher).is_err());
        assert_eq!(head.body(&mut block.clone(), &cipher).unwrap(), BODY);
        for bit in 8 * 8..8 * 61 {
            let mut harmed = block.clone();
            harmed[bit / 8] ^= 1 << (bit % 8);
            assert!(head.open(&mut harmed, &cipher).is_err(), "bit {bit}");
        }
    }

    const SEALED_CHECKSUM: u32 = 0x6d1c_1007;

    #[test]
    fn a_sealed_footer_is_read_by_all_and_made_with_the_key_alone() {
        let keys = Keys::new(&[Key::of_file(&[9; 32]).unwrap()]);
        let (cipher, envelope) = keys.of_new_file(b"header", 7, |bytes| bytes.fill(5));
        let identity = Identity { cluster_id: [1; 16], node_id: [2; 16] };
        let header =
            Header { format: SEALED_TABLE_FORMAT, identity, id: 3, nonce: 4, version: 5, level: 0 };
        let front = [&header.encode()[..], &envelope.unwrap()].concat();
        let [clears_at, filter_at, index_at, footer_at] = [500, 600, 700, 800];
        let footer =
            Footer { rows: 9, clears_at, filter_at, index_at, footer_at, ..Footer::default() };
        let mut block = Vec::new();
        let (sealing, body) = ((7, cipher.key()), footer.encode(&front));
        push_block(&mut block, sealing, (Kind::Footer, 6), &body, Compression::None, |_| 0);
        assert_eq!(block.len(), header.footer_len());
        assert_eq!(Footer::decode(&block[BLOCK_HEAD_LEN..], &header), Ok(footer));
        let head = BlockHead::decode(&block).unwrap();
        assert!(head.open(&mut block.clone(), &cipher).is_ok());
        block[BLOCK_HEAD_LEN] = 8;
        assert!(head.open(&mut block, &cipher).is_err());
    }

    #[test]
    fn padding_is_checked_like_all_else() {
        let good = block(9);
        for bit in 0..8 * good.len() {
            let mut block = good.clone();
            block[bit / 8] ^= 1 << (bit % 8);
            let read = BlockHead::decode(&block).and_then(|head| head.check(&block, 7));
            assert!(read.is_err(), "bit {bit}");
        }
        assert!((0..good.len()).all(|len| {
            let cut = &good[..len];
            BlockHead::decode(cut).and_then(|head| head.check(cut, 7)).is_err()
        }));
    }

    #[test]
    fn a_block_has_less_padding_than_a_page() {
        let mut block = block(9);
        for (padding, is_believed) in
            [(PAGE_LEN - 1, true), (PAGE_LEN, false), (usize::from(u16::MAX), false)]
        {
            block[BLOCK_PADDING..BLOCK_HEAD_LEN].copy_from_slice(&(padding as u16).to_le_bytes());
            assert_eq!(BlockHead::decode(&block).is_ok(), is_believed, "{padding}");
        }
    }

    #[test]
    fn a_block_without_padding_is_as_it_was_in_format_1() {
        let block = block(0);
        assert_eq!((block.len(), &block[22..24]), (BLOCK_HEAD_LEN + BODY.len(), &[0, 0][..]));
    }
}
