//! Which keys are copied, and what they are called in the destination.
//!
//! All keep their names but those of time series, whose place in a database of Plinth's is among
//! the system's keys, and in a FoundationDB among the normal ones. Into a FoundationDB they go
//! under the names that they have there. What comes from one stays where it is: a database of
//! Plinth's moves it to its place when its series are opened for the first time.

use plinth_client::{Database, RangeOptions, TransactionOption};
use plinth_types::system::{NORMAL_END, SERIES_END, SERIES_LAYER_PREFIX, SERIES_PREFIX};
use plinth_types::{Bytes, Error, KeyRange, Result, Rows, strinc};

/// The spaces of a source that are copied, and whether the names of time series change.
pub(crate) struct Naming {
    /// In order, and apart.
    pub spaces: Vec<KeyRange>,
    renames: bool,
}

/// Whether time series have a place of their own there.
pub(crate) fn has_place(db: &Database) -> bool {
    db.endpoint().series_prefix() == SERIES_PREFIX
}

fn normal() -> KeyRange {
    KeyRange::new("", NORMAL_END)
}

fn place() -> KeyRange {
    KeyRange::new(SERIES_PREFIX, SERIES_END)
}

/// What has to be empty in a destination.
pub(crate) fn spaces_of(destination: &Database) -> Vec<KeyRange> {
    if has_place(destination) { vec![normal(), place()] } else { vec![normal()] }
}

impl Naming {
    /// How a source is copied to a destination.
    ///
    /// # Errors
    /// `client_invalid_operation` if a source has rows of users where its series would go; those of
    /// reading.
    pub fn of(source: &Database, destination: &Database) -> Result<Self> {
        match (has_place(source), has_place(destination)) {
            (false, _) => Ok(Self { spaces: vec![normal()], renames: false }),
            (true, true) => Ok(Self { spaces: vec![normal(), place()], renames: false }),
            (true, false) => Self::into_layer(source),
        }
    }

    /// Into normal keys.
    fn into_layer(source: &Database) -> Result<Self> {
        let (begin, end) = (Bytes::from_static(SERIES_LAYER_PREFIX), layer_end());
        let taken = any(source, &KeyRange::new(begin.clone(), end.clone()))?;
        if taken && any(source, &place())? {
            let detail = "time series go to the keys that begin with the tuple (\"plinth.series\",), as everywhere on a \
                          FoundationDB, and the source has rows of others there: move those away";
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        if taken {
            // Series that have not been moved to their place yet are where they have to go.
            return Ok(Self { spaces: vec![normal()], renames: false });
        }
        let before = KeyRange::new("", begin);
        let behind = KeyRange::new(end, NORMAL_END);
        Ok(Self { spaces: vec![before, behind, place()], renames: true })
    }

    fn is_renamed(&self, range: &KeyRange) -> bool {
        self.renames && range.begin[..] >= *SERIES_PREFIX
    }

    /// A range of the source as it is called in the destination.
    pub fn range(&self, range: &KeyRange) -> KeyRange {
        if !self.is_renamed(range) {
            return range.clone();
        }
        let end = match range.end.strip_prefix(SERIES_PREFIX) {
            Some(rest) => [SERIES_LAYER_PREFIX, rest].concat().into(),
            None => layer_end(),
        };
        KeyRange::new(renamed(&range.begin, SERIES_PREFIX, SERIES_LAYER_PREFIX), end)
    }

    /// Rows of a range of the source as they are called in the destination.
    pub fn rows(&self, range: &KeyRange, rows: &Rows) -> Rows {
        self.with_prefix(range, rows, SERIES_PREFIX, SERIES_LAYER_PREFIX)
    }

    /// Rows of the destination as they are called in this range of the source.
    pub fn rows_back(&self, range: &KeyRange, rows: &Rows) -> Rows {
        self.with_prefix(range, rows, SERIES_LAYER_PREFIX, SERIES_PREFIX)
    }

    fn with_prefix(&self, range: &KeyRange, rows: &Rows, from: &[u8], to: &[u8]) -> Rows {
        if !self.is_renamed(range) {
            return rows.clone();
        }
        let mut named = Rows::builder();
        rows.iter().for_each(|(key, value)| named.push(&renamed(key, from, to), value));
        named.finish()
    }
}

fn renamed(key: &[u8], from: &[u8], to: &[u8]) -> Bytes {
    [to, key.strip_prefix(from).unwrap_or(key)].concat().into()
}

fn layer_end() -> Bytes {
    strinc(SERIES_LAYER_PREFIX).unwrap_or_default()
}

/// Whether there are any rows in a range.
fn any(db: &Database, range: &KeyRange) -> Result<bool> {
    let tr = db.create_transaction();
    loop {
        tr.set_option(TransactionOption::LockAware)?;
        tr.set_option(TransactionOption::ReadSystemKeys)?;
        match tr.snapshot().get_range(RangeOptions::from(range.clone()).limit(1)).wait() {
            Ok(found) => return Ok(!found.rows.is_empty()),
            Err(error) => tr.on_error(error).wait()?,
        }
    }
}
