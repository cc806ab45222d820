//! Space on the disk: how much of it is free, how much has to stay so, and what is done before it
//! runs out.
//!
//! ```text
//!   |<-------------------------------- free ------------------------------->|
//!   | need: the next checkpoint,      | reserve | margin |  for new rows    |
//!   | or flush and merge              |  a file |        |                  |
//!                                                ^ below: `Kept`  ^ below a gibibyte: `Low`
//! ```
//!
//! With plenty, the log is let go of when it has grown to a fixed size or to twice the data. On a
//! disk that is small or nearly full that comes too late: there (`Low`) it may take a quarter of
//! what there is for it, and its files are small. What a checkpoint, a flush or a merge will need
//! is kept free (`Kept`): commits that write rows wait for room that is about to be made, and are
//! refused if there is none; those that clear go on, and so does all that makes room.
//!
//! Other programs fill disks too, and leave nothing. So a file is kept, [`RESERVE`], which holds
//! nothing: it is removed when the log can't go on or a checkpoint wouldn't fit, and made again
//! when there is room. Until then its bytes are nobody's.
//!
//! Always: while free space is known, no commit that writes rows is taken that would leave less
//! than `need`; whatever is not known holds nobody back.

use crate::batch_lock::lock;
use crate::failure::{NodeError, NodeResult};
use plinth_env::{Burst, Env, IoError, IoErrorKind, Open, Signal};
use plinth_log::LogView;
use plinth_storage::Reader;
use plinth_types::probe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The file in a database's directory whose only use is the room that it takes.
pub(crate) const RESERVE: &str = "RESERVE";
/// Bytes of that file.
pub(crate) const RESERVE_BYTES: u64 = 4 << 20;
/// Bytes of it that are made in one go.
const STEP: u64 = 256 << 10;
/// With so much beyond what is kept, nobody need care.
const PLENTY: u64 = 1 << 30;
/// With less than this for rows it is told that the disk is low, and on a small one with less than
/// this share of it.
const LOW: u64 = 256 << 20;
const LOW_SHARE: u64 = 4;
/// What commits may write between two looks, besides what they say that they will.
const MARGIN: u64 = 1 << 20;
/// The log may take this share of what there is for it, before it is let go of.
const LOG_SHARE: u64 = 4;
/// The log is not let go of for less.
pub(crate) const LEAST_LOG: u64 = 1 << 20;

/// How much room there is for rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Level {
    /// As much as anybody wants, or it isn't known.
    Plenty,
    /// The log is let go of early.
    Low,
    /// What is left is for what makes room.
    Kept,
}

/// What is known of a disk at one moment, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gauges {
    pub free: u64,
    /// What the next checkpoint takes, or flush and merge.
    pub need: u64,
    /// What of the reserve has yet to be made.
    pub owed: u64,
    /// The log's files.
    pub log: u64,
}

impl Gauges {
    /// What rows may not take: the last of it is for what commits write between two looks.
    fn kept(&self) -> u64 {
        self.need + self.owed + MARGIN
    }

    /// What rows may take, with the margin.
    fn spare(&self) -> u64 {
        self.free.saturating_sub(self.need).saturating_sub(self.owed)
    }

    /// How much room there is for a commit of so many bytes.
    pub fn level(&self, incoming: u64) -> Level {
        match self.spare() {
            spare if spare >= PLENTY => Level::Plenty,
            spare if spare >= MARGIN + 2 * incoming => Level::Low,
            _ => Level::Kept,
        }
    }

    /// How long the log may grow before it is let go of, where `usual` is enough on a large disk.
    pub fn log_bound(&self, usual: u64) -> u64 {
        usual.min((self.spare().saturating_add(self.log) / LOG_SHARE).max(LEAST_LOG))
    }

    /// The part of what the log may take that it has taken.
    fn log_share(&self) -> f64 {
        let all = self.spare().saturating_add(self.log);
        if self.spare() >= PLENTY { 0.0 } else { self.log as f64 / all.max(1) as f64 }
    }
}

