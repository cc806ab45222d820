//! Taking a snapshot: ranges are read at a version, piece by piece, by several workers, into files
//! of rows; the manifest is last.
//!
//! ```text
//!   ranges ──split──▶ work ──▶ worker: read 1 MiB ▸ block ▸ ... 16 MiB: put ──▶ files ──▶ manifest
//! ```
//! The version is a pinned one, which stays readable for as long as it takes. Where nobody else can
//! write (a directory that this process has opened for the backup alone) any version will do, since
//! all have the same rows.
//!
//! Always: a snapshot that has a manifest is whole; what was interrupted has none, and counts for
//! nothing.

use crate::container::Backup;
use crate::format::{FileBuilder, Kind};
use crate::manifest::{Manifest, RowsFile};
use crate::ranges::everything;
use crate::{names, rows};
use bytes::Bytes;
use plinth_client::{Database, Endpoint, Filling, PinnedSnapshot, Retries};
use plinth_types::{
    Error, KeyList, KeyRange, KeySelector, KeySpace, RangeRead, Result, Version, key_after,
};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// About how many bytes of rows a read asks for, which become a block.
const BLOCK_BYTES: usize = 1 << 20;
/// About how many bytes of rows a worker takes at a time.
const WORK_BYTES: i64 = 64 << 20;
/// How often it is tried to read on where that failed for a moment.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(200);

/// How a snapshot is taken.
#[derive(Clone)]
pub struct SnapshotSettings {
    /// What is taken, in order and without overlaps; see [`everything`].
    pub ranges: Vec<KeyRange>,
    /// Nobody else can write the database meanwhile.
    pub is_exclusive: bool,
    /// Workers at once.
    pub workers: usize,
    /// About how many bytes of rows a file holds.
    pub file_bytes: u64,
    /// Set it to end early.
    pub stop: Arc<AtomicBool>,
    /// Bytes of rows that are saved so far, for whoever wants to show them.
    pub saved: Arc<AtomicU64>,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self {
            ranges: everything(),
            is_exclusive: false,
            workers: 4,
            file_bytes: 16 << 20,
            stop: Arc::default(),
            saved: Arc::default(),
        }
    }
}

/// What was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotReport {
    /// The version whose rows it has.
    pub version: Version,
    /// Rows.
    pub rows: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Bytes of the files.
    pub stored: u64,
    /// How many those are.
    pub files: usize,
}

/// A version of a database that workers read.
#[derive(Clone)]
enum Source {
    Pinned(PinnedSnapshot),
    Exclusive(Database),
}

impl Source {
    fn endpoint(&self) -> &Arc<dyn Endpoint> {
        match self {
            Self::Pinned(pinned) => pinned.endpoint(),
            Self::Exclusive(db) => db.endpoint(),
        }
    }

