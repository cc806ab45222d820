//! The rows of the benchmarking guide: 16-byte keys, random values of 8 to 100 bytes.
//!
//! A row's key is `row:000` and its number in nine digits, so keys sort by number, and a range of a
//! thousand keys is a thousand numbers. That long common prefix is what real keys look like, and
//! what FoundationDB's own benchmark uses. Values are slices of one pool of random bytes: making
//! one costs nanoseconds, so what is measured is the database.

use crate::random::Random;
use std::sync::Arc;

/// Bytes in a key.
pub const KEY_LEN: usize = 16;
/// Shortest value.
pub const VALUE_MIN: usize = 8;
/// Longest value.
pub const VALUE_MAX: usize = 100;
/// Most rows that the keys have digits for.
pub const MAX_ROWS: u64 = 999_999_999;

const PREFIX: [u8; 7] = *b"row:000";
/// What the last eight of the nine digits can tell apart.
const EIGHT_DIGITS: u64 = 100_000_000;
const POOL: usize = 64 * 1024;

/// Which rows there are; cheap to clone.
#[derive(Clone)]
pub struct Dataset {
    rows: u64,
    pool: Arc<[u8]>,
}

impl Dataset {
    /// So many rows; at least one, at most [`MAX_ROWS`].
    pub fn new(rows: u64, seed: u64) -> Self {
        let mut random = Random::new(seed, u64::MAX);
        let pool = (0..POOL / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
        Self { rows: rows.clamp(1, MAX_ROWS), pool }
    }

    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of all keys and values, about: values are as long as they are on average.
    pub fn bytes(&self) -> u64 {
        self.rows * (KEY_LEN + usize::midpoint(VALUE_MIN, VALUE_MAX)) as u64
    }

    /// The key of a random row.
    #[inline]
    pub fn random_key(&self, random: &mut Random) -> [u8; KEY_LEN] {
        key(random.below(self.rows))
    }

    /// A random value.
    #[inline]
    pub fn random_value(&self, random: &mut Random) -> &[u8] {
        let bits = random.bits();
        let len = VALUE_MIN + (bits % (VALUE_MAX - VALUE_MIN + 1) as u64) as usize;
        let at = (bits >> 32) as usize % (POOL - VALUE_MAX);
        &self.pool[at..at + len]
    }
}

/// The key of the row with this number, which must not exceed [`MAX_ROWS`].
#[inline]
pub fn key(number: u64) -> [u8; KEY_LEN] {
    debug_assert!(number <= MAX_ROWS);
    let mut key = [0; KEY_LEN];
    key[..PREFIX.len()].copy_from_slice(&PREFIX);
    key[PREFIX.len()] = b'0' + (number / EIGHT_DIGITS) as u8;
    key[8..].copy_from_slice(&eight_digits((number % EIGHT_DIGITS) as u32).to_le_bytes());
    key
}

/// Eight decimal digits as ASCII, the first in the lowest byte. All lanes of a word are divided at
/// once: first into two halves of four digits, then into four of two, then into eight of one.
#[inline]
fn eight_digits(number: u32) -> u64 {
    let number = u64::from(number);
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f; // divided by 100
    let twos = hundreds | ((fours - hundreds * 100) << 16);
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f; // divided by 10
    let ones = tens | ((twos - tens * 10) << 8);
    ones | 0x3030_3030_3030_3030
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sixteen_bytes_in_order_of_their_numbers() {
        let mut random = Random::new(3, 0);
        let edges = [
            0,
            1,
            9,
            10,
            99,
            100,
            9_999,
            10_000,
            99_999,
            1_000_000,
            12_345_678,
            EIGHT_DIGITS - 1,
            EIGHT_DIGITS,
            MAX_ROWS,
        ];
        let numbers = (0..100_000).map(|_| random.below(MAX_ROWS + 1));
        for number in edges.into_iter().chain(numbers) {
            assert_eq!(key(number)[..], *format!("row:{number:012}").as_bytes());
        }
    }

    #[test]
    fn values_have_every_length_the_guide_names_and_none_else() {
        let data = Dataset::new(10, 5);
        let mut random = Random::new(5, 1);
        let mut seen = [false; VALUE_MAX + 1];
        for _ in 0..20_000 {
            seen[data.random_value(&mut random).len()] = true;
        }
        assert!(
            seen[..VALUE_MIN].iter().all(|seen| !seen)
                && seen[VALUE_MIN..].iter().all(|&seen| seen)
        );
        assert_eq!(Dataset::new(0, 5).rows(), 1);
    }
}
