//! Reading a segment file: records one after the other, or any that can be found.
//!
//! A [`Scanner`] reads ahead in large pieces and hands bodies out as slices of them, so that a body
//! is copied once, from the file. It judges each record by its own checksums alone; whether it is
//! the one that belongs there is the business of [`Link`](crate::link::Link). The length in a
//! header is believed only once the header's checksum has been compared.
//!
//! What lies behind the last record is mostly zeros, made ahead of need: a whole block of them is
//! told at a glance.

use plinth_env::File;
use plinth_format::{Cipher, Flaw};
use plinth_types::Bytes;

use crate::failure::LogResult;
use crate::format::{
    ALIGNMENT, Body, RECORD_HEADER_LEN, RecordHeader, body_checksum, sealed_about, unseal,
};
use crate::segment::Segment;

/// How much is read at once. A record that crosses its end is read again with the next piece.
const CHUNK: u64 = 512 << 10;
/// Zeros are passed over in blocks of this many bytes.
const ZEROS: usize = 4096;
/// How far the search for a header goes on behind the beginning of a block of zeros: one that began
/// before that would have its kind, the last byte of it that is not zero, in the block.
const STRIDE: usize = (ZEROS - RECORD_HEADER_LEN).next_multiple_of(ALIGNMENT as usize);

/// What a search for a header came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// A header that can be read, and where it begins.
    Header(u64, RecordHeader),
    /// There is none. The last byte that is not zero ends here; where the search began if all are.
    End(u64),
}

impl Search {
    /// The header that was found.
    pub(crate) fn header(self) -> Option<(u64, RecordHeader)> {
        match self {
            Self::Header(at, header) => Some((at, header)),
            Self::End(_) => None,
        }
    }
}

/// Reads one segment file up to a limit.
pub(crate) struct Scanner {
    file: File,
    seed: u32,
    cipher: Cipher,
    limit: u64,
    /// The piece read last, and where in the file it begins.
    chunk: Bytes,
    chunk_start: u64,
    /// A planted bug: bodies are believed whatever their checksum.
    gullible: bool,
    /// A body with a right checksum was not what its key has sealed. No write that was cut short
    /// leaves that.
    is_forged: bool,
}

impl Scanner {
    /// Reads a segment up to `limit`.
    pub(crate) fn of(segment: &Segment, limit: u64, gullible: bool) -> Self {
        let Segment { file, seed, cipher, .. } = segment;
        Self { cipher: cipher.clone(), ..Self::new(file.clone(), *seed, limit, gullible) }
    }

    /// Reads `file`, in which nothing is sealed, up to `limit`. Records begin their checksums with
    /// `seed`.
    fn new(file: File, seed: u32, limit: u64, gullible: bool) -> Self {
        let (cipher, chunk) = (Cipher::Clear, Bytes::new());
        Self { file, seed, cipher, limit, chunk, chunk_start: 0, gullible, is_forged: false }
    }

    /// Whether it has met a body that somebody else than its writer has made.
    pub(crate) fn is_forged(&self) -> bool {
        self.is_forged
    }

    /// Lets more of the file be read. What lay beyond the old limit has not been looked at.
    pub(crate) fn raise_limit(&mut self, limit: u64) {
        assert!(limit >= self.limit);
        self.limit = limit;
    }

