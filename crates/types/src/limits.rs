//! The limits of keys, values and transactions; FoundationDB's, which its bindings and layers count
//! on.

/// Longest key in the normal key space, in bytes.
pub const KEY_SIZE: usize = 10_000;
/// Longest key that begins with `\xff`, in bytes.
pub const SYSTEM_KEY_SIZE: usize = 30_000;
/// Longest value and longest operand of an atomic operation, in bytes.
pub const VALUE_SIZE: usize = 100_000;
/// Largest transaction, in bytes as [`crate::CommitRequest::size`] counts them, unless the size
/// limit option lowers it.
pub const TRANSACTION_SIZE: usize = 10_000_000;
/// Smallest value that the size limit option takes.
pub const MIN_TRANSACTION_SIZE_LIMIT: usize = 32;
/// Bytes from which on a transaction is a large one: it waits beside small ones and not before
/// them, and one whose client goes is taken back while it waits.
pub const LARGE_TRANSACTION: usize = 128 << 10;
/// How many versions back a transaction may read and commit: five seconds.
pub const WINDOW_VERSIONS: i64 = 5_000_000;
/// Most transactions in one batch: the position must fit a versionstamp, and conflict sets stay
/// small.
pub const BATCH_TRANSACTIONS: usize = 32_768;
/// What one reply to a range read may carry, in bytes as rows are accounted (`8 + key + value`).
pub const REPLY_BYTES: usize = 80_000;
/// Watches that one database handle may have outstanding, unless the option says otherwise.
pub const DEFAULT_MAX_WATCHES: usize = 10_000;

/// The longest legal key of the part of the key space that `key` lies in.
pub fn key_size_limit(key: &[u8]) -> usize {
    if key.first() == Some(&0xff) { SYSTEM_KEY_SIZE } else { KEY_SIZE }
}

const _: () = assert!(MIN_TRANSACTION_SIZE_LIMIT < TRANSACTION_SIZE);
const _: () = assert!(BATCH_TRANSACTIONS <= u16::MAX as usize + 1);
