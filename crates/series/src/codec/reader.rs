//! Reads numbers and bytes out of a value, and says where it ended too early.
//!
//! All numbers of a variable length are written in groups of seven bits, the lowest first; the
//! highest bit of a byte says that another group follows. Signed ones go through a zigzag first (0,
//! -1, 1, -2, ...), so that small ones are short whatever their sign.

use crate::error::{Error, Result};

/// What is left of the bytes of a value.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, whole: bytes.len() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            let at = self.whole - self.bytes.len();
            let why = format!("{count} bytes expected at {at}, {} found", self.bytes.len());
            return Err(Error::damaged("a value of a series", why));
        };
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| self.wrong("a whole number"))
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.wrong("a number of at most 64 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64> {
        Ok(unzigzag(self.number()?))
    }

    /// A number that says how many things follow; at most `most`.
    pub(crate) fn count(&mut self, most: usize) -> Result<usize> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(self.wrong(&format!("a count of at most {most}"))),
        }
    }

    /// What was read last is not what was expected.
    pub(crate) fn wrong(&self, expected: &str) -> Error {
        let at = self.whole - self.bytes.len();
        Error::damaged(
            "a value of a series",
            format!("{expected} expected before {at}, something else found"),
        )
    }
}

pub(crate) fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn write_signed(number: i64, out: &mut Vec<u8>) {
    write_number(zigzag(number), out);
}

pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub(crate) fn unzigzag(number: u64) -> i64 {
    ((number >> 1) ^ (number & 1).wrapping_neg()) as i64
}
