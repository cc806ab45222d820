//! Blocks, and files made of them: a body is compressed, then sealed if there is a key, and a
//! checksum covers what is stored.
//!
//! Always: what a reader gives has been compared with its checksum, has its place in the file, and
//! is as long as its head says; behind the last block the file ends. A sealed file ends with a seal
//! over its header and over what is in the clear, which is looked at first: whoever may write the
//! target but has no key can't make another file of it, not even a shorter one.

use super::Key;
use super::crypt::{FileKey, TAG_LEN};
use super::{Header, Kind, damaged};
use plinth_env::Env;
use plinth_format::{checksum_from, put, u32_at};
use plinth_types::{Error, Result};
use std::borrow::Cow;
use std::fmt;

const AT_STORED: usize = 4;
const AT_RAW: usize = AT_STORED + 4;
const AT_NUMBER: usize = AT_RAW + 4;
const AT_COUNT: usize = AT_NUMBER + 4;
const AT_KIND: usize = AT_COUNT + 4;
const AT_COMPRESSION: usize = AT_KIND + 1;
const AT_RESERVED: usize = AT_COMPRESSION + 1;
/// Bytes of a block's head.
const HEAD_LEN: usize = AT_RESERVED + 2;

const _: () = assert!(HEAD_LEN == 24);

/// The longest body that is believed.
const MAX_BODY_LEN: usize = 64 << 20;

const LZ4: u8 = 1;

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    /// Rows between two keys.
    Rows = 1,
    /// Mutations, by version.
    Mutations = 2,
    /// Versions and the times at which they were the newest.
    Times = 3,
    /// Ranges and files of a snapshot.
    Files = 4,
    /// JSON that everybody may read.
    Clear = 5,
    /// JSON for those who have the key.
    Secret = 6,
    /// The seal over a sealed file: its last block, without a body.
    Seal = 7,
}

impl BlockKind {
    fn of(code: u8) -> Option<Self> {
        use BlockKind::*;
        [Rows, Mutations, Times, Files, Clear, Secret, Seal]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }

    /// Whether it is sealed where anything is.
    fn is_secret(self) -> bool {
        !matches!(self, Self::Clear | Self::Times)
    }
}

/// A file that is being made.
pub struct FileBuilder {
    /// What it says at its begin; counts and lengths are filled in at the end.
    pub header: Header,
    key: Option<FileKey>,
    out: Vec<u8>,
    /// Blocks in the clear of a file that will be sealed.
    clear: Vec<u8>,
}

impl FileBuilder {
    /// A file of this name without blocks, whose blocks will be sealed by `key`.
    pub fn new(env: &Env, kind: Kind, name: String, backup: [u8; 16], key: Option<&Key>) -> Self {
        let mut salt = [0; 32];
        env.fill_random(&mut salt);
        Self::with_salt(salt, kind, name, backup, key)
    }

    pub(super) fn with_salt(
        salt: [u8; 32],
        kind: Kind,
        name: String,
        backup: [u8; 16],
        key: Option<&Key>,
    ) -> Self {
        let header = Header {
            kind,
            is_sealed: key.is_some(),
            name,
            backup,
            salt,
            blocks: 0,
            from: 0,
            to: 0,
            time_from: 0,
            time_to: 0,
            count: 0,
            raw: 0,
            stored: 0,
        };
        let key = key.map(|key| FileKey::of(key, &salt, &header.info()));
        Self { header, key, out: Vec::new(), clear: Vec::new() }
    }

