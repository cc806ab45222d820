//! The bytes of a backup's files; `docs/format/backup.md` draws them.
//!
//! ```text
//!   header (in the clear): kind, name, backup, versions, times, counts, lengths | checksum
//!   block                : head (lengths, number, kind, checksum) | body: compressed, then sealed
//!   block ...
//! ```
//! Every file is made whole in memory and put whole, so its header knows how many blocks follow and
//! how long they are: a file that was cut off is no shorter file. The checksum of a block begins
//! with the file's salt, and the header names the file, so neither a block nor a file of another
//! place is taken for the one that belongs there.

mod block;
mod crypt;
mod header;

pub use block::{Block, BlockKind, FileBuilder, FileReader};
pub use crypt::key_of_file;
pub use header::{Header, Kind, MAX_HEADER_LEN};
pub use plinth_format::crypt::Key;

#[cfg(test)]
mod tests;

use plinth_format::Corruption;
use plinth_types::Error;
use std::fmt;

/// What is wrong with a file, in which place.
pub(crate) fn damaged(
    file: &str,
    offset: usize,
    what: &str,
    expected: impl fmt::Display,
    found: impl fmt::Display,
) -> Error {
    let corruption = Corruption {
        file: file.to_owned(),
        offset: offset as u64,
        what: what.to_owned(),
        expected: expected.to_string(),
        found: found.to_string(),
    };
    corruption.into()
}

/// Whether a file can't be read because of what is in it: no other way to it, and no later attempt,
/// gives another answer.
pub(crate) fn is_damage(error: &Error) -> bool {
    *error == Error::file_corrupt() || *error == Error::unsupported_operation()
}
