//! Samples as Prometheus keeps and sends them: a chunk of at most 120, each written as what it
//! differs by from the one before.
//!
//! ```text
//!   count (2 bytes)   time (varint)   value (64 bits)   delta (uvarint)   value'   delta of deltas, value' ...
//!
//!   delta of deltas   0            the same as before          value'   0      the same as before
//!                     10 + 14 bits   1110 + 20 bits                     10     differs within the bits that differed last
//!                     110 + 17 bits  1111 + 64 bits                     11     zeros before (5 bits), bits (6 bits), those bits
//! ```
//!
//! The format is that of Prometheus' documents on its storage and on remote read.

/// Samples of a chunk, at most, as Prometheus cuts them.
pub(super) const SAMPLES: u16 = 120;
/// How many bits a delta of deltas may have, and what says so.
const WIDTHS: [(u32, u64, u32); 3] = [(14, 0b10, 2), (17, 0b110, 3), (20, 0b1110, 4)];
/// Zeros before what differs, at most: there are five bits for their number.
const MOST_LEADING: u32 = 31;

/// Bits behind each other, the highest of a byte first.
#[derive(Default)]
pub(super) struct Bits {
    pub(super) bytes: Vec<u8>,
    /// Bits of the last byte that are free.
    free: u32,
}

impl Bits {
    /// Appends the lowest `count` bits of a number.
    pub(super) fn put(&mut self, number: u64, count: u32) {
        let mut left = count;
        while left > 0 {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            let some = left.min(self.free);
            let part = (number >> (left - some)) & ((1 << some) - 1);
            if let Some(last) = self.bytes.last_mut() {
                *last |= (part << (self.free - some)) as u8;
            }
            self.free -= some;
            left -= some;
        }
    }

    /// Appends a number of variable length.
    fn put_number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.put(number & 0x7f | 0x80, 8);
            number >>= 7;
        }
        self.put(number, 8);
    }
}

/// A chunk that is being written.
pub(super) struct Chunk {
    bits: Bits,
    count: u16,
    first: i64,
    last: i64,
    delta: u64,
    value: u64,
    /// Zeros before and behind what differed last, where the bits between were written.
    zeros: Option<(u32, u32)>,
}

impl Chunk {
    pub(super) fn new() -> Self {
        let mut bits = Bits::default();
        bits.put(0, 16);
        Self { bits, count: 0, first: 0, last: 0, delta: 0, value: 0, zeros: None }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= SAMPLES
    }

    /// Its bytes, and the times of its first and its last sample; `None` if it has none.
    pub(super) fn end(mut self) -> Option<(Vec<u8>, i64, i64)> {
        self.bits.bytes[..2].copy_from_slice(&self.count.to_be_bytes());
        (self.count > 0).then_some((self.bits.bytes, self.first, self.last))
    }

    /// Appends a sample: a time in milliseconds, later than the one before, and a value's bits.
    pub(super) fn push(&mut self, time: i64, value: u64) {
        let delta = time.wrapping_sub(self.last) as u64;
        match self.count {
            0 => {
                self.first = time;
                // A sign is the lowest bit.
                self.bits.put_number((time << 1 ^ time >> 63) as u64);
                self.bits.put(value, 64);
            }
            1 => {
                self.bits.put_number(delta);
                self.put_value(value);
            }
            _ => {
                self.put_time(delta.wrapping_sub(self.delta) as i64);
                self.put_value(value);
            }
        }
        (self.delta, self.last, self.value) = (delta, time, value);
        self.count += 1;
    }

    fn put_time(&mut self, differs: i64) {
        if differs == 0 {
            return self.bits.put(0, 1);
        }
        let fits = |width: u32| {
            let half = 1_i64 << (width - 1);
            (1 - half..=half).contains(&differs)
        };
        let width = WIDTHS.into_iter().find(|(width, ..)| fits(*width));
        let (width, says, of_those) = width.unwrap_or((64, 0b1111, 4));
        self.bits.put(says, of_those);
        self.bits.put(differs as u64, width);
    }

    fn put_value(&mut self, value: u64) {
        let differs = value ^ self.value;
        if differs == 0 {
            return self.bits.put(0, 1);
        }
        let (leading, trailing) =
            (differs.leading_zeros().min(MOST_LEADING), differs.trailing_zeros());
        if let Some((before, behind)) = self.zeros
            && before <= leading
            && behind <= trailing
        {
            self.bits.put(0b10, 2);
            return self.bits.put(differs >> behind, 64 - before - behind);
        }
        self.zeros = Some((leading, trailing));
        let between = 64 - leading - trailing;
        self.bits.put(0b11, 2);
        self.bits.put(leading.into(), 5);
        // All 64 are written as none.
        self.bits.put(u64::from(between) & 0x3f, 6);
        self.bits.put(differs >> trailing, between);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Reads what [`Bits`] writes.
    struct Reader<'a>(&'a [u8], usize);

