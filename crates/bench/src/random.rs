//! The benchmark's own random numbers: fast, seeded, so that two runs ask for the same keys in the
//! same order.

/// A SplitMix64 generator. A nanosecond a number; not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of client number `client` in the run with this seed.
    pub fn new(seed: u64, client: u64) -> Self {
        let mut random = Self(seed ^ client.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.bits();
        random
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..limit`, all nearly equally likely; 0 if `limit` is 0.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_another_client_gets_others() {
        let numbers = |client| {
            let mut random = Random::new(7, client);
            (0..100).map(|_| random.bits()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert!(numbers(1).iter().all(|number| !numbers(2).contains(number)));
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut random = Random::new(1, 1);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