/// What a node knows of its disk. Nothing is known of one without a directory.
pub(crate) struct Space {
    env: Env,
    /// The database's directory; `None`: it lives in memory alone.
    root: Option<PathBuf>,
    log: Option<Arc<dyn LogView>>,
    storage: Arc<dyn Reader>,
    /// What makes room.
    pub checkpoint: Checkpointing,
    free: AtomicU64,
    need: AtomicU64,
    /// With less for rows the disk is low.
    low: AtomicU64,
    level: AtomicU8,
    is_reserved: AtomicBool,
    wishes: Wishes,
    told: Told,
}

/// How it stands with checkpoints.
#[derive(Default)]
pub(crate) struct Checkpointing {
    /// Why the last one could not be written, if so.
    trouble: Mutex<Option<NodeError>>,
    /// Wakes the task that writes them.
    pub due: Signal,
}

impl Checkpointing {
    /// Why the last one could not be written, if so.
    pub fn trouble(&self) -> Option<NodeError> {
        lock(&self.trouble).clone()
    }

    /// One was written, or could not be. Whether that is another end than the one before had.
    pub fn note(&self, failed: Option<&NodeError>) -> bool {
        let before = std::mem::replace(&mut *lock(&self.trouble), failed.cloned());
        before.is_some() != failed.is_some()
    }
}

/// Those who wait for room to be made, counted by the times at which that is tried.
#[derive(Default)]
struct Wishes {
    /// Somebody waits for room, and which time it is.
    asked: AtomicU64,
    /// Up to which time it was tried to make some.
    served: AtomicU64,
    /// How much had been written to the log when that was last tried.
    tried_at: AtomicU64,
    /// When that was, in milliseconds.
    served_at: AtomicU64,
}

impl Wishes {
    fn ask(&self) -> u64 {
        let asked = self.served() + 1;
        self.asked.store(asked, Ordering::Release);
        asked
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire) > self.served()
    }

    fn serve(&self, written: u64, now: Duration) {
        self.tried_at.store(written, Ordering::Relaxed);
        self.served_at.store(now.as_millis() as u64, Ordering::Relaxed);
        self.served.store(self.asked.load(Ordering::Acquire), Ordering::Release);
    }

    fn served(&self) -> u64 {
        self.served.load(Ordering::Acquire)
    }
}

/// What operators have been told of the disk.
#[derive(Default)]
struct Told {
    /// It is full, again and again.
    full: Burst,
    /// That it is low has been told.
    is_low: AtomicBool,
}

impl Told {
    /// Tells that the disk is low or full, and when it isn't any more: once, however often that
    /// changes for a moment.
    fn tell(&self, level: Level, gauges: Gauges, low: u64, now: Duration) {
        let (free, kept) = (gauges.free, gauges.kept());
        let left = free.saturating_sub(kept);
        if level == Level::Kept && self.full.note(1, now) {
            crate::events::disk_full(free, kept);
        }
        if self.full.over(now).is_some() {
            crate::events::disk_has_room(free, kept);
        }
        if left < low && !self.is_low.swap(true, Ordering::Relaxed) {
            crate::events::disk_low(free, kept);
        } else if left > 2 * low {
            self.is_low.store(false, Ordering::Relaxed);
        }
    }
}

const _: () = assert!(RESERVE_BYTES.is_multiple_of(STEP) && RESERVE_BYTES > 2 * MARGIN);

/// Free space that isn't known.
const UNKNOWN: u64 = u64::MAX;

impl Space {
    /// Of a database in this directory, if in any, with this log and these rows. Nothing is known
    /// of the disk before the first look.
    pub fn new(
        env: &Env,
        root: Option<&Path>,
        log: Option<Arc<dyn LogView>>,
        storage: Arc<dyn Reader>,
    ) -> Self {
        Self {
            env: env.clone(),
            root: root.map(Path::to_path_buf),
            log,
            storage,
            checkpoint: Checkpointing::default(),
            free: AtomicU64::new(UNKNOWN),
            need: AtomicU64::new(0),
            low: AtomicU64::new(LOW),
            level: AtomicU8::new(Level::Plenty as u8),
            is_reserved: AtomicBool::new(false),
            wishes: Wishes::default(),
            told: Told::default(),
        }
    }

    /// How much room there was at the last look.
    #[inline]
    pub fn level(&self) -> Level {
        match self.level.load(Ordering::Relaxed) {
            0 => Level::Plenty,
            1 => Level::Low,
            _ => Level::Kept,
        }
    }