    /// What the database was being filled by at a version, if it was.
    async fn filling_at(&self, version: Version) -> Result<Option<Filling>> {
        let endpoint = self.endpoint();
        let mut keys = KeyList::new();
        for key in Filling::KEYS {
            keys.push(key);
        }
        let mut attempts = ATTEMPTS;
        loop {
            match endpoint.get_many(version, KeySpace::System, &keys).await {
                Ok(values) => return Ok(Filling::of(&values)),
                Err(error) if error.is_retryable() && attempts > 0 => attempts -= 1,
                Err(error) => return Err(error),
            }
            endpoint.env().sleep(PAUSE).await;
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a snapshot that has everything committed before this was called.
///
/// # Errors
/// Those of the database and of the target; `client_invalid_operation` for other ranges than the
/// backup's; `database_locked` if the database has a part of what is being restored or migrated
/// into it, which nobody could tell from a whole; `operation_cancelled` if it was stopped. Then
/// there is no snapshot, and what was put is left for `expire`.
pub async fn take_snapshot(
    backup: &Backup,
    db: &Database,
    settings: &SnapshotSettings,
) -> Result<SnapshotReport> {
    backup.needs_key()?;
    backup.check_is_of(backup.database(), &settings.ranges)?;
    let since = read_version(db).await?;
    let source = match settings.is_exclusive {
        true => Source::Exclusive(db.clone()),
        false => Source::Pinned(pin_behind(db, since, &settings.stop).await?),
    };
    let version = match &source {
        Source::Pinned(pinned) => pinned.version(),
        Source::Exclusive(_) => since,
    };
    if let Some(filling) = source.filling_at(version).await? {
        return Err(filling.refusal("the database"));
    }
    let time = backup.env.wall_clock().as_millis() as u64;
    let directory = names::snapshot(version, backup.env.random_u64());
    let work = Arc::new(Work {
        backup: backup.clone(),
        source,
        settings: settings.clone(),
        version,
        time,
        directory,
        waiting: Mutex::default(),
        files: Mutex::default(),
        failure: Mutex::default(),
        numbers: AtomicU32::new(0),
    });
    work.divide().await;
    let workers: Vec<_> = (0..settings.workers.max(1))
        .map(|_| {
            let work = work.clone();
            backup.env.spawn("backup", async move {
                if let Err(error) = work.run().await {
                    lock(&work.failure).get_or_insert(error);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await?;
    }
    if let Some(error) = lock(&work.failure).take() {
        return Err(error);
    }
    work.finish().await
}

/// Reads a version at which everything acknowledged before is visible, whether the database is
/// locked or not.
pub(crate) async fn read_version(db: &Database) -> Result<Version> {
    Retries { attempts: ATTEMPTS, pause: PAUSE }.read_version(db).await
}

/// Pins a version that has everything up to `since`. The engine `ssd` pins what its tables have,
/// some seconds behind: until they have come so far others are pinned and dropped.
async fn pin_behind(db: &Database, since: Version, stop: &AtomicBool) -> Result<PinnedSnapshot> {
    let env = db.endpoint().env().clone();
    loop {
        let pinned = db.pin_snapshot().await?;
        if pinned.version() >= since {
            return Ok(pinned);
        }
        drop(pinned);
        if stop.load(Ordering::Relaxed) {
            return Err(Error::operation_cancelled());
        }
        env.sleep(PAUSE).await;
    }
}

/// What workers share.
struct Work {
    backup: Backup,
    source: Source,
    settings: SnapshotSettings,
    version: Version,
    time: u64,
    directory: String,
    /// Ranges that nobody has taken yet, the last one first.
    waiting: Mutex<Vec<KeyRange>>,
    files: Mutex<Vec<RowsFile>>,
    failure: Mutex<Option<Error>>,
    numbers: AtomicU32,
}

impl Work {
    /// Cuts the ranges into what workers take.
    async fn divide(&self) {
        let mut parts = Vec::new();
        for range in &self.settings.ranges {
            // A guess is all that is wanted: without it one worker takes the whole range.
            let points = self.source.endpoint().split_points(range.clone(), WORK_BYTES).await;
            let mut begin = range.begin.clone();
            for point in points.unwrap_or_default() {
                if begin < point && point < range.end {
                    parts.push(KeyRange::new(std::mem::replace(&mut begin, point.clone()), point));
                }
            }
            parts.push(KeyRange::new(begin, range.end.clone()));
        }
        parts.reverse();
        *lock(&self.waiting) = parts;
    }

    async fn run(&self) -> Result<()> {
        loop {
            let Some(range) = lock(&self.waiting).pop() else { return Ok(()) };
            self.save(range).await?;
        }
    }

    fn check(&self) -> Result<()> {
        if self.settings.stop.load(Ordering::Relaxed) || lock(&self.failure).is_some() {
            return Err(Error::operation_cancelled());
        }
        Ok(())
    }

    /// Reads a range into files.
    async fn save(&self, range: KeyRange) -> Result<()> {
        let mut reached = range.begin.clone();
        let mut scratch = Vec::new();
        while reached < range.end {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let mut file = self.backup.builder(Kind::Rows, names::rows(&self.directory, number));
            let (begin, mut bytes) = (reached.clone(), 0);
            while reached < range.end && bytes < self.settings.file_bytes {
                self.check()?;
                let (rows, end) = self.read(&reached, &range.end).await?;
                rows::push(&mut file, &reached, &end, &rows, &mut scratch);
                bytes += rows.data_len() as u64;
                self.settings.saved.fetch_add(rows.data_len() as u64, Ordering::Relaxed);
                reached = end;
            }
            self.put(file, KeyRange::new(begin, reached.clone()), bytes).await?;
        }
        Ok(())
    }

    async fn put(&self, mut file: FileBuilder, range: KeyRange, bytes: u64) -> Result<()> {
        (file.header.from, file.header.to) = (self.version, self.version);
        (file.header.time_from, file.header.time_to) = (self.time, self.time);
        let (name, rows) = (file.header.name.clone(), file.header.count);
        let contents = file.finish();
        let (len, checksum) = (contents.len() as u64, plinth_format::checksum(&contents));
        self.backup.put(&name, contents).await?;
        let version = self.version;
        lock(&self.files).push(RowsFile { name, len, checksum, range, version, rows, bytes });
        Ok(())
    }

    /// Rows from `begin` on, and the key up to which they are all.
    async fn read(&self, begin: &Bytes, end: &Bytes) -> Result<(plinth_types::Rows, Bytes)> {
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(begin.clone()),
            end: KeySelector::first_greater_or_equal(end.clone()),
            limit: usize::MAX,
            target_bytes: BLOCK_BYTES
                .min(usize::try_from(self.settings.file_bytes).unwrap_or(BLOCK_BYTES))
                .max(1),
            reverse: false,
        };
        let mut attempts = ATTEMPTS;
        loop {
            let version = match &self.source {
                Source::Pinned(_) => self.version,
                Source::Exclusive(db) => read_version(db).await?,
            };
            match self.source.endpoint().get_range(version, KeySpace::System, &read).await {
                Ok(found) => {
                    let last = found.rows.last().filter(|_| found.more);
                    let reached = last.map_or_else(|| end.clone(), |(key, _)| key_after(key));
                    return Ok((found.rows, reached));
                }
                Err(error) if error.is_retryable() && attempts > 0 => attempts -= 1,
                Err(error) => return Err(error),
            }
            self.check()?;
            self.backup.env.sleep(PAUSE).await;
        }
    }

    /// Puts the manifest, which makes a snapshot of the files.
    async fn finish(&self) -> Result<SnapshotReport> {
        let mut files = std::mem::take(&mut *lock(&self.files));
        files.sort_by(|one, other| one.range.cmp(&other.range));
        let manifest = Manifest { ranges: self.settings.ranges.clone(), files };
        let mut file = manifest.build(&self.backup, names::manifest(&self.directory));
        (file.header.from, file.header.to) = (self.version, self.version);
        file.header.time_from = self.time;
        file.header.time_to = self.time;
        let report = SnapshotReport {
            version: self.version,
            rows: file.header.count,
            bytes: manifest.files.iter().map(|file| file.bytes).sum(),
            stored: manifest.files.iter().map(|file| file.len).sum(),
            files: manifest.files.len(),
        };
        let name = file.header.name.clone();
        // Files of a backup that is no longer the one there are none of that one's.
        self.backup.check_is_there().await?;
        self.backup.put(&name, file.finish()).await?;
        Ok(report)
    }
}
