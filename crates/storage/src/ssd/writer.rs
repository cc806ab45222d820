//! Writing tables: rows come in key order, whole files come out.
//!
//! [`TableWriter`] makes one file. [`RunWriter`] cuts a long row of keys into several, and hands
//! each the part of the cleared ranges that lies between its first key and the first of the next.
//! Nothing is durable before [`RunWriter::finish`] has returned.

use super::cache::Cache;
use super::clears::Clears;
use super::filter::{self, Filter};
use super::format::{
    Compression, Footer, Header, Kind, SEALED_TABLE_FORMAT, TABLE_FORMAT, push_block,
};
use super::index::{IndexBuilder, separator_between};
use super::pages::Pages;
use super::rows::{RowsBlock, RowsBuilder};
use super::state::DEEPEST;
use super::table::{Front, Graveyard, Table, damage, decode_parts, table_path};
use crate::failure::StorageResult;
use crate::sequential::SequentialFile;
use plinth_env::{Env, Open};
use plinth_format::{Owner, push_bytes, push_number};
use plinth_types::{Version, planted};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are written in one go.
const PORTION: usize = 1 << 20;
/// Bytes after which the file is synced, so that the disk never has to take very much at once while
/// the log's small syncs wait.
const SYNC_EVERY: u64 = 8 << 20;

/// What all tables of an engine have in common when they are written.
pub(crate) struct Making {
    pub env: Env,
    pub dir: PathBuf,
    pub owner: Owner,
    pub compression: Compression,
    /// Raw bytes of a block of rows, about; blocks end where pages do if they can.
    pub block_bytes: usize,
    /// Bytes of a table, about.
    pub table_bytes: u64,
    pub graveyard: Arc<Graveyard>,
    pub cache: Arc<Cache>,
    /// The number of the next table.
    pub next_id: AtomicU64,
    /// Bytes written to tables.
    pub written: AtomicU64,
    /// Bytes of rows that flushes wrote.
    pub flushed: AtomicU64,
    pub spare: Spare,
}

/// What tables are made in, kept for the next ones: megabytes that come and go each time leave
/// holes between what stays.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Vec<(Vec<u8>, Vec<u64>)>>);

impl Spare {
    /// Empty buffers for a portion of a file and for the hashes of its keys.
    fn take(&self) -> (Vec<u8>, Vec<u64>) {
        let kept = self.lock().pop();
        kept.unwrap_or_else(|| (Vec::with_capacity(PORTION + PORTION / 4), Vec::new()))
    }

