//! Headers: what a file, or a piece of one, is, before anything of it is believed.
//!
//! ```text
//!   | magic, 8 | format, 4 | length, 4 |   the file's own   | checksum of all before, 4 |
//! ```
//! A newer format may have another length and other fields; where these three stand, and that a
//! checksum ends the header, holds for all of them.

use crate::checksum::{checksum_from, compare};
use crate::corruption::Flaw;
use crate::field::{array_at, put, u32_at};
use std::ops::RangeInclusive;

const MAGIC: usize = 0;
const FORMAT: usize = MAGIC + 8;
const LENGTH: usize = FORMAT + 4;
/// Where the fields begin that are a file's own.
pub const FIELDS: usize = LENGTH + 4;
const CHECKSUM_LEN: usize = 4;

/// The form of a header of `LEN` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Form<const LEN: usize> {
    magic: [u8; 8],
}

/// Why a header was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeaderFlaw {
    /// It is not what it should be.
    Damaged(Flaw),
    /// It is whole, but of this other format.
    Foreign(u32),
}

impl From<Flaw> for HeaderFlaw {
    fn from(flaw: Flaw) -> Self {
        Self::Damaged(flaw)
    }
}

impl<const LEN: usize> Form<LEN> {
    /// Of headers that begin with these bytes.
    pub const fn new(magic: [u8; 8]) -> Self {
        const { assert!(LEN >= FIELDS + CHECKSUM_LEN, "room for what all headers have") };
        Self { magic }
    }

    /// A header with the fields that `fill` puts into it. Its checksum begins with `seed`.
    pub fn encode(&self, format: u32, seed: u32, fill: impl FnOnce(&mut [u8; LEN])) -> [u8; LEN] {
        let mut header = [0; LEN];
        fill(&mut header);
        put(&mut header, MAGIC, self.magic);
        put(&mut header, FORMAT, format.to_le_bytes());
        put(&mut header, LENGTH, Self::stored_len().to_le_bytes());
        let checksum = Self::checksum(&header, seed);
        put(&mut header, LEN - CHECKSUM_LEN, checksum.to_le_bytes());
        header
    }

    /// The header that `bytes` begin with, if it is of one of these formats, and of which.
    ///
    /// # Errors
    /// What is wrong with it; its format, if that is another one.
    pub fn decode<'b>(
        &self,
        bytes: &'b [u8],
        seed: u32,
        formats: RangeInclusive<u32>,
    ) -> Result<(&'b [u8; LEN], u32), HeaderFlaw> {
        let Some(header) = bytes.first_chunk::<LEN>() else {
            return Err(Flaw::new("length of the header", LEN, bytes.len()).into());
        };
        check_magic(header, self.magic)?;
        let stored = u32_at(header, LEN - CHECKSUM_LEN);
        compare("checksum of the header", stored, Self::checksum(header, seed))?;
        let format = format_of(header);
        if !formats.contains(&format) {
            return Err(HeaderFlaw::Foreign(format));
        }
        if length_of(header) != Self::stored_len() {
            return Err(Flaw::new("length of the header", LEN, length_of(header)).into());
        }
        Ok((header, format))
    }

    fn checksum(header: &[u8; LEN], seed: u32) -> u32 {
        let (covered, _) = header.split_at(LEN - CHECKSUM_LEN);
        checksum_from(seed, covered)
    }

    fn stored_len() -> u32 {
        u32::try_from(LEN).expect("headers are short")
    }
}

/// Whether `bytes` begin with these.
///
/// # Errors
/// That they don't.
pub fn check_magic(bytes: &[u8], magic: [u8; 8]) -> Result<(), Flaw> {
    let found: [u8; 8] = array_at(bytes, MAGIC);
    if found == magic {
        return Ok(());
    }
    Err(Flaw::new("first bytes", magic.escape_ascii(), found.escape_ascii()))
}

/// The format that a header names.
pub fn format_of(header: &[u8]) -> u32 {
    u32_at(header, FORMAT)
}

/// The length that a header names.
pub fn length_of(header: &[u8]) -> u32 {
    u32_at(header, LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form<32> = Form::new(*b"PLNTHXYZ");

    fn header(format: u32, seed: u32) -> [u8; 32] {
        FORM.encode(format, seed, |header| put(header, FIELDS, [7; 4]))
    }

    #[test]
    fn a_header_is_what_the_first_page_draws() {
        let bytes = header(3, 5);
        let front = b"PLNTHXYZ\x03\0\0\0\x20\0\0\0\x07\x07\x07\x07\0\0\0\0\0\0\0\0";
        assert_eq!(bytes[..28], front[..]);
        assert_eq!(bytes[28..], crc32c::crc32c_append(5, front).to_le_bytes());
        let longer = [&bytes[..], &[9; 9]].concat();
        assert_eq!(FORM.decode(&longer, 5, 1..=3), Ok((&bytes, 3)));
    }

    #[test]
    fn nothing_else_is_believed() {
        let bytes = header(3, 5);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let decoded = FORM.decode(&flipped, 5, 1..=3);
            assert!(matches!(decoded, Err(HeaderFlaw::Damaged(_))), "bit {bit}");
        }
        let short = |len: usize| FORM.decode(&bytes[..len], 5, 1..=3).is_err();
        assert!((0..bytes.len()).all(short));
        assert!(FORM.decode(&bytes, 6, 1..=3).is_err(), "of another file");
        assert_eq!(FORM.decode(&bytes, 5, 1..=2), Err(HeaderFlaw::Foreign(3)));
        assert_eq!(FORM.decode(&bytes, 5, 4..=4), Err(HeaderFlaw::Foreign(3)));
    }
}
