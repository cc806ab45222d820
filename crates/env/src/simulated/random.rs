//! Seeded random numbers.
//!
//! The generator is a 64-bit counter that is stepped by an odd constant and scrambled (the SplitMix
//! construction): any two seeds give unrelated streams, and one can be split off another, so that
//! what one part of a simulation draws doesn't shift what another part sees. Not for secrets.

use std::ops::Range;

/// A seeded source of random numbers, for simulations and model tests. The same seed gives the same
/// numbers on every machine and in every version.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: scramble(seed ^ 0x5851_F42D_4C95_7F2D) }
    }

    /// A stream of its own, given by this one's next number.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.state)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product: uniform but for a bias of limit / 2^64.
        let product = u128::from(self.next_u64()) * u128::from(limit);
        (product >> 64) as u64
    }

    /// A number in `range`, its start if it is empty.
    pub fn in_range(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// An index into something of this length (0 for nothing).
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Whether something happens that has this probability (at least 1: always; at most 0: never).
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits are what a double between 0 and 1 can tell apart.
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        ((self.next_u64() >> 11) as f64) * STEP < probability
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range_and_reach_all_of_it() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[random.index(10)] += 1;
            assert!((5..8).contains(&random.in_range(5..8)));
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.in_range(3..3), 3);
        assert!(!random.chance(0.0) && random.chance(1.0));
    }

    #[test]
    fn streams_of_neighbouring_seeds_and_of_splits_differ() {
        let mut one = Random::new(1);
        let mut two = Random::new(2);
        let mut part = one.split();
        let mut numbers: Vec<u64> =
            (0..100).flat_map(|_| [one.next_u64(), two.next_u64(), part.next_u64()]).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 300);
    }

    #[test]
    fn a_seed_gives_the_same_numbers_in_every_version() {
        let mut random = Random::new(42);
        let mut bytes = [0; 5];
        random.fill(&mut bytes);
        assert_eq!((random.next_u64(), bytes), (GOLDEN, GOLDEN_BYTES));
    }

    const GOLDEN: u64 = 10_983_570_552_481_309_232;
    const GOLDEN_BYTES: [u8; 5] = [45, 65, 199, 161, 51];
}
