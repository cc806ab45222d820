//! What a leaf has to hold to: every point comes back bit by bit, and wrong bytes are an error.
//!
//! Points are drawn from a seed, of all the kinds that a predictor or a transformation could get
//! wrong; the seed is in each message.

use super::*;
use crate::value::Point;
use crate::workload::{self, Random};

fn round_trip(points: &Points, what: &str) -> Vec<u8> {
    let bytes = encode(points);
    let mut back = Points::default();
    decode(&bytes, &mut back).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(&back, points, "{what}");
    bytes
}

/// Times of one of several kinds, strictly ascending.
fn times(random: &mut Random, count: usize) -> Vec<i64> {
    let mut time = match random.below(4) {
        0 => i64::MIN,
        1 => 0,
        _ => workload::START,
    };
    let kind = random.below(6);
    let step = 1 + random.below(10_000_000_000) as i64;
    (0..count)
        .map(|index| {
            let this = time;
            time += match kind {
                0 => step,
                1 => 1 + random.below(1 << 40) as i64,
                2 => step + random.below(1000) as i64 * 1_000_000,
                3 if index % 100 == 99 => step * 1000,
                4 => 1,
                _ => step,
            };
            this
        })
        .collect()
}

/// Floats that codecs get wrong.
const ODD: [u64; 14] = [
    0,
    1 << 63,
    1,
    (1 << 63) | 1,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0xfff8_0000_0000_1234,
    0x7ff0_0000_0000_0001,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x4320_0000_0000_0001,
    0x3fb9_9999_9999_999a,
];

fn float(random: &mut Random, kind: u64, index: usize) -> f64 {
    match kind {
        0 => f64::from_bits(random.next()),
        1 => f64::from_bits(ODD[random.below(14) as usize]),
        2 => (random.normal() * 1000.0).round() / 100.0,
        3 if random.below(20) == 0 => f64::from_bits(ODD[random.below(14) as usize]),
        3 => index as f64 / 4.0,
        4 => random.normal(),
        5 => 10.0 + (index as f64).sin() * 1e-9,
        6 => random.below(1 << 60) as f64,
        7 => f64::from(random.normal() as f32),
        8 => index as f64 * 1e-3,
        9 => -0.0,
        _ => 1e300 * random.normal(),
    }
}

fn integer(random: &mut Random, kind: u64, index: usize) -> i64 {
    match kind {
        0 => random.next() as i64,
        1 => [i64::MIN, i64::MAX, 0, -1][random.below(4) as usize],
        2 => index as i64 * 4096 - 100,
        3 => random.below(100) as i64 - 50,
        4 if random.below(50) == 0 => random.next() as i64,
        4 => 7,
        5 => (index * index) as i64 * 1000,
        6 => random.below(3) as i64 * 1_000_000_007,
        _ => i64::MAX - random.below(5) as i64,
    }
}

fn random_points(random: &mut Random) -> Points {
    let count = match random.below(5) {
        0 => 1 + random.below(4) as usize,
        1 => 255 + random.below(3) as usize,
        _ => 1 + random.below(1500) as usize,
    };
    let (shape, kind) = (random.below(5), random.below(11));
    let value = |random: &mut Random, index: usize| match shape {
        0 | 1 => Value::Float(float(random, kind, index)),
        2 | 3 => Value::Integer(integer(random, kind, index)),
        _ if random.below(3) == 0 => Value::Integer(integer(random, kind, index)),
        _ => Value::Float(float(random, kind, index)),
    };
    let values = (0..count).map(|index| value(random, index)).collect();
    Points { times: times(random, count), values }
}

#[test]
fn points_of_all_kinds_come_back() {
    for seed in 0..3000 {
        let points = random_points(&mut Random::new(seed));
        round_trip(&points, &format!("seed {seed}"));
    }
}

#[test]
fn the_largest_leaf_comes_back() {
    let mut random = Random::new(5);
    round_trip(&workload::noise(&mut random, MAX_LEAF_POINTS), "noise");
    assert!(round_trip(&workload::constant(MAX_LEAF_POINTS), "constant").len() < 48);
}

#[test]
fn a_flipped_bit_or_a_missing_byte_is_an_error() {
    let mut into = Points::default();
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut bytes = encode(&random_points(&mut random));
        for length in 0..bytes.len().min(400) {
            assert!(decode(&bytes[..length], &mut into).is_err(), "seed {seed}, {length} bytes");
        }
        for _ in 0..400 {
            let (at, bit) = (random.below(bytes.len() as u64) as usize, 1 << random.below(8));
            bytes[at] ^= bit;
            assert!(decode(&bytes, &mut into).is_err(), "seed {seed}, byte {at}, bit {bit}");
            bytes[at] ^= bit;
        }
        bytes.push(0);
        assert!(decode(&bytes, &mut into).is_err(), "seed {seed}, a byte more");
    }
}

/// Whoever makes a checksum right can still not bring the decoder to its knees.
#[test]
fn bytes_with_a_right_checksum_never_panic() {
    let mut into = Points::default();
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let original = encode(&random_points(&mut random));
        for _ in 0..100 {
            let mut bytes = original.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            bytes.truncate(HEADER.max(bytes.len() - random.below(3) as usize));
            let right = checksum(&bytes);
            bytes[CHECKSUM].copy_from_slice(&right.to_le_bytes());
            if decode(&bytes, &mut into).is_ok() {
                assert_eq!(into.times.len(), into.values.len());
            }
        }
    }
}

#[test]
fn the_bytes_are_those_of_the_format_page() {
    let points: Points = [(1000, 0.5), (2000, 0.75), (3000, 1.25)]
        .map(|(time, value)| Point { time, value: Value::Float(value) })
        .into_iter()
        .collect();
    let bytes = encode(&points);
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex.join(" "),
        "01 01 02 00 f9 b8 04 3b 09 d0 0f d0 0f 01 02 00 04 19 64 01 00 04 01 00 02"
    );
}

/// Bytes a point that the required figures leave room for, so that a change that loses them is
/// seen.
#[test]
fn the_shapes_of_the_benchmarks_stay_small() {
    let mut random = Random::new(9);
    let each = |points: Points| encode(&points).len() as f64 / points.len() as f64;
    let article = each(workload::seed_input(&mut random, 2048, false))
        + each(workload::seed_input(&mut random, 2048, true));
    assert!(article / 2.0 < 2.95, "the article's input: {}", article / 2.0);
    let walk = each(workload::two_decimals(&mut random, 2048, 0.1));
    assert!(walk < 0.8, "two decimals: {walk}");
    assert!(each(workload::constant(2048)) < 0.03);
    assert!(each(workload::cpu_only(&mut random, 2048)) < 0.6);
}
