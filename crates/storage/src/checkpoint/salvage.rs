//! Checking checkpoints, and getting out of a damaged one what is readable.

use super::format::{Header, Totals};
use super::list;
use super::walk::{Step, Walk};
use crate::failure::StorageResult;
use plinth_env::Env;
use plinth_format::crypt::KeyId;
use plinth_format::{Corruption, Identity, Keys};
use plinth_types::{LogPosition, Rows, RowsBuilder};
use std::path::Path;

/// What [`verify`] found.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Checkpoints looked at.
    pub checkpoints: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rows in them, of which those that are locked were not looked at.
    pub rows: u64,
    /// The keys that would be needed to look into all of them. Checksums were compared without.
    pub locked: Vec<KeyId>,
    /// What the newest has everything of; nothing if there is none.
    pub newest: LogPosition,
    /// What is wrong with them, in the order of files and offsets.
    pub problems: Vec<Corruption>,
}

/// Reads all checkpoints of a directory and compares every checksum, and whose they are if that is
/// given.
///
/// # Errors
/// Those of listing the directory and opening its files, and `NewerFormat` for a newer
/// format. Damage is no error here but part of the report.
pub async fn verify(
    env: &Env,
    dir: &Path,
    identity: Option<Identity>,
    keys: &Keys,
) -> StorageResult<Report> {
    let mut report = Report::default();
    for (version, path) in list(env, dir).await? {
        report.checkpoints += 1;
        let mut salvage = Salvage::look_at(env, &path, keys).await?;
        report.bytes += salvage.bytes();
        report.locked.extend(salvage.walk.as_ref().and_then(Walk::locked));
        while let Some(found) = salvage.next().await? {
            match found {
                Salvaged::Rows(_) => {}
                Salvaged::Damage(problem) => report.problems.push(problem),
            }
        }
        report.rows += salvage.totals().rows;
        let Some(header) = salvage.header() else { continue };
        report.newest = header.at;
        let flaw = header.check(version, identity.unwrap_or(header.identity));
        report.problems.extend(flaw.err().map(|flaw| flaw.at(&path.display().to_string(), 0)));
    }
    Ok(report)
}

/// A checkpoint that is read in spite of damage.
pub struct Salvage {
    walk: Option<Walk>,
    /// What was wrong with the header, until it has been told.
    header_problem: Option<Corruption>,
}

/// What [`Salvage::next`] came upon.
#[derive(Clone, Debug)]
pub enum Salvaged {
    /// Rows of a block with right checksums.
    Rows(Rows),
    /// A place where rows may be lost.
    Damage(Corruption),
}

impl Salvage {
    /// Opens a checkpoint. When neither its header nor the copy at its end is whole, nothing in it
    /// can be told from anything else: then one problem is all it gives.
    ///
    /// # Errors
    /// Those of opening and reading the file; `NewerFormat` for a newer format; `Locked` if its key
    /// is lacking.
    pub async fn open(env: &Env, path: &Path, keys: &Keys) -> StorageResult<Self> {
        let salvage = Self::look_at(env, path, keys).await?;
        salvage.walk.iter().try_for_each(|walk| walk.check_unlocked(keys))?;
        Ok(salvage)
    }

    /// The same, also if the key is lacking: then there are no rows, and all else.
    async fn look_at(env: &Env, path: &Path, keys: &Keys) -> StorageResult<Self> {
        match Walk::open(env, path, keys).await? {
            Ok((walk, header_problem)) => Ok(Self { walk: Some(walk), header_problem }),
            Err(problem) => Ok(Self { walk: None, header_problem: Some(problem) }),
        }
    }

    /// Whose checkpoint it is, and of which version.
    pub fn header(&self) -> Option<&Header> {
        self.walk.as_ref().map(Walk::header)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.walk.as_ref().map_or(0, Walk::len)
    }

    /// What has been given so far.
    pub fn totals(&self) -> Totals {
        self.walk.as_ref().map(Walk::totals).unwrap_or_default()
    }

    /// The next rows, in key order, or the next problem; `None` at the end.
    ///
    /// # Errors
    /// Those of reading files that are not a matter of one place in it.
    pub async fn next(&mut self) -> StorageResult<Option<Salvaged>> {
        if let Some(problem) = self.header_problem.take() {
            return Ok(Some(Salvaged::Damage(problem)));
        }
        let Some(walk) = &mut self.walk else { return Ok(None) };
        let mut rows = RowsBuilder::default();
        Ok(match walk.step(&mut |key, value| rows.push(key, value)).await? {
            Step::Rows => Some(Salvaged::Rows(rows.finish())),
            Step::Damage(problem) => Some(Salvaged::Damage(problem)),
            Step::End => None,
        })
    }
}
