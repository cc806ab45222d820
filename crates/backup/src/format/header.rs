//! The header of a file: what it is of, where it belongs, how much it holds. In the clear, whether
//! blocks are sealed or not, so that a listing needs no key.
//!
//! Always: a header is believed once its checksum was compared, and its name is the one that the
//! file was asked for by.

use super::damaged;
use plinth_format::{
    FIELDS, array_at, check_magic, checksum, format_of, length_of, put, u16_at, u32_at, u64_at,
    version_at,
};
use plinth_types::{Error, Result, Version};

/// The first bytes of every file.
const MAGIC: [u8; 8] = *b"PLNTHBAK";
/// The format that this program reads and writes.
pub const FORMAT: u32 = 1;

const AT_FORMAT: usize = MAGIC.len();
const AT_LENGTH: usize = AT_FORMAT + 4;
const AT_KIND: usize = FIELDS;
const AT_CIPHER: usize = AT_KIND + 1;
const AT_NAME_LEN: usize = AT_CIPHER + 1;
const AT_BLOCKS: usize = AT_NAME_LEN + 2;
const AT_BACKUP: usize = AT_BLOCKS + 4;
const AT_SALT: usize = AT_BACKUP + 16;
const AT_FROM: usize = AT_SALT + 32;
const AT_TO: usize = AT_FROM + 8;
const AT_TIME_FROM: usize = AT_TO + 8;
const AT_TIME_TO: usize = AT_TIME_FROM + 8;
const AT_COUNT: usize = AT_TIME_TO + 8;
const AT_RAW: usize = AT_COUNT + 8;
const AT_STORED: usize = AT_RAW + 8;
const AT_NAME: usize = AT_STORED + 8;

const MAX_NAME_LEN: usize = 200;
/// The longest header.
pub const MAX_HEADER_LEN: usize = AT_NAME + MAX_NAME_LEN + 4;

const _: () = assert!(AT_NAME == 128);

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// What the backup is: the first file of each.
    Identity = 1,
    /// Rows of a range at a version.
    Rows = 2,
    /// The files of a snapshot, which counts once this is there.
    Manifest = 3,
    /// Mutations of a range of versions.
    Log = 4,
    /// Who writes the backup.
    Lease = 5,
    /// Up to where a log goes that has ended.
    End = 6,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Self::Identity, Self::Rows, Self::Manifest, Self::Log, Self::Lease, Self::End]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// What the header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the file is.
    pub kind: Kind,
    /// Whether its blocks are sealed.
    pub is_sealed: bool,
    /// Its name within the backup.
    pub name: String,
    /// The backup that it belongs to.
    pub backup: [u8; 16],
    /// Random, new for each file.
    pub salt: [u8; 32],
    /// Blocks that follow.
    pub blocks: u32,
    /// Rows and manifests: the lowest version of the rows. Log: the first version that it speaks
    /// of.
    pub from: Version,
    /// Rows and manifests: the highest version of the rows. Log: the first version that it no
    /// longer speaks of.
    pub to: Version,
    /// When the first of it was made, in milliseconds since 1970.
    pub time_from: u64,
    /// When the last of it was made.
    pub time_to: u64,
    /// Rows or mutations.
    pub count: u64,
    /// Bytes of all bodies before compression.
    pub raw: u64,
    /// Bytes behind the header.
    pub stored: u64,
}

impl Header {
    /// How long it is.
    pub fn len(&self) -> usize {
        AT_NAME + self.name.len() + 4
    }

    /// What the checksums of this file's blocks begin with.
    pub(super) fn seed(&self) -> u32 {
        checksum(&self.salt)
    }

