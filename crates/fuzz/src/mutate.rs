//! Mutation without guidance: what a fuzzer does to bytes, from a seed, where there is no nightly
//! compiler for a real one.
//!
//! A mutation is one to eight small changes: bits and bytes turned, the values at which lengths go
//! wrong written over a number, parts removed, doubled, exchanged for those of another file, cut
//! off.

/// The values at which a length, a count or a flag goes wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
];

/// Longest input that is made.
const LONGEST: usize = 1 << 14;

/// A source of mutations.
#[derive(Clone, Debug)]
pub struct Mutator(u64);

impl Mutator {
    /// The same seed gives the same mutations.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    /// One of the corpus, changed.
    pub fn mutate(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let pick = self.below(corpus.len());
        let mut bytes = corpus.get(pick).cloned().unwrap_or_default();
        for _ in 0..1 + self.below(8) {
            let other = self.below(corpus.len());
            self.change(&mut bytes, corpus.get(other).map_or(&[][..], |other| other));
        }
        bytes.truncate(LONGEST);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        let len = self.below((bytes.len() - at).min(64) + 1);
        match self.below(8) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << self.below(8)),
            1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = self.next() as u8),
            2 => {
                let value = EDGES[self.below(EDGES.len())].to_le_bytes();
                let width = 1 << self.below(4);
                bytes.iter_mut().skip(at).zip(&value[..width]).for_each(|(byte, new)| *byte = *new);
            }
            3 => drop(bytes.drain(at..at + len)),
            4 => {
                let copy = bytes[at..at + len].to_vec();
                bytes.splice(at..at, copy);
            }
            5 => {
                let from = self.below(other.len() + 1);
                let until = from + self.below(other.len() - from + 1);
                bytes.splice(at..at + len, other[from..until].iter().copied());
            }
            6 => bytes.truncate(at),
            _ => {
                let new: Vec<u8> = (0..self.below(9)).map(|_| self.next() as u8).collect();
                bytes.splice(at..at, new);
            }
        }
    }
}
