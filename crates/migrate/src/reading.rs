//! Reads of one version, whether the database is locked or not, and without a trace.

use crate::sum::Sum;
use plinth_client::{
    Database, Filling, RangeOptions, StreamingMode, Transaction, TransactionOption,
};
use plinth_env::block_on;
use plinth_types::{Bytes, KeyRange, Result, Rows, Version, key_after};

/// Rows of a range at one version.
#[derive(Debug)]
pub(crate) struct Part {
    pub rows: Vec<Rows>,
    pub sum: Sum,
    /// Where the rows that were left begin; the end of the range if none were.
    pub next: Bytes,
}

/// A transaction that reads even while the database is locked, and the place of time series.
pub(crate) fn reader(db: &Database) -> Result<Transaction> {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::ReadSystemKeys)?;
    tr.set_option(TransactionOption::LockAware)?;
    Ok(tr)
}

/// A version at which everything acknowledged before can be read.
pub(crate) fn read_version(db: &Database) -> Result<Version> {
    let tr = reader(db)?;
    loop {
        match tr.get_read_version().wait() {
            Ok(version) => return Ok(version),
            Err(error) => tr.on_error(error).wait()?,
        }
        tr.set_option(TransactionOption::LockAware)?;
    }
}

/// What a database was being filled by at a version, if it was.
pub(crate) fn filling_at(db: &Database, version: Version) -> Result<Option<Filling>> {
    let tr = reader(db)?;
    tr.set_read_version(version);
    block_on(Filling::find(&tr))
}

/// Reads the front of a range, a little more than `most_bytes` of it.
pub(crate) fn read(
    db: &Database,
    version: Version,
    range: &KeyRange,
    most_bytes: u64,
) -> Result<Part> {
    let tr = reader(db)?;
    tr.set_read_version(version);
    let mut part = Part { rows: Vec::new(), sum: Sum::default(), next: range.begin.clone() };
    loop {
        let rest = KeyRange::new(part.next.clone(), range.end.clone());
        let target = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        let ask = RangeOptions::from(rest).mode(StreamingMode::WantAll).target_bytes(target);
        let result = tr.snapshot().get_range(ask).wait()?;
        part.sum = part.sum.with(Sum::of(&result.rows));
        part.next = match result.rows.last() {
            Some((key, _)) if result.more => key_after(key),
            _ => range.end.clone(),
        };
        part.rows.push(result.rows);
        if part.next == range.end || part.sum.bytes >= most_bytes {
            return Ok(part);
        }
    }
}
