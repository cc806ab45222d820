//! The manifest: which tables make the engine's state, in a file that is replaced whole.
//!
//! ```text
//!   MANIFEST
//!   | header: ids, serial, version, numbers | table: id, nonce, length, level, flush | ... |
//! ```
//!
//! Replacing it is the one atomic step in which the engine moves on: before it, the new tables are
//! durable; after it, the old ones may go. A table file that the manifest does not name is a
//! leftover.

use super::format::{HEADER_IDENTITY, HEADER_LEN, decode_header};
use super::state::State;
use crate::failure::{StorageError, StorageResult};
use plinth_env::{Env, Open};
use plinth_format::{
    Flaw, Form, HeaderFlaw, IDENTITY_LEN, Identity, checksum, compare, put, u32_at, u64_at,
    version_at,
};
use plinth_types::LogPosition;
use std::path::{Path, PathBuf};

/// The manifest format that this program reads and writes.
pub const MANIFEST_FORMAT: u32 = 2;

/// The name of the file.
pub(crate) const MANIFEST: &str = "MANIFEST";
const FORM: Form<HEADER_LEN> = Form::new(*b"PLNTHMAN");

const SERIAL: usize = HEADER_IDENTITY + IDENTITY_LEN;
const VERSION: usize = SERIAL + 8;
const NEXT_ID: usize = VERSION + 8;
const NEXT_FLUSH: usize = NEXT_ID + 8;
const COUNT: usize = NEXT_FLUSH + 8;
const BODY_CHECKSUM: usize = COUNT + 4;
const LOG_INDEX: usize = BODY_CHECKSUM + 4;
const LOG_TERM: usize = LOG_INDEX + 8;
const RESERVED: usize = LOG_TERM + 8;

const ENTRY_LEN: usize = 40;

const _: () = assert!(RESERVED <= HEADER_LEN - 4);

/// A table as the manifest names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub id: u64,
    pub nonce: u64,
    pub file_len: u64,
    pub level: u32,
    pub flush: u64,
}

/// What the file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    pub identity: Identity,
    pub serial: u64,
    /// What the tables have.
    pub at: LogPosition,
    pub next_id: u64,
    pub next_flush: u64,
    pub tables: Vec<Named>,
}

