//! MD5, as far as `hashmod` needs it: Prometheus takes the last eight bytes of it for a number, and
//! whoever divides targets between servers has to come to the same one.

/// The last eight bytes of the hash, the first of them the highest.
pub(super) fn last_eight(bytes: &[u8]) -> u64 {
    let [_, _, c, d] = hash(bytes);
    u64::from(c.swap_bytes()) << 32 | u64::from(d.swap_bytes())
}

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

fn hash(bytes: &[u8]) -> [u32; 4] {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.as_chunks::<64>().0 {
        let mut words = [0; 16];
        for (word, four) in words.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*four);
        }
        mix(&mut state, &words);
    }
    state
}

fn mix(state: &mut [u32; 4], words: &[u32; 16]) {
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let (round, place) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), 7 * step % 16),
        };
        // The integer part of the sine of each step, times two to the 32nd.
        let sine = (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a.wrapping_add(round).wrapping_add(sine).wrapping_add(words[place]);
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
    }
    for (value, more) in state.iter_mut().zip([a, b, c, d]) {
        *value = value.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of RFC 1321.
    #[test]
    fn hashes_are_those_of_the_standard() {
        for (text, expected) in [
            ("", "e9800998ecf8427e"),
            ("a", "31c399e269772661"),
            ("abc", "d6963f7d28e17f72"),
            ("message digest", "525a2f31aaf161d0"),
        ] {
            assert_eq!(format!("{:016x}", last_eight(text.as_bytes())), expected, "{text}");
        }
        let long = "1234567890".repeat(8);
        assert_eq!(format!("{:016x}", last_eight(long.as_bytes())), "ac49da2e2107b67a");
    }
}
