//! Keys in order, searched often: the first keys of a table's blocks, and of a run's tables.
//!
//! ```text
//!   prefix of all keys, then for each:
//!   heads | 8 bytes | 8 bytes | ...     searched; what they leave equal, the whole keys decide
//! ```
//!
//! The heads are the eight bytes behind the common prefix, as numbers. A search guesses where a key
//! would lie if they were spread evenly and feels its way from there: with random keys it touches
//! two or three cache lines, not one for each halving; with keys that are spread in any other way
//! twice the halvings at most.

/// Keys in ascending order that don't change.
pub(crate) struct Separators {
    prefix_len: usize,
    heads: Box<[u64]>,
    keys: Box<[u8]>,
    /// Where each key ends.
    ends: Box<[u32]>,
}

/// How far the first step from a guess goes: a cache line of heads.
const FIRST_STEP: usize = 8;

impl Separators {
    /// Of keys one behind the other, which ascend, and where each ends.
    pub fn new(keys: Vec<u8>, ends: Vec<u32>) -> Self {
        let of = |at: usize| {
            let begin = at.checked_sub(1).map_or(0, |before: usize| ends[before] as usize);
            &keys[begin..ends[at] as usize]
        };
        let count = ends.len();
        assert_eq!(
            ends.last().map_or(0, |end| *end as usize),
            keys.len(),
            "the last key ends last"
        );
        let prefix_len = match count {
            0 => 0,
            _ => of(0).iter().zip(of(count - 1)).take_while(|(a, b)| a == b).count(),
        };
        let heads = (0..count).map(|at| head(of(at), prefix_len)).collect();
        Self { prefix_len, heads, keys: keys.into(), ends: ends.into() }
    }

    pub fn count(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.keys[begin..self.ends[at] as usize]
    }

    /// The last of them that is not above a key; `None` if all are.
    #[inline]
    pub fn last_up_to(&self, key: &[u8]) -> Option<usize> {
        if self.heads.is_empty() {
            return None;
        }
        let prefix = &self.keys[..self.prefix_len];
        if !key.starts_with(prefix) {
            return if key < prefix { None } else { Some(self.count() - 1) };
        }
        let wanted = head(key, self.prefix_len);
        let mut after = first_from(&self.heads, wanted);
        if self.heads.get(after) == Some(&wanted) {
            let mut end = after + self.heads[after..].partition_point(|head| *head == wanted);
            while after < end {
                let middle = after.midpoint(end);
                if self.get(middle) <= key {
                    after = middle + 1;
                } else {
                    end = middle;
                }
            }
        }
        after.checked_sub(1)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.count() * 12
    }
}

/// The eight bytes behind a key's prefix, as a number that orders like them.
#[inline(always)]
fn head(key: &[u8], prefix_len: usize) -> u64 {
    let rest = &key[prefix_len..];
    if let Some(bytes) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

/// The place of the first number, of those that ascend, that is not below `wanted`; their count if
/// all are.
#[inline]
fn first_from(numbers: &[u64], wanted: u64) -> usize {
    let [first, .., last] = numbers else {
        return numbers.partition_point(|number| *number < wanted);
    };
    if wanted <= *first {
        return 0;
    }
    if wanted > *last {
        return numbers.len();
    }
    // The first is below what is wanted and the last is not.
    let (mut below, mut from) = (0, numbers.len() - 1);
    let guess = u128::from(wanted - first) * from as u128 / u128::from(last - first);
    let (mut at, mut step) = (guess as usize, FIRST_STEP);
    if numbers[at] < wanted {
        while at < from && numbers[at] < wanted {
            (below, at) = (at, at + step);
            step *= 4;
        }
        from = from.min(at);
    } else {
        while at > below && numbers[at] >= wanted {
            (from, at) = (at, at.saturating_sub(step));
            step *= 4;
        }
        below = below.max(at);
    }
    below + numbers[below..from].partition_point(|number| *number < wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::simulated::Random;

    #[test]
    fn a_number_is_found_however_they_are_spread() {
        for seed in 0..600 {
            let mut random = Random::new(seed);
            let spread = random.index(4);
            let mut numbers: Vec<u64> = (0..random.index(400))
                .map(|at| match spread {
                    0 => random.below(u64::MAX),
                    1 => random.below(20),
                    2 => 1 << random.below(64),
                    _ => at as u64,
                })
                .collect();
            numbers.sort_unstable();
            let near = |random: &mut Random| match random.index(3) {
                0 => random.below(u64::MAX),
                1 => random.below(30),
                _ => {
                    let at = random.index(numbers.len().max(1));
                    numbers
                        .get(at)
                        .map_or(0, |number| number.wrapping_add(random.below(3)).wrapping_sub(1))
                }
            };
            for _ in 0..200 {
                let wanted = near(&mut random);
                let expected = numbers.partition_point(|number| *number < wanted);
                assert_eq!(
                    first_from(&numbers, wanted),
                    expected,
                    "seed {seed}: {wanted} in {numbers:?}"
                );
            }
            for wanted in [0, u64::MAX] {
                assert_eq!(
                    first_from(&numbers, wanted),
                    numbers.partition_point(|number| *number < wanted)
                );
            }
        }
    }
}
