//! Random numbers and keys for tests, the same for the same seed.

use plinth_types::{KeyRange, key_after};

/// A small generator: a counter, scrambled.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    pub(super) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Keys of one kind, of which there are few enough to meet again.
pub(super) struct Keys {
    kind: usize,
    count: usize,
}

impl Keys {
    /// A kind of keys, and about how many there are.
    pub(super) fn any(random: &mut Random) -> Self {
        Self { kind: random.below(6), count: *random.pick(&[4, 30, 300, 5000]) }
    }

    pub(super) fn of(kind: usize, count: usize) -> Self {
        Self { kind, count }
    }

    pub(super) fn key(&self, random: &mut Random) -> Vec<u8> {
        let number = random.below(self.count);
        let mut key = match self.kind {
            // Few letters: the empty key, prefixes of one another, zeros and 0xff at every place.
            0 => {
                let length = random.below(2 + self.count.ilog2() as usize / 2);
                (0..length).map(|_| *random.pick(&[0, b'a', 0xff])).collect()
            }
            1 => format!("a common prefix of more than sixteen bytes/{number:06}").into_bytes(),
            2 => format!("{}/{number}", random.pick(&["t", "table", "table/two"])).into_bytes(),
            3 => (number as u32).to_be_bytes().to_vec(),
            // Around the length where the length takes more than a byte.
            4 => [vec![b'k'; 250 + number % 8], (number as u16).to_be_bytes().to_vec()].concat(),
            _ => (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
                [..1 + number % 8]
                .to_vec(),
        };
        if random.one_in(10) {
            key.push(0);
        }
        key
    }

    /// A range: a single key, its close neighbourhood, or all between two keys.
    pub(super) fn range(&self, random: &mut Random) -> KeyRange {
        let begin = self.key(random);
        match random.below(8) {
            0..5 => KeyRange::single(&begin),
            5 => KeyRange::new(begin.clone(), key_after(&key_after(&begin))),
            6 => KeyRange::new(key_after(&begin), [&begin[..], b"b"].concat()),
            _ => {
                let end = self.key(random);
                if begin < end {
                    KeyRange::new(begin, end)
                } else {
                    KeyRange::new(end, key_after(&begin))
                }
            }
        }
    }
}