    /// Adds a block with so many rows, mutations or whatever it holds.
    pub fn block(&mut self, kind: BlockKind, count: u32, raw: &[u8]) {
        assert!(raw.len() <= MAX_BODY_LEN, "a block of {} bytes", raw.len());
        let begin = self.out.len();
        let most = lz4_flex::block::get_maximum_output_size(raw.len());
        self.out.resize(begin + HEAD_LEN + most, 0);
        let compressed =
            lz4_flex::block::compress_into(raw, &mut self.out[begin + HEAD_LEN..]).ok();
        let compression = match compressed.filter(|len| *len < raw.len()) {
            Some(len) => {
                self.out.truncate(begin + HEAD_LEN + len);
                LZ4
            }
            None => {
                self.out.truncate(begin + HEAD_LEN);
                self.out.extend_from_slice(raw);
                0
            }
        };
        let sealer = self.key.as_ref().filter(|_| kind.is_secret());
        let stored = self.out.len() - begin - HEAD_LEN + if sealer.is_some() { TAG_LEN } else { 0 };
        let number = self.header.blocks;
        for (at, value) in [
            (AT_STORED, stored as u32),
            (AT_RAW, raw.len() as u32),
            (AT_NUMBER, number),
            (AT_COUNT, count),
        ] {
            put(&mut self.out, begin + at, value.to_le_bytes());
        }
        self.out[begin + AT_KIND] = kind as u8;
        self.out[begin + AT_COMPRESSION] = compression;
        if let Some(key) = sealer {
            let mut body = self.out.split_off(begin + HEAD_LEN);
            key.seal(number, &self.out[begin + AT_STORED..], &mut body);
            self.out.append(&mut body);
        }
        let checksum = checksum_from(self.header.seed(), &self.out[begin + AT_STORED..]);
        put(&mut self.out, begin, checksum.to_le_bytes());
        if self.key.is_some() && sealer.is_none() {
            self.clear.extend_from_slice(&self.out[begin..]);
        }
        self.header.blocks += 1;
        self.header.raw += raw.len() as u64;
    }

    /// Adds the seal. The header that it is over is the one that the file will have.
    fn seal(&mut self) {
        let Some(key) = self.key.take() else { return };
        let number = self.header.blocks;
        self.header.blocks += 1;
        self.header.stored = (self.out.len() + HEAD_LEN + TAG_LEN) as u64;
        let mut head = [0; HEAD_LEN];
        put(&mut head, AT_STORED, (TAG_LEN as u32).to_le_bytes());
        put(&mut head, AT_NUMBER, number.to_le_bytes());
        head[AT_KIND] = BlockKind::Seal as u8;
        let mut tag = Vec::new();
        key.seal(
            number,
            &[&self.header.encode(), &*self.clear, &head[AT_STORED..]].concat(),
            &mut tag,
        );
        let checksum = checksum_from(self.header.seed(), &head[AT_STORED..]);
        let checksum = checksum_from(checksum, &tag);
        put(&mut head, 0, checksum.to_le_bytes());
        self.out.extend_from_slice(&head);
        self.out.append(&mut tag);
    }

    /// The whole file.
    pub fn finish(mut self) -> Vec<u8> {
        self.seal();
        self.header.stored = self.out.len() as u64;
        let mut bytes = self.header.encode();
        bytes.append(&mut self.out);
        bytes
    }
}

/// A file, read block by block.
pub struct FileReader<'b> {
    /// What it says at its begin.
    pub header: Header,
    bytes: &'b [u8],
    key: Option<FileKey>,
    at: usize,
    number: u32,
    /// Blocks before the seal, which its reader never sees.
    blocks: u32,
}

/// A block that was read.
pub struct Block<'b> {
    /// What it holds.
    pub kind: BlockKind,
    /// Rows, mutations or whatever.
    pub count: u32,
    /// The body; nothing of a sealed block that was read without the key.
    pub body: Cow<'b, [u8]>,
}

/// What the head of a block says of it.
struct Head {
    kind: BlockKind,
    compression: u8,
    raw_len: usize,
    count: u32,
}