    /// Bytes that are free, and bytes that stay so for the node's own use.
    pub fn free_and_kept(&self) -> Option<(u64, u64)> {
        let free = self.free.load(Ordering::Relaxed);
        let kept = || self.need.load(Ordering::Relaxed) + self.owed() + MARGIN;
        (free != UNKNOWN).then(|| (free, kept()))
    }

    /// With less than so many bytes for rows the disk is low.
    pub fn low_bytes(&self) -> u64 {
        self.low.load(Ordering::Relaxed)
    }

    /// How many bytes are free and how many of them kept, if what is left for rows is little.
    pub fn is_low(&self) -> Option<(u64, u64)> {
        let (free, kept) = self.free_and_kept()?;
        (free < kept + self.low.load(Ordering::Relaxed)).then_some((free, kept))
    }

    fn owed(&self) -> u64 {
        if self.is_reserved.load(Ordering::Relaxed) { 0 } else { RESERVE_BYTES }
    }

    fn gauges(&self) -> Option<Gauges> {
        let free = self.free.load(Ordering::Relaxed);
        let log = self.log.as_ref().map_or(0, |log| log.disk_bytes());
        (free != UNKNOWN).then(|| Gauges {
            free,
            need: self.storage.room_to_work(),
            owed: self.owed(),
            log,
        })
    }

    /// The part of what the log may take that it has taken, for the rate at which transactions
    /// begin.
    pub fn pressure(&self) -> f64 {
        match self.level() {
            Level::Plenty => 0.0,
            Level::Kept => 1.0,
            Level::Low => self.gauges().map_or(0.0, |gauges| gauges.log_share()),
        }
    }

    /// How long the log may grow before it is let go of.
    pub fn log_bound(&self, usual: u64) -> u64 {
        self.gauges().map_or(usual, |gauges| gauges.log_bound(usual))
    }

    /// Whether nobody has tried to make room since the start, nor asked for some.
    pub fn is_untried(&self) -> bool {
        self.wishes.served() == 0 && !self.is_asked()
    }

    /// Whether there is hope that room can be made: it would fit, and there is something in the
    /// log, to which so much was `written`, that was not there when it was last tried.
    pub fn may_help(&self, written: u64) -> bool {
        let new = match &self.log {
            Some(log) if self.wishes.served() == 0 => log.bytes(),
            _ => written - self.wishes.tried_at.load(Ordering::Relaxed),
        };
        new >= LEAST_LOG / 4 && self.fits()
    }

    /// Whether what makes room would fit, now or with the reserve.
    pub fn fits(&self) -> bool {
        let reserve = RESERVE_BYTES - self.owed();
        self.gauges().is_none_or(|gauges| gauges.free + reserve >= gauges.need)
    }

    /// Whether it fits without the reserve.
    pub fn fits_at_once(&self) -> bool {
        self.gauges().is_none_or(|gauges| gauges.free >= gauges.need)
    }

    /// Looks at the disk: how much room there is for a commit of so many bytes.
    pub async fn look(&self, incoming: u64) -> Level {
        let Some(root) = &self.root else { return Level::Plenty };
        let room = self.env.files().room(root).await.ok();
        self.free.store(room.map_or(UNKNOWN, |room| room.free), Ordering::Relaxed);
        let low = room.map_or(LOW, |room| LOW.min(room.size / LOW_SHARE));
        self.low.store(low, Ordering::Relaxed);
        let Some(gauges) = self.gauges() else { return Level::Plenty };
        self.need.store(gauges.need, Ordering::Relaxed);
        if let Some(log) = &self.log {
            log.keep_free(gauges.kept());
        }
        let level = gauges.level(incoming);
        // What a large commit finds is no state of the disk.
        let lasting = gauges.level(0);
        if self.level.swap(lasting as u8, Ordering::Relaxed) != lasting as u8 {
            self.checkpoint.due.notify();
        }
        self.told.tell(lasting, gauges, low, self.env.now());
        level
    }

    /// Asks for room to be made. Gives which time this is.
    pub fn ask(&self) -> u64 {
        let asked = self.wishes.ask();
        self.checkpoint.due.notify();
        asked
    }

    /// Whether somebody asks for room.
    pub fn is_asked(&self) -> bool {
        self.wishes.is_asked()
    }

