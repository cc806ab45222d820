//! A migration from beginning to end: taking the destination, rounds, the cut, the comparison, the
//! opening.
//!
//! Whatever fails, the destination stays locked and keeps its record, so that another run goes on;
//! the source is left as it was. Only a migration that has come to its end opens the one and, if
//! asked to, leaves the other locked.

use crate::destination::{self, Destination, Hands};
use crate::naming::Naming;
use crate::progress::{Phase, Settings};
use crate::reading::{read, read_version};
use crate::round::{Work, lock};
use crate::sum::Sum;
use crate::table::Table;
use plinth_client::{Database, Description, Filling};
use plinth_env::block_on;
use plinth_types::{Bytes, Error, KeyRange, Result, Version, system};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// Whether two descriptions are of one database, as far as they tell: of two clients by one file
/// one may have heard of other coordinators than the other.
fn are_one(one: &Description, other: &Description) -> bool {
    match (&*one.cluster_file_path, &*other.cluster_file_path) {
        (MEMORY, _) => false,
        ("", _) => one == other,
        (path, other) => path == other,
    }
}

/// Makes `destination` hold what `source` holds, and gives the version of that.
///
/// `name` is what the source is called in the destination's record: a run goes on from another
/// one's work only if both name the same source.
///
/// # Errors
/// `client_invalid_operation` if the destination isn't empty or is the source itself;
/// `database_locked` if either is locked by somebody else, or has a part of something that is being
/// brought into it; `unsupported_operation` for tenants;
/// `operation_cancelled` if it was stopped, or another run took over; `timed_out` if the source
/// changes faster than it can be copied; `checksum_failed` if what was written isn't what is read;
/// those of the databases. The destination stays locked then, and a run with the same arguments
/// goes on.
pub fn migrate(
    source: &Database,
    destination: &Database,
    name: &str,
    settings: &Settings,
) -> Result<Report> {
    let same = are_one(&source.endpoint().describe(), &destination.endpoint().describe());
    if same || Arc::ptr_eq(source.endpoint(), destination.endpoint()) {
        let detail = "source and destination are the same database";
        return Err(Error::client_invalid_operation().with_detail(detail));
    }
    destination::refuse_tenants(source, "source")?;
    if let Some(filling) = block_on(Filling::now(source))? {
        return Err(filling.refusal("the source"));
    }
    let naming = Naming::of(source, destination)?;
    let (destination, known) = Destination::take(destination, name, naming)?;
    let id = destination.id;
    let locked_by_us = is_locked_by(source, &id)?;
    let resumed_pieces = known.len();
    let spaces = &destination.naming.spaces;
    let table = Table::new(&known, &cuts(source, spaces), spaces);
    let work = Work::new(source, destination, settings, table);
    let result = run(&work, resumed_pieces);
    work.end();
    if result.is_err() {
        // The application is not to stand still for a copy that was not made. Whoever has taken
        // over has the same lock, and may have told that the source takes no writes; of what was
        // given up nobody else knows any more, whoever has locked it.
        let is_to_be_unlocked = match work.destination.hands().unwrap_or(Hands::Ours) {
            Hands::Ours => settings.lock_source && !locked_by_us,
            Hands::Anothers => false,
            Hands::Nobodys => true,
        };
        if is_to_be_unlocked {
            unlock(source, &id)?;
        }
    }
    result
}

/// What every database in memory calls its cluster file.
const MEMORY: &str = ":memory:";

/// Where to cut what is not known yet, so that several workers have something to do.
fn cuts(source: &Database, spaces: &[KeyRange]) -> Vec<Bytes> {
    // A guess is all that is wanted: without it the copy begins with one worker.
    let points = |space: &KeyRange| {
        source.endpoint().split_points(space.clone(), CUT_BYTES).wait().unwrap_or_default()
    };
    spaces.iter().flat_map(points).collect()
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
            // Not for nobody: it may have been given up.
            work.destination.check()?;
            lock_source(&work.source, &work.destination.id)?;
            // Nothing changes any more. What was written without conflict ranges, and so unseen, is
            // found by reading.
            work.beat()?;
            lock(&work.table).suspect_all();
            work.pass()?;
        }
        if let Some(version) = work.cut()? {
            return Ok((version, round));
        }
        work.check()?;
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
    let value =
        destination::privileged(db, |tr| tr.snapshot().get(system::DATABASE_LOCKED).wait())?;
    Ok(value.is_some_and(|value| destination::lock_id(&value) == Some(*id)))
}

fn lock_source(db: &Database, id: &destination::Id) -> Result<()> {
    let locked =
        destination::privileged(db, |tr| match tr.get(system::DATABASE_LOCKED).wait()? {
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
        let sum = sum.ok_or_else(|| {
            Error::internal_error().with_detail(format!("{range:?} was not copied"))
        })?;
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
    loop {
        work.check()?;
        let Some((range, expected)) = lock(&work.unverified).pop() else { return Ok(()) };
        verify_piece(&work.destination, &range, expected)?;
        work.figures.bytes_verified.fetch_add(expected.bytes, Ordering::Relaxed);
        work.show(Phase::Verifying);
    }
}

fn verify_piece(destination: &Destination, range: &KeyRange, expected: Sum) -> Result<()> {
    let (db, naming) = (&destination.db, &destination.naming);
    let place = naming.range(range);
    let sum_of = |rows: &plinth_types::Rows| Sum::of(&naming.rows_back(range, rows));
    let found = loop {
        // The destination is locked and ours: it is the same at any version.
        match read(db, read_version(db)?, &place, u64::MAX) {
            Ok(part) => {
                break part.rows.iter().fold(Sum::default(), |sum, rows| sum.with(sum_of(rows)));
            }
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error),
        }
    };
    // Behind the read: whoever has given it up meanwhile may have cleared it, which is no damage.
    destination.check()?;
    if found == expected {
        return Ok(());
    }
    let detail =
        format!("the destination has {found} in {range:?}; the source has {expected} there");
    Err(Error::checksum_failed().with_detail(detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_database_is_known_by_its_file_whomever_its_clients_have_heard_of() {
        let described = |path: &str, connection: &str| Description {
            cluster_file_path: path.into(),
            connection_string: connection.into(),
            ..Description::default()
        };
        let (three, two) = ("a:b@1:1,2:2,3:3", "a:b@1:1,2:2");
        for (one, other, expected) in [
            (described("f", three), described("f", two), true),
            (described("f", three), described("g", three), false),
            (described("", three), described("", three), true),
            (described("", three), described("", two), false),
            (described(MEMORY, ""), described(MEMORY, ""), false),
        ] {
            assert_eq!(are_one(&one, &other), expected, "{one:?} and {other:?}");
        }
    }
}
