//! Numbers of a given width, packed without gaps.
//!
//! A whole block of 256 numbers lies in four lanes: number *i* belongs to lane *i* mod 4, and the
//! four lanes' words alternate. So one shift by one amount unpacks four numbers, which the compiler
//! turns into vector instructions for any width, with one loop for all widths. What is left at the
//! end of a sequence is packed one number after the other.

use super::reader::Reader;
use crate::error::Result;

/// Numbers in a whole block.
pub(super) const BLOCK: usize = 256;
const LANES: usize = 4;
const ROWS: usize = BLOCK / LANES;

/// All ones in the lowest `width` bits; `width` is at most 64.
pub(super) fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(64 - width).unwrap_or(0)
}

/// Bytes that `count` numbers of `width` bits take.
pub(super) fn packed_len(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Appends the lowest `width` bits of each number.
pub(super) fn pack(numbers: &[u64], width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    match numbers.first_chunk() {
        Some(block) if numbers.len() == BLOCK => pack_block(block, width, out),
        _ => pack_tail(numbers, width, out),
    }
}

/// Reads as many numbers of `width` bits (at most 64) as `numbers` has room for.
pub(super) fn unpack(reader: &mut Reader<'_>, width: u32, numbers: &mut [u64]) -> Result<()> {
    if width == 0 {
        numbers.fill(0);
        return Ok(());
    }
    let bytes = reader.take(packed_len(numbers.len(), width))?;
    if numbers.len() == BLOCK {
        if let Some(block) = numbers.first_chunk_mut() {
            unpack_block(bytes, width, block);
        }
    } else {
        unpack_tail(bytes, width, numbers);
    }
    Ok(())
}

fn pack_block(numbers: &[u64; BLOCK], width: u32, out: &mut Vec<u8>) {
    let mut words = [0_u64; LANES * (ROWS + 1)];
    let mask = mask(width);
    for (row, lanes) in numbers.chunks_exact(LANES).enumerate() {
        let bit = row as u32 * width;
        let (word, shift) = ((bit / 64) as usize * LANES, bit % 64);
        let Some(pair) = words.get_mut(word..word + 2 * LANES) else { break };
        let (low, high) = pair.split_at_mut(LANES);
        for ((low, high), number) in low.iter_mut().zip(high).zip(lanes) {
            let number = number & mask;
            *low |= number << shift;
            *high |= (number >> 1) >> (63 - shift);
        }
    }
    for word in &words[..LANES * width as usize] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn unpack_block(bytes: &[u8], width: u32, numbers: &mut [u64; BLOCK]) {
    let mut words = [0_u64; LANES * (ROWS + 1)];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mask = mask(width);
    let mut bit = 0;
    for lanes in numbers.as_chunks_mut::<LANES>().0 {
        let (word, shift) = ((bit / 64) as usize * LANES, bit % 64);
        bit += width;
        let Some(pair) = words.get(word..).and_then(|words| words.first_chunk::<{ 2 * LANES }>())
        else {
            break;
        };
        for lane in 0..LANES {
            lanes[lane] =
                ((pair[lane] >> shift) | ((pair[LANES + lane] << 1) << (63 - shift))) & mask;
        }
    }
}

fn pack_tail(numbers: &[u64], width: u32, out: &mut Vec<u8>) {
    let mask = mask(width);
    let (mut waiting, mut bits) = (0_u128, 0);
    for number in numbers {
        waiting |= u128::from(number & mask) << bits;
        bits += width;
        while bits >= 8 {
            out.push(waiting as u8);
            waiting >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(waiting as u8);
    }
}

fn unpack_tail(bytes: &[u8], width: u32, numbers: &mut [u64]) {
    let mask = mask(width);
    let mut bytes = bytes.iter();
    let (mut waiting, mut bits) = (0_u128, 0);
    for number in numbers {
        while bits < width {
            waiting |= u128::from(bytes.next().copied().unwrap_or(0)) << bits;
            bits += 8;
        }
        *number = waiting as u64 & mask;
        waiting >>= width;
        bits -= width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;

    #[test]
    fn numbers_of_every_width_come_back() {
        let mut random = Random::new(7);
        for width in 0..=64 {
            for count in [0, 1, 3, 8, 100, 255, 256] {
                let numbers: Vec<u64> = (0..count).map(|_| random.next() & mask(width)).collect();
                let mut bytes = Vec::new();
                pack(&numbers, width, &mut bytes);
                assert_eq!(bytes.len(), packed_len(count, width));
                let mut back = vec![1; count];
                let mut reader = Reader::new(&bytes);
                unpack(&mut reader, width, &mut back).unwrap();
                assert_eq!(back, numbers, "width {width}");
                assert!(reader.is_empty());
            }
        }
    }
}
