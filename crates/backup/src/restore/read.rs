//! Reading the files of a snapshot ahead of whoever takes their rows, in key order.
//!
//! Each file is fetched, checked and decompressed by a task of its own; a few are under way at a
//! time, so that their rows are there when their turn comes.

use super::{Plan, RestoreControl};
use crate::container::Backup;
use crate::format::Kind;
use crate::manifest::RowsFile;
use crate::rows::{Piece, PieceReader};
use bytes::Bytes;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, KeyRange, Result, Rows};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Files under way at a time.
const AHEAD: usize = 4;

/// The pieces of a plan, by file.
pub(crate) struct Pieces<'p> {
    backup: &'p Backup,
    plan: &'p Plan,
    control: &'p RestoreControl,
    next: usize,
    coming: VecDeque<Reply<Vec<Piece>>>,
}

impl<'p> Pieces<'p> {
    pub fn new(backup: &'p Backup, plan: &'p Plan, control: &'p RestoreControl) -> Self {
        Self { backup, plan, control, next: 0, coming: VecDeque::new() }
    }

    /// The pieces of the next file, cut to the ranges of the plan and under their old names; `None`
    /// behind the last one.
    ///
    /// # Errors
    /// `file_corrupt`; `restore_missing_data` for a file that isn't there; `operation_cancelled` if
    /// it was stopped.
    pub async fn next(&mut self) -> Result<Option<Vec<Piece>>> {
        if self.control.stop.load(Ordering::Relaxed) {
            return Err(Error::operation_cancelled());
        }
        while self.coming.len() < AHEAD && self.next < self.plan.files.len() {
            let file = self.plan.files[self.next].clone();
            let (backup, ranges) = (self.backup.clone(), self.plan.ranges.clone());
            let (done, reply) = promise();
            self.next += 1;
            self.coming.push_back(reply);
            drop(self.backup.env.spawn("restore-read", async move {
                done.send(read_pieces(&backup, &file, &ranges).await);
            }));
        }
        let at = self.next - self.coming.len();
        let Some(pieces) = self.coming.pop_front() else { return Ok(None) };
        let pieces = pieces.await?;
        count_left_out(self.control, &self.plan.files[at], &pieces);
        Ok(Some(pieces))
    }
}

/// Counts as done what of a file lies in no range that is restored.
pub(crate) fn count_left_out(control: &RestoreControl, file: &RowsFile, pieces: &[Piece]) {
    let inside: u64 = pieces.iter().map(|piece| piece.rows.data_len() as u64).sum();
    control.restored.fetch_add(file.bytes.saturating_sub(inside), Ordering::Relaxed);
}

/// The whole of a file, which has to be there.
///
/// # Errors
/// `restore_missing_data` if it isn't; those of the target.
pub(crate) async fn fetch(backup: &Backup, name: &str) -> Result<Bytes> {
    backup.target.get(name).await.map_err(|error| {
        if error == Error::file_not_found() {
            let detail = format!("{name} is missing from {}", backup.url());
            return Error::restore_missing_data().with_detail(detail);
        }
        error
    })
}

/// All pieces of a file, cut to these ranges.
pub(crate) async fn read_pieces(
    backup: &Backup,
    file: &RowsFile,
    ranges: &[KeyRange],
) -> Result<Vec<Piece>> {
    let bytes = fetch(backup, &file.name).await?;
    let checksum = plinth_format::checksum(&bytes);
    if (bytes.len() as u64, checksum) != (file.len, file.checksum) {
        let (expected, found) = (file.checksum, checksum);
        let detail = format!(
            "{} at offset 0: the whole file: expected {} bytes with checksum {expected:#010x}, found {} with {found:#010x}",
            file.name,
            file.len,
            bytes.len()
        );
        return Err(Error::file_corrupt().with_detail(detail));
    }
    let mut reader = PieceReader::new(backup.reader(&bytes, &file.name, Kind::Rows)?);
    let (mut pieces, mut reached) = (Vec::new(), file.range.begin.clone());
    while let Some(piece) = reader.next()? {
        reached = piece.range.end.clone();
        cut(piece, ranges, &mut pieces);
    }
    if reached != file.range.end {
        let detail = format!("{} ends at another key than its manifest says", file.name);
        return Err(Error::file_corrupt().with_detail(detail));
    }
    Ok(pieces)
}

/// Adds what of a piece lies in these ranges.
fn cut(piece: Piece, ranges: &[KeyRange], pieces: &mut Vec<Piece>) {
    for range in ranges {
        let begin = range.begin.clone().max(piece.range.begin.clone());
        let end = range.end.clone().min(piece.range.end.clone());
        if begin >= end {
            continue;
        }
        let inner = KeyRange { begin, end };
        if inner == piece.range {
            return pieces.push(piece);
        }
        let mut rows = Rows::builder();
        for (key, value) in piece.rows.iter().filter(|(key, _)| inner.contains(key)) {
            rows.push(key, value);
        }
        pieces.push(Piece { range: inner, rows: rows.finish() });
    }
}
