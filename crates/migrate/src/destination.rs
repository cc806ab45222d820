//! The destination: locked while it is filled, with a record of how far it is, so that another run
//! goes on.
//!
//! ```text
//!   \xff/dbLocked                              the migration's id
//!   \xff\x02/plinth/migrate/head               format, id of the migration, id of the run, the source's name
//!   \xff\x02/plinth/migrate/piece/BEGIN        sum (32 bytes), END
//!   \xff\x02/plinth/migrated                   how the last one ended: its id, the run's, 1 if it is whole, else 0
//! ```
//!
//! A piece's rows and its record are written in one transaction, so the record never lies. Every
//! transaction reads the head: a run that another one has taken over from notices, and ends. At the
//! end all of it goes, lock included, in one transaction, which notes how it ended: a run that
//! still is at it, or doesn't know whether its own end took effect, finds no head there.
//!
//! Always: a copy is whole only if that is noted. Of a migration of which nothing is known any
//! more, since others have ended behind it, nobody says so.

use crate::naming::{Naming, spaces_of};
use crate::sum::{SUM_BYTES, Sum};
use plinth_client::{
    Database, Filling, MutationType, RangeOptions, Transaction, TransactionOption,
};
use plinth_env::block_on;
use plinth_types::{Bytes, Error, KeyRange, Result, Rows, printable, strinc, system};
use std::collections::BTreeMap;

pub(crate) const HEAD: &[u8] = system::MIGRATION_HEAD;
const PIECES: &[u8] = b"\xff\x02/plinth/migrate/piece/";
/// All that is noted of a migration that isn't done.
const ALL: &[u8] = b"\xff\x02/plinth/migrate/";
/// How the last one ended.
pub(crate) const LAST: &[u8] = b"\xff\x02/plinth/migrated";
const TENANTS: &[u8] = b"\xff\xff/management/tenant/map/";
const FORMAT: u8 = 1;
const ID_BYTES: usize = 16;

/// The id of a migration or of a run of it; the first is also the lock's.
pub(crate) type Id = [u8; ID_BYTES];

/// Pieces that are in the destination already: end and sum by begin.
pub(crate) type Known = BTreeMap<Bytes, (Bytes, Sum)>;

/// A destination taken by this run.
pub(crate) struct Destination {
    pub db: Database,
    pub id: Id,
    /// What is copied, under which names.
    pub naming: Naming,
    head: Vec<u8>,
}

fn encode_head(id: &Id, run: &Id, source: &str) -> Vec<u8> {
    [&[FORMAT][..], id, run, source.as_bytes()].concat()
}

/// The migration's id and the source's name.
pub(crate) fn decode_head(head: &[u8]) -> Result<(Id, String)> {
    let id = head.get(1..=ID_BYTES).and_then(|id| Id::try_from(id).ok());
    match (head.first(), id, head.get(1 + 2 * ID_BYTES..)) {
        (Some(&FORMAT), Some(id), Some(source)) => Ok((id, String::from_utf8_lossy(source).into_owned())),
        _ => Err(Error::unsupported_operation().with_detail(
            "the destination holds a migration begun by another version of this program; finish it with that one",
        )),
    }
}

/// How a migration has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Whole,
    GivenUp,
}

/// What is noted of the end of the migration that has this head.
pub(crate) fn ended(head: &[u8], end: End) -> Vec<u8> {
    let ids = head.get(1..=2 * ID_BYTES).unwrap_or_default();
    [ids, &[u8::from(end == End::Whole)]].concat()
}

/// Removes what is noted of the migration that has this head, but for how it ends.
pub(crate) fn note_end(tr: &Transaction, head: &[u8], end: End) {
    tr.clear_prefix(ALL);
    tr.set(LAST, ended(head, end));
}

/// In whose hands a migration is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hands {
    /// Those of the run that asks.
    Ours,
    /// Another run goes on with it, or has finished it.
    Anothers,
    /// It was given up; or nothing is known of it any more, which comes to the same.
    Nobodys,
}

/// The id in the value of the lock's key.
pub(crate) fn lock_id(value: &[u8]) -> Option<Id> {
    value.get(value.len().checked_sub(ID_BYTES)?..)?.try_into().ok()
}

/// Locks the database of a transaction, as FoundationDB's tools do.
pub(crate) fn lock(tr: &Transaction, id: &Id) {
    let operand = [&b"0123456789"[..], id, &[0; 4]].concat();
    tr.atomic_op(system::DATABASE_LOCKED, operand, MutationType::SetVersionstampedValue);
}

/// Runs a transaction that may do all that an operator may.
pub(crate) fn privileged<T>(
    db: &Database,
    mut body: impl FnMut(&Transaction) -> Result<T>,
) -> Result<T> {
    db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.set_option(TransactionOption::LockAware)?;
        body(tr)
    })
}

fn refuse<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::client_invalid_operation().with_detail(what))
}

