//! Which keys a table certainly does not have: a Bloom filter of blocks of 64 bytes.
//!
//! All bits of a key lie in one block, so that a question costs one access to memory. Ten bits a
//! key let about one in a hundred absent keys pass.

/// Bits for each key.
const BITS_PER_KEY: usize = 10;
/// Bits that each key sets.
const PROBES: u32 = 6;
/// Bits of a block: eight words.
const WORDS: usize = 8;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// The hash of a key, part of the format of filters: 16 bytes at a time are multiplied with what
/// was before, and both halves of the product count.
#[inline]
pub(crate) fn hash(key: &[u8]) -> u64 {
    let mut state = SEED ^ (key.len() as u64).wrapping_mul(FACTOR);
    let (chunks, tail) = key.as_chunks::<16>();
    for chunk in chunks {
        let [low, high] = halves(chunk);
        state = fold(low ^ state, high ^ FACTOR);
    }
    let mut last = [0; 16];
    last[..tail.len()].copy_from_slice(tail);
    let [low, high] = halves(&last);
    fold(fold(low ^ state, high ^ FACTOR), SEED)
}

#[inline(always)]
fn halves(chunk: &[u8; 16]) -> [u64; 2] {
    let number = u128::from_le_bytes(*chunk);
    [number as u64, (number >> 64) as u64]
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    // A factor of zero would forget all that came before.
    (product as u64 ^ (product >> 64) as u64).wrapping_add(a.rotate_left(32) ^ b)
}

/// A filter in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Filter {
    blocks: Box<[[u64; WORDS]]>,
}

impl Filter {
    /// The filter of these hashes.
    pub fn of(hashes: &[u64]) -> Self {
        let count = (hashes.len() * BITS_PER_KEY).div_ceil(64 * WORDS);
        let mut filter = Self { blocks: vec![[0; WORDS]; count].into() };
        for hash in hashes {
            let at = filter.block_of(*hash);
            for bit in bits(*hash) {
                filter.blocks[at][bit / 64] |= 1 << (bit % 64);
            }
        }
        filter
    }

    #[inline(always)]
    fn block_of(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.blocks.len() as u128) >> 64) as usize
    }

    /// Whether a key with this hash may be there. False is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let Some(block) = self.blocks.get(self.block_of(hash)) else { return false };
        bits(hash).all(|bit| block[bit / 64] & (1 << (bit % 64)) != 0)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }

    pub fn encode(&self) -> Vec<u8> {
        self.blocks.iter().flatten().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// `None` if that is no filter.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, tail) = bytes.as_chunks::<8>();
        let (blocks, odd) = words.as_chunks::<WORDS>();
        let block = |words: &[[u8; 8]; WORDS]| words.map(u64::from_le_bytes);
        (tail.is_empty() && odd.is_empty())
            .then(|| Self { blocks: blocks.iter().map(block).collect() })
    }
}

/// The bits of a key in its block: nine bits of the mixed hash each.
#[inline(always)]
fn bits(hash: u64) -> impl Iterator<Item = usize> {
    let mixed = hash.wrapping_mul(FACTOR);
    (0..PROBES).map(move |probe| (mixed >> (64 - 9 * (probe + 1))) as usize & 511)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_passes_and_little_else() {
        let key = |n: u64| format!("key{n:013}").into_bytes();
        for count in [0, 1, 10, 1000, 20_000] {
            let hashes: Vec<u64> = (0..count).map(|n| hash(&key(n))).collect();
            let filter = Filter::of(&hashes);
            assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
            let passed =
                (count..count + 20_000).filter(|n| filter.may_contain(hash(&key(*n)))).count();
            assert!(passed < 500, "{passed} of 20,000 pass, with {count} keys");
            assert_eq!(Filter::decode(&filter.encode()), Some(filter));
        }
        assert_eq!(Filter::decode(&[0; 65]), None);
    }

    #[test]
    fn the_hash_is_as_documented() {
        let hashes = [&b""[..], b"a", b"0123456789abcdef", b"0123456789abcdefg"].map(hash);
        assert!(
            hashes.iter().enumerate().all(|(at, hash)| !hashes[..at].contains(hash)),
            "{hashes:x?}"
        );
        assert_eq!(hash(b"plinth"), hash(&b"plinth"[..]));
    }
}
