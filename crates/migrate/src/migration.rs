//! A migration from beginning to end: taking the destination, rounds, the cut, the comparison, the opening.
//!
//! Whatever fails, the destination stays locked and keeps its record, so that another run goes on; the source is left as it
//! was. Only a migration that has come to its end opens the one and, if asked to, leaves the other locked.

use crate::destination::{self, Destination};
use crate::reading::{read, read_version};
use crate::round::{Work, lock};
use crate::sum::Sum;
use crate::table::Table;
use plinth_client::Database;
use plinth_types::{Bytes, Error, KeyRange, Result, Version, system};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How a migration is done.
#[derive(Clone)]
pub struct Settings {
    /// Nobody else can write the source, as when its directory was opened by this process: nothing has to be proven then.
    pub source_is_exclusive: bool,
    /// Lock the source once most of it has been copied, read all of it again under the lock, and leave it locked: for moving
    /// an application, and for sources written without conflict ranges.
    pub lock_source: bool,
    /// Threads that copy.
    pub workers: usize,
    /// About how many bytes of rows are copied in one transaction.
    pub piece_bytes: u64,
    /// How many bytes the last step may read at one version: what can be read well within five seconds.
    pub cut_bytes: u64,
    /// How often what is copied is proven to be unchanged; well within five seconds.
    pub beat: Duration,
    /// After how many rounds it is given up.
    pub rounds: usize,
    /// Set it to end early; another run goes on from there.
    pub stop: Arc<AtomicBool>,
    /// Told how far it is, from any thread.
    pub watcher: Option<Watcher>,
    /// How often it is told, at most; zero: after every piece.
    pub show_every: Duration,
}

/// Is told how far a migration is.
pub type Watcher = Arc<dyn Fn(&Progress) + Send + Sync>;

impl Default for Settings {
    fn default() -> Self {
        Self {
            source_is_exclusive: false,
            lock_source: false,
            workers: 4,
            piece_bytes: 512 << 10,
            cut_bytes: 32 << 20,
            beat: Duration::from_millis(500),
            rounds: 50,
            stop: Arc::default(),
            watcher: None,
            show_every: Duration::from_millis(200),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("source_is_exclusive", &self.source_is_exclusive)
            .field("lock_source", &self.lock_source)
            .field("workers", &self.workers)
            .field("piece_bytes", &self.piece_bytes)
            .field("cut_bytes", &self.cut_bytes)
            .field("beat", &self.beat)
            .field("rounds", &self.rounds)
            .field("show_every", &self.show_every)
            .finish_non_exhaustive()
    }
}

/// What a migration is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Copying what has not been copied, or has changed since.
    Copying,
    /// Reading the destination and comparing sums.
    Verifying,
}

/// How far a migration is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Into how many pieces the key space is cut by now.
    pub pieces: usize,
    /// How many of them are the same on both sides, as far as is known.
    pub clean_pieces: usize,
    /// Their rows.
    pub copied: Sum,
    /// Bytes of rows read from the source.
    pub bytes_read: u64,
    /// Bytes of rows read from the destination, for comparison.
    pub bytes_verified: u64,
}

/// What a migration did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The source's version that the destination holds.
    pub version: Version,
    /// The rows, the same on both sides.
    pub sum: Sum,
    /// Pieces that an earlier run had copied.
    pub resumed_pieces: usize,
    /// Pieces written by this run; more than there are if some changed meanwhile.
    pub pieces_written: u64,
    /// Rounds until everything was the same at one version.
    pub rounds: usize,
    /// Whether the source has been left locked.
    pub source_is_locked: bool,
}

/// About how much of the source a worker takes at once, while nothing is known of it.
const CUT_BYTES: i64 = 32 << 20;

/// Makes `destination` hold what `source` holds, and gives the version of that.
///
/// `name` is what the source is called in the destination's record: a run goes on from another one's work only if both name
/// the same source.
///
/// # Errors
/// `client_invalid_operation` if the destination isn't empty or is the source itself; `database_locked` if either is locked
/// by somebody else; `unsupported_operation` for tenants; `operation_cancelled` if it was stopped, or another run took over;
/// `timed_out` if the source changes faster than it can be copied; `checksum_failed` if what was written isn't what is read;
/// those of the databases. The destination stays locked then, and a run with the same arguments goes on.
pub fn migrate(source: &Database, destination: &Database, name: &str, settings: &Settings) -> Result<Report> {
    let ids = [source, destination].map(|db| db.endpoint().describe());
    let same = ids[0] == ids[1] && ids[0].cluster_file_path != MEMORY;
    if same || Arc::ptr_eq(source.endpoint(), destination.endpoint()) {
        let detail = "source and destination are the same database";
        return Err(Error::client_invalid_operation().with_detail(detail));
    }
    destination::refuse_tenants(source, "source")?;
    let (destination, known) = Destination::take(destination, name)?;
    let id = destination.id;
    let locked_by_us = is_locked_by(source, &id)?;
    let resumed_pieces = known.len();
    let table = Table::new(&known, &cuts(source));
    let work = Work::new(source, destination, settings, table);
    let result = run(&work, resumed_pieces);
    work.end();
    if result.is_err() && settings.lock_source && !locked_by_us {
        // The application is not to stand still for a copy that was not made.
        unlock(source, &id)?;
    }
    result
}

