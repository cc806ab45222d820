//! Segment files: their names, how they are made ahead of need, and how they are opened.
//!
//! A file gets the name of a segment only when its header and every byte of its room are durable:
//! it is made under another name, synced, and renamed. From then on writes within it change nothing
//! but contents, so that syncing them touches no metadata. A file that nobody needs any longer is
//! renamed to a spare, and a spare becomes a segment by getting a new header: the header's nonce is
//! part of every record's checksum, so what the file held before can't be read as a record.
//!
//! ```text
//!   segment-<serial>.log    a segment            spare-<serial>.log   room for one
//!   new-<serial>.log        one being made; removed at the next start
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plinth_env::{Env, File, Open};
use plinth_format::crypt::ENVELOPE_LEN;
use plinth_format::{Cipher, Corruption, Flaw, HeaderFlaw, Identity, Keys, hex};

use crate::config::LogConfig;
use crate::failure::{LogError, LogResult};
use crate::format::{HEADER_COPIES, HEADER_LEN, RECORDS_START, SegmentHeader, foreign_format};

/// How much of a new file is written and synced at a time, so that the syncs of commits wait behind
/// little.
const STEP: u64 = 1 << 20;

/// The files of a log's directory, by kind, each sorted by serial.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) segments: Vec<u64>,
    pub(crate) spares: Vec<u64>,
    pub(crate) unfinished: Vec<u64>,
}

impl Directory {
    pub(crate) async fn list(env: &Env, dir: &Path) -> LogResult<Self> {
        let mut found = Self::default();
        for name in env.files().list(dir).await? {
            let kinds = [
                ("segment-", &mut found.segments),
                ("spare-", &mut found.spares),
                ("new-", &mut found.unfinished),
            ];
            for (prefix, serials) in kinds {
                serials.extend(serial_in(&name, prefix));
            }
        }
        for serials in [&mut found.segments, &mut found.spares, &mut found.unfinished] {
            serials.sort_unstable();
        }
        Ok(found)
    }
}

fn serial_in(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(".log")?;
    if digits.len() != 16 { None } else { u64::from_str_radix(digits, 16).ok() }
}

pub(crate) fn segment_path(dir: &Path, serial: u64) -> PathBuf {
    dir.join(format!("segment-{serial:016x}.log"))
}

/// Whether a file in a log's directory has this name because it is a segment, to which records are
/// appended: not one that is yet to become one.
pub fn is_segment(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| serial_in(name, "segment-").is_some())
}

pub(crate) fn spare_path(dir: &Path, serial: u64) -> PathBuf {
    dir.join(format!("spare-{serial:016x}.log"))
}

pub(crate) fn unfinished_path(dir: &Path, serial: u64) -> PathBuf {
    dir.join(format!("new-{serial:016x}.log"))
}

/// An open segment.
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) seed: u32,
    pub(crate) cipher: Cipher,
    /// For reading and writing.
    pub(crate) file: File,
    /// For syncing: one for each sync that may be in flight. The operating system tells a failed
    /// write once to each opening of the file; two syncs that shared one could miss each other's
    /// failure.
    lanes: Mutex<Vec<File>>,
    /// How many readers stand in it.
    readers: AtomicUsize,
}

impl Segment {
    fn new(header: SegmentHeader, cipher: Cipher, file: File) -> Self {
        Self {
            header,
            seed: header.seed(),
            cipher,
            file,
            lanes: Mutex::default(),
            readers: AtomicUsize::new(0),
        }
    }

    /// The path, for messages.
    pub(crate) fn name(&self) -> String {
        self.file.path().display().to_string()
    }

    /// Opens the handles that syncs use. Must come before the first write that they are to cover.
    pub(crate) async fn open_lanes(&self, env: &Env, count: usize) -> LogResult<()> {
        let mut lanes = Vec::with_capacity(count);
        for _ in 0..count {
            lanes.push(env.files().open(self.file.path(), Open::Write).await?);
        }
        *self.lanes.lock().unwrap_or_else(PoisonError::into_inner) = lanes;
        Ok(())
    }

