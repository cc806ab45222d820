//! What reads and writes count: towards the transaction's size, and as cost.

/// What a mutation counts beyond its two parameters.
pub(super) const MUTATION_OVERHEAD: i64 = 44;
/// What a conflict range counts beyond its two keys.
pub(super) const RANGE_OVERHEAD: i64 = 24;

/// What the conflict range of a single key counts.
#[inline]
pub(super) fn key_range_size(key: &[u8]) -> i64 {
    2 * key.len() as i64 + 1 + RANGE_OVERHEAD
}

/// What reading so many bytes costs.
pub(super) fn read_cost(bytes: usize) -> i64 {
    const PAGE: usize = 4096;
    (bytes.div_ceil(PAGE).max(1) * PAGE) as i64
}

/// What writing so many bytes costs.
pub(super) fn write_cost(bytes: usize) -> i64 {
    4 * read_cost(bytes)
}
