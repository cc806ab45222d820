//! A table: a sorted piece of the data in a file that never changes, with its index and filter in
//! memory.
//!
//! ```text
//!   table-<id>.data
//!   | header | block of rows | ... | cleared ranges | filter | index | footer: places, header again |
//! ```
//!
//! A table lives as long as somebody holds it: the engine's present state, a read that began before
//! the state changed, a pinned snapshot. Once the state has let go of it for good it is obsolete,
//! and when its last holder goes its file does.

use super::cache::Cache;
use super::clears::Clears;
use super::filter::Filter;
use super::format::{
    BLOCK_HEAD_LEN, BlockHead, Compression, FOOTER_LEN, Footer, HEADER_LEN, Header, Kind,
    TABLE_FORMAT,
};
use super::index::Index;
use super::rows::RowsBlock;
use crate::failure::{StorageError, StorageResult};
use plinth_env::{Env, File, Open};
use plinth_format::{Flaw, HeaderFlaw, Identity, take_bytes, take_number};
use plinth_types::{Bytes, key_after};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const TABLE_PREFIX: &str = "table-";
const TABLE_SUFFIX: &str = ".data";

/// The file of a table.
pub(crate) fn table_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{TABLE_PREFIX}{id:016x}{TABLE_SUFFIX}"))
}

/// The number of the table that a file of this name holds.
pub(crate) fn table_id(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(TABLE_PREFIX)?.strip_suffix(TABLE_SUFFIX)?;
    u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)
}

/// Tables whose files nobody needs any more.
#[derive(Default)]
pub(crate) struct Graveyard {
    gone: Mutex<Vec<u64>>,
}

impl Graveyard {
    /// Takes those that came since.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Brings back what could not be removed yet.
    pub fn put(&self, id: u64) {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }
}

/// What lies in the file besides rows, and decides which of them count.
pub(crate) struct Parts {
    pub header: Header,
    pub footer: Footer,
    pub clears: Clears,
    pub filter: Filter,
    pub index: Index,
}

/// A table that is open.
pub(crate) struct Table {
    parts: Parts,
    file: File,
    seed: u32,
    file_len: u64,
    /// The first key that it says something about.
    lower: Bytes,
    /// The first key behind those that it says something about.
    upper: Bytes,
    obsolete: AtomicBool,
    graveyard: Arc<Graveyard>,
}

impl Table {
    /// Opens the table of a file. Damage in rows shows when they are read; all else is looked at
    /// now.
    ///
    /// # Errors
    /// `Corrupt`, naming file and offset; `NewerFormat` for a newer format; those of
    /// files.
    pub async fn open(
        env: &Env,
        path: &Path,
        identity: Identity,
        graveyard: &Arc<Graveyard>,
    ) -> StorageResult<Self> {
        let file = env.files().open(path, Open::Read).await?;
        let parts = read_parts(&file).await?;
        if parts.header.identity != identity {
            let flaw = Flaw::new("cluster and node of the table", "this database's", "another's");
            return Err(damage(&file, flaw, 0));
        }
        let file_len = parts.footer.footer_at + FOOTER_LEN as u64;
        Ok(Self::new(parts, file, file_len, graveyard))
    }

    /// The table whose file was just written.
    pub fn new(parts: Parts, file: File, file_len: u64, graveyard: &Arc<Graveyard>) -> Self {
        let (lower, upper) = bounds(&parts);
        let seed = parts.header.seed();
        Self {
            parts,
            file,
            seed,
            file_len,
            lower,
            upper,
            obsolete: AtomicBool::new(false),
            graveyard: graveyard.clone(),
        }
    }

    pub fn id(&self) -> u64 {
        self.parts.header.id
    }

    pub fn header(&self) -> &Header {
        &self.parts.header
    }

    pub fn footer(&self) -> &Footer {
        &self.parts.footer
    }

    #[inline]
    pub fn clears(&self) -> &Clears {
        &self.parts.clears
    }

    #[inline]
    pub fn filter(&self) -> &Filter {
        &self.parts.filter
    }

    #[inline]
    pub fn index(&self) -> &Index {
        &self.parts.index
    }

    /// The first key that it says something about.
    #[inline]
    pub fn lower(&self) -> &Bytes {
        &self.lower
    }

