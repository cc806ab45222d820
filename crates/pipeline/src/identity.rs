//! The file `IDENTITY` in a database's directory: what this directory is, in which format, by whose
//! ids.
//!
//! It is written when all else of a new database is durable, and replaced in one step when another
//! generation is to count. Its bytes stand in `docs/format/identity.md`; what it means that there
//! is none, in `creation.rs`.

use crate::failure::{NodeError, NodeResult};
use plinth_env::Env;
use plinth_format::{IDENTITY_LEN, Identity, checksum, put, u32_at, u64_at};
use std::path::Path;

/// The name of the file.
pub(crate) const FILE_NAME: &str = "IDENTITY";

/// The newest directory format that this program can read, and the one that it writes.
pub const DIRECTORY_FORMAT: u32 = 3;

const MAGIC: &[u8; 8] = b"PLINTHDB";
const FORMAT_AT: usize = MAGIC.len();
const IDS_AT: usize = FORMAT_AT + 4;
const ENGINE_AT: usize = IDS_AT + IDENTITY_LEN;
const ENGINE_LEN: usize = 16;
const GENERATION_AT: usize = ENGINE_AT + ENGINE_LEN;
const MEMBER_AT: usize = GENERATION_AT + 8;
const CHECKSUM_AT: usize = MEMBER_AT + 8;
const LEN: usize = CHECKSUM_AT + 4;

/// Where a database keeps its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// The whole data set in memory; on disk a checkpoint and the log.
    Memory,
    /// Data larger than memory: in memory the writes of the window and a cache, all rows in tables
    /// on disk.
    Ssd,
}

impl EngineKind {
    /// The engine of this name.
    ///
    /// # Errors
    /// `Option`, naming the engines that there are.
    pub fn from_name(name: &str) -> NodeResult<Self> {
        match name {
            "memory" => Ok(Self::Memory),
            "ssd" => Ok(Self::Ssd),
            _ => {
                let what =
                    format!("there is no storage engine {name:?}; this version has: memory, ssd");
                Err(NodeError::Option(what.into()))
            }
        }
    }

    /// Its name, as settings and status have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Ssd => "ssd",
        }
    }
}

/// What the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirectoryIdentity {
    pub ids: Identity,
    pub engine: EngineKind,
    /// The one that counts, from 1.
    pub generation: u64,
    /// Which node of a cluster this is; 0: a database of its own.
    pub member: u64,
}

/// The name under which the next one is written.
pub(crate) fn unfinished_name() -> String {
    format!("{FILE_NAME}.new")
}

/// Writes the file, durably and in one step.
pub(crate) async fn write(env: &Env, dir: &Path, identity: &DirectoryIdentity) -> NodeResult<()> {
    Ok(env.files().replace(dir.join(FILE_NAME), &encode(identity)).await?)
}

/// Reads the file.
///
/// # Errors
/// `Damaged`, or `NewerFormat` if it is of another format; those of files.
pub(crate) async fn read(env: &Env, dir: &Path) -> NodeResult<DirectoryIdentity> {
    let path = dir.join(FILE_NAME);
    let bytes = env.files().read(&path).await?;
    decode(&bytes).map_err(|what| {
        let text = format!("{}: {}", path.display(), what.text).into();
        if what.unsupported { NodeError::NewerFormat(text) } else { NodeError::Damaged(text) }
    })
}

fn encode(identity: &DirectoryIdentity) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    put(&mut bytes, 0, *MAGIC);
    put(&mut bytes, FORMAT_AT, DIRECTORY_FORMAT.to_le_bytes());
    identity.ids.put(&mut bytes, IDS_AT);
    let name = identity.engine.name().as_bytes();
    bytes[ENGINE_AT..ENGINE_AT + name.len()].copy_from_slice(name);
    put(&mut bytes, GENERATION_AT, identity.generation.to_le_bytes());
    put(&mut bytes, MEMBER_AT, identity.member.to_le_bytes());
    let checksum = checksum(&bytes[..CHECKSUM_AT]);
    put(&mut bytes, CHECKSUM_AT, checksum.to_le_bytes());
    bytes
}

struct Unreadable {
    unsupported: bool,
    text: String,
}

fn decode(bytes: &[u8]) -> std::result::Result<DirectoryIdentity, Unreadable> {
    let broken = |text: String| Unreadable { unsupported: false, text };
    if bytes.len() < IDS_AT || !bytes.starts_with(MAGIC) {
        return Err(broken("offset 0: this is no Plinth database".into()));
    }
    let format = u32_at(bytes, FORMAT_AT);
    if format > DIRECTORY_FORMAT {
        let text = format!(
            "offset {FORMAT_AT}: the directory has format {format}, newer than the {DIRECTORY_FORMAT} that this \
             program reads; open it with a newer version of Plinth"
        );
        return Err(Unreadable { unsupported: true, text });
    }
    if format < DIRECTORY_FORMAT {
        let text = format!(
            "offset {FORMAT_AT}: the directory has format {format}, which no release of Plinth wrote; this \
             program reads {DIRECTORY_FORMAT}: copy the rows with the program that made it (`plinth migrate`)"
        );
        return Err(Unreadable { unsupported: true, text });
    }
    if bytes.len() != LEN {
        return Err(broken(format!("the file has {} bytes, expected {LEN}", bytes.len())));
    }
    let found = u32_at(bytes, CHECKSUM_AT);
    let expected = checksum(&bytes[..CHECKSUM_AT]);
    if found != expected {
        return Err(broken(format!(
            "offset {CHECKSUM_AT}: checksum is {found:#010x}, expected {expected:#010x}"
        )));
    }
    let generation = u64_at(bytes, GENERATION_AT);
    if generation == 0 {
        return Err(broken(format!(
            "offset {GENERATION_AT}: generation is 0, expected at least 1"
        )));
    }
    let name = bytes[ENGINE_AT..GENERATION_AT].split(|byte| *byte == 0).next().unwrap_or_default();
    let engine = EngineKind::from_name(&String::from_utf8_lossy(name))
        .map_err(|error| Unreadable { unsupported: true, text: error.to_string() })?;
    let ids = Identity::at(bytes, IDS_AT);
    let member = u64_at(bytes, MEMBER_AT);
    Ok(DirectoryIdentity { ids, engine, generation, member })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> DirectoryIdentity {
        let ids = Identity { cluster_id: [1; 16], node_id: [2; 16] };
        DirectoryIdentity { ids, engine: EngineKind::Memory, generation: 3, member: 7 }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let bytes = encode(&sample());
        let engine = b"memory\0\0\0\0\0\0\0\0\0\0".as_slice();
        let (magic, generation) = (b"PLINTHDB\x03\0\0\0".as_slice(), &[3, 0, 0, 0, 0, 0, 0, 0]);
        let (member, checksum) = (&[7, 0, 0, 0, 0, 0, 0, 0], &[0x72, 0x9b, 0xb1, 0xc5]);
        let expected = [magic, &[1; 16], &[2; 16], engine, generation, member, checksum].concat();
        assert_eq!(bytes[..], expected[..]);
        assert_eq!(decode(&bytes).ok(), Some(sample()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for bit in 0..LEN * 8 {
            let mut bytes = encode(&sample());
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "bit {bit}");
        }
        assert!((0..LEN).all(|len| decode(&encode(&sample())[..len]).is_err()));
    }
}
