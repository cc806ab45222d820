//! A series of a query.

use crate::store::Found;

/// A series, and its place in the rows.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) found: Found,
    pub(crate) line: u32,
    pub(crate) column: usize,
}
