//! A sequence of floats, made a sequence of integers in one of two ways.
//!
//! *Decimals*: a float that was printed with few digits is an integer divided by a power of ten,
//! exactly, so the integer is written; floats for which that fails stand apart, whole. *Ordered
//! bits*: the bits of a float, read as an integer, ascend with the float (negative ones after a
//! flip). A walk of full doubles moves by about as many units in the last place as its step has
//! information, so the difference of such integers is the shortest that it can be, without the
//! carry that an XOR of neighbours drags along. Zeros that all of them end in are cut off.

use super::integers::{self, Plan};
use super::reader::{Reader, write_number};
use crate::error::Result;

const ORDERED_BITS: u8 = 0;
const DECIMALS: u8 = 1;

/// Powers of ten that a decimal is divided by.
const POWERS: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Adding this to a float below 2^51 leaves the rounded integer in the lowest bits: 1.5 × 2^52.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
const DECIMAL_LIMIT: f64 = (1_u64 << 51) as f64;

/// What an exception costs, in bits: itself and its place.
const EXCEPTION: usize = 64 + 12;
/// Floats on which the number of decimals is judged.
const SAMPLE: usize = 32;

/// Appends the floats. Whoever reads them has to know how many they are.
pub(super) fn encode(floats: &[f64], out: &mut Vec<u8>) {
    if let Some((exponent, fits_all)) = decimals(floats) {
        let decimals = Decimals::new(floats, exponent);
        // Few digits against full doubles: nothing to compare. Else both ways are tried.
        if fits_all && decimals.exceptions.is_empty() && decimals.plan.cost < 24.0 {
            return decimals.write(floats, out);
        }
        let ordered = Ordered::new(floats);
        if decimals.cost(floats.len()) < ordered.plan.cost {
            decimals.write(floats, out);
        } else {
            ordered.write(out);
        }
    } else {
        Ordered::new(floats).write(out);
    }
}

/// Reads `count` floats, in place of what is in `floats`.
pub(super) fn decode(reader: &mut Reader<'_>, count: usize, floats: &mut Vec<f64>) -> Result<()> {
    floats.clear();
    floats.reserve(count);
    match Way::read(reader, count)? {
        Way::Ordered { shift } => integers::decode_blocks(reader, count, |block| {
            floats.extend(block.iter().map(|ordered| unordered(*ordered, shift)));
        }),
        Way::Decimals(decimals) => {
            integers::decode_blocks(reader, count, |block| {
                floats.extend(block.iter().map(|integer| divided(*integer, decimals.power)));
            })?;
            decimals.put_exceptions(floats)
        }
    }
}

/// Reads a single float.
pub(super) fn decode_one(reader: &mut Reader<'_>) -> Result<f64> {
    match Way::read(reader, 1)? {
        Way::Ordered { shift } => Ok(unordered(integers::decode_one(reader)?, shift)),
        Way::Decimals(decimals) => {
            let mut only = [divided(integers::decode_one(reader)?, decimals.power)];
            decimals.put_exceptions(&mut only)?;
            Ok(only[0])
        }
    }
}

/// How floats are written: what stands before their integers.
enum Way<'a> {
    Ordered { shift: u32 },
    Decimals(Decimal<'a>),
}

/// Floats as integers divided by a power of ten, and those that are not.
struct Decimal<'a> {
    power: f64,
    /// How many are not, and where they begin.
    exceptions: usize,
    apart: Reader<'a>,
}

impl<'a> Way<'a> {
    /// Reads what stands before the integers of `count` floats.
    fn read(reader: &mut Reader<'a>, count: usize) -> Result<Self> {
        match reader.byte()? {
            ORDERED_BITS => {
                let shift = u32::from(reader.byte()?);
                if shift > 63 {
                    return Err(reader.wrong("a shift below 64"));
                }
                Ok(Self::Ordered { shift })
            }
            DECIMALS => {
                let exponent = usize::from(reader.byte()?);
                let Some(power) = POWERS.get(exponent) else {
                    return Err(reader.wrong("a power of ten below 16"));
                };
                let exceptions = reader.count(count)?;
                let apart = reader.clone();
                for _ in 0..exceptions {
                    reader.number()?;
                    reader.fixed::<8>()?;
                }
                Ok(Self::Decimals(Decimal { power: *power, exceptions, apart }))
            }
            _ => Err(reader.wrong("a known way of writing floats")),
        }
    }
}

/// The float of which this integer is the ordered bits.
fn unordered(ordered: i64, shift: u32) -> f64 {
    f64::from_bits((flip(ordered, shift) as u64) << shift)
}