    /// Keeps buffers, if they are of the usual size: a set for the flush and one for the merge.
    fn give(&self, mut out: Vec<u8>, mut hashes: Vec<u64>) {
        let is_usual = out.capacity() <= 2 * PORTION && hashes.capacity() <= PORTION;
        let mut kept = self.lock();
        if is_usual && kept.len() < 2 {
            out.clear();
            hashes.clear();
            kept.push((out, hashes));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Vec<u8>, Vec<u64>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes one table.
struct TableWriter {
    making: Arc<Making>,
    output: SequentialFile,
    front: Front,
    pages: Pages,
    /// The most bytes for the body of the present block, unless it is a single row.
    limit: usize,
    rows: RowsBuilder,
    body: Vec<u8>,
    index: IndexBuilder,
    hashes: Vec<u64>,
    footer: Footer,
    last_key: Vec<u8>,
}

impl TableWriter {
    async fn begin(making: &Arc<Making>, version: Version, level: u32) -> StorageResult<Self> {
        let id = making.next_id.fetch_add(1, Ordering::Relaxed);
        let nonce = making.env.random_u64();
        let Owner { identity, keys } = &making.owner;
        let format = if keys.is_none() { TABLE_FORMAT } else { SEALED_TABLE_FORMAT };
        let header = Header { format, identity: *identity, id, nonce, version, level };
        let front = Front::new(&making.env, header, keys);
        let file = making.env.files().open(table_path(&making.dir, id), Open::Truncate).await?;
        let (mut out, hashes) = making.spare.take();
        out.extend_from_slice(&front.bytes);
        let pages = Pages::new(making.block_bytes);
        let limit = pages.limit(out.len() as u64);
        Ok(Self {
            making: making.clone(),
            output: SequentialFile::new(file, out, SYNC_EVERY),
            front,
            pages,
            limit,
            rows: RowsBuilder::default(),
            body: Vec::new(),
            index: IndexBuilder::default(),
            hashes,
            footer: Footer::default(),
            last_key: Vec::new(),
        })
    }

    /// About how long the file will be.
    fn len(&self) -> u64 {
        self.output.place() + (self.index.bytes() + self.hashes.len() * 5 / 4) as u64
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        if !self.rows.is_empty() && self.rows.body_len_with(key, value) > self.limit {
            self.close_block();
        }
        self.rows.push(key, value);
        self.hashes.push(filter::hash(key));
        match value {
            Some(value) => {
                self.footer.rows += 1;
                self.footer.row_bytes += (key.len() + value.len()) as u64;
            }
            None => self.footer.removals += 1,
        }
    }

    fn close_block(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let first = self.rows.first_key();
        assert!(self.footer.blocks == 0 || self.last_key[..] < *first, "keys of a table ascend");
        let separator =
            if self.footer.blocks == 0 { first } else { separator_between(&self.last_key, first) };
        let separator = separator.to_vec();
        self.last_key.clear();
        self.last_key.extend_from_slice(self.rows.last_key());
        self.body.clear();
        self.rows.finish(&mut self.body);
        let number = self.footer.blocks as u32;
        let compression = self.making.compression;
        let sealing = (self.front.header.seed(), self.front.cipher.key());
        let (at, raw_len) = (self.output.place(), self.body.len());
        let pad = |len| self.pages.close(at, raw_len, len);
        let len = push_block(
            &mut self.output.out,
            sealing,
            (Kind::Rows, number),
            &self.body,
            compression,
            pad,
        );
        self.limit = self.pages.limit(at + len as u64);
        self.index.push(&separator, len);
        self.footer.blocks += 1;
        // While there is room, what is written now is likely to be read soon.
        let cache = &self.making.cache;
        if !cache.has_room(self.body.len()) {
            return;
        }
        let mut body = cache.buffer(self.body.len());
        body.copy_from_slice(&self.body);
        if let Ok(block) = RowsBlock::new(body) {
            cache.insert(self.front.header.id, number, &Arc::new(block));
        }
    }

    async fn flush(&mut self) -> StorageResult<()> {
        let bytes = self.output.flush().await?;
        self.making.written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    async fn finish(mut self, clears: &Clears) -> StorageResult<Table> {
        self.close_block();
        let sealing = (self.front.header.seed(), self.front.cipher.key());
        let mut number = self.footer.blocks as u32;
        let mut place = self.output.place();
        let compression = self.making.compression;
        let filter = Filter::of(&self.hashes).encode();
        let index = std::mem::take(&mut self.index).finish(&self.last_key);
        let clears = encode_clears(clears);
        let mut footer = self.footer;
        for (kind, body, at, compression) in [
            (Kind::Clears, &clears, &mut footer.clears_at, compression),
            (Kind::Filter, &filter, &mut footer.filter_at, Compression::None),
            (Kind::Index, &index, &mut footer.index_at, compression),
        ] {
            *at = place;
            let (out, at) = (&mut self.output.out, (kind, number));
            place += push_block(out, sealing, at, body, compression, |_| 0) as u64;
            number += 1;
        }
        footer.footer_at = place;
        let body = footer.encode(&self.front.bytes);
        push_block(
            &mut self.output.out,
            sealing,
            (Kind::Footer, number),
            &body,
            Compression::None,
            |_| 0,
        );
        self.flush().await?;
        if !planted!("tables are not synced") {
            self.output.file().sync_all().await?;
        }
        let Front { header, cipher, .. } = self.front;
        let parts = decode_parts((header, cipher), footer, &clears, &filter, &index)
            .map_err(|flaw| damage(self.output.file(), flaw, footer.clears_at))?;
        let len = self.output.written();
        let footer_len = parts.header.footer_len() as u64;
        assert_eq!(len, footer.footer_at + footer_len, "a table ends behind its footer");
        let (file, out) = self.output.into_parts();
        self.making.spare.give(out, self.hashes);
        Ok(Table::new(parts, file, len, &self.making.graveyard))
    }
}

fn encode_clears(clears: &Clears) -> Vec<u8> {
    let mut body = Vec::new();
    push_number(&mut body, clears.len() as u64);
    for (begin, end) in clears.iter() {
        push_bytes(&mut body, begin);
        push_bytes(&mut body, end);
    }
    body
}

/// Makes the tables of a run, one behind the other.
pub(crate) struct RunWriter {
    making: Arc<Making>,
    version: Version,
    level: u32,
    clears: Clears,
    /// From here on the cleared ranges belong to the table that is being written.
    from: Vec<u8>,
    current: Option<TableWriter>,
    tables: Vec<Table>,
    begun: Vec<u64>,
}

impl RunWriter {
    /// Begins a run of which nothing is newer than `version`, with what it clears below itself.
    pub fn new(making: &Arc<Making>, version: Version, level: u32, clears: Clears) -> Self {
        assert!(level <= DEEPEST, "there is no level {level}");
        assert!(clears.are_sound(), "cleared ranges of a run ascend");
        Self {
            making: making.clone(),
            version,
            level,
            clears,
            from: Vec::new(),
            current: None,
            tables: Vec::new(),
            begun: Vec::new(),
        }
    }

    /// Whether a row can be pushed at once; else [`RunWriter::make_room`] is to be awaited first.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.current.as_ref().is_some_and(|table| {
            table.output.out.len() < PORTION && table.len() < self.making.table_bytes
        })
    }

    /// Writes out what has gathered. `next` is the key of the row to come.
    pub async fn make_room(&mut self, next: &[u8]) -> StorageResult<()> {
        if let Some(table) = &mut self.current {
            if table.len() < self.making.table_bytes {
                return table.flush().await;
            }
            self.close(Some(next)).await?;
        }
        let table = TableWriter::begin(&self.making, self.version, self.level).await?;
        self.begun.push(table.front.header.id);
        self.current = Some(table);
        Ok(())
    }

    /// Adds a row, or a removed key; keys ascend.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.current.as_mut().expect("room was made").push(key, value);
    }

    async fn close(&mut self, next: Option<&[u8]>) -> StorageResult<()> {
        let Some(table) = self.current.take() else { return Ok(()) };
        assert!(next.is_none_or(|next| *next > self.from[..]), "tables of a run ascend");
        let clears = self.clears.clipped(&self.from, next);
        self.tables.push(table.finish(&clears).await?);
        self.from = next.unwrap_or_default().to_vec();
        Ok(())
    }

    /// The tables, durable but for their names, which a sync of the directory makes so.
    pub async fn finish(&mut self) -> StorageResult<Vec<Arc<Table>>> {
        if self.current.is_none() && self.tables.is_empty() && !self.clears.is_empty() {
            self.make_room(&[]).await?;
        }
        self.close(None).await?;
        Ok(std::mem::take(&mut self.tables).into_iter().map(Arc::new).collect())
    }

    /// Removes what was written of a run that can't be finished.
    pub async fn abandon(self) {
        for id in self.begun {
            // The room it took is wanted; whatever can't be removed now goes at the next start.
            let _ = self.making.env.files().remove(table_path(&self.making.dir, id)).await;
        }
    }
}
