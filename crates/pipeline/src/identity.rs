//! The file `IDENTITY` in a database's directory: what this directory is, in which format, by whose ids.
//!
//! It is written last when a database is created, so a directory with it is a database and one
//! without it is not (or was never finished). Its bytes stand in `docs/format/identity.md`.

use plinth_env::Env;
use plinth_log::Identity;
use plinth_types::{Error, Result};
use std::path::Path;

/// The name of the file.
pub(crate) const FILE_NAME: &str = "IDENTITY";

/// The newest directory format that this program can read, and the one that it writes.
pub const DIRECTORY_FORMAT: u32 = 1;

const MAGIC: &[u8; 8] = b"PLINTHDB";
const FORMAT_AT: usize = 8;
const CLUSTER_ID_AT: usize = 12;
const NODE_ID_AT: usize = 28;
const ENGINE_AT: usize = 44;
const ENGINE_LEN: usize = 16;
const CHECKSUM_AT: usize = ENGINE_AT + ENGINE_LEN;
const LEN: usize = CHECKSUM_AT + 4;

/// Where a database keeps its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// The whole data set in memory; on disk a checkpoint and the log.
    Memory,
    /// Data larger than memory: in memory the writes of the window and a cache, all rows in tables on disk.
    Ssd,
}

impl EngineKind {
    /// The engine of this name.
    ///
    /// # Errors
    /// `invalid_option_value` (2006), naming the engines that there are.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "memory" => Ok(Self::Memory),
            "ssd" => Ok(Self::Ssd),
            _ => Err(Error::invalid_option_value()
                .with_detail(format!("there is no storage engine {name:?}; this version has: memory, ssd"))),
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
}

/// Writes the file, durably.
pub(crate) async fn write(env: &Env, dir: &Path, identity: &DirectoryIdentity) -> Result<()> {
    env.files().replace(dir.join(FILE_NAME), &encode(identity)).await
}

/// Reads the file; `None` if there is none.
pub(crate) async fn read(env: &Env, dir: &Path) -> Result<Option<DirectoryIdentity>> {
    let path = dir.join(FILE_NAME);
    if !env.files().exists(&path).await? {
        return Ok(None);
    }
    let bytes = env.files().read(&path).await?;
    decode(&bytes).map(Some).map_err(|what| {
        let kind = if what.newer { Error::unsupported_operation() } else { Error::file_corrupt() };
        kind.with_detail(format!("{}: {}", path.display(), what.text))
    })
}

fn encode(identity: &DirectoryIdentity) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..FORMAT_AT].copy_from_slice(MAGIC);
    bytes[FORMAT_AT..CLUSTER_ID_AT].copy_from_slice(&DIRECTORY_FORMAT.to_le_bytes());
    bytes[CLUSTER_ID_AT..NODE_ID_AT].copy_from_slice(&identity.ids.cluster_id);
    bytes[NODE_ID_AT..ENGINE_AT].copy_from_slice(&identity.ids.node_id);
    let name = identity.engine.name().as_bytes();
    bytes[ENGINE_AT..ENGINE_AT + name.len()].copy_from_slice(name);
    let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

struct Unreadable {
    newer: bool,
    text: String,
}

fn decode(bytes: &[u8]) -> std::result::Result<DirectoryIdentity, Unreadable> {
    let broken = |text: String| Unreadable { newer: false, text };
    if bytes.len() < CLUSTER_ID_AT || &bytes[..FORMAT_AT] != MAGIC {
        return Err(broken("offset 0: this is no Plinth database".into()));
    }
    let format = u32::from_le_bytes(array(&bytes[FORMAT_AT..]));
    if format > DIRECTORY_FORMAT {
        let text = format!(
            "offset {FORMAT_AT}: the directory has format {format}, newer than the {DIRECTORY_FORMAT} that this \
             program reads; open it with a newer version of Plinth"
        );
        return Err(Unreadable { newer: true, text });
    }
    if bytes.len() != LEN {
        return Err(broken(format!("the file has {} bytes, expected {LEN}", bytes.len())));
    }
    let found = u32::from_le_bytes(array(&bytes[CHECKSUM_AT..]));
    let expected = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
    if found != expected {
        return Err(broken(format!(
            "offset {CHECKSUM_AT}: checksum is {found:#010x}, expected {expected:#010x}"
        )));
    }
    let name = bytes[ENGINE_AT..CHECKSUM_AT].split(|byte| *byte == 0).next().unwrap_or_default();
    let engine = EngineKind::from_name(&String::from_utf8_lossy(name))
        .map_err(|error| Unreadable { newer: true, text: error.to_string() })?;
    let ids = Identity { cluster_id: array(&bytes[CLUSTER_ID_AT..]), node_id: array(&bytes[NODE_ID_AT..]) };
    Ok(DirectoryIdentity { ids, engine })
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> DirectoryIdentity {
        let ids = Identity { cluster_id: [1; 16], node_id: [2; 16] };
        DirectoryIdentity { ids, engine: EngineKind::Memory }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let bytes = encode(&sample());
        let expected =
            [b"PLINTHDB\x01\0\0\0".as_slice(), &[1; 16], &[2; 16], b"memory\0\0\0\0\0\0\0\0\0\0"].concat();
        assert_eq!(bytes[..CHECKSUM_AT], expected[..]);
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
