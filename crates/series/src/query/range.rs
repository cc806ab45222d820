//! The span of a query.

/// From when to when; backward if `from` lies behind `to`, and `to` is never part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) from: i64,
    pub(crate) to: i64,
}
