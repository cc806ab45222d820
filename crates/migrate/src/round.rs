//! Rounds: copying what is not clean, keeping proofs fresh meanwhile, and the cut that ends it.
//!
//! Versions are the same for all: `now` is the version up to which everything clean is proven, and
//! at which workers read. A beat moves it on. Nothing but a beat, or a cut while no beat runs,
//! changes a clean piece.

use crate::destination::Destination;
use crate::progress::{Phase, Progress, Settings};
use crate::prover::prove;
use crate::reading::{Part, filling_at, read, read_version};
use crate::sum::Sum;
use crate::table::{State, Table};
use plinth_client::Database;
use plinth_env::block_on;
use plinth_types::{Error, KeyRange, Result, Version};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often a worker reads a piece again whose version was too old, before it gives up.
const READ_ATTEMPTS: usize = 50;

/// What workers, beats and the one that waits for them share.
pub(crate) struct Work {
    pub source: Database,
    pub destination: Destination,
    pub settings: Settings,
    pub table: Mutex<Table>,
    /// One beat or cut at a time.
    beat: Mutex<()>,
    now: AtomicI64,
    /// Why everything ends, if so.
    failure: Mutex<Option<Error>>,
    over: AtomicBool,
    pub figures: Figures,
    /// Pieces whose rows in the destination have yet to be compared with their sums.
    pub unverified: Mutex<Vec<(KeyRange, Sum)>>,
}

/// What is counted.
#[derive(Default)]
pub(crate) struct Figures {
    pub bytes_read: AtomicU64,
    pub pieces_written: AtomicU64,
    pub proofs_lost: AtomicU64,
    pub bytes_verified: AtomicU64,
    /// When progress was shown last, in milliseconds.
    shown: AtomicU64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the version of a read is the reason why it failed, so that another one may do.
fn is_of_version(error: &Error) -> bool {
    *error == Error::transaction_too_old()
        || *error == Error::future_version()
        || error.is_retryable()
}

impl Work {
    pub fn new(
        source: &Database,
        destination: Destination,
        settings: &Settings,
        table: Table,
    ) -> Arc<Self> {
        Arc::new(Self {
            source: source.clone(),
            destination,
            settings: settings.clone(),
            table: Mutex::new(table),
            beat: Mutex::default(),
            now: AtomicI64::new(0),
            failure: Mutex::default(),
            over: AtomicBool::new(false),
            figures: Figures::default(),
            unverified: Mutex::default(),
        })
    }

    /// Ends the beats.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    fn fail(&self, error: Error) {
        lock(&self.failure).get_or_insert(error);
    }

    /// # Errors
    /// Why everything ends; `operation_cancelled` if the user wants it to.
    pub fn check(&self) -> Result<()> {
        if let Some(error) = lock(&self.failure).clone() {
            return Err(error);
        }
        if self.settings.stop.load(Ordering::Relaxed) {
            return Err(Error::operation_cancelled().with_detail("run it again to go on"));
        }
        Ok(())
    }

    /// Tells whoever watches how far it is, now and then.
    pub fn show(&self, phase: Phase) {
        let Some(watcher) = &self.settings.watcher else { return };
        let now = self.source.endpoint().env().now().as_millis() as u64;
        let last = self.figures.shown.load(Ordering::Relaxed);
        let every = self.settings.show_every.as_millis() as u64;
        if now < last.saturating_add(every)
            || self.figures.shown.swap(now, Ordering::Relaxed) != last
        {
            return;
        }
        let overview = lock(&self.table).overview();
        watcher(&Progress {
            phase,
            pieces: overview.pieces,
            clean_pieces: overview.clean,
            copied: overview.clean_sum,
            bytes_read: self.figures.bytes_read.load(Ordering::Relaxed),
            bytes_verified: self.figures.bytes_verified.load(Ordering::Relaxed),
        });
    }

    /// Moves the proofs of all clean pieces on to one version, and takes cleanness from what has
    /// changed.
    pub fn beat(&self) -> Result<()> {
        let guard = lock(&self.beat);
        let result = self.beat_alone();
        drop(guard);
        result
    }

    fn beat_alone(&self) -> Result<()> {
        let clean = lock(&self.table).clean();
        if self.settings.source_is_exclusive || clean.is_empty() {
            self.now.store(read_version(&self.source)?, Ordering::SeqCst);
            return Ok(());
        }
        let mut until = Version::MAX;
        let mut proven = Vec::new();
        for (from, pieces) in clean {
            match prove(&self.source, from, &pieces) {
                Ok(proof) => {
                    until = until.min(proof.until);
                    let changed = |piece: &KeyRange| proof.changed.binary_search(piece).is_ok();
                    proven.extend(pieces.into_iter().filter(|piece| !changed(piece)));
                    lock(&self.table).suspect(&proof.changed);
                }
                Err(error) if error == Error::transaction_too_old() => {
                    self.figures.proofs_lost.fetch_add(pieces.len() as u64, Ordering::Relaxed);
                    lock(&self.table).suspect(&pieces);
                }
                Err(error) => return Err(error),
            }
        }
        if proven.is_empty() {
            until = read_version(&self.source)?;
        }
        // Every piece was read before any of these proofs was committed, so lowering all to the
        // least is right, too.
        lock(&self.table).move_on(&proven, until);
        self.now.store(until, Ordering::SeqCst);
        Ok(())
    }

    /// Beats until the end. Runs on a thread of its own.
    pub fn beat_on(&self) {
        while !self.over.load(Ordering::SeqCst) {
            if let Err(error) = self.beat() {
                self.fail(error);
            }
            block_on(self.source.endpoint().env().sleep(self.settings.beat));
        }
    }

