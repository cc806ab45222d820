//! The manifest of a snapshot: its ranges and its files. A snapshot counts once its manifest is
//! there, which is put last.
//!
//! Always: its files speak of all keys of its ranges, and those are the ranges of its backup.

use crate::container::{Backup, Snapshot};
use crate::format::{BlockKind, FileReader, Kind, damaged};
use bytes::Bytes;
use plinth_format::{push_bytes, push_number, take_bytes, take_number};
use plinth_types::{KeyRange, Result, Version, printable};

/// Files in a block.
const FILES_IN_BLOCK: usize = 4096;

/// What a snapshot consists of.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Manifest {
    /// The ranges that were asked for, in order, without overlaps.
    pub ranges: Vec<KeyRange>,
    /// Files of rows, in key order; together they speak of all ranges.
    pub files: Vec<RowsFile>,
}

/// A file of rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RowsFile {
    pub name: String,
    /// Its length, and the checksum of all of it.
    pub len: u64,
    pub checksum: u32,
    /// What it speaks of, as it was at `version`.
    pub range: KeyRange,
    pub version: Version,
    pub rows: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

impl Manifest {
    /// The file, times excepted.
    pub fn build(&self, backup: &Backup, name: String) -> crate::format::FileBuilder {
        let mut file = backup.builder(Kind::Manifest, name);
        let mut body = Vec::new();
        push_number(&mut body, self.ranges.len() as u64);
        for range in &self.ranges {
            push_bytes(&mut body, &range.begin);
            push_bytes(&mut body, &range.end);
        }
        file.block(BlockKind::Files, 0, &body);
        for files in self.files.chunks(FILES_IN_BLOCK) {
            body.clear();
            for file in files {
                push_bytes(&mut body, file.name.as_bytes());
                for number in
                    [file.len, file.checksum.into(), file.version as u64, file.rows, file.bytes]
                {
                    push_number(&mut body, number);
                }
                push_bytes(&mut body, &file.range.begin);
                push_bytes(&mut body, &file.range.end);
            }
            file.block(BlockKind::Files, files.len() as u32, &body);
        }
        let versions = || self.files.iter().map(|file| file.version);
        file.header.from = versions().min().unwrap_or_default();
        file.header.to = versions().max().unwrap_or_default();
        file.header.count = self.files.iter().map(|file| file.rows).sum();
        // What people want to know is how much was saved, not how long the list of it is.
        file.header.raw = self.files.iter().map(|file| file.bytes).sum();
        file
    }

    /// The manifest of a snapshot.
    ///
    /// # Errors
    /// `file_corrupt`, naming the file; those of the target.
    pub async fn read(backup: &Backup, snapshot: &Snapshot) -> Result<Self> {
        let bytes = backup.target.get(&snapshot.manifest).await?;
        let file = backup.reader(&bytes, &snapshot.manifest, Kind::Manifest)?;
        if file.header != snapshot.header {
            return Err(damaged(
                &snapshot.manifest,
                0,
                "header",
                "the same as when it was listed",
                "another",
            ));
        }
        let manifest = Self::decode(file)?;
        // Another program may have put it; a part must not be taken for the whole.
        backup.check_is_of(backup.database(), &manifest.ranges)?;
        Ok(manifest)
    }

    pub fn decode(mut file: FileReader<'_>) -> Result<Self> {
        let name = file.header.name.clone();
        let mut manifest = Self::default();
        let mut is_first = true;
        loop {
            let at = file.offset();
            let Some(block) = file.next()? else { break };
            let mut rest = &*block.body;
            let taken = match std::mem::take(&mut is_first) {
                true => take_ranges(&mut rest, &mut manifest.ranges),
                false => (0..block.count).try_for_each(|_| {
                    manifest.files.push(take_file(&mut rest)?);
                    Some(())
                }),
            };
            if taken.is_none() || !rest.is_empty() || block.kind != BlockKind::Files {
                let found = format!("{} bytes of something else", rest.len());
                return Err(damaged(&name, at, "list of files", "ranges, then files", found));
            }
        }
        manifest.check(&name)?;
        Ok(manifest)
    }

    /// Whether the files speak of the ranges, all of them.
    fn check(&self, name: &str) -> Result<()> {
        let mut files = self.files.iter().peekable();
        for range in &self.ranges {
            let mut reached = range.begin.clone();
            while reached < range.end {
                match files
                    .next_if(|file| file.range.begin == reached && file.range.end <= range.end)
                {
                    Some(file) if file.range.end > reached => reached = file.range.end.clone(),
                    _ => {
                        let expected = format!("a file that begins at {}", printable(&reached));
                        return Err(damaged(name, 0, "files of the snapshot", expected, "none"));
                    }
                }
            }
        }
        match files.next() {
            None => Ok(()),
            Some(file) => Err(damaged(name, 0, "files of the snapshot", "no more", &file.name)),
        }
    }
}

fn take_ranges(rest: &mut &[u8], ranges: &mut Vec<KeyRange>) -> Option<()> {
    for _ in 0..take_number(rest)? {
        ranges.push(take_range(rest)?);
    }
    Some(())
}

fn take_range(rest: &mut &[u8]) -> Option<KeyRange> {
    let begin = Bytes::copy_from_slice(take_bytes(rest)?);
    Some(KeyRange::new(begin, Bytes::copy_from_slice(take_bytes(rest)?)))
}

fn take_file(rest: &mut &[u8]) -> Option<RowsFile> {
    let name = String::from_utf8(take_bytes(rest)?.to_vec()).ok()?;
    let len = take_number(rest)?;
    let checksum = u32::try_from(take_number(rest)?).ok()?;
    let version = Version::try_from(take_number(rest)?).ok()?;
    let (rows, bytes) = (take_number(rest)?, take_number(rest)?);
    Some(RowsFile { name, len, checksum, range: take_range(rest)?, version, rows, bytes })
}