/// An integer, below 2^51, divided by a power of ten.
fn divided(integer: i64, power: f64) -> f64 {
    (f64::from_bits(integer.wrapping_add(ROUNDER.to_bits() as i64) as u64) - ROUNDER) / power
}

impl Decimal<'_> {
    /// Puts what is no decimal into its places.
    fn put_exceptions(mut self, floats: &mut [f64]) -> Result<()> {
        let mut next = 0_usize;
        for _ in 0..self.exceptions {
            let skipped = usize::try_from(self.apart.number()?).ok();
            let index = skipped.and_then(|skipped| next.checked_add(skipped));
            let bits = u64::from_le_bytes(self.apart.fixed()?);
            match index.and_then(|index| floats.get_mut(index).map(|float| (index, float))) {
                Some((index, float)) => {
                    *float = f64::from_bits(bits);
                    next = index + 1;
                }
                None => return Err(self.apart.wrong("an exception within its sequence")),
            }
        }
        Ok(())
    }
}

/// Makes the bits of floats, without `shift` bits at their end, ascend as the floats do, and back:
/// negative ones are turned around.
fn flip(bits: i64, shift: u32) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1 >> shift) as i64
}

struct Ordered {
    shift: u32,
    integers: Vec<i64>,
    plan: Plan,
}

impl Ordered {
    fn new(floats: &[f64]) -> Self {
        let all = floats.iter().fold(0, |all, float| all | float.to_bits());
        let shift = all.trailing_zeros().min(63);
        let integers: Vec<i64> =
            floats.iter().map(|float| flip(float.to_bits() as i64 >> shift, shift)).collect();
        let plan = integers::plan(&integers);
        Self { shift, integers, plan }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(ORDERED_BITS);
        out.push(self.shift as u8);
        integers::encode_planned(&self.integers, self.plan, out);
    }
}

/// The float as an integer of 10^-exponent, if it is exactly that.
fn decimal(float: f64, power: f64) -> Option<i64> {
    let scaled = float * power;
    let rounded = scaled + ROUNDER;
    let integer = (rounded.to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64);
    let back = (rounded - ROUNDER) / power;
    (scaled.abs() < DECIMAL_LIMIT && back.to_bits() == float.to_bits()).then_some(integer)
}

/// The least number of decimals with which most of a sample is exact, and whether that was all of
/// it. `None` if most of it is not decimal.
fn decimals(floats: &[f64]) -> Option<(usize, bool)> {
    let fits = |count: usize, least: usize| {
        let stride = (floats.len() / count).max(1);
        let sample = floats.iter().step_by(stride).take(count);
        let judged = sample.len();
        let exact =
            |power: f64| sample.clone().filter(|float| decimal(**float, power).is_some()).count();
        let mut best = (0, 0);
        for (exponent, power) in POWERS.iter().enumerate().skip(least) {
            let exact = exact(*power);
            if exact > best.1 {
                best = (exponent, exact);
            }
            if exact == judged {
                break;
            }
        }
        (best.0, best.1, judged)
    };
    // Full doubles are told by a few.
    let (_, exact, _) = fits(8, 0);
    if exact == 0 {
        return None;
    }
    let (exponent, exact, judged) = fits(SAMPLE, 0);
    (exact * 2 >= judged).then_some((exponent, exact == judged))
}

struct Decimals {
    exponent: usize,
    /// Places of floats that are not decimal.
    exceptions: Vec<usize>,
    integers: Vec<i64>,
    plan: Plan,
}

impl Decimals {
    fn new(floats: &[f64], exponent: usize) -> Self {
        let power = POWERS[exponent];
        let mut exceptions = Vec::new();
        let mut integers = Vec::with_capacity(floats.len());
        let mut last = 0;
        for (index, float) in floats.iter().enumerate() {
            match decimal(*float, power) {
                Some(integer) => last = integer,
                None => exceptions.push(index),
            }
            integers.push(last);
        }
        let plan = integers::plan(&integers);
        Self { exponent, exceptions, integers, plan }
    }

    fn cost(&self, count: usize) -> f64 {
        self.plan.cost + (self.exceptions.len() * EXCEPTION) as f64 / count as f64
    }

    fn write(&self, floats: &[f64], out: &mut Vec<u8>) {
        out.push(DECIMALS);
        out.push(self.exponent as u8);
        write_number(self.exceptions.len() as u64, out);
        let mut next = 0;
        for index in &self.exceptions {
            write_number((index - next) as u64, out);
            out.extend_from_slice(&floats[*index].to_bits().to_le_bytes());
            next = index + 1;
        }
        integers::encode_planned(&self.integers, self.plan, out);
    }
}