    /// The first key behind those that it says something about.
    #[inline]
    pub fn upper(&self) -> &Bytes {
        &self.upper
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Bytes of memory of index, filter and cleared ranges.
    pub fn memory(&self) -> usize {
        let Parts { clears, filter, index, .. } = &self.parts;
        size_of::<Self>() + clears.bytes() + filter.bytes() + index.bytes()
    }

    /// Whether much of it only says that something is gone.
    pub fn is_mostly_garbage(&self) -> bool {
        let Footer { rows, removals, .. } = self.parts.footer;
        removals * 4 > rows + removals || rows + removals == 0
    }

    /// Whether it says something about a key of the range.
    pub fn overlaps(&self, lower: &[u8], upper: &[u8]) -> bool {
        self.lower[..] < *upper && *lower < self.upper[..]
    }

    /// Lets the file go once nobody holds the table.
    pub fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Reads a block of rows into a buffer of the cache's, where it stays if it is not compressed.
    ///
    /// # Errors
    /// Those of [`Table::read_rows`].
    pub async fn read_block(&self, number: usize, cache: &Cache) -> StorageResult<RowsBlock> {
        let (at, len) = self.index().place(number);
        let mut bytes = cache.buffer(len);
        self.file.read_exact_at(at, &mut bytes).await?;
        self.block_from(bytes, number, cache).map_err(|flaw| damage(&self.file, flaw, at))
    }

    fn block_from(&self, bytes: Vec<u8>, number: usize, cache: &Cache) -> Result<RowsBlock, Flaw> {
        let head = checked_head(&bytes, Kind::Rows, number, self.seed)?;
        if head.compression == Compression::None {
            let body = head.stored();
            head.check_body_len(body.len())?;
            return RowsBlock::within(bytes, body);
        }
        let body = head.body_in(&bytes, |len| cache.buffer(len))?;
        cache.give_back(bytes);
        RowsBlock::new(body)
    }

    /// Reads blocks of rows that lie one behind the other, each into a buffer that `take` has of so
    /// many bytes.
    ///
    /// # Errors
    /// `Corrupt`, naming file and offset; those of reading.
    pub async fn read_rows(
        &self,
        first: usize,
        count: usize,
        take: impl Fn(usize) -> Vec<u8>,
    ) -> StorageResult<Vec<RowsBlock>> {
        let (begin, _) = self.index().place(first);
        let (last, last_len) = self.index().place(first + count - 1);
        let mut bytes = vec![0; (last - begin) as usize + last_len];
        self.file.read_exact_at(begin, &mut bytes).await?;
        let mut blocks = Vec::with_capacity(count);
        for number in first..first + count {
            let (at, len) = self.index().place(number);
            let from = (at - begin) as usize;
            let block = rows_block(&bytes[from..from + len], number, self.seed, &take);
            blocks.push(block.map_err(|flaw| damage(&self.file, flaw, at))?);
        }
        Ok(blocks)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.graveyard.put(self.id());
        }
    }
}

fn bounds(parts: &Parts) -> (Bytes, Bytes) {
    let rows = parts.index.first_key().map(|first| {
        let last = parts.index.last_key();
        (Bytes::copy_from_slice(first), key_after(last))
    });
    let clears = parts.clears.span().map(|(begin, end)| (begin.clone(), end.clone()));
    match (rows, clears) {
        (Some(rows), Some(clears)) => (rows.0.min(clears.0), rows.1.max(clears.1)),
        (rows, clears) => rows.or(clears).unwrap_or_default(),
    }
}

/// Checks and reads one block of rows into a buffer that `take` has of so many bytes.
pub(crate) fn rows_block(
    bytes: &[u8],
    number: usize,
    seed: u32,
    take: impl FnOnce(usize) -> Vec<u8>,
) -> Result<RowsBlock, Flaw> {
    RowsBlock::new(checked_head(bytes, Kind::Rows, number, seed)?.body_in(bytes, take)?)
}

/// The body of the block that `bytes` are, if it is the one that belongs there.
fn block_body(bytes: &[u8], kind: Kind, number: usize, seed: u32) -> Result<Vec<u8>, Flaw> {
    checked_head(bytes, kind, number, seed)?.body(bytes)
}

/// The head of that block, which has been checked.
fn checked_head(bytes: &[u8], kind: Kind, number: usize, seed: u32) -> Result<BlockHead, Flaw> {
    let head = BlockHead::decode(bytes)?;
    if head.block_len() != bytes.len() {
        return Err(Flaw::new("length of a block", bytes.len(), head.block_len()));
    }
    head.check(bytes, seed)?;
    if head.kind != kind || head.number as usize != number {
        let found = format_args!("{:?} {}", head.kind, head.number);
        return Err(Flaw::new("block", format_args!("{kind:?} {number}"), found));
    }
    Ok(head)
}

