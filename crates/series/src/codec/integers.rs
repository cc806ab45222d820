//! A sequence of integers: what a predictor does not foresee, in blocks of 256, each as wide as
//! most of it needs.
//!
//! Three predictors: a *line* (first + slope × index: levels, regular times with jitter), *delta*
//! (the last one plus a slope: walks, counters), and *delta of delta* (the last difference again:
//! clocks that drift). The one that costs least on a sample is taken. What it leaves is made
//! unsigned by a zigzag. A block states a width; the numbers beyond it are exceptions, whose higher
//! bits stand apart, so one outlier costs a byte or two more and widens nobody else. All arithmetic
//! wraps: any 64 bits come back.

use super::bits::{self, BLOCK};
use super::reader::{Reader, unzigzag, write_number, write_signed, zigzag};
use crate::error::Result;

/// Bits of the first byte: which predictor; whether there is a divisor; whether nothing is left to
/// write.
const PREDICTOR: u8 = 3;
const DIVIDED: u8 = 4;
const EXACT: u8 = 8;

/// How many numbers, at most, the predictors are compared on.
const SAMPLE: usize = BLOCK;

/// Numbers that are few: room for a whole block has to be cleared, which takes longer than reading,
/// or writing, those.
const FEW: usize = 4;
const SOME: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Predictor {
    Line = 0,
    Delta = 1,
    DeltaOfDelta = 2,
}

/// How a sequence is going to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    predictor: Predictor,
    first: i64,
    slope: i64,
    /// Bits for a number, by the sample.
    pub(super) cost: f64,
    /// How the only block is written, if there are no numbers beyond the sample.
    shape: Option<Shape>,
}

impl Plan {
    fn new(predictor: Predictor, first: i64, slope: i64) -> Self {
        Self { predictor, first, slope, cost: 0.0, shape: None }
    }
}

/// The cheapest of the predictors for these numbers.
pub(super) fn plan(numbers: &[i64]) -> Plan {
    let sample = &numbers[..numbers.len().min(SAMPLE)];
    let [first, second, ..] = *sample else {
        let first = sample.first().copied().unwrap_or(0);
        return Plan::new(Predictor::Line, first, 0);
    };
    let step = median(sample.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])));
    let is_all = sample.len() == numbers.len();
    let mut best = Plan::new(Predictor::Delta, first, step).judged(sample, is_all);
    // Most times are regular, and need no other plan.
    if best.cost == 0.0 {
        return best;
    }
    let last = sample[sample.len() - 1];
    let rise = last.wrapping_sub(first) / (sample.len() - 1) as i64;
    let level = median(sample.iter().copied());
    let rising = sample
        .iter()
        .enumerate()
        .map(|(i, number)| number.wrapping_sub(rise.wrapping_mul(i as i64)));
    let others = [
        Plan::new(Predictor::Line, level, 0),
        Plan::new(Predictor::Line, median(rising), rise),
        Plan::new(Predictor::DeltaOfDelta, first, second.wrapping_sub(first)),
    ];
    for plan in others {
        let plan = plan.judged(sample, is_all);
        if plan.cost < best.cost {
            best = plan;
        }
        if best.cost == 0.0 {
            break;
        }
    }
    best
}

/// The median of 31 of them: good enough, and an outlier does not move it.
fn median(numbers: impl ExactSizeIterator<Item = i64>) -> i64 {
    let stride = (numbers.len() / 31).max(1);
    let mut chosen = [0; 64];
    let mut count = 0;
    for (place, number) in chosen.iter_mut().zip(numbers.step_by(stride)) {
        *place = number;
        count += 1;
    }
    let chosen = &mut chosen[..count];
    let middle = count / 2;
    *chosen.select_nth_unstable(middle).1
}

