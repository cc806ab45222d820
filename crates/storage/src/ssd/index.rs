//! Where in a table a key is: for each block of rows the least key that belongs to it, in memory.
//!
//! A block's separator lies above the last key of the block before and not above its own first key;
//! the first block's is the table's first key. How they are searched: `separators.rs`.

use super::separators::Separators;
use plinth_format::{push_bytes, push_number, take_bytes, take_number};
use plinth_types::Bytes;

/// Collects the index of a table while it is written.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    body: Vec<u8>,
    last: Vec<u8>,
    count: u64,
}

impl IndexBuilder {
    /// Adds a block: its separator, and its length in the file.
    pub fn push(&mut self, separator: &[u8], len: usize) {
        let shared = self.last.iter().zip(separator).take_while(|(a, b)| a == b).count();
        push_number(&mut self.body, shared as u64);
        push_bytes(&mut self.body, &separator[shared..]);
        push_number(&mut self.body, len as u64);
        self.last.clear();
        self.last.extend_from_slice(separator);
        self.count += 1;
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// The body of the index's block; `last_key` is the last of the table.
    pub fn finish(self, last_key: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.body.len() + last_key.len() + 20);
        push_number(&mut body, self.count);
        push_bytes(&mut body, last_key);
        body.extend_from_slice(&self.body);
        body
    }
}

/// The index of a table.
pub(crate) struct Index {
    separators: Separators,
    /// Where each block begins, and where the last one ends.
    places: Box<[u64]>,
    last_key: Bytes,
}

impl Index {
    /// Reads an index whose checksum was right; `rows_at` and `rows_end` bound the blocks. `None`
    /// if it is none.
    pub fn decode(body: &[u8], rows_at: u64, rows_end: u64, blocks: u64) -> Option<Self> {
        let mut rest = body;
        let count = take_number(&mut rest)?;
        let last_key = Bytes::copy_from_slice(take_bytes(&mut rest)?);
        if count != blocks || count > body.len() as u64 {
            return None;
        }
        let count = usize::try_from(count).ok()?;
        let (mut separators, mut ends) = (Vec::new(), Vec::with_capacity(count));
        let mut places = Vec::with_capacity(count + 1);
        places.push(rows_at);
        let (mut begin, mut place) = (0, rows_at);
        for at in 0..count {
            let shared = usize::try_from(take_number(&mut rest)?).ok()?;
            let tail = take_bytes(&mut rest)?;
            if shared > separators.len() - begin {
                return None;
            }
            let next = separators.len();
            separators.extend_from_within(begin..begin + shared);
            separators.extend_from_slice(tail);
            if at > 0 && separators[begin..next] >= separators[next..] {
                return None;
            }
            begin = next;
            ends.push(u32::try_from(separators.len()).ok()?);
            place =
                take_number(&mut rest)?.checked_add(place).filter(|place| *place <= rows_end)?;
            places.push(place);
        }
        if !rest.is_empty()
            || place != rows_end
            || (count > 0 && separators[begin..] > last_key[..])
        {
            return None;
        }
        Some(Self {
            separators: Separators::new(separators, ends),
            places: places.into(),
            last_key,
        })
    }

    pub fn count(&self) -> usize {
        self.separators.count()
    }

    /// The least key that belongs to a block.
    pub fn separator(&self, at: usize) -> &[u8] {
        self.separators.get(at)
    }

    /// The first key of the table; `None` if it has no rows.
    pub fn first_key(&self) -> Option<&[u8]> {
        (self.count() > 0).then(|| self.separator(0))
    }

    /// The last key of the table.
    pub fn last_key(&self) -> &Bytes {
        &self.last_key
    }

    /// The block that has a key if any has; `None` if the key is before all of them.
    #[inline]
    pub fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.separators.last_up_to(key)
    }

    /// Offset and length of a block in the file.
    pub fn place(&self, at: usize) -> (u64, usize) {
        let (begin, end) = (self.places[at], self.places[at + 1]);
        (begin, (end - begin) as usize)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.separators.bytes() + self.count() * 8 + self.last_key.len()
    }
}

/// The shortest key above `low` and not above `high`.
pub(crate) fn separator_between<'k>(low: &[u8], high: &'k [u8]) -> &'k [u8] {
    assert!(low < high);
    let shared = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    &high[..(shared + 1).min(high.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::simulated::Random;
    use std::collections::BTreeSet;

    #[test]
    fn a_key_is_looked_for_where_it_belongs() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let prefix = vec![b'p'; random.index(12)];
            let mut key = || {
                let rest: Vec<u8> = (0..random.index(12)).map(|_| random.index(3) as u8).collect();
                [&prefix[..], &rest].concat()
            };
            let separators: BTreeSet<Vec<u8>> = (0..20).map(|_| key()).collect();
            let mut builder = IndexBuilder::default();
            separators.iter().for_each(|separator| builder.push(separator, 10));
            let end = 100 + 10 * separators.len() as u64;
            let body = builder.finish(b"zzz");
            let index = Index::decode(&body, 100, end, separators.len() as u64).unwrap();
            for _ in 0..200 {
                let key = key();
                let expected =
                    separators.iter().filter(|separator| **separator <= key).count().checked_sub(1);
                assert_eq!(index.block_of(&key), expected, "seed {seed}: {key:?}");
            }
            for (at, separator) in separators.iter().enumerate() {
                assert_eq!(index.separator(at), separator);
                assert_eq!(index.place(at), (100 + 10 * at as u64, 10));
            }
            for cut in 0..body.len() {
                assert!(Index::decode(&body[..cut], 100, end, separators.len() as u64).is_none());
            }
        }
    }

    #[test]
    fn separators_are_short_and_in_between() {
        for (low, high, expected) in
            [("a", "b", "b"), ("abc", "abd", "abd"), ("ab", "abcd", "abc"), ("", "x", "x")]
        {
            assert_eq!(separator_between(low.as_bytes(), high.as_bytes()), expected.as_bytes());
        }
    }
}