    /// It was tried, with or without success, when so much had been written to the log.
    pub fn serve(&self, written: u64) {
        self.wishes.serve(written, self.env.now());
    }

    /// Whether it was tried less than this ago, whoever asked for it.
    pub fn was_served_within(&self, span: Duration, now: Duration) -> bool {
        let at = Duration::from_millis(self.wishes.served_at.load(Ordering::Relaxed));
        !at.is_zero() && now < at + span
    }

    /// Panics if what must hold between two calls doesn't.
    pub fn check_invariants(&self) {
        let (asked, served) = (self.wishes.asked.load(Ordering::Acquire), self.wishes.served());
        assert!(served <= asked, "room was made {served} times, and asked for {asked} times");
        assert!(self.root.is_some() || self.free_and_kept().is_none(), "a disk without files");
    }

    /// Whether the time that [`Space::ask`] gave has been tried.
    pub fn is_served(&self, asked: u64) -> bool {
        self.wishes.served() >= asked
    }

    /// Something met with a full disk that must go on: rows are taken no more, and the reserve is
    /// let go of. Whether trying again may help.
    pub async fn met_full_disk(&self) -> bool {
        self.level.store(Level::Kept as u8, Ordering::Relaxed);
        let Some(path) = self.reserve_path() else { return false };
        if !self.is_reserved.swap(false, Ordering::Relaxed) {
            return false;
        }
        probe!("pipeline: reserve on the disk let go of");
        let removed = self.env.files().remove(&path).await;
        crate::events::reserve_used(RESERVE_BYTES);
        removed.is_ok()
    }

    /// Makes the reserve, if there isn't one and there is room for it. For one caller.
    pub async fn keep_reserve(&self) {
        let Some(path) = self.reserve_path().filter(|_| self.owed() > 0) else { return };
        let files = self.env.files();
        let whole = async {
            let file = files.open(&path, Open::Create).await?;
            if file.len().await? < RESERVE_BYTES {
                let room =
                    self.gauges().map_or(0, |gauges| gauges.free.saturating_sub(gauges.need));
                if room < RESERVE_BYTES + 2 * MARGIN {
                    return Err(IoErrorKind::DiskFull.into());
                }
                // In steps, so that no sync of a commit waits behind much.
                for step in 1..=RESERVE_BYTES / STEP {
                    file.allocate(step * STEP).await?;
                    file.sync_data().await?;
                }
                file.sync_all().await?;
            }
            Ok::<_, IoError>(())
        };
        match whole.await {
            Ok(()) => self.is_reserved.store(true, Ordering::Relaxed),
            // A part of it would only take room. What can't be removed is made whole some time.
            Err(_) => drop(files.remove(&path).await),
        }
    }

    fn reserve_path(&self) -> Option<PathBuf> {
        Some(self.root.as_ref()?.join(RESERVE))
    }

    /// Why commits that write rows are refused, be it for the bytes of those that came.
    #[cold]
    pub fn refusal(&self, incoming: u64) -> NodeError {
        let Some((free, kept)) = self.free_and_kept() else {
            return IoError::from(IoErrorKind::DiskFull).into();
        };
        let dir = self.root.as_ref().map(|root| root.display().to_string());
        let wanted = match free > kept {
            true => format!(", and those that came may take {}", 2 * incoming),
            false => String::new(),
        };
        let what = format!(
            "the disk of {} is full: {free} bytes are free, and {kept} are kept for what makes room again{wanted}; until \
             there is room, commits that clear are taken, those that write rows aren't",
            dir.unwrap_or_default()
        );
        IoError::new(IoErrorKind::DiskFull, what).into()
    }
}

/// A database whose disk is full may be opened with what its reserve gives back. Whether it had
/// one.
pub(crate) async fn release_before_opening(
    env: &plinth_env::Env,
    dir: &std::path::Path,
    error: &NodeError,
) -> bool {
    error.is_disk_full() && env.files().remove(dir.join(RESERVE)).await.is_ok()
}

/// The result of something that makes room, tried again with the reserve if the disk was full.
pub(crate) async fn with_reserve<T, F>(space: &Space, mut work: impl FnMut() -> F) -> NodeResult<T>
where
    F: Future<Output = NodeResult<T>>,
{
    match work().await {
        Err(error) if error.is_disk_full() && space.met_full_disk().await => work().await,
        done => done,
    }
}
