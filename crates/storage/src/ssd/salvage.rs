//! Looking through the engine's files, and getting out of damaged ones what is readable.
//!
//! `verify_ssd` compares every checksum of every table that the manifest names, and what the tables
//! say about themselves with what is in them. [`SsdSalvage`] gives the rows that can be read in
//! spite of damage: in key order, each key's newest readable entry. Without a readable manifest it
//! takes the tables that lie there, which say themselves for which level they were written.

use super::filter;
use super::format::{BLOCK_HEAD_LEN, BlockHead, Kind};
use super::manifest::{self, Manifest};
use super::rows::RowsBlock;
use super::table::{
    Front, Parts, any_front, damage, read_footer, read_front, read_parts, rows_block, table_id,
    table_path,
};
use crate::failure::{StorageError, StorageResult};
use plinth_env::{Env, File, Open};
use plinth_format::crypt::KeyId;
use plinth_format::{Corruption, Flaw, Identity, Keys};
use plinth_types::{LogPosition, MutationList, MutationType, Version, key_after};
use std::collections::BTreeMap;
use std::path::Path;

/// What [`verify_ssd`] found.
#[derive(Clone, Default, Debug)]
pub struct SsdReport {
    /// Tables looked at.
    pub tables: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rows in them, of which overwritten ones that were not merged yet count again.
    pub rows: u64,
    /// The keys that would be needed to look into all of them. Checksums were compared without.
    pub locked: Vec<KeyId>,
    /// Up to where they have everything, as the manifest says.
    pub at: LogPosition,
    /// What is wrong, in the order of files and offsets.
    pub problems: Vec<Corruption>,
}

/// Reads all files of an engine and compares every checksum.
///
/// # Errors
/// Those of listing the directory and opening its files. Damage is no error here but part of the
/// report.
pub async fn verify_ssd(
    env: &Env,
    dir: &Path,
    identity: Option<Identity>,
    keys: &Keys,
) -> StorageResult<SsdReport> {
    let mut report = SsdReport::default();
    let manifest = match Manifest::read(env, dir).await {
        Ok(manifest) => Some(manifest),
        Err(error) => {
            report.problems.push(of_error(&manifest::path(dir).display().to_string(), &error));
            None
        }
    };
    if let (Some(manifest), Some(identity)) = (&manifest, identity)
        && let Err(error) = manifest.expect(dir, identity)
    {
        report.problems.push(of_error(&manifest::path(dir).display().to_string(), &error));
    }
    report.at = manifest.as_ref().map_or_else(LogPosition::default, |manifest| manifest.at);
    let named: BTreeMap<u64, (u64, u64)> = manifest
        .iter()
        .flat_map(|manifest| &manifest.tables)
        .map(|table| (table.id, (table.nonce, table.file_len)))
        .collect();
    let ids = match &manifest {
        Some(_) => named.keys().copied().collect(),
        None => tables_in(env, dir).await?,
    };
    for id in ids {
        let path = table_path(dir, id);
        let name = path.display().to_string();
        let mut scan = match Scan::open(env, &path, keys).await {
            Ok(scan) => scan,
            Err(error) => {
                report.problems.push(of_error(&name, &error));
                continue;
            }
        };
        report.tables += 1;
        report.bytes += scan.len;
        while scan.next().await?.is_some() {}
        report.rows += scan.rows;
        report.problems.append(&mut scan.problems);
        report.locked.extend(scan.front.as_ref().and_then(|front| front.cipher.locked()));
        if let Some(header) = scan.front.map(|front| front.header) {
            let (nonce, len) = named.get(&id).copied().unwrap_or((header.nonce, scan.len));
            let is_ours = identity.is_none_or(|identity| identity == header.identity);
            if (header.nonce, scan.len, header.id) != (nonce, len, id) || !is_ours {
                let flaw = Flaw::new("table", "the one that the manifest names", "another");
                report.problems.push(flaw.at(&name, 0));
            }
        }
    }
    Ok(report)
}

