//! The bytes of a chunk of rows; `docs/format/chunk.md` describes them.
//!
//! A header that says what the chunk holds and how long it is, then one body, compressed if that
//! helps enough. The header's checksum covers that of the body, so a header belongs to one body
//! alone. Nothing that is read is believed before both checksums were compared, but for the length,
//! which is bounded.

use super::Chunk;
use crate::failure::{StorageError, StorageResult};
use plinth_format::{
    FIELDS, Flaw, Form, HeaderFlaw, checksum, compare, push_bytes, push_number, put, take,
    take_bytes, take_number, u32_at, u64_at, version_at,
};
use plinth_types::{Bytes, LogPosition, Rows, RowsBuilder, printable};

/// The first bytes of every chunk.
pub const MAGIC: [u8; 8] = *b"PLNTHROW";
/// The format that this program reads and writes.
pub const FORMAT: u32 = 1;

const FORM: Form<HEADER_LEN> = Form::new(MAGIC);

const AT_INDEX: usize = FIELDS;
const AT_TERM: usize = AT_INDEX + 8;
const AT_VERSION: usize = AT_TERM + 8;
const AT_ROWS: usize = AT_VERSION + 8;
const AT_STORED: usize = AT_ROWS + 4;
const AT_RAW: usize = AT_STORED + 4;
const AT_COMPRESSION: usize = AT_RAW + 4;
const AT_BODY_CHECKSUM: usize = AT_COMPRESSION + 4;
const AT_CHECKSUM: usize = AT_BODY_CHECKSUM + 4;
/// Bytes of the header.
pub const HEADER_LEN: usize = AT_CHECKSUM + 4;

/// The longest body that is believed, as it is stored and as it was before compression.
pub const MAX_BODY_LEN: usize = 64 << 20;

/// Pieces of a long body by which it is judged whether to compress it, so long that there are
/// several rows in each as a rule.
const SAMPLES: usize = 2;
const SAMPLE_LEN: usize = 4096;

const UNCOMPRESSED: u32 = 0;
const LZ4: u32 = 1;

const _: () = assert!(HEADER_LEN == 64 && AT_INDEX.is_multiple_of(8));

/// How long the chunk is that begins with these bytes, at least [`HEADER_LEN`] of them.
///
/// # Errors
/// As [`decode`].
pub(super) fn length(header: &[u8]) -> StorageResult<usize> {
    Ok(HEADER_LEN + check_header(header)?.stored)
}

struct Lengths {
    stored: usize,
    raw: usize,
}

fn refuse<T>(flaw: Flaw) -> StorageResult<T> {
    Err(flaw.at("chunk of rows", 0).into())
}

fn check_header(bytes: &[u8]) -> StorageResult<Lengths> {
    let header = match FORM.decode(bytes, 0, FORMAT..=FORMAT) {
        Ok((header, _)) => header,
        Err(HeaderFlaw::Foreign(format)) if format > FORMAT => {
            let detail =
                format!("a chunk of rows has format {format}, this program reads up to {FORMAT}");
            return Err(StorageError::NewerFormat(detail.into()));
        }
        Err(HeaderFlaw::Foreign(format)) => {
            return refuse(Flaw::new("format of the chunk", FORMAT, format));
        }
        Err(HeaderFlaw::Damaged(flaw)) => return refuse(flaw),
    };
    let lengths = Lengths {
        stored: u32_at(header, AT_STORED) as usize,
        raw: u32_at(header, AT_RAW) as usize,
    };
    if lengths.stored > MAX_BODY_LEN || lengths.raw > MAX_BODY_LEN {
        let found =
            format_args!("{}, {} before compression", lengths.stored, lengths.raw).to_string();
        return refuse(Flaw::new(
            "length of the body",
            format_args!("at most {MAX_BODY_LEN}"),
            found,
        ));
    }
    Ok(lengths)
}

