//! What a row of a table holds, wherever it is read or written: text, Arrow, Parquet.

use crate::value::Value;

/// What a row of a table holds besides its series and its time.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Of a point.
    Value(Value),
    /// Of an event.
    Text(Vec<u8>),
}