    /// Closes them again, when everything in the segment is durable.
    pub(crate) fn close_lanes(&self) {
        let lanes = std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner));
        drop(lanes);
    }

    /// The handle of one lane.
    pub(crate) fn lane(&self, lane: usize) -> File {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.get(lane).unwrap_or(&self.file).clone()
    }

    pub(crate) fn is_read(&self) -> bool {
        self.readers.load(Ordering::Acquire) > 0
    }
}

/// A reader's hold on a segment: it may keep the segment from being reused.
pub(crate) struct Pin {
    segment: Arc<Segment>,
    holds: bool,
}

impl Pin {
    pub(crate) fn new(segment: Arc<Segment>, holds: bool) -> Self {
        if holds {
            segment.readers.fetch_add(1, Ordering::AcqRel);
        }
        Self { segment, holds }
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if self.holds {
            let readers = self.segment.readers.fetch_sub(1, Ordering::AcqRel);
            assert!(readers > 0, "a segment is let go as often as it was held");
        }
    }
}

/// What a new segment is to be.
pub(crate) struct Wanted {
    pub(crate) identity: Identity,
    pub(crate) log_id: u64,
    pub(crate) serial: u64,
    pub(crate) bytes: u64,
    /// How many handles for syncs it needs.
    pub(crate) lanes: usize,
    /// By these its own key is sealed.
    pub(crate) keys: Keys,
}

impl Wanted {
    pub(crate) fn new(identity: Identity, config: &LogConfig, serial: u64, bytes: u64) -> Self {
        let (log_id, lanes, keys) = (config.log_id, config.syncs_in_flight, config.keys.clone());
        Self { identity, log_id, serial, bytes, lanes, keys }
    }

    /// The header of a new life of a file, its own key, and the block that both stand in.
    fn begin(&self, env: &Env, bytes: u64, recycled: bool) -> (SegmentHeader, Cipher, Vec<u8>) {
        let Self { identity, log_id, serial, .. } = *self;
        let (nonce, sealed) = (env.random_u64(), !self.keys.is_none());
        let header = SegmentHeader { identity, log_id, serial, nonce, bytes, recycled, sealed };
        let random = |bytes: &mut [u8]| env.fill_random(bytes);
        let (cipher, envelope) = self.keys.of_new_file(&header.encode(), header.seed(), random);
        let block = header.encode_block(envelope.as_ref());
        (header, cipher, block)
    }

    /// Makes a segment from nothing. `records` gives its first records, once its seed is known;
    /// while nobody is in a hurry, half of the disk's time is left to others. What was made of it
    /// is removed again if that fails.
    pub(crate) async fn make(
        &self,
        env: &Env,
        dir: &Path,
        records: impl FnOnce(u32, &Cipher) -> Vec<u8>,
        is_urgent: impl Fn() -> bool,
    ) -> LogResult<Segment> {
        let path = unfinished_path(dir, self.serial);
        let (header, cipher, mut block) = self.begin(env, self.bytes, false);
        block.extend_from_slice(&records(header.seed(), &cipher));
        let made = async {
            let file = env.files().open(&path, Open::Truncate).await?;
            file.write_all_at(0, &block).await?;
            let mut len = block.len() as u64;
            while len < self.bytes {
                let began = env.now();
                len = (len + STEP).min(self.bytes);
                file.allocate(len).await?;
                file.sync_data().await?;
                if len < self.bytes && !is_urgent() {
                    env.sleep(env.now().saturating_sub(began)).await;
                }
            }
            file.sync_all().await
        };
        if let Err(error) = made.await {
            // The room is wanted back; that it can't be had adds nothing to the error.
            let _ = env.files().remove(&path).await;
            return Err(error.into());
        }
        self.finish(env, dir, &path, (header, cipher)).await
    }

    /// Makes a segment from a spare file of at least the size wanted.
    pub(crate) async fn recycle(
        &self,
        env: &Env,
        dir: &Path,
        spare: &Path,
        bytes: u64,
    ) -> LogResult<Segment> {
        let file = env.files().open(spare, Open::Write).await?;
        let (header, cipher, block) = self.begin(env, bytes, true);
        file.write_all_at(0, &block).await?;
        file.sync_data().await?;
        self.finish(env, dir, spare, (header, cipher)).await
    }