impl<'b> FileReader<'b> {
    /// The file of this name, which has to be of this kind and backup, and sealed if there is a
    /// key. Without the key its sealed blocks have no bodies, and only their checksums are
    /// compared.
    ///
    /// # Errors
    /// `file_corrupt`, naming file and offset; `client_invalid_operation` if it is sealed by
    /// another key; `unsupported_operation` for a newer format.
    pub fn new(
        bytes: &'b [u8],
        name: &str,
        kind: Kind,
        backup: &[u8; 16],
        key: Option<&Key>,
    ) -> Result<Self> {
        let header = Header::decode(bytes, name)?;
        if header.kind != kind {
            return Err(damaged(name, 16, "kind of the file", kind as u8, header.kind as u8));
        }
        if header.backup != *backup && kind != Kind::Identity {
            let [expected, found] = [backup, &header.backup].map(|id| crate::names::hex(id));
            return Err(damaged(name, 24, "id of the backup", expected, found));
        }
        let (expected, found) = (header.len() as u64 + header.stored, bytes.len() as u64);
        if expected != found {
            return Err(damaged(name, header.len(), "length of the file", expected, found));
        }
        if key.is_some() && !header.is_sealed {
            return Err(damaged(name, 17, "encryption", 1, 0));
        }
        let key = key.map(|key| FileKey::of(key, &header.salt, &header.info()));
        let (at, blocks) =
            (header.len(), header.blocks - u32::from(header.is_sealed && header.blocks > 0));
        let reader = Self { header, bytes, key, at, number: 0, blocks };
        if reader.header.is_sealed {
            reader.check_seal()?;
        }
        Ok(reader)
    }

    /// Looks at the seal, which the last block is: with the key whether it is one, without it
    /// whether there is something in its place.
    fn check_seal(&self) -> Result<()> {
        let name = &self.header.name;
        let refuse =
            |at: usize, found: &str| Err(damaged(name, at, "seal of the file", "its own", found));
        let (mut at, mut clear) = (self.at, Vec::new());
        for number in 0..self.header.blocks {
            let Some(head) = self.bytes.get(at..at + HEAD_LEN) else { return refuse(at, "none") };
            let len = u32_at(head, AT_STORED) as usize;
            let Some(block) = self.bytes[at..].get(..HEAD_LEN.saturating_add(len)) else {
                return refuse(at, "none");
            };
            let kind = BlockKind::of(head[AT_KIND]);
            if (kind == Some(BlockKind::Seal)) != (number + 1 == self.header.blocks) {
                return refuse(at, "a block of another kind");
            }
            if kind == Some(BlockKind::Seal) {
                let checksum = checksum_from(self.header.seed(), &block[AT_STORED..]);
                if head[..AT_STORED] != checksum.to_le_bytes() || len != TAG_LEN {
                    return refuse(at, "one that is damaged");
                }
                let Some(key) = &self.key else { return Ok(()) };
                let over = [&self.bytes[..self.at], &*clear, &head[AT_STORED..]].concat();
                if key.open(number, &over, &mut block[HEAD_LEN..].to_vec()).is_some() {
                    return Ok(());
                }
                // Whether it is the key or the file that is wrong, a block that can be opened
                // tells.
                return if self.opens_any() { refuse(at, "another") } else { Err(other_key(name)) };
            }
            if kind.is_some_and(|kind| !kind.is_secret()) {
                clear.extend_from_slice(block);
            }
            at += block.len();
        }
        refuse(at, "none")
    }

    /// Whether the key opens a block. Their lengths have been looked at.
    fn opens_any(&self) -> bool {
        let (mut at, Some(key)) = (self.at, &self.key) else { return false };
        for number in 0..self.blocks {
            let head = &self.bytes[at..at + HEAD_LEN];
            let len = u32_at(head, AT_STORED) as usize;
            let mut body = self.bytes[at + HEAD_LEN..at + HEAD_LEN + len].to_vec();
            if key.open(number, &head[AT_STORED..], &mut body).is_some() {
                return true;
            }
            at += HEAD_LEN + len;
        }
        false
    }

