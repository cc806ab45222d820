//! A keyed 64-bit hash of keys: quick for short ones, and not to be foreseen without the seed.
//!
//! Words of the key, mixed with secrets made from the seed, are multiplied to 128 bits whose halves
//! are then folded together. It only spreads keys over tables: keys with equal hashes are told
//! apart by their bytes, so the worst a bad hash can do is to be slow.

/// The secrets of one resolver.
#[derive(Clone, Copy)]
pub(crate) struct Hasher {
    secrets: [u64; 4],
}

impl Hasher {
    /// The hash function that this seed stands for.
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        let secrets = [(); 4].map(|()| {
            // Weyl steps, scrambled: any seed, zero too, gives four odd numbers that look
            // unrelated.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            fold(state ^ 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f ^ state.rotate_left(29)) | 1
        });
        Self { secrets }
    }

    /// The hash of `key`.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let [a, b, c, d] = self.secrets;
        let mut state = c ^ (key.len() as u64).wrapping_mul(d);
        let mut rest = key;
        while rest.len() > 16 {
            state = fold(word(rest, 0) ^ a, word(rest, 8) ^ state);
            rest = &rest[16..];
        }
        let (low, high) = match rest.len() {
            8.. => (word(rest, 0), word(rest, rest.len() - 8)),
            4.. => (u64::from(half_word(rest, 0)), u64::from(half_word(rest, rest.len() - 4))),
            1.. => {
                let middle = u64::from(rest[rest.len() / 2]);
                (u64::from(rest[0]) << 8 | middle, u64::from(rest[rest.len() - 1]))
            }
            0 => (0, 0),
        };
        fold(fold(low ^ a, high ^ state), d ^ b)
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

#[inline]
fn half_word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
