//! A block of rows: keys ascending, each with a value or removed, found by binary search.
//!
//! ```text
//!   | count, wide? 4 | prefix length 4 | prefix | offset of each entry, 2 or 4 bytes | entries |
//!   entry: | length of the rest of the key | 0: removed, else value length + 1 | rest of key | value |
//! ```
//!
//! What all keys of the block begin with stands once. A block is looked through whole when it is
//! read from a file, so that whatever it says later lies inside it.

use plinth_format::{Flaw, number_len, push_number, take_number, u32_at};
use std::cmp::Ordering;
use std::ops::Range;

/// The bit of the count that says that offsets have four bytes.
const WIDE: u32 = 1 << 31;
const PREFIX_AT: usize = 8;

/// A row, or the mark of a removed key.
pub(crate) type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// Collects the rows of one block.
#[derive(Default)]
pub(crate) struct RowsBuilder {
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Where key and value end; whether there is a value.
    ends: Vec<(usize, usize, bool)>,
    /// Bytes of the entries' numbers, if the keys' rests were whole keys.
    numbers: usize,
}

impl RowsBuilder {
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How long the body would be with one more row; where keys have 128 bytes and more, at most.
    pub fn body_len_with(&self, key: &[u8], value: Option<&[u8]>) -> usize {
        let count = self.ends.len() + 1;
        let prefix = if self.is_empty() { key.len() } else { shared_len(self.first_key(), key) };
        let keys = self.keys.len() + key.len() - prefix * count;
        let values = self.values.len() + value.map_or(0, <[u8]>::len);
        let entries = keys + values + self.numbers + numbers_len(key, value);
        let offset_len = if entries > usize::from(u16::MAX) { 4 } else { 2 };
        PREFIX_AT + prefix + count * offset_len + entries
    }

    /// Adds a row; keys ascend.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        debug_assert!(self.is_empty() || self.last_key() < key, "keys ascend");
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value.unwrap_or_default());
        self.ends.push((self.keys.len(), self.values.len(), value.is_some()));
        self.numbers += numbers_len(key, value);
    }

    fn key(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before].0);
        &self.keys[begin..self.ends[at].0]
    }

    fn value(&self, at: usize) -> Option<&[u8]> {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (_, end, exists) = self.ends[at];
        exists.then(|| &self.values[begin..end])
    }

    pub fn first_key(&self) -> &[u8] {
        if self.is_empty() { &[] } else { self.key(0) }
    }

    pub fn last_key(&self) -> &[u8] {
        self.ends.len().checked_sub(1).map_or(&[], |last| self.key(last))
    }

    /// What the first and the last key, and so all of them, begin with.
    fn prefix_len(&self) -> usize {
        shared_len(self.first_key(), self.last_key())
    }

    /// Writes the body into `body`, which is empty, and is empty itself then.
    pub fn finish(&mut self, body: &mut Vec<u8>) {
        let prefix_len = self.prefix_len();
        let mut entries =
            Vec::with_capacity(self.keys.len() + self.values.len() + 4 * self.ends.len());
        let mut offsets = Vec::with_capacity(self.ends.len());
        for at in 0..self.ends.len() {
            offsets.push(entries.len() as u32);
            let (rest, value) = (&self.key(at)[prefix_len..], self.value(at));
            push_number(&mut entries, rest.len() as u64);
            push_number(&mut entries, value.map_or(0, |value| value.len() as u64 + 1));
            entries.extend_from_slice(rest);
            entries.extend_from_slice(value.unwrap_or_default());
        }
        let wide = entries.len() > usize::from(u16::MAX);
        body.extend_from_slice(&(offsets.len() as u32 | if wide { WIDE } else { 0 }).to_le_bytes());
        body.extend_from_slice(&(prefix_len as u32).to_le_bytes());
        body.extend_from_slice(&self.first_key()[..prefix_len]);
        for offset in offsets {
            let bytes = offset.to_le_bytes();
            body.extend_from_slice(if wide { &bytes } else { &bytes[..2] });
        }
        body.extend_from_slice(&entries);
        self.keys.clear();
        self.values.clear();
        self.ends.clear();
        self.numbers = 0;
    }
}

