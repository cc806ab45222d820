//! Writing a checkpoint while commits go on.
//!
//! The rows come from a snapshot in small helpings, each under its own short pin, so that neither
//! the writer nor the freeing of memory waits for the disk.
//!
//! A disk takes one request after the other, so a commit's sync waits for whatever is on its way to
//! the disk at that moment. That is why a checkpoint is written in small steps, each on the disk
//! before the next is begun, with pauses between them: a sync finds at most one step before it, and
//! most find none.

use super::format::{BLOCK_TARGET, Front, Header, Kind, Totals, push_block, push_footer, push_row};
use super::{UNFINISHED, file_name};
use crate::failure::StorageResult;
use crate::sequential::SequentialFile;
use plinth_env::{Env, File, Open};
use plinth_format::Owner;
use plinth_types::{Bytes, LogPosition, probe};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of rows that are read in one go.
const HELPING: usize = 128 << 10;
/// Bytes that are written in one go, and half as many more at times.
const PORTION: usize = 256 << 10;

/// How fast a checkpoint may be written.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Bytes a second at most, also after a pause of the disk's own; `None` for as fast as the disk
    /// takes them.
    pub bytes_per_second: Option<u64>,
    /// Sync whenever this many bytes have been written.
    pub sync_every: u64,
}

impl Default for Pace {
    /// As fast as the disk takes them, each quarter of a megabyte synced before the next is
    /// written.
    fn default() -> Self {
        Self { bytes_per_second: None, sync_every: PORTION as u64 }
    }
}

/// A checkpoint that is durable.
#[derive(Clone, Debug)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// What is in it is everything of this.
    pub at: LogPosition,
    /// What is in it.
    pub totals: Totals,
    /// Bytes of the file.
    pub bytes: u64,
    /// The longest that the disk was kept busy in one go: nobody's sync waited longer for this
    /// checkpoint.
    pub longest_step: Duration,
}

/// What a checkpoint is written from: all rows of one place in the log, which don't change
/// meanwhile.
pub trait Source: Sync {
    /// What the rows are everything of.
    fn at(&self) -> LogPosition;

    /// Visits rows from the first key not below `from` on, system keys too, until their bytes reach
    /// `target`. Gives where to go on; `None` when that were all.
    ///
    /// # Errors
    /// Those of reading the store.
    fn visit(
        &self,
        from: &[u8],
        target: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> StorageResult<Option<Bytes>>;
}

/// Writes the rows of a source to a file in `dir`, which exists. Once this returns, the file is
/// durable under its name; before, and after an error, the directory has the checkpoints it had.
/// May be dropped at any await.
///
/// # Errors
/// Those of writing files, of which a full disk is the likely one.
pub async fn write(
    env: &Env,
    dir: &Path,
    owner: impl Into<Owner>,
    source: &impl Source,
    pace: Pace,
) -> StorageResult<Written> {
    let at = source.at();
    let unfinished = unfinished_path(dir, at);
    let file = env.files().open(&unfinished, Open::Truncate).await?;
    let mut writing = Writing::begin(env, file, (&owner.into(), at), pace);
    let result = writing.all(source).await;
    if let Err(error) = result {
        probe!("storage: checkpoint given up half-way");
        // The room it took is wanted; that it can't be removed adds nothing to the error.
        let _ = env.files().remove(&unfinished).await;
        return Err(error);
    }
    let path = writing.put_in_place(dir).await?;
    let Writing { totals, output, longest_step, .. } = writing;
    Ok(Written { path, at, totals, bytes: output.written(), longest_step })
}

/// The name of a checkpoint while it is being written.
pub(super) fn unfinished_path(dir: &Path, at: LogPosition) -> PathBuf {
    dir.join(format!("{UNFINISHED}{:016x}", at.version))
}

/// A checkpoint that is being written.
pub(super) struct Writing {
    env: Env,
    /// Whole blocks go there.
    output: SequentialFile,
    at: LogPosition,
    front: Front,
    pace: Pace,
    /// When the step that is under way, or the last one, was begun.
    step_begun: Duration,
    longest_step: Duration,
    /// Body of the block that is being filled.
    body: Vec<u8>,
    body_rows: u32,
    blocks: u64,
    totals: Totals,
}

impl Writing {
    /// Begins an empty file.
    pub fn begin(env: &Env, file: File, (owner, at): (&Owner, LogPosition), pace: Pace) -> Self {
        let (identity, sealed) = (owner.identity, !owner.keys.is_none());
        let header = Header { identity, at, nonce: env.random_u64(), sealed };
        let front = Front::new(&header, &owner.keys, |bytes| env.fill_random(bytes));
        let mut out = Vec::with_capacity(PORTION + 2 * BLOCK_TARGET);
        out.extend_from_slice(&front.bytes);
        Self {
            env: env.clone(),
            output: SequentialFile::new(file, out, pace.sync_every),
            at,
            front,
            pace,
            step_begun: env.now(),
            longest_step: Duration::ZERO,
            body: Vec::with_capacity(BLOCK_TARGET + 4096),
            body_rows: 0,
            blocks: 0,
            totals: Totals::default(),
        }
    }