impl Plan {
    /// What the predictor leaves of the numbers from `start` on, as many as `left` has room for.
    fn residuals(&self, numbers: &[i64], start: usize, left: &mut [u64]) {
        let numbers = &numbers[..start + left.len()];
        match self.predictor {
            Predictor::Line => {
                let mut expected = self.first.wrapping_add(self.slope.wrapping_mul(start as i64));
                for (left, number) in left.iter_mut().zip(&numbers[start..]) {
                    *left = zigzag(number.wrapping_sub(expected));
                    expected = expected.wrapping_add(self.slope);
                }
            }
            Predictor::Delta => {
                let skipped = usize::from(start == 0);
                left[..skipped].fill(0);
                let pairs = numbers[(start + skipped - 1)..].windows(2);
                for (left, pair) in left[skipped..].iter_mut().zip(pairs) {
                    *left = zigzag(pair[1].wrapping_sub(pair[0]).wrapping_sub(self.slope));
                }
            }
            Predictor::DeltaOfDelta => {
                let skipped = if start == 0 { left.len().min(2) } else { 0 };
                left[..skipped].fill(0);
                let Some(threes) = numbers.get((start + skipped).saturating_sub(2)..) else {
                    return;
                };
                for (left, three) in left[skipped..].iter_mut().zip(threes.windows(3)) {
                    let difference = three[2].wrapping_sub(three[1]);
                    *left = zigzag(difference.wrapping_sub(three[1].wrapping_sub(three[0])));
                }
            }
        }
    }

    /// The plan with what it costs, by a sample that has one block at most, or is all there is.
    fn judged(mut self, sample: &[i64], is_all: bool) -> Self {
        let shape = if sample.len() <= SOME {
            self.shape_within::<SOME>(sample)
        } else {
            self.shape_within::<BLOCK>(sample)
        };
        self.cost = shape.bits as f64 / sample.len() as f64;
        self.shape = is_all.then_some(shape);
        self
    }

    /// How a block would be written that has room in `ROOM` numbers.
    fn shape_within<const ROOM: usize>(&self, block: &[i64]) -> Shape {
        let mut left = [0; ROOM];
        let left = &mut left[..block.len()];
        self.residuals(block, 0, left);
        Shape::of(left)
    }
}

/// How one block is written.
#[derive(Clone, Copy, Debug)]
struct Shape {
    width: u32,
    exceptions: usize,
    /// Bits of an exception above the width.
    excess: u32,
    /// What the block takes, in bits.
    bits: usize,
}

impl Shape {
    /// The cheapest shape for these numbers.
    fn of(numbers: &[u64]) -> Self {
        // Regular times leave nothing, which is seen many at a time.
        if numbers.iter().fold(0, |all, number| all | number) == 0 {
            return Self { width: 0, exceptions: 0, excess: 0, bits: 0 };
        }
        let lengths = lengths(numbers);
        let longest = lengths.iter().rposition(|count| *count > 0).unwrap_or(0);
        let size = |width: usize, exceptions: usize| {
            let beyond = if exceptions > 0 { 8 + exceptions * (8 + longest - width) } else { 0 };
            16 + numbers.len() * width + beyond
        };
        let mut best = (size(longest, 0), longest, 0);
        let mut exceptions = 0;
        for width in (0..longest).rev() {
            exceptions += lengths[width + 1] as usize;
            // Their number is a byte; beyond that a wider block is cheaper anyway.
            if exceptions > numbers.len() / 2 {
                break;
            }
            let candidate = size(width, exceptions);
            if candidate < best.0 {
                best = (candidate, width, exceptions);
            }
        }
        let (bits, width, exceptions) = best;
        Self { width: width as u32, exceptions, excess: (longest - width) as u32, bits }
    }
}

