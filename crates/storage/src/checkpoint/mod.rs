//! Checkpoints: all rows of one version in a file, so that the log before that version can go.
//!
//! ```text
//!   checkpoint-<version>.data
//!   | header | block: rows, ascending | block | ... | footer: totals, header again |
//! ```
//!
//! [`write()`] reads a [`Source`] while commits go on, and yields after every few hundred
//! kilobytes. The file gets its name only when all of it is durable, so whatever has the name is
//! whole, or damaged: whoever opens a database reads the newest one, which tells the two apart by
//! checksums, counts and the footer, and never serves a row it is not sure of. [`verify`] tells all
//! that is wrong, [`Salvage`] gives what is readable in spite of it. What rows are kept in
//! meanwhile is the engine's business (`memory`). With keys what is written is encrypted, block by
//! block, under a key of the file's own.

mod format;
mod import;
mod newest;
mod salvage;
mod walk;
mod write;

pub use crate::removal::Removed;
pub use format::{FORMAT, Header, SEALED_FORMAT, Totals};
pub use import::import;
pub(crate) use newest::Newest;
pub use plinth_format::{Corruption, Identity, Keys, Owner};
pub use salvage::{Report, Salvage, Salvaged, verify};
pub use write::{Pace, Source, Written, write};

use crate::failure::{StorageError, StorageResult};
use crate::removal::remove_large_file;
use plinth_env::{Env, Open};
use plinth_types::Version;
use std::path::{Path, PathBuf};

const PREFIX: &str = "checkpoint-";
const UNFINISHED: &str = "new-checkpoint-";
/// Stands before the name of one that is being removed.
const REMOVED: &str = "old-";
const SUFFIX: &str = ".data";

fn file_name(version: Version) -> String {
    format!("{PREFIX}{version:016x}{SUFFIX}")
}

/// The file of a checkpoint in a directory.
pub fn path(dir: &Path, version: Version) -> PathBuf {
    dir.join(file_name(version))
}

/// The checkpoints in a directory, the newest last. None if there is no directory: programs that
/// copy files may leave out an empty one.
///
/// # Errors
/// Those of listing a directory.
pub async fn list(env: &Env, dir: &Path) -> StorageResult<Vec<(Version, PathBuf)>> {
    let version = |name: &str| {
        let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        Version::from_str_radix(digits, 16).ok().filter(|version| file_name(*version) == name)
    };
    if !env.files().exists(dir).await? {
        return Ok(Vec::new());
    }
    let names = env.files().list(dir).await?;
    let mut found: Vec<_> =
        names.iter().filter_map(|name| Some((version(name)?, dir.join(name)))).collect();
    found.sort();
    Ok(found)
}

/// Removes all checkpoints of a directory but that of version `keep`, and what unfinished ones and
/// unfinished removals left behind. Takes its time, so that nobody's syncs wait for it.
///
/// # Errors
/// Those of listing, renaming and removing files.
pub async fn remove_others(env: &Env, dir: &Path, keep: Version) -> StorageResult<Removed> {
    let old: Vec<_> =
        list(env, dir).await?.into_iter().filter(|(version, _)| *version != keep).collect();
    for (version, path) in &old {
        let name = file_name(*version);
        env.files().rename(path, &dir.join(format!("{REMOVED}{name}"))).await?;
    }
    if !old.is_empty() {
        // Nothing that is partly gone may have a checkpoint's name after a crash.
        env.files().sync_dir(dir).await?;
    }
    let names = env.files().list(dir).await?;
    let is_gone = |name: &&String| name.starts_with(UNFINISHED) || name.starts_with(REMOVED);
    let gone: Vec<_> = names.iter().filter(is_gone).collect();
    let mut removed = Removed::default();
    for name in &gone {
        removed = removed.and(remove_large_file(env, &dir.join(name)).await?);
    }
    if !gone.is_empty() {
        // Whoever is told that a key is needed no more may throw it away: what it sealed stays
        // gone.
        env.files().sync_dir(dir).await?;
    }
    Ok(removed)
}

/// Bytes of the checkpoints in a directory, unfinished ones and those being removed too, that are
/// not sealed by the newest of these keys.
///
/// # Errors
/// Those of files.
pub(crate) async fn outdated_bytes(env: &Env, dir: &Path, keys: &Keys) -> StorageResult<u64> {
    let mut bytes = 0;
    if keys.is_none() || !env.files().exists(dir).await? {
        return Ok(bytes);
    }
    for name in env.files().list(dir).await? {
        let file = env.files().open(dir.join(name), Open::Read).await?;
        let mut front = vec![0; format::FRONT_LEN];
        let read = file.read_at(0, &mut front).await?;
        front.truncate(read);
        let is_sealed =
            format::decode_front(&front, keys).is_ok_and(|(_, cipher)| !cipher.is_outdated(keys));
        if !is_sealed {
            bytes += file.len().await?;
        }
    }
    Ok(bytes)
}

fn newer_format(file: &str, format: u32) -> StorageError {
    StorageError::NewerFormat(format!(
        "{file} has checkpoint format {format}, this program reads up to {SEALED_FORMAT}: open it with a newer Plinth"
    ).into())
}
