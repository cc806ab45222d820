//! Files of a directory made those of a format to come.

use plinth::{Env, block_on};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What files begin with whose format is told there.
const MAGIC: [&[u8; 8]; 5] = [b"PLINTHDB", b"PLNTHLOG", b"PLNTHCKP", b"PLNTHTBL", b"PLNTHMAN"];
/// A format that no program knows.
const NEWER: u32 = 99;

/// Every file below a directory with what is in it, by its path there. The server's files that
/// databases don't have are left out.
pub fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        for path in super::list(&dir.join(&below)) {
            let relative = below.join(path.file_name().expect("it has a name"));
            match block_on(Env::real().files().read(&path)) {
                Ok(bytes) => drop(found.insert(relative, bytes)),
                Err(_) => waiting.push(relative),
            }
        }
    }
    found
}

/// The files that say their format, of each kind the first.
pub fn files_with_formats(dir: &Path) -> Vec<PathBuf> {
    let mut first = BTreeMap::new();
    for (path, bytes) in contents(dir) {
        if let Some(magic) = MAGIC.iter().find(|magic| bytes.starts_with(&magic[..])) {
            first.entry(*magic).or_insert(path);
        }
    }
    first.into_values().collect()
}

/// Gives a file the format 99, with right checksums, in each copy of its header. Gives the file's
/// kind.
pub fn make_newer(path: &Path) -> String {
    let mut bytes = block_on(Env::real().files().read(path)).unwrap();
    let magic: [u8; 8] = bytes[..8].try_into().unwrap();
    let copies: Vec<_> =
        (0..bytes.len() - 16).filter(|at| bytes[*at..].starts_with(&magic)).collect();
    for at in copies {
        bytes[at + 8..at + 12].copy_from_slice(&NEWER.to_le_bytes());
        // The identity has no length of its header.
        let word = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
        let length = if &magic == b"PLINTHDB" { bytes.len() } else { word };
        let sum = crc32c(&bytes[at..at + length - 4]);
        bytes[at + length - 4..at + length].copy_from_slice(&sum.to_le_bytes());
    }
    block_on(Env::real().files().replace(path, &bytes)).unwrap();
    String::from_utf8(magic.to_vec()).unwrap()
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = !0_u32;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !sum
}