/// How many of the numbers have each length in bits.
fn lengths(numbers: &[u64]) -> [u16; 65] {
    let length = |number: &u64| (64 - number.leading_zeros()) as usize;
    let mut lengths = [0; 65];
    if numbers.len() <= SOME {
        numbers.iter().for_each(|number| lengths[length(number)] += 1);
        return lengths;
    }
    // Counted in four places in turn: neighbours are alike, and a count must not wait for the one
    // before.
    let mut counts = [[0_u16; 65]; 4];
    let (fours, rest) = numbers.as_chunks::<4>();
    for four in fours {
        counts.iter_mut().zip(four).for_each(|(counts, number)| counts[length(number)] += 1);
    }
    rest.iter().for_each(|number| counts[0][length(number)] += 1);
    for counts in &counts {
        lengths.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    lengths
}

/// Appends the numbers. Whoever reads them has to know how many they are.
pub(super) fn encode(numbers: &[i64], out: &mut Vec<u8>) {
    encode_planned(numbers, plan(numbers), out);
}

/// [`encode`], when the plan for exactly these numbers is known.
pub(super) fn encode_planned(numbers: &[i64], plan: Plan, out: &mut Vec<u8>) {
    // Dividing saves less than a bit or two when there is hardly anything to divide.
    if plan.cost > 2.0
        && let Some((divisor, quotients)) = divided(numbers)
    {
        out.push(DIVIDED);
        write_number(divisor, out);
        write_signed(numbers[0], out);
        write_predicted(&quotients, self::plan(&quotients), out);
    } else {
        write_predicted(numbers, plan, out);
    }
}

/// The largest number that divides all distances from the first number, and the quotients; `None`
/// if that is 1 or a distance is too large.
fn divided(numbers: &[i64]) -> Option<(u64, Vec<i64>)> {
    let first = *numbers.first()?;
    let mut divisor = 0;
    for number in numbers {
        let distance = number.checked_sub(first)?.unsigned_abs();
        if divisor == 0 || distance % divisor != 0 {
            divisor = common_divisor(distance, divisor);
            if divisor == 1 {
                return None;
            }
        }
    }
    let by = i64::try_from(divisor).ok().filter(|divisor| *divisor > 1)?;
    Some((divisor, numbers.iter().map(|number| (number - first) / by).collect()))
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn write_predicted(numbers: &[i64], plan: Plan, out: &mut Vec<u8>) {
    match numbers {
        // A line through it leaves nothing.
        [only] => {
            out.push(Predictor::Line as u8 | EXACT);
            write_signed(*only, out);
            write_signed(0, out);
        }
        numbers if numbers.len() <= SOME => write_predicted_within::<SOME>(numbers, plan, out),
        numbers => write_predicted_within::<BLOCK>(numbers, plan, out),
    }
}

/// [`write_predicted`] of blocks that have room in `ROOM` numbers.
fn write_predicted_within<const ROOM: usize>(numbers: &[i64], plan: Plan, out: &mut Vec<u8>) {
    let head = out.len();
    out.push(plan.predictor as u8);
    write_signed(plan.first, out);
    write_signed(plan.slope, out);
    let blocks = out.len();
    let mut exact = true;
    let mut left = [0; ROOM];
    for start in (0..numbers.len()).step_by(BLOCK) {
        let left = &mut left[..BLOCK.min(numbers.len() - start)];
        plan.residuals(numbers, start, left);
        let shape = plan.shape.unwrap_or_else(|| Shape::of(left));
        exact &= shape.bits == 0;
        write_block::<ROOM>(left, &shape, out);
    }
    if exact {
        out.truncate(blocks);
        out[head] |= EXACT;
    }
}

fn write_block<const ROOM: usize>(numbers: &[u64], shape: &Shape, out: &mut Vec<u8>) {
    out.push(shape.width as u8);
    out.push(shape.exceptions as u8);
    if shape.exceptions > 0 {
        out.push(shape.excess as u8);
        let beyond = bits::mask(shape.width);
        let mut highs = [0; ROOM];
        let mut count = 0;
        for (index, number) in numbers.iter().enumerate().filter(|(_, number)| **number > beyond) {
            out.push(index as u8);
            highs[count] = number >> shape.width;
            count += 1;
        }
        debug_assert_eq!(count, shape.exceptions, "the histogram counted right");
        bits::pack(&highs[..count], shape.excess, out);
    }
    bits::pack(numbers, shape.width, out);
}

/// Reads `count` numbers, in place of what is in `numbers`.
pub(super) fn decode(reader: &mut Reader<'_>, count: usize, numbers: &mut Vec<i64>) -> Result<()> {
    numbers.clear();
    numbers.reserve(count);
    decode_blocks(reader, count, |block| numbers.extend_from_slice(block))
}

/// Reads a single number.
pub(super) fn decode_one(reader: &mut Reader<'_>) -> Result<i64> {
    let mut only = 0;
    decode_blocks(reader, 1, |block| only = block.first().copied().unwrap_or(0))?;
    Ok(only)
}

/// Reads `count` numbers and gives them to `take`, up to 256 at a time, while they are warm.
pub(super) fn decode_blocks(
    reader: &mut Reader<'_>,
    count: usize,
    mut take: impl FnMut(&[i64]),
) -> Result<()> {
    let head = reader.byte()?;
    if head & !(PREDICTOR | DIVIDED | EXACT) != 0 {
        return Err(reader.wrong("a known way of writing integers"));
    }
    if head & DIVIDED == 0 {
        return read_predicted(reader, head, count, |block| take(block));
    }
    let divisor = reader.number()? as i64;
    let first = reader.signed()?;
    let head = reader.byte()?;
    read_predicted(reader, head, count, |block| {
        for number in &mut *block {
            *number = number.wrapping_mul(divisor).wrapping_add(first);
        }
        take(block);
    })
}

fn read_predicted(
    reader: &mut Reader<'_>,
    head: u8,
    count: usize,
    take: impl FnMut(&mut [i64]),
) -> Result<()> {
    if count <= FEW {
        read_predicted_within::<FEW>(reader, head, count, take)
    } else {
        read_predicted_within::<BLOCK>(reader, head, count, take)
    }
}

/// [`read_predicted`] of blocks that have room in `ROOM` numbers.
fn read_predicted_within<const ROOM: usize>(
    reader: &mut Reader<'_>,
    head: u8,
    count: usize,
    mut take: impl FnMut(&mut [i64]),
) -> Result<()> {
    let predictor = match head & !EXACT {
        0 => Predictor::Line,
        1 => Predictor::Delta,
        2 => Predictor::DeltaOfDelta,
        _ => return Err(reader.wrong("a known predictor")),
    };
    let first = reader.signed()?;
    let slope = reader.signed()?;
    let mut rest = Rest {
        predictor,
        expected: first,
        slope,
        last: first.wrapping_sub(slope),
        difference: slope,
    };
    let mut left = [0; ROOM];
    let mut numbers = [0; ROOM];
    for start in (0..count).step_by(BLOCK) {
        let length = BLOCK.min(count - start);
        let (left, numbers) = (&mut left[..length], &mut numbers[..length]);
        if head & EXACT != 0 {
            rest.follow(numbers);
        } else {
            read_block(reader, left)?;
            rest.restore(left, numbers);
        }
        take(numbers);
    }
    Ok(())
}

/// Where the predictor stands between two blocks.
struct Rest {
    predictor: Predictor,
    /// What the line says of the next number.
    expected: i64,
    slope: i64,
    last: i64,
    difference: i64,
}

impl Rest {
    /// The numbers when nothing was left: a line, whichever predictor foresaw it.
    fn follow(&mut self, numbers: &mut [i64]) {
        for number in numbers {
            *number = self.expected;
            self.expected = self.expected.wrapping_add(self.slope);
        }
    }

    /// The numbers of which the predictor left `left`.
    fn restore(&mut self, left: &[u64], numbers: &mut [i64]) {
        match self.predictor {
            Predictor::Line => {
                for (number, left) in numbers.iter_mut().zip(left) {
                    *number = self.expected.wrapping_add(unzigzag(*left));
                    self.expected = self.expected.wrapping_add(self.slope);
                }
            }
            Predictor::Delta => {
                for (number, left) in numbers.iter_mut().zip(left) {
                    self.last = self.last.wrapping_add(self.slope.wrapping_add(unzigzag(*left)));
                    *number = self.last;
                }
            }
            Predictor::DeltaOfDelta => {
                for (number, left) in numbers.iter_mut().zip(left) {
                    self.difference = self.difference.wrapping_add(unzigzag(*left));
                    self.last = self.last.wrapping_add(self.difference);
                    *number = self.last;
                }
            }
        }
    }
}

fn read_block(reader: &mut Reader<'_>, numbers: &mut [u64]) -> Result<()> {
    let width = u32::from(reader.byte()?);
    let exceptions = usize::from(reader.byte()?);
    if width > 64 || exceptions > numbers.len() {
        return Err(reader.wrong("a width of at most 64 and no more exceptions than numbers"));
    }
    if exceptions == 0 {
        return bits::unpack(reader, width, numbers);
    }
    let excess = u32::from(reader.byte()?);
    if excess == 0 || width + excess > 64 {
        return Err(reader.wrong("exceptions of at most 64 bits"));
    }
    let places = reader.take(exceptions)?;
    let mut highs = [0; BLOCK];
    let highs = &mut highs[..exceptions];
    bits::unpack(reader, excess, highs)?;
    bits::unpack(reader, width, numbers)?;
    for (place, high) in places.iter().zip(highs) {
        match numbers.get_mut(usize::from(*place)) {
            Some(number) => *number |= *high << width,
            None => return Err(reader.wrong("an exception within its block")),
        }
    }
    Ok(())
}