/// Refuses databases with tenants: a tenant's keys can be copied, its id, which they begin with,
/// can't be given to another one.
pub(crate) fn refuse_tenants(db: &Database, side: &str) -> Result<()> {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::LockAware)?;
    let found = tr.get_range(RangeOptions::prefix(TENANTS).limit(1)).wait();
    match found {
        Ok(found) if !found.rows.is_empty() => {
            let what = format!(
                "the {side} has tenants, which can't be copied; move their data by an application"
            );
            Err(Error::unsupported_operation().with_detail(what))
        }
        // No such keys: no tenants.
        Err(error) if ![2112, 2113, 2136].contains(&error.code()) => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a destination that has any rows where some are to be written.
fn check_empty(tr: &Transaction, db: &Database) -> Result<()> {
    for space in spaces_of(db) {
        let rows = tr.get_range(RangeOptions::from(space).limit(1)).wait()?.rows;
        if let Some((key, _)) = rows.row(0) {
            let key = printable(key);
            return refuse(format!(
                "the destination is not empty: it has the key {key}; take an empty one"
            ));
        }
    }
    Ok(())
}

/// The pieces that have a record.
pub(crate) fn known(db: &Database) -> Result<Known> {
    let mut known = Known::new();
    let end = strinc(PIECES).unwrap_or_default();
    let mut begin = Bytes::from_static(PIECES);
    loop {
        let range = KeyRange::new(begin.clone(), end.clone());
        let (rows, more) = privileged(db, |tr| {
            let result = tr.snapshot().get_range(RangeOptions::from(range.clone())).wait()?;
            Ok((result.rows, result.more))
        })?;
        for row in rows.key_values() {
            if let Some((sum, end)) = row.value.split_first_chunk::<SUM_BYTES>() {
                let piece = (Bytes::copy_from_slice(end), Sum::decode(sum));
                known.insert(row.key.slice(PIECES.len()..), piece);
            }
        }
        match rows.last() {
            Some((key, _)) if more => begin = plinth_types::key_after(key),
            _ => return Ok(known),
        }
    }
}

/// Takes the lock away.
pub(crate) fn open_to_everybody(tr: &Transaction) {
    tr.clear(system::DATABASE_LOCKED);
    // Whoever caches metadata of a layer reads it again.
    tr.atomic_op(system::METADATA_VERSION, [0; 14], MutationType::SetVersionstampedValue);
}

impl Destination {
    /// Takes the destination: an empty one, or one that an earlier run left unfinished. Gives what
    /// that one has copied.
    ///
    /// # Errors
    /// `client_invalid_operation` if it holds anything else, or an unfinished copy of another
    /// source; `database_locked` if somebody else has locked it; `unsupported_operation` for
    /// tenants.
    pub fn take(db: &Database, source: &str, naming: Naming) -> Result<(Self, Known)> {
        refuse_tenants(db, "destination")?;
        let (mut id, mut run) = ([0; ID_BYTES], [0; ID_BYTES]);
        db.endpoint().env().fill_random(&mut run);
        db.endpoint().env().fill_random(&mut id);
        let head = privileged(db, |tr| {
            let id = match tr.get(HEAD).wait()? {
                Some(head) => {
                    let (id, before) = decode_head(&head)?;
                    if before != source {
                        return refuse(format!(
                            "the destination holds an unfinished copy of {before}, not of {source}; finish that, or \
                             take an empty destination"
                        ));
                    }
                    id
                }
                None => id,
            };
            // Whoever restores into a part of it is aware of locks, and would go on.
            let filling = block_on(Filling::find(tr))?;
            if let Some(filling) = filling.filter(|found| *found != Filling::Migration) {
                return Ok(Err(filling.refusal("the destination")));
            }
            match tr.get(system::DATABASE_LOCKED).wait()? {
                Some(value) if lock_id(&value) == Some(id) => {}
                // Not an error of the transaction: that would be tried again until somebody unlocks
                // it.
                Some(_) => {
                    let detail = "the destination is locked by somebody else";
                    return Ok(Err(Error::database_locked().with_detail(detail)));
                }
                None => {
                    check_empty(tr, db)?;
                    lock(tr, &id);
                }
            }
            let head = encode_head(&id, &run, source);
            tr.set(HEAD, &head);
            Ok(Ok((id, head)))
        });
        let (id, head) = head??;
        let destination = Self { db: db.clone(), id, naming, head };
        let known = known(db)?;
        Ok((destination, known))
    }

    /// Runs a transaction if the destination is still this run's.
    fn guarded<T>(&self, mut body: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        privileged(&self.db, |tr| {
            if tr.get(HEAD).wait()?.as_deref() != Some(&self.head[..]) {
                return Err(Error::operation_cancelled().with_detail(
                    "another run has taken the destination over, or the migration was given up",
                ));
            }
            body(tr)
        })
    }

    /// # Errors
    /// `operation_cancelled` if it isn't this run's any more.
    pub fn check(&self) -> Result<()> {
        self.guarded(|_| Ok(()))
    }

    /// Puts these rows, which are all that the range has, in the place of what it had.
    pub fn write(&self, range: &KeyRange, rows: &[Rows], sum: Sum) -> Result<()> {
        let record = |key: &[u8]| [PIECES, key].concat();
        let place = self.naming.range(range);
        let rows: Vec<Rows> = rows.iter().map(|rows| self.naming.rows(range, rows)).collect();
        self.guarded(|tr| {
            tr.clear_range(&place.begin, &place.end);
            tr.clear_range(record(&range.begin), record(&range.end));
            for (key, value) in rows.iter().flat_map(Rows::iter) {
                // The range as a whole is among the conflict ranges already.
                tr.set_option(TransactionOption::NextWriteNoWriteConflictRange)?;
                tr.set(key, value);
            }
            tr.set(record(&range.begin), [&sum.encode()[..], &range.end].concat());
            Ok(())
        })
    }

    /// Opens the destination to everybody, and removes what is left of the migration.
    ///
    /// # Errors
    /// `operation_cancelled` if another run has taken over.
    pub fn finish(&self) -> Result<()> {
        let finished = self.guarded(|tr| {
            note_end(tr, &self.head, End::Whole);
            open_to_everybody(tr);
            Ok(())
        });
        match finished {
            // The answer to the commit was lost, and it had taken effect: tried again it finds
            // nothing to be done.
            Err(why) if why == Error::operation_cancelled() && self.is_finished()? => Ok(()),
            finished => finished,
        }
    }

    /// Whether this run has finished it.
    fn is_finished(&self) -> Result<bool> {
        let last = privileged(&self.db, |tr| tr.get(LAST).wait())?;
        Ok(last.as_deref() == Some(&ended(&self.head, End::Whole)[..]))
    }

    /// In whose hands the migration is: what another run has locked is no longer this one's to
    /// unlock.
    ///
    /// # Errors
    /// `unsupported_operation` if another version of this program has taken the destination; those
    /// of the database.
    pub fn hands(&self) -> Result<Hands> {
        let (head, last) =
            privileged(&self.db, |tr| Ok((tr.get(HEAD).wait()?, tr.get(LAST).wait()?)))?;
        if head.as_deref() == Some(&self.head[..]) {
            return Ok(Hands::Ours);
        }
        let goes_on = match head {
            Some(head) => decode_head(&head)?.0 == self.id,
            None => false,
        };
        // By whichever run.
        let is_whole = last.is_some_and(|last| last.starts_with(&self.id) && last.ends_with(&[1]));
        Ok(if goes_on || is_whole { Hands::Anothers } else { Hands::Nobodys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth::Local;

    fn take(db: &Database) -> Destination {
        let naming = Naming::of(db, db).unwrap();
        Destination::take(db, "source", naming).unwrap().0
    }

    #[test]
    fn a_lost_answer_to_the_last_commit_is_no_other_run() {
        let db = Local::in_memory().unwrap().into_database();
        let destination = take(&db);
        destination.finish().unwrap();
        assert_eq!(destination.finish(), Ok(()), "as when it is tried again");
    }

    #[test]
    fn who_was_taken_over_knows_it_and_finishes_nothing() {
        let db = Local::in_memory().unwrap().into_database();
        let first = take(&db);
        assert_eq!(first.hands(), Ok(Hands::Ours));
        let second = take(&db);
        assert_eq!((first.hands(), second.hands()), (Ok(Hands::Anothers), Ok(Hands::Ours)));
        assert_eq!(first.finish(), Err(Error::operation_cancelled()));
        second.finish().unwrap();
        assert_eq!(first.hands(), Ok(Hands::Anothers));
        // It would tell of the version that it has copied itself.
        assert_eq!(first.finish(), Err(Error::operation_cancelled()));
        assert_eq!(second.finish(), Ok(()));
    }

    /// A destination without a record and without a lock was taken for a finished one: first
    /// whenever a migration was given up, then if another one had been given up behind it.
    #[test]
    fn who_was_given_up_knows_it_and_finishes_nothing() {
        let db = Local::in_memory().unwrap().into_database();
        take(&db).finish().unwrap();
        let given_up = take(&db);
        assert_eq!(crate::abort(&db), Ok(true));
        for is_next_whole in [None, Some(false), Some(true)] {
            match is_next_whole {
                None => {}
                Some(false) => {
                    take(&db);
                    assert_eq!(crate::abort(&db), Ok(true));
                }
                Some(true) => take(&db).finish().unwrap(),
            }
            assert_eq!(given_up.check(), Err(Error::operation_cancelled()));
            assert_eq!(given_up.finish(), Err(Error::operation_cancelled()));
            assert_eq!(given_up.hands(), Ok(Hands::Nobodys), "it unlocks what it has locked");
            assert_eq!(crate::abort(&db), Ok(false));
        }
    }
}
