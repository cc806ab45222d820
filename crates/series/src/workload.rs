//! Data to measure and test with, from a seed: the input of Akumuli's performance article, and the
//! usual shapes of metrics.
//!
//! Each generator gives the points of one series. [`seed_input`] is the article's: ten metrics a
//! row that start at 10 and walk by normal steps of deviation 0.01, half of them as full doubles,
//! half cut to integers, a second apart.

use crate::value::{Column, Points};

/// Random numbers from a seed (xoshiro256**), for data and tests.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
    spare: Option<f64>,
}

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        let mut filler = seed;
        let mut fill = || {
            filler = filler.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = filler;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self { state: [fill(), fill(), fill(), fill()], spare: None }
    }

    /// The next 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "a sequence without an end")]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number from 0 to below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A float from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A float of the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (self.unit() * 2.0 - 1.0, self.unit() * 2.0 - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }
}

/// 2017-01-01T00:00:00Z, when all generated series begin.
pub const START: i64 = 1_483_228_800_000_000_000;
const SECOND: i64 = 1_000_000_000;

/// The metrics of a row of [`seed_input`], and whether it cuts their values to integers.
pub const SEED_METRICS: [(&str, bool); 10] = [
    ("cpu.user", false),
    ("cpu.sys", false),
    ("cpu.real", false),
    ("idle", false),
    ("mem.commit", true),
    ("mem.virt", true),
    ("iops", true),
    ("tcp.packets.in", true),
    ("tcp.packets.out", true),
    ("tcp.ret", false),
];

fn regular(count: usize, step: i64) -> Vec<i64> {
    (0..count as i64).map(|index| START + index * step).collect()
}

fn floats(count: usize, step: i64, value: impl FnMut(usize) -> f64) -> Points {
    Points { times: regular(count, step), values: Column::Floats((0..count).map(value).collect()) }
}

fn integers(count: usize, step: i64, value: impl FnMut(usize) -> i64) -> Points {
    Points {
        times: regular(count, step),
        values: Column::Integers((0..count).map(value).collect()),
    }
}

/// One metric of the performance article's input.
pub fn seed_input(random: &mut Random, count: usize, as_integer: bool) -> Points {
    let mut level = 10.0;
    let mut walk = move || {
        level += random.normal() * 0.01;
        level
    };
    if as_integer {
        integers(count, SECOND, |_| walk() as i64)
    } else {
        floats(count, SECOND, |_| walk())
    }
}

/// A walk of normal steps of `deviation`, printed with two decimals, ten seconds apart.
pub fn two_decimals(random: &mut Random, count: usize, deviation: f64) -> Points {
    let mut level = 50.0;
    floats(count, 10 * SECOND, |_| {
        level += random.normal() * deviation;
        (level * 100.0).round() / 100.0
    })
}

/// A metric as TSBS' cpu-only data has them: an integer from 0 to 100 that walks by normal steps of
/// deviation 1, ten seconds apart.
pub fn cpu_only(random: &mut Random, count: usize) -> Points {
    let mut level = random.unit() * 100.0;
    integers(count, 10 * SECOND, |_| {
        level = (level + random.normal()).clamp(0.0, 100.0);
        level as i64
    })
}

/// The same value all the time.
pub fn constant(count: usize) -> Points {
    floats(count, SECOND, |_| 0.1)
}

/// A counter that grows by about a thousand each time.
pub fn counter(random: &mut Random, count: usize) -> Points {
    let mut total = 0;
    integers(count, SECOND, |_| {
        total += 1000 + random.below(200) as i64 - 100;
        total
    })
}

/// Doubles between 0 and 1 that have nothing to do with each other.
pub fn noise(random: &mut Random, count: usize) -> Points {
    floats(count, SECOND, |_| random.unit())
}

/// Times that jitter by milliseconds, and single precision values around zero.
pub fn sensor(random: &mut Random, count: usize) -> Points {
    let mut time = START;
    let times = (0..count)
        .map(|_| {
            time += SECOND + (random.normal() * 5.0).clamp(-400.0, 400.0) as i64 * 1_000_000;
            time
        })
        .collect();
    let values = (0..count).map(|_| f64::from(random.normal() as f32)).collect();
    Points { times, values: Column::Floats(values) }
}
