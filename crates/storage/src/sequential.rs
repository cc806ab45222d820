//! A file that is written once, from its beginning to its end: tables and checkpoints are.
//!
//! Bytes gather in a buffer and go to the file in portions. Whenever enough of them have been
//! written the file is synced, so that a disk never has to take very much at once while the log's
//! small syncs wait.
//!
//! ## Invariant
//! The file has [`SequentialFile::written`] bytes, and of these `synced` are durable; what
//! [`SequentialFile::out`] has belongs right behind them.

use plinth_env::{File, IoResult};

/// A file that is being written.
pub(crate) struct SequentialFile {
    file: File,
    /// Bytes that the next flush writes.
    pub out: Vec<u8>,
    written: u64,
    synced: u64,
    sync_every: u64,
}

impl SequentialFile {
    /// Begins with what `out` has, in an empty file that is synced after this many bytes.
    pub fn new(file: File, out: Vec<u8>, sync_every: u64) -> Self {
        Self { file, out, written: 0, synced: 0, sync_every }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that are in the file.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Where in the file the next byte that is pushed will be.
    pub fn place(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    /// Writes what has gathered; gives how many bytes that were.
    ///
    /// # Errors
    /// Those of writing and syncing a file.
    pub async fn flush(&mut self) -> IoResult<u64> {
        self.file.write_all_at(self.written, &self.out).await?;
        let bytes = self.out.len() as u64;
        self.written += bytes;
        self.out.clear();
        if self.written - self.synced >= self.sync_every {
            self.file.sync_data().await?;
            self.synced = self.written;
        }
        Ok(bytes)
    }

    /// The file, and the emptied buffer for the next one.
    pub fn into_parts(self) -> (File, Vec<u8>) {
        (self.file, self.out)
    }
}