    async fn finish(
        &self,
        env: &Env,
        dir: &Path,
        path: &Path,
        (header, cipher): (SegmentHeader, Cipher),
    ) -> LogResult<Segment> {
        let name = segment_path(dir, self.serial);
        env.files().rename(path, &name).await?;
        env.files().sync_dir(dir).await?;
        let segment = Segment::new(header, cipher, env.files().open(&name, Open::Write).await?);
        segment.open_lanes(env, self.lanes).await?;
        Ok(segment)
    }
}

/// A segment file as it was found.
pub(crate) struct Found {
    pub(crate) segment: Segment,
    pub(crate) len: u64,
    /// What is wrong with its header although one of the copies is whole, or with its length.
    pub(crate) problems: Vec<Corruption>,
}

/// Opens a segment file and reads its header, and its key if one of these opens it.
///
/// # Errors
/// Outer: the file can't be read, or is of another format. Inner: no copy of the header is whole.
pub(crate) async fn find(
    env: &Env,
    dir: &Path,
    serial: u64,
    (open, keys): (Open, &Keys),
) -> LogResult<Result<Found, Corruption>> {
    let path = segment_path(dir, serial);
    let name = path.display().to_string();
    let file = env.files().open(&path, open).await?;
    let len = file.len().await?;
    let (mut headers, mut problems) = (Vec::new(), Vec::new());
    for copy in HEADER_COPIES {
        match read_copy(&file, copy, keys).await? {
            Ok(header) => headers.push(header),
            Err(HeaderFlaw::Foreign(format)) => return Err(foreign_format(&name, format)),
            Err(HeaderFlaw::Damaged(flaw)) => problems.push(flaw.at(&name, copy)),
        }
    }
    let Some((header, cipher)) = headers.first().cloned() else {
        return Ok(Err(problems.swap_remove(0)));
    };
    if headers.last().is_some_and(|(last, _)| *last != header) {
        let flaw =
            Flaw::new("second copy of the segment's header", "the same as the first", "another");
        problems.push(flaw.at(&name, HEADER_COPIES[1]));
    }
    if header.serial != serial {
        let flaw = Flaw::new("serial number of the segment", serial, header.serial);
        return Ok(Err(flaw.at(&name, 0)));
    }
    if len < header.bytes || len < RECORDS_START {
        let flaw = Flaw::new("length of the file", format_args!("at least {}", header.bytes), len);
        problems.push(flaw.at(&name, len));
    }
    Ok(Ok(Found { segment: Segment::new(header, cipher, file), len, problems }))
}

/// Reads one copy of a header, with the envelope behind it if it has one.
pub(crate) async fn read_copy(
    file: &File,
    copy: u64,
    keys: &Keys,
) -> LogResult<Result<(SegmentHeader, Cipher), HeaderFlaw>> {
    let mut bytes = vec![0; HEADER_LEN + ENVELOPE_LEN];
    let read = file.read_at(copy, &mut bytes).await?;
    bytes.truncate(read);
    let header = match SegmentHeader::decode(&bytes) {
        Ok(header) => header,
        Err(flaw) => return Ok(Err(flaw)),
    };
    if !header.sealed {
        return Ok(Ok((header, Cipher::Clear)));
    }
    let envelope = bytes.get(HEADER_LEN..).unwrap_or_default();
    let cipher = keys.of_file(envelope, &header.encode(), header.seed());
    Ok(cipher.map(|cipher| (header, cipher)).map_err(HeaderFlaw::Damaged))
}

/// The error of opening somebody else's log.
pub(crate) fn check_owner(segment: &Segment, identity: &Identity, log_id: u64) -> LogResult<()> {
    let header = &segment.header;
    let foreign = |what: &str, theirs: &[u8], ours: &[u8]| {
        let (name, theirs, ours) = (segment.name(), hex(theirs), hex(ours));
        Err(LogError::Misused(format!("{name} belongs to {what} {theirs}, not to {ours}")))
    };
    if header.identity.cluster_id != identity.cluster_id {
        return foreign("cluster", &header.identity.cluster_id, &identity.cluster_id);
    }
    if header.identity.node_id != identity.node_id {
        return foreign("node", &header.identity.node_id, &identity.node_id);
    }
    if header.log_id != log_id {
        return foreign("log", &header.log_id.to_be_bytes(), &log_id.to_be_bytes());
    }
    Ok(())
}