/// An error that names the place of some damage.
pub(crate) fn damage(file: &File, flaw: Flaw, offset: u64) -> StorageError {
    flaw.at(&file.path().display().to_string(), offset).into()
}

async fn read_header(file: &File) -> StorageResult<Header> {
    let mut bytes = [0; HEADER_LEN];
    let len = file.len().await?;
    if len < (HEADER_LEN + FOOTER_LEN) as u64 {
        return Err(damage(file, Flaw::new("length of a table", HEADER_LEN + FOOTER_LEN, len), 0));
    }
    file.read_exact_at(0, &mut bytes).await?;
    Header::decode(&bytes).map_err(|flaw| match flaw {
        HeaderFlaw::Damaged(flaw) => damage(file, flaw, 0),
        HeaderFlaw::Foreign(format) => newer_format(file, format),
    })
}

fn newer_format(file: &File, format: u32) -> StorageError {
    StorageError::NewerFormat(format!(
        "{} has table format {format}, this program reads up to {TABLE_FORMAT}: open it with a newer Plinth",
        file.path().display()
    ).into())
}

/// Reads and checks all of a file but its rows.
pub(crate) async fn read_parts(file: &File) -> StorageResult<Parts> {
    let header = read_header(file).await?;
    let seed = header.seed();
    let footer_at = file.len().await? - FOOTER_LEN as u64;
    let mut bytes = vec![0; FOOTER_LEN];
    file.read_exact_at(footer_at, &mut bytes).await?;
    let footer =
        decode_footer(&bytes, &header, footer_at).map_err(|flaw| damage(file, flaw, footer_at))?;
    let mut bytes = vec![0; usize::try_from(footer_at - footer.clears_at).unwrap_or(usize::MAX)];
    file.read_exact_at(footer.clears_at, &mut bytes).await?;
    let part = |from: u64, to: u64, kind, number: u64| {
        let range = (from - footer.clears_at) as usize..(to - footer.clears_at) as usize;
        block_body(&bytes[range], kind, (footer.blocks + number) as usize, seed)
            .map_err(|flaw| damage(file, flaw, from))
    };
    let clears = part(footer.clears_at, footer.filter_at, Kind::Clears, 0)?;
    let filter = part(footer.filter_at, footer.index_at, Kind::Filter, 1)?;
    let index = part(footer.index_at, footer.footer_at, Kind::Index, 2)?;
    decode_parts(header, footer, &clears, &filter, &index)
        .map_err(|flaw| damage(file, flaw, footer.clears_at))
}

fn decode_footer(bytes: &[u8], header: &Header, at: u64) -> Result<Footer, Flaw> {
    let head = BlockHead::decode(bytes)?;
    head.check(bytes, header.seed())?;
    let footer = Footer::decode(&bytes[BLOCK_HEAD_LEN..])?;
    if footer.footer_at != at || head.kind != Kind::Footer {
        return Err(Flaw::new("place of the footer", at, footer.footer_at));
    }
    let repeated = &bytes[FOOTER_LEN - HEADER_LEN..];
    if repeated != header.encode() {
        return Err(Flaw::new("header in the footer", "that of the file", "another"));
    }
    Ok(footer)
}

/// The parts from the bodies of their blocks.
pub(crate) fn decode_parts(
    header: Header,
    footer: Footer,
    clears: &[u8],
    filter: &[u8],
    index: &[u8],
) -> Result<Parts, Flaw> {
    let flaw = |what| Flaw::new(what, "one that can be read", "another");
    let clears = decode_clears(clears).ok_or_else(|| flaw("cleared ranges of a table"))?;
    let filter = Filter::decode(filter).ok_or_else(|| flaw("filter of a table"))?;
    let index = Index::decode(index, HEADER_LEN as u64, footer.clears_at, footer.blocks)
        .ok_or_else(|| flaw("index of a table"))?;
    Ok(Parts { header, footer, clears, filter, index })
}

fn decode_clears(body: &[u8]) -> Option<Clears> {
    let mut rest = body;
    let mut clears = Clears::new();
    for _ in 0..take_number(&mut rest)? {
        let begin = take_bytes(&mut rest)?;
        clears.push(begin, take_bytes(&mut rest)?);
    }
    (rest.is_empty() && clears.are_sound()).then_some(clears)
}