/// Adds a chunk to `out`.
pub(super) fn encode(chunk: &Chunk, out: &mut Vec<u8>) {
    let begin = out.len();
    let bounds = chunk.begin.len() + chunk.end.len();
    out.reserve(HEADER_LEN + chunk.rows.data_len() + 4 * chunk.rows.len() + bounds + 16);
    out.resize(begin + HEADER_LEN, 0);
    for bound in [&chunk.begin, &chunk.end] {
        push_bytes(out, bound);
    }
    for (key, value) in chunk.rows.iter() {
        push_number(out, key.len() as u64);
        push_number(out, value.len() as u64);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    let raw = out.len() - begin - HEADER_LEN;
    assert!(raw <= MAX_BODY_LEN, "a chunk of {raw} bytes");
    let compression = match compressed(&out[begin + HEADER_LEN..]) {
        Some(shorter) => {
            out.truncate(begin + HEADER_LEN);
            out.extend_from_slice(&shorter);
            LZ4
        }
        None => UNCOMPRESSED,
    };
    let (header, stored) = out[begin..].split_at_mut(HEADER_LEN);
    let encoded = FORM.encode(FORMAT, 0, |header| {
        put(header, AT_INDEX, chunk.at.index.to_le_bytes());
        put(header, AT_TERM, chunk.at.term.to_le_bytes());
        put(header, AT_VERSION, chunk.at.version.to_le_bytes());
        for (at, number) in [
            (AT_ROWS, chunk.rows.len() as u32),
            (AT_STORED, stored.len() as u32),
            (AT_RAW, raw as u32),
            (AT_COMPRESSION, compression),
            (AT_BODY_CHECKSUM, checksum(stored)),
        ] {
            put(header, at, number.to_le_bytes());
        }
    });
    header.copy_from_slice(&encoded);
}

/// A body that is worth its compression: pieces of it become shorter by a quarter. By reckoning, to
/// send less than that takes no longer than to make and unmake it, at a gigabit a second.
fn compressed(body: &[u8]) -> Option<Vec<u8>> {
    let helps = |raw: usize, stored: usize| stored <= raw - raw / 4;
    if body.len() > 2 * SAMPLES * SAMPLE_LEN {
        let mut scratch = [0; lz4_flex::block::get_maximum_output_size(SAMPLE_LEN)];
        let pieces = body.chunks(body.len().div_ceil(SAMPLES));
        let sizes = pieces.filter_map(|piece| {
            let piece = &piece[..SAMPLE_LEN.min(piece.len())];
            lz4_flex::block::compress_into(piece, &mut scratch).ok()
        });
        if !helps(SAMPLES * SAMPLE_LEN, sizes.sum()) {
            return None;
        }
    }
    let shorter = lz4_flex::block::compress(body);
    helps(body.len(), shorter.len()).then_some(shorter)
}

/// The chunk that these bytes are.
///
/// # Errors
/// `Corrupt`, saying what is wrong; `NewerFormat` for a newer format.
pub(super) fn decode(bytes: &[u8]) -> StorageResult<Chunk> {
    let lengths = check_header(bytes)?;
    let (header, stored) = bytes.split_at(HEADER_LEN);
    if stored.len() != lengths.stored {
        return refuse(Flaw::new("length of the body", lengths.stored, stored.len()));
    }
    let told = u32_at(header, AT_BODY_CHECKSUM);
    if let Err(flaw) = compare("checksum of the body", told, checksum(stored)) {
        return refuse(flaw);
    }
    let mut raw = Vec::new();
    let body = match u32_at(header, AT_COMPRESSION) {
        UNCOMPRESSED => stored,
        LZ4 => {
            raw.resize(lengths.raw, 0);
            match lz4_flex::block::decompress_into(stored, &mut raw) {
                Ok(len) => &raw[..len],
                Err(error) => return refuse(Flaw::new("compressed body", "LZ4", error)),
            }
        }
        other => return refuse(Flaw::new("compression of the body", "0 or 1", other)),
    };
    if body.len() != lengths.raw {
        return refuse(Flaw::new("length of the rows", lengths.raw, body.len()));
    }
    let at = LogPosition {
        index: u64_at(header, AT_INDEX),
        term: u64_at(header, AT_TERM),
        version: version_at(header, AT_VERSION),
    };
    decode_body(body, u32_at(header, AT_ROWS) as usize, at)
}

fn decode_body(body: &[u8], count: usize, at: LogPosition) -> StorageResult<Chunk> {
    let mut rest = body;
    let bounds = (take_bytes(&mut rest), take_bytes(&mut rest));
    let (Some(begin), Some(end)) = bounds else {
        return refuse(Flaw::new("bounds of the chunk", "two keys", "less"));
    };
    if at.version < 0 || begin > end {
        let found = format_args!("{} to {} at {}", printable(begin), printable(end), at.version)
            .to_string();
        return refuse(Flaw::new("bounds of the chunk", "a range, at a version", found));
    }
    // As many rows as the header says, but no more than rows of a few bytes would be.
    let mut rows = RowsBuilder::with_capacity(count.min(rest.len() / 16), rest.len());
    let mut last: Option<&[u8]> = None;
    while !rest.is_empty() {
        let Some((key, value)) = take_row(&mut rest) else {
            return refuse(Flaw::new(
                "rows of the chunk",
                "a row",
                format_args!("{} bytes", rest.len()),
            ));
        };
        if key < begin || key >= end || last.is_some_and(|last| last >= key) {
            let expected = "keys that ascend, within the chunk's bounds";
            return refuse(Flaw::new("order of the keys", expected, printable(key)));
        }
        rows.push(key, value);
        last = Some(key);
    }
    let rows: Rows = rows.finish();
    if rows.len() != count {
        return refuse(Flaw::new("number of rows", count, rows.len()));
    }
    Ok(Chunk { at, begin: Bytes::copy_from_slice(begin), end: Bytes::copy_from_slice(end), rows })
}

fn take_row<'b>(rest: &mut &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
    let key_len = usize::try_from(take_number(rest)?).ok()?;
    let value_len = usize::try_from(take_number(rest)?).ok()?;
    Some((take(rest, key_len)?, take(rest, value_len)?))
}

#[cfg(test)]
mod tests;
