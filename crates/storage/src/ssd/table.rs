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
    BLOCK_HEAD_LEN, BlockHead, Compression, FOOTER_LEN, FOOTER_SEALING_LEN, FRONT_LEN, Footer,
    HEADER_LEN, Header, Kind, SEALED_TABLE_FORMAT,
};
use super::index::Index;
use super::rows::RowsBlock;
use crate::failure::{StorageError, StorageResult};
use plinth_env::{Env, File, Open};
use plinth_format::crypt::TAG_LEN;
use plinth_format::{Cipher, Flaw, HeaderFlaw, Keys, Owner, take_bytes, take_number};
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

/// Tables whose files nobody needs any more, and how much there still is of those that another key
/// has sealed than the newest, needed or not.
#[derive(Default)]
pub(crate) struct Graveyard {
    gone: Mutex<Vec<Gone>>,
    outdated: Mutex<(u64, u64)>,
}

/// A table whose file is to be removed.
#[derive(Clone, Copy)]
pub(crate) struct Gone {
    pub id: u64,
    /// Its bytes, if another key has sealed it.
    outdated: Option<u64>,
}

impl Graveyard {
    /// Takes those that came since.
    pub fn take(&self) -> Vec<Gone> {
        std::mem::take(&mut *self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Brings back what could not be removed yet.
    pub fn put(&self, gone: Gone) {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).push(gone);
    }

    /// The file is there no more.
    pub fn bury(&self, gone: Gone) {
        if let Some(bytes) = gone.outdated {
            let mut outdated = self.outdated.lock().unwrap_or_else(PoisonError::into_inner);
            *outdated = (outdated.0 - 1, outdated.1 - bytes);
        }
    }

    fn note_outdated(&self, bytes: u64) {
        let mut outdated = self.outdated.lock().unwrap_or_else(PoisonError::into_inner);
        *outdated = (outdated.0 + 1, outdated.1 + bytes);
    }

    /// Files that another key has sealed than the newest, and their bytes.
    pub fn outdated(&self) -> (u64, u64) {
        *self.outdated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What lies in the file besides rows, and decides which of them count.
pub(crate) struct Parts {
    pub header: Header,
    pub cipher: Cipher,
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
    /// Another key has sealed it than the newest.
    is_outdated: bool,
    graveyard: Arc<Graveyard>,
}

impl Table {
    /// Opens the table of a file. Damage in rows shows when they are read; all else is looked at
    /// now.
    ///
    /// # Errors
    /// `Corrupt`, naming file and offset; `NewerFormat` for a newer format; `Locked` if its key is
    /// lacking; those of files.
    pub async fn open(
        env: &Env,
        path: &Path,
        owner: &Owner,
        graveyard: &Arc<Graveyard>,
    ) -> StorageResult<Self> {
        let file = env.files().open(path, Open::Read).await?;
        let front = read_front(&file, &owner.keys).await?;
        if front.header.identity != owner.identity {
            let flaw = Flaw::new("cluster and node of the table", "this database's", "another's");
            return Err(damage(&file, flaw, 0));
        }
        front.check_unlocked(&file, &owner.keys)?;
        let parts = read_parts(&file, &front).await?;
        let file_len = parts.footer.footer_at + parts.header.footer_len() as u64;
        let is_outdated = parts.cipher.is_outdated(&owner.keys);
        let mut table = Self::new(parts, file, file_len, graveyard);
        if is_outdated {
            graveyard.note_outdated(file_len);
            table.is_outdated = true;
        }
        Ok(table)
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
            is_outdated: false,
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

    /// Whether another key has sealed it than the newest.
    pub fn is_outdated(&self) -> bool {
        self.is_outdated
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

    fn block_from(
        &self,
        mut bytes: Vec<u8>,
        number: usize,
        cache: &Cache,
    ) -> Result<RowsBlock, Flaw> {
        let head = checked_head(&bytes, Kind::Rows, number, self.seed)?;
        let body = head.open(&mut bytes, &self.parts.cipher)?;
        if head.compression == Compression::None {
            head.check_body_len(body.len())?;
            return RowsBlock::within(bytes, body);
        }
        let body = head.body_in(&bytes[body], |len| cache.buffer(len))?;
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
            let (block, sealing) = (&mut bytes[from..from + len], (self.seed, &self.parts.cipher));
            let block = rows_block(block, number, sealing, &take);
            blocks.push(block.map_err(|flaw| damage(&self.file, flaw, at))?);
        }
        Ok(blocks)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            let outdated = self.is_outdated.then_some(self.file_len);
            self.graveyard.put(Gone { id: self.id(), outdated });
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
    bytes: &mut [u8],
    number: usize,
    (seed, cipher): (u32, &Cipher),
    take: impl FnOnce(usize) -> Vec<u8>,
) -> Result<RowsBlock, Flaw> {
    let head = checked_head(bytes, Kind::Rows, number, seed)?;
    let body = head.open(bytes, cipher)?;
    RowsBlock::new(head.body_in(&bytes[body], take)?)
}

/// The body of the block that `bytes` are, if it is the one that belongs there.
fn block_body(bytes: &mut [u8], kind: Kind, number: usize, front: &Front) -> Result<Vec<u8>, Flaw> {
    checked_head(bytes, kind, number, front.header.seed())?.body(bytes, &front.cipher)
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

/// What a file begins with, and its footer repeats.
pub(crate) struct Front {
    pub header: Header,
    pub cipher: Cipher,
    /// As it stands there: the header, and the envelope if there is one.
    pub bytes: Vec<u8>,
}

impl Front {
    /// The front that bytes begin with.
    pub fn decode(bytes: &[u8], keys: &Keys) -> Result<Self, HeaderFlaw> {
        let header = Header::decode(bytes)?;
        let cipher = if header.is_sealed() {
            let envelope = bytes.get(HEADER_LEN..).unwrap_or_default();
            keys.of_file(envelope, &header.encode(), header.seed())?
        } else {
            Cipher::Clear
        };
        let bytes = bytes.get(..header.front_len()).unwrap_or_default().to_vec();
        Ok(Self { header, cipher, bytes })
    }

    /// The front of a new file.
    pub fn new(env: &Env, header: Header, keys: &Keys) -> Self {
        let mut bytes = header.encode().to_vec();
        let (cipher, envelope) =
            keys.of_new_file(&bytes, header.seed(), |fresh| env.fill_random(fresh));
        assert_eq!(envelope.is_some(), header.is_sealed(), "an envelope has a sealed file's key");
        bytes.extend(envelope.into_iter().flatten());
        Self { header, cipher, bytes }
    }

    /// # Errors
    /// `Locked` if the key is not among these.
    pub fn check_unlocked(&self, file: &File, keys: &Keys) -> StorageResult<()> {
        match self.cipher.locked() {
            Some(id) => {
                let lack = keys.lack(&file.path().display().to_string(), id);
                Err(StorageError::Locked(lack.into()))
            }
            None => Ok(()),
        }
    }
}

/// Reads what a file begins with.
pub(crate) async fn read_front(file: &File, keys: &Keys) -> StorageResult<Front> {
    let len = file.len().await?;
    if len < (HEADER_LEN + FOOTER_LEN) as u64 {
        return Err(damage(file, Flaw::new("length of a table", HEADER_LEN + FOOTER_LEN, len), 0));
    }
    let mut bytes = [0; FRONT_LEN];
    file.read_exact_at(0, &mut bytes).await?;
    Front::decode(&bytes, keys).map_err(|flaw| match flaw {
        HeaderFlaw::Damaged(flaw) => damage(file, flaw, 0),
        HeaderFlaw::Foreign(format) => newer_format(file, format),
    })
}

/// The front, or its copy in the footer.
pub(crate) async fn any_front(file: &File, len: u64, keys: &Keys) -> StorageResult<Option<Front>> {
    if len < (HEADER_LEN + FOOTER_LEN) as u64 {
        return Ok(None);
    }
    let sealed = HEADER_LEN + FOOTER_SEALING_LEN;
    for behind in [len, HEADER_LEN as u64, sealed as u64] {
        let at = len.saturating_sub(behind);
        let mut bytes = vec![0; (len - at).min(FRONT_LEN as u64) as usize];
        file.read_exact_at(at, &mut bytes).await?;
        match Front::decode(&bytes, keys) {
            Ok(front) => return Ok(Some(front)),
            Err(HeaderFlaw::Foreign(format)) => return Err(newer_format(file, format)),
            Err(HeaderFlaw::Damaged(_)) => {}
        }
    }
    Ok(None)
}

fn newer_format(file: &File, format: u32) -> StorageError {
    StorageError::NewerFormat(format!(
        "{} has table format {format}, this program reads up to {SEALED_TABLE_FORMAT}: open it with a newer Plinth",
        file.path().display()
    ).into())
}

/// Reads and checks all of a file but its rows.
pub(crate) async fn read_parts(file: &File, front: &Front) -> StorageResult<Parts> {
    let footer = read_footer(file, front).await?;
    let footer_at = footer.footer_at;
    let mut bytes = vec![0; usize::try_from(footer_at - footer.clears_at).unwrap_or(usize::MAX)];
    file.read_exact_at(footer.clears_at, &mut bytes).await?;
    let mut part = |from: u64, to: u64, kind, number: u64| {
        let range = (from - footer.clears_at) as usize..(to - footer.clears_at) as usize;
        block_body(&mut bytes[range], kind, (footer.blocks + number) as usize, front)
            .map_err(|flaw| damage(file, flaw, from))
    };
    let clears = part(footer.clears_at, footer.filter_at, Kind::Clears, 0)?;
    let filter = part(footer.filter_at, footer.index_at, Kind::Filter, 1)?;
    let index = part(footer.index_at, footer.footer_at, Kind::Index, 2)?;
    decode_parts((front.header, front.cipher.clone()), footer, &clears, &filter, &index)
        .map_err(|flaw| damage(file, flaw, footer.clears_at))
}

/// Reads the footer, which is not sealed.
pub(crate) async fn read_footer(file: &File, front: &Front) -> StorageResult<Footer> {
    let (len, footer_len) = (file.len().await?, front.header.footer_len());
    let Some(footer_at) = len.checked_sub(footer_len as u64) else {
        return Err(damage(file, Flaw::new("length of a table", footer_len, len), 0));
    };
    let mut bytes = vec![0; footer_len];
    file.read_exact_at(footer_at, &mut bytes).await?;
    decode_footer(&mut bytes, front, footer_at).map_err(|flaw| damage(file, flaw, footer_at))
}

fn decode_footer(bytes: &mut [u8], front: &Front, at: u64) -> Result<Footer, Flaw> {
    let head = BlockHead::decode(bytes)?;
    head.check(bytes, front.header.seed())?;
    let footer = Footer::decode(&bytes[BLOCK_HEAD_LEN..], &front.header)?;
    if footer.footer_at != at || head.kind != Kind::Footer {
        return Err(Flaw::new("place of the footer", at, footer.footer_at));
    }
    let body = head.open(bytes, &front.cipher)?;
    let tag = if front.cipher.locked().is_some() { TAG_LEN } else { 0 };
    let repeated = &bytes[body.start..body.end - tag];
    if !repeated.ends_with(&front.bytes) {
        return Err(Flaw::new("header in the footer", "that of the file", "another"));
    }
    Ok(footer)
}

/// The parts from the bodies of their blocks.
pub(crate) fn decode_parts(
    (header, cipher): (Header, Cipher),
    footer: Footer,
    clears: &[u8],
    filter: &[u8],
    index: &[u8],
) -> Result<Parts, Flaw> {
    let flaw = |what| Flaw::new(what, "one that can be read", "another");
    let clears = decode_clears(clears).ok_or_else(|| flaw("cleared ranges of a table"))?;
    let filter = Filter::decode(filter).ok_or_else(|| flaw("filter of a table"))?;
    let rows_at = header.front_len() as u64;
    let index = Index::decode(index, rows_at, footer.clears_at, footer.blocks)
        .ok_or_else(|| flaw("index of a table"))?;
    Ok(Parts { header, cipher, footer, clears, filter, index })
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