    async fn all(&mut self, source: &impl Source) -> StorageResult<()> {
        let mut from = Some(Bytes::new());
        while let Some(begin) = from {
            from = source.visit(&begin, HELPING, |key, value| self.push(key, value))?;
            assert!(from.as_ref().is_none_or(|next| *next > begin), "rows are visited in order");
            if self.output.out.len() >= PORTION {
                self.keep_pace().await;
                self.flush().await?;
            }
            self.env.yield_now().await;
        }
        self.end().await
    }

    /// What the rows are everything of.
    pub fn at(&self) -> LogPosition {
        self.at
    }

    /// Writes out what has gathered, if it is enough.
    pub async fn flush_if_full(&mut self) -> StorageResult<()> {
        if self.output.out.len() < PORTION {
            return Ok(());
        }
        self.env.yield_now().await;
        self.flush().await
    }

    /// There are no more rows: the file is whole, and durable.
    pub async fn end(&mut self) -> StorageResult<()> {
        self.close_block();
        push_footer(&mut self.output.out, &self.front, self.blocks, &self.totals);
        self.flush().await?;
        self.step_begun = self.env.now();
        self.output.file().sync_all().await?;
        self.end_step();
        Ok(())
    }

    /// Gives the file its name, durably.
    pub async fn put_in_place(&mut self, dir: &Path) -> StorageResult<PathBuf> {
        assert!(self.output.out.is_empty() && self.body_rows == 0, "a checkpoint is named whole");
        let path = dir.join(file_name(self.at.version));
        self.step_begun = self.env.now();
        self.env.files().rename(unfinished_path(dir, self.at), &path).await?;
        self.env.files().sync_dir(dir).await?;
        self.end_step();
        Ok(path)
    }

    /// Adds a row; keys ascend.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
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
        let sealing = self.front.sealing();
        push_block(&mut self.output.out, sealing, Kind::Rows, self.blocks, |out| {
            out.extend_from_slice(body);
            rows
        });
        self.blocks += 1;
        self.body_rows = 0;
        self.body.clear();
    }

    async fn flush(&mut self) -> StorageResult<()> {
        self.step_begun = self.env.now();
        self.output.flush().await?;
        self.end_step();
        Ok(())
    }

    fn end_step(&mut self) {
        self.longest_step = self.longest_step.max(self.env.now().saturating_sub(self.step_begun));
    }

    /// Waits until the next step may begin. What a slow step lost is not caught up with: that would
    /// be a burst.
    async fn keep_pace(&self) {
        if let Some(rate) = self.pace.bytes_per_second {
            let apart = Duration::from_secs_f64(self.output.out.len() as f64 / rate.max(1) as f64);
            let ahead = (self.step_begun + apart).saturating_sub(self.env.now());
            if !ahead.is_zero() {
                self.env.sleep(ahead).await;
            }
        }
    }
}
