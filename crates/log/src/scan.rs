//! Reading a segment file: records one after the other, or any that can be found.
//!
//! A [`Scanner`] reads ahead in large pieces and hands bodies out as slices of them, so that a body
//! is copied once, from the file. It judges each record by its own checksums alone; whether it is
//! the one that belongs there is the business of [`Link`](crate::link::Link). The length in a header
//! is believed only once the header's checksum has been compared.

use plinth_env::File;
use plinth_types::{Bytes, Result};

use crate::format::{ALIGNMENT, RECORD_HEADER_LEN, RecordHeader, body_checksum};
use crate::problem::Flaw;

/// How much is read at once.
const CHUNK: u64 = 256 << 10;

/// Reads one segment file up to a limit.
pub(crate) struct Scanner {
    file: File,
    seed: u32,
    limit: u64,
    /// The piece read last, and where in the file it begins.
    chunk: Bytes,
    chunk_start: u64,
    /// A planted bug: bodies are believed whatever their checksum.
    gullible: bool,
}

impl Scanner {
    /// Reads `file` up to `limit`. Records begin their checksums with `seed`.
    pub(crate) fn new(file: File, seed: u32, limit: u64, gullible: bool) -> Self {
        Self { file, seed, limit, chunk: Bytes::new(), chunk_start: 0, gullible }
    }

    /// Lets more of the file be read. What lay beyond the old limit has not been looked at.
    pub(crate) fn raise_limit(&mut self, limit: u64) {
        debug_assert!(limit >= self.limit);
        self.limit = limit;
    }

    /// The record at `offset`, if there is one whose checksums are right.
    pub(crate) async fn record(&mut self, offset: u64) -> Result<Result<(RecordHeader, Bytes), Flaw>> {
        let header = match self.header(offset).await? {
            Ok(header) => header,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let body_at = offset + RECORD_HEADER_LEN as u64;
        let wanted = u64::from(header.body_len);
        let room = self.limit.saturating_sub(body_at);
        let record = self.bytes(offset, RECORD_HEADER_LEN as u64 + wanted.min(room)).await?;
        let body = record.slice(RECORD_HEADER_LEN.min(record.len())..);
        if (body.len() as u64) < wanted {
            let flaw = Flaw::new("length of a record's body", wanted, format_args!("{} bytes", body.len()));
            return Ok(Err(flaw));
        }
        let computed = body_checksum(self.seed, &[&body]);
        if computed != header.body_checksum && !self.gullible {
            let flaw = Flaw::hex("checksum of a record's body", header.body_checksum, computed);
            return Ok(Err(flaw));
        }
        Ok(Ok((header, body)))
    }

    async fn header(&mut self, offset: u64) -> Result<Result<RecordHeader, Flaw>> {
        let bytes = self.bytes(offset, RECORD_HEADER_LEN as u64).await?;
        let Ok(bytes) = <&[u8; RECORD_HEADER_LEN]>::try_from(&bytes[..]) else {
            let found = format_args!("{} bytes", bytes.len()).to_string();
            return Ok(Err(Flaw::new("a record's header", RECORD_HEADER_LEN, found)));
        };
        Ok(RecordHeader::decode(bytes, self.seed))
    }

    /// The first place from `offset` on with a readable header, whatever became of its body.
    pub(crate) async fn find_header(&mut self, offset: u64) -> Result<Option<(u64, RecordHeader)>> {
        let mut at = offset.next_multiple_of(ALIGNMENT);
        loop {
            let piece = self.bytes(at, CHUNK).await?;
            let mut skip = 0;
            while let Some(bytes) = piece.get(skip..skip + RECORD_HEADER_LEN) {
                let bytes: &[u8; RECORD_HEADER_LEN] = bytes.try_into().expect("as long as a header");
                if RecordHeader::is_plausible(bytes)
                    && let Ok(header) = RecordHeader::decode(bytes, self.seed)
                {
                    return Ok(Some((at + skip as u64, header)));
                }
                skip += ALIGNMENT as usize;
            }
            if skip == 0 {
                return Ok(None);
            }
            at += skip as u64;
        }
    }

    /// The end of the last byte from `offset` on that is not zero; `offset` if there is none.
    pub(crate) async fn last_nonzero(&mut self, offset: u64) -> Result<u64> {
        let (mut at, mut last) = (offset, offset);
        loop {
            let piece = self.bytes(at, CHUNK).await?;
            if piece.is_empty() {
                return Ok(last);
            }
            if let Some(place) = piece.iter().rposition(|byte| *byte != 0) {
                last = at + place as u64 + 1;
            }
            at += piece.len() as u64;
        }
    }

    /// The `len` bytes at `offset`, fewer where the file or the limit ends.
    pub(crate) async fn bytes(&mut self, offset: u64, len: u64) -> Result<Bytes> {
        let end = (offset + len).min(self.limit).max(offset);
        let chunk_end = self.chunk_start + self.chunk.len() as u64;
        if offset < self.chunk_start || end > chunk_end {
            self.fill(offset, (end - offset).max(CHUNK)).await?;
        }
        let from = usize::try_from(offset - self.chunk_start).unwrap_or(usize::MAX).min(self.chunk.len());
        let to = from + usize::try_from(end - offset).unwrap_or(usize::MAX).min(self.chunk.len() - from);
        Ok(self.chunk.slice(from..to))
    }

    async fn fill(&mut self, offset: u64, len: u64) -> Result<()> {
        let len = len.min(self.limit.saturating_sub(offset));
        let mut buffer = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(offset + filled as u64, &mut buffer[filled..]).await? {
                0 => break,
                read => filled += read,
            }
        }
        buffer.truncate(filled);
        (self.chunk, self.chunk_start) = (Bytes::from(buffer), offset);
        Ok(())
    }
}