    /// Copies whatever is not clean, each piece once.
    pub fn pass(self: &Arc<Self>) -> Result<()> {
        lock(&self.table).begin_pass();
        self.in_parallel("migrate", Self::copy_pieces)
    }

    /// Runs the same on several threads, and waits for all of them.
    pub fn in_parallel(self: &Arc<Self>, name: &str, run: fn(&Self) -> Result<()>) -> Result<()> {
        let worker = |number: usize| {
            let work = self.clone();
            self.source.endpoint().env().spawn(&format!("{name}-{number}"), async move {
                if let Err(error) = run(&work) {
                    work.fail(error);
                }
            })
        };
        let workers: Vec<_> = (0..self.settings.workers.max(1)).map(worker).collect();
        for worker in workers {
            worker.wait()?;
        }
        self.check()
    }

    fn copy_pieces(&self) -> Result<()> {
        loop {
            self.check()?;
            let Some((range, state)) = lock(&self.table).take() else { return Ok(()) };
            self.copy(range, state)?;
        }
    }

    /// Copies a piece, in several if it has grown too large for one.
    fn copy(&self, mut range: KeyRange, mut state: State) -> Result<()> {
        loop {
            let (part, version) = self.read_now(&range)?;
            let piece = KeyRange::new(range.begin.clone(), part.next.clone());
            let unchanged = piece == range && state == State::Suspect(part.sum);
            if !unchanged {
                self.destination.write(&piece, &part.rows, part.sum)?;
                self.figures.pieces_written.fetch_add(1, Ordering::Relaxed);
            }
            let clean = State::Clean(part.sum, version);
            let more = lock(&self.table).put(&range.begin, &piece.end, clean);
            self.show(Phase::Copying);
            if !more {
                return Ok(());
            }
            self.check()?;
            range.begin = piece.end;
            state = State::Unread;
        }
    }

    fn read_now(&self, range: &KeyRange) -> Result<(Part, Version)> {
        let mut failure = Error::timed_out();
        for _ in 0..READ_ATTEMPTS {
            let version = self.now.load(Ordering::SeqCst);
            match read(&self.source, version, range, self.settings.piece_bytes) {
                Ok(part) => {
                    self.figures.bytes_read.fetch_add(part.sum.bytes, Ordering::Relaxed);
                    return Ok((part, version));
                }
                Err(error) if is_of_version(&error) => {
                    failure = error;
                    self.check()?;
                    // Nobody else may be beating.
                    self.beat()?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(failure)
    }

    /// Makes everything clean at one version, and gives it; `None` if too much has changed to be
    /// read at once.
    pub fn cut(&self) -> Result<Option<Version>> {
        let guard = lock(&self.beat);
        let overview = lock(&self.table).overview();
        if overview.unread > 0 || overview.suspect_bytes > self.settings.cut_bytes {
            return Ok(None);
        }
        let version = match self.try_cut() {
            Ok(version) => version,
            Err(error) if is_of_version(&error) => None,
            Err(error) => return Err(error),
        };
        drop(guard);
        Ok(version)
    }

    fn try_cut(&self) -> Result<Option<Version>> {
        let version = read_version(&self.source)?;
        // What has begun to be filled since is told, instead of copied as if it were whole.
        if let Some(filling) = filling_at(&self.source, version)? {
            self.fail(filling.refusal("the source"));
            return Ok(None);
        }
        let mut budget = self.settings.cut_bytes.saturating_mul(2);
        let mut parts = Vec::new();
        let unclean = lock(&self.table).unclean();
        if !self.read_at(version, unclean, &mut budget, &mut parts)? {
            return Ok(None);
        }
        let clean = lock(&self.table).clean();
        if !self.settings.source_is_exclusive {
            for (from, pieces) in clean {
                // Committed after `version` was handed out: what is proven is so beyond it.
                let proof = prove(&self.source, from, &pieces)?;
                assert!(
                    proof.until > version,
                    "a commit is later than a version handed out before"
                );
                if !self.read_at(version, proof.changed, &mut budget, &mut parts)? {
                    return Ok(None);
                }
            }
        }
        // From here on the source is not needed any more.
        for (range, part) in parts {
            self.check()?;
            let state = State::Clean(part.sum, version);
            let before = lock(&self.table).sum_of(&range);
            if before != Some(part.sum) {
                self.destination.write(&range, &part.rows, part.sum)?;
                self.figures.pieces_written.fetch_add(1, Ordering::Relaxed);
            }
            lock(&self.table).replace(&range, &[(range.clone(), state)]);
        }
        Ok(Some(version))
    }

    /// Reads these pieces at one version. Gives false if they are too large together.
    fn read_at(
        &self,
        version: Version,
        pieces: Vec<KeyRange>,
        budget: &mut u64,
        parts: &mut Vec<(KeyRange, Part)>,
    ) -> Result<bool> {
        for mut range in pieces {
            loop {
                let part = read(&self.source, version, &range, self.settings.piece_bytes)?;
                let Some(left) = budget.checked_sub(part.sum.bytes) else { return Ok(false) };
                *budget = left;
                self.figures.bytes_read.fetch_add(part.sum.bytes, Ordering::Relaxed);
                let piece = KeyRange::new(range.begin.clone(), part.next.clone());
                range.begin = part.next.clone();
                parts.push((piece, part));
                if range.is_empty() {
                    break;
                }
            }
        }
        Ok(true)
    }
}
