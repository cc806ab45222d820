//! A table of SQLite that has the rows of a prefix, kept in step by a stream of changes.
//!
//! ```text
//!   rows      key, value              as they were at the position's version
//!   position  stream, version         one row, written in the transaction that changes the rows
//! ```
//!
//! The stream is acknowledged after SQLite has committed. Stopped in between, the next start goes
//! on from SQLite's position: each change takes effect once, whatever stops when.

use plinth::client::{ChangeBatch, ChangeConsumer};
use plinth::{Database, KeyRange, MutationType, RangeOptions, Version, atomic, strinc};
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use std::path::Path;

/// What goes wrong: Plinth's errors, SQLite's, and words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A SQLite database that follows a stream.
pub struct Mirror {
    db: Database,
    sqlite: Connection,
    stream: u64,
    consumer: ChangeConsumer,
}

impl Mirror {
    /// Goes on where the file is, or begins with a copy.
    pub async fn open(db: &Database, prefix: &[u8], file: &Path) -> Result<Self, Failure> {
        let mut sqlite = Connection::open(file)?;
        sqlite.execute_batch(
            "pragma journal_mode = wal; pragma synchronous = full; pragma busy_timeout = 1000;
             create table if not exists rows (key blob primary key, value blob not null) without rowid;
             create table if not exists position (one integer primary key check (one = 1), stream integer, version integer);",
        )?;
        let known = position(&sqlite)?;
        let (stream, version) = match known {
            Some(known) => known,
            None => copy(db, prefix, &mut sqlite).await?,
        };
        Ok(Self { db: db.clone(), sqlite, stream, consumer: db.resume_changes(stream, version) })
    }

    /// Takes in what comes next, in one transaction. Gives how many changes that were.
    ///
    /// # Errors
    /// Plinth's and SQLite's. The next call goes on from where SQLite is.
    pub async fn step(&mut self) -> Result<usize, Failure> {
        let stepped = self.try_step().await;
        if stepped.is_err()
            && let Some((_, version)) = position(&self.sqlite)?
        {
            // The consumer may be further than SQLite, which didn't take what it gave.
            self.consumer = self.db.resume_changes(self.stream, version);
        }
        stepped
    }

    async fn try_step(&mut self) -> Result<usize, Failure> {
        let changes = self.consumer.next().await?;
        let transaction = self.sqlite.transaction()?;
        for batch in &changes.batches {
            apply(&transaction, batch)?;
        }
        transaction.execute("update position set version = ?1", params![changes.upto])?;
        transaction.commit()?;
        // Plinth may let go of it now. Where that isn't noted, it is the next time.
        self.consumer.acknowledge().await?;
        Ok(changes.batches.iter().map(|batch| batch.mutations.len()).sum())
    }

    /// The version whose rows it has.
    pub fn position(&self) -> Version {
        self.consumer.position()
    }
}

/// The stream that the file follows, and the version whose rows it has.
fn position(sqlite: &Connection) -> rusqlite::Result<Option<(u64, Version)>> {
    let known = sqlite.query_row("select stream, version from position", [], |row| {
        Ok((row.get::<_, i64>(0)? as u64, row.get(1)?))
    });
    known.optional()
}

/// Registers the stream first, so that nothing is missed, then copies the rows at a later version.
async fn copy(
    db: &Database,
    prefix: &[u8],
    sqlite: &mut Connection,
) -> Result<(u64, Version), Failure> {
    let end = strinc(prefix).ok_or("a prefix is wanted that something comes behind")?;
    let name = format!("sqlite/{}", plinth::printable(prefix));
    let range = KeyRange::new(prefix.to_vec(), end);
    let stream = db.register_changes(&name, [range.clone()], None).await?;
    let snapshot = loop {
        let snapshot = db.pin_snapshot().await?;
        // Where a file was lost the stream is there already, and may be further than what can be
        // pinned.
        if snapshot.version() >= stream.registered.max(stream.acknowledged) {
            break snapshot;
        }
        db.endpoint().env().sleep(std::time::Duration::from_millis(100)).await;
    };
    let transaction = sqlite.transaction()?;
    let mut rows = snapshot.range(RangeOptions::from(range.begin..range.end));
    while let Some(row) = rows.next().await {
        let row = row?;
        put(&transaction, &row.key, &row.value)?;
    }
    transaction.execute(
        "insert into position values (1, ?1, ?2)",
        params![stream.id as i64, snapshot.version()],
    )?;
    transaction.commit()?;
    Ok((stream.id, snapshot.version()))
}

fn put(transaction: &Transaction<'_>, key: &[u8], value: &[u8]) -> rusqlite::Result<usize> {
    transaction
        .prepare_cached("insert or replace into rows values (?1, ?2)")?
        .execute(params![key, value])
}

/// What one version of the database has changed.
fn apply(transaction: &Transaction<'_>, batch: &ChangeBatch) -> rusqlite::Result<()> {
    for mutation in &batch.mutations {
        let (key, operand) = (mutation.param1, mutation.param2);
        if mutation.kind == MutationType::ClearRange {
            let clear = "delete from rows where key >= ?1 and key < ?2";
            transaction.prepare_cached(clear)?.execute(params![key, operand])?;
            continue;
        }
        let read = "select value from rows where key = ?1";
        let old: Option<Vec<u8>> = transaction
            .prepare_cached(read)?
            .query_row(params![key], |row| row.get(0))
            .optional()?;
        match atomic::apply(mutation.kind, old.as_deref(), operand) {
            Some(value) => put(transaction, key, &value)?,
            None => transaction
                .prepare_cached("delete from rows where key = ?1")?
                .execute(params![key])?,
        };
    }
    Ok(())
}