    impl Reader<'_> {
        fn bits(&mut self, count: u32) -> u64 {
            (0..count).fold(0, |number, _| {
                let bit = self.0[self.1 / 8] >> (7 - self.1 % 8) & 1;
                self.1 += 1;
                number << 1 | u64::from(bit)
            })
        }

        fn number(&mut self) -> u64 {
            let (mut number, mut shift) = (0, 0);
            loop {
                let byte = self.bits(8);
                number |= (byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return number;
                }
            }
        }

        fn differs(&mut self) -> i64 {
            let ones = (0..4).take_while(|_| self.bits(1) == 1).count();
            let width = [0, 14, 17, 20, 64][ones];
            let bits = self.bits(width) as i64;
            match width {
                14 | 17 | 20 if bits > 1 << (width - 1) => bits - (1 << width),
                _ => bits,
            }
        }
    }

    /// The samples of a chunk: times in milliseconds, and the bits of values.
    pub(crate) fn samples(chunk: &[u8]) -> Vec<(i64, u64)> {
        let count = u16::from_be_bytes([chunk[0], chunk[1]]);
        let mut reader = Reader(chunk, 16);
        let (mut time, mut delta, mut value, mut zeros) = (0, 0_i64, 0, (0, 0));
        let mut all = Vec::new();
        for number in 0..count {
            match number {
                0 => {
                    let zigzag = reader.number();
                    time = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
                    value = reader.bits(64);
                }
                1 => delta = reader.number() as i64,
                _ => delta = delta.wrapping_add(reader.differs()),
            }
            if number > 0 {
                time = time.wrapping_add(delta);
                if reader.bits(1) == 1 {
                    if reader.bits(1) == 1 {
                        let leading = reader.bits(5) as u32;
                        let between = match reader.bits(6) as u32 {
                            0 => 64,
                            some => some,
                        };
                        zeros = (leading, 64 - leading - between);
                    }
                    value ^= reader.bits(64 - zeros.0 - zeros.1) << zeros.1;
                }
            }
            all.push((time, value));
        }
        // Nothing but zeros fills the last byte.
        assert!(reader.1.div_ceil(8) == chunk.len(), "{} of {} bytes", reader.1 / 8, chunk.len());
        all
    }

    fn chunk(samples: &[(i64, u64)]) -> Vec<u8> {
        let mut chunk = Chunk::new();
        samples.iter().for_each(|(time, value)| chunk.push(*time, *value));
        let (bytes, first, last) = chunk.end().unwrap();
        assert_eq!((first, last), (samples[0].0, samples[samples.len() - 1].0));
        bytes
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..300 {
            let (mut time, mut value) = (next() as i64 >> (next() % 60), next());
            let mut samples = Vec::new();
            for _ in 0..1 + next() % u64::from(SAMPLES) {
                samples.push((time, value));
                let step = match next() % 5 {
                    0 => 15_000,
                    1 => 1 + next() % 20_000,
                    2 => 1 + (next() >> 44),
                    3 => 1 + (next() >> 46),
                    _ => 1 + (next() >> 25),
                };
                time = time.saturating_add(step as i64);
                value = match next() % 4 {
                    0 => value,
                    1 => (f64::from_bits(value) + 1.0).to_bits(),
                    2 => value ^ (next() >> (next() % 64)) << (next() % 64),
                    _ => next(),
                };
            }
            samples.dedup_by_key(|(time, _)| *time);
            assert_eq!(super::tests::samples(&chunk(&samples)), samples);
        }
    }

    /// Bytes put together by hand of what the format says.
    #[test]
    fn each_form_of_a_delta_has_its_bits() {
        let one = 1.0_f64.to_bits();
        let bytes = chunk(&[(1, one), (3, one), (5, one), (8, one)]);
        let mut expected = vec![0, 4, 2];
        expected.extend_from_slice(&one.to_be_bytes());
        // A delta of 2; the value; the same delta and value; 1 more in 14 bits, and the value.
        expected.extend_from_slice(&[2, 0b0001_0000, 0b0000_0000, 0b0010_0000]);
        assert_eq!(bytes, expected);
        // 8192 is the greatest that 14 bits are for, and -8191 the least.
        for (differs, bits) in [(8192, 14), (8193, 17), (-8191, 14), (-8192, 17), (1 << 19, 20)] {
            let samples = [(0, 0), (100_000, 0), (200_000 + differs, 0)];
            let bytes = chunk(&samples);
            let header = bits / 17 + bits / 20 + 2;
            assert_eq!(bytes.len(), 2 + 1 + 8 + 3 + (1 + header + bits + 1_usize).div_ceil(8));
            assert_eq!(super::tests::samples(&bytes), samples);
        }
    }
}
