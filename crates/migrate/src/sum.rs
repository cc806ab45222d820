//! A checksum of rows that does not depend on how they are cut into pieces.
//!
//! Each row has a hash of 128 bits, and the sum of rows is the sum of their hashes: pieces add up
//! to the whole, however their bounds lay. It is meant against accidents (lost, doubled, damaged
//! rows), not against forgery.

use plinth_types::Rows;
use std::fmt;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

/// Rows counted, weighed and summed up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sum {
    /// How many rows.
    pub rows: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
    /// The sum of their hashes.
    pub hash: u128,
}

/// The bytes of a sum that is written down.
pub(crate) const SUM_BYTES: usize = 32;

impl Sum {
    /// The sum of these rows.
    pub fn of(rows: &Rows) -> Self {
        let mut sum = Self::default();
        rows.iter().for_each(|(key, value)| sum.add(key, value));
        sum
    }

    /// Counts a row in.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.rows += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.hash = self.hash.wrapping_add(xxh3_128_with_seed(value, xxh3_64(key)));
    }

    /// The sum of these rows and others.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
            hash: self.hash.wrapping_add(other.hash),
        }
    }

    pub(crate) fn encode(self) -> [u8; SUM_BYTES] {
        let mut bytes = [0; SUM_BYTES];
        bytes[..8].copy_from_slice(&self.rows.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SUM_BYTES]) -> Self {
        let number = |at: usize| {
            bytes[at..at + 8]
                .iter()
                .rev()
                .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        Self {
            rows: number(0),
            bytes: number(8),
            hash: u128::from(number(16)) | u128::from(number(24)) << 64,
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows, {} bytes, checksum {:032x}", self.rows, self.bytes, self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(rows: &[(&str, &str)]) -> Sum {
        let mut sum = Sum::default();
        rows.iter().for_each(|(key, value)| sum.add(key.as_bytes(), value.as_bytes()));
        sum
    }

    #[test]
    fn pieces_add_up_and_every_difference_shows() {
        let whole = sum(&[("a", "1"), ("b", "2"), ("c", "")]);
        assert_eq!(whole, sum(&[("a", "1")]).with(sum(&[("b", "2"), ("c", "")])));
        for other in [
            sum(&[("a", "2"), ("b", "1"), ("c", "")]),
            sum(&[("a", "1"), ("b", "2")]),
            sum(&[("a1", ""), ("b", "2"), ("c", "")]),
            sum(&[("a", "1"), ("b", "2"), ("b", "2")]),
        ] {
            assert_ne!(whole, other);
        }
        assert_eq!(Sum::decode(&whole.encode()), whole);
    }
}