/// How many leading bytes two keys share.
fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Bytes of the two numbers of an entry that has the whole key.
#[inline]
fn numbers_len(key: &[u8], value: Option<&[u8]>) -> usize {
    number_len(key.len()) + number_len(value.map_or(0, |value| value.len() + 1))
}

/// A block of rows in memory, found to be sound.
pub(crate) struct RowsBlock {
    /// The body, and perhaps what stood around it in the file.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    count: usize,
    prefix_len: usize,
    wide: bool,
    entries_at: usize,
}

impl RowsBlock {
    /// Takes the body of a block whose checksum was right, and looks through it.
    pub fn new(body: Vec<u8>) -> Result<Self, Flaw> {
        let all = 0..body.len();
        Self::within(body, all)
    }

    /// The same of a body that is a part of these bytes, which it keeps whole: nothing is copied.
    pub fn within(bytes: Vec<u8>, body: Range<usize>) -> Result<Self, Flaw> {
        let flaw = |what| Flaw::new(what, "rows", "other bytes");
        let Range { start: begin, end } = body;
        let body = &bytes[begin..end];
        if body.len() < PREFIX_AT {
            return Err(flaw("body of a block"));
        }
        let (count, prefix_len) = (u32_at(body, 0), u32_at(body, 4) as usize);
        let wide = count & WIDE != 0;
        let count = (count & !WIDE) as usize;
        let entries_at = count
            .checked_mul(if wide { 4 } else { 2 })
            .and_then(|len| len.checked_add(PREFIX_AT)?.checked_add(prefix_len))
            .filter(|at| *at <= body.len() && count > 0)
            .ok_or_else(|| flaw("head of a block's body"))?;
        let entries_at = begin + entries_at;
        let block = Self { bytes, begin, end, count, prefix_len, wide, entries_at };
        block.look_through().ok_or_else(|| flaw("entries of a block"))?;
        Ok(block)
    }

    fn look_through(&self) -> Option<()> {
        let mut at = self.entries_at;
        let mut before: Option<&[u8]> = None;
        for entry in 0..self.count {
            if self.offset(entry) != at - self.entries_at {
                return None;
            }
            let mut rest = self.bytes.get(at..self.end)?;
            let len = rest.len();
            let key_len = usize::try_from(take_number(&mut rest)?).ok()?;
            let value_len = usize::try_from(take_number(&mut rest)?).ok()?.saturating_sub(1);
            let key = rest.get(..key_len)?;
            if rest.len() - key_len < value_len || before.is_some_and(|before| before >= key) {
                return None;
            }
            before = Some(key);
            at += len - rest.len() + key_len + value_len;
        }
        (at == self.end).then_some(())
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<Self>()
    }

    /// What the block was made of.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// What all keys begin with.
    #[inline]
    pub fn prefix(&self) -> &[u8] {
        &self.bytes[self.begin + PREFIX_AT..][..self.prefix_len]
    }

    #[inline(always)]
    fn offset(&self, entry: usize) -> usize {
        let offsets = self.begin + PREFIX_AT + self.prefix_len;
        if self.wide {
            return u32_at(&self.bytes, offsets + 4 * entry) as usize;
        }
        let at = offsets + 2 * entry;
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    /// The rest of an entry's key behind the prefix, and its value.
    #[inline]
    pub fn entry(&self, at: usize) -> Entry<'_> {
        let mut rest = &self.bytes[self.entries_at + self.offset(at)..];
        let key_len = number(&mut rest);
        let value_len = number(&mut rest);
        let (key, rest) = rest.split_at(key_len);
        (key, value_len.checked_sub(1).map(|len| &rest[..len]))
    }

    #[inline]
    fn rest_of_key(&self, at: usize) -> &[u8] {
        self.entry(at).0
    }

    /// The first entry whose key is not below `key`, and whether it has that key. The number of
    /// entries if there is none.
    pub fn seek(&self, key: &[u8]) -> (usize, bool) {
        let prefix = self.prefix();
        let Some(rest) = key.strip_prefix(prefix) else {
            return (if key < prefix { 0 } else { self.count }, false);
        };
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.rest_of_key(middle).cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// The value of a key: `Some(None)` if it is removed here.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        match self.seek(key) {
            (at, true) => Some(self.entry(at).1),
            _ => None,
        }
    }
}