impl Manifest {
    /// Of a state.
    pub fn of(state: &State, identity: Identity, next_id: u64) -> Self {
        let named = state.placed().map(|placed| Named {
            id: placed.table.id(),
            nonce: placed.table.header().nonce,
            file_len: placed.table.file_len(),
            level: placed.level,
            flush: placed.flush,
        });
        Self {
            identity,
            serial: state.serial,
            at: state.at,
            next_id,
            next_flush: state.next_flush,
            tables: named.collect(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.tables.len() * ENTRY_LEN);
        for table in &self.tables {
            for number in
                [table.id, table.nonce, table.file_len, u64::from(table.level), table.flush]
            {
                body.extend_from_slice(&number.to_le_bytes());
            }
        }
        let header = FORM.encode(MANIFEST_FORMAT, 0, |header| {
            self.identity.put(header, HEADER_IDENTITY);
            put(header, SERIAL, self.serial.to_le_bytes());
            put(header, VERSION, self.at.version.to_le_bytes());
            put(header, NEXT_ID, self.next_id.to_le_bytes());
            put(header, NEXT_FLUSH, self.next_flush.to_le_bytes());
            put(header, COUNT, (self.tables.len() as u32).to_le_bytes());
            put(header, BODY_CHECKSUM, checksum(&body).to_le_bytes());
            put(header, LOG_INDEX, self.at.index.to_le_bytes());
            put(header, LOG_TERM, self.at.term.to_le_bytes());
        });
        [&header[..], &body].concat()
    }

    fn decode(bytes: &[u8]) -> Result<Self, (HeaderFlaw, u64)> {
        let (header, _) = decode_header(FORM, bytes, MANIFEST_FORMAT).map_err(|flaw| (flaw, 0))?;
        let body = &bytes[HEADER_LEN..];
        let damaged = |flaw| Err((HeaderFlaw::Damaged(flaw), HEADER_LEN as u64));
        let count = u32_at(header, COUNT) as usize;
        if body.len() != count * ENTRY_LEN {
            return damaged(Flaw::new(
                "length of the list of tables",
                count * ENTRY_LEN,
                body.len(),
            ));
        }
        let stored = u32_at(header, BODY_CHECKSUM);
        if let Err(flaw) = compare("checksum of the list of tables", stored, checksum(body)) {
            return damaged(flaw);
        }
        let table = |entry: &[u8]| Named {
            id: u64_at(entry, 0),
            nonce: u64_at(entry, 8),
            file_len: u64_at(entry, 16),
            level: u64_at(entry, 24) as u32,
            flush: u64_at(entry, 32),
        };
        Ok(Self {
            identity: Identity::at(header, HEADER_IDENTITY),
            serial: u64_at(header, SERIAL),
            at: LogPosition {
                index: u64_at(header, LOG_INDEX),
                term: u64_at(header, LOG_TERM),
                version: version_at(header, VERSION),
            },
            next_id: u64_at(header, NEXT_ID),
            next_flush: u64_at(header, NEXT_FLUSH),
            tables: body.chunks_exact(ENTRY_LEN).map(table).collect(),
        })
    }

    /// Reads the manifest of a directory.
    ///
    /// # Errors
    /// `Corrupt`, naming file and offset; `NewerFormat` for a newer format; those of
    /// files.
    pub async fn read(env: &Env, dir: &Path) -> StorageResult<Self> {
        let path = path(dir);
        let bytes = env.files().read(&path).await.map_err(|error| match error {
            error if error.is_not_found() => {
                let flaw = Flaw::new("the manifest, which names the tables", "a file", "none");
                flaw.at(&path.display().to_string(), 0).into()
            }
            error => StorageError::from(error),
        })?;
        Self::decode(&bytes).map_err(|(flaw, offset)| match flaw {
            HeaderFlaw::Damaged(flaw) => flaw.at(&path.display().to_string(), offset).into(),
            HeaderFlaw::Foreign(format) => StorageError::NewerFormat(format!(
                "{} has manifest format {format}, this program reads up to {MANIFEST_FORMAT}: open it with a \
                 newer Plinth",
                path.display()
            ).into()),
        })
    }

    /// # Errors
    /// `Corrupt` if it is another node's.
    pub fn expect(&self, dir: &Path, identity: Identity) -> StorageResult<()> {
        if self.identity == identity {
            return Ok(());
        }
        let detail = format!(
            "{} at offset {HEADER_IDENTITY}: cluster and node: expected this database's, found another's",
            path(dir).display()
        );
        Err(StorageError::Foreign(detail.into()))
    }

    /// Makes this the manifest of a directory, durably and in one step.
    pub async fn write(&self, env: &Env, dir: &Path) -> StorageResult<()> {
        self.write_beside(env, dir).await?;
        Self::replace(env, dir).await
    }

    /// Writes it beside the present one, durably. On an error the present one stays.
    pub async fn write_beside(&self, env: &Env, dir: &Path) -> StorageResult<()> {
        let beside = beside(dir);
        let written = async {
            let file = env.files().open(&beside, Open::Truncate).await?;
            file.write_all_at(0, &self.encode()).await?;
            file.sync_all().await
        };
        if let Err(error) = written.await {
            // The room it took is wanted; that it can't be removed adds nothing to the error.
            let _ = env.files().remove(&beside).await;
            return Err(error.into());
        }
        Ok(())
    }

    /// Puts the one that was written beside in the place of the present one. After an error either
    /// may be the one on disk.
    pub async fn replace(env: &Env, dir: &Path) -> StorageResult<()> {
        env.files().rename(beside(dir), path(dir)).await?;
        Ok(env.files().sync_dir(dir).await?)
    }
}

/// The error of a table that the manifest names and that can't be opened.
pub(crate) fn named_but_missing(dir: &Path, error: StorageError) -> StorageError {
    if !error.is_not_found() {
        return error;
    }
    let what = error.summary();
    StorageError::Foreign(format!("{what}; {} names it", path(dir).display()).into())
}

fn beside(dir: &Path) -> PathBuf {
    dir.join(format!("{MANIFEST}.new"))
}

/// The file of an engine's manifest.
pub fn path(dir: &Path) -> PathBuf {
    dir.join(MANIFEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let table = |id| Named { id, nonce: 77 + id, file_len: 4096, level: 1, flush: 0 };
        Manifest {
            identity: Identity { cluster_id: [1; 16], node_id: [2; 16] },
            serial: 5,
            at: LogPosition { index: 0x0506, term: 0x07, version: 0x0102_0304 },
            next_id: 9,
            next_flush: 3,
            tables: vec![table(7), table(8)],
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let bytes = sample().encode();
        assert_eq!(&bytes[..16], b"PLNTHMAN\x02\0\0\0\x80\0\0\0");
        assert_eq!(&bytes[48..88], b"\x05\0\0\0\0\0\0\0\x04\x03\x02\x01\0\0\0\0\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\xa4\x05\x37\x44"
            .get(..36).map(|start| [start, &bytes[84..88]].concat()).unwrap_or_default());
        assert_eq!(&bytes[88..112], b"\x06\x05\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(bytes.len(), HEADER_LEN + 2 * ENTRY_LEN);
        assert_eq!(&bytes[128..136], b"\x07\0\0\0\0\0\0\0");
        assert_eq!(Manifest::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped).is_err(), "bit {bit}");
        }
        assert!((0..bytes.len()).all(|len| Manifest::decode(&bytes[..len]).is_err()));
    }
}
