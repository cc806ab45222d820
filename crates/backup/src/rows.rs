//! Files of rows: one block after the other, each with all rows between two keys.
//!
//! ```text
//!   block:  begin | end | key length, value length, key, value | ...      keys ascend, from begin on and below end
//! ```
//! A block begins where the one before ends, so a row that is missing shows.

use crate::format::{BlockKind, FileBuilder, FileReader, damaged};
use bytes::Bytes;
use plinth_format::{push_bytes, push_number, take, take_bytes, take_number};
use plinth_types::{KeyRange, Result, Rows, RowsBuilder, printable};

/// All rows between two keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The keys that it speaks of: what it has no row for isn't there.
    pub range: KeyRange,
    /// The rows.
    pub rows: Rows,
}

/// Adds the rows of a range as a block. `scratch` is a buffer to be used again.
pub(crate) fn push(
    file: &mut FileBuilder,
    begin: &[u8],
    end: &[u8],
    rows: &Rows,
    scratch: &mut Vec<u8>,
) {
    scratch.clear();
    scratch.reserve(rows.data_len() + 4 * rows.len() + begin.len() + end.len() + 8);
    push_bytes(scratch, begin);
    push_bytes(scratch, end);
    for (key, value) in rows.iter() {
        push_number(scratch, key.len() as u64);
        push_number(scratch, value.len() as u64);
        scratch.extend_from_slice(key);
        scratch.extend_from_slice(value);
    }
    file.block(BlockKind::Rows, rows.len() as u32, scratch);
    file.header.count += rows.len() as u64;
}

/// Reads pieces out of a file of rows.
pub(crate) struct PieceReader<'b> {
    file: FileReader<'b>,
    reached: Option<Bytes>,
}

impl<'b> PieceReader<'b> {
    pub fn new(file: FileReader<'b>) -> Self {
        Self { file, reached: None }
    }

    /// The next piece; `None` at the end of the file.
    ///
    /// # Errors
    /// `file_corrupt`, naming file and offset.
    pub fn next(&mut self) -> Result<Option<Piece>> {
        let at = self.file.offset();
        let Some(block) = self.file.next()? else { return Ok(None) };
        let name = &self.file.header.name;
        if block.kind != BlockKind::Rows {
            return Err(damaged(name, at, "kind of a block", 1, block.kind as u8));
        }
        let piece = decode(&block.body, block.count as usize)
            .map_err(|what| damaged(name, at, "rows", "rows that ascend within bounds", what))?;
        let begin = self.reached.replace(piece.range.end.clone());
        if let Some(expected) = begin.filter(|begin| *begin != piece.range.begin) {
            let found = printable(&piece.range.begin);
            return Err(damaged(name, at, "begin of a block", printable(&expected), found));
        }
        Ok(Some(piece))
    }
}

fn decode(body: &[u8], count: usize) -> Result<Piece, String> {
    let mut rest = body;
    let (Some(begin), Some(end)) = (take_bytes(&mut rest), take_bytes(&mut rest)) else {
        return Err("no bounds".into());
    };
    if begin > end {
        return Err(format!("bounds {} and {}", printable(begin), printable(end)));
    }
    let mut rows = RowsBuilder::with_capacity(count.min(rest.len()), rest.len());
    let mut last: Option<&[u8]> = None;
    while !rest.is_empty() {
        let row =
            take_row(&mut rest).ok_or_else(|| format!("{} bytes that are no row", rest.len()))?;
        if row.0 < begin || row.0 >= end || last.is_some_and(|last| last >= row.0) {
            return Err(format!("the key {}", printable(row.0)));
        }
        rows.push(row.0, row.1);
        last = Some(row.0);
    }
    if rows.len() != count {
        return Err(format!("{} rows instead of {count}", rows.len()));
    }
    let range = KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
    Ok(Piece { range, rows: rows.finish() })
}

fn take_row<'b>(rest: &mut &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
    let key_len = usize::try_from(take_number(rest)?).ok()?;
    let value_len = usize::try_from(take_number(rest)?).ok()?;
    Some((take(rest, key_len)?, take(rest, value_len)?))
}
