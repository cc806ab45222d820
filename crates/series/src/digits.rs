//! Decimal digits in pairs, by a table: a long answer is mostly numbers.

/// The two digits of each number below a hundred.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Puts a number below a hundred into the first two places.
pub(crate) fn put_pair(text: &mut [u8], number: u64) {
    text[..2].copy_from_slice(&PAIRS[number as usize]);
}

/// Puts a number below 10^8 into the first eight places.
pub(crate) fn put_eight(text: &mut [u8], number: u64) {
    let (high, low) = (number / 10_000, number % 10_000);
    put_pair(&mut text[..], high / 100);
    put_pair(&mut text[2..], high % 100);
    put_pair(&mut text[4..], low / 100);
    put_pair(&mut text[6..], low % 100);
}