    /// The next block; `None` behind the last one.
    ///
    /// # Errors
    /// `file_corrupt`, naming file and offset; `client_invalid_operation` if it is sealed by
    /// another key.
    pub fn next(&mut self) -> Result<Option<Block<'b>>> {
        if self.number == self.blocks {
            let seal = if self.header.is_sealed { HEAD_LEN + TAG_LEN } else { 0 };
            let (expected, found) = (self.at + seal, self.bytes.len());
            return match expected == found {
                true => Ok(None),
                false => self.refuse("end of the file", expected, found),
            };
        }
        let (head, whole) = self.head()?;
        let body = self.body(&head, whole)?;
        self.at += whole.len();
        self.number += 1;
        Ok(Some(Block { kind: head.kind, count: head.count, body }))
    }

    /// The head of the next block, which is as its checksum says, and the whole block.
    fn head(&self) -> Result<(Head, &'b [u8])> {
        let rest = &self.bytes[self.at..];
        if rest.len() < HEAD_LEN {
            return self.refuse("head of a block", format!("{HEAD_LEN} bytes"), rest.len());
        }
        let number_at = |at: usize| u32_at(rest, at);
        let stored_len = number_at(AT_STORED) as usize;
        let Some(whole) = rest.get(..HEAD_LEN.saturating_add(stored_len)) else {
            let most = format!("at most {}", rest.len());
            return self.refuse("length of a block", most, stored_len);
        };
        let (told, computed) =
            (number_at(0), checksum_from(self.header.seed(), &whole[AT_STORED..]));
        if told != computed {
            let [told, computed] = [told, computed].map(|sum| format!("{sum:#010x}"));
            return self.refuse("checksum of a block", told, computed);
        }
        let (raw_len, number) = (number_at(AT_RAW) as usize, number_at(AT_NUMBER));
        if number != self.number || raw_len > MAX_BODY_LEN {
            return self.refuse("number of a block", self.number, number);
        }
        let Some(kind) = BlockKind::of(whole[AT_KIND]) else {
            return self.refuse("kind of a block", "1 to 7", whole[AT_KIND]);
        };
        let (compression, count) = (whole[AT_COMPRESSION], number_at(AT_COUNT));
        Ok((Head { kind, compression, raw_len, count }, whole))
    }

    /// The body of the next block, opened and as it was before compression; nothing of a sealed one
    /// without the key.
    fn body(&self, head: &Head, whole: &'b [u8]) -> Result<Cow<'b, [u8]>> {
        let mut body = Cow::Borrowed(&whole[HEAD_LEN..]);
        let is_sealed = self.header.is_sealed && head.kind.is_secret();
        if let Some(key) = self.key.as_ref().filter(|_| is_sealed) {
            // The seal has told that the key is the right one.
            if key.open(self.number, &whole[AT_STORED..HEAD_LEN], body.to_mut()).is_none() {
                return self.refuse("sealed block", "the one that was put", "another");
            }
        }
        if head.compression > LZ4 {
            return self.refuse("compression of a block", "0 or 1", head.compression);
        }
        if is_sealed && self.key.is_none() {
            return Ok(Cow::Borrowed(&[]));
        }
        if head.compression == LZ4 {
            let mut raw = vec![0; head.raw_len];
            match lz4_flex::block::decompress_into(&body, &mut raw) {
                Ok(len) => raw.truncate(len),
                Err(error) => return self.refuse("compressed block", "LZ4", error),
            }
            body = Cow::Owned(raw);
        }
        if body.len() != head.raw_len {
            return self.refuse("length before compression", head.raw_len, body.len());
        }
        Ok(body)
    }

    fn refuse<T>(
        &self,
        what: &str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Result<T> {
        Err(damaged(&self.header.name, self.at, what, expected, found))
    }

    /// How long the file would be if nothing were compressed, nor sealed.
    pub fn len_before_compression(&self) -> u64 {
        self.header.len() as u64 + u64::from(self.header.blocks) * HEAD_LEN as u64 + self.header.raw
    }

    /// Where the next block begins.
    pub fn offset(&self) -> usize {
        self.at
    }
}

/// What is said where the key is not the one that sealed.
fn other_key(name: &str) -> Error {
    let detail = format!("{name} is encrypted by another key than the one given");
    Error::client_invalid_operation().with_detail(detail)
}
