//! Writing a checkpoint while commits go on.
//!
//! The rows come from a snapshot in small helpings, each under its own short pin, so that neither the
//! writer nor the freeing of memory waits for the disk. What is written is synced every few megabytes: a
//! disk that has to take gigabytes at once keeps the log's small syncs waiting.

use super::format::{BLOCK_TARGET, Header, Identity, Kind, Totals, push_block, push_footer, push_row};
use super::{UNFINISHED, file_name};
use crate::{MemoryStorage, Snapshot};
use plinth_env::{Env, File, Open};
use plinth_types::{Bytes, Result, Version, probe};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of rows that are read in one go.
const HELPING: usize = 256 << 10;
/// Bytes that are written in one go.
const PORTION: usize = 1 << 20;

/// How fast a checkpoint may be written.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Bytes a second, on average; `None` for as fast as the disk takes them.
    pub bytes_per_second: Option<u64>,
    /// Sync whenever this many bytes have been written.
    pub sync_every: u64,
}

impl Default for Pace {
    /// As fast as the disk takes them, synced every 8 MiB.
    fn default() -> Self {
        Self { bytes_per_second: None, sync_every: 8 << 20 }
    }
}

/// A checkpoint that is durable.
#[derive(Clone, Debug)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// The version.
    pub version: Version,
    /// What is in it.
    pub totals: Totals,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes the rows of `version` to a file in `dir`, which exists. Once this returns, the file is durable
/// under its name; before, and after an error, the directory has the checkpoints it had. May be dropped at
/// any await.
///
/// # Errors
/// `transaction_too_old` or `future_version` if the version is outside the store's window; those of writing
/// files, of which a full disk is the likely one.
pub async fn write(
    env: &Env,
    dir: &Path,
    identity: Identity,
    store: &MemoryStorage,
    version: Version,
    pace: Pace,
) -> Result<Written> {
    let snapshot = store.snapshot(version)?;
    let name = file_name(version);
    let unfinished = dir.join(format!("{UNFINISHED}{version:016x}"));
    let file = env.files().open(&unfinished, Open::Truncate).await?;
    let header = Header { identity, version, nonce: env.random_u64() };
    let mut writing = Writing::begin(env, file, header, pace);
    let result = writing.all(&snapshot).await;
    if let Err(error) = result {
        probe!("storage: checkpoint given up half-way");
        // The room it took is wanted; that it can't be removed adds nothing to the error.
        let _ = env.files().remove(&unfinished).await;
        return Err(error);
    }
    let path = dir.join(name);
    env.files().rename(&unfinished, &path).await?;
    env.files().sync_dir(dir).await?;
    Ok(Written { path, version, totals: writing.totals, bytes: writing.written })
}

struct Writing {
    env: Env,
    file: File,
    header: Header,
    pace: Pace,
    begun: Duration,
    /// Body of the block that is being filled.
    body: Vec<u8>,
    body_rows: u32,
    blocks: u64,
    totals: Totals,
    /// Whole blocks that are not written yet.
    out: Vec<u8>,
    written: u64,
    synced: u64,
}

impl Writing {
    fn begin(env: &Env, file: File, header: Header, pace: Pace) -> Self {
        let mut out = Vec::with_capacity(PORTION + 2 * BLOCK_TARGET);
        out.extend_from_slice(&header.encode());
        Self {
            env: env.clone(),
            file,
            header,
            pace,
            begun: env.now(),
            body: Vec::with_capacity(BLOCK_TARGET + 4096),
            body_rows: 0,
            blocks: 0,
            totals: Totals::default(),
            out,
            written: 0,
            synced: 0,
        }
    }

    async fn all(&mut self, snapshot: &Snapshot) -> Result<()> {
        let mut from = Some(Bytes::new());
        while let Some(begin) = from {
            from = snapshot.visit(&begin, HELPING, |key, value| self.push(key, value))?;
            if self.out.len() >= PORTION {
                self.flush().await?;
                self.keep_pace().await?;
            }
            self.env.yield_now().await;
        }
        self.close_block();
        push_footer(&mut self.out, &self.header, self.blocks, &self.totals);
        self.flush().await?;
        self.file.sync_all().await
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        push_row(&mut self.body, key, value);
        self.body_rows += 1;
        self.totals.add(key, value);
        if self.body.len() >= BLOCK_TARGET {
            self.close_block();
        }
    }

    fn close_block(&mut self) {
        if self.body_rows == 0 {
            return;
        }
        let (body, rows) = (&self.body, self.body_rows);
        push_block(&mut self.out, self.header.seed(), Kind::Rows, self.blocks, |out| {
            out.extend_from_slice(body);
            rows
        });
        self.blocks += 1;
        self.body_rows = 0;
        self.body.clear();
    }

    async fn flush(&mut self) -> Result<()> {
        self.file.write_all_at(self.written, &self.out).await?;
        self.written += self.out.len() as u64;
        self.out.clear();
        if self.written - self.synced >= self.pace.sync_every {
            self.file.sync_data().await?;
            self.synced = self.written;
        }
        Ok(())
    }

    async fn keep_pace(&self) -> Result<()> {
        if let Some(rate) = self.pace.bytes_per_second {
            let due = self.begun + Duration::from_secs_f64(self.written as f64 / rate.max(1) as f64);
            let ahead = due.saturating_sub(self.env.now());
            if !ahead.is_zero() {
                self.env.sleep(ahead).await;
            }
        }
        Ok(())
    }
}