/// Whether the directory of an engine holds no more than its creation makes.
///
/// # Errors
/// Those of listing the directory and reading files.
pub async fn is_as_created(env: &Env, dir: &Path) -> StorageResult<bool> {
    if !tables_in(env, dir).await?.is_empty() {
        return Ok(false);
    }
    if !env.files().exists(manifest::path(dir)).await? {
        return Ok(true);
    }
    match Manifest::read(env, dir).await {
        Ok(manifest) => Ok(manifest.tables.is_empty() && manifest.at.version == 0),
        Err(error) if error.is_damage() || matches!(error, StorageError::NewerFormat(_)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn of_error(file: &str, error: &StorageError) -> Corruption {
    Flaw::new("file", "one that can be read", error.summary()).at(file, 0)
}

async fn tables_in(env: &Env, dir: &Path) -> StorageResult<Vec<u64>> {
    Ok(env.files().list(dir).await?.iter().filter_map(|name| table_id(name)).collect())
}

/// A table that is read block by block, with or without its index.
struct Scan {
    file: File,
    name: String,
    len: u64,
    front: Option<Front>,
    parts: Option<Parts>,
    /// The next block, by the index; or where to look for it, without.
    number: usize,
    at: u64,
    rows: u64,
    removals: u64,
    last_key: Option<Vec<u8>>,
    problems: Vec<Corruption>,
    done: bool,
}

impl Scan {
    async fn open(env: &Env, path: &Path, keys: &Keys) -> StorageResult<Self> {
        let file = env.files().open(path, Open::Read).await?;
        let (name, len) = (path.display().to_string(), file.len().await?);
        let (mut problems, mut rows) = (Vec::new(), 0);
        let mut front = match read_front(&file, keys).await {
            Ok(front) => Some(front),
            Err(error) if error.is_damage() => {
                problems.push(of_error(&name, &error));
                any_front(&file, len, keys).await?
            }
            Err(error) => return Err(error),
        };
        let locked = front.take_if(|front| front.cipher.locked().is_some());
        let read = match &front {
            Some(front) if problems.is_empty() => read_parts(&file, front).await.map(Some),
            _ => Ok(None),
        };
        let parts = match read {
            Ok(parts) => parts,
            Err(error) if error.is_damage() => {
                problems.push(of_error(&name, &error));
                None
            }
            Err(error) => return Err(error),
        };
        let at = front.as_ref().map_or(0, |front| front.header.front_len() as u64);
        let done = front.is_none();
        if let Some(front) = &locked {
            // Nothing can be read but its checksums, its totals and whose it is.
            rows = match check_blocks(&file, front, len).await {
                Ok(rows) => rows,
                Err(error) if error.is_damage() => {
                    problems.push(of_error(&name, &error));
                    0
                }
                Err(error) => return Err(error),
            };
        }
        Ok(Self {
            file,
            name,
            len,
            front: front.or(locked),
            parts,
            number: 0,
            at,
            rows,
            removals: 0,
            last_key: None,
            problems,
            done,
        })
    }

    /// # Errors
    /// `Locked` if the key is not among these.
    fn check_unlocked(&self, keys: &Keys) -> StorageResult<()> {
        self.front.iter().try_for_each(|front| front.check_unlocked(&self.file, keys))
    }

    /// The next block of rows that is right; `None` behind the last.
    async fn next(&mut self) -> StorageResult<Option<RowsBlock>> {
        while !self.done {
            let block = match &self.parts {
                Some(_) => self.next_indexed().await?,
                None => self.next_found().await?,
            };
            if let Some(block) = block {
                self.count(&block);
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    async fn next_indexed(&mut self) -> StorageResult<Option<RowsBlock>> {
        let (Some(parts), Some(front)) = (&self.parts, &self.front) else { return Ok(None) };
        if self.number == parts.index.count() {
            self.done = true;
            self.compare_totals();
            return Ok(None);
        }
        let number = self.number;
        let (at, len) = parts.index.place(number);
        self.number += 1;
        self.at = at;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(at, &mut bytes).await?;
        let sealing = (front.header.seed(), &front.cipher);
        let block = rows_block(&mut bytes, number, sealing, |len| vec![0; len]).and_then(|block| {
            let first = [block.prefix(), block.entry(0).0].concat();
            let high =
                (number + 1 < parts.index.count()).then(|| parts.index.separator(number + 1));
            let last = [block.prefix(), block.entry(block.count() - 1).0].concat();
            if first[..] < *parts.index.separator(number)
                || high.is_some_and(|high| last[..] >= *high)
            {
                return Err(Flaw::new("keys of a block", "those that the index says", "others"));
            }
            let missing = (0..block.count()).any(|at| {
                let key = [block.prefix(), block.entry(at).0].concat();
                !parts.filter.may_contain(filter::hash(&key))
            });
            if missing {
                Err(Flaw::new("filter", "all keys of the table", "one less"))
            } else {
                Ok(block)
            }
        });
        match block {
            Ok(block) => Ok(Some(block)),
            Err(flaw) => {
                self.problems.push(flaw.at(&self.name, at));
                Ok(None)
            }
        }
    }

    /// Looks for a block without the index: each begins with the same four bytes.
    async fn next_found(&mut self) -> StorageResult<Option<RowsBlock>> {
        let Some(front) = &self.front else { return Ok(None) };
        let seed = front.header.seed();
        let mut bytes =
            vec![0; usize::try_from(self.len - self.at).unwrap_or(usize::MAX).min(1 << 20)];
        self.file.read_exact_at(self.at, &mut bytes).await?;
        let mut from = 0;
        while from + BLOCK_HEAD_LEN <= bytes.len() {
            let Ok(head) = BlockHead::decode(&bytes[from..]) else {
                from += 1;
                continue;
            };
            let place = self.at + from as u64;
            let mut block = vec![0; head.block_len()];
            let whole = place + head.block_len() as u64 <= self.len;
            if !whole || self.file.read_exact_at(place, &mut block).await.is_err() {
                from += 1;
                continue;
            }
            if head.check(&block, seed).is_err() {
                from += 1;
                continue;
            }
            self.at = place + head.block_len() as u64;
            if head.kind != Kind::Rows {
                return Ok(None);
            }
            let body = head.body(&mut block, &front.cipher);
            return Ok(body.and_then(RowsBlock::new).ok());
        }
        // A head may begin in the last bytes.
        self.at += from.max(1) as u64;
        self.done = self.at + BLOCK_HEAD_LEN as u64 > self.len;
        Ok(None)
    }

    fn count(&mut self, block: &RowsBlock) {
        let removed = (0..block.count()).filter(|at| block.entry(*at).1.is_none()).count();
        self.rows += (block.count() - removed) as u64;
        self.removals += removed as u64;
        let key = |at: usize| [block.prefix(), block.entry(at).0].concat();
        if self.last_key.as_ref().is_some_and(|last| *last >= key(0)) {
            let flaw = Flaw::new("keys", "ascending from block to block", "others");
            self.problems.push(flaw.at(&self.name, self.at));
        }
        self.last_key = Some(key(block.count() - 1));
    }

    fn compare_totals(&mut self) {
        let Some(parts) = &self.parts else { return };
        let said = (parts.footer.rows, parts.footer.removals);
        let found = (self.rows, self.removals);
        if self.problems.is_empty() && said != found {
            let flaw = Flaw::new(
                "rows and removed keys",
                format_args!("{said:?}"),
                format_args!("{found:?}"),
            );
            self.problems.push(flaw.at(&self.name, parts.footer.footer_at));
        }
    }
}

/// Compares the checksums of a table that is locked. Gives its rows, as the footer has them.
async fn check_blocks(file: &File, front: &Front, len: u64) -> StorageResult<u64> {
    let footer = read_footer(file, front).await?;
    let mut at = front.header.front_len() as u64;
    let mut number = 0;
    while at < footer.footer_at {
        let mut head = [0; BLOCK_HEAD_LEN];
        file.read_exact_at(at, &mut head).await?;
        let decoded = BlockHead::decode(&head).map_err(|flaw| damage(file, flaw, at))?;
        let end = at + decoded.block_len() as u64;
        if decoded.number != number || end > len {
            let flaw = Flaw::new("number of a block", number, decoded.number);
            return Err(damage(file, flaw, at));
        }
        let mut block = vec![0; decoded.block_len()];
        file.read_exact_at(at, &mut block).await?;
        let checked = decoded.check(&block, front.header.seed());
        checked.map_err(|flaw| damage(file, flaw, at))?;
        (at, number) = (end, number + 1);
    }
    Ok(footer.rows)
}

/// An engine's files that are read in spite of damage.
pub struct SsdSalvage {
    version: Version,
    /// Oldest first: each table's place in the order of ages, and what is to be read.
    tables: Vec<Scan>,
    at: usize,
    /// Whether the present table's cleared ranges are yet to be given.
    is_at_clears: bool,
    problems: Vec<Corruption>,
}

impl SsdSalvage {
    /// Opens what can be opened.
    ///
    /// # Errors
    /// Those of listing the directory; `Locked` if a key is lacking.
    pub async fn open(env: &Env, dir: &Path, keys: &Keys) -> StorageResult<Self> {
        let mut problems = Vec::new();
        let manifest = Manifest::read(env, dir).await.map_err(|error| {
            problems.push(of_error(&manifest::path(dir).display().to_string(), &error));
        });
        let manifest = manifest.ok();
        let ids = match &manifest {
            Some(manifest) => manifest.tables.iter().map(|table| table.id).collect(),
            None => tables_in(env, dir).await?,
        };
        let mut tables = Vec::new();
        for id in ids {
            match Scan::open(env, &table_path(dir, id), keys).await {
                Ok(scan) => {
                    scan.check_unlocked(keys)?;
                    let named = manifest
                        .iter()
                        .flat_map(|manifest| &manifest.tables)
                        .find(|table| table.id == id);
                    let header = scan.front.as_ref().map(|front| front.header);
                    let header = header.map_or((u32::MAX, 0), |header| (header.level, header.id));
                    // The deepest level is the oldest; within level 0 the first flush is.
                    let (level, age) =
                        named.map_or(header, |table| (table.level, table.flush.max(1)));
                    tables.push(((u32::MAX - level, age, id), scan));
                }
                Err(error) => {
                    problems.push(of_error(&table_path(dir, id).display().to_string(), &error))
                }
            }
        }
        tables.sort_by_key(|(age, _)| *age);
        let newest =
            tables.iter().filter_map(|(_, scan)| Some(scan.front.as_ref()?.header.version)).max();
        let version = manifest.map_or(newest.unwrap_or(0), |manifest| manifest.at.version);
        let tables = tables.into_iter().map(|(_, scan)| scan).collect();
        Ok(Self { version, tables, at: 0, is_at_clears: true, problems })
    }

    /// The version that the tables make together.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What the next readable block of a table says, the oldest table first: keys that are set,
    /// keys and ranges that are removed. Applied in order they make the engine's rows. `None` at
    /// the end.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn next(&mut self) -> StorageResult<Option<MutationList>> {
        while let Some(scan) = self.tables.get_mut(self.at) {
            let mut list = MutationList::new();
            if let Some(parts) = scan.parts.as_ref().filter(|_| self.is_at_clears) {
                for (begin, end) in parts.clears.iter() {
                    list.push(MutationType::ClearRange, begin, end);
                }
            }
            self.is_at_clears = false;
            let Some(block) = scan.next().await? else {
                self.problems.append(&mut scan.problems);
                self.at += 1;
                self.is_at_clears = true;
                if list.is_empty() {
                    continue;
                }
                return Ok(Some(list));
            };
            for at in 0..block.count() {
                let (rest, value) = block.entry(at);
                let key = [block.prefix(), rest].concat();
                match value {
                    Some(value) => list.push(MutationType::Set, &key, value),
                    None => list.push(MutationType::ClearRange, &key, &key_after(&key)),
                }
            }
            return Ok(Some(list));
        }
        Ok(None)
    }

    /// What could not be read.
    pub fn problems(&mut self) -> Vec<Corruption> {
        std::mem::take(&mut self.problems)
    }
}