/// A number of a block that was found to be sound.
#[inline(always)]
fn number(bytes: &mut &[u8]) -> usize {
    match bytes.split_first() {
        Some((byte, rest)) if *byte < 0x80 => {
            *bytes = rest;
            usize::from(*byte)
        }
        _ => take_number(bytes).map_or(0, |number| number as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::simulated::Random;
    use std::collections::BTreeMap;

    fn build(rows: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Vec<u8> {
        let mut builder = RowsBuilder::default();
        rows.iter().for_each(|(key, value)| builder.push(key, value.as_deref()));
        let mut body = Vec::new();
        builder.finish(&mut body);
        assert!(builder.is_empty());
        body
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let rows = [(b"ab".to_vec(), Some(b"12".to_vec())), (b"abc".to_vec(), None)].into();
        let expected = b"\x02\0\0\0\x02\0\0\0ab\0\0\x04\0\x00\x03\x31\x32\x01\x00c";
        assert_eq!(build(&rows), expected);
    }

    #[test]
    fn how_long_the_body_will_be_is_known_before() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            // Long keys are estimated from above: the numbers before what the prefix leaves of them
            // may be shorter.
            let (key_len, most_off) = if seed % 3 == 0 { (300, 1) } else { (120, 0) };
            let mut builder = RowsBuilder::default();
            let prefix = vec![b'p'; random.index(key_len)];
            let keys: BTreeMap<u64, ()> =
                (0..1 + random.index(90)).map(|_| (random.below(1 << 40), ())).collect();
            let mut said = 0;
            for key in keys.keys() {
                let key = [&prefix[..], &key.to_be_bytes()[random.index(2)..]].concat();
                if !builder.is_empty() && builder.last_key() >= &key[..] {
                    continue;
                }
                let len = if random.index(100) == 0 { 40_000 } else { random.index(300) };
                let value = (random.index(4) > 0).then(|| vec![7; len]);
                said = builder.body_len_with(&key, value.as_deref());
                builder.push(&key, value.as_deref());
            }
            let (count, mut body) = (builder.ends.len(), Vec::new());
            builder.finish(&mut body);
            assert!(
                (body.len()..=body.len() + most_off * count).contains(&said),
                "seed {seed}: {said}, {}",
                body.len()
            );
        }
    }

    #[test]
    fn rows_are_found_as_in_a_map() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut rows = BTreeMap::new();
            let prefix = vec![b'p'; random.index(9)];
            for _ in 0..1 + random.index(60) {
                let rest: Vec<u8> = (0..random.index(5)).map(|_| random.index(4) as u8).collect();
                let len = if random.index(200) == 0 { 70_000 } else { random.index(200) };
                let value = (random.index(4) > 0).then(|| vec![7; len]);
                rows.insert([&prefix[..], &rest].concat(), value);
            }
            let block = RowsBlock::new(build(&rows)).unwrap();
            assert_eq!(block.count(), rows.len());
            for (at, (key, value)) in rows.iter().enumerate() {
                assert_eq!(block.seek(key), (at, true), "seed {seed}");
                assert_eq!(block.get(key), Some(value.as_deref()), "seed {seed}");
                assert_eq!([block.prefix(), block.entry(at).0].concat(), *key);
            }
            for _ in 0..50 {
                let key: Vec<u8> = (0..random.index(6)).map(|_| random.index(4) as u8).collect();
                let key = if random.index(2) == 0 { key } else { [&prefix[..], &key].concat() };
                let expected = rows.range(..key.clone()).count();
                assert_eq!(
                    block.seek(&key),
                    (expected, rows.contains_key(&key)),
                    "seed {seed}: {key:?}"
                );
            }
        }
    }

    #[test]
    fn foreign_bytes_are_refused_or_stay_inside() {
        let rows = (0..40).map(|n| (format!("key{n:03}").into_bytes(), Some(vec![n; 9]))).collect();
        let body = build(&rows);
        for seed in 0..3000 {
            let mut random = Random::new(seed);
            let mut bytes = body.clone();
            for _ in 0..1 + random.index(3) {
                let at = random.index(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(bytes.len() - random.index(2) * random.index(bytes.len()));
            if let Ok(block) = RowsBlock::new(bytes) {
                assert!((0..block.count()).all(|at| block.entry(at).0.len() <= body.len()));
                block.get(b"key017");
            }
        }
    }
}