/// What every database in memory calls its cluster file.
const MEMORY: &str = ":memory:";

/// Where to cut what is not known yet, so that several workers have something to do.
fn cuts(source: &Database) -> Vec<Bytes> {
    // A guess is all that is wanted: without it the copy begins with one worker.
    let points = source.create_transaction().split_points(b"", system::NORMAL_END, CUT_BYTES);
    points.wait().unwrap_or_default()
}

fn run(work: &Arc<Work>, resumed_pieces: usize) -> Result<Report> {
    work.beat()?;
    let beats = (!work.settings.source_is_exclusive).then(|| {
        let beating = work.clone();
        work.source.endpoint().env().spawn("migrate-beat", async move { beating.beat_on() })
    });
    let result = copy(work);
    work.end();
    if let Some(beats) = beats {
        beats.wait()?;
    }
    let (version, rounds) = result?;
    let sum = verify(work, version)?;
    work.destination.finish()?;
    let pieces_written = work.figures.pieces_written.load(Ordering::Relaxed);
    let source_is_locked = work.settings.lock_source;
    Ok(Report { version, sum, resumed_pieces, pieces_written, rounds, source_is_locked })
}

/// Copies until everything is the same at one version; gives that, and the rounds it took.
fn copy(work: &Arc<Work>) -> Result<(Version, usize)> {
    let mut lock_now = work.settings.lock_source;
    for round in 1..=work.settings.rounds {
        work.pass()?;
        if std::mem::take(&mut lock_now) {
            lock_source(&work.source, &work.destination.id)?;
            // Nothing changes any more. What was written without conflict ranges, and so unseen, is found by reading.
            work.beat()?;
            lock(&work.table).suspect_all();
            work.pass()?;
        }
        if let Some(version) = work.cut()? {
            return Ok((version, round));
        }
    }
    let overview = lock(&work.table).overview();
    let detail = format!(
        "after {} rounds {} of {} pieces are still changing faster than they are copied; write less meanwhile, or lock \
         the source for the last round",
        work.settings.rounds,
        overview.pieces - overview.clean,
        overview.pieces
    );
    Err(Error::timed_out().with_detail(detail))
}

fn is_locked_by(db: &Database, id: &destination::Id) -> Result<bool> {
    let value = destination::privileged(db, |tr| tr.snapshot().get(system::DATABASE_LOCKED).wait())?;
    Ok(value.is_some_and(|value| destination::lock_id(&value) == Some(*id)))
}

fn lock_source(db: &Database, id: &destination::Id) -> Result<()> {
    let locked = destination::privileged(db, |tr| match tr.get(system::DATABASE_LOCKED).wait()? {
        Some(value) => Ok(destination::lock_id(&value) == Some(*id)),
        None => {
            destination::lock(tr, id);
            Ok(true)
        }
    })?;
    // Not an error of the transaction: that would be tried again until somebody unlocks it.
    if locked {
        Ok(())
    } else {
        Err(Error::database_locked().with_detail("the source is locked by somebody else"))
    }
}

fn unlock(db: &Database, id: &destination::Id) -> Result<()> {
    destination::privileged(db, |tr| {
        let value = tr.get(system::DATABASE_LOCKED).wait()?;
        if value.is_some_and(|value| destination::lock_id(&value) == Some(*id)) {
            tr.clear(system::DATABASE_LOCKED);
        }
        Ok(())
    })
}

/// Reads the whole destination and compares it, piece by piece, with what was read from the source.
fn verify(work: &Arc<Work>, version: Version) -> Result<Sum> {
    let mut total = Sum::default();
    let mut unverified = Vec::new();
    for (range, sum) in lock(&work.table).sums() {
        let sum =
            sum.ok_or_else(|| Error::internal_error().with_detail(format!("{range:?} was not copied")))?;
        total = total.with(sum);
        unverified.push((range, sum));
    }
    // The last comes first.
    unverified.reverse();
    *lock(&work.unverified) = unverified;
    work.in_parallel("verify", verify_pieces)?;
    let verified = work.figures.bytes_verified.load(Ordering::Relaxed);
    if verified != total.bytes {
        let detail = format!(
            "{verified} bytes of the destination were compared, of {} at version {version}",
            total.bytes
        );
        return Err(Error::internal_error().with_detail(detail));
    }
    Ok(total)
}

fn verify_pieces(work: &Work) -> Result<()> {
    let db = &work.destination.db;
    loop {
        work.check()?;
        let Some((range, expected)) = lock(&work.unverified).pop() else { return Ok(()) };
        verify_piece(db, &range, expected)?;
        work.figures.bytes_verified.fetch_add(expected.bytes, Ordering::Relaxed);
        work.show(Phase::Verifying);
    }
}

fn verify_piece(db: &Database, range: &KeyRange, expected: Sum) -> Result<()> {
    let found = loop {
        // The destination is locked and ours: it is the same at any version.
        match read(db, read_version(db)?, range, u64::MAX) {
            Ok(part) => break part.sum,
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error),
        }
    };
    if found == expected {
        return Ok(());
    }
    let detail = format!("the destination has {found} in {range:?}; the source has {expected} there");
    Err(Error::checksum_failed().with_detail(detail))
}