    /// What goes into the file's key, besides the salt.
    pub(super) fn info(&self) -> Vec<u8> {
        [&[self.kind as u8][..], &self.backup, self.name.as_bytes()].concat()
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.name.len() <= MAX_NAME_LEN, "a name of {} bytes", self.name.len());
        let mut bytes = vec![0; self.len()];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, AT_FORMAT, FORMAT.to_le_bytes());
        put(&mut bytes, AT_LENGTH, (self.len() as u32).to_le_bytes());
        put(&mut bytes, AT_KIND, [self.kind as u8]);
        put(&mut bytes, AT_CIPHER, [u8::from(self.is_sealed)]);
        put(&mut bytes, AT_NAME_LEN, (self.name.len() as u16).to_le_bytes());
        put(&mut bytes, AT_BLOCKS, self.blocks.to_le_bytes());
        put(&mut bytes, AT_BACKUP, self.backup);
        put(&mut bytes, AT_SALT, self.salt);
        bytes[AT_NAME..AT_NAME + self.name.len()].copy_from_slice(self.name.as_bytes());
        for (at, number) in [
            (AT_FROM, self.from as u64),
            (AT_TO, self.to as u64),
            (AT_TIME_FROM, self.time_from),
            (AT_TIME_TO, self.time_to),
            (AT_COUNT, self.count),
            (AT_RAW, self.raw),
            (AT_STORED, self.stored),
        ] {
            put(&mut bytes, at, number.to_le_bytes());
        }
        let at = bytes.len() - 4;
        let checksum = checksum(&bytes[..at]);
        put(&mut bytes, at, checksum.to_le_bytes());
        bytes
    }

    /// The header at the begin of these bytes of the file `name`.
    ///
    /// # Errors
    /// `file_corrupt`, saying where; `unsupported_operation` for a newer format.
    pub fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let short =
            |expected: usize| damaged(name, 0, "length of the header", expected, bytes.len());
        if bytes.len() < AT_NAME + 4 {
            return Err(short(AT_NAME + 4));
        }
        check_magic(bytes, MAGIC).map_err(|flaw| flaw.at(name, 0))?;
        let len = length_of(bytes) as usize;
        if !(AT_NAME + 4..=1 << 16).contains(&len) {
            return Err(damaged(name, AT_LENGTH, "length of the header", "132 to 65536", len));
        }
        let bytes = bytes.get(..len).ok_or_else(|| short(len))?;
        let (stored, computed) = (u32_at(bytes, len - 4), checksum(&bytes[..len - 4]));
        if stored != computed {
            let (expected, found) = (format!("{stored:#010x}"), format!("{computed:#010x}"));
            return Err(damaged(name, len - 4, "checksum of the header", expected, found));
        }
        let format = format_of(bytes);
        if format > FORMAT {
            let detail = format!(
                "{name} is of format {format} of backups, this program reads up to {FORMAT}; restore it by a newer one"
            );
            return Err(Error::unsupported_operation().with_detail(detail));
        }
        let name_len = usize::from(u16_at(bytes, AT_NAME_LEN));
        let kind = Kind::of(bytes[AT_KIND]);
        let (Some(kind), true) = (kind, format == FORMAT && len == AT_NAME + name_len + 4) else {
            let found =
                format_args!("format {format}, kind {}, {len} bytes", bytes[AT_KIND]).to_string();
            return Err(damaged(name, AT_FORMAT, "header", "one of format 1", found));
        };
        if bytes[AT_CIPHER] > 1 {
            return Err(damaged(name, AT_CIPHER, "encryption", "0 or 1", bytes[AT_CIPHER]));
        }
        let own = &bytes[AT_NAME..AT_NAME + name_len];
        if own != name.as_bytes() {
            return Err(damaged(name, AT_NAME, "name of the file", name, own.escape_ascii()));
        }
        let (from, to) = (version_at(bytes, AT_FROM), version_at(bytes, AT_TO));
        if from < 0 || from > to {
            return Err(damaged(
                name,
                AT_FROM,
                "versions",
                "two that ascend",
                format_args!("{from}, {to}"),
            ));
        }
        Ok(Self {
            kind,
            is_sealed: bytes[AT_CIPHER] == 1,
            name: name.to_owned(),
            backup: array_at(bytes, AT_BACKUP),
            salt: array_at(bytes, AT_SALT),
            blocks: u32_at(bytes, AT_BLOCKS),
            from,
            to,
            time_from: u64_at(bytes, AT_TIME_FROM),
            time_to: u64_at(bytes, AT_TIME_TO),
            count: u64_at(bytes, AT_COUNT),
            raw: u64_at(bytes, AT_RAW),
            stored: u64_at(bytes, AT_STORED),
        })
    }
}