    /// The record at `offset`, if there is one whose checksums are right, and whose body its key
    /// opens.
    pub(crate) async fn record(
        &mut self,
        offset: u64,
    ) -> LogResult<Result<(RecordHeader, Body), Flaw>> {
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
            let flaw = Flaw::new(
                "length of a record's body",
                wanted,
                format_args!("{} bytes", body.len()),
            );
            return Ok(Err(flaw));
        }
        let computed = body_checksum(self.seed, &body);
        if computed != header.body_checksum && !self.gullible {
            let flaw = Flaw::hex("checksum of a record's body", header.body_checksum, computed);
            return Ok(Err(flaw));
        }
        let opened = unseal(&self.cipher, sealed_about(&record), body);
        self.is_forged |= opened.is_err();
        Ok(opened.map(|body| (header, body)))
    }

    async fn header(&mut self, offset: u64) -> LogResult<Result<RecordHeader, Flaw>> {
        let bytes = self.bytes(offset, RECORD_HEADER_LEN as u64).await?;
        let Ok(bytes) = <&[u8; RECORD_HEADER_LEN]>::try_from(&bytes[..]) else {
            let found = format_args!("{} bytes", bytes.len()).to_string();
            return Ok(Err(Flaw::new("a record's header", RECORD_HEADER_LEN, found)));
        };
        Ok(RecordHeader::decode(bytes, self.seed))
    }

    /// The first place from `offset` on with a readable header, whatever became of its body.
    pub(crate) async fn find_header(&mut self, offset: u64) -> LogResult<Search> {
        let mut at = offset.next_multiple_of(ALIGNMENT);
        let mut last = offset;
        loop {
            let piece = self.bytes(at, CHUNK).await?;
            let mut skip = 0;
            while let Some(bytes) = piece.get(skip..skip + RECORD_HEADER_LEN) {
                if piece.get(skip..skip + ZEROS).is_some_and(is_zero) {
                    skip += STRIDE;
                    continue;
                }
                let bytes: &[u8; RECORD_HEADER_LEN] =
                    bytes.try_into().expect("as long as a header");
                if RecordHeader::is_plausible(bytes)
                    && let Ok(header) = RecordHeader::decode(bytes, self.seed)
                {
                    return Ok(Search::Header(at + skip as u64, header));
                }
                skip += ALIGNMENT as usize;
            }
            if let nonzero @ 1.. = nonzero_len(&piece) {
                last = last.max(at + nonzero as u64);
            }
            if skip == 0 {
                return Ok(Search::End(last));
            }
            at += skip as u64;
        }
    }

    /// The `len` bytes at `offset`, fewer where the file or the limit ends.
    pub(crate) async fn bytes(&mut self, offset: u64, len: u64) -> LogResult<Bytes> {
        let end = (offset + len).min(self.limit).max(offset);
        let chunk_end = self.chunk_start + self.chunk.len() as u64;
        if offset < self.chunk_start || end > chunk_end {
            self.fill(offset, (end - offset).max(CHUNK)).await?;
        }
        let from =
            usize::try_from(offset - self.chunk_start).unwrap_or(usize::MAX).min(self.chunk.len());
        let to =
            from + usize::try_from(end - offset).unwrap_or(usize::MAX).min(self.chunk.len() - from);
        Ok(self.chunk.slice(from..to))
    }

    async fn fill(&mut self, offset: u64, len: u64) -> LogResult<()> {
        let len = usize::try_from(len.min(self.limit.saturating_sub(offset))).unwrap_or(usize::MAX);
        // Fresh memory costs more than what is read into it: where nobody kept a body, the piece
        // before is used again.
        let before = std::mem::take(&mut self.chunk);
        let mut buffer = before.try_into_mut().unwrap_or_default();
        buffer.resize(len, 0);
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(offset + filled as u64, &mut buffer[filled..]).await? {
                0 => break,
                read => filled += read,
            }
        }
        buffer.truncate(filled);
        (self.chunk, self.chunk_start) = (buffer.freeze(), offset);
        Ok(())
    }
}

/// Whether all bytes are zero. Without a branch for each, so that they are looked at many at a
/// time.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

/// The bytes up to and with the last that is not zero.
fn nonzero_len(bytes: &[u8]) -> usize {
    let end =
        bytes.rchunks(ZEROS).take_while(|block| is_zero(block)).map(<[u8]>::len).sum::<usize>();
    let rest = &bytes[..bytes.len() - end];
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |place| place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Kind;
    use plinth_env::{Env, Open, block_on};

    const SEED: u32 = 7;

    fn header() -> [u8; RECORD_HEADER_LEN] {
        let mut header = RecordHeader {
            checksum: 0,
            body_checksum: 0,
            body_len: 0,
            before: 1,
            term: 1,
            sequence: 9,
            index: 3,
            version: 5,
            previous: 5,
            committed: 4,
            opening: 1,
            unsure: 1,
            kind: Kind::State,
        };
        header.encode(SEED)
    }

    /// A header is found wherever it begins among zeros, and the end of what is not zero is told.
    #[test]
    fn a_header_is_found_at_every_place_near_the_ends_of_blocks_of_zeros() {
        let env = Env::real();
        let len = 3 * ZEROS;
        block_on(async {
            let dir = env.files().temporary_dir("plinth-scan").await.unwrap();
            let file = env.files().open(dir.path().join("segment"), Open::Truncate).await.unwrap();
            let near_an_end =
                |place: &usize| (place + 2 * RECORD_HEADER_LEN) % ZEROS < 3 * RECORD_HEADER_LEN;
            let places =
                (0..=len - RECORD_HEADER_LEN).step_by(ALIGNMENT as usize).filter(near_an_end);
            for place in places {
                let mut bytes = vec![0; len];
                bytes[place..place + RECORD_HEADER_LEN].copy_from_slice(&header());
                file.write_all_at(0, &bytes).await.unwrap();
                let mut scanner = Scanner::new(file.clone(), SEED, len as u64, false);
                let found = scanner.find_header(0).await.unwrap().header();
                assert_eq!(found.map(|(at, _)| at), Some(place as u64));
                // Behind the header are zeros alone.
                let behind = (place + RECORD_HEADER_LEN) as u64;
                assert_eq!(scanner.find_header(behind).await.unwrap(), Search::End(behind));
                // What can't be read is no header, but its bytes count up to its kind.
                let mut scanner = Scanner::new(file.clone(), SEED + 1, len as u64, false);
                assert_eq!(scanner.find_header(0).await.unwrap(), Search::End(place as u64 + 73));
            }
        });
    }

    #[test]
    fn the_last_byte_that_is_not_zero_is_found_at_every_place() {
        for len in [0, 1, 7, ZEROS - 1, ZEROS, ZEROS + 1, 2 * ZEROS + 5] {
            assert_eq!(nonzero_len(&vec![0; len]), 0, "{len}");
            for place in 0..len {
                let mut bytes = vec![0; len];
                bytes[place] = 1;
                assert_eq!(nonzero_len(&bytes), place + 1, "{len}");
                bytes[0] = 1;
                assert_eq!(nonzero_len(&bytes), place + 1, "{len}");
            }
        }
    }
}
